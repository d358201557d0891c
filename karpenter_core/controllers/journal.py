"""The decision journal: the last decisions in memory, and each handed on to whoever keeps them.

A controller makes a record (`disruption.journal`, `scheduling.journal`) and gives it to the
journal; what becomes of it then can neither fail nor hold up the controller.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from karpenter_core.api.decisions import Decision

__all__ = ["RING_SIZE", "Journal"]

RING_SIZE: Final = 1_000
"""Decisions kept in memory: a few megabytes at most."""


@final
class Journal:
    """What was decided lately, newest last."""

    def __init__(self, *, size: int = RING_SIZE) -> None:
        self._ring: deque[Decision] = deque(maxlen=size)
        self._keepers: list[Callable[[Decision], None]] = []
        self._observers: list[Callable[[Decision], Awaitable[None]]] = []
        self._idle: dict[str, tuple[str, set[tuple[object, ...]]]] = {}
        """By kind: the last inputs, and what was on record upon them that changed nothing."""

    def keep(self, keeper: Callable[[Decision], None]) -> None:
        """Hand every decision to `keeper` too; it must neither raise nor wait."""
        self._keepers.append(keeper)

    def observe(self, observer: Callable[[Decision], Awaitable[None]]) -> None:
        """Show every decision to `observer` too, which may take its time; it must not raise."""
        self._observers.append(observer)

    async def record(self, decision: Decision) -> None:
        """Take note of a decision.

        One that changes nothing, upon the same inputs as before, is the same decision: pods without
        a place are planned for every ten seconds, and a replacement that may not be ordered is
        found again as often.
        """
        if self._is_known(decision):
            return
        self._ring.append(decision)
        for keeper in self._keepers:
            keeper(decision)
        for observer in self._observers:
            await observer(decision)

    def _is_known(self, decision: Decision) -> bool:
        inputs, known = self._idle.get(decision.kind, ("", set[tuple[object, ...]]()))
        if not (decision.is_idle and decision.inputs):
            self._idle.pop(decision.kind, None)
            return False
        if inputs != decision.inputs:
            known = set[tuple[object, ...]]()
            self._idle[decision.kind] = (decision.inputs, known)
        if decision.sort in known:
            return True
        known.add(decision.sort)
        return False

    def latest(self, limit: int | None = None, *, kind: str = "") -> tuple[Decision, ...]:
        """Return the last decisions, newest first; of one kind if it is given."""
        found = (item for item in reversed(self._ring) if not kind or item.kind == kind)
        return tuple(islice(found, limit))
