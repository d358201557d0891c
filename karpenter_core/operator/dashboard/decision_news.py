"""Passes decisions to the dashboard; drops repeated ones that do nothing.

Pods that stay pending are planned again whenever the cluster changes: the journal has every pass, a
page of decisions needs the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.decisions import Decision

__all__ = ["DecisionNews", "DecisionSource"]


class DecisionSource(Protocol):
    """Calls sinks with decisions."""

    def add_sink(self, sink: Callable[[Decision], None]) -> None:
        """Call `sink` with every decision; it must neither raise nor wait."""
        ...


@final
class DecisionNews:
    """The decisions of a source that change something, or read differently from the last of their kind."""

    def __init__(self, source: DecisionSource) -> None:
        self._source: Final = source
        self._idle: Final[dict[str, tuple[object, ...]]] = {}
        """By kind: the contents of the last decision, if it changes nothing."""
        self._sinks: Final[list[Callable[[Decision], None]]] = []

    def add_sink(self, sink: Callable[[Decision], None]) -> None:
        """Call `sink` with every decision that is news; it must neither raise nor wait."""
        if not self._sinks:
            self._source.add_sink(self._take)
        self._sinks.append(sink)

    def _take(self, decision: Decision) -> None:
        contents = (*decision.idle_key, decision.summary, decision.obstacles)
        before = self._idle.pop(decision.kind, None)
        if decision.is_idle:
            self._idle[decision.kind] = contents
            if contents == before:
                return
        for sink in self._sinks:
            sink(decision)
