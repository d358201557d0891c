"""Converts volumes, claims and attach limits from raw JSON to views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm
from karpenter_core.api.storage_records import (
    CSINodeView,
    PersistentVolumeClaimView,
    PersistentVolumeView,
    StorageClassView,
    VolumeAttachmentView,
)
from karpenter_core.kube.wire.raw import (
    RawPersistentVolumeClaimSpec,
    RawPersistentVolumeClaimStatus,
    RawPersistentVolumeSpec,
    RawVolumeAttachmentSpec,
)
from karpenter_core.kube.wire.requests import amounts
from karpenter_core.kube.wire.selectors import label_selector, node_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.kube.wire.raw import (
        Amounts,
        RawCSINode,
        RawPersistentVolume,
        RawPersistentVolumeClaim,
        RawStorageClass,
        RawTopologyTerm,
        RawVolumeAttachment,
    )

__all__ = [
    "csi_node_view",
    "persistent_volume_claim_view",
    "persistent_volume_view",
    "storage_class_view",
    "volume_attachment_view",
]

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_EXCLUSIVE: Final = "ReadWriteOncePod"
_STORAGE: Final = "storage"
_FILESYSTEM: Final = "Filesystem"
_PLACE_LABELS: Final = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
"""Labels of a PersistentVolume that the scheduler compares with those of nodes."""
_SEPARATOR: Final = "__"  # between several zones in one such label

# In-tree provisioners and the CSI drivers that took over from them (Kubernetes' csi-translation).
_CSI_DRIVERS: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}


def persistent_volume_claim_view(raw: RawPersistentVolumeClaim) -> PersistentVolumeClaimView:
    """Read a PersistentVolumeClaim."""
    meta = raw.metadata
    spec = raw.spec or RawPersistentVolumeClaimSpec()
    status = raw.status or RawPersistentVolumeClaimStatus()
    return PersistentVolumeClaimView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        volume_name=spec.volume_name,
        storage_class=spec.storage_class_name,
        phase=status.phase or "Pending",
        bind_completed=_BIND_COMPLETED in (meta.annotations or {}),
        is_exclusive=_EXCLUSIVE in (spec.access_modes or ()),
        selected_node=(meta.annotations or {}).get(_SELECTED_NODE, ""),
        requested_bytes=_storage(spec.resources.requests if spec.resources else None),
        access_modes=tuple(spec.access_modes or ()),
        volume_mode=spec.volume_mode or _FILESYSTEM,
        selector=label_selector(spec.selector),
        deletion_timestamp=meta.deletion_timestamp,
    )


def persistent_volume_view(raw: RawPersistentVolume) -> PersistentVolumeView:
    """Read a PersistentVolume."""
    meta, spec = raw.metadata, raw.spec or RawPersistentVolumeSpec()
    required = spec.node_affinity.required if spec.node_affinity else None
    claim = spec.claim_ref
    return PersistentVolumeView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        driver=spec.csi.driver if spec.csi is not None else _migrated_driver(spec),
        node_terms=_with_places(
            node_terms(required.node_selector_terms if required else None), meta.labels or {}
        ),
        is_local=spec.local is not None or spec.host_path is not None,
        claim=f"{claim.namespace}/{claim.name}" if claim is not None else "",
        claim_uid=claim.uid if claim is not None else "",
        storage_class=spec.storage_class_name,
        capacity_bytes=_storage(spec.capacity),
        access_modes=tuple(spec.access_modes or ()),
        volume_mode=spec.volume_mode or _FILESYSTEM,
        labels=meta.labels or {},
        deletion_timestamp=meta.deletion_timestamp,
    )


def storage_class_view(raw: RawStorageClass) -> StorageClassView:
    """Read a StorageClass; an in-tree provisioner becomes its CSI driver."""
    meta = raw.metadata
    return StorageClassView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        provisioner=_CSI_DRIVERS.get(raw.provisioner, raw.provisioner),
        volume_binding_mode=raw.volume_binding_mode,
        allowed_topologies=tuple(_topology_term(term) for term in raw.allowed_topologies or ()),
    )


def csi_node_view(raw: RawCSINode) -> CSINodeView:
    """Read how many volumes each driver attaches to a node; no count is no limit."""
    meta = raw.metadata
    drivers = (raw.spec.drivers if raw.spec else None) or ()
    return CSINodeView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        limits={
            driver.name: driver.allocatable.count
            for driver in drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
    )


def volume_attachment_view(raw: RawVolumeAttachment) -> VolumeAttachmentView:
    """Read a VolumeAttachment."""
    meta, spec = raw.metadata, raw.spec or RawVolumeAttachmentSpec()
    source = spec.source
    return VolumeAttachmentView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        node_name=spec.node_name,
        volume_name=(source.persistent_volume_name if source else None) or "",
    )


def _storage(sizes: Amounts | None) -> int:
    return amounts({name: size for name, size in (sizes or {}).items() if name == _STORAGE}).get(
        _STORAGE, 0
    )


def _with_places(
    terms: tuple[NodeSelectorTerm, ...], labels: Mapping[str, str]
) -> tuple[NodeSelectorTerm, ...]:
    """Add the zone and region that labels of a volume name to each of its terms.

    Volumes that were created by hand often have these labels and no node affinity.
    """
    places = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=values)
        for key in _PLACE_LABELS
        if (values := _place_values(labels.get(key, "")))
    )
    if not places:
        return terms
    return tuple(
        NodeSelectorTerm(
            match_expressions=(*term.match_expressions, *places), match_fields=term.match_fields
        )
        for term in (terms or (NodeSelectorTerm(),))
    )


def _place_values(label: str) -> tuple[str, ...]:
    """Return the places that a label names; empty if it cannot be parsed, as for the scheduler."""
    values = tuple(value.strip() for value in label.split(_SEPARATOR))
    return values if all(values) else ()


def _migrated_driver(spec: RawPersistentVolumeSpec) -> str:
    """Return the CSI driver that serves an in-tree volume; empty if there is none."""
    in_tree = {
        "kubernetes.io/aws-ebs": spec.aws_elastic_block_store,
        "kubernetes.io/azure-disk": spec.azure_disk,
        "kubernetes.io/azure-file": spec.azure_file,
        "kubernetes.io/cinder": spec.cinder,
        "kubernetes.io/gce-pd": spec.gce_persistent_disk,
        "kubernetes.io/portworx-volume": spec.portworx_volume,
        "kubernetes.io/vsphere-volume": spec.vsphere_volume,
    }
    for plugin, source in in_tree.items():
        if source is not None:
            return _CSI_DRIVERS[plugin]
    return ""


def _topology_term(raw: RawTopologyTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(
                key=expression.key, operator="In", values=tuple(expression.values or ())
            )
            for expression in raw.match_label_expressions or ()
        )
    )
