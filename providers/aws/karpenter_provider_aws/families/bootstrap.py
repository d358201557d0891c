"""The input of user data, the same for every AMI family.

One type for all families, so that launch templates need not know which fields a family uses.
Numbers are resolved already (`kubelet/sizing.py`): the kubelet must be configured with the very
numbers that the catalogue promised to the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import CAPACITY_TYPE, DO_NOT_SYNC_TAINTS, UNREGISTERED_TAINT
from karpenter_core.api.nodeclaim import TaintSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = [
    "RAID0",
    "UNREGISTERED",
    "BootstrapInput",
    "bootstrap_labels",
    "bootstrap_taints",
    "cluster_dns",
    "is_ipv6",
    "kubelet_fields",
]

RAID0: Final = "RAID0"
"""The one instance store policy: local disks become one array that the kubelet lives on."""

UNREGISTERED: Final = TaintSpec(key=UNREGISTERED_TAINT, effect="NoExecute")
"""Keeps pods away until the core has found the node."""

_FORBIDDEN_DOMAINS: Final = ("kubernetes.io", "k8s.io", "node-restriction.kubernetes.io")
"""Labels of these a kubelet may not set on itself (admission plug-in NodeRestriction)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapInput:
    """Everything that user data of any family is made of."""

    cluster_name: str
    cluster_endpoint: str
    ca_bundle: str = ""
    """Base64 of the PEM text; empty when unknown."""
    service_cidr: str = ""
    """Of the cluster's services; empty when not resolved. AL2023 cannot do without."""
    is_ipv6: bool = False
    """Whether pods have IPv6 addresses."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that the kubelet sets on its node; see `bootstrap_labels`."""
    taints: tuple[TaintSpec, ...] = ()
    kubelet: Mapping[str, object]
    """Fields of KubeletConfiguration by their own names; see `kubelet_fields`."""
    instance_store_policy: str = ""
    user_data: str = ""
    """`spec.userData`, as the user wrote it."""
    ami_version: str = ""
    """Version of a Bottlerocket image (`v1.46.0`, `latest`); empty when unknown."""


def bootstrap_labels(
    labels: Mapping[str, str], *, capacity_type: str, is_custom: bool
) -> dict[str, str]:
    """Return the labels of a claim that its kubelet sets on the node.

    The capacity type is what was chosen at launch. All families but Custom register with their
    taints on, so the core must not put them on again; a Custom image may not.
    """
    all_labels = {**labels, CAPACITY_TYPE: capacity_type}
    if not is_custom:
        all_labels[DO_NOT_SYNC_TAINTS] = "true"
    return {key: all_labels[key] for key in sorted(all_labels) if not _is_forbidden(key)}


def bootstrap_taints(claim: NodeClaim) -> tuple[TaintSpec, ...]:
    """Return the taints a node registers with: the claim's, and the one of young nodes, once."""
    taints = (*claim.spec.taints, *claim.spec.startup_taints)
    is_there = any((t.key, t.effect) == (UNREGISTERED.key, UNREGISTERED.effect) for t in taints)
    return taints if is_there else (*taints, UNREGISTERED)


def kubelet_fields(
    spec: Mapping[str, object],
    *,
    max_pods: int,
    kube_reserved: Mapping[str, str],
    system_reserved: Mapping[str, str],
    dns_ip: str,
) -> dict[str, object]:
    """Return a NodeClass's kubelet fields with the numbers for one instance type.

    Expressions give way to their results, and the service of kube-dns answers queries unless the
    user named others. `spec` is the raw `spec.kubelet`.
    """
    fields = dict(spec)
    fields["maxPods"] = max_pods
    for name, resolved in (("kubeReserved", kube_reserved), ("systemReserved", system_reserved)):
        if resolved:
            fields[name] = dict(sorted(resolved.items()))
        elif name in fields:
            del fields[name]
    if dns_ip and not fields.get("clusterDNS"):
        fields["clusterDNS"] = [dns_ip]
    return {name: fields[name] for name in sorted(fields)}


def cluster_dns(kubelet: Mapping[str, object]) -> tuple[str, ...]:
    """Return the addresses that pods ask for names, in the order given."""
    entries = kubelet.get("clusterDNS")
    if not isinstance(entries, (list, tuple)):
        return ()
    return tuple(str(entry) for entry in cast("Iterable[object]", entries))


def is_ipv6(address: str) -> bool:
    """Whether this is an IPv6 address; what is no address is not."""
    try:
        return ip_address(address).version == 6  # noqa: PLR2004 - that is its name
    except ValueError:
        return False


def _is_forbidden(label: str) -> bool:
    domain, slash, _ = label.partition("/")
    return bool(slash) and any(
        domain == forbidden or domain.endswith(f".{forbidden}") for forbidden in _FORBIDDEN_DOMAINS
    )
