"""Applies events to the cluster state and wakes subscribed controllers.

Controllers do not read from the API server and do not poll: each subscribes to kinds of changes and is
woken with the names that changed.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.controllers.reconciling.wake_signal import WakeSignal
from karpenter_core.controllers.reconciling.workqueue import EARLY_SECONDS
from karpenter_core.state.events import ClockSet, TimePassed
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.state.builder import StateBuilder
    from karpenter_core.state.events import StateEvent
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ChangedNames", "ClusterState", "Listener"]

Listener: TypeAlias = "Callable[[str], None]"

TICK_SECONDS: Final = 0.05
"""The most that the state's clock may be behind when an event is applied."""

CLOCK_CHANGE_SECONDS: Final = 1.0
"""Changes of the clock below this are ignored: no deadline is that precise."""


@final
class ClusterState:
    """The cluster state and its subscribers; all of it runs on the event loop."""

    def __init__(self, builder: StateBuilder, clock: Clock) -> None:
        self._builder = builder
        self._clock = clock
        self._listeners: dict[ObjectKind, list[Listener]] = {kind: [] for kind in ObjectKind}
        self._ticked: float | None = None
        self._clock_lead: float | None = None
        """The lead of the clock over the monotonic one, in seconds."""
        self._log: FilteringBoundLogger = structlog.get_logger("state")
        self._synced = asyncio.Event()
        self._watchers: set[WakeSignal] = set()

    def fold(self, event: StateEvent) -> None:
        """Apply an event to the state and wake the subscribers of its changes."""
        self._tick()
        self._apply(event)

    def tick(self) -> None:
        """Advance the time of the state: expired entries are dropped, windows open and close."""
        self._ticked = None
        self._tick()

    def snapshot(self) -> Snapshot:
        """Return the current snapshot of the cluster."""
        self._detect_clock_change()
        edge = self._builder.next_schedule_edge
        if edge is not None and self._clock.now() >= edge:
            self.tick()
        return self._builder.snapshot()

    @property
    def next_schedule_edge(self) -> datetime | None:
        """The time at which the next window of a NodePool may open or close; None without any."""
        return self._builder.next_schedule_edge

    def subscribe(self, kind: ObjectKind, listener: Listener) -> None:
        """Call `listener` with every changed name of this kind; it may only wake a controller."""
        self._listeners[kind].append(listener)

    async def wait_synced(self) -> None:
        """Wait until every watch has listed its objects once."""
        await self._synced.wait()

    async def wait_until(self, is_fulfilled: Callable[[Snapshot], bool], *, seconds: float) -> bool:
        """Wait until the state fulfils a condition or time is over; tell whether it does."""
        deadline = self._clock.monotonic() + seconds
        changed = WakeSignal()
        self._watchers.add(changed)
        try:
            while not is_fulfilled(self.snapshot()):
                left = deadline - self._clock.monotonic()
                if left <= EARLY_SECONDS:
                    return False
                await changed.wait_for(self._clock, left)
                changed.clear()
        finally:
            self._watchers.discard(changed)
        return True

    @property
    def now(self) -> datetime:
        """The time, which decisions use."""
        return self._clock.now()

    def _detect_clock_change(self) -> None:
        """Compare the clock with the monotonic one, and tell the state when it was set."""
        lead = self._clock.now().timestamp() - self._clock.monotonic()
        if self._clock_lead is None:
            self._clock_lead = lead
        by = lead - self._clock_lead
        if abs(by) >= CLOCK_CHANGE_SECONDS:
            self._clock_lead = lead
            self._log.warning("the clock was set", seconds=round(by, 3))
            self._apply(ClockSet(timedelta(seconds=by)))

    def _tick(self) -> None:
        self._detect_clock_change()
        moment = self._clock.monotonic()
        if self._ticked is None or moment - self._ticked >= TICK_SECONDS:
            self._ticked = moment
            self._apply(TimePassed(self._clock.now()))

    def _apply(self, event: StateEvent) -> None:
        changes = self._builder.apply_event(event)
        if changes:
            for watcher in self._watchers:
                watcher.set()
        for change in changes:
            if change.kind is ObjectKind.SYNCED:
                self._synced.set()
            listeners = self._listeners[change.kind]
            for name in change.names or ("",):
                for listener in listeners:
                    listener(name)


@final
class ChangedNames:
    """Names that changed since they were last taken, for controllers that work in batches."""

    def __init__(self, cluster_state: ClusterState, *kinds: ObjectKind) -> None:
        self._names: dict[ObjectKind, dict[str, None]] = {kind: {} for kind in kinds}
        self._has_changes = asyncio.Event()
        for kind in kinds:
            cluster_state.subscribe(kind, self._listener(kind))

    async def take(self) -> dict[ObjectKind, tuple[str, ...]]:
        """Wait for a change, then return all changed names by kind, in order of arrival."""
        await self._has_changes.wait()
        self._has_changes.clear()
        taken = {kind: tuple(names) for kind, names in self._names.items() if names}
        for names in self._names.values():
            names.clear()
        return taken

    def _listener(self, kind: ObjectKind) -> Listener:
        names = self._names[kind]

        def listen(name: str) -> None:
            names[name] = None
            self._has_changes.set()

        return listen
