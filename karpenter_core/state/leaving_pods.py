"""Finds pods that need another place, as their nodes are being removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.state.expendable_pods import NO_CUTOFF, expendable_reason
from karpenter_core.state.ignored_pods import PROVISIONING_STEP
from karpenter_core.state.interruption import is_interrupted_soon
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_rules import pod_ref

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["pods_on_leaving_nodes"]


def pods_on_leaving_nodes(
    snapshot: Snapshot,
    now: datetime,
    *,
    failed: FailedJudgements | None,
    cutoff: int = NO_CUTOFF,
) -> tuple[PodView, ...]:
    """Return the pods that will need another place because their nodes are being removed.

    Pods that may not be evicted stay, and so does their node, unless the cloud interrupts the
    instance. Another pod, which waits itself, takes the place of one that a rollout replaces. Expendable pods, of a priority below `cutoff`, need none. Pods that cannot be evaluated
    are added to `failed`.
    """
    failed = failed or FailedJudgements()
    leaving = [state_node for state_node in snapshot.state_nodes if state_node.marked_for_deletion]
    if not leaving:
        return ()
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    pods: list[PodView] = []
    replaced = snapshot.ledger.replaced_pods
    for state_node in leaving:
        for pod in sorted(state_node.pods, key=lambda item: item.uid):
            with failed.judging(pod_ref(pod), PROVISIONING_STEP):
                if expendable_reason(pod.shape, cutoff) or pod.uid in replaced:
                    continue
                if budgets.is_reschedulable_now(pod, now) or (
                    pod.is_reschedulable and is_interrupted_soon(state_node.claim, now)
                ):
                    pods.append(pod)
    return tuple(pods)
