"""Solves a problem without the parts that make the solver fail.

This runs only after a failure. When solving fails, the parts of the problem are added by bisection
to a problem that is known to be solvable; parts that make it fail are set aside. Pods are suspected
first, in groups of like ones, then nodes; only when the problem fails without any pod are
DaemonSets, pools and nodes suspected by themselves.

Deterministic, like solving: the same problem sets aside the same parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar, final

from karpenter_core.api.judgements import FailedJudgement, describe_failure, failure_message
from karpenter_core.api.notices import ObjectRef
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.problem import SchedulingPlan, UnschedulablePod
from karpenter_core.scheduling.solve import solve_steps
from karpenter_core.scheduling.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.placement.engine import HaltRequest
    from karpenter_core.scheduling.problem import SchedulingProblem, SolveOptions

__all__ = ["IsolatedResult", "isolate_steps", "solve_isolated", "solve_isolated_steps"]

_Result = TypeVar("_Result")

SCHEDULING: Final = "scheduling"
"""The step that reports of pods and nodes which were set aside name."""

_MANY: Final = 2
"""Groups of pods that may be set aside before a node is suspected in their place."""

_Part: TypeAlias = "tuple[str, str]"
"""Kind and name of one part of a problem; of pods the UID of the first of a group."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsolatedResult(Generic[_Result]):
    """The result of solving without the parts that were set aside."""

    result: _Result
    problem: SchedulingProblem
    """The problem without the parts that were set aside."""
    pods: tuple[PodView, ...]
    """The pods that were set aside."""
    failed: tuple[FailedJudgement, ...]
    """The parts that were set aside, each with its error; the first pod stands for its group."""
    errors: tuple[str, ...]
    """The error of each of `pods`."""


def solve_isolated(
    problem: SchedulingProblem,
    options: SolveOptions | None,
    *,
    cache: CatalogueCache | None = None,
) -> SchedulingPlan:
    """Solve a problem; set aside the parts that make the solver fail."""
    return run_steps(solve_isolated_steps(problem, options, cache=cache))


def solve_isolated_steps(
    problem: SchedulingProblem,
    options: SolveOptions | None,
    *,
    cache: CatalogueCache | None,
    halt: HaltRequest | None = None,
) -> Generator[int, None, SchedulingPlan]:
    """Solve in small steps, as `solve_steps` does; set aside the parts that make it fail.

    Pods that are set aside are unschedulable, and `set_aside` of the plan lists all parts.
    """
    try:
        return (yield from solve_steps(problem, options, cache=cache, halt=halt))
    except Exception as error:
        first = error
    fresh = CatalogueCache()  # the failure may have left the other incomplete

    def solving(part: SchedulingProblem) -> Generator[int, None, SchedulingPlan]:
        return solve_steps(part, options, cache=fresh, halt=halt)

    isolated = yield from isolate_steps(problem, solving, first)
    reasons = {
        pod.uid: UnschedulablePod(message=failure_message(SCHEDULING, error))
        for pod, error in zip(isolated.pods, isolated.errors, strict=True)
    }
    plan = isolated.result
    return replace(
        plan,
        unschedulable={**plan.unschedulable, **reasons},
        set_aside=(*plan.set_aside, *isolated.failed),
    )


def isolate_steps(
    problem: SchedulingProblem,
    solving: Callable[[SchedulingProblem], Generator[int, None, _Result]],
    first: Exception,
) -> Generator[int, None, IsolatedResult[_Result]]:
    """Find the parts of a problem with which `solving` fails, and solve it without them.

    Raises:
        Exception: `first`, when it fails although everything is set aside.
    """
    search = _FaultSearch(problem, solving)
    pods = tuple(search.groups)
    nodes = tuple(("Node", node.name) for node in problem.nodes)
    others = (
        *(("DaemonSet", daemon.name) for daemon in problem.daemons),
        *(("NodePool", pool.name) for pool in problem.pools),
    )
    without_pods = yield from search.attempt((*others, *nodes))
    if without_pods is None:
        if (yield from search.attempt(())) is None:
            raise first
        for parts in (others, nodes, pods):
            yield from search.add_steps(parts)
    else:
        yield from search.add_steps(pods)
        if len(search.failed) > _MANY:
            # So many failing pods at once probably fail because of one node that they all read.
            again = _FaultSearch(problem, solving)
            yield from again.attempt((*others, *pods))
            if again.result is not None:
                yield from again.add_steps(nodes)
                if len(again.failed) <= _MANY:
                    search = again
    return search.isolated()


@final
class _FaultSearch(Generic[_Result]):
    """Adds parts to a solvable problem, and leaves out those with which solving fails."""

    def __init__(
        self,
        problem: SchedulingProblem,
        solving: Callable[[SchedulingProblem], Generator[int, None, _Result]],
    ) -> None:
        self._problem: Final = problem
        self._solving: Final = solving
        self.groups: Final = {("Pod", group[0].uid): tuple(group) for group in _alike(problem)}
        self.result: _Result | None = None
        self.failed: Final = dict[_Part, str]()
        self._kept_parts: tuple[_Part, ...] = ()
        self._error = ""

    def attempt(self, parts: Iterable[_Part]) -> Generator[int, None, _Result | None]:
        """Solve with these parts alone; None, and the error is noted, where that fails."""
        chosen = tuple(parts)
        try:
            result = yield from self._solving(self._with(frozenset(chosen)))
        except Exception as error:
            self._error = describe_failure(error)
            return None
        self.result, self._kept_parts = result, chosen
        return result

    def add_steps(self, parts: Sequence[_Part]) -> Generator[int, None, None]:
        """Add parts, by halves; those with which it fails are left out."""
        if not parts or (yield from self.attempt((*self._kept_parts, *parts))) is not None:
            return
        if len(parts) == 1:
            self.failed[parts[0]] = self._error
            return
        half = len(parts) // 2
        yield from self.add_steps(parts[:half])
        yield from self.add_steps(parts[half:])

    def isolated(self) -> IsolatedResult[_Result]:
        """Return the result of the search."""
        if self.result is None:
            raise RuntimeError("nothing was solved")
        aside = [(pod, e) for part, e in self.failed.items() for pod in self.groups.get(part, ())]
        return IsolatedResult(
            result=self.result,
            problem=self._with(frozenset(self._kept_parts)),
            pods=tuple(pod for pod, _ in aside),
            errors=tuple(error for _, error in aside),
            failed=tuple(
                FailedJudgement(regarding=self._ref(part), step=SCHEDULING, error=error)
                for part, error in self.failed.items()
            ),
        )

    def _with(self, parts: frozenset[_Part]) -> SchedulingProblem:
        problem = self._problem
        gone = {pod.uid for part, pods in self.groups.items() if part not in parts for pod in pods}
        pools = tuple(pool for pool in problem.pools if ("NodePool", pool.name) in parts)
        return replace(
            problem,
            pods=tuple(pod for pod in problem.pods if pod.uid not in gone),
            nodes=tuple(node for node in problem.nodes if ("Node", node.name) in parts),
            pools=pools,
            daemons=tuple(d for d in problem.daemons if ("DaemonSet", d.name) in parts),
        )

    def _ref(self, part: _Part) -> ObjectRef:
        kind, name = part
        if kind == "Pod":
            pod = self.groups[part][0]
            source = pod.shape.virtual_source
            if source is not None:
                return ObjectRef(
                    api_version=source.api_version,
                    kind=source.kind,
                    name=source.name,
                    namespace=source.namespace,
                    uid=source.uid,
                )
            return ObjectRef(
                api_version="v1", kind=kind, name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
        if kind == "NodePool":
            pool = next(pool for pool in self._problem.pools if pool.name == name)
            return pool.ref
        if kind == "DaemonSet":
            namespace, _, bare = name.rpartition("/")
            return ObjectRef(api_version="apps/v1", kind=kind, name=bare, namespace=namespace)
        node = next(node for node in self._problem.nodes if node.name == name)
        return ObjectRef(api_version="v1", kind="Node", name=node.node_name or name)


def _alike(problem: SchedulingProblem) -> list[list[PodView]]:
    """Group pods of one shape without volumes of their own: they fail or succeed together."""
    groups: dict[tuple[int, str], list[PodView]] = {}
    for pod in sorted(problem.pods, key=lambda pod: pod.uid):
        own = pod.uid if pod.uid in problem.volumes else ""
        groups.setdefault((id(pod.shape), own), []).append(pod)
    return list(groups.values())
