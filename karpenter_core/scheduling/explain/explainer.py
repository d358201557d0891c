"""Why pods stay pending: for every pool the first constraint that fails, and what comes closest.

Computed only for classes that are left over, once for each, from what the engine decided by. What
could run is narrowed down, constraint by constraint in the order of `Constraint`; the one that
leaves nothing is the reason. A pool that can make no machine at all says so before anything that a
pod asks for is looked at. Of the steps of relaxation the last one counts: it asks for the least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.explain.last import last_obstacle, taken_reservations
from karpenter_core.scheduling.explain.machines import (
    narrow_by_limits,
    narrow_by_min_values,
    narrow_by_ports,
    narrow_by_resources,
    narrow_by_room,
    narrow_by_stock,
    narrow_by_volumes,
    unmet_requirements,
    untolerated_taint,
    unusable,
)
from karpenter_core.scheduling.explain.options import Machines, Option, Question
from karpenter_core.scheduling.explain.pods import narrow_by_pods
from karpenter_core.scheduling.problem import PoolRejection, Unschedulable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from karpenter_core.scheduling.placement.engine import Engine

__all__ = ["Explainer"]

_NARROWINGS: Final = (
    narrow_by_resources,
    narrow_by_ports,
    narrow_by_volumes,
    narrow_by_pods,
    narrow_by_limits,
    narrow_by_min_values,
    narrow_by_stock,
    narrow_by_room,
)
"""What follows taints and requirements, in the order of `Constraint`."""


@final
class Explainer:
    """Says of one finished plan why pods found no place in it."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self._pools: Final = tuple(
            Machines(engine.compiled, number) for number in range(len(engine.compiled.pools))
        )

    def explain_steps(self, index: int) -> Generator[int, None, Unschedulable]:
        """Say why pods of a class are left; yields units of work done."""
        if not self._pools:
            blocked = self._engine.compiled.classes[index].blocked
            return Unschedulable(
                message=blocked.detail if blocked else "no dynamic nodepools found"
            )
        pools: dict[str, PoolRejection] = {}
        for machines in self._pools:
            pools[machines.pool.name] = self._answer(machines, index)
            yield 1
        return Unschedulable(message=_message(pools), pools=pools)

    def _answer(self, machines: Machines, index: int) -> PoolRejection:
        pod_class, pool = self._engine.compiled.classes[index], machines.pool
        if pod_class.blocked is not None and not pod_class.rungs:
            return pod_class.blocked
        if not pool.bits:
            return unusable(pool)
        deferral = self._engine.deferred.get(index)
        if deferral is not None and deferral.pool == machines.number:
            return taken_reservations(deferral.taken)
        question = Question(self._engine, machines, index)
        rejection = untolerated_taint(question) or unmet_requirements(question)
        if rejection is not None:
            return rejection
        options: tuple[Option, ...] = (question.start(),)
        for narrow in _NARROWINGS:
            answer = narrow(question, options)
            if isinstance(answer, PoolRejection):
                return answer
            options = answer
        return last_obstacle(question, options)


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
