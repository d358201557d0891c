"""Builds the request to the bootstrapping service: the profile of one node.

Names and numbers are those of the service's API, `NodeBootstrapping` of `2024-10-01`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.durations import parse_duration
from karpenter_core.api.labels import UNREGISTERED_TAINT
from karpenter_core.errors import LaunchFailedError
from karpenter_provider_azure import labels
from karpenter_provider_azure.api.nodeclass import LocalDNSMode
from karpenter_provider_azure.bootstrap.node_labels import node_labels
from karpenter_provider_azure.bootstrap.node_software import gpu_driver
from karpenter_provider_azure.catalogue.capacity import os_disk_of
from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size
from karpenter_provider_azure.images.families import ImageVariant, definition_id, image_definitions

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclaim import TaintSpec
    from karpenter_provider_azure.api.nodeclass import (
        AKSNodeClassSpec,
        KubeletConfiguration,
        LinuxOSConfig,
        LocalDNSZone,
    )
    from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration

__all__ = ["provision_values"]

_LINUX: Final = 2
_OS_SKUS: Final = {labels.OS_SKU_UBUNTU: 1, labels.OS_SKU_AZURE_LINUX: 7}
_MODES: Final = {labels.MODE_SYSTEM: 1, labels.MODE_USER: 2}
_SSH_OF_LOCAL_USER: Final = 0
_GRID: Final = 2
_CUDA: Final = 3
_ARCHITECTURES: Final = {"amd64": "x64", "arm64": "Arm64"}
_MAX_INT32: Final = 2**31 - 1

_ODD_SYSCTLS: Final = {"net_ipv4_tcp_keepalive_intvl": "netIpv4TcpkeepaliveIntvl"}


def provision_values(boot: BootConfiguration, *, image_id: str) -> JsonObject:
    """Return the body of the request.

    Raises:
        NodeClassNotReadyError: a field of the NodeClass is unusable; names object, field and value.
        LaunchFailedError: the image is none of the NodeClass's family.
    """
    spec, size = boot.target.node_class.spec, boot.target.size
    node = node_labels(boot)
    disk = os_disk_of(size, boot.target.node_class)
    profile: JsonObject = {
        "name": "",
        "architecture": _ARCHITECTURES[size.arch],
        "artifactStreamingProfile": {"enabled": boot.streams_artifacts},
        "customNodeLabels": node,
        "distro": _distribution(boot, image_id),
        "enableFIPS": spec.uses_fips,
        "maxPods": boot.max_pods,
        "mode": _MODES.get(node[labels.AKS_MODE], _MODES[labels.MODE_USER]),
        "nodeInitializationTaints": [
            f"{UNREGISTERED_TAINT}:NoExecute",
            *(_taint_text(taint) for taint in boot.target.node_claim.spec.startup_taints),
        ],
        "nodeTaints": [_taint_text(taint) for taint in boot.target.node_claim.spec.taints],
        "orchestratorVersion": boot.kubernetes_release,
        "osSku": _OS_SKUS[boot.family.os_sku],
        "osType": _LINUX,
        "securityProfile": _security_profile(spec),
        "storageProfile": "Ephemeral" if disk.is_ephemeral else "ManagedDisks",
        "vmSize": size.name,
        "vnetCidrs": [],
        "vnetSubnetID": str(boot.subnet),
    }
    if spec.kubelet is not None:
        profile["customKubeletConfig"] = _kubelet_config(spec.kubelet)
    if spec.linux_os_config is not None:
        profile["customLinuxOSConfig"] = _os_config(spec.linux_os_config)
    if local_dns := _local_dns_profile(boot):
        profile["localDNSProfile"] = local_dns
    if gpu := _gpu_profile(boot):
        profile["gpuProfile"] = gpu
    return {
        "provisionProfile": profile,
        "provisionHelperValues": {
            "skuCPU": float(size.cpus),
            # Whole GiB, as the size is sold: the service computes what the kubelet reserves.
            "skuMemory": float(int(size.memory_gib)),
        },
    }


def _distribution(boot: BootConfiguration, image_id: str) -> str:
    spec = boot.target.node_class.spec
    variant = ImageVariant(fips=spec.uses_fips, trusted_launch=spec.uses_trusted_launch)
    name = definition_id(image_id).rpartition("/")[2].lower()
    for definition in image_definitions(boot.family, variant):
        if definition.name.lower() == name:
            return definition.distribution
    raise LaunchFailedError(
        f'image "{image_id}" is none of AKSNodeClass "{boot.target.node_class.name}", whose family is '
        f"{boot.family}",
        reason="ImageSelectionFailed",
    )


def _taint_text(taint: TaintSpec) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _security_profile(spec: AKSNodeClassSpec) -> JsonObject:
    profile: JsonObject = {"sshAccess": _SSH_OF_LOCAL_USER}
    if spec.uses_trusted_launch:
        profile |= {"enableVTPM": spec.uses_vtpm, "enableSecureBoot": spec.uses_secure_boot}
    return profile


def _kubelet_config(kubelet: KubeletConfiguration) -> JsonObject:
    pids = kubelet.pod_pids_limit
    high, low = kubelet.image_gc_thresholds or (None, None)
    found: JsonObject = {
        "allowedUnsafeSysctls": list(kubelet.allowed_unsafe_sysctls) or None,
        "containerLogMaxFiles": kubelet.container_log_max_files,
        "containerLogMaxSizeMB": kubelet.container_log_max_mib,
        "cpuCfsQuota": kubelet.cpu_cfs_quota,
        "cpuCfsQuotaPeriod": kubelet.cpu_cfs_quota_period or None,
        "cpuManagerPolicy": kubelet.cpu_manager_policy or None,
        "failSwapOn": kubelet.fail_swap_on,
        "imageGcHighThreshold": high,
        "imageGcLowThreshold": low,
        "podMaxPids": None if pids is None else max(-1, min(pids, _MAX_INT32)),
        "topologyManagerPolicy": kubelet.topology_manager_policy or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _os_config(config: LinuxOSConfig) -> JsonObject:
    found: JsonObject = {
        "swapFileSizeMB": config.swap_file_mib,
        "transparentHugePageDefrag": config.transparent_huge_page_defrag or None,
        "transparentHugePageEnabled": config.transparent_huge_page_enabled or None,
    }
    if config.sysctls is not None:
        set_values = config.sysctls.model_dump(by_alias=False, exclude_defaults=True)
        found["sysctls"] = {_sysctl_name(name): value for name, value in set_values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _sysctl_name(field: str) -> str:
    """Return the service's name of a kernel parameter: `netIpv4TcpTwReuse`."""
    head, *tail = field.split("_")
    return _ODD_SYSCTLS.get(field) or head + "".join(part.capitalize() for part in tail)


def _local_dns_profile(boot: BootConfiguration) -> JsonObject | None:
    """Return the profile, with the mode that the status of the NodeClass has decided on."""
    local_dns = boot.target.node_class.spec.local_dns
    if local_dns is None:
        return None
    mode = LocalDNSMode.REQUIRED if boot.has_local_dns else LocalDNSMode.DISABLED
    return {
        "mode": mode.value,
        "vnetDNSOverrides": {zone.zone: _zone(zone) for zone in local_dns.vnet_dns_overrides},
        "kubeDNSOverrides": {zone.zone: _zone(zone) for zone in local_dns.kube_dns_overrides},
    }


def _zone(zone: LocalDNSZone) -> JsonObject:
    found: JsonObject = {
        "queryLogging": zone.query_logging,
        "protocol": zone.protocol,
        "forwardDestination": zone.forward_destination,
        "forwardPolicy": zone.forward_policy,
        "maxConcurrent": zone.max_concurrent,
        "cacheDurationInSeconds": _seconds(zone.cache_duration),
        "serveStaleDurationInSeconds": _seconds(zone.serve_stale_duration),
        "serveStale": zone.serve_stale,
    }
    return {name: value for name, value in found.items() if value not in {None, ""}}


def _seconds(text: str) -> int | None:
    try:
        return int(parse_duration(text).total_seconds()) if text else None
    except ValueError:
        return None


def _gpu_profile(boot: BootConfiguration) -> JsonObject | None:
    support = gpu_size(boot.target.size.name) if boot.target.size.gpus else None
    if support is None or support.manufacturer != labels.NVIDIA:
        return None
    return {
        "driverType": _GRID if gpu_driver(boot.target.size.name).is_grid else _CUDA,
        "installGPUDriver": boot.installs_gpu_driver,
    }
