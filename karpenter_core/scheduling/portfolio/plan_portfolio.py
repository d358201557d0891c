"""Makes several plans of one problem and takes the best.

First-fit comes first: it is the baseline, and the result when no other plan is better. Then come
plans that buy capacity where it is cheapest, the most promising first:

* *grown* opens a node, or makes one larger, when the class at hand needs it, and buys patterns for
  pods that mix freely.
* *mixed* opens what the guidance LP would buy before anything is placed, and fills it. Better where
  pods need nodes of their own (all others will share these) and zones differ in price: where they
  stand has to be decided for all pods together.

The second of these, and further ones, are made while work units remain. Small problems have a few
more, in other orders: there no bound tells how good a plan is, and one pod decides the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.placement.engine import PlacementEngine
from karpenter_core.scheduling.placement.plan_profile import PlanProfile, RowMeasure
from karpenter_core.scheduling.portfolio.cost_bound import find_cost_bound
from karpenter_core.scheduling.portfolio.finished_plan import finish_steps
from karpenter_core.scheduling.portfolio.plan_profiles import (
    FIRST_FIT,
    LOW_FEE_SHARE,
    grown_profile,
    profiles_of_few,
    smallest_first,
    value_profiles,
)
from karpenter_core.scheduling.portfolio.purchase_mix import find_purchase_mix
from karpenter_core.scheduling.portfolio.repacked_plan import repacked_steps
from karpenter_core.scheduling.problem import MOST_NOMINATED_PODS, PackingPolicy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.placement.engine import HaltRequest
    from karpenter_core.scheduling.portfolio.cost_bound import CostBound
    from karpenter_core.scheduling.portfolio.finished_plan import FinishedPlan
    from karpenter_core.scheduling.portfolio.purchase_mix import PurchaseMix

__all__ = ["PlanPortfolio", "first_fit_steps", "portfolio_steps"]

_FAR: Final = 1.06
"""The ratio to the lower bound from which the nodes of the best plan are packed once more."""

_VERY_FAR: Final = 1.075
"""The ratio from which a second plan is made though no work units are left for it."""

_SECOND_PLAN_PODS: Final = 128
"""The number of pods from which that is done. With fewer, whole nodes alone cost that much more than the bound."""

_MAX_REPACKED_PODS: Final = 15_000

_FEW_PODS: Final = 64
"""The number of pods up to which plans in other orders are made as well."""

_FEW_UNEVEN_PODS: Final = 40
"""The number of pods up to which domains are filled unevenly: pod by pod, which takes longer."""

_LARGE_NODES_FEE_SHARES: Final = (1.0, 3.0)
"""The shares with which the nodes of those plans are chosen; what-ifs of few pods have the first only.

Plans of three times the fee often have half of the nodes for the same price, and then cost less in all.
"""

_FEW_CLASSES: Final = 16
"""The number of classes of pods up to which the LP's mix of larger nodes is opened at once as well.

It has about as many kinds of nodes as there are classes: of many, rounding takes what larger nodes save.
"""

_MUCH: Final = 0.02
"""The ratio of the fees that fewer nodes might save to the prices from which that plan is made."""

_MAX_ROUNDS_OF_FEWER: Final = 8
"""The rounds in which as many pods of a class are left out as were on dropped claims."""

_GOOD_ENOUGH: Final = 1.01
"""The ratio to the lower bound up to which no other plan is computed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanPortfolio:
    """The best plan, the first-fit plan, and a lower bound of the cost (None: unknown)."""

    best: FinishedPlan
    first_fit: FinishedPlan
    lower_bound: float | None = None


def portfolio_steps(
    compiled: CompiledProblem, halt: HaltRequest | None = None, *, reported: bool = True
) -> Generator[int, None, PlanPortfolio]:
    """Make the plans of a compiled problem; yields the units of work that each step took.

    The bound is computed only if it is `reported`; without it, no plan is known to be good enough, and
    few pods have no further plans: thousands of what-ifs are asked in a pass.
    """
    first_fit = yield from first_fit_steps(compiled, halt)
    if first_fit.engine.nodes.count == len(compiled.nodes) or first_fit.engine.unreached:
        return PlanPortfolio(best=first_fit, first_fit=first_fit)
    bound = find_cost_bound(compiled, first_fit.left) if reported else None
    yield 5
    choice = _Choice(first_fit, bound, halt, reported=reported)
    if compiled.options.packing is PackingPolicy.VALUE:
        mix = find_purchase_mix(compiled, first_fit.engine, fee_share=LOW_FEE_SHARE)
        yield 5
        yield from choice.make_steps(mix)
        if reported:
            yield from choice.make_few_steps(mix)
    return PlanPortfolio(best=choice.best, first_fit=first_fit, lower_bound=choice.bound_of_best())


def first_fit_steps(
    compiled: CompiledProblem,
    halt: HaltRequest | None,
    *,
    left_out: Mapping[int, int] | None = None,
) -> Generator[int, None, FinishedPlan]:
    """Make the first-fit plan of a compiled problem, without some pods of classes if these are given."""
    profile = replace(FIRST_FIT, left_out=left_out) if left_out else FIRST_FIT
    return (yield from _plan_steps(compiled, profile, halt))


@final
class _Choice:
    """The best of the plans made so far."""

    def __init__(
        self,
        first_fit: FinishedPlan,
        bound: CostBound | None,
        halt: HaltRequest | None,
        *,
        reported: bool,
    ) -> None:
        self._compiled: Final = first_fit.engine.compiled
        self._first_fit: Final = first_fit
        self._bound: Final = bound
        self._pods: Final = sum(len(pod_class.members) for pod_class in self._compiled.classes)
        self._halt: Final = halt
        self._reported: Final = reported
        self.best = first_fit
        self.lower_bound = None if bound is None else bound.cost_per_hour
        self._value: FinishedPlan | None = None
        """The best plan of which first-fit's order does not decide the nodes."""

    def make_steps(self, mix: PurchaseMix | None) -> Generator[int, None, None]:
        """Make value plans while work units remain; the first is made in any case."""
        compiled = self._compiled
        is_limited = _is_limited(self._first_fit)
        if is_limited:
            self._take((yield from self._plan_steps(smallest_first(compiled))))
        budget, needed = compiled.options.work_units, 0
        for number, profile in enumerate(value_profiles(compiled, mix, is_limited=is_limited)):
            if needed > budget and (number > 1 or not self._needs_other_plan(mix)):
                break
            candidate, units = yield from _counted(self._plan_steps(profile))
            if candidate.engine.unreached:
                break
            budget, needed = budget - needed, units
            self._take(candidate)
            is_better = self._value is None or candidate.score < self._value.score
            if is_better:
                self._value = candidate
            if number == 0 and self._bound is not None:
                self.lower_bound = yield from self._bound.closer_steps(self.best.engine.nodes)
            if is_better:
                yield from self._repack_steps(candidate)
            if number == 0:
                yield from self._large_nodes_steps(mix)
                yield from self._counted_pods_steps(mix)
            if self._is_within(_GOOD_ENOUGH):
                break

    def bound_of_best(self) -> float | None:
        """Return a lower bound of the best plan's cost; None: not known.

        The bound is about the pods that first-fit places. Where limits leave some, the best plan may
        leave others, which cost more.
        """
        first_fit = self._first_fit.left
        if self.lower_bound is None or all(
            count <= first_fit.get(index, 0) for index, count in self.best.left.items()
        ):
            return self.lower_bound
        bound = find_cost_bound(self._compiled, self.best.left)
        return None if bound is None else bound.cost_per_hour

    def _large_nodes_steps(self, mix: PurchaseMix | None) -> Generator[int, None, None]:
        """Make plans of fewer, larger nodes while the fees of the best plan's nodes are much."""
        if mix is None or (mix.requires_nodes and not mix.has_several_pools):
            return
        one = mix.requires_nodes or (not self._reported and self._pods <= _FEW_PODS)
        for fee_share in _LARGE_NODES_FEE_SHARES[:1] if one else _LARGE_NODES_FEE_SHARES:
            fees = self._compiled.options.node_fee_per_hour * len(self.best.sized_claims)
            if fees < _MUCH * self.best.cost_per_hour:
                return
            larger = find_purchase_mix(self._compiled, self._first_fit.engine, fee_share=fee_share)
            yield 5
            for profile in self._profiles_of_larger(larger):
                candidate = yield from self._plan_steps(profile)
                self._take(candidate)
                yield from self._repack_steps(candidate)

    def _profiles_of_larger(self, mix: PurchaseMix | None) -> Iterator[PlanProfile]:
        """Yield the plans that a mix of larger nodes allows."""
        grown = grown_profile(self._compiled, mix)
        yield grown
        # More pods are bound elsewhere than planned, and leave others without room: the more of them,
        # the less room a plan leaves.
        is_small = len(self._compiled.classes) <= _FEW_CLASSES and self._pods <= MOST_NOMINATED_PODS
        if mix is None or not self._reported or not is_small:
            return
        if openings := mix.openings(1.0):
            yield replace(grown, mix=openings)

    def _counted_pods_steps(self, mix: PurchaseMix | None) -> Generator[int, None, None]:
        """Make a plan of nodes that are cheap for the pods at hand, if several pools launch them.

        The LP asks each pool for what first-fit took of it, and knows neither what is left of its limits
        nor of reservations while pods are placed.
        """
        if mix is not None and mix.has_several_pools:
            profile = replace(
                grown_profile(self._compiled, mix),
                measure=RowMeasure.PODS,
                fee_share=1.0,
                free_groups=(),
            )
            self._take((yield from self._plan_steps(profile)))

    def make_few_steps(self, mix: PurchaseMix | None) -> Generator[int, None, None]:
        """Make further plans if the pods are few; only a better one replaces the best."""
        if self._pods > _FEW_PODS:
            return
        mixes = (mix, None) if mix is not None and mix.has_several_pools else (mix,)
        for profile in profiles_of_few(self._compiled, mixes):
            if self._is_within(_GOOD_ENOUGH):
                return
            if profile.uneven_domains and (self._is_within(_FAR) or self._pods > _FEW_UNEVEN_PODS):
                continue
            candidate = yield from self._plan_steps(profile)
            if profile.late and not self._waits_in_vain(candidate):
                continue  # as first-fit's: pods that a node would take may wait for the next pass
            if candidate.score < self.best.score:
                self._take(candidate)
                yield from self._repack_steps(candidate)

    def _take(self, candidate: FinishedPlan) -> None:
        if not candidate.engine.unreached and candidate.is_no_worse_than(self._first_fit):
            # First-fit leaves zones open, and pods for the next pass that need not wait.
            self.best = min(
                self.best, candidate, key=lambda plan: (plan.score, plan is self._first_fit)
            )

    def _waits_in_vain(self, plan: FinishedPlan) -> bool:
        """Whether a value plan, which leaves no zone open, finds no place for the pods left either."""
        value = self._value
        return value is not None and all(
            count <= value.left.get(index, 0) for index, count in plan.left.items()
        )

    def _is_within(self, ratio: float) -> bool:
        """Whether the best plan is known to cost no more than so many times the lower bound."""
        bound, best = self.lower_bound, self.best
        return bound is not None and not best.left and best.cost_per_hour <= bound * ratio

    def _needs_other_plan(self, mix: PurchaseMix | None) -> bool:
        """Whether the second plan is worth its time in any case.

        It is if pods need nodes of their own, and the first plan costs much more than the bound.
        """
        return (
            self._pods >= _SECOND_PLAN_PODS
            and mix is not None
            and mix.requires_nodes
            and mix.chooses_zones
            and self._is_beyond(_VERY_FAR)
        )

    def _is_beyond(self, ratio: float) -> bool:
        """Whether the best plan may cost more than that, of so many pods that plans take no long time."""
        is_large = self._pods > _MAX_REPACKED_PODS
        return self.lower_bound is not None and not is_large and not self._is_within(ratio)

    def _repack_steps(self, plan: FinishedPlan) -> Generator[int, None, None]:
        """Pack the nodes of a plan better, if the best may be far from the optimum."""
        if not self._is_beyond(_FAR):
            return
        for recorded in (yield from repacked_steps(plan)):
            profile = replace(plan.engine.profile, mix=(), free_groups=(), recorded=recorded)
            self._take((yield from self._plan_steps(profile)))

    def _plan_steps(self, profile: PlanProfile) -> Generator[int, None, FinishedPlan]:
        return (yield from _plan_steps(self._compiled, profile, self._halt))


def _plan_steps(
    compiled: CompiledProblem, profile: PlanProfile, halt: HaltRequest | None
) -> Generator[int, None, FinishedPlan]:
    """Make a plan.

    Pods may be where they are because of others on claims that were dropped. So the plan is then made
    again with fewer pods of each class, and after some rounds without the classes of dropped claims.
    """
    rounds = 0
    while True:
        engine = PlacementEngine(compiled, profile, halt)
        yield from engine.steps()
        plan = yield from finish_steps(engine)
        dropped = plan.dropped_pods()
        if not dropped or engine.unreached or not _has_topology(compiled):
            return plan
        rounds += 1
        left_out = dict(profile.left_out)
        for index, pods in dropped.items():
            every = len(compiled.classes[index].members)
            fewer = min(left_out.get(index, 0) + pods, every)
            left_out[index] = fewer if rounds <= _MAX_ROUNDS_OF_FEWER else every
        profile = replace(profile, left_out=left_out)


def _has_topology(compiled: CompiledProblem) -> bool:
    """Whether it matters to some pods where others are."""
    return any(step.zonal or step.host for steps in compiled.topologies for step in steps)


def _counted(
    steps: Generator[int, None, FinishedPlan],
) -> Generator[int, None, tuple[FinishedPlan, int]]:
    """Pass work on, and return how much it was in all."""
    total = 0
    while True:
        try:
            units = next(steps)
        except StopIteration as end:
            return end.value, total
        total += units
        yield units


def _is_limited(first_fit: FinishedPlan) -> bool:
    """Whether pods are left and a pool is at its limits."""
    compiled, remaining = first_fit.engine.compiled, first_fit.engine.remaining
    return bool(first_fit.left) and any(
        pool.limited
        and compiled.pool_signatures[number] != NO_MATCH
        and not pool.has_ample_limits(remaining[number], 1)
        for number, pool in enumerate(compiled.pools)
    )
