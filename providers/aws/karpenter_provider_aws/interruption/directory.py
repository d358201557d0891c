"""Finds the cluster's instances by id, through their Nodes or EC2.

Messages name instances by id alone, and the queue brings those of the whole account. A Node has all
that is needed; an instance whose Node has not come yet, or is gone, is looked up in EC2.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import INSTANCE_TYPE, NODE_POOL, ON_DEMAND, ZONE
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.described_instances import provider_id
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    EKS_CLUSTER_NAME_TAG,
    NODE_CLASS_TAG,
    NODE_POOL_TAG,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import NodeReader
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader

__all__ = ["InstanceDirectory", "OwnedInstance", "instance_id_of"]

_KEPT_FOR: Final = timedelta(minutes=10)
"""Life of a cached owner and type: neither changes, and messages about an instance come several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedInstance:
    """An instance of this cluster's."""

    id: str
    provider_id: str
    instance_type: str
    zone: str
    reservation_id: str


@dataclass(frozen=True, slots=True)
class _ForeignInstance:
    """An instance that is none of this cluster's."""


def instance_id_of(node: NodeView) -> str:
    """Return the id of the instance that a Node runs on; empty for instances of other clouds."""
    name = node.provider_id.rpartition("/")[2]
    return name if node.provider_id.startswith("aws:///") and name.startswith("i-") else ""


@final
class InstanceDirectory:
    """Looks instances up by id; callable from any thread."""

    def __init__(
        self, reader: InstanceReader, clock: Clock, *, cluster: str, read_nodes: NodeReader
    ) -> None:
        self._reader: Final = reader
        self._cluster: Final = cluster
        self._read_nodes: Final = read_nodes
        self._described: Final[TtlCache[str, OwnedInstance | _ForeignInstance]] = TtlCache(
            clock, _KEPT_FOR
        )

    def find(self, ids: Collection[str]) -> tuple[Mapping[str, OwnedInstance], frozenset[str]]:
        """Return those of the instances that are ours, by id, and the ids of those that are not.

        What is in neither is not known to EC2: not yet, or no longer.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        instance_ids = {name for name in ids if name}
        ours = self.by_nodes(instance_ids) if instance_ids else {}
        described = {name: self._described.get(name) for name in instance_ids - ours.keys()}
        missing = {
            name for name, described_instance in described.items() if described_instance is None
        }
        for name, instance in (self._reader.of_ids(missing) if missing else {}).items():
            described_instance = (
                _from_ec2(instance) if self._is_ours(instance) else _ForeignInstance()
            )
            self._described.put(name, described_instance)
            described[name] = described_instance
        ours |= {
            name: described_instance
            for name, described_instance in described.items()
            if isinstance(described_instance, OwnedInstance)
        }
        return ours, frozenset(
            name
            for name, described_instance in described.items()
            if isinstance(described_instance, _ForeignInstance)
        )

    def by_nodes(self, ids: Collection[str]) -> dict[str, OwnedInstance]:
        """Return what the Nodes of these instances tell; never a call."""
        owned_instances: dict[str, OwnedInstance] = {}
        for node in self._read_nodes().values():
            name = instance_id_of(node)
            if name in ids:
                owned_instance = _from_node(name, node)
                if owned_instance is not None:
                    owned_instances[name] = owned_instance
        return owned_instances

    def in_reservations(self, reservation_ids: Collection[str]) -> tuple[OwnedInstance, ...]:
        """Return our instances that run in any of these capacity reservations, by id.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        return tuple(
            _from_ec2(instance)
            for instance in self._reader.of_cluster().instances
            if instance.reservation_id in reservation_ids and not instance.is_leaving
        )

    def on_demand_among(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of the instances that run on demand, sorted, as EC2 says.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        described = self._reader.of_ids(ids)
        return tuple(
            name
            for name in sorted(described)
            if described[name].capacity_type == ON_DEMAND and not described[name].is_leaving
        )

    def _is_ours(self, instance: DescribedInstance) -> bool:
        tags = instance.tags
        return (
            NODE_POOL_TAG in tags
            and NODE_CLASS_TAG in tags
            and tags.get(EKS_CLUSTER_NAME_TAG) == self._cluster
        )


def _from_node(name: str, node: NodeView) -> OwnedInstance | None:
    """Read a Node; None when its labels do not tell enough, or it is of no NodePool."""
    labels = node.labels
    if not labels.get(NODE_POOL) or not labels.get(INSTANCE_TYPE) or not labels.get(ZONE):
        return None
    return OwnedInstance(
        id=name,
        provider_id=node.provider_id,
        instance_type=labels[INSTANCE_TYPE],
        zone=labels[ZONE],
        reservation_id=labels.get(CAPACITY_RESERVATION_ID, ""),
    )


def _from_ec2(instance: DescribedInstance) -> OwnedInstance:
    return OwnedInstance(
        id=instance.id,
        provider_id=provider_id(instance.zone, instance.id),
        instance_type=instance.instance_type,
        zone=instance.zone,
        reservation_id=instance.reservation_id,
    )
