"""Records forceful disruptions of claims in the decision journal.

Those are repairs, interruptions, expiries, claims without an instance, and launches given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.decisions import DISRUPT, Decision, DecisionCandidate
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.notices import node_ref
from karpenter_core.disruption.pricing import FREE, NodePrices
from karpenter_core.scheduling.problem import SolveOptions

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["record_forceful_disruption"]


async def record_forceful_disruption(
    runtime: ControllerRuntime,
    snapshot: Snapshot,
    claim: NodeClaim,
    *,
    method: str,
    reason: str,
    cause: str,
) -> None:
    """Record that a claim was deleted by force; `snapshot` is from before the deletion.

    The next provisioning pass decides on a replacement.
    """
    number = runtime.new_id()
    state_node = snapshot.state_nodes_by_claim.get(claim.name)
    nodes = snapshot.nodes_of(claim)
    pods = () if state_node is None else state_node.pods
    price = (
        FREE if state_node is None else NodePrices(snapshot, SolveOptions()).price_of(state_node)
    )
    candidate = DecisionCandidate(
        node=nodes[0].name if nodes else "",
        node_claim=claim.name,
        node_pool=claim.metadata.labels.get(NODE_POOL, ""),
        price_per_hour=price,
        pods=sum(pod.is_reschedulable for pod in pods),
    )
    decision = Decision(
        id=number,
        cause=cause,
        kind=DISRUPT,
        at=runtime.clock.now(),
        summary=f"{reason}/{number}: delete: [{claim.name}]",
        method=method,
        reason=reason,
        objects=(claim.ref, *map(node_ref, nodes)),
        candidates=(candidate,),
        price_per_hour_before=price,
    )
    await runtime.journal.record(decision)
