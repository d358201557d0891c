"""Answers the what-ifs of one pass: where the pods of candidates would go.

The cluster is compiled once for a pass, by the first method that needs it. After that the cost of
a what-if does not depend on the size of the cluster (`docs/design/whatif.md`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import compress
from math import inf
from operator import attrgetter, not_
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.judgements import FailedJudgements, failure_message
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.errors import SchedulingError
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.isolation import isolate_steps
from karpenter_core.scheduling.problem import ReservationPolicy
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.state.disruption_problem import build_disruption_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping
    from datetime import datetime, timedelta

    from karpenter_core.api.records import PodView
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.scheduling.problem import SchedulingProblem, SolveOptions
    from karpenter_core.scheduling.whatif.homeless_pods import SinglePrices
    from karpenter_core.scheduling.whatif.what_if import WhatIfVerdict
    from karpenter_core.state.pod_volumes import PodVolumeReader
    from karpenter_core.state.provisioning_input import ProblemSettings
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["DisruptionSimulation"]

SIMULATION_STEP: Final = "disruption"
"""The step that reports of nodes which cannot be evaluated name."""

_NAMED_PODS: Final = 5  # upstream's number
_NO_PLACE: Final = "no place on any node, nor on one that could be made"
_KEY: Final[Callable[[PodView], str]] = attrgetter("key")


@final
class DisruptionSimulation:
    """Answers what-ifs about one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        problem_settings: ProblemSettings,
        options: SolveOptions,
        cache: CatalogueCache | None,
        failed: FailedJudgements | None,
        memory: DisruptionMemory | None,
    ) -> None:
        """`failed` receives the objects that cannot be evaluated and are left out."""
        self._snapshot: Final = snapshot
        self._now: Final = now
        self._problem_settings: Final = problem_settings
        self._options: Final = replace(options, reservations=ReservationPolicy.FALLBACK)
        self._cache: Final = cache
        self._memory: Final = memory or DisruptionMemory()
        self._whatif: WhatIf | None = None
        self._avoid_unsettled = False
        self._failed: Final = FailedJudgements() if failed is None else failed
        self._unevaluated_nodes: Final = dict[str, str]()

    def prepare_steps(self, *, avoid_unsettled: bool | None) -> Generator[int, None, None]:
        """Compile in small steps, unless that is done already; yields units of work.

        With `avoid_unsettled` no pods are put on nodes that are still inside their pool's
        `consolidateAfter`. None keeps the present value: changing it reads every node and places
        every pending pod again.
        """
        if self._whatif is None:
            problem, movable = self._problem()
            yield 5
            self._whatif = self._renewed(problem, movable)
            self._avoid_unsettled = False
        if avoid_unsettled is not None and avoid_unsettled != self._avoid_unsettled:
            self._whatif.exclude_nodes(self._unsettled() if avoid_unsettled else ())
            self._avoid_unsettled = avoid_unsettled
        try:
            yield from _placement_steps(self._whatif)
        except Exception as error:
            self._memory.whatif = None
            self._whatif = yield from self._isolated_steps(error)

    def reset(self) -> None:
        """Discard everything computed, after a failure that may have left it incomplete.

        A later pass does too when it takes the what-ifs over.
        """
        self._whatif = None
        self._memory.whatif = None

    def _problem(self) -> tuple[SchedulingProblem, Mapping[str, frozenset[str]]]:
        own = FailedJudgements()
        problem = build_disruption_problem(
            self._snapshot,
            now=self._now,
            problem_settings=self._problem_settings,
            failed=own,
            memory=self._memory.nodes,
        )
        for item in own.found:
            self._failed.add(item)
            if item.regarding.kind == "Node":
                self._unevaluated_nodes.setdefault(item.regarding.name, item.message)
        return problem

    def _renewed(self, problem: SchedulingProblem, movable: Mapping[str, frozenset[str]]) -> WhatIf:
        """Return the what-ifs of the last pass for this state, or others if more than pods differs."""
        whatif = self._memory.take_over(self)
        if whatif is None or not whatif.renew(problem, movable, self._options):
            whatif = self._build(problem, movable, self._cache)
        self._memory.whatif = whatif
        return whatif

    def _build(
        self,
        problem: SchedulingProblem,
        movable: Mapping[str, Collection[str]],
        cache: CatalogueCache | None,
    ) -> WhatIf:
        return WhatIf(problem, movable, self._options, cache=cache)

    def _isolated_steps(self, error: Exception) -> Generator[int, None, WhatIf]:
        """Compile without what cannot be evaluated; nodes with such pods are refused later."""
        problem, movable = self._problem()
        excluded = self._unsettled() if self._avoid_unsettled else []
        waiting = {pod.uid for pod in problem.pods}
        leaving = [
            pod
            for node in problem.nodes
            for pod in node.pods
            if pod.uid in movable.get(node.name, ()) and pod.uid not in waiting
        ]
        cache = CatalogueCache()

        def solving(part: SchedulingProblem) -> Generator[int, None, WhatIf]:
            remaining_uids = {pod.uid for pod in part.pods}
            pods = tuple(pod for pod in part.pods if pod.uid in waiting)
            made = self._build(
                replace(part, pods=pods),
                {
                    node.name: remaining_uids & set(movable.get(node.name, ()))
                    for node in part.nodes
                },
                cache,
            )
            made.exclude_nodes(excluded)
            yield from _placement_steps(made)
            return made

        isolated = yield from isolate_steps(
            replace(problem, pods=(*problem.pods, *leaving)), solving, error
        )
        for item in isolated.failed:
            self._failed.add(item)
        gone = {node.name for node in problem.nodes} - {
            node.name for node in isolated.problem.nodes
        }
        odd = {
            pod.uid: failure_message(SIMULATION_STEP, text)
            for pod, text in zip(isolated.pods, isolated.errors, strict=True)
        }
        for node in problem.nodes:
            texts = [odd[pod.uid] for pod in node.pods if pod.uid in odd]
            if texts:
                self._unevaluated_nodes.setdefault(node.name, texts[0])
            elif node.name in gone:
                self._unevaluated_nodes.setdefault(
                    node.name, "skipped, because the decision about it failed"
                )
        return isolated.result

    def _reject_unevaluated(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._unevaluated_nodes:
                raise SchedulingError(self._unevaluated_nodes[name])

    def evaluate(
        self,
        candidates: Iterable[Candidate],
        *,
        below_price: float = inf,
        max_claims: int | None = None,
    ) -> WhatIfVerdict:
        """Return the verdict on removing all candidates at once; see `WhatIf.evaluate`.

        Raises:
            SchedulingError: one of them, or a pod on it, was set aside.
        """
        names = _names(candidates)
        self._reject_unevaluated(names)
        return self._ready.evaluate(names, below_price=below_price, max_claims=max_claims)

    def single_prices(self, candidate: Candidate) -> SinglePrices | None:
        """Return what alone decides on removing a candidate; see `WhatIf.single_prices`."""
        if self._unevaluated_nodes:
            return None
        return self._ready.single_prices(candidate.state_node.name)

    def need_several_nodes(self, candidates: Iterable[Candidate]) -> bool:
        """Whether it is known that no single new node can hold the pods of candidates."""
        return not self._unevaluated_nodes and self._ready.need_several_nodes(_names(candidates))

    def names_known_not_to_fit(self) -> Collection[str]:
        """Return the nodes of which no push can succeed."""
        return () if self._unevaluated_nodes else self._ready.names_known_not_to_fit()

    def push(self, candidate: Candidate) -> bool:
        """Remove a candidate for the following what-ifs, if its pods fit on existing nodes.

        Raises:
            SchedulingError: it, or a pod on it, was set aside.
        """
        names = _names((candidate,))
        self._reject_unevaluated(names)
        return not self._ready.is_known_not_to_fit(names[0]) and self._ready.push(names).fits

    def pop(self) -> None:
        """Undo the last push that succeeded."""
        self._ready.pop()

    def unready_destination(self, verdict: WhatIfVerdict) -> str:
        """Return a message naming an uninitialised node that receives pods; empty for none.

        Such a node may never become ready, and the pods moved to it would have no place.
        """
        for name in verdict.moves:
            state_node = self._snapshot.state_node(name)
            if state_node is not None and state_node.managed and not state_node.initialized:
                return f"would schedule against uninitialized {_both_names(state_node)}"
        return ""

    def unplaced_pods(self, verdict: WhatIfVerdict) -> str:
        """Return a message naming the first five pods that would find no place."""
        pods = sorted(verdict.left, key=_KEY)
        text = ", ".join(
            f"{pod.key} => {self._volumes.error_of_move(pod) or _NO_PLACE}"
            for pod in pods[:_NAMED_PODS]
        )
        more = len(pods) - _NAMED_PODS
        if more > 0:
            text += f" and {more} other(s)"
        return f"not all pods would schedule, {text}" if pods else "not all pods would schedule"

    @cached_property
    def _volumes(self) -> PodVolumeReader:
        return self._problem_settings.volume_reader(self._snapshot)

    def _unsettled(self) -> list[str]:
        """Return the nodes that are still inside their pool's `consolidateAfter`."""
        state_nodes = self._snapshot.state_nodes

        def is_settled(state_node: StateNode) -> bool:
            return (
                state_node.claim is None
                or not state_node.initialized
                or not _has_window(self._snapshot, state_node)
                or is_true(state_node.claim.status.conditions, CONSOLIDATABLE)
            )

        pools = tuple(self._snapshot.node_pools.values())
        settled = self._memory.settled.values(state_nodes, is_settled, same=pools)
        return [each.name for each in compress(state_nodes, map(not_, settled))]

    @property
    def _ready(self) -> WhatIf:
        if self._whatif is None:
            raise RuntimeError("the simulation was not prepared")
        return self._whatif


def _placement_steps(whatif: WhatIf) -> Generator[int, None, None]:
    yield from whatif.refresh_steps()
    whatif.settle()
    yield 5


def _names(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.state_node.name for candidate in candidates)


def _both_names(state_node: StateNode) -> str:
    names = [f"nodeclaim/{state_node.claim.name}"] if state_node.claim is not None else []
    names += [f"node/{state_node.node.name}"] if state_node.node is not None else []
    return ", ".join(names)


def _has_window(snapshot: Snapshot, state_node: StateNode) -> bool:
    pool = snapshot.node_pools.get(state_node.pool)
    window: timedelta | None = None
    if pool is not None:
        window = pool.spec.disruption.consolidate_after.timedelta
    return bool(window)
