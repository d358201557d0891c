"""Records of pods' storage: claims, volumes, classes, attachments, limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from karpenter_core.api.records import LabelSelector, NodeSelectorTerm, Record

__all__ = [
    "CSINodeView",
    "PersistentVolumeClaimView",
    "PersistentVolumeView",
    "StorageClassView",
    "VolumeAttachmentView",
]


class PersistentVolumeClaimView(Record, frozen=True, kw_only=True, eq=False):
    """One PersistentVolumeClaim."""

    uid: str
    namespace: str
    name: str
    resource_version: int = 0
    volume_name: str = ""
    storage_class: str | None = None
    phase: str = "Pending"
    bind_completed: bool = False
    is_exclusive: bool = False
    """Whether only one pod at a time may use it (access mode ReadWriteOncePod)."""
    selected_node: str = ""
    """The Node for which the scheduler has its volume created."""
    requested_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    """The volumes that it may take; None for any."""
    deletion_timestamp: datetime | None = None


class PersistentVolumeView(Record, frozen=True, kw_only=True, eq=False):
    """One PersistentVolume; `driver` is the CSI driver, in-tree kinds already translated.

    `node_terms` are those of its node affinity, with the zones and regions of its labels.
    """

    uid: str
    name: str
    resource_version: int = 0
    driver: str = ""
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    is_local: bool = False
    claim: str = ""
    """`namespace/name` of the claim it is bound to."""
    claim_uid: str = ""
    """UID of that claim; empty in a volume that was reserved by hand."""
    storage_class: str = ""
    capacity_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    labels: Mapping[str, str] = {}
    deletion_timestamp: datetime | None = None


class StorageClassView(Record, frozen=True, kw_only=True, eq=False):
    """One StorageClass; an in-tree provisioner is already its CSI driver."""

    uid: str
    name: str
    resource_version: int = 0
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[NodeSelectorTerm, ...] = ()


class CSINodeView(Record, frozen=True, kw_only=True, eq=False):
    """Limits on attached volumes of one node, by CSI driver; absent = no limit."""

    uid: str
    name: str
    resource_version: int = 0
    limits: Mapping[str, int] = {}


class VolumeAttachmentView(Record, frozen=True, kw_only=True, eq=False):
    """A volume attached to a node."""

    uid: str
    name: str
    resource_version: int = 0
    node_name: str = ""
    volume_name: str = ""
