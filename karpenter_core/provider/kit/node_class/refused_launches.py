"""Records refused launches that a dry run cannot predict.

Such refusals are missing permissions, and an account that cannot pay. A refusal becomes a condition of
the NodeClass, and until it expires nothing is launched from the NodeClass. Clouds do not report that
a policy was corrected: the next launch after the expiry finds out.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.node_class.findings import ConditionFinding

__all__ = ["RefusedLaunches"]

REFUSAL_TTL: Final = timedelta(minutes=5)
"""Pause of launches after a refusal."""


@final
class RefusedLaunches:
    """The refusals by the name of the NodeClass; callable from any thread."""

    def __init__(
        self, clock: Clock, refusal_of: Callable[[CloudProviderError], ConditionFinding | None]
    ) -> None:
        """`refusal_of` returns the refusal if the error of one launch means that all fail."""
        self._refusal_of: Final = refusal_of
        self._refusals: Final[TtlCache[str, ConditionFinding]] = TtlCache(clock, REFUSAL_TTL)

    def note(self, requests: Iterable[LaunchRequest], outcomes: Iterable[LaunchOutcome]) -> None:
        """Record the outcomes of launches, in the order of their requests.

        A successful launch ends the refusal of its NodeClass.
        """
        refused: dict[str, ConditionFinding] = {}
        succeeded: set[str] = set()
        for request, outcome in zip(requests, outcomes, strict=True):
            name = request.node_class.name
            if isinstance(outcome, LaunchedInstance):
                succeeded.add(name)
            elif (refusal := self._refusal_of(outcome)) is not None:
                refused[name] = refusal
        for name in succeeded:
            self._refusals.drop(name)
        for name in refused.keys() - succeeded:
            self._refusals.put(name, refused[name])

    def of(self, node_class: str) -> ConditionFinding | None:
        """Return the recent refusal of launches from a NodeClass."""
        return self._refusals.get(node_class)

    def forget(self, node_class: str) -> None:
        """Forget a NodeClass."""
        self._refusals.drop(node_class)
