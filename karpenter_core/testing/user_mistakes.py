"""Mistakes of users and operators, and the messages that must name them.

Tests of providers play a table of `UserMistake`s in a `provider_cluster.ProviderCluster`, which
collects the `UserMessages` of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, final

from karpenter_core.api.json_objects import JsonMapping, JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UserMessages", "UserMistake"]

CloudT = TypeVar("CloudT")


@final
@dataclass(frozen=True, kw_only=True)
class UserMessages:
    """Messages that users and operators see about a NodeClass at one moment."""

    kind: str
    """Of the NodeClass."""
    conditions: Mapping[str, JsonMapping]
    """Of the NodeClass, by type."""
    object_errors: str
    """The errors that `karpenter doctor` finds about NodePools and NodeClasses, one a line."""
    cloud_errors: str
    """The errors that the provider's own check finds."""


@final
@dataclass(frozen=True, kw_only=True)
class UserMistake(Generic[CloudT]):
    """One mistake in a NodeClass called `default`, in settings or in the cloud."""

    name: str
    condition: str
    """The one that is False because of it."""
    reason: str
    must_name: tuple[str, ...]
    """The words that this condition, `Ready` and the doctor must contain: field and cause."""
    spec: JsonMapping = field(default_factory=JsonObject)
    """Fields of the NodeClass that are wrong."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings of the process that are wrong, as the provider's tests name them."""
    trouble: Callable[[CloudT], AbstractContextManager[object]] | None = None
    """The fault of the cloud, for as long as the context is entered."""
    cloud_check_names: str = ""
    """The words that the provider's own check must contain, where it needs no NodeClass for it."""

    def applied_to(self, cloud: CloudT) -> AbstractContextManager[object]:
        """Return the context in which the cloud is wrong."""
        return nullcontext() if self.trouble is None else self.trouble(cloud)

    def missing_messages(self, messages: UserMessages) -> list[str]:
        """Return missing and wrong messages, one line each."""
        condition = messages.conditions.get(self.condition, {})
        ready = messages.conditions.get("Ready", {})
        state = (condition.get("status"), condition.get("reason"))
        lines: list[str] = []
        if state != ("False", self.reason):
            lines.append(f"{self.condition} is {state}, not {('False', self.reason)}")
        if ready.get("status") != "False":
            lines.append(f"Ready is {ready.get('status')!r}")
        places = {
            self.condition: condition.get("message", ""),
            "Ready": ready.get("message", ""),
            "karpenter doctor": messages.object_errors,
        }
        lines += [
            f"{place} does not name {each!r}: {text!r}"
            for place, text in places.items()
            for each in self.must_name
            if each not in text
        ]
        if (
            f'{messages.kind} "default" is not ready: {self.condition}'
            not in messages.object_errors
        ):
            lines.append(f"karpenter doctor names another condition: {messages.object_errors!r}")
        if self.cloud_check_names not in messages.cloud_errors:
            lines.append(
                f"the cloud's check misses {self.cloud_check_names!r}: {messages.cloud_errors!r}"
            )
        if messages.cloud_errors and not self.cloud_check_names:
            lines.append(f"the cloud's check cannot know: {messages.cloud_errors!r}")
        return lines
