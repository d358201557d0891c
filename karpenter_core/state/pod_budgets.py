"""Finds the PodDisruptionBudgets that keep pods from leaving.

The rules are those of the eviction API: budgets do not protect a pod whose containers do not run yet,
nor an unready pod of a workload that has enough ready ones.

Two cases differ. A *candidate* for disruption is blocked by a budget that allows no disruption at
this moment. A pod that must be *rescheduled* (its node is removed anyway) is blocked only by a
budget that never allows any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.selectors import selects
from karpenter_core.state.pod_rules import is_disruptable, is_evictable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.records import LabelSelector, PodView
    from karpenter_core.api.workload_records import PodDisruptionBudgetView

__all__ = ["PodBudgets", "budget_key"]

_ALWAYS_ALLOW: Final = "AlwaysAllow"
_PENDING: Final = "Pending"
"""Phase of a pod whose containers do not all run yet."""


def budget_key(budget: PodDisruptionBudgetView) -> str:
    """Return `namespace/name`."""
    return f"{budget.namespace}/{budget.name}"


@final
class PodBudgets:
    """The PodDisruptionBudgets of a cluster, by namespace."""

    __slots__ = ("_by_namespace",)

    def __init__(self, budgets: Iterable[PodDisruptionBudgetView]) -> None:
        self._by_namespace: Final[dict[str, list[PodDisruptionBudgetView]]] = {}
        for budget in sorted(budgets, key=budget_key):
            self._by_namespace.setdefault(budget.namespace, []).append(budget)

    @property
    def selectors(self) -> tuple[tuple[str, LabelSelector | None], ...]:
        """The names and selectors of all budgets: which pods they select."""
        return tuple(
            (budget_key(budget), budget.selector)
            for budgets in self._by_namespace.values()
            for budget in budgets
        )

    @property
    def permanent_terms(self) -> tuple[tuple[object, ...], ...]:
        """Everything about all budgets that `is_reschedulable_now` depends on."""
        return tuple(
            (
                budget_key(budget),
                budget.selector,
                budget.unhealthy_pod_eviction_policy,
                budget.current_healthy >= budget.desired_healthy > 0,
                budget.max_unavailable,
                budget.min_available,
            )
            for budgets in self._by_namespace.values()
            for budget in budgets
        )

    def matching(self, pod: PodView) -> tuple[PodDisruptionBudgetView, ...]:
        """Return the budgets that select a pod."""
        return tuple(
            budget
            for budget in self._by_namespace.get(pod.namespace, ())
            if selects(budget.selector, pod.shape.labels)
        )

    def blocking(self, pod: PodView, now: datetime) -> tuple[PodDisruptionBudgetView, ...]:
        """Return the budgets that block eviction of a pod now: several, or an exhausted one.

        The eviction API refuses a pod with two budgets in any case.
        """
        return self._blocking(pod, now, fully=False)

    def is_reschedulable_now(self, pod: PodView, now: datetime) -> bool:
        """Tell whether the pod can leave and will need another place when its node is removed."""
        return (
            pod.is_reschedulable
            and is_disruptable(pod, now)
            and not self._blocking(pod, now, fully=True)
        )

    def _blocking(
        self, pod: PodView, now: datetime, *, fully: bool
    ) -> tuple[PodDisruptionBudgetView, ...]:
        if (
            pod.namespace not in self._by_namespace
            or pod.phase == _PENDING
            or not is_evictable(pod, now)
        ):
            return ()
        budgets = self.matching(pod)
        if len(budgets) > 1:
            return budgets
        return tuple(budget for budget in budgets if _is_blocking(budget, pod, fully=fully))


def _is_blocking(budget: PodDisruptionBudgetView, pod: PodView, *, fully: bool) -> bool:
    if pod.ready is False and (
        budget.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW
        or budget.current_healthy >= budget.desired_healthy > 0
    ):
        return False
    if fully:
        return budget.max_unavailable in {"0", "0%"} or budget.min_available == "100%"
    return budget.disruptions_allowed == 0
