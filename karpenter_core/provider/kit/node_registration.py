"""Labels and taints that a new instance registers its Node with (PC-036).

user_data = {"labels": registration_labels(claim), "taints": registration_taints(claim)}
flags = [f"--register-with-taints={taints_text(claim)}"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import UNREGISTERED_TAINT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = ["is_settable_by_kubelet", "registration_labels", "registration_taints", "taints_text"]

_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_OF_THE_KUBELET: Final = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_DOMAINS_OF_THE_KUBELET: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")


def is_settable_by_kubelet(label: str) -> bool:
    """Whether a kubelet starts with a label in `--node-labels` (Kubernetes documentation).

    In Kubernetes' own domains it may set the labels and the domains of kubelets only.
    """
    domain, slash, _ = label.partition("/")
    if not slash or label in _OF_THE_KUBELET or _is_within(domain, _DOMAINS_OF_THE_KUBELET):
        return True
    return not _is_within(domain, _KUBERNETES)


def _is_within(domain: str, domains: Iterable[str]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in domains)


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
