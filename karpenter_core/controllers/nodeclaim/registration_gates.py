"""Selects Nodes that may register now; requests the provider's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.errors import CloudProviderError
from karpenter_core.lifecycle.nodeclaim.refused_nodes import RefusedNode
from karpenter_core.lifecycle.nodeclaim.registration import synced_node
from karpenter_core.provider.contract import RegistrationRefusal
from karpenter_core.state.taints import UNREGISTERED, has_taint, is_ephemeral

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import RegistrationGate
    from karpenter_core.provider.host.facade import Providers

__all__ = ["UNGATED", "GatedNodes", "gate_nodes", "is_ready_to_register", "without_refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedNodes:
    """The provider's answers about the Nodes of one claim."""

    admitted: frozenset[str] = frozenset()
    """Names of the Nodes that may register, now or when their gate opens."""
    refused: tuple[RefusedNode, ...] = ()
    pending: tuple[RegistrationGate, ...] = ()
    error: CloudProviderError | None = None

    @property
    def is_open(self) -> bool:
        """Whether exactly one Node may register, and now."""
        return len(self.admitted) == 1 and not self.pending and self.error is None


UNGATED = GatedNodes()


async def gate_nodes(
    providers: Providers, claim: NodeClaim, nodes: Sequence[NodeView]
) -> GatedNodes:
    """Ask the provider about each Node; an error about one holds all back."""
    admitted: set[str] = set()
    refused: list[RefusedNode] = []
    pending: list[RegistrationGate] = []
    problem: CloudProviderError | None = None
    for node in nodes:
        try:
            answer = await providers.gate_registration(claim, synced_node(claim, node))
        except CloudProviderError as error:
            answer, problem = None, error
        if isinstance(answer, RegistrationRefusal):
            refused.append(RefusedNode(name=node.name, reason=answer.reason))
            continue
        admitted.add(node.name)
        if answer is not None:
            pending.append(answer)
    return GatedNodes(
        admitted=frozenset(admitted),
        refused=tuple(refused),
        pending=tuple(pending),
        error=problem,
    )


def without_refused(
    nodes: Iterable[NodeView], refused: Iterable[RefusedNode]
) -> tuple[NodeView, ...]:
    """Return the Nodes that are not refused."""
    names = {node.name for node in refused}
    return tuple(node for node in nodes if node.name not in names)


def is_ready_to_register(claim: NodeClaim, node: NodeView) -> bool:
    """Tell whether a node is Ready and has no taint that only startup explains."""
    startup = {(taint.key, taint.effect) for taint in claim.spec.startup_taints}
    return node.ready == "True" and not any(
        (is_ephemeral(taint) and not has_taint((UNREGISTERED,), taint))
        or (taint.key, taint.effect) in startup
        for taint in node.taints
    )
