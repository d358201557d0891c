"""The ECSNodeClass resource (`karpenter.k8s.alibabacloud/v1alpha1`), its spec.

Fields and defaults are those of Karpenter's Alibaba Cloud provider, so that its manifests mean the
same here; each term of a list is judged on its own, and sizes are what ECS takes. Further fields
are ours, and absent in those manifests. Models read leniently, as the core's do: what the API
server let in, maybe under another CRD, is read.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model, PrinterColumn
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_core.api.nodeclass import NodeClass
from karpenter_provider_alibabacloud.api.disks import (
    DISK_CATEGORIES,
    SMALLEST_GIB,
    DataDisk,
    DiskCategory,
    SystemDisk,
)
from karpenter_provider_alibabacloud.api.families import ImageAlias, ImageFamily, parse_alias
from karpenter_provider_alibabacloud.api.kubelet import KubeletConfiguration
from karpenter_provider_alibabacloud.api.node_class_status import (
    CapacityReservation,
    ECSNodeClassStatus,
    Image,
    SecurityGroup,
    VSwitch,
)
from karpenter_provider_alibabacloud.api.options import MetadataOptions, SpotOptions
from karpenter_provider_alibabacloud.api.terms import (
    MAX_TERMS,
    CapacityReservationTerm,
    ImageTerm,
    SecurityGroupTerm,
    VSwitchTerm,
)
from karpenter_provider_alibabacloud.labels import (
    GROUP,
    MAX_TAG_LENGTH,
    MAX_USER_TAGS,
    RESTRICTED_TAG_PREFIXES,
    RESTRICTED_TAGS,
)

__all__ = [
    "CapacityReservation",
    "CapacityReservationTerm",
    "DataDisk",
    "ECSNodeClass",
    "ECSNodeClassSpec",
    "ECSNodeClassStatus",
    "Image",
    "ImageAlias",
    "ImageFamily",
    "ImageTerm",
    "KubeletConfiguration",
    "MetadataOptions",
    "SecurityGroup",
    "SecurityGroupTerm",
    "SpotOptions",
    "SystemDisk",
    "VSwitch",
    "VSwitchTerm",
    "parse_alias",
]

_RESTRICTED_LIST: Final = ", ".join(f"'{key}'" for key in RESTRICTED_TAGS)
_REFUSED_PREFIXES: Final = ("aliyun", "acs:")
_LARGEST_BANDWIDTH: Final = 100  # Mbit/s, API reference of RunInstances
_ROOT_LOGIN: Final = r"""^[A-Za-z\d~!@#$%^&*()_+\-=\[\]{}|\\:;"'<>,.?/]{8,30}$"""


def _not_beginning(subject: str, prefixes: tuple[str, ...]) -> str:
    return " && ".join(f"!{subject}.startsWith('{prefix}')" for prefix in prefixes)


class ECSNodeClassSpec(Model):
    """Desired configuration of the instances."""

    cel: ClassVar = (
        CEL(
            "!(has(self.passwordInherit) && self.passwordInherit && has(self.password))",
            "password may not be set when passwordInherit is true",
        ),
        CEL(
            "!has(self.internetChargeType) || has(self.internetMaxBandwidthOut)",
            "internetChargeType needs internetMaxBandwidthOut",
        ),
    )

    v_switch_selector_terms: Annotated[
        tuple[VSwitchTerm, ...],
        Facets(max_items=MAX_TERMS, required=True),
        CEL("self.size() != 0", "at least one term is needed"),
    ] = ()
    """Terms that select the vSwitches of the instances."""
    v_switch_selection_policy: Annotated[str, Facets(enum=("balanced", "cheapest"))] = "cheapest"
    """Choice between available zones: the cheapest zone, or the zone with fewest nodes."""
    security_group_selector_terms: Annotated[
        tuple[SecurityGroupTerm, ...],
        Facets(max_items=MAX_TERMS, required=True),
        CEL("self.size() != 0", "at least one term is needed"),
    ] = ()
    """Terms that select the security groups of the instances."""
    image_selector_terms: Annotated[
        tuple[ImageTerm, ...],
        Facets(min_items=1, max_items=MAX_TERMS, required=True),
        CEL(
            "self.size() == 1 || !self.exists(x, has(x.alias))",
            "a term with an alias must be the only one",
        ),
    ] = ()
    """Terms that select images; an instance runs the first image that supports its type."""
    capacity_reservation_selector_terms: Annotated[
        tuple[CapacityReservationTerm, ...], Facets(max_items=MAX_TERMS)
    ] = ()
    """Terms that select the private pools that instances may be launched into."""
    kubelet_configuration: KubeletConfiguration | None = None
    """Settings of the kubelet."""
    system_disk: SystemDisk | None = None
    """The disk that instances boot from; unset, 20Gi of any category."""
    data_disks: Annotated[tuple[DataDisk, ...], Facets(max_items=16)] = ()
    """Further disks of each instance."""
    data_disk_categories: tuple[DiskCategory, ...] = ()
    """Permitted categories of data disks; unset, those of the system disk."""
    format_data_disk: bool = False
    """Whether ACK's script formats the last data disk and puts containers and kubelet on it."""
    tags: Annotated[
        dict[str, Annotated[str, Facets(max_length=MAX_TAG_LENGTH)]],
        Facets(max_properties=MAX_USER_TAGS),
        CEL("self.all(k, k != '')", "the key of a tag may not be empty"),
        CEL(
            f"self.all(k, k.size() <= {MAX_TAG_LENGTH})",
            f"the key of a tag has {MAX_TAG_LENGTH} characters at most",
        ),
        CEL(
            f"self.all(k, !(k in [{_RESTRICTED_LIST}]))",
            f"these tags are set by Karpenter: {', '.join(RESTRICTED_TAGS)}",
        ),
        CEL(
            f"self.all(k, {_not_beginning('k', RESTRICTED_TAG_PREFIXES)})",
            f"tags that begin with {' or '.join(RESTRICTED_TAG_PREFIXES)} are set by Karpenter",
        ),
        CEL(
            f"self.all(k, {_not_beginning('k', _REFUSED_PREFIXES)} && "
            f"{_not_beginning('self[k]', _REFUSED_PREFIXES)})",
            "neither key nor value of a tag may begin with aliyun or acs:",
        ),
        CEL(
            "self.all(k, !k.matches('https?://') && !self[k].matches('https?://'))",
            "neither key nor value of a tag may have http:// or https:// in it",
        ),
    ] = Field(default_factory=dict)
    """Tags of instances and disks."""
    resource_group_id: Annotated[
        str, Facets(pattern=r"^rg-[0-9a-z]+$"), Field(alias="resourceGroupId")
    ] = ""
    """Resource group of the instances."""
    user_data: str = ""
    """Shell script or MIME parts for the first boot, beside ACK's script; alone in a Custom cluster."""
    password: Annotated[str, Facets(pattern=_ROOT_LOGIN), Field(repr=False)] = ""
    """Password of root; whoever may read this object can read it, so prefer keyPairName."""
    key_pair_name: Annotated[str, Facets(pattern=r"^[A-Za-z][A-Za-z\d._:-]{1,127}$")] = ""
    """SSH key pair of the instances."""
    password_inherit: bool = False
    """Whether instances keep the password of the image."""
    ram_role_name: Annotated[str, Facets(pattern=r"^[A-Za-z\d._-]{1,64}$")] = ""
    """RAM role of the instances."""
    spot: SpotOptions | None = None
    """Options of spot instances."""
    deployment_set_id: Annotated[
        str, Facets(pattern=r"^ds-[0-9a-z]+$"), Field(alias="deploymentSetId")
    ] = ""
    """Deployment set that spreads the instances over hosts."""
    metadata_options: MetadataOptions | None = None
    """The instance metadata service."""
    internet_max_bandwidth_out: Annotated[
        int | None, Facets(format="int32", minimum=0, maximum=_LARGEST_BANDWIDTH)
    ] = None
    """Bandwidth to the internet in Mbit/s; above zero, instances get a public address."""
    internet_charge_type: Annotated[str, Facets(enum=("PayByBandwidth", "PayByTraffic"))] = ""
    """Billing method of the public bandwidth."""
    node_pool_id: Annotated[str, Facets(pattern=r"^[0-9A-Za-z-]+$"), Field(alias="nodePoolId")] = ""
    """ACK node pool whose bootstrap script is used; unset, the default node pool of the cluster."""

    @property
    def system_disk_gib(self) -> int:
        """Size of the system disk in effect, in GiB."""
        return self.system_disk.size_gib if self.system_disk is not None else SMALLEST_GIB

    @property
    def system_disk_categories(self) -> tuple[str, ...]:
        """Categories that will do for the system disk, in the order they are tried."""
        chosen = self.system_disk.categories if self.system_disk is not None else ()
        return chosen or DISK_CATEGORIES

    @property
    def system_disk_performance_level(self) -> str:
        """Performance level of a system disk of the category cloud_essd."""
        return (self.system_disk or SystemDisk()).performance_level

    @property
    def effective_data_disk_categories(self) -> tuple[str, ...]:
        """Categories that will do for data disks, in the order they are tried."""
        return self.data_disk_categories or self.system_disk_categories

    @property
    def alias(self) -> ImageAlias | None:
        """The alias that chooses the images, if one does; its family may be unknown."""
        aliases = (term.parsed_alias for term in self.image_selector_terms)
        return next((alias for alias in aliases if alias is not None), None)


class ECSNodeClass(NodeClass):
    """ECSNodeClass configures ECS instances: network, image, disks, tags and kubelet."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version="v1alpha1",
        kind="ECSNodeClass",
        plural="ecsnodeclasses",
        singular="ecsnodeclass",
        short_names=("ecsnc", "ecsncs"),
        printer_columns=(
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
        ),
    )

    spec: ECSNodeClassSpec = Field(default_factory=ECSNodeClassSpec)
    status: ECSNodeClassStatus = Field(  # pyright: ignore[reportIncompatibleVariableOverride] - frozen, so a narrower type is safe
        default_factory=ECSNodeClassStatus
    )

    @property
    def alias(self) -> ImageAlias | None:
        """The alias that chooses the images, if one does; its family may be unknown."""
        return self.spec.alias
