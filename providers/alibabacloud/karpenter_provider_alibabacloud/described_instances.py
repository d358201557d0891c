"""Reads instances from ECS and identifies them.

ECS does not describe instances that are gone. By tags ECS finds 1,000 instances at most; for a
cluster with as many, all instances of the region are read.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.described import (
    DescribedInstances,
    require_id_and_zone,
)
from karpenter_core.provider.kit.instances.foreign_launches import ForeignMarks
from karpenter_provider_alibabacloud.api_answers import object_of, text_of, texts_of
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS, cluster_tag, is_owned
from karpenter_provider_alibabacloud.labels import (
    NODE_CLAIM_TAG,
    NODE_CLASS_TAG,
    NODE_POOL_TAG,
    OWNED,
)
from karpenter_provider_alibabacloud.sdk import listed_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "AT_ONCE",
    "FOREIGN_MARKS",
    "RECYCLING",
    "VISIBLE_WITHIN",
    "DescribedInstance",
    "InstanceReader",
    "parse_provider_id",
    "provider_id",
    "read_instance",
]

VISIBLE_WITHIN: Final = timedelta(minutes=1)
"""By then ECS describes what it has launched."""
AT_ONCE: Final = 100
"""Instances that one call describes, or deletes (API reference)."""
RECYCLING: Final = "Recycling"
"""The reason for which a spot instance is locked that is about to be taken back."""
PENDING: Final = frozenset({"Pending", "Starting"})
LEAVING: Final = frozenset({"Stopping", "Stopped"})
_MOST_BY_TAG: Final = 1000
_NO_SPOT: Final = "NoSpot"
_MINUTES: Final = "%Y-%m-%dT%H:%MZ"
_WITHIN_MINUTE: Final = timedelta(seconds=59)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedInstance:
    """An instance that is there."""

    id: str
    instance_type: str
    zone: str
    image_id: str
    status: str = "Running"
    """`Pending`, `Starting`, `Running`, `Stopping` or `Stopped`."""
    capacity_type: str
    reservation_id: str
    """The private pool of a reserved one."""
    launched_at: datetime | None
    """ECS tells minutes only: this is the end of it, so that nothing looks older than it is."""
    vswitch_id: str = ""
    security_groups: frozenset[str]
    deployment_set_id: str = ""
    locks: frozenset[str] = frozenset()
    """Reasons of its lock: `Recycling`, `financial`, `security` …."""
    tags: Mapping[str, str]
    is_protected: bool = False
    """Whether ECS refuses to delete it until its deletion protection is disabled."""

    @property
    def is_gone(self) -> bool:
        """Whether it is no more: ECS does not describe such instances."""
        return False

    @property
    def is_pending(self) -> bool:
        """Whether it is too early to delete it."""
        return self.status in PENDING

    @property
    def is_leaving(self) -> bool:
        """Whether it stops or has stopped: its node does not come back by itself."""
        return self.status in LEAVING


def _names_claim(key: str) -> bool:
    return key == NODE_CLAIM_TAG or CLAIM_TAGS.is_key(key)


FOREIGN_MARKS: Final[ForeignMarks[DescribedInstance]] = ForeignMarks(
    node_pool_tag=NODE_POOL_TAG,
    node_class_tag=NODE_CLASS_TAG,
    names_claim=_names_claim,
)
"""Instances of Karpenter's own controller."""


def provider_id(region: str, instance_id: str) -> str:
    """Return how Kubernetes names an instance."""
    return f"{region}.{instance_id}"


def parse_provider_id(text: str) -> tuple[str, str]:
    """Return region and instance id.

    Raises:
        CloudProviderError: it is not the name of an ECS instance.
    """
    region, _, instance_id = text.rpartition(".")
    if not region or not instance_id:
        raise CloudProviderError(f'provider ID "{text}" is not like <region>.<instance id>')
    return region, instance_id


def instance_id_in(region: str, text: str) -> str:
    """Return the instance id in a provider ID; empty for one that is not of this region."""
    prefix = f"{region}."
    return text.removeprefix(prefix) if text.startswith(prefix) else ""


def read_instance(item: ApiAnswer, *, uses_reservations: bool = True) -> DescribedInstance:
    """Read ECS's description.

    `uses_reservations` is the feature gate ReservedCapacity: without it, an instance that happens
    to run in a private pool is on-demand.
    """
    pool = object_of(item, "EcsCapacityReservationAttr")
    reservation = text_of(pool, "CapacityReservationId") if uses_reservations else ""
    strategy = text_of(item, "SpotStrategy") or _NO_SPOT
    capacity_type = SPOT if strategy != _NO_SPOT else RESERVED if reservation else ON_DEMAND
    network = object_of(item, "VpcAttributes")
    groups = object_of(item, "SecurityGroupIds")
    locks = object_of(item, "OperationLocks")
    tags = object_of(item, "Tags")
    return DescribedInstance(
        id=text_of(item, "InstanceId"),
        instance_type=text_of(item, "InstanceType"),
        zone=text_of(item, "ZoneId"),
        image_id=text_of(item, "ImageId"),
        status=text_of(item, "Status"),
        capacity_type=capacity_type,
        reservation_id=reservation if capacity_type == RESERVED else "",
        launched_at=_launched_at(text_of(item, "CreationTime")),
        vswitch_id=text_of(network, "VSwitchId"),
        security_groups=frozenset(texts_of(groups, "SecurityGroupId")),
        deployment_set_id=text_of(item, "DeploymentSetId"),
        locks=frozenset(text_of(lock, "LockReason") for lock in _items(locks.get("LockReason"))),
        tags={text_of(tag, "TagKey"): text_of(tag, "TagValue") for tag in _items(tags.get("Tag"))},
        is_protected=bool(item.get("DeletionProtection")),
    )


@final
class InstanceReader:
    """Asks ECS for instances; callable from any thread.

    Raises what `discovery.call_errors.core_errors_of` raises when ECS refuses or does not answer.
    """

    def __init__(
        self, clients: CloudClients, *, cluster_id: str, uses_reservations: bool = True
    ) -> None:
        self._clients: Final = clients
        self._cluster_id: Final = cluster_id
        self._uses_reservations: Final = uses_reservations
        self._is_large = False
        """Whether the cluster has more instances than tags find."""

    @property
    def region(self) -> str:
        """The region of all instances."""
        return self._clients.region

    def instance_id(self, provider_id: str) -> str:
        """Return the instance id in a provider ID.

        Raises:
            CloudProviderError: it is not the name of an ECS instance, or of one in another region:
                that one could not be distinguished from one that is gone.
        """
        region, name = parse_provider_id(provider_id)
        if region != self.region:
            raise CloudProviderError(
                f'instance {name} is in region "{region}", not in "{self.region}"'
            )
        return name

    def provider_id(self, instance: DescribedInstance) -> str:
        """Return how Kubernetes names an instance."""
        return provider_id(self.region, instance.id)

    def of_ids(self, ids: Iterable[str]) -> dict[str, DescribedInstance]:
        """Return the instances with these ids, other clusters' too; those unknown are left out."""
        instances: dict[str, DescribedInstance] = {}
        remaining_ids = iter(sorted(set(ids)))
        while chunk := list(islice(remaining_ids, AT_ONCE)):
            for instance in self._describe({"InstanceIds": json.dumps(chunk)}):
                instances[instance.id] = instance
        return instances

    def of_cluster(self) -> DescribedInstances[DescribedInstance]:
        """Return all instances that were launched for claims of the cluster, by id.

        Raises only when not even the first page could be read.
        """
        instances: dict[str, DescribedInstance] = {}
        problem, pages = "", Counter[str]()
        queries: list[Mapping[str, object]] = [{}] if self._is_large else [{"Tag": [self._tag]}, {}]
        try:
            for query in queries:
                for instance in self._describe(query, pages):
                    instances[instance.id] = instance
                if len(instances) < _MOST_BY_TAG:
                    break
        except CloudProviderError as error:
            if not pages:
                raise
            problem = str(error)
        ours = tuple(instances[key] for key in sorted(instances) if self.is_ours(instances[key]))
        if not problem:
            self._is_large = len(ours) >= _MOST_BY_TAG
        return DescribedInstances(instances=ours, problem=problem)

    def locked(self, reason: str) -> tuple[DescribedInstance, ...]:
        """Return the instances of the cluster that are locked for a reason, by id."""
        instances = {each.id: each for each in self._describe({"LockReason": reason})}
        return tuple(
            instances[key]
            for key in sorted(instances)
            if reason in instances[key].locks and self.is_ours(instances[key])
        )

    def is_ours(self, instance: DescribedInstance) -> bool:
        """Whether an instance was launched for a claim of this cluster."""
        return is_owned(instance.tags, self._cluster_id)

    @property
    def _tag(self) -> Mapping[str, str]:
        return {"Key": cluster_tag(self._cluster_id), "Value": OWNED}

    def _describe(
        self, what: Mapping[str, object], pages: Counter[str] | None = None
    ) -> Iterator[DescribedInstance]:
        """Yield instances; `pages` counts the answers, of which the first may be empty."""
        with core_errors_of():
            for items in listed_pages(
                lambda parameters: self._clients.ecs.call("DescribeInstances", parameters),
                {"RegionId": self._clients.region, "MaxResults": AT_ONCE, **what},
                items="Instances.Instance",
                action="ecs:DescribeInstances",
            ):
                if pages is not None:
                    pages["answered"] += 1
                for item in items:
                    yield require_id_and_zone(
                        read_instance(item, uses_reservations=self._uses_reservations),
                        action="ecs:DescribeInstances",
                    )


def _items(value: object) -> Sequence[ApiAnswer]:
    return cast("Sequence[ApiAnswer]", value or ())


def _launched_at(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.strptime(text, _MINUTES).replace(tzinfo=UTC) + _WITHIN_MINUTE
    except ValueError:  # with seconds, some day
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
