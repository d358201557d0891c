"""Reads the cluster again and again in a thread of its own, so that keys are served meanwhile."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import KarpenterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.cli.cluster_source import ClusterSource, CommandInput
    from karpenter_core.cli.top.view import ClusterView

__all__ = ["ViewFeed", "ViewOptions", "view_of"]

_END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """Options that select the contents of a view."""

    resources: tuple[str, ...]
    node_selector: Mapping[str, str]
    with_prices: bool = True


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
    )
    return replace(view, decisions=decision_rows(command_input.decisions, now=cluster.now))


@final
class ViewFeed:
    """Calls `publish` with each view, and `fail` with each error; both in the thread of the feed.

    An error ends nothing: the next reading may succeed.
    """

    def __init__(
        self,
        source: ClusterSource,
        options: ViewOptions,
        *,
        refresh_seconds: float,
        publish: Callable[[ClusterView], None],
        fail: Callable[[KarpenterError], None],
    ) -> None:
        self._source: Final = source
        self._options: Final = options
        self._refresh_seconds: Final = refresh_seconds
        self._publish: Final = publish
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
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _follow(self) -> None:
        async with self._source.opened() as read:
            while True:
                self._wanted.clear()
                try:
                    self._publish(view_of(await read(), self._options))
                except KarpenterError as error:
                    self._fail(error)
                try:
                    await asyncio.wait_for(self._wanted.wait(), self._refresh_seconds)
                except TimeoutError:
                    continue
