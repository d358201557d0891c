"""Says why pods of a claim cannot run on the node that registered for it.

They stay pending, and the next plan would launch the same node for them, for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.quantities import format_resources, parse_resources
from karpenter_core.scheduling.taints import first_untolerated
from karpenter_core.state.taints import has_taint, is_ephemeral, taint_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView, Taint

__all__ = ["NODE_TOO_SMALL", "UNEXPECTED_TAINT", "find_unfitness"]

NODE_TOO_SMALL: Final = "NodeTooSmall"
UNEXPECTED_TAINT: Final = "UnexpectedTaint"
_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_OF_KUBERNETES: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
)
"""Prefixes of taints that show the state of a node, and go with it."""


def find_unfitness(
    claim: NodeClaim, node: NodeView, pods: Iterable[PodView]
) -> tuple[str, str] | None:
    """Return reason and message; None if the planned `pods` can run on the node."""
    if shortage := _shortage(claim, node):
        return NODE_TOO_SMALL, shortage
    lasting = _lasting_taints(claim, node)
    for pod in pods if lasting else ():
        taint = first_untolerated(lasting, pod.shape.tolerations)
        if taint is not None:
            return UNEXPECTED_TAINT, (
                f"Node {node.name} has the taint {taint.key}:{taint.effect}, which pod {pod.key} does "
                "not tolerate: declare it in the NodePool, under startupTaints if it is removed later"
            )
    return None


def _shortage(claim: NodeClaim, node: NodeView) -> str:
    """Say what the node has less of than it was launched for; empty if nothing.

    A resource that the node does not report yet is not compared.
    """
    requested = parse_resources(claim.spec.resources.requests)
    short = {
        name: node.allocatable[name]
        for name, amount in requested.items()
        if 0 < node.allocatable.get(name, 0) < amount
    }
    wanted = format_resources({name: requested[name] for name in short})
    listed = ", ".join(
        f"{amount} of {name} for pods that ask for {wanted[name]}"
        for name, amount in sorted(format_resources(short).items())
    )
    return f"Node {node.name} has only {listed}: its instance type promises more" if short else ""


def _lasting_taints(claim: NodeClaim, node: NodeView) -> tuple[Taint, ...]:
    """Return the hard taints of a node that stay, but for those that Kubernetes has put there.

    Pods are planned for claims whose taints they tolerate, but a webhook may add others to a claim.
    """
    passing = [taint_of(spec) for spec in claim.spec.startup_taints]
    return tuple(
        taint
        for taint in node.taints
        if taint.effect in _HARD
        and not taint.key.startswith(_OF_KUBERNETES)
        and not is_ephemeral(taint)
        and not has_taint(passing, taint)
    )
