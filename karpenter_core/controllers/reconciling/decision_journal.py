"""Keeps the last decisions in memory, and passes them to the journal's sinks.

A controller makes a record (`disruption.journal`, `scheduling.journal`) and passes it to the journal;
storing it can neither fail nor delay the controller.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from karpenter_core.api.decisions import Decision

__all__ = ["JOURNAL_SIZE", "DecisionJournal"]

JOURNAL_SIZE: Final = 1_000
"""Decisions kept in memory: a few megabytes at most."""


@final
class DecisionJournal:
    """The last decisions, newest last."""

    def __init__(self, *, size: int = JOURNAL_SIZE) -> None:
        self._ring: deque[Decision] = deque(maxlen=size)
        self._sinks: list[Callable[[Decision], None]] = []
        self._observers: list[Callable[[Decision], Awaitable[None]]] = []
        self._idle: dict[str, tuple[str, set[tuple[object, ...]]]] = {}
        """By kind: the last inputs, and the keys of idle decisions recorded for them."""

    def add_sink(self, sink: Callable[[Decision], None]) -> None:
        """Call `sink` with every decision; it must neither raise nor wait."""
        self._sinks.append(sink)

    def add_observer(self, observer: Callable[[Decision], Awaitable[None]]) -> None:
        """Await `observer` with every decision; it may wait, but must not raise."""
        self._observers.append(observer)

    async def record(self, decision: Decision) -> None:
        """Record a decision, unless it repeats an idle one.

        A decision that changes nothing, on the same inputs as before, is the same decision: pods
        without a node are planned every ten seconds, and a replacement that must not be launched is
        found as often.
        """
        if self._is_repeated(decision):
            return
        self._ring.append(decision)
        for sink in self._sinks:
            sink(decision)
        for observer in self._observers:
            await observer(decision)

    def _is_repeated(self, decision: Decision) -> bool:
        inputs, recorded = self._idle.get(decision.kind, ("", set[tuple[object, ...]]()))
        if not (decision.is_idle and decision.inputs):
            self._idle.pop(decision.kind, None)
            return False
        if inputs != decision.inputs:
            recorded = set[tuple[object, ...]]()
            self._idle[decision.kind] = (decision.inputs, recorded)
        if decision.idle_key in recorded:
            return True
        recorded.add(decision.idle_key)
        return False

    def latest(self, limit: int | None = None, *, kind: str = "") -> tuple[Decision, ...]:
        """Return the last decisions, newest first; of one kind if it is given."""
        decisions = (item for item in reversed(self._ring) if not kind or item.kind == kind)
        return tuple(islice(decisions, limit))
