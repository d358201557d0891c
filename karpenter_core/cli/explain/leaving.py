"""Names the first thing that a NodeClaim that is being deleted waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import (
    DISRUPTION_REASON,
    DRAINED,
    INSTANCE_TERMINATING,
    VOLUMES_DETACHED,
)
from karpenter_core.cli.tables import counted
from karpenter_core.state.pod_budgets import PodBudgets, budget_key

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.state.snapshot import StateNode

__all__ = ["leaving_cause"]

_LEAVING: Final = (DRAINED, VOLUMES_DETACHED, INSTANCE_TERMINATING)


def leaving_cause(cluster: ClusterInput, claim: NodeClaim, state_node: StateNode | None) -> str:
    """Return the first thing that a claim that is being deleted waits for."""
    refused = _refused_evictions(cluster, state_node)
    drained = find_condition(claim.status.conditions, DRAINED)
    is_drained = drained is not None and drained.status == TRUE
    if refused and not is_drained:
        return refused
    for condition in _LEAVING:
        found = find_condition(claim.status.conditions, condition)
        if found is not None and found.status != TRUE:
            return f"{condition} is {found.status}: {found.message or found.reason}"
    others = [name for name in claim.metadata.finalizers if name != TERMINATION_FINALIZER]
    if others:
        return f"finalizers of others: {', '.join(others)}"
    reason = find_condition(claim.status.conditions, DISRUPTION_REASON)
    return "" if reason is None else f"it was disrupted ({reason.reason})"


def _refused_evictions(cluster: ClusterInput, state_node: StateNode | None) -> str:
    """Return which PodDisruptionBudgets refuse the eviction of pods of the node now."""
    if state_node is None:
        return ""
    budgets = PodBudgets(cluster.snapshot.disruption_budgets.values())
    refused = [
        (pod, blocking)
        for pod in sorted(state_node.pods, key=lambda pod: pod.key)
        if (blocking := budgets.blocking(pod, cluster.now))
    ]
    if not refused:
        return ""
    pod, blocking = refused[0]
    names = ", ".join(f'"{budget_key(each)}"' for each in blocking)
    more = len(refused) - 1
    return f'PodDisruptionBudget {names} allows no eviction of pod "{pod.key}" now' + (
        f", and {counted(more, 'other pod')} may not leave either" if more else ""
    )
