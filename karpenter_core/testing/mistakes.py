"""What users and operators get wrong, and what must be said of each.

For tests of providers: a table of `Mistake`s is played on a `provider_stage.ProviderStage`, which sees
what is `Told`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Mistake", "Told"]

CloudT = TypeVar("CloudT")


@final
@dataclass(frozen=True, kw_only=True)
class Told:
    """What users and operators are told of a NodeClass, at one moment."""

    kind: str
    """Of the NodeClass."""
    conditions: Mapping[str, Mapping[str, Any]]
    """Of the NodeClass, by type."""
    of_objects: str
    """The errors that `karpenter doctor` finds about NodePools and NodeClasses, one a line."""
    of_the_cloud: str
    """The errors that the provider's own check finds."""


@final
@dataclass(frozen=True, kw_only=True)
class Mistake(Generic[CloudT]):
    """One thing that is wrong, in a NodeClass called `default`, in settings or in the cloud."""

    name: str
    condition: str
    """The one that is False because of it."""
    reason: str
    named: tuple[str, ...]
    """What that condition, `Ready` and the doctor must name: field and cause."""
    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the NodeClass that are wrong."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Settings of the process that are wrong, as the provider's tests name them."""
    trouble: Callable[[CloudT], AbstractContextManager[object]] | None = None
    """What is wrong in the cloud, for as long as the context is entered."""
    found_by_itself: str = ""
    """What the provider's own check must name, where it can know without a NodeClass."""
    needs_restart: bool = False
    """Whether a process cannot learn that it is mended."""

    def made_in(self, cloud: CloudT) -> AbstractContextManager[object]:
        """Return the context in which the cloud is wrong."""
        return nullcontext() if self.trouble is None else self.trouble(cloud)

    def unsaid(self, told: Told) -> list[str]:
        """Return what is not told as it must be, one line each."""
        found = told.conditions.get(self.condition, {})
        ready = told.conditions.get("Ready", {})
        state = (found.get("status"), found.get("reason"))
        lines: list[str] = []
        if state != ("False", self.reason):
            lines.append(f"{self.condition} is {state}, not {('False', self.reason)}")
        if ready.get("status") != "False":
            lines.append(f"Ready is {ready.get('status')!r}")
        places = {
            self.condition: found.get("message", ""),
            "Ready": ready.get("message", ""),
            "karpenter doctor": told.of_objects,
        }
        lines += [
            f"{place} does not name {each!r}: {text!r}"
            for place, text in places.items()
            for each in self.named
            if each not in text
        ]
        if f'{told.kind} "default" is not ready: {self.condition}' not in told.of_objects:
            lines.append(f"karpenter doctor names another condition: {told.of_objects!r}")
        if self.found_by_itself not in told.of_the_cloud:
            lines.append(
                f"the cloud's check misses {self.found_by_itself!r}: {told.of_the_cloud!r}"
            )
        if told.of_the_cloud and not self.found_by_itself:
            lines.append(f"the cloud's check cannot know: {told.of_the_cloud!r}")
        return lines
