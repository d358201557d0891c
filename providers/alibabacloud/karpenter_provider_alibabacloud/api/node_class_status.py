"""The status of an ECSNodeClass: the resources that discovery found."""

from __future__ import annotations

from typing import Annotated

from karpenter_core.api.base import Model, Timestamp
from karpenter_core.api.facets import Facets, RenderedAs
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.nodeclass import NodeClassStatus

__all__ = ["CapacityReservation", "ECSNodeClassStatus", "Image", "SecurityGroup", "VSwitch"]


class VSwitch(Model):
    """A vSwitch for instances."""

    id: str
    """Id of the vSwitch."""
    zone_id: str
    """Id of its zone."""


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


class Image(Model):
    """An image, and the instance types that it supports."""

    id: str
    """Id of the image."""
    name: str = ""
    """Name of the image."""
    requirements: Annotated[
        tuple[RequirementSpec, ...],
        RenderedAs(tuple[_ImageRequirement, ...]),
        Facets(required=True),
    ] = ()
    """Requirements that an instance type must meet to run the image."""


class CapacityReservation(Model):
    """A private pool: capacity that is billed whether it is used or not."""

    id: str
    """Id of the private pool."""
    zone_id: str
    """Id of the zone that the capacity is in."""
    instance_type: str
    """Instance type of the reserved capacity."""
    name: str = ""
    """Name of the private pool."""
    match_criteria: Annotated[str, Facets(enum=("Open", "Target"))] = "Open"
    """Whether any matching instance uses it, or only one that names it."""
    end_time: Timestamp | None = None
    """Time of its end; absent for one that ends when it is released."""


class ECSNodeClassStatus(NodeClassStatus):
    """Resources that the NodeClass selects, and conditions."""

    v_switches: tuple[VSwitch, ...] = ()
    """vSwitches; those with most free addresses come first."""
    security_groups: tuple[SecurityGroup, ...] = ()
    """Security groups."""
    images: tuple[Image, ...] = ()
    """Images."""
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    """Private pools of capacity."""
