"""The status of an EC2NodeClass: the resources that discovery found."""

from __future__ import annotations

from typing import Annotated

from karpenter_core.api.base import Model, Timestamp
from karpenter_core.api.facets import Facets, RenderedAs
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.nodeclass import NodeClassStatus
from karpenter_provider_aws.api.terms import ACCOUNT_ID, MATCH_CRITERIA, RESERVATION_ID

__all__ = ["Ami", "CapacityReservation", "EC2NodeClassStatus", "SecurityGroup", "Subnet"]


class Subnet(Model):
    """A subnet for instances."""

    id: str
    """Id of the subnet."""
    zone: str
    """Name of its zone."""
    zone_id: str = ""
    """Id of its zone, which is the same in every account."""


class SecurityGroup(Model):
    """A security group of the instances."""

    id: str
    """Id of the group."""
    name: str = ""
    """Name of the group."""


class _ImageRequirement(Model):
    """A requirement on the labels that instances of an image have."""

    key: str
    """Label key."""
    operator: str
    """Relation of the label's value to the values."""
    values: Annotated[tuple[str, ...], Facets(list_type="atomic")] = ()
    """Label values."""


class Ami(Model):
    """An image, and the instance types that it supports."""

    id: str
    """Id of the image."""
    name: str = ""
    """Name of the image."""
    deprecated: bool | None = None
    """Whether its owner has deprecated it; absent means no."""
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        RenderedAs(tuple[_ImageRequirement, ...]),
        Facets(required=True),
    ] = ()
    """Requirements that an instance type must meet to run the image."""


class CapacityReservation(Model):
    """Capacity that is billed whether it is used or not."""

    id: Annotated[str, Facets(pattern=RESERVATION_ID)]
    """Id of the reservation."""
    availability_zone: str
    """Zone of the reserved capacity."""
    instance_type: str
    """Instance type of the reserved capacity."""
    instance_match_criteria: Annotated[str, Facets(enum=MATCH_CRITERIA)]
    """Whether any matching instance uses it, or only one that names it."""
    owner_id: Annotated[str, Facets(pattern=ACCOUNT_ID)]
    """Account that owns it."""
    reservation_type: Annotated[str, Facets(enum=("default", "capacity-block"))] = "default"
    """A reservation on demand, or a capacity block."""
    interruptible: bool | None = None
    """Whether its owner may reclaim the capacity; absent means no."""
    state: Annotated[str, Facets(enum=("active", "expiring"))] = "active"
    """State of the reservation: active, or expiring for a block that ends soon."""
    end_time: Timestamp | None = None
    """Time of its end; absent for one that ends when it is cancelled."""


class EC2NodeClassStatus(NodeClassStatus):
    """Resources that the NodeClass selects, and conditions."""

    subnets: tuple[Subnet, ...] = ()
    """Subnets; those with most free addresses come first."""
    security_groups: tuple[SecurityGroup, ...] = ()
    """Security groups."""
    amis: tuple[Ami, ...] = ()
    """Images (AMIs), newest first."""
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    """Capacity reservations."""
    instance_profile: str = ""
    """The instance profile that instances get."""
