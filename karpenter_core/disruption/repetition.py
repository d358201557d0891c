"""Decides whether another pass over the same state can have another result.

While a cluster does not change, every pass would evaluate every node again with the same result. The
result of a pass depends on the time if pods are expected on nodes, nodes have just registered,
protections or budgets have a time, or a method has work to do; otherwise it depends only on the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.returning import return_rule
from karpenter_core.disruption.candidates import is_recent

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodView
    from karpenter_core.disruption.method import DisruptionPass
    from karpenter_core.disruption.plan import DisruptionPlan, MethodReport
    from karpenter_core.state.snapshot import StateNode

__all__ = ["is_repeatable"]

_ALWAYS: Final = frozenset({None, "true"})


def is_repeatable(pass_: DisruptionPass, plan: DisruptionPlan) -> bool:
    """Tell whether a later pass that is given the same comes to the same plan, which does nothing.

    Methods whose answer is remembered are not asked again by such a pass either.
    """
    snapshot = pass_.snapshot
    return not (
        plan.commands
        or plan.set_aside
        or snapshot.pending_pods
        or snapshot.nominated_pods
        or any(_has_open_candidates(report, pass_) for report in plan.reports)
        or any(_depends_on_time(pool) for pool in snapshot.node_pools.values())
        or any(_changes_with_time(node, pass_.now) for node in snapshot.state_nodes)
    )


def _has_open_candidates(report: MethodReport, pass_: DisruptionPass) -> bool:
    """Tell whether the method had candidates, and no remembered answer about them."""
    method = report.method
    is_remembered = (
        method.skips_unchanged_state
        and pass_.idle_methods.get(method.name) == report.remaining_budgets
    )
    return report.eligible > 0 and not is_remembered


def _depends_on_time(pool: NodePool) -> bool:
    """Tell whether a pool has budgets with a schedule, or nodes that return after a while."""
    budgets = pool.spec.disruption.budgets
    is_scheduled = any(each.schedule is not None for each in budgets)  # no duration without one
    return is_scheduled or return_rule(pool) is not None


def _changes_with_time(node: StateNode, now: datetime) -> bool:
    return (
        node.is_nominated(now) or is_recent(node, now) or any(map(_is_protected_for_now, node.pods))
    )


def _is_protected_for_now(pod: PodView) -> bool:
    return pod.shape.annotations.get(DO_NOT_DISRUPT) not in _ALWAYS
