"""One look's what-ifs: where the pods of candidates would go, and what that would take.

The cluster is compiled once for a look, by the first method that asks. What a question costs does
not depend on the size of the cluster then (`docs/design/whatif.md`).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.judgements import FailedJudgements, failure_message
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.errors import SchedulingError
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.isolation import isolate_steps
from karpenter_core.scheduling.problem import ReservationPolicy
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.state.leaving import leaving_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping
    from datetime import datetime, timedelta

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.scheduling.problem import Problem, SolveOptions
    from karpenter_core.scheduling.whatif.what_if import Verdict
    from karpenter_core.state.problem import Framing
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["Simulation", "leftover_message"]

WHAT_IF: Final = "disruption"
"""The step, in what is told of nodes that cannot be asked about."""

_NAMED_PODS: Final = 5  # upstream's number


@final
class Simulation:
    """Answers what-ifs about one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        framing: Framing,
        options: SolveOptions,
        cache: CatalogueCache | None = None,
        failed: FailedJudgements | None = None,
    ) -> None:
        """`failed` is told of what cannot be judged and is left out."""
        self._snapshot: Final = snapshot
        self._now: Final = now
        self._framing: Final = framing
        self._options: Final = replace(options, reservations=ReservationPolicy.FALLBACK)
        self._cache: Final = cache
        self._whatif: WhatIf | None = None
        self._peaceful = False
        self._failed: Final = FailedJudgements() if failed is None else failed
        self._odd: Final = dict[str, str]()

    def prepare_steps(self, *, peaceful: bool | None) -> Generator[int, None, None]:
        """Compile in small steps, if that has not happened; yields units of work.

        A `peaceful` simulation puts no pods on machines that are still inside their pool's
        `consolidateAfter`; what came to rest there would be disturbed in vain. None leaves that as
        it is: a change of it reads every machine and places every pending pod anew.
        """
        if self._whatif is None:
            problem, movable = self._problem()
            yield 5
            self._whatif, self._peaceful = self._made(problem, movable, self._cache), False
        if peaceful is not None and peaceful != self._peaceful:
            self._whatif.bar(_unsettled(self._snapshot) if peaceful else ())
            self._peaceful = peaceful
        try:
            yield from _settled_steps(self._whatif)
        except Exception as error:
            self._whatif = yield from self._isolated_steps(error)

    def forget(self) -> None:
        """Have everything computed anew: something failed on the way, and left it half done."""
        self._whatif = None

    def _problem(self) -> tuple[Problem, Mapping[str, frozenset[str]]]:
        own = FailedJudgements()
        asked = leaving_problem(self._snapshot, now=self._now, framing=self._framing, failed=own)
        for item in own.found:
            self._failed.add(item)
            if item.regarding.kind == "Node":
                self._odd.setdefault(item.regarding.name, item.message)
        return asked

    def _made(
        self,
        problem: Problem,
        movable: Mapping[str, Collection[str]],
        cache: CatalogueCache | None,
    ) -> WhatIf:
        return WhatIf(problem, movable, self._options, cache=cache)

    def _isolated_steps(self, error: Exception) -> Generator[int, None, WhatIf]:
        """Compile without what cannot be judged; nodes that have such pods are not asked about."""
        problem, movable = self._problem()
        barred = _unsettled(self._snapshot) if self._peaceful else []
        waiting = {pod.uid for pod in problem.pods}
        leaving = [
            pod
            for node in problem.nodes
            for pod in node.pods
            if pod.uid in movable.get(node.name, ()) and pod.uid not in waiting
        ]
        cache = CatalogueCache()

        def solving(part: Problem) -> Generator[int, None, WhatIf]:
            kept = {pod.uid for pod in part.pods}
            pods = tuple(pod for pod in part.pods if pod.uid in waiting)
            made = self._made(
                replace(part, pods=pods),
                {node.name: kept & set(movable.get(node.name, ())) for node in part.nodes},
                cache,
            )
            made.bar(barred)
            yield from _settled_steps(made)
            return made

        found = yield from isolate_steps(
            replace(problem, pods=(*problem.pods, *leaving)), solving, error
        )
        for item in found.failed:
            self._failed.add(item)
        gone = {node.name for node in problem.nodes} - {node.name for node in found.problem.nodes}
        odd = {
            pod.uid: failure_message(WHAT_IF, text)
            for pod, text in zip(found.pods, found.errors, strict=True)
        }
        for node in problem.nodes:
            texts = [odd[pod.uid] for pod in node.pods if pod.uid in odd]
            if texts:
                self._odd.setdefault(node.name, texts[0])
            elif node.name in gone:
                self._odd.setdefault(node.name, "set aside, since it could not be judged")
        return found.result

    def _refuse_odd(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._odd:
                raise SchedulingError(self._odd[name])

    def evaluate(
        self,
        candidates: Iterable[Candidate],
        *,
        below_price: float = inf,
        most_claims: int | None = None,
    ) -> Verdict:
        """Say what happens when candidates go all at once; see `WhatIf.evaluate`.

        Raises:
            SchedulingError: one of them, or a pod on it, was set aside.
        """
        names = _names(candidates)
        self._refuse_odd(names)
        return self._ready.evaluate(names, below_price=below_price, most_claims=most_claims)

    def push(self, candidate: Candidate) -> bool:
        """Take a candidate away for the questions that follow, if that needs nothing new.

        Raises:
            SchedulingError: it, or a pod on it, was set aside.
        """
        self._refuse_odd(_names((candidate,)))
        return self._ready.push(_names((candidate,))).fits

    def pop(self) -> None:
        """Take back the last push that succeeded."""
        self._ready.pop()

    def unready_destination(self, verdict: Verdict) -> str:
        """Say on which machine that is not initialised a verdict puts pods; empty when on none.

        Such a machine may never come up, and what was disrupted for its sake would have no place.
        """
        for name in verdict.moves:
            machine = self._snapshot.state_node(name)
            if machine is not None and machine.managed and not machine.initialized:
                return f"would schedule against uninitialized {_both_names(machine)}"
        return ""

    @property
    def _ready(self) -> WhatIf:
        if self._whatif is None:
            raise RuntimeError("the simulation was not prepared")
        return self._whatif


def _settled_steps(whatif: WhatIf) -> Generator[int, None, None]:
    yield from whatif.refresh_steps()
    whatif.settle()
    yield 5


def leftover_message(verdict: Verdict) -> str:
    """Say which pods would find no place; the first five are named."""
    keys = sorted(pod.key for pod in verdict.left)
    text = ", ".join(
        f"{key} => no place on any node, nor on one that could be made"
        for key in keys[:_NAMED_PODS]
    )
    more = len(keys) - _NAMED_PODS
    if more > 0:
        text += f" and {more} other(s)"
    return f"not all pods would schedule, {text}" if keys else "not all pods would schedule"


def _names(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.machine.name for candidate in candidates)


def _both_names(machine: StateNode) -> str:
    names = [f"nodeclaim/{machine.claim.name}"] if machine.claim is not None else []
    names += [f"node/{machine.node.name}"] if machine.node is not None else []
    return ", ".join(names)


def _unsettled(snapshot: Snapshot) -> list[str]:
    """Return the machines that are to be left in peace for a while yet."""
    return [
        machine.name
        for machine in snapshot.state_nodes
        if machine.claim is not None
        and machine.initialized
        and _has_window(snapshot, machine)
        and not is_true(machine.claim.status.conditions, CONSOLIDATABLE)
    ]


def _has_window(snapshot: Snapshot, machine: StateNode) -> bool:
    pool = snapshot.node_pools.get(machine.pool)
    window: timedelta | None = None
    if pool is not None:
        window = pool.spec.disruption.consolidate_after.timedelta
    return bool(window)
