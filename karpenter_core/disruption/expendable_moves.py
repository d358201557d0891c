"""Tells whether expendable pods of removed nodes would take room of buffers.

A what-if gives expendable pods no other place, as no node is launched or kept for them. Kubernetes'
scheduler binds them again wherever there is room, and knows nothing of buffers. A buffer that lost
its room gets a new node, so that a node with such pods would be removed and bought again for ever. It
keeps the room that it has when preemptible ones take it (`state.preemptible_room`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.problem import PackingPolicy
from karpenter_core.scheduling.resources import fits, merge, subtract
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.expendable_pods import expendable_reason, is_preemptible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.scheduling.problem import PlannedNodeClaim, SolveOptions
    from karpenter_core.scheduling.whatif.what_if import WhatIfVerdict
    from karpenter_core.state.provisioning_input import ProblemSettings
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ExpendableMoves"]


@final
class ExpendableMoves:
    """Finds places for the expendable pods of one snapshot, on existing nodes only."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        problem_settings: ProblemSettings,
        options: SolveOptions,
    ) -> None:
        self._snapshot: Final = snapshot
        self._now: Final = now
        self._problem_settings: Final = problem_settings
        self._options: Final = replace(options, packing=PackingPolicy.FIRST_FIT)

    def taking_buffer_room(self, candidates: Sequence[Candidate], verdict: WhatIfVerdict) -> int:
        """Return how many expendable pods of a move find room only where a buffer has it."""
        if not self._snapshot.has_virtual_pods:
            return 0
        cutoff = self._problem_settings.priority_cutoff
        expendable = {
            pod.uid: pod
            for candidate in candidates
            for pod in candidate.state_node.pods
            if expendable_reason(pod.shape, cutoff) and not is_preemptible(pod, cutoff)
        }
        if not expendable:
            return 0
        beside_buffers, anywhere = self._whatifs
        settled = _placed(beside_buffers, verdict.removed)
        homeless = [pod for uid, pod in expendable.items() if uid not in settled]
        taking = _placed(anywhere, verdict.removed) if homeless else frozenset[str]()
        rooms = [room for claim in verdict.claims if (room := self._buffer_room(claim))]
        return sum(
            pod.uid in taking or any(fits(pod.shape.requests, room) for room in rooms)
            for pod in homeless
        )

    def _buffer_room(self, claim: PlannedNodeClaim) -> dict[str, int]:
        """Return what a new node has free for pods that come before those of buffers, if it has any."""
        virtual = [pod.shape.requests for pod in claim.pods if pod.is_virtual]
        catalogue = self._snapshot.catalogues.get(claim.pool)
        cheapest = claim.instance_types[0]
        types = () if catalogue is None or not virtual else catalogue.instance_types
        for instance_type in types:
            if instance_type.name == cheapest:
                used = subtract(claim.requests, merge(virtual))
                return subtract(instance_type.allocatable(), used)
        return {}

    @cached_property
    def _whatifs(self) -> tuple[WhatIf, WhatIf]:
        """Two clusters: with the virtual pods in their places, and without any."""
        problem, movable = build_disruption_problem(
            self._snapshot,
            now=self._now,
            problem_settings=self._problem_settings,
            moves_expendable=True,
        )
        problem = replace(problem, pools=(), catalogues={})
        real = tuple(pod for pod in problem.pods if not pod.is_virtual)
        return (
            WhatIf(problem, movable, self._options),
            WhatIf(replace(problem, pods=real), movable, self._options),
        )


def _placed(whatif: WhatIf, removed: Iterable[str]) -> frozenset[str]:
    """Return the UIDs of the pods that find a place on other nodes when nodes are removed."""
    verdict = whatif.evaluate(removed)
    return frozenset(pod.uid for _, pods in verdict.placements for pod in pods)
