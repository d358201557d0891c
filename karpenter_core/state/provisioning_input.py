"""Builds the scheduling problem of a provisioning pass from a Snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import READY, is_true
from karpenter_core.api.judgements import FailedJudgement, FailedJudgements
from karpenter_core.api.labels import ALIASES, PRICE_PER_HOUR, WELL_KNOWN
from karpenter_core.scheduling.lost_places import pods_without_domain
from karpenter_core.scheduling.pod_selectors import selector_error
from karpenter_core.scheduling.problem import MOST_NOMINATED_PODS, SchedulingProblem
from karpenter_core.state.bookings import booked_pods, bookings, launching_nodes
from karpenter_core.state.capacity_quotas import launch_quotas
from karpenter_core.state.class_resources import class_resource_error, class_resources
from karpenter_core.state.commitments import commitment_balances
from karpenter_core.state.default_spread import DefaultSpread
from karpenter_core.state.device_inventory import build_device_inventory
from karpenter_core.state.existing_nodes import ExistingNodeBuilder
from karpenter_core.state.expendable_pods import NO_CUTOFF
from karpenter_core.state.ignored_pods import (
    PROVISIONING_STEP,
    IgnoredPod,
    split_consuming,
    split_ignored,
    unevaluated_pod,
)
from karpenter_core.state.launch_limits import LaunchLimits, refused_pools, remaining_node_count
from karpenter_core.state.leaving_pods import pods_on_leaving_nodes
from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.state.node_pool_usage import (
    capacity_type_count,
    node_price_amount,
    priced_pools,
    shared_pools,
)
from karpenter_core.state.paused_pods import split_paused
from karpenter_core.state.placements import (
    NOMINATION_WINDOW,
    is_nomination_valid,
    is_placement_refused,
    valid_placement,
)
from karpenter_core.state.pod_volumes import PodVolumeReader, UnsupportedVolumes
from karpenter_core.state.preemptible_room import cover_virtual_pods
from karpenter_core.state.request_predictions import RequestPredictions
from karpenter_core.state.state_nodes import state_node_ref
from karpenter_core.state.untried_pods import list_foreseen_pods

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodShape, PodView, TopologySpread
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes
    from karpenter_core.state.launch_limits import LaunchRefusal
    from karpenter_core.state.node_memory import PlaceableNodes
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["ProblemSettings", "ProvisioningInput", "build_provisioning_input", "usable_pools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """Settings of scheduling problems that do not depend on the cluster.

    `well_known` are labels beyond the core's that the providers' nodes have. `value_aliases` are other
    spellings of values in the places of volumes, by canonical label. `default_spread` are
    constraints, without selectors, for pods that have none of their own; the pods of a problem are
    then copies with these, with the same UID and name. A placed pod keeps its placement for
    `nomination_window`, the time that the scheduler has to bind it. `launch_limits` may leave
    pools out. With `serves_requests`, pods that use the capacity of a ProvisioningRequest get no
    other. With `ignores_devices` (the default), pods with ResourceClaims are not placed.
    """

    well_known: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=lambda: ALIASES)
    value_aliases: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, "Mapping[str, str]"]
    )
    default_spread: tuple[TopologySpread, ...] = ()
    unsupported_volumes: UnsupportedVolumes = field(default_factory=UnsupportedVolumes)
    nomination_window: timedelta = NOMINATION_WINDOW
    launch_limits: LaunchLimits = field(default_factory=LaunchLimits)
    serves_requests: bool = False
    commitments: tuple[Commitment, ...] = ()
    """Capacity that is paid for in advance, in the order in which it covers nodes."""
    priority_cutoff: int = NO_CUTOFF
    """The lowest priority of pods for which nodes are launched (`state.expendable_pods`)."""
    ignores_devices: bool = True

    def volume_reader(self, snapshot: Snapshot) -> PodVolumeReader:
        """Return the reader of what volumes of a snapshot require of nodes."""
        return PodVolumeReader(
            snapshot,
            aliases=self.aliases,
            value_aliases=self.value_aliases,
            unsupported=self.unsupported_volumes,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProvisioningInput:
    """The problem of a pass, and the pods that do not need it.

    `placed_pods` are the pods whose earlier placement is still valid, by name of the state node: a
    claim that is starting, or a node to which the scheduler has not bound them yet.
    `refused_pools` are the pools that may launch nothing now, with the refusals.
    """

    problem: SchedulingProblem
    ignored: tuple[IgnoredPod, ...]
    placed_pods: Mapping[str, tuple[PodView, ...]]
    refused_pools: Mapping[str, LaunchRefusal]
    has_paused_pods: bool
    """Whether pods are ignored until the end of a pause (`state.paused_pods`)."""
    closed_pools: Mapping[str, Mapping[str, str]]
    """By the UID of a pod, the NodePools that launch nothing for it until then, with the reasons."""
    set_aside: tuple[FailedJudgement, ...]
    """Nodes that are left out, since evaluating them failed; such pods are among `ignored`."""
    state_nodes: tuple[StateNode, ...]
    """Those of the problem's first nodes, in their order; the nodes after these are closed."""


def build_provisioning_input(
    snapshot: Snapshot,
    *,
    now: datetime,
    problem_settings: ProblemSettings | None = None,
    gang: tuple[PodView, ...] = (),
    joins_attempts: bool = False,
    memory: NodeMemory | None = None,
) -> ProvisioningInput:
    """Build the problem for pending pods and for pods whose nodes are being removed.

    A placed pod keeps its placement while its node starts, or while the scheduler still has time to
    bind it. It is not scheduled again, and its resources are reserved. Virtual pods have no
    placement that lasts: every pass places all of them. With a `gang`, the virtual pods of one
    ProvisioningRequest, the problem is to place those and no others, with `joins_attempts` also on
    nodes that are launched for other requests. With the `memory` of earlier passes, nodes that are as
    they were are not read again; the result is the same.
    """
    problem_settings, memory = problem_settings or ProblemSettings(), memory or NodeMemory()
    well_known, aliases = problem_settings.well_known, problem_settings.aliases
    nomination_window = problem_settings.nomination_window
    volumes = problem_settings.volume_reader(snapshot)
    nominated, stranded = _nominated(snapshot, now=now, nomination_window=nomination_window)
    waiting = {**snapshot.pending_pods, **list_foreseen_pods(snapshot), **stranded}
    consuming: list[IgnoredPod] = []
    if problem_settings.serves_requests:
        waiting, consuming = split_consuming(waiting, snapshot.provisioning_requests)
    cutoff = problem_settings.priority_cutoff
    classes: Mapping[str, str] = {}
    if not problem_settings.ignores_devices:
        classes = class_resources(snapshot)

    def refusal(shape: PodShape) -> str:
        error = selector_error(shape, well_known=well_known, aliases=aliases)
        return error or class_resource_error(shape, classes)

    candidates, ignored = split_ignored(waiting, volumes, refusal, aliases, cutoff)
    ignored.extend(consuming)
    failed = FailedJudgements()
    predictions = RequestPredictions(snapshot, now)
    leaving = pods_on_leaving_nodes(snapshot, now, failed=failed, cutoff=cutoff)
    candidates.extend(predictions.apply(pod) for pod in leaving if not volumes.error_of_move(pod))
    candidates.extend(pod for pods in snapshot.virtual_pods.values() for pod in pods)
    capacity = ExistingNodeBuilder(
        snapshot,
        well_known=WELL_KNOWN | well_known,
        aliases=aliases,
        volumes=volumes,
        ignores_devices=problem_settings.ignores_devices,
        predictions=predictions,
    )
    places, unplaced = _keep_placements(
        snapshot, capacity, candidates, nominated, now=now, nomination_window=nomination_window
    )
    spread = DefaultSpread(snapshot, problem_settings.default_spread)
    placeable = memory.placeable(snapshot, () if joins_attempts else launching_nodes(snapshot))
    open_nodes = _OpenNodes(
        snapshot,
        capacity,
        placeable.state_nodes,
        failed,
        problem_settings.launch_limits.rates,
        memory,
    )
    closed_nodes = _closed_nodes(snapshot, capacity, placeable, {pod.uid for pod in candidates})
    bound = SchedulingProblem(
        pods=(),
        nodes=(*open_nodes.nodes, *closed_nodes),
        well_known=well_known,
        aliases=aliases,
        namespaces={name: view.labels for name, view in snapshot.namespaces.items()},
    )
    places, unplaced = _without_lost(snapshot, places, unplaced, bound, spread)
    held = refused_pools(snapshot, now=now, launch_limits=problem_settings.launch_limits)
    pools = tuple(pool for pool in usable_pools(snapshot) if pool.name not in held)
    split = split_paused(unplaced, places, snapshot, now, pools)
    unplaced = split.pods
    ignored.extend(IgnoredPod(pod=pod, reason=reason, paused=True) for pod, reason in split.paused)
    if gang:
        unplaced, ignored = split_ignored(
            {pod.uid: pod for pod in gang}, volumes, refusal, aliases, cutoff
        )
    pods, asked_volumes = _with_defaults(unplaced, spread, volumes, ignored)
    open_nodes.with_waiting(_merged(places, booked_pods(bookings(snapshot), snapshot)))
    problem = replace(
        bound,
        pods=pods,
        pools=pools,
        catalogues={pool.name: snapshot.catalogues[pool.name] for pool in pools},
        nodes=(*open_nodes.nodes, *closed_nodes),
        daemons=capacity.daemons,
        pool_usage=memory.pool_usage(snapshot, problem_settings.launch_limits.rates),
        volumes=asked_volumes,
        max_new_nodes=remaining_node_count(snapshot, problem_settings.launch_limits),
        quotas=launch_quotas(
            snapshot,
            problem_settings.launch_limits.rates,
            well_known=WELL_KNOWN | well_known,
            aliases=aliases,
        ),
        commitments=commitment_balances(
            snapshot,
            problem_settings.commitments,
            problem_settings.launch_limits.rates,
            well_known=WELL_KNOWN | well_known,
            aliases=aliases,
        ),
        devices=None
        if problem_settings.ignores_devices
        else build_device_inventory(snapshot, placeable.state_nodes, capacity.daemons_on),
        is_unnominated=snapshot.waiting_count > MOST_NOMINATED_PODS,
    )
    return ProvisioningInput(
        problem=cover_virtual_pods(problem, cutoff=cutoff),
        ignored=tuple(ignored),
        placed_pods={state_node.name: tuple(pods) for state_node, pods in places.items()},
        refused_pools=held,
        has_paused_pods=bool(split.paused or split.elsewhere),
        closed_pools=split.elsewhere,
        set_aside=failed.found,
        state_nodes=tuple(open_nodes.state_nodes),
    )


def _merged(
    places: Mapping[StateNode, Sequence[PodView]], taken: Mapping[StateNode, Sequence[PodView]]
) -> Mapping[StateNode, Sequence[PodView]]:
    if not taken:
        return places
    return {
        state_node: (*places.get(state_node, ()), *taken.get(state_node, ()))
        for state_node in (*places, *taken)
    }


def _with_defaults(
    unplaced: Iterable[PodView],
    spread: DefaultSpread,
    volumes: PodVolumeReader,
    ignored: list[IgnoredPod],
) -> tuple[tuple[PodView, ...], dict[str, PodVolumes]]:
    """Return pods with the default spread, and what their volumes require, by UID."""
    pods: list[PodView] = []
    volumes_by_pod: dict[str, PodVolumes] = {}
    for pod in unplaced:
        try:
            completed, pod_volumes = spread.apply(pod), volumes.pod_volumes(pod)
        except Exception as error:
            ignored.append(unevaluated_pod(pod, error))
            continue
        pods.append(completed)
        if pod_volumes is not None:
            volumes_by_pod[pod.uid] = pod_volumes
    return tuple(pods), volumes_by_pod


@final
class _OpenNodes:
    """Existing nodes of one pass, and the state nodes that they are made of, in the same order.

    Those that cannot be evaluated are left out and added to `failed`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        capacity: ExistingNodeBuilder,
        state_nodes: Sequence[StateNode],
        failed: FailedJudgements,
        rates: Mapping[str, float],
        memory: NodeMemory,
    ) -> None:
        self._snapshot: Final = snapshot
        self._capacity: Final = capacity
        self._failed: Final = failed
        self._rates: Final = rates
        self._shared: Final = shared_pools(snapshot)
        self._priced: Final = priced_pools(snapshot)
        self.state_nodes: Sequence[StateNode] = state_nodes
        try:
            self.nodes: Sequence[ExistingNode] = memory.existing_nodes(
                snapshot,
                state_nodes,
                self._read,
                same=tuple(snapshot.catalogues.get(name) for name in sorted(self._priced)),
                equal=(capacity.settings, self._shared, self._priced, dict(rates)),
            )
        except Exception:
            self._read_again({})

    def with_waiting(self, places: Mapping[StateNode, Sequence[PodView]]) -> None:
        """Reserve the room of pods that wait for their nodes."""
        nodes = list(self.nodes)
        try:
            for number, state_node in enumerate(self.state_nodes) if places else ():
                if state_node in places:
                    nodes[number] = self._read(state_node, places[state_node])
        except Exception:
            self._read_again(places)
        else:
            self.nodes = nodes

    def _read_again(self, places: Mapping[StateNode, Sequence[PodView]]) -> None:
        """Read one node after another, without those that cannot be evaluated."""
        sound: dict[StateNode, ExistingNode] = {}
        for state_node in self.state_nodes:
            with self._failed.judging(state_node_ref(state_node), PROVISIONING_STEP):
                sound[state_node] = self._read(state_node, places.get(state_node, ()))
        self.nodes, self.state_nodes = list(sound.values()), list(sound)

    def _read(self, state_node: StateNode, waiting: Sequence[PodView] = ()) -> ExistingNode:
        """Return a node with the room that is left beside pods that wait for it.

        Nodes of pools with a limit of the price have it among their capacity, and those of pools
        with a share of spot their capacity type.
        """
        node = self._capacity.existing_node(state_node, waiting)
        if state_node.pool in self._priced:
            price = node_price_amount(self._snapshot, state_node, self._rates)
            node = replace(node, capacity={**node.capacity, PRICE_PER_HOUR: price})
        if state_node.pool in self._shared:
            counted = {capacity_type_count(state_node): 1}
            node = replace(node, capacity={**node.capacity, **counted})
        return node


def usable_pools(snapshot: Snapshot) -> tuple[NodePool, ...]:
    """Return the pools that may launch nodes now, by name."""
    return tuple(
        pool
        for name, pool in sorted(snapshot.node_pools.items())
        if snapshot.manages(pool.spec.template.spec.node_class_ref)
        and pool.spec.replicas is None
        and not pool.is_deleting
        and is_true(pool.status.conditions, READY)
        and name in snapshot.catalogues
        and snapshot.catalogues[name].instance_types
    )


def _closed_nodes(
    snapshot: Snapshot,
    capacity: ExistingNodeBuilder,
    placeable: PlaceableNodes,
    moving: Container[str],
) -> list[ExistingNode]:
    """Return every other Node with pods: topology counts these until they are gone.

    These are Nodes that are being removed, and Nodes that are not joined with their claim yet. Pods
    that are `moving` (by UID) count where they go.
    """
    if placeable.node_count == len(snapshot.nodes):
        return []
    open_nodes = {each.node.name for each in placeable.state_nodes if each.node is not None}
    closed: list[ExistingNode] = []
    for name, node in sorted(snapshot.nodes.items()):
        if name in open_nodes:
            continue
        pods = [pod for pod in snapshot.pods_by_node.get(name, ()) if pod.uid not in moving]
        if pods:
            closed.append(capacity.closed_node(node, pods))
    return closed


def _nominated(
    snapshot: Snapshot, *, now: datetime, nomination_window: timedelta
) -> tuple[dict[StateNode, list[PodView]], dict[str, PodView]]:
    """Split the nominated pods into those that go to a state node and those to be placed again.

    The latter are by UID. Pods that go to a Node without state node are in neither group.
    """
    pods_by_node: dict[StateNode, list[PodView]] = {}
    stranded: dict[str, PodView] = {}
    for uid, pod in sorted(snapshot.nominated_pods.items()):
        if not is_nomination_valid(
            snapshot, pod, now=now, window=nomination_window
        ) or is_placement_refused(snapshot, pod):
            stranded[uid] = pod
            continue
        state_node = snapshot.state_nodes_by_node.get(pod.nominated_node_name)
        if state_node is not None:
            pods_by_node.setdefault(state_node, []).append(pod)
    return pods_by_node, stranded


def _keep_placements(
    snapshot: Snapshot,
    capacity: ExistingNodeBuilder,
    candidates: list[PodView],
    nominated: Mapping[StateNode, list[PodView]],
    *,
    now: datetime,
    nomination_window: timedelta,
) -> tuple[dict[StateNode, list[PodView]], list[PodView]]:
    """Split the pods into those that keep their placement and those that need one.

    The scheduler may have filled a node with other pods than planned: of those placed there, as
    many stay as fit. Nominated pods always stay: for some the scheduler still preempts others.
    """
    pods_by_node = {state_node: list(pods) for state_node, pods in nominated.items()}
    wished: dict[StateNode, list[PodView]] = {}
    unplaced: list[PodView] = []
    for pod in candidates:
        target = valid_placement(snapshot, pod, now=now, window=nomination_window)
        if target is None or is_placement_refused(snapshot, pod):
            unplaced.append(pod)
        else:
            wished.setdefault(target, []).append(pod)
    for state_node, pods in wished.items():
        settled = pods_by_node.get(state_node, [])
        fitting, refused = capacity.split_fitting(state_node, settled, pods)
        unplaced.extend(refused)
        if fitting:
            pods_by_node[state_node] = [*settled, *fitting]
    return pods_by_node, unplaced


def _without_lost(
    snapshot: Snapshot,
    places: Mapping[StateNode, Sequence[PodView]],
    unplaced: Sequence[PodView],
    bound: SchedulingProblem,
    spread: DefaultSpread,
) -> tuple[Mapping[StateNode, Sequence[PodView]], Sequence[PodView]]:
    """Take pods out of places to which they may not be bound, as others were bound elsewhere.

    `bound` has the nodes with the pods that are bound. Pods that the scheduler itself nominated stay,
    and those whose nodes other pods are leaving.
    """
    placements = snapshot.ledger.placements
    changing = {
        pod.uid
        for state_node, pods in places.items()
        if any(other.is_terminating for other in state_node.pods)
        for pod in pods
    }

    def is_judged(pod: PodView) -> bool:
        return not pod.node_name and pod.uid in placements and pod.uid not in changing

    try:
        placed = {node.name: [spread.apply(pod) for pod in pods] for node, pods in places.items()}
        if not any(_is_restricted(pod.shape) for pods in placed.values() for pod in pods):
            return places, unplaced
        waiting = replace(bound, pods=tuple(map(spread.apply, unplaced)))
        lost = pods_without_domain(waiting, placed, is_judged)
    except Exception:  # a pod that cannot be evaluated is found, and named, when it is planned
        return places, unplaced
    kept = {node: [pod for pod in pods if pod.uid not in lost] for node, pods in places.items()}
    return (
        {node: pods for node, pods in kept.items() if pods},
        [*unplaced, *(pod for pods in places.values() for pod in pods if pod.uid in lost)],
    )


def _is_restricted(shape: PodShape) -> bool:
    return bool(shape.topology_spread or shape.pod_affinity or shape.pod_anti_affinity)
