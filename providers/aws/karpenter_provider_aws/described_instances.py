"""Reads instances from EC2 and identifies them.

Calls select by filters, never by `InstanceIds`: one id that EC2 does not know fails such a call as
a whole, and filtered answers have pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.described import (
    DescribedInstances,
    require_id_and_zone,
)
from karpenter_core.provider.kit.instances.foreign_launches import ForeignMarks
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.instance_tags import (
    CLAIM_TAGS,
    INDEX_TAG,
    from_tag_list,
    index_pattern,
)
from karpenter_provider_aws.labels import (
    EKS_CLUSTER_NAME_TAG,
    NODE_CLAIM_TAG,
    NODE_CLASS_TAG,
    NODE_POOL_TAG,
    TENANCY_DEFAULT,
    ZONE_ID,
)
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from types_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from karpenter_provider_aws.sdk import CloudClients

__all__ = [
    "FILTER_VALUES",
    "FOREIGN_MARKS",
    "DescribedInstance",
    "InstanceReader",
    "parse_provider_id",
    "provider_id",
    "read_instance",
]

FILTER_VALUES: Final = 200
"""The most that one filter takes."""
_PAGE_SIZE: Final = 1000
_PROVIDER_ID: Final = re.compile(r"[^:]*:///(?P<zone>[^/]*)/(?P<id>[^/]+)")
_GONE: Final = "terminated"
_LEAVING: Final = frozenset({"shutting-down", _GONE})
_RESERVED_ONLY: Final = "capacity-reservations-only"
_RESERVED_MARKETS: Final = frozenset({"capacity-block", "interruptible-capacity-reservation"})
_EFA_KINDS: Final = frozenset({"efa", "efa-only"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedInstance:
    """An instance; terminated ones are described for about an hour."""

    id: str
    instance_type: str
    zone: str
    zone_id: str = ""
    image_id: str
    state: str
    capacity_type: str
    reservation_id: str
    """Of a reserved one."""
    tenancy: str = TENANCY_DEFAULT
    launched_at: datetime | None
    subnet_id: str = ""
    security_groups: frozenset[str]
    efa_count: int = 0
    placement_group_id: str = ""
    partition: int = 0
    """Of a placement group; 0 where there is none."""
    tags: Mapping[str, str]

    @property
    def is_gone(self) -> bool:
        """Whether it is no more."""
        return self.state == _GONE

    @property
    def is_leaving(self) -> bool:
        """Whether it is going, or gone."""
        return self.state in _LEAVING


def provider_id(zone: str, instance_id: str) -> str:
    """Return how Kubernetes names an instance."""
    return f"aws:///{zone}/{instance_id}"


def parse_provider_id(text: str) -> tuple[str, str]:
    """Return zone and instance id.

    Raises:
        CloudProviderError: it is not the name of an EC2 instance.
    """
    match = _PROVIDER_ID.fullmatch(text)
    if match is None:
        raise CloudProviderError(f'provider ID "{text}" is not like aws:///<zone>/<instance id>')
    return match["zone"], match["id"]


def instance_id_in(text: str) -> str:
    """Return the instance id in a provider ID; empty for one that is not of EC2."""
    match = _PROVIDER_ID.fullmatch(text)
    return "" if match is None else match["id"]


def read_instance(item: InstanceTypeDef, *, uses_reservations: bool = True) -> DescribedInstance:
    """Read EC2's description.

    `uses_reservations` is the feature gate ReservedCapacity: without it, an instance that happens
    to run in an open reservation is on-demand.
    """
    placement = item.get("Placement", {})
    capacity_type = _capacity_type(item, uses_reservations=uses_reservations)
    return DescribedInstance(
        id=item.get("InstanceId", ""),
        instance_type=item.get("InstanceType", ""),
        zone=placement.get("AvailabilityZone", ""),
        zone_id=placement.get("AvailabilityZoneId", ""),
        image_id=item.get("ImageId", ""),
        state=item.get("State", {}).get("Name", ""),
        capacity_type=capacity_type,
        reservation_id=item.get("CapacityReservationId", "") if capacity_type == RESERVED else "",
        tenancy=placement.get("Tenancy") or TENANCY_DEFAULT,
        launched_at=item.get("LaunchTime"),
        subnet_id=item.get("SubnetId", ""),
        security_groups=frozenset(
            group.get("GroupId", "") for group in item.get("SecurityGroups", ())
        ),
        efa_count=sum(
            interface.get("InterfaceType", "") in _EFA_KINDS
            for interface in item.get("NetworkInterfaces", ())
        ),
        placement_group_id=placement.get("GroupId", ""),
        partition=placement.get("PartitionNumber", 0),
        tags=from_tag_list(item.get("Tags", ())),
    )


def _names_claim(key: str) -> bool:
    return key in {INDEX_TAG, NODE_CLAIM_TAG} or CLAIM_TAGS.is_key(key)


FOREIGN_MARKS: Final[ForeignMarks[DescribedInstance]] = ForeignMarks(
    node_pool_tag=NODE_POOL_TAG,
    node_class_tag=NODE_CLASS_TAG,
    names_claim=_names_claim,
    labels=lambda instance: {ZONE_ID: instance.zone_id},
)
"""Instances of Karpenter's own controller."""


@final
class InstanceReader:
    """Asks EC2 for instances; callable from any thread.

    Raises what `discovery.call_errors.core_errors_of` raises when EC2 refuses or does not answer.
    """

    def __init__(
        self, clients: CloudClients, *, cluster: str, uses_reservations: bool = True
    ) -> None:
        self._clients: Final = clients
        self._cluster: Final = cluster
        self._uses_reservations: Final = uses_reservations

    def is_ours(self, instance: DescribedInstance) -> bool:
        """Whether an instance has the tag of this cluster."""
        return instance.tags.get(EKS_CLUSTER_NAME_TAG) == self._cluster

    def instance_id(self, provider_id: str) -> str:
        """Return the instance id in a provider ID; raise what `parse_provider_id` raises."""
        return parse_provider_id(provider_id)[1]

    def provider_id(self, instance: DescribedInstance) -> str:
        """Return how Kubernetes names an instance."""
        return provider_id(instance.zone, instance.id)

    def of_ids(self, ids: Iterable[str]) -> dict[str, DescribedInstance]:
        """Return the instances with these ids, terminated ones too; those unknown are left out."""
        instances: dict[str, DescribedInstance] = {}
        for chunk in _chunks(sorted(set(ids))):
            for instance in self._describe([{"Name": "instance-id", "Values": chunk}]):
                instances[instance.id] = instance
        return instances

    def of_claims(self, uids: Iterable[str]) -> tuple[DescribedInstance, ...]:
        """Return all instances of the fleets that were made for one of these claims.

        Terminated ones are among them, and so are the instances of others in these fleets.
        """
        claim_uids = frozenset(uids)
        instances: dict[str, DescribedInstance] = {}
        for chunk in _chunks(sorted({index_pattern(uid) for uid in claim_uids})):
            filters: list[FilterTypeDef] = [
                {"Name": f"tag:{EKS_CLUSTER_NAME_TAG}", "Values": [self._cluster]},
                {"Name": f"tag:{INDEX_TAG}", "Values": chunk},
            ]
            for instance in self._describe(filters):
                if any(claim.uid in claim_uids for claim in CLAIM_TAGS.claims_of(instance.tags)):
                    instances[instance.id] = instance
        return tuple(instances[key] for key in sorted(instances))

    def of_cluster(self) -> DescribedInstances[DescribedInstance]:
        """Return all instances of the cluster, terminated ones too, by id.

        Raises only when not even the first page could be read.
        """
        filters: list[FilterTypeDef] = [
            {"Name": "tag-key", "Values": [NODE_POOL_TAG]},
            {"Name": "tag-key", "Values": [NODE_CLASS_TAG]},
            {"Name": f"tag:{EKS_CLUSTER_NAME_TAG}", "Values": [self._cluster]},
        ]
        instances_by_id: dict[str, DescribedInstance] = {}
        problem, has_started = "", False
        try:
            for page in self._pages(filters):
                has_started = True
                instances_by_id |= {instance.id: instance for instance in page}
        except CloudProviderError as error:
            if not has_started:
                raise
            problem = str(error)
        return DescribedInstances(
            instances=tuple(instances_by_id[key] for key in sorted(instances_by_id)),
            problem=problem,
        )

    def _describe(self, filters: Sequence[FilterTypeDef]) -> Iterator[DescribedInstance]:
        for page in self._pages(filters):
            yield from page

    def _pages(self, filters: Sequence[FilterTypeDef]) -> Iterator[list[DescribedInstance]]:
        with core_errors_of("ec2:DescribeInstances"):
            pages = self._clients.ec2.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": _PAGE_SIZE}
            )
            for page in ending_pages(pages):
                yield [
                    require_id_and_zone(
                        read_instance(item, uses_reservations=self._uses_reservations),
                        action="ec2:DescribeInstances",
                    )
                    for reservation in page["Reservations"]
                    for item in reservation.get("Instances", ())
                ]


def _capacity_type(item: InstanceTypeDef, *, uses_reservations: bool) -> str:
    lifecycle = item.get("InstanceLifecycle", "")
    if lifecycle == SPOT or item.get("SpotInstanceRequestId"):
        return SPOT
    if not uses_reservations or not item.get("CapacityReservationId"):
        return ON_DEMAND
    reservation_specification = item.get("CapacityReservationSpecification", {})
    is_reserved = (
        lifecycle in _RESERVED_MARKETS
        or reservation_specification.get("CapacityReservationPreference", "") == _RESERVED_ONLY
    )
    return RESERVED if is_reserved else ON_DEMAND


def _chunks(values: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, FILTER_VALUES)):
        yield chunk
