"""Refreshes the dashboard's documents, seldom, and only for open pages.

The view is computed at most once per interval, in a thread of its own, only while a page is open, and so
seldom that it takes at most a thirtieth of a core;
for history the price of the nodes is summed every ten seconds. Explanations run what a disruption or
scheduling pass runs, so one runs at a time and a few may wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec
import structlog

from karpenter_core.controllers.planner import ThreadPlanner
from karpenter_core.errors import KarpenterError
from karpenter_core.operator.dashboard.cost_history import CostHistory, cost_point
from karpenter_core.operator.dashboard.state_versions import StateVersions
from karpenter_core.operator.dashboard.subscribers import Subscribers
from karpenter_core.operator.dashboard_content import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import Decision
    from karpenter_core.clock import Clock
    from karpenter_core.operator.dashboard.cost_history import CostPoint
    from karpenter_core.operator.dashboard.decision_news import DecisionSource
    from karpenter_core.operator.dashboard.pod_reasons import PodReasons
    from karpenter_core.operator.dashboard_content import ClusterMoment, DashboardContent, Json

__all__ = ["DashboardFeed", "DashboardSources", "UnavailableError"]

T = TypeVar("T")

INTERVAL_SECONDS: Final = 2.0
PAUSE: Final = 30.0
"""A view is computed anew after this many times the CPU time that it took."""
COST_SECONDS: Final = 10.0
MOST_DECISIONS: Final = 100
WAITING_QUESTIONS: Final = 4
KEPT_ANSWERS: Final = 100
ANSWER_SECONDS: Final = 10.0


class UnavailableError(KarpenterError):
    """The dashboard cannot answer this question now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSources:
    """The parts of a process that the dashboard reads."""

    take_moment: Callable[[], ClusterMoment]
    journal: DecisionSource
    reasons: PodReasons
    clock: Clock
    version_prefix: str
    count_cpu: Callable[[str, float], None] = lambda _work, _seconds: None
    """Called with the CPU time, by thread, of a `view` or an `explanation`."""


@final
class DashboardFeed:
    """Computes the documents of the dashboard, and sends changes to its viewers."""

    def __init__(
        self,
        content: DashboardContent,
        sources: DashboardSources,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.subscribers: Final = Subscribers()
        self._content: Final = content
        self._sources: Final = sources
        self._interval_seconds: Final = interval_seconds
        self._thread: Final = ThreadPlanner(sources.clock, name="dashboard")
        self._questions: Final = ThreadPlanner(sources.clock, name="dashboard-explain")
        self._asked: Final = set["asyncio.Task[Json]"]()
        self._answers: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._versions: Final = StateVersions(sources.version_prefix)
        self._history: Final = CostHistory()
        self._decisions: deque[Json] = deque(maxlen=MOST_DECISIONS)
        self._costed_version = -1
        self._computing: Final = asyncio.Lock()
        self._computed_at: float | None = None
        self._view_seconds = 0.0
        self._seen: tuple[object, ...] | None = None
        self._is_watched: Final = asyncio.Event()
        self._log: FilteringBoundLogger = structlog.get_logger("dashboard")
        sources.journal.add_sink(self._take_decision)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_costs())
                group.create_task(self._follow_state())
        finally:
            self.subscribers.drop_all()
            for thread in (self._thread, self._questions):
                thread.close()

    def watch(self) -> None:
        """Note that a page is open."""
        self._is_watched.set()

    async def state(self) -> bytes:
        """Return the whole state, at most an interval old."""
        await self._refresh()
        return self._versions.whole(
            decisions=list(self._decisions), costs=[list(point) for point in self._history.points]
        )

    @property
    def version(self) -> str:
        """Version of the last state."""
        return self._versions.version

    async def pods_of(self, node: str) -> bytes:
        """Return the pods of a node as JSON.

        Raises:
            BadInputError: there is no such node.
        """
        moment = self._take_moment()
        return msgspec.json.encode(await self._run(partial(self._content.pods_of, moment, node)))

    async def explain(self, kind: str, name: str) -> bytes:
        """Return the explanation of a `node` or a `pod` as JSON, at most ten seconds old.

        Raises:
            BadInputError: there is no such object.
            UnavailableError: too many explanations are asked for at once, or this is a standby.
        """
        content = self._content
        explain = content.explain_node if kind == "node" else content.explain_pod
        return await self._answer((kind, name), lambda moment: explain(moment, name))

    async def rebalance(self) -> bytes:
        """Return what one disruption pass would do, as JSON, at most ten seconds old.

        Raises:
            UnavailableError: too many explanations are asked for at once, or this is a standby.
        """
        return await self._answer(("rebalance", ""), self._content.rebalance)

    async def _answer(self, key: tuple[str, str], make: Callable[[ClusterMoment], Json]) -> bytes:
        now = self._sources.clock.monotonic()
        known = self._answers.get(key)
        if known is not None and now - known[0] < ANSWER_SECONDS:
            return known[1]
        if len(self._asked) >= WAITING_QUESTIONS:
            raise UnavailableError(
                "other explanations are being computed; ask again in some seconds"
            )
        moment = self._take_moment()
        if moment.role is Role.STANDBY:
            leader = f": ask the leader, {moment.leader}" if moment.leader else ""
            raise UnavailableError(f"a standby has no instance types to plan with{leader}")
        explain = self._counted("explanation", lambda: make(moment))
        task = asyncio.create_task(self._questions.compute(explain))
        self._asked.add(task)
        task.add_done_callback(self._end_question)
        try:
            # A viewer that goes away leaves the thread as busy as it is: the place stays taken.
            answer = msgspec.json.encode(await asyncio.shield(task))
        except KarpenterError:
            raise
        except Exception as error:
            raise self._failure(error) from error
        self._answers[key] = (now, answer)
        while len(self._answers) > KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]
        return answer

    def _end_question(self, task: asyncio.Task[Json]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # perhaps no page waits for it any more

    # -- loops -------------------------------------------------------------------------------------

    async def _follow_state(self) -> None:
        """Compute and send the state once per interval while a page is open."""
        while True:
            await self._is_watched.wait()
            while len(self.subscribers):
                with self._contained():
                    await self._refresh()
                await self._sources.clock.sleep(self._interval_seconds)
            self._is_watched.clear()

    async def _follow_costs(self) -> None:
        while True:
            with self._contained():
                await self._follow_cost()
            await self._sources.clock.sleep(COST_SECONDS)

    async def _follow_cost(self) -> None:
        """Add the price of this moment, which is summed anew if anything has changed."""
        moment = self._take_moment()
        version = moment.snapshot.version
        at = round(moment.now.timestamp(), 1)
        points = self._history.points
        if version != self._costed_version or not points:
            self._add_point(
                await self._run(partial(cost_point, moment.snapshot, moment.solve, at=at))
            )
            self._costed_version = version
        else:
            self._add_point(points[-1]._replace(at=at))

    def _add_point(self, point: CostPoint) -> None:
        self._history.add(point)
        if len(self.subscribers):
            self.subscribers.send(_event("cost", msgspec.json.encode(list(point))))

    def _take_decision(self, decision: Decision) -> None:
        with self._contained():
            document = self._content.decision(decision)
            self._decisions.append(document)
            if len(self.subscribers):
                self.subscribers.send(_event("decision", msgspec.json.encode(document)))

    # -- the state ---------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Compute the state, unless it is fresh or nothing has changed."""
        async with self._computing:
            now = self._sources.clock.monotonic()
            pause = max(self._interval_seconds, PAUSE * self._view_seconds)
            if self._computed_at is not None and now - self._computed_at < pause:
                return
            moment = self._take_moment()
            seen = (
                moment.snapshot.version,
                moment.role,
                moment.leader,
                moment.problems,
                self._sources.reasons.changes,
            )
            if seen != self._seen:
                update = await self._run(partial(self._compute, moment))
                self._seen = seen
                if update is not None:
                    self.subscribers.send(_event("update", update))
            self._computed_at = now

    def _compute(self, moment: ClusterMoment) -> bytes | None:
        started = thread_time()
        update = self._versions.take(self._content.state(moment))
        self._view_seconds = thread_time() - started
        return update

    async def _run(self, make: Callable[[], T]) -> T:
        """Compute something in the thread."""
        try:
            return await self._thread.compute(self._counted("view", make))
        except KarpenterError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _counted(self, work: str, make: Callable[[], T]) -> Callable[[], T]:
        """Return the same computation, with its CPU time counted."""

        def compute() -> T:
            started = thread_time()
            try:
                return make()
            finally:
                self._sources.count_cpu(work, thread_time() - started)

        return compute

    def _take_moment(self) -> ClusterMoment:
        try:
            return self._sources.take_moment()
        except KarpenterError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> KarpenterError:
        self._log.exception("the dashboard cannot be computed")
        return _ShowError(f"the dashboard cannot be computed: {error}")

    @contextmanager
    def _contained(self) -> Generator[None]:
        """Log a failure, which is tried again: neither the dashboard nor the controller ends by it."""
        try:
            yield
        except _ShowError:
            pass  # it is logged
        except Exception:
            self._log.exception("the dashboard cannot be computed")


class _ShowError(KarpenterError):
    """A part of the dashboard cannot be computed."""


def _event(name: str, data: bytes) -> bytes:
    """Return a server-sent event; JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
