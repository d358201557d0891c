"""Notes beside a plan about objects that it did not take into account.

Notes change no decision. An unused NodePool, pods on a node that is not in the input, or a node on
which nothing can fit would otherwise seem to be mistakes of the planner.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.labels import PODS, SCHEDULES, SPOT_SHARE
from karpenter_core.api.quantities import format_amount
from karpenter_core.api.spot_share import OTHER_NODES, SPOT_NODES, spot_share_error
from karpenter_core.cli.name_lists import some_names
from karpenter_core.lifecycle.nodepool.launches_held_back import LAUNCHES_HELD_BACK
from karpenter_core.scheduling.resources import merge
from karpenter_core.state.request_predictions import RequestPredictions

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from datetime import datetime

    from karpenter_core.api.pool_schedules import PoolWindow
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import LaunchQuota, SchedulingProblem
    from karpenter_core.state.pool_schedules import PoolSchedule
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "commitment_notes",
    "plan_notes",
    "predicted_change",
    "prediction_notes",
    "quota_notes",
    "schedule_notes",
    "spot_share_notes",
    "unmanaged_notes",
]

_SHOWN: Final = 5


def plan_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the notes, one line each."""
    return (
        *_pods_on_unknown_nodes(snapshot),
        *_nodes_left_out(snapshot),
        *_nodes_without_room_for_pods(snapshot),
        *_pools_held_back(snapshot),
    )


def unmanaged_notes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a note if there are nodes without a NodeClaim, which no disruption removes."""
    count = sum(not each.managed for each in snapshot.state_nodes)
    if not count:
        return ()
    verbs = ("has", "stays") if count == 1 else ("have", "stay")
    return (
        (
            f"{_count(count, 'node')} {verbs[0]} no NodeClaim of a loaded provider and {verbs[1]}; `karpenter run --observe "
            "--observe-nodes LABEL` compares the price of such nodes with a fresh plan"
        ),
    )


def quota_notes(quotas: Iterable[LaunchQuota]) -> tuple[str, ...]:
    """Return a note about each quota that refuses launches: it cannot be read, or is used up."""
    notes: list[str] = []
    for quota in quotas:
        if quota.refusal:
            notes.append(f"{quota.refusal}; no node is planned that it may count")
            continue
        spent = [
            f"{name}: {format_amount(name, used)} of {format_amount(name, limit)}"
            for name, limit in sorted(quota.limits.items())
            if (used := quota.used.get(name, 0)) >= limit
        ]
        if spent:
            notes.append(
                f"{quota.name} is used up ({', '.join(spent)}); no node is planned that it counts"
            )
    return tuple(notes)


def spot_share_notes(problem: SchedulingProblem) -> tuple[str, ...]:
    """Return a note about each NodePool with a share of spot: which nodes count for it."""
    notes: list[str] = []
    for pool in sorted(problem.pools, key=lambda pool: pool.name):
        share = pool.metadata.annotations.get(SPOT_SHARE)
        if share is not None and not spot_share_error(pool):
            usage = problem.pool_usage.get(pool.name, {})
            spot, others = usage.get(SPOT_NODES, 0), usage.get(OTHER_NODES, 0)
            notes.append(
                f'nodepool "{pool.name}" has a spot share of {share}: {spot} of its '
                f"{_count(spot + others, 'node')} {'is' if spot == 1 else 'are'} spot before this plan"
            )
    return tuple(notes)


def schedule_notes(snapshot: Snapshot, pools: Container[str] | None = None) -> tuple[str, ...]:
    """Return a note about the schedules of each NodePool: its open windows and the next edge.

    With `pools`, of these NodePools only.
    """
    return tuple(
        f'nodepool "{name}": {_schedule_text(schedule)}'
        for name, schedule in sorted(snapshot.pool_schedules.items())
        if pools is None or name in pools
    )


def _schedule_text(schedule: PoolSchedule) -> str:
    if schedule.error:
        return f"it launches nothing and no node is disrupted: {schedule.error}"
    opened = [f"{one} {_effects(one.window)}" for one in schedule.open]
    texts = opened or [f"no window of {SCHEDULES} is open"]
    if schedule.next_edge is not None:
        texts.append(f"{schedule.next_edge}")
    return "; ".join(texts)


def commitment_notes(problem: SchedulingProblem) -> tuple[str, ...]:
    """Return a note about each commitment: what nodes use of it before the plan."""
    return tuple(
        f'commitment "{each.commitment.name}": '
        f"{format_amount(each.commitment.resource, each.used)} of "
        f"{format_amount(each.commitment.resource, each.commitment.amount)} "
        f"{each.commitment.resource} is used before this plan"
        for each in problem.commitments
    )


def predicted_change(
    predictions: RequestPredictions, pods: Iterable[PodView]
) -> tuple[int, dict[str, str]]:
    """Return how many pods that may move come back with other requests, and by how much in total."""
    changes = [
        change for pod in pods if pod.is_reschedulable and (change := predictions.change(pod))
    ]
    amounts = {
        name: format_amount(name, amount)
        for name, amount in sorted(merge(changes).items())
        if amount
    }
    return len(changes), amounts


def prediction_notes(snapshot: Snapshot, now: datetime) -> tuple[str, ...]:
    """Return a note about the pods whose requests VerticalPodAutoscalers change when they move."""
    pods = chain.from_iterable(snapshot.pods_by_node.values())
    count, amounts = predicted_change(RequestPredictions(snapshot, now), pods)
    if not count:
        return ()
    change = ", ".join(f"{name} {amount}" for name, amount in amounts.items()) or "nothing in total"
    text = f"{_count(count, 'pod')} on nodes: VerticalPodAutoscalers change the requests when they move"
    return (f"{text}, by {change}",)


def _effects(window: PoolWindow) -> str:
    """Return what an open window changes."""
    if window.shutdown:
        return "shuts it down"
    effects = [f"limits.{name} to {amount}" for name, amount in sorted(window.limits.items())]
    if window.replicas is not None:
        effects.append(f"replicas to {window.replicas}")
    if window.consolidation_policy is not None:
        effects.append(f"consolidationPolicy to {window.consolidation_policy}")
    if window.consolidate_after is not None:
        effects.append(f"consolidateAfter to {window.consolidate_after}")
    return f"sets {', '.join(effects)}"


def _pods_on_unknown_nodes(snapshot: Snapshot) -> Iterator[str]:
    unknown = {name: len(pods) for name, pods in snapshot.pods_by_node.items()
               if name not in snapshot.nodes}  # fmt: skip
    if unknown:
        yield (
            f"{_count(sum(unknown.values()), 'pod')} bound to nodes that are not there: "
            f"{some_names(sorted(unknown), _SHOWN)}; they count nowhere"
        )


def _nodes_left_out(snapshot: Snapshot) -> Iterator[str]:
    """Name nodes of NodePools that do not count as capacity yet, as in the controller."""
    left_out = [
        name
        for name, node in snapshot.nodes.items()
        if name not in snapshot.state_nodes_by_node
        and not node.is_deleting
        and not snapshot.claims_of(node)
    ]
    if left_out:
        yield (
            f"{_count(len(left_out), 'node')} not taken for capacity (of a NodePool without "
            f"providerID, or with the providerID of another node): {some_names(sorted(left_out), _SHOWN)}"
        )


def _nodes_without_room_for_pods(snapshot: Snapshot) -> Iterator[str]:
    silent = [name for name, node in snapshot.nodes.items() if PODS not in node.allocatable]
    if silent:
        yield (
            f"{_count(len(silent), 'node')} whose status.allocatable says nothing of {PODS}: "
            f"{some_names(sorted(silent), _SHOWN)}; nothing fits there"
        )


def _pools_held_back(snapshot: Snapshot) -> Iterator[str]:
    """Name the NodePools whose launches the controller limits now; a plan does not know this."""
    for name, pool in sorted(snapshot.node_pools.items()):
        held = find_condition(pool.status.conditions, LAUNCHES_HELD_BACK)
        if held is not None and held.status == TRUE:
            yield f'nodepool "{name}" is held back: {held.message}'


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
