"""The labels and taints that the kubelet of a new instance registers its Node with (PC-036).

user_data = {"labels": registration_labels(claim), "taints": registration_taints(claim)}
flags = [f"--register-with-taints={taints_text(claim)}"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import UNREGISTERED_TAINT

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = ["registration_labels", "registration_taints", "taints_text"]


def registration_labels(claim: NodeClaim) -> dict[str, str]:
    """Return the labels of the claim; the core adds those of the outcome when the Node registers."""
    return dict(claim.metadata.labels)


def registration_taints(claim: NodeClaim) -> list[dict[str, str]]:
    """Return the taint of unregistered Nodes, and the claim's taints and startup taints, as JSON."""
    taints = (*claim.spec.taints, *claim.spec.startup_taints)
    return [
        {"key": UNREGISTERED_TAINT, "effect": "NoExecute"},
        *({"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints),
    ]


def taints_text(claim: NodeClaim) -> str:
    """Return the taints as the kubelet's flag `--register-with-taints` has them."""
    return ",".join(
        f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
        for taint in registration_taints(claim)
    )
