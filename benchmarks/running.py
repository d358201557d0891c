"""A cluster that already runs: nodes of a catalogue, mostly full of pods that keep their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.catalogues import ZONES
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    NODE_POOL,
    OS,
    REGISTERED,
    ZONE,
)
from karpenter_core.scheduling.problem import ExistingNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.instance_types import InstanceType, Offering

__all__ = ["running_nodes"]

CPUS: Final = range(4_000, 16_001)
"""Milli-CPUs of the instances taken, so that a thousand nodes hold some thousand pods."""

MOST_BYTES_PER_MILLI: Final = 4 * 2**30 // 1000
"""Leaves out the instances of much memory, which such pods would not fill."""


def running_nodes(
    instance_types: Sequence[InstanceType],
    pods: Sequence[PodView],
    *,
    count: int,
    pool: str,
    daemons: Sequence[PodView] = (),
    full_share: float = 1.0,
    names: str = "node",
) -> tuple[ExistingNode, ...]:
    """Run `pods` on `count` nodes, each in turn of another type and zone.

    Pods go round the nodes; one that does not fit, breaks a hostname anti-affinity or leaves the
    zone of its zonal affinity (one zone for each label value) tries the next nodes, and is dropped
    after a full round. A cluster of this kind has room on many nodes, little on each. No node is
    filled beyond `full_share` of its CPU and memory after the requests of `daemons`; then pods with
    a hostname spread go one to a node, too.
    """
    sold = list(_type_offerings(instance_types))
    nodes = [
        _RunningNode(
            number, *sold[number * 7 % len(sold)], pool=pool, full_share=full_share, names=names
        )
        for number in range(count)
    ]
    for node in nodes:
        node.take_daemons(daemons)
    place = 0
    for pod in pods if nodes else ():
        for step in range(count):
            node = nodes[(place + step) % count]
            if node.takes(pod):
                place += step + 1
                break
    return tuple(node.existing() for node in nodes)


def _type_offerings(
    instance_types: Sequence[InstanceType],
) -> Iterator[tuple[InstanceType, Offering]]:
    for instance_type in instance_types:
        cpu_milli, memory = (instance_type.capacity[name] for name in ("cpu", "memory"))
        if cpu_milli in CPUS and memory <= cpu_milli * MOST_BYTES_PER_MILLI:
            for offering in instance_type.offerings:
                yield instance_type, offering


class _RunningNode:
    def __init__(
        self,
        number: int,
        instance_type: InstanceType,
        offering: Offering,
        *,
        pool: str,
        full_share: float,
        names: str,
    ) -> None:
        self.name = f"{names}-{number:04d}"
        self.full_share = full_share
        self.instance_type = instance_type
        self.pool = pool
        self.free = instance_type.allocatable()
        self.kept_free = dict.fromkeys(self.free, 0)
        self.pods: list[PodView] = []
        self.alone: set[tuple[tuple[str, str], ...]] = set()
        self.labels = {
            requirement.key: min(requirement.values)
            for requirement in instance_type.requirements.values()
            if not requirement.complement and requirement.values
        } | {
            HOSTNAME: self.name,
            ZONE: offering.zone,
            CAPACITY_TYPE: offering.capacity_type,
            OS: "linux",
            NODE_POOL: pool,
            REGISTERED: "true",
            INITIALIZED: "true",
        }

    def take_daemons(self, daemons: Sequence[PodView]) -> None:
        """Set the requests of daemons aside, and what is to stay free beside them."""
        for daemon in daemons:
            for name, amount in daemon.shape.requests.items():
                self.free[name] -= amount
        if self.full_share < 1.0:
            self.kept_free = {
                name: round(v * (1 - self.full_share)) for name, v in self.free.items()
            }

    def takes(self, pod: PodView) -> bool:
        """Run the pod here when it may."""
        shape = pod.shape
        labels = tuple(sorted(shape.labels.items()))
        if any(
            amount > self.free.get(name, 0) - self.kept_free.get(name, 0)
            for name, amount in shape.requests.items()
        ):
            return False
        is_alone = bool(shape.pod_anti_affinity) or (
            self.full_share < 1.0 and any(s.topology_key == HOSTNAME for s in shape.topology_spread)
        )
        if is_alone and labels in self.alone:
            return False
        home = ZONES[sum(map(ord, "".join(shape.labels.values()))) % len(ZONES)]
        if shape.pod_affinity and self.labels[ZONE] != home:
            return False
        if is_alone:
            self.alone.add(labels)
        for name, amount in shape.requests.items():
            self.free[name] -= amount
        self.pods.append(
            msgspec.structs.replace(
                pod, node_name=self.name, phase="Running", unschedulable=False, ready=True
            )
        )
        return True

    def existing(self) -> ExistingNode:
        """Return the node as the solver sees it."""
        return ExistingNode(
            name=self.name,
            labels=self.labels,
            taints=(),
            available=self.free,
            capacity=self.instance_type.capacity,
            initialized=True,
            pool=self.pool,
            pods=tuple(self.pods),
            claim_name=self.name,
            node_name=self.name,
        )
