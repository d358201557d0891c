"""Claims that go by force, as entries of the decision journal.

Repaired, interrupted, expired and vanished ones, and those that came to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.decisions import DISRUPT, Decision, DecisionMachine
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.disruption.pricing import FREE, Prices
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.scheduling.problem import SolveOptions

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["record_forced"]


async def record_forced(
    runtime: Runtime, snapshot: Snapshot, claim: NodeClaim, *, method: str, reason: str, cause: str
) -> None:
    """Record that a claim was deleted whatever protects it; `snapshot` is from before.

    What comes for it is the decision of the next provisioning pass.
    """
    number = runtime.new_id()
    machine = snapshot.state_nodes_by_claim.get(claim.name)
    nodes = snapshot.nodes_of(claim)
    pods = () if machine is None else machine.pods
    price = FREE if machine is None else Prices(snapshot, SolveOptions()).known(machine)
    candidate = DecisionMachine(
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
