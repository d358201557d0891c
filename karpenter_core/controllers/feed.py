"""Between the watches and the controllers: fold what happened, wake whom it concerns.

Controllers never ask the API server how things are and never look again "just in case": each says
which kind of change it cares about, and is woken with the names that changed.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.controllers.waiting import wait_or_woken
from karpenter_core.controllers.workqueue import EARLY_SECONDS
from karpenter_core.state.events import ClockSet, Tick
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.state.builder import StateBuilder
    from karpenter_core.state.events import Event
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Feed", "Inbox", "Listener"]

Listener: TypeAlias = "Callable[[str], None]"

TICK_SECONDS: Final = 0.05
"""How far the state's clock may lie behind when an event is folded."""

SET_SECONDS: Final = 1.0
"""A difference between the clocks that is not noticed: less than anything is timed by."""


@final
class Feed:
    """The state, and who waits for what in it. Everything happens on the event loop."""

    def __init__(self, builder: StateBuilder, clock: Clock) -> None:
        self._builder = builder
        self._clock = clock
        self._listeners: dict[Kind, list[Listener]] = {kind: [] for kind in Kind}
        self._ticked: float | None = None
        self._lead: float | None = None
        """How far the wall clock is ahead of the monotonic one."""
        self._log: FilteringBoundLogger = structlog.get_logger("state")
        self._synced = asyncio.Event()
        self._watchers: set[asyncio.Event] = set()

    def fold(self, event: Event) -> None:
        """Take in what happened and wake the controllers that it concerns."""
        self._tick()
        self._apply(event)

    def tick(self) -> None:
        """Let time pass in the state: what has expired is dropped."""
        self._ticked = None
        self._tick()

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is known now."""
        self._follow_clock()
        return self._builder.snapshot()

    def subscribe(self, kind: Kind, listener: Listener) -> None:
        """Call `listener` with every name of this kind that changes; it must only wake somebody."""
        self._listeners[kind].append(listener)

    async def wait_synced(self) -> None:
        """Wait until every watch has listed its objects once."""
        await self._synced.wait()

    async def until(self, fulfilled: Callable[[Snapshot], bool], *, seconds: float) -> bool:
        """Wait until the state looks as wanted, but not longer than this; say whether it does."""
        deadline = self._clock.monotonic() + seconds
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while not fulfilled(self.snapshot()):
                left = deadline - self._clock.monotonic()
                if left <= EARLY_SECONDS:
                    return False
                await wait_or_woken(self._clock, left, changed)
                changed.clear()
        finally:
            self._watchers.discard(changed)
        return True

    @property
    def now(self) -> datetime:
        """The wall clock, as decisions are given it."""
        return self._clock.now()

    def _follow_clock(self) -> None:
        """Notice that the wall clock was set: it has gone another way than the monotonic one."""
        lead = self._clock.now().timestamp() - self._clock.monotonic()
        if self._lead is None:
            self._lead = lead
        by = lead - self._lead
        if abs(by) >= SET_SECONDS:
            self._lead = lead
            self._log.warning("the wall clock was set", seconds=round(by, 3))
            self._apply(ClockSet(timedelta(seconds=by)))

    def _tick(self) -> None:
        self._follow_clock()
        moment = self._clock.monotonic()
        if self._ticked is None or moment - self._ticked >= TICK_SECONDS:
            self._ticked = moment
            self._apply(Tick(self._clock.now()))

    def _apply(self, event: Event) -> None:
        changes = self._builder.fold(event)
        if changes:
            for watcher in self._watchers:
                watcher.set()
        for change in changes:
            if change.kind is Kind.SYNCED:
                self._synced.set()
            listeners = self._listeners[change.kind]
            for name in change.names or ("",):
                for listener in listeners:
                    listener(name)


@final
class Inbox:
    """Names that changed since they were last taken, for controllers that look at many at once."""

    def __init__(self, feed: Feed, *kinds: Kind) -> None:
        self._names: dict[Kind, dict[str, None]] = {kind: {} for kind in kinds}
        self._arrived = asyncio.Event()
        for kind in kinds:
            feed.subscribe(kind, self._listener(kind))

    async def take(self) -> dict[Kind, tuple[str, ...]]:
        """Wait until something has changed and return it all, in order of arrival."""
        await self._arrived.wait()
        self._arrived.clear()
        taken = {kind: tuple(names) for kind, names in self._names.items() if names}
        for names in self._names.values():
            names.clear()
        return taken

    def _listener(self, kind: Kind) -> Listener:
        names = self._names[kind]

        def listen(name: str) -> None:
            names[name] = None
            self._arrived.set()

        return listen
