"""Computes the flags of a node's kubelet.

The flags are those of AKS for the Kubernetes version; settings of the NodeClass override them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, MEMORY
from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.kit.node_registration import taints_text
from karpenter_provider_azure.api.kubelet import IMAGE_GC_HIGH, IMAGE_GC_LOW
from karpenter_provider_azure.catalogue.capacity import EVICTION_MEMORY_MIB, MIB, overhead_of
from karpenter_provider_azure.kubernetes_versions import KubernetesVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration

__all__ = ["CREDENTIAL_PROVIDER_SINCE", "eviction_text", "kubelet_flags"]

CREDENTIAL_PROVIDER_SINCE: Final = KubernetesVersion(1, 30)
"""Kubelets get credentials of registries from a plug-in instead of code of their own."""

_BASE: Final = {
    "address": "0.0.0.0",  # noqa: S104 - of the node, not of this process
    "anonymous-auth": "false",
    "authentication-token-webhook": "true",
    "authorization-mode": "Webhook",
    "cgroups-per-qos": "true",
    "client-ca-file": "/etc/kubernetes/certs/ca.crt",
    "cloud-provider": "external",
    "cluster-domain": "cluster.local",
    "enforce-node-allocatable": "pods",
    "event-qps": "0",
    "image-gc-high-threshold": str(IMAGE_GC_HIGH),
    "image-gc-low-threshold": str(IMAGE_GC_LOW),
    "kubeconfig": "/var/lib/kubelet/kubeconfig",
    "node-status-update-frequency": "10s",
    "pod-manifest-path": "/etc/kubernetes/manifests",
    "pod-max-pids": "-1",
    "protect-kernel-defaults": "true",
    "read-only-port": "0",
    "resolv-conf": "/run/systemd/resolve/resolv.conf",
    "rotate-certificates": "true",
    "streaming-connection-idle-timeout": "4h",
    "tls-cert-file": "/etc/kubernetes/certs/kubeletserver.crt",
    "tls-private-key-file": "/etc/kubernetes/certs/kubeletserver.key",
}
_CLOUD_CONFIG: Final = "/etc/kubernetes/azure.json"
_UNTIL: Final = (
    (KubernetesVersion(1, 30), {"azure-container-registry-config": _CLOUD_CONFIG}),
    (KubernetesVersion(1, 31), {"keep-terminated-pod-volumes": "false"}),
    (KubernetesVersion(1, 34), {"cloud-config": _CLOUD_CONFIG}),
    (
        KubernetesVersion(1, 35),
        {"pod-infra-container-image": "mcr.microsoft.com/oss/kubernetes/pause:3.6"},
    ),
)
"""Flags that kubelets of this version and later do not have."""
_CREDENTIAL_PROVIDER: Final = {
    "image-credential-provider-bin-dir": "/var/lib/kubelet/credential-provider",
    "image-credential-provider-config": "/var/lib/kubelet/credential-provider-config.yaml",
}
_EVICTION: Final = {
    "memory.available": f"{EVICTION_MEMORY_MIB}Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}
_QUOTA_PERIOD_GATE: Final = "CustomCPUCFSQuotaPeriod=true"
"""The feature gate without which a kubelet does not start with another period than 100ms."""
_WORD: Final = re.compile(r"[A-Za-z0-9.-]+")
"""A value of a field that the CRD limits; the cluster may have another CRD."""


def kubelet_flags(boot: BootConfiguration) -> dict[str, str]:
    """Return the flags of the kubelet by name without dashes, sorted.

    Raises:
        NodeClassNotReadyError: a field of the NodeClass is unusable; names object, field and value.
    """
    version = boot.kubernetes_version
    flags = dict(_BASE)
    for until, of_older in _UNTIL:
        if version < until:
            flags |= of_older
    if version >= CREDENTIAL_PROVIDER_SINCE:
        flags |= _CREDENTIAL_PROVIDER
    flags |= {
        "cluster-dns": boot.cluster.dns_service_ip,
        "eviction-hard": eviction_text({}),
        "kube-reserved": _reserved_text(boot),
        "max-pods": str(boot.max_pods),
        "register-with-taints": taints_text(boot.target.node_claim),
    }
    flags |= _configured_flags(boot.target.node_class)
    return {name: flags[name] for name in sorted(flags)}


def eviction_text(thresholds: Mapping[str, str]) -> str:
    """Return hard eviction thresholds as the kubelet's flag has them; those of AKS where unset.

    The flag replaces all defaults of the kubelet, so that a threshold that is missing in it is none.
    """
    merged = {**_EVICTION, **thresholds}
    return ",".join(f"{signal}<{merged[signal]}" for signal in sorted(merged))


def _reserved_text(boot: BootConfiguration) -> str:
    reserved = overhead_of(boot.target.size).kube_reserved
    return f"cpu={reserved[CPU]}m,memory={reserved[MEMORY] // MIB}Mi"


def _configured_flags(node_class: AKSNodeClass) -> dict[str, str]:
    kubelet = node_class.spec.kubelet
    if kubelet is None:
        return {}
    if kubelet.unusable_sysctls:  # one may end the flag in the script
        raise NodeClassNotReadyError(
            f'AKSNodeClass "{node_class.name}": spec.kubelet.allowedUnsafeSysctls '
            f'"{kubelet.unusable_sysctls[0]}" is not a sysctl of pods'
        )
    sysctls = ",".join(kubelet.allowed_unsafe_sysctls)
    log_mib = kubelet.container_log_max_mib
    high, low = kubelet.image_gc_thresholds or (None, None)
    optional = {
        "allowed-unsafe-sysctls": sysctls or None,
        "container-log-max-size": None if log_mib is None else f"{max(1, log_mib)}Mi",
        "fail-swap-on": _switch(kubelet.fail_swap_on),
        "feature-gates": None if kubelet.has_usual_quota_period else _QUOTA_PERIOD_GATE,
        "image-gc-high-threshold": _number(high),
        "image-gc-low-threshold": _number(low),
        "pod-max-pids": _number(kubelet.pod_pids_limit),
    }
    return {
        "container-log-max-files": str(kubelet.container_log_max_files),
        "cpu-cfs-quota": _switch(kubelet.cpu_cfs_quota) or "true",
        "cpu-cfs-quota-period": _checked_word(
            "cpuCFSQuotaPeriod", kubelet.cpu_cfs_quota_period, node_class
        ),
        "cpu-manager-policy": _checked_word(
            "cpuManagerPolicy", kubelet.cpu_manager_policy, node_class
        ),
        "topology-manager-policy": _checked_word(
            "topologyManagerPolicy", kubelet.topology_manager_policy, node_class
        ),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _checked_word(field: str, value: str, node_class: AKSNodeClass) -> str:
    if not _WORD.fullmatch(value):
        raise NodeClassNotReadyError(
            f'AKSNodeClass "{node_class.name}": spec.kubelet.{field} "{value}" must have letters, digits, '
            ". and - only"
        )
    return value


def _switch(value: bool | None) -> str | None:  # noqa: FBT001 - the value, not a mode
    return None if value is None else str(value).lower()


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
