"""Finds the reason why an instance has drifted from its NodeClass.

The first reason counts, in the order of `DriftReason`; `NodeClassDrift`, which comes before all of
them, is the core's. All reasons are judged by the live instance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, RESERVED
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from karpenter_provider_alibabacloud.described_instances import parse_provider_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.instances import ClusterInstances

__all__ = ["DriftDetector", "DriftReason", "drift_of"]


class DriftReason(StrEnum):
    """Kinds of drift."""

    IMAGE = "ImageDrift"
    SECURITY_GROUP = "SecurityGroupDrift"
    VSWITCH = "VSwitchDrift"
    CAPACITY_RESERVATION = "CapacityReservationDrift"
    DEPLOYMENT_SET = "DeploymentSetDrift"
    SYSTEM_EVENT = "SystemEventScheduled"
    """Not different, but ECS is going to work on it: it is replaced before."""


def drift_of(
    claim: NodeClaim,
    node_class: ECSNodeClass,
    instance: DescribedInstance,
    *,
    is_scheduled: bool = False,
) -> DriftReason | None:
    """Return the first reason; None when the instance is as it should be.

    `is_scheduled` is whether a system event of it comes later (`SystemEventPoll.scheduled`).

    Raises:
        CloudProviderError: the NodeClass has not found what there is to compare with.
    """
    status = node_class.status
    for name, has_drifted in (
        ("images", status.images),
        ("securityGroups", status.security_groups),
        ("vSwitches", status.v_switches),
    ):
        if not has_drifted:
            raise CloudProviderError(f'ECSNodeClass "{node_class.name}": status.{name} is empty')
    if instance.image_id not in {image.id for image in status.images}:
        return DriftReason.IMAGE
    if instance.security_groups != frozenset(group.id for group in status.security_groups):
        return DriftReason.SECURITY_GROUP
    if instance.vswitch_id not in {vswitch.id for vswitch in status.v_switches}:
        return DriftReason.VSWITCH
    # One whose reservation has ended is described as on-demand, and has not drifted for that.
    is_reserved = claim.metadata.labels.get(CAPACITY_TYPE) == RESERVED == instance.capacity_type
    reservations = {reservation.id for reservation in status.capacity_reservations}
    if is_reserved and instance.reservation_id not in reservations:
        return DriftReason.CAPACITY_RESERVATION
    if instance.deployment_set_id != node_class.spec.deployment_set_id:
        return DriftReason.DEPLOYMENT_SET
    return DriftReason.SYSTEM_EVENT if is_scheduled else None


@final
class DriftDetector:
    """Answers `karpenter_detect_drift`; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        reader: InstanceReader,
        instances: ClusterInstances,
        scheduled: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`scheduled` is `SystemEventPoll.scheduled`."""
        self._clock: Final = clock
        self._reader: Final = reader
        self._instances: Final = instances
        self._scheduled: Final = scheduled

    def detect(
        self, node_claims: Sequence[NodeClaim], node_class: ECSNodeClass
    ) -> list[DriftOutcome]:
        """Return for each claim, in their order, a finding, an error, or None.

        Raises:
            CloudProviderError: the instances cannot be read.
        """
        claims = [claim for claim in node_claims if NODE_POOL in claim.metadata.labels]
        ids = {claim.name: _instance_id(claim) for claim in claims}
        asked_at = self._clock.monotonic()
        instance_ids = [name for name in ids.values() if name]
        instances = self._reader.of_ids(instance_ids) if instance_ids else {}
        scheduled = self._scheduled()

        def outcome(claim: NodeClaim) -> DriftOutcome:
            if claim.name not in ids:
                return None
            name = ids[claim.name]
            if not name:
                said = claim.status.provider_id
                return CloudProviderError(
                    f'NodeClaim "{claim.name}": status.providerID is '
                    + (f'"{said}"' if said else "empty")
                )
            instance = instances.get(name)
            if instance is None:
                if self._instances.is_hidden(name, asked_at=asked_at):
                    return None
                return NodeClaimNotFoundError(f"instance {name} does not exist")
            try:
                reason = drift_of(claim, node_class, instance, is_scheduled=name in scheduled)
            except CloudProviderError as error:
                return error
            return None if reason is None else DriftFinding(reason=reason.value)

        return [outcome(claim) for claim in node_claims]


def _instance_id(claim: NodeClaim) -> str:
    try:
        return parse_provider_id(claim.status.provider_id)[1]
    except CloudProviderError:
        return ""
