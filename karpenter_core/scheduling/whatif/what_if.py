"""Evaluates the removal of nodes: new places of pods, nodes to launch.

`WhatIf` keeps the cluster compiled and evaluates thousands of removals, each as `solve` would
for the same problem with those nodes being removed and their pods pending (`problem_without`). Most
answers are a short first-fit over fitting nodes; the solver's engine answers those that need new
claims. Pending pods come first: the places that they will take are not given to others.

Pure and deterministic: answers depend only on the state of the cluster, not on earlier states or
earlier answers.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODES, PODS
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.node_pods import with_pods
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.scheduling.whatif.base_state import BaseNode, BaseState, PodChange
from karpenter_core.scheduling.whatif.device_moves import (
    device_verdict,
    without_waiting_device_pods,
)
from karpenter_core.scheduling.whatif.homeless_pods import HomelessPods
from karpenter_core.scheduling.whatif.overlay import ClusterOverlay
from karpenter_core.scheduling.whatif.price_bounds import PriceBounds
from karpenter_core.scheduling.whatif.what_if_cluster import WhatIfCluster
from karpenter_core.scheduling.whatif.what_if_question import (
    WhatIfOutcome,
    WhatIfQuestion,
    WhatIfVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, SchedulingProblem
    from karpenter_core.scheduling.whatif.homeless_pods import SinglePrices

__all__ = ["WhatIf", "WhatIfOutcome", "WhatIfVerdict"]

_MAX_SIGNATURES: Final = 20_000
"""Signatures that questions may add before everything is compiled anew."""


_QuestionKey = tuple["_RemovedContent | tuple[BaseNode, ...]", float, int]
"""Content of the removed nodes, and limits of the answer."""
_RemovedContent = tuple[tuple[tuple[int, int], ...], tuple[tuple[str, int], ...]]
"""Pods by class, and what the nodes free of the limits of NodePools."""
_REPEATABLE: Final = frozenset({WhatIfOutcome.TOO_DEAR, WhatIfOutcome.TOO_MANY})
"""Refusals that hold nothing but the outcome."""


@final
class _KeptRefusals:
    """The refusals of the last state and of the present one."""

    def __init__(self) -> None:
        self._last: Mapping[_QuestionKey, WhatIfOutcome] = {}
        self._present: dict[_QuestionKey, WhatIfOutcome] = {}

    def renew(self) -> None:
        """Drop the refusals that were not repeated in the present state, and begin a later one."""
        self._last, self._present = self._present, {}

    def repeated(self, key: _QuestionKey) -> WhatIfOutcome | None:
        """Return a refusal of a question that depends on nothing else; None if there is none."""
        outcome = self._present.get(key) or self._last.get(key)
        if outcome is not None:
            self._present[key] = outcome
        return outcome

    def keep(self, key: _QuestionKey, outcome: WhatIfOutcome) -> None:
        """Keep a refusal."""
        self._present[key] = outcome


@final
class _CompiledState:
    """The state compiled from the facts; pending pods are placed in the overlay."""

    def __init__(self, base: BaseState) -> None:
        self.base: Final = base
        self.bounds: Final = PriceBounds(base.compiled)
        self.overlay = ClusterOverlay(base)
        self.is_settled = False
        self.homeless: Final = HomelessPods(base, self.bounds)
        self.refusals: Final = _KeptRefusals()
        self.changed_slots: Final = set[int]()
        """Slots whose node has changed since `homeless` was renewed."""
        self.first_signatures: Final = len(base.compiled.signatures)

    def removed_content(self, slots: Sequence[int]) -> _RemovedContent | tuple[BaseNode, ...]:
        """Return what a question depends on if pods are bound to no other place.

        Equal for all nodes with as many pods of the same classes: many nodes of a cluster are alike,
        and stay so while their pods are replaced. The nodes themselves if classes of equal rank are
        placed by the age of their pods.
        """
        base = self.base
        nodes = tuple(base.base_nodes[slot] for slot in slots)
        counts: dict[int, int] = {}
        for node in nodes:
            for number, pods in node.leaving_pods:
                counts[number] = counts.get(number, 0) + len(pods)
        if len({base.plans[number].rank for number in counts}) < len(counts):
            return nodes
        freed = tuple(
            (f"{pool.name}/{name}", amount)
            for pool in base.compiled.pools
            for name, amount in self.overlay.freed_by(slots, pool.name, pool.freed_names).items()
        )
        return tuple(sorted(counts.items())), freed

    @property
    def is_bloated(self) -> bool:
        """Whether questions have added more signatures than are worth keeping."""
        return len(self.base.compiled.signatures) > self.first_signatures + _MAX_SIGNATURES


@final
class WhatIf:
    """Answers what-ifs about one cluster.

    `problem` is a pass as it would be solved now: its pods are pending, its nodes have theirs, and
    `volumes` also speaks of pods that run. `movable` are the UIDs of the pods that leave with each
    node, by its name; any other pod there stays until it ends, and counts. Reservations are best
    asked for with `ReservationPolicy.FALLBACK`.
    """

    def __init__(
        self,
        problem: SchedulingProblem,
        movable: Mapping[str, Collection[str]],
        options: SolveOptions | None = None,
        *,
        cache: CatalogueCache | None = None,
    ) -> None:
        self._options: Final = options or SolveOptions()
        self._cache: Final = cache or CatalogueCache()
        self._cluster = WhatIfCluster(
            without_waiting_device_pods(problem, self._options, self._cache), movable
        )
        self._excluded: frozenset[str] = frozenset()
        self._compiled: _CompiledState | None = None
        self._pushes: Final = list[int]()

    # -- questions -----------------------------------------------------------------------------

    def evaluate(
        self, removed: Iterable[str], *, below_price: float = inf, max_claims: int | None = None
    ) -> WhatIfVerdict:
        """Return the verdict on removing nodes (by name) all at once.

        The verdict is a refusal when new claims would cost `below_price` per hour or more, or when
        there were more than `max_claims`. A refusal says the first reason found; one that says
        that pods are left, or what exactly it would cost, may take a question without limits.

        Raises:
            KeyError: no such node.
        """
        compiled = self._placed_state()
        names = tuple(dict.fromkeys(removed))
        slots = [compiled.base.slots[name] for name in names]
        if self._moves_devices(names):
            return device_verdict(
                names,
                self.problem_without(names),
                self._options,
                self._cache,
                below_price=below_price,
                max_claims=max_claims,
            )
        if max_claims == 1:
            refusal = self._sure_refusal(compiled, slots, below_price)
            if refusal is not None:
                return WhatIfVerdict(names, refusal)
        key = self._repeatable_key(compiled, slots, below_price, max_claims)
        if key is not None and (refusal := compiled.refusals.repeated(key)) is not None:
            return WhatIfVerdict(names, refusal)
        mark = compiled.overlay.mark()
        question = WhatIfQuestion(
            compiled.overlay,
            compiled.bounds,
            slots,
            below_price=below_price,
            max_claims=max_claims,
        )
        try:
            verdict = question.answer()
        finally:
            compiled.overlay.undo(mark)
        if key is not None and verdict.outcome in _REPEATABLE:
            compiled.refusals.keep(key, verdict.outcome)
        return verdict

    def push(self, removed: Iterable[str]) -> WhatIfVerdict:
        """Remove nodes for the questions that follow, if their pods find places on others.

        Otherwise nothing changes. Pods that moved to a node earlier move on with it. `pop` undoes
        the last push that fitted; `exclude_nodes` undoes all. Nodes whose pods have devices are
        not removed: they are for questions of their own.

        Raises:
            KeyError: no such node.
        """
        compiled = self._placed_state()
        names = tuple(dict.fromkeys(removed))
        slots = [compiled.base.slots[name] for name in names]
        if self._moves_devices(names) or any(map(compiled.homeless.has_any, slots)):
            return WhatIfVerdict(names, WhatIfOutcome.TOO_MANY)
        mark = compiled.overlay.mark()
        question = WhatIfQuestion(compiled.overlay, compiled.bounds, slots, max_claims=0)
        is_kept = False
        try:
            verdict = question.answer()
            if verdict.fits:
                question.commit(self._cluster.volumes)
                compiled.overlay.expect_to_keep()
                self._pushes.append(mark)
                is_kept = True
        finally:
            if not is_kept:
                compiled.overlay.undo(mark)
        return verdict

    def is_known_not_to_fit(self, name: str) -> bool:
        """Whether it is known already that pods of a node fit no node, so that no push of it can fit.

        Much cheaper than a push, for those who push every node of a cluster.
        """
        compiled = self._compiled
        return (
            compiled is not None
            and compiled.is_settled
            and compiled.homeless.has_any(compiled.base.slots[name])
        )

    def names_known_not_to_fit(self) -> Collection[str]:
        """Return the names of all such nodes."""
        compiled = self._compiled
        if compiled is None or not compiled.is_settled:
            return ()
        return compiled.homeless.names()

    def need_several_nodes(self, removed: Iterable[str]) -> bool:
        """Whether it is known already that one new node cannot hold the pods of nodes.

        Then it cannot hold those of more nodes either.
        """
        compiled = self._compiled
        return (
            compiled is not None
            and compiled.is_settled
            and self._cluster.frame.devices is None
            and compiled.homeless.fit_no_node([compiled.base.slots[name] for name in removed])
        )

    def single_prices(self, name: str) -> SinglePrices | None:
        """Return what decides alone on removing a node for at most one new claim, if anything does.

        As long as it is the same object, `evaluate` refuses the same prices for the same reason.
        """
        compiled, slot = self._compiled, None
        if compiled is None or not compiled.is_settled or self._cluster.frame.devices is not None:
            return None
        slot = compiled.base.slots[name]
        if slot in compiled.overlay.added_pods:
            return None
        return compiled.homeless.single_prices(slot)

    def _repeatable_key(
        self,
        compiled: _CompiledState,
        slots: Sequence[int],
        below_price: float,
        max_claims: int | None,
    ) -> _QuestionKey | None:
        """Return what a question depends on; None if that is more than its nodes and NodePools."""
        if self._pushes or not max_claims or below_price == inf:
            return None
        added = compiled.overlay.added_pods
        if any(slot in added for slot in slots) or not compiled.homeless.are_all(slots):
            return None
        return compiled.removed_content(slots), below_price, max_claims

    def _sure_refusal(
        self, compiled: _CompiledState, slots: Sequence[int], below_price: float
    ) -> WhatIfOutcome | None:
        """Return the refusal of a single new claim for pods that no node takes, if that is sure.

        A question would come to the same: those pods need new claims, whatever becomes of others.
        """
        if below_price == inf or not slots:
            return None
        if len(slots) > 1:
            return WhatIfOutcome.TOO_MANY if compiled.homeless.fit_no_node(slots) else None
        prices = compiled.homeless.single_prices(slots[0])
        if prices is None:
            return None
        least, whole = prices
        if least == inf:
            return WhatIfOutcome.TOO_MANY
        if least >= below_price and whole < inf and slots[0] not in compiled.overlay.added_pods:
            return WhatIfOutcome.TOO_DEAR
        return None

    def pop(self) -> None:
        """Take back the last push that fitted.

        Raises:
            IndexError: there is none.
        """
        mark = self._pushes.pop()
        self._placed_state().overlay.undo(mark)

    def problem_without(self, removed: Iterable[str]) -> SchedulingProblem:
        """Return the problem that `evaluate` answers: to solve it, or to check an answer."""
        compiled, gone = self._placed_state(), set(removed)
        base, overlay, cluster = compiled.base, compiled.overlay, self._cluster
        usage = {pool: dict(amounts) for pool, amounts in cluster.usage.items()}
        nodes: list[ExistingNode] = []
        pods: list[PodView] = []
        for name, node in sorted(cluster.nodes.items()):
            slot = base.slots[name]
            added_pods = [pod for _, members in overlay.added_pods.get(slot, ()) for pod in members]
            if name in gone or slot in overlay.removed:
                leaving = [pod for pod in node.pods if pod.uid in cluster.movable[name]]
                if name in gone:
                    pods += (*leaving, *added_pods)
                remaining_pods = tuple(
                    pod for pod in node.pods if pod.uid not in cluster.movable[name]
                )
                nodes.append(replace(node, closed=True, pods=remaining_pods))
                for resource, amount in (*node.capacity.items(), (NODES, 1)):
                    if node.pool:
                        of_pool = usage.setdefault(node.pool, {})
                        of_pool[resource] = of_pool.get(resource, 0) - amount
                continue
            there = with_pods(node, added_pods, cluster.volumes)
            nodes.append(replace(there, available={PODS: 0}) if name in self._excluded else there)
        return cluster.problem_for(pods, nodes, usage)

    def _moves_devices(self, removed: Iterable[str]) -> bool:
        """Tell whether devices have to be found for pods of nodes that are removed."""
        cluster = self._cluster
        return cluster.frame.devices is not None and any(
            pod.uid in cluster.movable[name]
            for name in removed
            for pod in cluster.nodes[name].pods
            if pod.shape.resource_claims
        )

    def exclude_nodes(self, names: Iterable[str]) -> None:
        """Exclude exactly these nodes: they take no pods. Undoes every push."""
        self._pushes.clear()
        if self._compiled is not None:
            self._compiled.overlay.undo(0)
            self._compiled.is_settled = False
        self._excluded = frozenset(names)

    def renew(
        self,
        problem: SchedulingProblem,
        movable: Mapping[str, Collection[str]],
        options: SolveOptions,
    ) -> bool:
        """Take a later state of the cluster, in which only pods have come and gone since.

        False if something else has changed, or pods of a new kind have come: then make another
        `WhatIf`. Undoes every push; no node is excluded any more.
        """
        compiled = self._compiled
        if options != self._options or compiled is None or compiled.is_bloated:
            return False
        if compiled.base.compiled.classifier.is_outdated:
            return False
        old, new = self._cluster, WhatIfCluster(problem, movable)
        if not old.differs_in_pods(new):
            return False
        changed = old.changed_nodes(new)
        change = _pod_change(old, new, changed)
        if change is None or not compiled.base.renew(
            [(new.nodes[name], new.movable[name]) for name in changed], change
        ):
            return False
        self._cluster, self._excluded = new, frozenset()
        self._pushes.clear()
        compiled.refusals.renew()
        compiled.changed_slots.update(compiled.base.slots[name] for name in changed)
        compiled.overlay, compiled.is_settled = ClusterOverlay(compiled.base), False
        return True

    # -- what is computed ----------------------------------------------------------------------

    def refresh_steps(self) -> Generator[int, None, None]:
        """Compile, if that is needed, in small steps; yields units of work. Questions do it too."""
        if self._compiled is not None and self._compiled.is_bloated and not self._pushes:
            self._compiled = None
        if self._compiled is None:
            self._pushes.clear()
            cluster = self._cluster
            compiled = yield from compile_steps(cluster.problem(), self._options, self._cache)
            base = BaseState(compiled, cluster.movable)
            self._compiled = _CompiledState(base)
            yield 5

    def settle(self) -> None:
        """Compile if that is needed, and place the pending pods. Questions do it too."""
        self._placed_state()

    def _placed_state(self) -> _CompiledState:
        """Return what is computed, with the pending pods in their places."""
        run_steps(self.refresh_steps())
        compiled = self._compiled
        if compiled is None:
            raise RuntimeError("nothing was compiled")
        if not compiled.is_settled:
            members: dict[int, list[PodView]] = {}
            for pod in self._cluster.pending.values():
                members.setdefault(compiled.base.class_number(pod), []).append(pod)
            class_pods = [(number, tuple(pods)) for number, pods in members.items()]
            compiled.base.exclude(())  # pending pods may go anywhere
            question = WhatIfQuestion(
                compiled.overlay, compiled.bounds, (), class_pods=class_pods, first_fit_only=True
            )
            question.answer()
            question.commit(self._cluster.volumes)
            compiled.base.exclude(self._excluded)
            compiled.homeless.renew(compiled.overlay, compiled.changed_slots)
            compiled.changed_slots.clear()
            compiled.is_settled = True
        return compiled


def _pod_change(old: WhatIfCluster, new: WhatIfCluster, changed: Iterable[str]) -> PodChange | None:
    """Return the pods that came and went; None if the topology groups of some may be gone."""
    left, came = [*old.pending.values()], [*new.pending.values()]
    staying: list[PodView] = []
    for name in changed:
        for pod in old.nodes[name].pods:
            if pod.uid in old.movable[name]:
                left.append(pod)
            elif pod.shape.pod_anti_affinity:
                return None
        for pod in new.nodes[name].pods:
            (came if pod.uid in new.movable[name] else staying).append(pod)
    return PodChange(came=came, staying=staying, left=left, with_volumes=new.volumes.keys())
