"""Converts AKS node pools and VM scale sets, as the Azure CLI prints them.

`az aks nodepool list` prints what AKS's own autoscaler scales; `az vmss list` prints scale sets that a
Cluster Autoscaler of the user scales by tags.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.contract.conversion import Conversion
from karpenter_core.provider.kit.json_values import as_integer, as_items, as_object, as_objects
from karpenter_core.provider.kit.node_groups import (
    NodeGroup,
    capacity_type_requirement,
    object_name,
    requirement_in,
    write_node_pool,
)
from karpenter_provider_azure.labels import GROUP, SKU_STORAGE_ULTRA_SSD

if TYPE_CHECKING:
    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["CONVERSIONS"]

_KIND: Final = "AKSNodeClass"
_POOL_TYPE: Final = "microsoft.containerservice/managedclusters/agentpools"
_SCALE_SET_TYPE: Final = "microsoft.compute/virtualmachinescalesets"
_LABEL_TAG: Final = "k8s.io_cluster-autoscaler_node-template_label_"
_TAINT_TAG: Final = "k8s.io_cluster-autoscaler_node-template_taint_"
_OWN_LABELS: Final = ("kubernetes.azure.com/", "kubernetes.io/", "beta.kubernetes.io/")
"""Prefixes of labels that nodes get without a NodePool's help."""
_WHOLE: Final = 100
_FAMILIES: Final = {
    "Ubuntu": "Ubuntu",
    "Ubuntu2204": "Ubuntu2204",
    "Ubuntu2404": "Ubuntu2404",
    "AzureLinux": "AzureLinux",
    "CBLMariner": "AzureLinux",
    "Mariner": "AzureLinux",
}
_NO_COUNTERPART: Final = "no field of AKSNodeClass has its meaning"
_STATE: Final = "it is state of the group, or has no meaning without one"
_REASONS: Final = {
    "count": "nodes are launched for pods",
    "kubeletConfig": "set spec.kubelet of the AKSNodeClass for it",
    "linuxOSConfig": "set spec.linuxOSConfig of the AKSNodeClass for it",
    "linuxOsConfig": "set spec.linuxOSConfig of the AKSNodeClass for it",
    "mode": "system pools stay: components of AKS need one that no controller removes",
    "nodeImageVersion": "the newest image of the family is used",
    "orchestratorVersion": "nodes have the version of the cluster",
    "spotMaxPrice": "a spot instance costs the spot price, at most the price on demand",
    "upgradeSettings": "set spec.disruption.budgets of the NodePool for it",
}
"""Reasons for fields of AKS node pools that have no counterpart."""


_LOST: Final = frozenset(
    {
        *("capacityReservationGroupId", "capacityReservationGroupID", "enableNodePublicIp"),
        *("enableNodePublicIP", "gpuInstanceProfile"),
        *("hostGroupId", "hostGroupID", "networkProfile", "nodePublicIpPrefixId"),
        *("nodePublicIPPrefixID", "podSubnetId", "podSubnetID", "proximityPlacementGroupId"),
        *("proximityPlacementGroupID", "workloadRuntime"),
    }
)
"""Settings of AKS node pools that an AKSNodeClass cannot have."""
_TRUSTED_LAUNCH: Final = {
    "enableSecureBoot": "secureBoot",
    "enableVTPM": "vtpm",
    "enableVtpm": "vtpm",
}
_UNSET: Final[tuple[object, ...]] = (None, "", False, "OCIContainer")


def _convert_agent_pool(draft: ManifestDraft) -> None:
    pool = draft.source
    name = str(pool.get("name") or "pool")
    is_spot = pool.get("scaleSetPriority") == "Spot"
    scales = pool.get("enableAutoScaling") is True
    has_ultra_ssd = True in {pool.get("enableUltraSsd"), pool.get("enableUltraSSD")}
    family = str(pool.get("osSku") or "Ubuntu")
    if pool.get("osType") == "Windows":
        draft.warn(f'node pool "{name}" runs Windows, which {_KIND} does not support: keep it')
        _leave_out_all(draft, used=())
        return
    write_node_pool(
        draft,
        NodeGroup(
            name=name,
            class_group=GROUP,
            class_kind=_KIND,
            class_name=object_name(name),
            minimum=as_integer(pool.get("minCount" if scales else "count")),
            maximum=as_integer(pool.get("maxCount")) if scales else None,
            labels={
                key: str(value)
                for key, value in as_object(pool.get("nodeLabels")).items()
                if not key.startswith(_OWN_LABELS)
            },
            taints=[_taint(str(text)) for text in as_items(pool.get("nodeTaints"))],
            requirements=[
                *_sizes(str(pool.get("vmSize") or "")),
                capacity_type_requirement(_WHOLE if is_spot else 0),
                *_zones(pool.get("availabilityZones"), str(pool.get("location") or ""), draft),
                *([requirement_in(SKU_STORAGE_ULTRA_SSD, ["true"])] if has_ultra_ssd else []),
            ],
        ),
    )
    fields = {
        "imageFamily": _FAMILIES.get(family),
        "osDiskSizeGB": pool.get("osDiskSizeGb") or pool.get("osDiskSizeGB"),
        "maxPods": pool.get("maxPods"),
        "vnetSubnetID": pool.get("vnetSubnetId") or pool.get("vnetSubnetID"),
        "tags": pool.get("tags"),
        "fipsMode": "FIPS" if pool.get("enableFips") is True else None,
        **_security(pool),
        "gpu": {"mode": "None"}
        if as_object(pool.get("gpuProfile")).get("driver") == "None"
        else None,
        "artifactStreaming": {"enabled": True}
        if as_object(pool.get("artifactStreamingProfile")).get("enabled") is True
        else None,
    }
    for field in sorted(pool.keys() & _LOST):
        if pool[field] not in _UNSET:
            draft.warn(
                f'node pool "{name}": {field} = {json.dumps(pool[field])} has no counterpart in {_KIND} '
                f"{object_name(name)}: its nodes will not have it"
            )
    if family not in _FAMILIES:
        draft.warn(f'osSku "{family}" of node pool "{name}" is no imageFamily of {_KIND}')
    _write_node_class(draft, object_name(name), fields)
    _leave_out_all(
        draft,
        used=(
            *("availabilityZones", "enableAutoScaling", "enableFips", "maxCount", "maxPods"),
            *("minCount", "name", "nodeLabels", "nodeTaints", "osDiskSizeGb", "osDiskSizeGB"),
            *("osSku", "osType", "scaleSetPriority", "tags", "vmSize", "vnetSubnetId"),
            *("vnetSubnetID", "enableEncryptionAtHost", "securityProfile", "gpuProfile"),
            *("artifactStreamingProfile", "enableUltraSsd", "enableUltraSSD"),
        ),
    )


def _security(pool: Mapping[str, object]) -> dict[str, object]:
    """Return `spec.security` of the NodeClass, without what the pool does not set."""
    profile = as_object(pool.get("securityProfile"))
    launch = {
        new: profile[old]
        for old, new in _TRUSTED_LAUNCH.items()
        if isinstance(profile.get(old), bool)
    }
    host = pool.get("enableEncryptionAtHost")
    security = {
        **({"encryptionAtHost": True} if host is True else {}),
        **({"trustedLaunch": launch} if any(launch.values()) else {}),
    }
    return {"security": security} if security else {}


def _convert_scale_set(draft: ManifestDraft) -> None:
    scale_set = draft.source
    name = str(scale_set.get("name") or "scale-set")
    profile = as_object(scale_set.get("virtualMachineProfile"))
    tags = {key: str(value) for key, value in as_object(scale_set.get("tags")).items()}
    is_spot = profile.get("priority") == "Spot"
    zones = _zones(scale_set.get("zones"), str(scale_set.get("location") or ""), draft)
    write_node_pool(
        draft,
        NodeGroup(
            name=name,
            class_group=GROUP,
            class_kind=_KIND,
            class_name=object_name(name),
            minimum=_tag_number(tags.get("min")) or 0,
            maximum=_tag_number(tags.get("max")),
            labels=_tagged(tags, _LABEL_TAG),
            taints=[_taint(f"{key}={text}") for key, text in _tagged(tags, _TAINT_TAG).items()],
            requirements=[
                *_sizes(str(as_object(scale_set.get("sku")).get("name") or "")),
                capacity_type_requirement(_WHOLE if is_spot else 0),
                *zones,
            ],
        ),
    )
    disk = as_object(as_object(profile.get("storageProfile")).get("osDisk"))
    own = {
        key: value
        for key, value in tags.items()
        if not key.startswith((_LABEL_TAG, _TAINT_TAG, "aks-managed-"))
        and key not in {"min", "max"}
    }
    fields = {
        "osDiskSizeGB": disk.get("diskSizeGb") or disk.get("diskSizeGB"),
        "vnetSubnetID": _subnet(profile),
        "tags": own or None,
    }
    _write_node_class(draft, object_name(name), fields)
    draft.warn(
        f'image and custom data of scale set "{name}" are left out: {_KIND} uses the images and the '
        "bootstrap of AKS"
    )
    _leave_out_all(draft, used=("name", "sku", "tags", "virtualMachineProfile", "zones"))


def _write_node_class(draft: ManifestDraft, name: str, fields: Mapping[str, object]) -> None:
    node_class = draft.new_manifest(api_version=f"{GROUP}/v1beta1", kind=_KIND, name=name)
    for field, value in fields.items():
        if value is not None:
            node_class.add(f"spec.{field}", value, "template of the group")


def _leave_out_all(draft: ManifestDraft, *, used: tuple[str, ...]) -> None:
    for field in draft.source:
        if field in used:
            draft.use(field, "part of NodePool and AKSNodeClass")
        default = _NO_COUNTERPART if field in _LOST else _STATE
        draft.leave_out(field, _REASONS.get(field, default))


def _sizes(size: str) -> list[dict[str, object]]:
    return [requirement_in("node.kubernetes.io/instance-type", [size])] if size else []


def _zones(value: object, region: str, draft: ManifestDraft) -> list[dict[str, object]]:
    """Return the requirement for zones, which Azure numbers and nodes name `<region>-<number>`."""
    numbers = [str(zone) for zone in as_items(value)]
    if not numbers:
        return []
    if not region:
        draft.warn(
            f"zones {', '.join(numbers)}: the description names no location, so that no requirement for "
            "topology.kubernetes.io/zone could be written (values such as eastus-1)"
        )
        return []
    names = [f"{region.lower().replace(' ', '')}-{number}" for number in numbers]
    return [requirement_in("topology.kubernetes.io/zone", names)]


def _taint(text: str) -> dict[str, str]:
    """Return a taint of `key=value:effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = (pair or text).partition("=")
    taint = {"key": key, "effect": effect if pair else "NoSchedule"}
    return {**taint, "value": value} if value else taint


def _tagged(tags: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return labels or taints of tags, in which Azure has _ for each / of the key."""
    return {
        key.removeprefix(prefix).replace("_", "/", 1): value
        for key, value in tags.items()
        if key.startswith(prefix)
    }


def _tag_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _subnet(profile: Mapping[str, object]) -> object:
    network = as_object(profile.get("networkProfile"))
    for interface in as_objects(network.get("networkInterfaceConfigurations")):
        for address in as_objects(interface.get("ipConfigurations")):
            return as_object(address.get("subnet")).get("id")
    return None


def _is_type(document: Mapping[str, object], name: str) -> bool:
    return str(document.get("type") or "").lower() == name


CONVERSIONS: Final = (
    Conversion(
        kind="node pool of AKS",
        accepts=lambda document: _is_type(document, _POOL_TYPE),
        convert=_convert_agent_pool,
        successors={},
    ),
    Conversion(
        kind="virtual machine scale set",
        accepts=lambda document: _is_type(document, _SCALE_SET_TYPE),
        convert=_convert_scale_set,
        successors={},
    ),
)
