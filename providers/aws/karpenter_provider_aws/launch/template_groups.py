"""Groups a launch's instance types by the launch template they need.

Types differ in image (architecture, accelerators), in EFAs, in the numbers of their kubelet, and in
the reservation they go into; all else is the same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, RESERVED, WELL_KNOWN
from karpenter_core.errors import LaunchFailedError, NodeClassNotReadyError
from karpenter_core.provider.catalogue import Requirement, Requirements, compatible_offerings
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.families.bootstrap import (
    BootstrapInput,
    bootstrap_labels,
    bootstrap_taints,
    is_ipv6,
    kubelet_fields,
)
from karpenter_provider_aws.families.bottlerocket import ami_version, unknown_settings
from karpenter_provider_aws.families.family import user_data
from karpenter_provider_aws.families.images import image_for
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    EFA,
    LABEL_CLASSES,
    NITRO_SANDBOX_RESOURCE,
    PLACEMENT_GROUP_PARTITION,
)
from karpenter_provider_aws.launch.template_data import (
    TemplateContent,
    TemplateReservation,
    template_data,
    template_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from types_boto3_ec2.type_defs import RequestLaunchTemplateDataTypeDef

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.instance_type_info import InterfacePlace
    from karpenter_provider_aws.kubelet.sizing import KubeletSizing

__all__ = [
    "ClusterDetails",
    "LaunchTemplate",
    "TemplateRequest",
    "lowest_partition",
    "templates_for",
]

_WELL_KNOWN: Final = WELL_KNOWN | LABEL_CLASSES.well_known


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDetails:
    """The facts of the cluster and its region in launch templates."""

    name: str
    endpoint: str
    region: str
    ca_bundle: str = ""
    """Base64 of the PEM text; empty when unknown."""
    dns_ip: str = ""
    """Address of the service kube-dns; empty when unknown."""
    service_cidr: str = ""
    """Empty when not resolved."""
    ip_family: str = ""
    """`IPv4` or `IPv6`; empty stands for the family of `dns_ip`."""
    uses_reservations: bool = True
    """The feature gate ReservedCapacity."""

    @property
    def is_ipv6(self) -> bool:
        """Whether pods have IPv6 addresses."""
        return self.ip_family == "IPv6" or (not self.ip_family and is_ipv6(self.dns_ip))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TemplateRequest:
    """A launch, as far as templates must know it. Claims of one fleet are alike: any of them."""

    node_class: EC2NodeClass
    node_claim: NodeClaim
    instance_types: tuple[InstanceType, ...]
    capacity_type: str
    tags: Mapping[str, str]
    """Of everything that is made; see `tags.owned_tags`."""
    tenancy: str = "default"
    placement_group_id: str = ""
    placement_partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchTemplate:
    """A template that a launch needs, and the types to launch from it."""

    name: str
    data: RequestLaunchTemplateDataTypeDef
    tags: Mapping[str, str]
    node_class: str
    image_id: str
    user_data_bytes: int
    """Size of the user data before it is encoded, which is what EC2 limits."""
    left_out: tuple[str, ...] = ()
    """Settings of the user's Bottlerocket document that its images would not boot with."""
    instance_types: tuple[InstanceType, ...]
    """In the order of the request."""
    reservation_id: str = ""
    """Only offerings of this reservation go with the template; any if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TemplateGroup:
    """The properties that all types of one template share."""

    image_id: str
    efa_places: tuple[InterfacePlace, ...]
    max_pods: int
    kube_reserved: tuple[tuple[str, str], ...]
    system_reserved: tuple[tuple[str, str], ...]
    reservation: TemplateReservation | None


def templates_for(
    request: TemplateRequest,
    cluster: ClusterDetails,
    sizing_of: Callable[[str], KubeletSizing],
    efa_places_of: Callable[[str], tuple[InterfacePlace, ...]],
) -> tuple[LaunchTemplate, ...]:
    """Return the templates that the launch needs, in the order of its cheapest types.

    Each type boots the first image in status order that is for it; a type without an image is left
    out, and so is, at a reserved launch, one without a reservation to be had. `sizing_of` and `efa_places_of` give what the catalogue has promised of a type, by its name.

    Raises:
        NodeClassNotReadyError: the status lacks what a template must have.
        LaunchFailedError: there is no image for any of the types.
        BadInputError: the user's text cannot be merged with ours.
    """
    _check_status(request.node_class)
    amis = request.node_class.status.amis
    images = [(it, image_for(it, amis)) for it in request.instance_types]
    if not any(image for _, image in images):
        ids = ", ".join(sorted({ami.id for ami in amis}))
        raise LaunchFailedError(f"none of the images {ids} is for any of the instance types")
    groups: dict[_TemplateGroup, list[InstanceType]] = {}
    for instance_type, image in images:
        if image is None:
            continue
        for reservation in _reservations(instance_type, request):
            group = _group(instance_type, image.id, reservation, request, sizing_of, efa_places_of)
            groups.setdefault(group, []).append(instance_type)
    return tuple(
        _template(group, tuple(types), request, cluster) for group, types in groups.items()
    )


def lowest_partition(requirements: Requirements) -> int:
    """Return the partition of a placement group to launch into; 0 when EC2 may choose.

    A launch can name only one; when it is full, the claim comes again without it.
    """
    partitions = requirements.get(PLACEMENT_GROUP_PARTITION)
    if partitions.complement:
        return 0
    return min((int(value) for value in partitions.values if value.isdecimal()), default=0)


def _check_status(node_class: EC2NodeClass) -> None:
    status = node_class.status
    found = {
        "amis": status.amis,
        "securityGroups": status.security_groups,
        "instanceProfile": status.instance_profile,
    }
    missing = [f"status.{name}" for name, value in found.items() if not value]
    if missing:
        raise NodeClassNotReadyError(f'ec2nodeclass "{node_class.name}": {missing[0]} is empty')


def _reservations(
    instance_type: InstanceType, request: TemplateRequest
) -> tuple[TemplateReservation | None, ...]:
    """Return the reservations of the type that the claim may use; None stands for no reservation."""
    if request.capacity_type != RESERVED:
        return (None,)
    wanted = Requirements.from_specs(request.node_claim.spec.requirements).replace(
        Requirement.of(CAPACITY_TYPE, "In", (RESERVED,))
    )
    offerings = compatible_offerings(instance_type, wanted, well_known=_WELL_KNOWN)
    return tuple({_reservation(offering): None for offering in offerings})


def _reservation(offering: Offering) -> TemplateReservation:
    requirements = offering.requirements
    interruptible = requirements.single_value(CAPACITY_RESERVATION_INTERRUPTIBLE)
    return TemplateReservation(
        id=requirements.single_value(CAPACITY_RESERVATION_ID),
        reservation_type=requirements.single_value(CAPACITY_RESERVATION_TYPE) or "default",
        interruptible=interruptible == "true",
    )


def _group(
    instance_type: InstanceType,
    image_id: str,
    reservation: TemplateReservation | None,
    request: TemplateRequest,
    sizing_of: Callable[[str], KubeletSizing],
    efa_places_of: Callable[[str], tuple[InterfacePlace, ...]],
) -> _TemplateGroup:
    # Settings that reach no kubelet make no difference: one template serves all types then.
    ignores_kubelet = TRAITS[request.node_class.ami_family].ignores_kubelet
    sizing = None if ignores_kubelet else sizing_of(instance_type.name)
    wants_efa = EFA in request.node_claim.spec.resources.requests
    has_own_interfaces = bool(request.node_class.spec.network_interfaces)
    return _TemplateGroup(
        image_id=image_id,
        efa_places=(
            efa_places_of(instance_type.name)
            if wants_efa and not has_own_interfaces and instance_type.capacity.get(EFA, 0)
            else ()
        ),
        max_pods=0 if sizing is None else sizing.max_pods,
        kube_reserved=() if sizing is None else tuple(sorted(sizing.kube_reserved.items())),
        system_reserved=() if sizing is None else tuple(sorted(sizing.system_reserved.items())),
        reservation=reservation,
    )


def _template(
    group: _TemplateGroup,
    instance_types: tuple[InstanceType, ...],
    request: TemplateRequest,
    cluster: ClusterDetails,
) -> LaunchTemplate:
    node_class = request.node_class
    text = user_data(node_class.ami_family, _bootstrap(group, request, cluster))
    enclaves = node_class.spec.enclave_options
    content = TemplateContent(
        node_class=node_class,
        image_id=group.image_id,
        user_data=text,
        tags=request.tags,
        capacity_type=request.capacity_type,
        tenancy=request.tenancy,
        region=cluster.region,
        is_ipv6=cluster.is_ipv6,
        efa_places=group.efa_places,
        has_enclaves=(
            NITRO_SANDBOX_RESOURCE in request.node_claim.spec.resources.requests
            or (enclaves is not None and enclaves.enabled)
        ),
        uses_reservations=cluster.uses_reservations,
        reservation=group.reservation,
        placement_group_id=request.placement_group_id,
        placement_partition=request.placement_partition,
    )
    data = template_data(content)
    return LaunchTemplate(
        name=template_name(data, request.tags, cluster=cluster.name),
        data=data,
        tags=request.tags,
        node_class=node_class.name,
        image_id=group.image_id,
        user_data_bytes=len(text.encode()),
        left_out=(
            unknown_settings(node_class.spec.user_data or "")
            if node_class.ami_family is AmiFamily.BOTTLEROCKET
            else ()
        ),
        instance_types=instance_types,
        reservation_id="" if group.reservation is None else group.reservation.id,
    )


def _bootstrap(
    group: _TemplateGroup, request: TemplateRequest, cluster: ClusterDetails
) -> BootstrapInput:
    node_class = request.node_class
    spec = node_class.spec
    return BootstrapInput(
        cluster_name=cluster.name,
        cluster_endpoint=cluster.endpoint,
        ca_bundle=cluster.ca_bundle,
        service_cidr=cluster.service_cidr,
        is_ipv6=cluster.is_ipv6,
        labels=bootstrap_labels(
            request.node_claim.metadata.labels,
            capacity_type=request.capacity_type,
            is_custom=TRAITS[node_class.ami_family].ignores_kubelet,
        ),
        taints=bootstrap_taints(request.node_claim),
        kubelet=kubelet_fields(
            spec.kubelet,
            max_pods=group.max_pods,
            kube_reserved=dict(group.kube_reserved),
            system_reserved=dict(group.system_reserved),
            dns_ip=cluster.dns_ip,
        ),
        instance_store_policy=spec.instance_store_policy,
        user_data=spec.user_data or "",
        ami_version=ami_version(spec.ami_selector_terms, node_class.status.amis),
    )
