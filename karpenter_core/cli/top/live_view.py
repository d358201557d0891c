"""Makes views of a watched cluster only as often as its changes require.

Rows and totals follow every change, at most once per interval. A plan, which has the reasons of pods without a
node, costs more: it is made anew after a multiple of the CPU time that it took.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.cli.cluster_events import DecisionWatch
from karpenter_core.cli.document import waiting_pods
from karpenter_core.cli.plan import solve_cluster
from karpenter_core.cli.top.build_view import (
    RowCache,
    decision_rows,
    pending_pods,
    pod_prospects,
    snapshot_view,
)
from karpenter_core.cli.top.view import FeedStatus
from karpenter_core.cli.watched_cluster import kind_names, watch_cluster
from karpenter_core.errors import KarpenterError
from karpenter_core.kube.garbage_collector import freeze_after_sync, tune_gc
from karpenter_core.kube.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.cli.live_cluster import LiveCluster
    from karpenter_core.cli.top.build_view import PodProspect
    from karpenter_core.cli.top.view import ClusterView, ViewOptions
    from karpenter_core.cli.watched_cluster import WatchedCluster, WatchRights
    from karpenter_core.kube.contact import StaleKind
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["LiveView", "follow_cluster"]

AGE_SECONDS: Final = 10.0
"""Time after which a view is made although nothing has changed: ages go on."""
MOST_HELD: Final = 3
PROGRESS_SECONDS: Final = 0.25
BURST_SECONDS: Final = 0.02
"""Time for which changes that arrive together are gathered."""
PAINT_SECONDS: Final = 0.3
"""Time for the first view to be drawn, before a full collection, which no other thread runs beside."""
VIEW_PAUSE: Final = 10.0
PLAN_PAUSE: Final = 30.0
"""A view or a plan is made anew after so many times the CPU time that it took."""


async def follow_cluster(
    live: LiveCluster,
    rights: WatchRights,
    options: ViewOptions,
    *,
    least_seconds: float,
    wanted: asyncio.Event,
    publish: Callable[[ClusterView], None],
    report: Callable[[FeedStatus], None],
    fail: Callable[[KarpenterError], None],
) -> None:
    """Publish views until cancelled; `wanted` asks for a view and a plan now."""
    watched = await watch_cluster(live, rights)
    decisions = DecisionWatch(live.apis, live.clock, on_change=watched.changed.set)
    undo = tune_gc()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watched.run())
            group.create_task(decisions.run())
            early = LiveView(watched, decisions, replace(options, resources=()))
            await _await_sync(watched, report, early, publish)
            view = LiveView(watched, decisions, options)
            publish(await view.make(may_plan=False))
            report(_status(watched.lost()))
            await asyncio.sleep(PAINT_SECONDS)
            freeze_after_sync()
            follower = _Follower(watched, view, least_seconds, wanted)
            await follower.run(publish, report, fail)
    finally:
        undo()


async def _await_sync(
    watched: WatchedCluster,
    report: Callable[[FeedStatus], None],
    early: LiveView,
    publish: Callable[[ClusterView], None],
) -> None:
    """Wait for the first list of every kind, and report the number of objects meanwhile.

    Once only pods are missing, the nodes are shown without them.
    """
    synced = asyncio.ensure_future(watched.wait_synced())
    is_shown = False
    while not synced.done():
        report(FeedStatus(progress=_progress(watched)))
        await asyncio.wait((synced,), timeout=PROGRESS_SECONDS)
        if not is_shown and watched.unsynced == (PODS,):
            is_shown = True
            view = await early.make(may_plan=False)
            publish(replace(view, awaited=PODS.plural))
    await synced


def _progress(watched: WatchedCluster) -> str:
    held = ", ".join(
        f"{count:,} {kind.plural}" for kind, count in watched.held[:MOST_HELD] if count
    )
    awaited = watched.unsynced
    parts = ["reads the cluster …", held, f"awaits {kind_names(awaited)}" if awaited else ""]
    problems = [each.problem for each in watched.lost() if each.problem]
    return "\n".join(filter(None, (*parts, *problems[:1])))


@final
class _Follower:
    """Publishes a view after each change, but not more often than it may."""

    def __init__(
        self,
        watched: WatchedCluster,
        view: LiveView,
        least_seconds: float,
        wanted: asyncio.Event,
    ) -> None:
        self._watched: Final = watched
        self._view: Final = view
        self._least_seconds: Final = least_seconds
        self._wanted: Final = wanted

    async def run(
        self,
        publish: Callable[[ClusterView], None],
        report: Callable[[FeedStatus], None],
        fail: Callable[[KarpenterError], None],
    ) -> None:
        while True:
            is_wanted = self._wanted.is_set()
            self._wanted.clear()
            self._watched.changed.clear()
            try:
                publish(await self._view.make(plan_now=is_wanted))
            except KarpenterError as error:
                fail(error)
            report(_status(self._watched.lost()))
            await self._pause(max(self._least_seconds, VIEW_PAUSE * self._view.cpu_seconds), report)

    async def _pause(self, seconds: float, report: Callable[[FeedStatus], None]) -> None:
        """Wait for the least time, then for a change; a key ends both."""
        began = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), seconds)
            return
        while not self._watched.changed.is_set() and time.monotonic() - began < AGE_SECONDS:
            report(_status(self._watched.lost()))
            waiting = [
                asyncio.ensure_future(event.wait())
                for event in (self._watched.changed, self._wanted)
            ]
            try:
                await asyncio.wait(
                    waiting, timeout=self._least_seconds, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for each in waiting:
                    each.cancel()
            if self._wanted.is_set():
                return
        await asyncio.sleep(BURST_SECONDS)


def _status(lost: tuple[StaleKind, ...]) -> FeedStatus:
    if not lost:
        return FeedStatus(is_live=True)
    oldest = lost[0]
    names = kind_names([each.kind for each in lost])
    problem = next((each.problem for each in lost if each.problem), "the watch is silent")
    return FeedStatus(
        is_live=True,
        lost=f"{names}: {problem}",
        lost_at=time.monotonic() - (oldest.seconds or 0.0),
    )


@final
class LiveView:
    """Views of a cluster that is watched, made from what has changed."""

    def __init__(
        self, watched: WatchedCluster, decisions: DecisionWatch, options: ViewOptions
    ) -> None:
        self._watched: Final = watched
        self._decisions: Final = decisions
        self._options: Final = options
        self._rows: Final = RowCache()
        self._prospects: dict[str, PodProspect] = {}
        self._notes: tuple[str, ...] = ()
        self._plan_version = -1
        self._plan_cpu_seconds = 0.0
        self._planned_at: float | None = None
        self.cpu_seconds = 0.0
        """CPU time of the last view, without its plan."""

    async def make(self, *, may_plan: bool = True, plan_now: bool = False) -> ClusterView:
        """Return the view of this moment; `plan_now` plans even if the last plan is recent.

        Raises:
            KarpenterError: the cluster cannot be planned.
        """
        snapshot = await self._watched.snapshot()
        if may_plan and (plan_now or self._is_plan_due(snapshot)):
            await self._plan()
            snapshot = await self._watched.snapshot()
        started = time.thread_time()
        live, options = self._watched.live, self._options
        now = live.clock.now()
        view = snapshot_view(
            snapshot,
            live.options,
            pending=pending_pods(snapshot, self._prospects, self._decisions.refusals, now=now),
            now=now,
            well_known=live.labels.well_known,
            resources=options.resources,
            node_selector=options.node_selector,
            with_prices=options.with_prices,
            notes=(*self._notes, *self._decisions.notes),
            row_cache=self._rows,
        )
        view = replace(view, decisions=decision_rows(self._decisions.decisions, now=now))
        self.cpu_seconds = time.thread_time() - started
        return view

    def _is_plan_due(self, snapshot: Snapshot) -> bool:
        if self._planned_at is None:
            return True
        if snapshot.version == self._plan_version:
            return False
        return time.monotonic() - self._planned_at >= PLAN_PAUSE * self._plan_cpu_seconds

    async def _plan(self) -> None:
        """Plan the pods without a node."""
        started = time.thread_time()
        cluster = await self._watched.cluster()
        if next(waiting_pods(cluster.snapshot), None) is None:
            self._prospects = {}
        else:
            self._prospects = pod_prospects(cluster, solve_cluster(cluster))
        self._notes = cluster.notes
        self._plan_version = cluster.snapshot.version
        self._plan_cpu_seconds = time.thread_time() - started
        self._planned_at = time.monotonic()
