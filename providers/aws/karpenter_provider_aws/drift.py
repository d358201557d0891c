"""Finds the reason why an instance has drifted from its NodeClass.

The first reason counts, in the order of `DriftReason`; `NodeClassDrift`, which comes before all of
them, is the core's. The image is judged by the claim, all else by the live instance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, RESERVED
from karpenter_core.errors import BadInputError, CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from karpenter_provider_aws.described_instances import parse_provider_id
from karpenter_provider_aws.families.images import image_for
from karpenter_provider_aws.labels import PLACEMENT_GROUP_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader

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
    placement_group_id: str = "",
) -> DriftReason | None:
    """Return the first reason; None when the instance is as it should be.

    Raises:
        CloudProviderError: the NodeClass has not found what there is to compare with.
    """
    status = node_class.status
    for name, has_drifted in (
        ("amis", status.amis),
        ("securityGroups", status.security_groups),
        ("subnets", status.subnets),
    ):
        if not has_drifted:
            raise CloudProviderError(f'EC2NodeClass "{node_class.name}": status.{name} is empty')
    image = image_for(instance_type, status.amis)
    if image is None or image.id != claim.status.image_id:
        return DriftReason.AMI
    if instance.security_groups != frozenset(group.id for group in status.security_groups):
        return DriftReason.SECURITY_GROUP
    if instance.subnet_id not in {subnet.id for subnet in status.subnets}:
        return DriftReason.SUBNET
    # One whose reservation has ended is described as on-demand, and has not drifted for that.
    is_reserved = claim.metadata.labels.get(CAPACITY_TYPE) == RESERVED == instance.capacity_type
    reservations = {reservation.id for reservation in status.capacity_reservations}
    if is_reserved and instance.reservation_id not in reservations:
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
        reader: InstanceReader,
        recent: RecentLaunches,
        types: CurrentInstanceTypes,
    ) -> None:
        self._reader: Final = reader
        self._recent: Final = recent
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
        ids = {claim.name: _instance_id(claim) for claim in claims}
        instances = self._reader.of_ids(id_ for id_ in ids.values() if id_)
        group_id = "" if group is None else group.id

        def outcome(claim: NodeClaim) -> DriftOutcome:
            if claim.name not in ids:
                return None
            try:
                instance = self._instance(claim, ids[claim.name], instances)
                if instance is None:
                    return None
                instance_type = _type_of(claim, types)
                reason = drift_of(
                    claim, node_class, instance_type, instance, placement_group_id=group_id
                )
            except CloudProviderError as error:
                return error
            return None if reason is None else DriftFinding(reason=reason.value)

        return [outcome(claim) for claim in node_claims]

    def _instance(
        self, claim: NodeClaim, instance_id: str, instances: Mapping[str, DescribedInstance]
    ) -> DescribedInstance | None:
        """Return a claim's instance; None for one that EC2 does not show yet."""
        if not instance_id:
            raise CloudProviderError(
                f'NodeClaim "{claim.name}": status.providerID is '
                + (f'"{claim.status.provider_id}"' if claim.status.provider_id else "empty")
            )
        if not claim.status.image_id:
            raise CloudProviderError(f'NodeClaim "{claim.name}": status.imageID is empty')
        instance = instances.get(instance_id)
        if instance is not None and not instance.is_gone:
            return instance
        if instance is None and self._recent.get(instance_id) is not None:
            return None
        raise NodeClaimNotFoundError(f"instance {instance_id} does not exist")


def _instance_id(claim: NodeClaim) -> str:
    try:
        return parse_provider_id(claim.status.provider_id)[1]
    except CloudProviderError:
        return ""


def _type_of(claim: NodeClaim, types: Mapping[str, InstanceType]) -> InstanceType:
    name = claim.metadata.labels.get(INSTANCE_TYPE, "")
    instance_type = types.get(name)
    if instance_type is None:
        raise CloudProviderError(
            f'NodeClaim "{claim.name}": label {INSTANCE_TYPE} is '
            + (f'"{name}", which is not sold' if name else "missing")
        )
    return instance_type
