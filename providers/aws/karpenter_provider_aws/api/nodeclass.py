"""The EC2NodeClass resource (`karpenter.k8s.aws/v1`) and its spec.

Fields, bounds, patterns and defaults are those of Karpenter's own CRD, so that its manifests mean
the same here; `tests/published_fields.json` has them. Models read leniently, as the core's do:
what the API server let in, maybe under another CRD, is read.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model, PrinterColumn
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_core.api.nodeclass import NodeClass
from karpenter_provider_aws.api.families import ALIAS_FAMILIES, AmiAlias, AmiFamily, parse_alias
from karpenter_provider_aws.api.node_class_status import (
    Ami,
    CapacityReservation,
    EC2NodeClassStatus,
    SecurityGroup,
    Subnet,
)
from karpenter_provider_aws.api.options import (
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    CpuOptions,
    EnclaveOptions,
    MetadataOptions,
    NetworkInterface,
)
from karpenter_provider_aws.api.terms import (
    MAX_TERMS,
    AmiTerm,
    CapacityReservationTerm,
    PlacementGroupSelector,
    SecurityGroupTerm,
    SubnetTerm,
)
from karpenter_provider_aws.labels import CLUSTER_TAG_PREFIX, GROUP, RESTRICTED_TAGS

__all__ = [
    "ALIAS_FAMILIES",
    "Ami",
    "AmiAlias",
    "AmiFamily",
    "AmiTerm",
    "BlockDevice",
    "BlockDeviceMapping",
    "CapacityReservation",
    "CapacityReservationTerm",
    "ConnectionTracking",
    "CpuOptions",
    "EC2NodeClass",
    "EC2NodeClassSpec",
    "EC2NodeClassStatus",
    "EnclaveOptions",
    "MetadataOptions",
    "NetworkInterface",
    "PlacementGroupSelector",
    "SecurityGroup",
    "SecurityGroupTerm",
    "Subnet",
    "SubnetTerm",
    "parse_alias",
]

_CLUSTER_TAGS: Final = CLUSTER_TAG_PREFIX.rstrip("/")
_RESTRICTED_LIST: Final = ", ".join(f"'{key}'" for key in RESTRICTED_TAGS)


class EC2NodeClassSpec(Model):
    """Desired configuration of the instances."""

    cel: ClassVar = (
        CEL(
            "has(self.role) != has(self.instanceProfile)",
            "exactly one of role and instanceProfile is needed",
        ),
        CEL(
            "has(self.amiFamily) || self.amiSelectorTerms.exists(x, has(x.alias))",
            "amiFamily is needed when no term of amiSelectorTerms has an alias",
        ),
        CEL(
            "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(x, "
            "!has(x.alias) || x.alias.split('@')[0] == self.amiFamily.lowerAscii())",
            "amiFamily must be the family of the alias, or Custom",
        ),
    )

    subnet_selector_terms: Annotated[
        tuple[SubnetTerm, ...],
        Facets(max_items=MAX_TERMS, required=True),
        CEL("self.size() != 0", "at least one term is needed"),
    ] = ()
    """Terms that select the subnets of the instances."""
    security_group_selector_terms: Annotated[
        tuple[SecurityGroupTerm, ...],
        Facets(max_items=MAX_TERMS, required=True),
        CEL("self.size() != 0", "at least one term is needed"),
    ] = ()
    """Terms that select the security groups of the instances."""
    capacity_reservation_selector_terms: Annotated[
        tuple[CapacityReservationTerm, ...], Facets(max_items=MAX_TERMS)
    ] = ()
    """Terms that select the capacity reservations that instances may be launched into."""
    placement_group_selector: PlacementGroupSelector | None = None
    """The placement group that instances are launched into."""
    associate_public_ip_address: bool | None = None
    """Whether instances get a public address; unset, the subnet decides."""
    ip_prefix_count: Annotated[int | None, Facets(format="int32", minimum=0)] = None
    """Number of address prefixes of an interface at launch (IPv4, or IPv6 on an IPv6 cluster)."""
    ami_selector_terms: Annotated[
        tuple[AmiTerm, ...],
        Facets(min_items=1, max_items=MAX_TERMS, required=True),
        CEL(
            "self.size() == 1 || !self.exists(x, has(x.alias))",
            "a term with an alias must be the only one",
        ),
    ] = ()
    """Terms that select images (AMIs); an instance runs the newest image that supports its type."""
    ami_family: Annotated[str, Facets(enum=tuple(family.value for family in AmiFamily))] = ""
    """Bootstrap of the nodes; by default the family of the alias."""
    user_data: str = ""
    """User data of the first boot, merged with the bootstrap of the AMI family."""
    role: Annotated[str, CEL("self != ''", "role may not be empty")] = ""
    """IAM role of the nodes; the provider creates an instance profile for it."""
    instance_profile: Annotated[str, CEL("self != ''", "instanceProfile may not be empty")] = ""
    """Existing instance profile of the nodes."""
    tags: Annotated[
        dict[str, str],
        CEL("self.all(k, k != '')", "the key of a tag may not be empty"),
        CEL(
            f"self.all(k, !k.startsWith('{_CLUSTER_TAGS}'))",
            f"tags that begin with {_CLUSTER_TAGS} are set by Karpenter",
        ),
        CEL(
            f"self.all(k, !(k in [{_RESTRICTED_LIST}]))",
            f"these tags are set by Karpenter: {', '.join(RESTRICTED_TAGS)}",
        ),
    ] = Field(default_factory=dict)
    """Tags of instances, volumes, interfaces and launch templates."""
    kubelet: Annotated[dict[str, object], Facets(preserve_unknown_fields=True)] = Field(
        default_factory=dict
    )
    """KubeletConfiguration, as the kubelet of the family's images reads it.

    Some fields also decide how many pods fit: maxPods, podsPerCore, kubeReserved, systemReserved,
    evictionHard. A field that the family does not support makes the condition ValidationSucceeded False.
    """
    block_device_mappings: Annotated[
        tuple[BlockDeviceMapping, ...],
        Facets(max_items=50),
        CEL(
            "self.filter(x, has(x.rootVolume) && x.rootVolume).size() <= 1",
            "only one mapping may have rootVolume",
        ),
    ] = ()
    """Volumes of the instances; unset, the volumes that the images of the family need."""
    instance_store_policy: Annotated[str, Facets(enum=("RAID0",))] = ""
    """Use of local disks: RAID0 joins them to one disk, which pods use as ephemeral storage."""
    network_interfaces: Annotated[
        tuple[NetworkInterface, ...],
        Facets(max_items=150),
        CEL(
            "self.size() == 0 || self.exists(x, x.networkCardIndex == 0 && x.deviceIndex == 0 && "
            "x.interfaceType == 'interface')",
            "device 0 of network card 0 must be there, with the type interface",
        ),
        CEL(
            "self.all(x, self.exists_one(y, "
            "x.networkCardIndex == y.networkCardIndex && x.deviceIndex == y.deviceIndex))",
            "a device of a network card may be there only once",
        ),
        CEL(
            "self.all(x, x.interfaceType != 'efa-only' || self.exists_one(y, "
            "x.networkCardIndex == y.networkCardIndex && y.interfaceType == 'efa-only'))",
            "a network card may have only one device of the type efa-only",
        ),
    ] = ()
    """Network interfaces of the instances; unset, one, or all EFAs if pods request EFAs."""
    detailed_monitoring: bool | None = None
    """Whether CloudWatch gets metrics each minute."""
    metadata_options: MetadataOptions = MetadataOptions()
    """The instance metadata service."""
    connection_tracking: ConnectionTracking | None = None
    """Idle timeouts of tracked connections in security groups."""
    context: str = ""
    """Reserved parameter of EC2 that is passed with every CreateFleet."""
    cpu_options: CpuOptions | None = None
    """Options of the processor."""
    enclave_options: EnclaveOptions | None = None
    """Nitro Enclaves."""


class EC2NodeClass(NodeClass):
    """EC2NodeClass configures EC2 instances: network, image, volumes, tags and kubelet."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version="v1",
        kind="EC2NodeClass",
        plural="ec2nodeclasses",
        singular="ec2nodeclass",
        short_names=("ec2nc", "ec2ncs"),
        printer_columns=(
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
            PrinterColumn(name="Role", json_path=".spec.role", priority=1),
        ),
    )

    spec: EC2NodeClassSpec = Field(default_factory=EC2NodeClassSpec)
    status: EC2NodeClassStatus = Field(  # pyright: ignore[reportIncompatibleVariableOverride] - frozen, so a narrower type is safe
        default_factory=EC2NodeClassStatus
    )

    @property
    def alias(self) -> AmiAlias | None:
        """The alias that chooses the images, if one does."""
        aliases = (parse_alias(term.alias) for term in self.spec.ami_selector_terms)
        return next((alias for alias in aliases if alias is not None), None)

    @property
    def ami_family(self) -> AmiFamily:
        """Return the family that bootstraps nodes: of the spec, else of the alias, else Custom.

        A family that we do not know (of an object from another CRD) is Custom too: the user's own
        text bootstraps the node.
        """
        if self.spec.ami_family:
            is_known = self.spec.ami_family in AmiFamily.__members__.values()
            return AmiFamily(self.spec.ami_family) if is_known else AmiFamily.CUSTOM
        alias = self.alias
        return alias.family if alias is not None else AmiFamily.CUSTOM
