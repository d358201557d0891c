"""Describes launched instances to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch_candidates import allocatable_for

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType, Offering

__all__ = ["describe_launch", "offering_in"]


def offering_in(
    instance_type: InstanceType,
    *,
    zone: str,
    capacity_type: str,
    reservation_label: str,
    reservation_id: str = "",
) -> Offering | None:
    """Return the offering of a type that an instance was bought in; None if it is not listed.

    `reservation_label` is the cloud's label for the reservation of an offering.
    """
    return next(
        (
            offering
            for offering in instance_type.offerings
            if offering.zone == zone
            and offering.capacity_type == capacity_type
            and offering.requirements.single_value(reservation_label) == reservation_id
        ),
        None,
    )


def describe_launch(
    claim: NodeClaim,
    instance_type: InstanceType,
    offering: Offering | None,
    *,
    provider_id: str,
    zone: str,
    capacity_type: str,
    image_id: str,
    labels: Mapping[str, str],
    offering_labels: Container[str],
    absent_resources: Container[str] = (),
    annotations: Mapping[str, str] | None = None,
) -> LaunchedInstance:
    """Return the outcome of a launch.

    Labels are those of the type, as far as it has one value, and over them the well-known ones and
    `labels`; `offering_labels` are not taken from the type: they differ between its offerings.
    `absent_resources` are of the type, and not of this instance.
    """
    capacity = {**instance_type.capacity, **((offering and offering.capacity_override) or {})}
    allocatable = (
        instance_type.allocatable()
        if offering is None
        else allocatable_for(instance_type, offering)
    )
    merged = {
        **{
            key: instance_type.requirements.single_value(key)
            for key in instance_type.requirements
            if key not in offering_labels
        },
        INSTANCE_TYPE: instance_type.name,
        ZONE: zone,
        CAPACITY_TYPE: capacity_type,
        NODE_POOL: claim.metadata.labels.get(NODE_POOL, ""),
        **labels,
    }
    return LaunchedInstance(
        provider_id=provider_id,
        instance_type=instance_type.name,
        zone=zone,
        capacity_type=capacity_type,
        capacity=_present(capacity, absent_resources),
        allocatable=_present(allocatable, absent_resources),
        image_id=image_id,
        labels={key: merged[key] for key in sorted(merged) if merged[key]},
        annotations=annotations or {},
    )


def _present(amounts: Mapping[str, int], absent: Container[str]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount and name not in absent}
