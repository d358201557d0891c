"""Applies disruption commands to the state, as if all launches succeeded.

New nodes are those of the cheapest offering of their claim, ready at once. Evicted pods wait until they are
bound. Nodes of a command stay for some seconds, in which budgets count them. Quiet times of nodes begin again
where pods come, so that `consolidateAfter` counts as in a cluster.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.api.labels import HOSTNAME, INSTANCE_TYPE, NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED, LAUNCHED, REGISTERED
from karpenter_core.api.quantities import format_resources
from karpenter_core.api.records import NodeConditionView, NodeView, Taint
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_at, consolidatable_step
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import build_node_claim
from karpenter_core.state.events import ObjectObserved, ObjectRemoved, ObjectWritten, TimePassed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import PlannedNodeClaim, SchedulingPlan
    from karpenter_core.scheduling.requirements import Requirements
    from karpenter_core.state.builder import StateBuilder

__all__ = ["StateFold"]

_LEAVING: Final = timedelta(seconds=5)
"""Time from the start of a command until its nodes are gone."""


@final
class StateFold:
    """The state of a cluster in which commands have been carried out."""

    def __init__(self, builder: StateBuilder) -> None:
        self._builder: Final = builder
        self._made = 0
        self._leaving: Final = list["tuple[datetime, Candidate]"]()
        """Nodes whose command has started, with the times at which they are gone."""

    def pass_time(self, now: datetime) -> None:
        """Move the time: nodes leave, and are marked when they have been quiet for `consolidateAfter`."""
        self._builder.apply_event(TimePassed(now))
        gone = [each for at, each in self._leaving if at <= now]
        self._leaving[:] = [each for each in self._leaving if each[0] > now]
        for candidate in gone:
            self._builder.apply_event(ObjectRemoved(candidate.node))
            self._builder.apply_event(ObjectRemoved(candidate.claim))
        snapshot = self._builder.snapshot()
        for claim in snapshot.node_claims.values():
            pool = snapshot.node_pools.get(_pool_of(claim))
            changed = consolidatable_step(claim, pool, now=now).claim
            if changed is not claim:
                self._write(changed)

    def next_quiet(self, now: datetime) -> datetime | None:
        """Return when the next node will have been quiet for `consolidateAfter`; None if none will."""
        snapshot = self._builder.snapshot()
        times = (
            consolidatable_at(claim, pool)
            for claim in snapshot.node_claims.values()
            if (pool := snapshot.node_pools.get(_pool_of(claim))) is not None
            and pool.spec.replicas is None
        )
        return min((at for at in times if at is not None and at > now), default=None)

    def next_departure(self) -> datetime | None:
        """Return when the next leaving node is gone; None if none is leaving."""
        return min((at for at, _ in self._leaving), default=None)

    def start(self, command: Command, now: datetime) -> tuple[PodView, ...]:
        """Launch the replacements and empty the nodes of a command; return the pods that wait."""
        for planned in command.replacements:
            self._launch(planned, now)
        evicted: list[PodView] = []
        for candidate in command.candidates:
            for pod in self._builder.snapshot().pods_by_node.get(candidate.node.name, ()):
                if pod.is_reschedulable:
                    evicted.append(pod)
                self._move(pod, {})
            claim = self._builder.snapshot().node_claims[candidate.claim.name]
            metadata = claim.metadata.model_copy(update={"deletion_timestamp": now})
            self._write(claim.model_copy(update={"metadata": metadata}))
            self._leaving.append((now + _LEAVING, candidate))
        return tuple(evicted)

    def bind(self, places: Mapping[str, str], now: datetime) -> None:
        """Bind waiting pods to nodes, by UID."""
        pending = self._builder.snapshot().pending_pods
        for uid in places:
            self._move(pending[uid], places)
        self._restart_quiet_times(set(places.values()), now)

    def provision(self, plan: SchedulingPlan, now: datetime) -> dict[str, PlannedNodeClaim] | None:
        """Launch the nodes of a plan and bind its pods; return the nodes, None if nothing changes."""
        placed = [(pod, name) for name, pods in plan.existing.items() for pod in pods]
        launched: dict[str, PlannedNodeClaim] = {}
        for planned in plan.claims:
            name = self._launch(planned, now)
            launched[name] = planned
            placed += [(pod, name) for pod in planned.pods]
        targets = {pod.uid: name for pod, name in placed if not pod.is_virtual}
        for pod, _ in placed:
            if not pod.is_virtual:
                self._move(pod, targets)
        if targets:
            self._restart_quiet_times(set(targets.values()), now)
        return launched if targets or launched else None

    def _move(self, pod: PodView, targets: Mapping[str, str]) -> None:
        """Bind a pod to its new node; pods of DaemonSets and finished pods go with their node."""
        if not pod.is_reschedulable:
            self._builder.apply_event(ObjectRemoved(pod))
            return
        target = targets.get(pod.uid, "")
        moved = msgspec.structs.replace(
            pod,
            node_name=target,
            nominated_node_name="",
            unschedulable=not target,
            phase=pod.phase if target else "Pending",
            resource_version=pod.resource_version + 1,
        )
        self._builder.apply_event(ObjectObserved(moved))

    def _restart_quiet_times(self, names: set[str], now: datetime) -> None:
        snapshot = self._builder.snapshot()
        for name in sorted(names):
            state_node = snapshot.state_node(name)
            if state_node is None or state_node.claim is None:
                continue
            status = state_node.claim.status.model_copy(update={"last_pod_event_time": now})
            self._write(state_node.claim.model_copy(update={"status": status}))
        self.pass_time(now)

    def _write(self, claim: NodeClaim) -> None:
        version = str(int(claim.metadata.resource_version or 0) + 1)
        metadata = claim.metadata.model_copy(update={"resource_version": version})
        self._builder.apply_event(ObjectWritten(claim.model_copy(update={"metadata": metadata})))

    def _launch(self, planned: PlannedNodeClaim, now: datetime) -> str:
        """Add the claim and the node of the cheapest offering; return the name of the node."""
        snapshot = self._builder.snapshot()
        self._made += 1
        pool = snapshot.node_pools[planned.pool]
        claim = build_node_claim(
            planned,
            pool,
            suffix=f"new-{self._made}",
            node_pool_hash="",
            node_pool_hash_version="",
        )
        instance_type, offering = _bought(planned, snapshot.catalogues[planned.pool].instance_types)
        node = _node(claim, instance_type, offering, now)
        status = claim.status.model_copy(
            update={
                "node_name": node.name,
                "provider_id": node.provider_id,
                "capacity": format_resources(node.capacity),
                "allocatable": format_resources(node.allocatable),
                "last_pod_event_time": now,
            }
        )
        metadata = claim.metadata.model_copy(
            update={
                "uid": claim.name,
                "resource_version": "1",
                "creation_timestamp": now,
                "labels": dict(node.labels),
            }
        )
        claim = claim.model_copy(update={"status": status, "metadata": metadata})
        for condition in (LAUNCHED, REGISTERED, INITIALIZED):
            claim = with_condition(claim, condition, now=now)
        self._builder.apply_event(ObjectObserved(claim))
        self._builder.apply_event(ObjectObserved(node))
        return node.name


def _pool_of(claim: NodeClaim) -> str:
    return claim.metadata.labels.get(NODE_POOL, "")


def _bought(
    planned: PlannedNodeClaim, types: tuple[InstanceType, ...]
) -> tuple[InstanceType, Offering]:
    cheapest = planned.cheapest
    instance_type = next(each for each in types if each.name == cheapest.instance_type)
    offering = next(
        each
        for each in instance_type.offerings
        if (each.zone, each.capacity_type) == (cheapest.zone, cheapest.capacity_type)
    )
    return instance_type, offering


def _node(
    claim: NodeClaim, instance_type: InstanceType, offering: Offering, now: datetime
) -> NodeView:
    labels = {
        **claim.metadata.labels,
        **_single_values(instance_type.requirements),
        **_single_values(offering.requirements),
        INSTANCE_TYPE: instance_type.name,
        HOSTNAME: claim.name,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
    }
    return NodeView(
        uid=f"node/{claim.name}",
        name=claim.name,
        resource_version=1,
        labels=labels,
        created=now,
        provider_id=f"planned://{claim.name}",
        taints=tuple(
            Taint(key=taint.key, effect=taint.effect, value=taint.value)
            for taint in claim.spec.taints
        ),
        capacity={**instance_type.capacity, **(offering.capacity_override or {})},
        allocatable=instance_type.allocatable(),
        conditions=(NodeConditionView(type="Ready", status="True"),),
    )


def _single_values(requirements: Requirements) -> dict[str, str]:
    return {key: value for key in requirements.keys() if (value := requirements.single_value(key))}  # noqa: SIM118 - not a mapping
