"""From the cluster to the question: which pods need a place, and what is there already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import READY, is_true
from karpenter_core.api.judgements import (
    FailedJudgement,
    FailedJudgements,
    describe_failure,
    failure_message,
)
from karpenter_core.api.labels import ALIASES, WELL_KNOWN
from karpenter_core.scheduling.pod_selectors import opts_out, selector_error
from karpenter_core.scheduling.problem import Problem
from karpenter_core.state.brakes import Brakes, held_pools, nodes_to_spare
from karpenter_core.state.capacity import Capacity
from karpenter_core.state.default_spread import DefaultSpread
from karpenter_core.state.interrupted import is_taken_soon
from karpenter_core.state.machines import has_lost_node, machine_ref
from karpenter_core.state.placements import NOMINATION_WINDOW, nomination_stands, standing_place
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_rules import pod_ref
from karpenter_core.state.pod_volumes import Volumes, VolumesUnsupported
from karpenter_core.state.usage import pool_usage

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodView, TopologySpread
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes
    from karpenter_core.state.brakes import Refusal
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "Framing",
    "IgnoredPod",
    "ProvisioningInput",
    "leaving_pods",
    "scheduling_problem",
    "usable_pools",
]

STEP: Final = "scheduling"
"""In what is told of what was set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """What every question is framed by, whatever the cluster looks like.

    `well_known` are labels beyond the core's that the providers' nodes have. `default_spread` are
    constraints of pods that have none of their own, without selectors; the pods of a problem are
    then copies that have them, with the same UID and name. A pod keeps the place it was given for
    `nomination_window`, as long as the scheduler still has time to bind it. `brakes` are those that
    leave pools out.
    """

    well_known: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=lambda: ALIASES)
    default_spread: tuple[TopologySpread, ...] = ()
    unsupported_volumes: VolumesUnsupported = field(default_factory=VolumesUnsupported)
    nomination_window: timedelta = NOMINATION_WINDOW
    brakes: Brakes = field(default_factory=Brakes)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredPod:
    """A pod that is not asked about, and why; a silent one wished for that itself."""

    pod: PodView
    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProvisioningInput:
    """What a pass has to solve, and the pods that are settled without it.

    `waiting` are the pods whose place was decided before and still stands, by machine name: a
    claim under way, or a node the scheduler has not bound them to yet. `held` are the pools that
    are left out for a while, and why.
    """

    problem: Problem
    ignored: tuple[IgnoredPod, ...] = ()
    waiting: Mapping[str, tuple[PodView, ...]] = field(
        default_factory=dict[str, "tuple[PodView, ...]"],
    )
    held: Mapping[str, Refusal] = field(default_factory=dict[str, "Refusal"])
    set_aside: tuple[FailedJudgement, ...] = ()
    """Machines that are left out, since judging them failed; such pods are among `ignored`."""


def scheduling_problem(
    snapshot: Snapshot,
    *,
    now: datetime,
    framing: Framing | None = None,
) -> ProvisioningInput:
    """Ask for places for the pods that wait and for those whose nodes are going.

    A pod that was given a place keeps it while the place is good: the claim is under way, or the
    scheduler still has time to bind it. It is not asked about again, and its place is taken.
    """
    framing = framing or Framing()
    well_known, aliases = framing.well_known, framing.aliases
    nomination_window = framing.nomination_window
    volumes = Volumes(snapshot, aliases=aliases, unsupported=framing.unsupported_volumes)
    nominated, stranded = _nominated(snapshot, now=now, nomination_window=nomination_window)
    asking = {**snapshot.pending_pods, **stranded}
    candidates, ignored = _sorted_out(asking, volumes, well_known, aliases)
    failed = FailedJudgements()
    candidates.extend(leaving_pods(snapshot, now, failed=failed))
    capacity = Capacity(
        snapshot, well_known=WELL_KNOWN | well_known, aliases=aliases, volumes=volumes
    )
    places, homeless = _kept_places(
        snapshot, capacity, candidates, nominated, now=now, nomination_window=nomination_window
    )
    machines = sorted(
        (
            machine
            for machine in snapshot.state_nodes
            if not machine.marked_for_deletion and not has_lost_node(machine)
        ),
        key=lambda machine: (not machine.initialized, machine.name),
    )
    held = held_pools(snapshot, now=now, brakes=framing.brakes)
    pools = tuple(pool for pool in usable_pools(snapshot) if pool.name not in held)
    spread = DefaultSpread(snapshot, framing.default_spread)
    pods, asked_volumes = _completed(homeless, spread, volumes, ignored)
    problem = Problem(
        pods=pods,
        pools=pools,
        catalogues={pool.name: snapshot.catalogues[pool.name] for pool in pools},
        nodes=(
            *_open_nodes(capacity, machines, places, failed),
            *_closed_nodes(snapshot, capacity, machines, {pod.uid for pod in candidates}),
        ),
        daemons=capacity.daemons,
        pool_usage=pool_usage(snapshot),
        well_known=well_known,
        aliases=aliases,
        volumes=asked_volumes,
        namespaces={name: view.labels for name, view in snapshot.namespaces.items()},
        max_new_nodes=nodes_to_spare(snapshot, framing.brakes),
    )
    return ProvisioningInput(
        problem=problem,
        ignored=tuple(ignored),
        waiting={machine.name: tuple(pods) for machine, pods in places.items()},
        held=held,
        set_aside=failed.found,
    )


def _completed(
    homeless: Iterable[PodView],
    spread: DefaultSpread,
    volumes: Volumes,
    ignored: list[IgnoredPod],
) -> tuple[tuple[PodView, ...], dict[str, PodVolumes]]:
    """Return pods as they are to be placed, and what their volumes ask for, by UID."""
    pods: list[PodView] = []
    asked: dict[str, PodVolumes] = {}
    for pod in homeless:
        try:
            completed, wanted = spread.apply(pod), volumes.of(pod)
        except Exception as error:
            ignored.append(_unjudged(pod, error))
            continue
        pods.append(completed)
        if wanted is not None:
            asked[pod.uid] = wanted
    return tuple(pods), asked


def _unjudged(pod: PodView, error: Exception) -> IgnoredPod:
    return IgnoredPod(pod=pod, reason=failure_message(STEP, describe_failure(error)))


def _open_nodes(
    capacity: Capacity,
    machines: Iterable[StateNode],
    places: Mapping[StateNode, Sequence[PodView]],
    failed: FailedJudgements,
) -> list[ExistingNode]:
    nodes: list[ExistingNode] = []
    for machine in machines:
        with failed.judging(machine_ref(machine), STEP):
            nodes.append(capacity.existing_node(machine, places.get(machine, ())))
    return nodes


def usable_pools(snapshot: Snapshot) -> tuple[NodePool, ...]:
    """Return the pools that machines may be ordered from now, by name."""
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


def leaving_pods(
    snapshot: Snapshot, now: datetime, *, failed: FailedJudgements | None = None
) -> tuple[PodView, ...]:
    """Return the pods that will need another place because their nodes are on the way out.

    Pods that nobody may evict stay, and so does their node, unless a cloud takes the machine. What
    cannot be judged is told to `failed`.
    """
    failed = failed or FailedJudgements()
    leaving = [machine for machine in snapshot.state_nodes if machine.marked_for_deletion]
    if not leaving:
        return ()
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    pods: list[PodView] = []
    for machine in leaving:
        for pod in sorted(machine.pods, key=lambda item: item.uid):
            with failed.judging(pod_ref(pod), STEP):
                if budgets.is_reschedulable_now(pod, now) or (
                    pod.is_reschedulable and is_taken_soon(machine.claim, now)
                ):
                    pods.append(pod)
    return tuple(pods)


def _closed_nodes(
    snapshot: Snapshot,
    capacity: Capacity,
    machines: Iterable[StateNode],
    moving: Container[str],
) -> list[ExistingNode]:
    """Return every other Node on which pods stay: topology counts them until they are gone.

    Those are Nodes on their way out, and Nodes of ours that do not say yet whose they are. Pods
    that are `moving` (by UID) count where they go.
    """
    open_nodes = {machine.node.name for machine in machines if machine.node is not None}
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
    """Part the nominated pods into those that go to a machine and those whose node failed them.

    The latter are by UID. Of a pod that goes to a Node that is no machine nothing is to be said.
    """
    going: dict[StateNode, list[PodView]] = {}
    stranded: dict[str, PodView] = {}
    for uid, pod in sorted(snapshot.nominated_pods.items()):
        if not nomination_stands(snapshot, pod, now=now, window=nomination_window):
            stranded[uid] = pod
            continue
        machine = snapshot.state_nodes_by_node.get(pod.nominated_node_name)
        if machine is not None:
            going.setdefault(machine, []).append(pod)
    return going, stranded


def _sorted_out(
    asking: Mapping[str, PodView],
    volumes: Volumes,
    well_known: frozenset[str],
    aliases: Mapping[str, str],
) -> tuple[list[PodView], list[IgnoredPod]]:
    """Part the pods, by UID, into those to ask about and those to ignore; shapes are judged once."""
    good: list[PodView] = []
    ignored: list[IgnoredPod] = []
    verdicts: dict[int, tuple[str, bool]] = {}
    for _, pod in sorted(asking.items()):
        verdict = verdicts.get(id(pod.shape))
        try:
            if verdict is None:
                silent = opts_out(pod.shape, aliases=aliases)
                error = selector_error(pod.shape, well_known=well_known, aliases=aliases)
                verdict = ("the pod asks for a node of no NodePool" if silent else error, silent)
                verdicts[id(pod.shape)] = verdict
            reason, silent = verdict
            reason = reason or volumes.error(pod)
        except Exception as failure:
            ignored.append(_unjudged(pod, failure))
            continue
        if reason:
            ignored.append(IgnoredPod(pod=pod, reason=reason, silent=silent))
        else:
            good.append(pod)
    return good, ignored


def _kept_places(
    snapshot: Snapshot,
    capacity: Capacity,
    candidates: list[PodView],
    nominated: Mapping[StateNode, list[PodView]],
    *,
    now: datetime,
    nomination_window: timedelta,
) -> tuple[dict[StateNode, list[PodView]], list[PodView]]:
    """Part the pods into those that keep their place and those that need one.

    The scheduler may have filled a machine with others than it was planned for: of those that
    were to go there as many stay as there is room for. Nominated ones always do: for some of them
    the room is still being made.
    """
    kept = {machine: list(pods) for machine, pods in nominated.items()}
    wished: dict[StateNode, list[PodView]] = {}
    homeless: list[PodView] = []
    for pod in candidates:
        target = standing_place(snapshot, pod, now=now, window=nomination_window)
        if target is None:
            homeless.append(pod)
        else:
            wished.setdefault(target, []).append(pod)
    for machine, pods in wished.items():
        settled = kept.get(machine, [])
        taken, refused = capacity.parted(machine, settled, pods)
        homeless.extend(refused)
        if taken:
            kept[machine] = [*settled, *taken]
    return kept, homeless
