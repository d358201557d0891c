"""Machines as the solver sees them: what is free on each, less what daemons will take.

A claim without an instance is capacity too. Which type it becomes is open, so it offers what every
one of its types offers, type by type less the daemons of that type: exactly what the pods fit into
that it was made for. A new leader, who knows nothing of those pods, therefore finds room for them
there and orders nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import ALIASES, HOSTNAME, NODES
from karpenter_core.api.quantities import parse_resources
from karpenter_core.scheduling.problem import DaemonPod, ExistingNode
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import element_min, fits, merge, subtract
from karpenter_core.scheduling.taints import first_untolerated
from karpenter_core.state.pod_volumes import Volumes
from karpenter_core.state.usage import is_launched, listed_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import HostPort, NodeView, PodShape, PodView, Resources
    from karpenter_core.scheduling.requirements import Requirement
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["Capacity", "daemon_pods"]

_PREFERENCE: Final = "PreferNoSchedule"
_NEGATIVE: Final = frozenset({"NotIn", "DoesNotExist"})


def daemon_pods(snapshot: Snapshot) -> tuple[DaemonPod, ...]:
    """Return what each DaemonSet puts on a node.

    The newest of its pods tells what such a pod really asks for (quotas and webhooks change it);
    where it may run is the template's, if that says so, since a running pod is pinned to its node.
    What waits for devices of DRA drivers is left out as long as those are not looked at.
    """
    daemons: list[DaemonPod] = []
    for name, daemon_set in sorted(snapshot.daemon_sets.items()):
        newest = snapshot.daemon_pods.get(daemon_set.uid)
        shape = daemon_set.template
        if newest is not None:
            shape = _with_terms_of(newest.shape, shape)
        if not shape.resource_claims:
            daemons.append(DaemonPod(name=name, shape=shape))
    return tuple(daemons)


def _with_terms_of(shape: PodShape, template: PodShape) -> PodShape:
    import msgspec

    if not template.required_node_terms:
        return shape
    return msgspec.structs.replace(shape, required_node_terms=template.required_node_terms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Daemon:
    """A daemon pod with its selectors read: any one of `terms` must hold."""

    pod: DaemonPod
    terms: tuple[Requirements, ...]

    def runs_on_labels(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a node with these labels is selected."""
        return any(
            all(_admits(labels.get(key), item) for key, item in term.items()) for term in self.terms
        )

    def may_run_on(self, requirements: Requirements, well_known: frozenset[str]) -> bool:
        """Tell whether a node that these requirements describe may be selected."""
        return any(requirements.compatible(term, allow_undefined=well_known) for term in self.terms)


def _admits(value: str | None, requirement: Requirement) -> bool:
    if value is None:
        return requirement.operator in _NEGATIVE
    return requirement.has(value)


_Room: TypeAlias = "tuple[Resources, Resources, Requirements | None]"
"""Capacity, what is free of it, and what the machine may become if that is open."""


@final
class Capacity:
    """Turns machines into `ExistingNode`s for one pass."""

    __slots__ = (
        "_aliases", "_daemons", "_rooms", "_snapshot", "_volumes", "_well_known", "daemons",
    )  # fmt: skip

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        well_known: frozenset[str],
        aliases: Mapping[str, str] = ALIASES,
        volumes: Volumes | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._volumes = volumes or Volumes(snapshot, aliases=aliases)
        self._well_known = well_known
        self._aliases = aliases
        self._rooms: dict[tuple[object, ...], _Room] = {}
        self.daemons: Final = daemon_pods(snapshot)
        self._daemons = tuple(
            _Daemon(pod=pod, terms=_terms(pod.shape, aliases)) for pod in self.daemons
        )

    def existing_node(self, machine: StateNode, waiting: Iterable[PodView] = ()) -> ExistingNode:
        """Return a machine with what is free on it once the pods that wait for it are there."""
        waiting = tuple(waiting)
        pods = (*machine.pods, *waiting)
        capacity, available, requirements = self._room(machine)
        taken = merge(pod.shape.requests for pod in waiting)
        # A claim without a node says nothing of its drivers, so it may attach any number.
        csi = None if machine.node is None else self._snapshot.csi_nodes.get(machine.node.name)
        return ExistingNode(
            name=machine.name,
            labels={HOSTNAME: machine.name, **machine.labels},
            taints=machine.taints,
            available=_less(available, taken),
            capacity=capacity,
            initialized=machine.initialized,
            pool=machine.pool,
            requirements=requirements,
            pods=pods,
            host_ports=_host_ports(pods),
            volume_limits={} if csi is None else csi.limits,
            volumes=self._volumes.attached(pods),
            claim_name="" if machine.claim is None else machine.claim.name,
            node_name="" if machine.node is None else machine.node.name,
        )

    def closed_node(self, node: NodeView, pods: Iterable[PodView]) -> ExistingNode:
        """Return a Node that takes no more pods: what it has still counts for topology."""
        pods = tuple(pods)
        return ExistingNode(
            name=node.name,
            labels={HOSTNAME: node.name, **node.labels},
            taints=node.taints,
            available={},
            capacity={},
            initialized=False,
            pods=pods,
            host_ports=_host_ports(pods),
            volumes=self._volumes.attached(pods),
            closed=True,
            node_name=node.name,
        )

    def parted(
        self, machine: StateNode, settled: Iterable[PodView], wishing: Iterable[PodView]
    ) -> tuple[list[PodView], list[PodView]]:
        """Part pods into those that still go onto a machine and those that do not, in this order.

        The `settled` pods are on their way there and have their room.
        """
        _, available, _ = self._room(machine)
        hard = [taint for taint in machine.taints if taint.effect != _PREFERENCE]
        left = _less(available, merge(pod.shape.requests for pod in settled))
        taken: list[PodView] = []
        refused: list[PodView] = []
        for pod in wishing:
            is_tolerated = first_untolerated(hard, pod.shape.tolerations) is None
            (taken if is_tolerated else refused).append(pod)
        if fits(merge(pod.shape.requests for pod in taken), left):
            return taken, refused
        tolerating, taken = taken, []
        for pod in tolerating:
            if fits(pod.shape.requests, left):
                left = _less(left, pod.shape.requests)
                taken.append(pod)
            else:
                refused.append(pod)
        return taken, refused

    def _room(self, machine: StateNode) -> _Room:
        if is_launched(machine) or machine.claim is None:
            daemons = merge(
                item.pod.shape.requests
                for item in self._tolerating(machine)
                if item.runs_on_labels(machine.labels)
            )
            still_to_come = {
                name: max(amount - machine.daemon_requests.get(name, 0), 0)
                for name, amount in daemons.items()
            }
            # What a daemon asks of a device that this node lacks does not make the node overdrawn.
            free = subtract(subtract(machine.allocatable, machine.requests), still_to_come)
            return _without_nodes(machine.capacity), free, None
        return self._room_of_claim(machine, machine.claim)

    def _room_of_claim(self, machine: StateNode, claim: NodeClaim) -> _Room:
        key = (
            machine.pool,
            claim.spec.requirements,
            tuple(sorted((name, str(q)) for name, q in claim.spec.resources.requests.items())),
            tuple(sorted(claim.metadata.labels.items())),
            machine.taints,
        )
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = self._compute_room(machine, claim)
        return room

    def _compute_room(self, machine: StateNode, claim: NodeClaim) -> _Room:
        requirements = Requirements.from_specs(
            claim.spec.requirements, aliases=self._aliases
        ).merge(Requirements.from_labels(claim.metadata.labels, aliases=self._aliases))
        types = listed_types(claim, self._snapshot.catalogues.get(machine.pool))
        if not types:
            # The pool is not evaluated: what was asked for is what may be counted on.
            asked = parse_resources(claim.spec.resources.requests)
            return asked, asked, requirements
        tolerating = [
            item
            for item in self._tolerating(machine)
            if item.may_run_on(requirements, self._well_known)
        ]
        free = element_min(
            _less(
                it.allocatable(),
                merge(
                    item.pod.shape.requests
                    for item in tolerating
                    if any(it.requirements.intersects(term) for term in item.terms)
                ),
            )
            for it in types
        )
        return element_min(it.capacity for it in types), free, requirements

    def _tolerating(self, machine: StateNode) -> list[_Daemon]:
        return [
            item
            for item in self._daemons
            if first_untolerated(machine.taints, item.pod.shape.tolerations) is None
        ]


def _terms(shape: PodShape, aliases: Mapping[str, str]) -> tuple[Requirements, ...]:
    selector = Requirements.from_labels(shape.node_selector, aliases=aliases)
    if not shape.required_node_terms:
        return (selector,)
    return tuple(
        selector.merge(Requirements.from_expressions(term.match_expressions, aliases=aliases))
        for term in shape.required_node_terms
    )


def _less(amounts: Resources, taken: Resources) -> dict[str, int]:
    """Subtract, also from what is not there: asking for a device no node has leaves a debt."""
    left = subtract(amounts, taken)
    for name, amount in taken.items():
        if amount and name not in left:
            left[name] = -amount
    return left


def _without_nodes(amounts: Resources) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name != NODES}


def _host_ports(pods: Iterable[PodView]) -> tuple[HostPort, ...]:
    return tuple(dict.fromkeys(port for pod in pods for port in pod.shape.host_ports))
