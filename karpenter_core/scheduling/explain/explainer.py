"""Explains for each NodePool which constraint keeps a pod pending.

Computed only for classes that are left over, once for each, from the data that the engine used. The
possible claims are narrowed down, constraint by constraint in the order of `PoolConstraint`; the
constraint that leaves none is the reason. A pool that can launch no node at all is reported before
any constraint of the pod. Of the relaxation steps the last one counts: it asks for the least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.explain.final_checks import final_rejection, taken_reservations
from karpenter_core.scheduling.explain.limit_constraints import narrow_by_limits
from karpenter_core.scheduling.explain.options import ClaimOption, ExplainedPool, PoolExplanation
from karpenter_core.scheduling.explain.pod_topology import narrow_by_pods
from karpenter_core.scheduling.explain.pool_constraints import (
    narrow_by_devices,
    narrow_by_free_capacity,
    narrow_by_min_values,
    narrow_by_ports,
    narrow_by_resources,
    narrow_by_stock,
    narrow_by_volumes,
    unmet_requirements,
    untolerated_taint,
    unusable_pool,
)
from karpenter_core.scheduling.problem import PoolRejection, UnschedulablePod

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from karpenter_core.scheduling.placement.engine import PlacementEngine

__all__ = ["PendingPodExplainer"]

_NARROWINGS: Final = (
    narrow_by_resources,
    narrow_by_ports,
    narrow_by_volumes,
    narrow_by_devices,
    narrow_by_pods,
    narrow_by_limits,
    narrow_by_min_values,
    narrow_by_stock,
    narrow_by_free_capacity,
)
"""The checks after taints and requirements, in the order of `PoolConstraint`."""


@final
class PendingPodExplainer:
    """Explains for one finished plan why pods found no place in it."""

    def __init__(self, engine: PlacementEngine) -> None:
        self._engine: Final = engine
        self._pools: Final = tuple(
            ExplainedPool(engine.compiled, number) for number in range(len(engine.compiled.pools))
        )

    def explain_steps(self, index: int) -> Generator[int, None, UnschedulablePod]:
        """Explain why pods of a class are left over; yields units of work done."""
        if not self._pools:
            blocked = self._engine.compiled.classes[index].blocked
            return UnschedulablePod(
                message=blocked.detail if blocked else "no dynamic nodepools found"
            )
        pools: dict[str, PoolRejection] = {}
        for explained_pool in self._pools:
            pools[explained_pool.pool.name] = self._explain_pool(explained_pool, index)
            yield 1
        return UnschedulablePod(message=_message(pools), pools=pools)

    def _explain_pool(self, explained_pool: ExplainedPool, index: int) -> PoolRejection:
        pod_class, pool = self._engine.compiled.classes[index], explained_pool.pool
        if pod_class.blocked is not None and not pod_class.relaxation_steps:
            return pod_class.blocked
        if not pool.bits:
            return unusable_pool(pool)
        deferral = self._engine.deferred.get(index)
        if deferral is not None and deferral.pool == explained_pool.number:
            return taken_reservations(deferral.taken)
        explanation = PoolExplanation(self._engine, explained_pool, index)
        rejection = untolerated_taint(explanation) or unmet_requirements(explanation)
        if rejection is not None:
            return rejection
        options: tuple[ClaimOption, ...] = (explanation.start(),)
        for narrow in _NARROWINGS:
            answer = narrow(explanation, options)
            if isinstance(answer, PoolRejection):
                return answer
            options = answer
        return final_rejection(explanation, options)


def _message(pools: Mapping[str, PoolRejection]) -> str:
    """Write all reasons in one line, each one once."""
    alike: dict[str, list[str]] = {}
    for name, rejection in pools.items():
        text = f"{rejection.constraint}: {rejection.detail}"
        alike.setdefault(text, []).append(f'"{name}"')
    return "; ".join(
        f"{'nodepool' if len(names) == 1 else 'nodepools'} {', '.join(names)}: {text}"
        for text, names in alike.items()
    )
