"""Separates the virtual pods of a plan from its real ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from karpenter_core.api.records import PodView, VirtualSource
    from karpenter_core.scheduling.problem import SchedulingPlan

__all__ = [
    "VirtualPlacement",
    "virtual_placements",
    "with_covered_pods",
    "without_virtual_pods",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualPlacement:
    """The places of one source's virtual pods: numbers of pods.

    `undecided` pods were not reached, because the pass was cut short.
    """

    wanted: int
    on_existing: int
    on_new: int
    failed: int

    @property
    def undecided(self) -> int:
        """Number of pods that the pass did not reach."""
        return self.wanted - self.on_existing - self.on_new - self.failed


def virtual_placements(
    plan: SchedulingPlan,
    pods: Mapping[VirtualSource, Collection[PodView]],
    *,
    refused: Iterable[int] = (),
) -> dict[VirtualSource, VirtualPlacement]:
    """Return where a plan puts the virtual pods of every source that has any.

    Pods on claims that were `refused` (by their index in the plan) have failed.
    """
    existing = {pod.uid for members in plan.existing.values() for pod in members if pod.is_virtual}
    without_claim = frozenset(refused)
    new: set[str] = set()
    failed = {*plan.unschedulable}
    for number, claim in enumerate(plan.claims):
        uids = (pod.uid for pod in claim.pods if pod.is_virtual)
        (failed if number in without_claim else new).update(uids)
    return {
        source: VirtualPlacement(
            wanted=len(members),
            on_existing=sum(pod.uid in existing for pod in members),
            on_new=sum(pod.uid in new for pod in members),
            failed=sum(pod.uid in failed for pod in members),
        )
        for source, members in pods.items()
        if members
    }


def with_covered_pods(
    plan: SchedulingPlan, covered: Mapping[str, tuple[PodView, ...]]
) -> SchedulingPlan:
    """Return a plan that has more virtual pods on nodes; the same object if there are none."""
    if not covered:
        return plan
    existing = {
        name: (*plan.existing.get(name, ()), *covered.get(name, ()))
        for name in (*plan.existing, *(name for name in covered if name not in plan.existing))
    }
    return replace(plan, existing=existing)


def without_virtual_pods(plan: SchedulingPlan, virtual_uids: Collection[str]) -> SchedulingPlan:
    """Return a plan as far as it concerns real pods; the same object if there are no others.

    Its claims stay, also those for virtual pods alone; nodes that get only virtual pods do not.
    """
    if not virtual_uids:
        return plan
    existing = {name: _real(pods) for name, pods in plan.existing.items()}
    return replace(
        plan,
        claims=tuple(replace(claim, pods=_real(claim.pods)) for claim in plan.claims),
        existing={name: pods for name, pods in existing.items() if pods},
        unschedulable={
            uid: reason for uid, reason in plan.unschedulable.items() if uid not in virtual_uids
        },
        sequence=tuple(uid for uid in plan.sequence if uid not in virtual_uids),
    )


def _real(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    return tuple(pod for pod in pods if not pod.is_virtual)
