"""Answers what-ifs of nodes with devices by planning the whole pass.

The compiled state knows nothing of devices. Such nodes are few, and a plan of their pods alone is
small.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.node_pods import with_pods
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.whatif.what_if_question import WhatIfOutcome, WhatIfVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
    from karpenter_core.scheduling.problem import (
        PlannedNodeClaim,
        SchedulingPlan,
        SchedulingProblem,
        SolveOptions,
    )

__all__ = ["device_verdict", "has_devices", "without_waiting_device_pods"]


@final
class _PlannedMoves:
    """A plan as the result of a what-if; see `SolverRun`."""

    def __init__(self, plan: SchedulingPlan, pods: Iterable[PodView]) -> None:
        self._plan: Final = plan
        self.left: Final = tuple(pod for pod in pods if pod.uid in plan.unschedulable)
        self.cost_per_hour: Final = fsum(claim.cheapest.price_per_hour for claim in plan.claims)
        self.sequence: Final = plan.sequence

    def moves(self) -> tuple[tuple[str, tuple[PodView, ...]], ...]:
        """Return what goes to nodes."""
        return tuple(self._plan.existing.items())

    def planned(self) -> tuple[PlannedNodeClaim, ...]:
        """Return the new claims."""
        return self._plan.claims


def has_devices(pods: Iterable[PodView], problem: SchedulingProblem) -> bool:
    """Tell whether devices have to be allocated for some of the pods."""
    return problem.devices is not None and any(pod.shape.resource_claims for pod in pods)


def device_verdict(
    removed: tuple[str, ...],
    problem: SchedulingProblem,
    options: SolveOptions,
    cache: CatalogueCache,
    *,
    below_price: float,
    max_claims: int | None,
) -> WhatIfVerdict:
    """Return the verdict on removing nodes; `problem` is the pass without them."""
    plan = solve(problem, options, cache=cache)
    moves = _PlannedMoves(plan, problem.pods)
    if moves.left:
        outcome = WhatIfOutcome.LEFT
    elif not plan.claims:
        outcome = WhatIfOutcome.FITS
    elif max_claims is not None and len(plan.claims) > max_claims:
        outcome = WhatIfOutcome.TOO_MANY
    elif moves.cost_per_hour >= below_price:
        outcome = WhatIfOutcome.TOO_DEAR
    else:
        outcome = WhatIfOutcome.CLAIMS
    return WhatIfVerdict(removed, outcome, moves.moves(), moves)


def without_waiting_device_pods(
    problem: SchedulingProblem, options: SolveOptions, cache: CatalogueCache
) -> SchedulingProblem:
    """Return a problem whose pending pods with claims are on the nodes that have devices for them.

    The places that they will take are not given to others. Those that need new nodes are left out.
    """
    if not has_devices(problem.pods, problem):
        return problem
    waiting = tuple(pod for pod in problem.pods if pod.shape.resource_claims)
    plan = solve(replace(problem, pods=waiting), options, cache=cache)
    uids = {pod.uid for pod in waiting}
    return replace(
        problem,
        pods=tuple(pod for pod in problem.pods if not pod.shape.resource_claims),
        nodes=tuple(
            with_pods(
                replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in uids)),
                plan.existing.get(node.name, ()),
                problem.volumes,
            )
            for node in problem.nodes
        ),
    )
