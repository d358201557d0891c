"""Finds the reason why an instance has drifted from its NodeClass.

The first reason counts, in the order of `DriftReason`; `NodeClassDrift`, which comes before all of
them, is the core's. The image is judged by the claim, all else by the live instance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import INSTANCE_TYPE, NODE_POOL
from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_core.provider.kit.instances.drift import (
    detect_drift,
    has_left_reservation,
    require_described,
    require_resolved,
)
from karpenter_provider_aws.families.images import image_for
from karpenter_provider_aws.labels import PLACEMENT_GROUP_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.kit.instances.drift import InstanceFinder
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_aws.described_instances import DescribedInstance

__all__ = ["DriftDetector", "DriftReason", "drift_of"]


class DriftReason(StrEnum):
    """Kinds of drift."""

    AMI = "AMIDrift"
    SECURITY_GROUP = "SecurityGroupDrift"
    SUBNET = "SubnetDrift"
    CAPACITY_RESERVATION = "CapacityReservationDrift"
    PLACEMENT_GROUP = "PlacementGroupDrift"


def drift_of(
    claim: NodeClaim,
    node_class: EC2NodeClass,
    instance_type: InstanceType,
    instance: DescribedInstance,
    *,
    has_ended: Callable[[str], bool],
    placement_group_id: str = "",
) -> DriftReason | None:
    """Return the first reason; None when the instance is as it should be.

    `has_ended` tells whether the time of a reservation is over: its instances go on as on-demand.

    Raises:
        CloudProviderError: the NodeClass has not found what there is to compare with.
    """
    status = node_class.status
    require_resolved(
        f'EC2NodeClass "{node_class.name}"',
        amis=status.amis,
        securityGroups=status.security_groups,
        subnets=status.subnets,
    )
    require_described(instance, security_groups=instance.security_groups, subnet=instance.subnet_id)
    image = image_for(instance_type, status.amis)
    if image is None or image.id != claim.status.image_id:
        return DriftReason.AMI
    if instance.security_groups != frozenset(group.id for group in status.security_groups):
        return DriftReason.SECURITY_GROUP
    if instance.subnet_id not in {subnet.id for subnet in status.subnets}:
        return DriftReason.SUBNET
    reservations = {reservation.id for reservation in status.capacity_reservations}
    is_outside = has_left_reservation(claim, instance, reservations)
    if is_outside and not has_ended(instance.reservation_id):
        return DriftReason.CAPACITY_RESERVATION
    if claim.metadata.labels.get(PLACEMENT_GROUP_ID, "") != placement_group_id:
        return DriftReason.PLACEMENT_GROUP
    return None


@final
class DriftDetector:
    """Answers `karpenter_detect_drift`; callable from any thread."""

    def __init__(
        self,
        *,
        instances: InstanceFinder[DescribedInstance],
        types: CurrentInstanceTypes,
        has_ended: Callable[[str], bool],
    ) -> None:
        """`has_ended` is `ReservationReader.has_ended`."""
        self._has_ended: Final = has_ended
        self._instances: Final = instances
        self._types: Final = types

    def detect(
        self, node_claims: Sequence[NodeClaim], node_class: EC2NodeClass
    ) -> list[DriftOutcome]:
        """Return for each claim, in their order, a finding, an error, or None.

        Raises:
            CloudProviderError: the types, the placement group or the instances cannot be read.
        """
        claims = [claim for claim in node_claims if NODE_POOL in claim.metadata.labels]
        if not claims:
            return [None for _ in node_claims]
        group = self._types.group_of(node_class)
        try:
            listed = self._types.instance_types(node_class)
        except BadInputError as error:
            raise CloudProviderError(str(error)) from error
        types = {it.name: it for it in listed}
        group_id = "" if group is None else group.id

        def compare(claim: NodeClaim, instance: DescribedInstance) -> DriftReason | None:
            instance_type = _type_of(claim, types)
            return drift_of(
                claim,
                node_class,
                instance_type,
                instance,
                has_ended=self._has_ended,
                placement_group_id=group_id,
            )

        return detect_drift(node_claims, self._instances, compare)


def _type_of(claim: NodeClaim, types: Mapping[str, InstanceType]) -> InstanceType:
    if not claim.status.image_id:
        raise CloudProviderError(f'NodeClaim "{claim.name}": status.imageID is empty')
    name = claim.metadata.labels.get(INSTANCE_TYPE, "")
    instance_type = types.get(name)
    if instance_type is None:
        raise CloudProviderError(
            f'NodeClaim "{claim.name}": label {INSTANCE_TYPE} is '
            + (f'"{name}", which is not sold' if name else "missing")
        )
    return instance_type
