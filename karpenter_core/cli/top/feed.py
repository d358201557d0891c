"""Makes views of a cluster in a thread, so that keys are served meanwhile."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.cli.top.view import FeedStatus
from karpenter_core.errors import KarpenterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from karpenter_core.cli.cluster_source import ClusterSource, CommandInput
    from karpenter_core.cli.top.view import ClusterView, ViewOptions

__all__ = ["ViewFeed", "view_of"]

_END_SECONDS: Final = 5.0
LIVE_SECONDS: Final = 0.15
"""Least time between two views of a cluster that is watched."""
READING_SECONDS: Final = 5.0
"""Time between two readings of a cluster that is not watched."""


def view_of(command_input: CommandInput, options: ViewOptions) -> ClusterView:
    """Return the view of a cluster that was read; plans for its pending pods."""
    from karpenter_core.cli.plan import solve_cluster
    from karpenter_core.cli.top.build_view import build_view, decision_rows

    cluster = command_input.cluster
    view = build_view(
        cluster,
        solve_cluster(cluster),
        resources=options.resources,
        node_selector=options.node_selector,
        with_prices=options.with_prices,
        refusals=command_input.refusals,
    )
    return replace(view, decisions=decision_rows(command_input.decisions, now=cluster.now))


@final
class ViewFeed:
    """Calls `publish` with each view, `report` with its status, and `fail` with each error.

    All are called in the thread of the feed. An error ends nothing: the next reading may succeed.
    A live cluster is watched, so that a view costs what has changed; with files, or without the right
    to watch, everything is read anew at each refresh.
    """

    def __init__(
        self,
        source: ClusterSource,
        options: ViewOptions,
        *,
        refresh_seconds: float | None,
        publish: Callable[[ClusterView], None],
        report: Callable[[FeedStatus], None],
        fail: Callable[[KarpenterError], None],
    ) -> None:
        self._source: Final = source
        self._options: Final = options
        self._refresh_seconds: Final = refresh_seconds
        self._publish: Final = publish
        self._report: Final = report
        self._fail: Final = fail
        self._thread: Final = threading.Thread(target=self._run, name="top-feed", daemon=True)
        self._loop: Final = asyncio.new_event_loop()
        self._wanted: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read."""
        self._task = self._loop.create_task(self._follow())
        self._thread.start()

    def refresh(self) -> None:
        """Read now instead of at the end of the interval."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wanted.set)

    def stop(self) -> None:
        """End the thread and its connections."""
        if self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        task = self._task
        if task is None:
            return
        try:
            self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except KarpenterError as error:
            self._fail(error)
        except Exception as error:  # the screen must not go on as if all were well
            self._fail(_FeedError(f"the view has failed: {type(error).__name__}: {error}"))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _follow(self) -> None:
        if self._source.offline or self._source.files:
            async with self._source.opened() as read:
                await self._read_again(read, ())
            return
        from karpenter_core.cli.live_cluster import open_cluster
        from karpenter_core.cli.top.live_view import follow_cluster
        from karpenter_core.cli.watched_cluster import find_watch_rights

        self._report(FeedStatus(progress="connects to the cluster …"))
        async with open_cluster(self._source, may_watch=True) as live:
            rights = await find_watch_rights(live)
            if rights.refused:
                names = ", ".join(kind.plural for kind in rights.refused)
                note = (
                    f"{names} cannot be watched (forbidden): the cluster is listed again and again"
                )
                await self._read_again(live.read, (note,))
                return
            await follow_cluster(
                live,
                rights,
                self._options,
                least_seconds=self._refresh_seconds or LIVE_SECONDS,
                wanted=self._wanted,
                publish=self._publish,
                report=self._report,
                fail=self._fail,
            )

    async def _read_again(
        self, read: Callable[[], Awaitable[CommandInput]], notes: tuple[str, ...]
    ) -> None:
        """Read everything at each refresh."""
        seconds = self._refresh_seconds or READING_SECONDS
        while True:
            self._wanted.clear()
            try:
                view = view_of(await read(), self._options)
                self._publish(replace(view, notes=(*notes, *view.notes)))
            except KarpenterError as error:
                self._fail(error)
            try:
                await asyncio.wait_for(self._wanted.wait(), seconds)
            except TimeoutError:
                continue


class _FeedError(KarpenterError):
    """A fault of the feed itself."""
