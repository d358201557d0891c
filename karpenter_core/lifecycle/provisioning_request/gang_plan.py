"""Judges a plan for one ProvisioningRequest: places for all pods, or none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from karpenter_core.api.provisioning_request import (
    GANG_ATTEMPT,
    GANG_PODS,
    GANG_REQUEST,
    GANG_SIZE,
    GANG_UID,
)
from karpenter_core.lifecycle.provisioning_request.status import attempt_number
from karpenter_core.state.gang_places import format_pods, pod_counts, pod_set_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import PlannedNodeClaim, SchedulingPlan
    from karpenter_core.state.gang_places import Places
    from karpenter_core.state.provisioning_input import ProvisioningInput

__all__ = ["GangPlan", "PodSetsPlan", "attempt_annotations", "judge_plan", "partial_plan_steps"]

_SHOWN_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlan:
    """The verdict on a plan: `problem` says why it is of no use; empty if all pods have a place.

    `places` are those on capacity that exists.
    """

    problem: str = ""
    places: Places = field(default_factory=dict[str, "Mapping[int, int]"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetsPlan:
    """The pod sets, by index, whose pods all have a place on capacity that exists, and the places."""

    pod_sets: tuple[int, ...] = ()
    places: Places = field(default_factory=dict[str, "Mapping[int, int]"])


def partial_plan_steps(
    gang: tuple[PodView, ...],
) -> Generator[tuple[PodView, ...], GangPlan, PodSetsPlan]:
    """Return the pod sets that fit, in their order: each is tried with those before it that fit.

    Yields the pods to plan together, and is sent the verdict on their plan.
    """
    found, chosen = PodSetsPlan(), ()
    for index, group in groupby(gang, key=pod_set_of):
        tried: tuple[PodView, ...] = (*chosen, *group)
        verdict = yield tried
        if not verdict.problem:
            chosen = tried
            found = PodSetsPlan(pod_sets=(*found.pod_sets, index), places=verdict.places)
    return found


def judge_plan(
    gang: tuple[PodView, ...], provisioning_input: ProvisioningInput, plan: SchedulingPlan
) -> GangPlan:
    """Return whether every pod of a gang has a place, and the places on existing capacity."""
    placed = {pod.uid for pods in plan.existing.values() for pod in pods}
    placed.update(pod.uid for claim in plan.claims for pod in claim.pods)
    missing = [pod for pod in gang if pod.uid not in placed]
    if missing:
        reasons = Counter(_reason(pod, provisioning_input, plan) for pod in missing)
        shown = "; ".join(text for text, _ in reasons.most_common(_SHOWN_REASONS))
        return GangPlan(problem=f"{len(missing)} of {len(gang)} pod(s) have no place: {shown}")
    nodes = {node.name: node for node in provisioning_input.problem.nodes}
    places = {
        nodes[name].claim_name or nodes[name].node_name: pod_counts(pods)
        for name, pods in plan.existing.items()
    }
    return GangPlan(places=places)


def attempt_annotations(
    request: ProvisioningRequest, claims: tuple[PlannedNodeClaim, ...]
) -> tuple[dict[str, str], ...]:
    """Return the annotations of the NodeClaims of the attempt that has just started."""
    common = {
        GANG_REQUEST: request.key,
        GANG_UID: request.uid,
        GANG_ATTEMPT: str(attempt_number(request)),
        GANG_SIZE: str(len(claims)),
    }
    return tuple({**common, GANG_PODS: format_pods(pod_counts(claim.pods))} for claim in claims)


def _reason(pod: PodView, provisioning_input: ProvisioningInput, plan: SchedulingPlan) -> str:
    for item in provisioning_input.ignored:
        if item.pod.uid == pod.uid:
            return item.reason
    unschedulable = plan.unschedulable.get(pod.uid)
    if unschedulable is not None:
        return unschedulable.message
    return "the pass took too long and was stopped"
