"""Writes commands as records of the decision journal."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.decisions import (
    DISRUPT,
    Decision,
    DecisionCandidate,
    DecisionMethodResult,
    DecisionPlacement,
    bounded,
    obstacles_of,
)
from karpenter_core.api.judgements import JUDGEMENT_FAILED
from karpenter_core.api.notices import ObjectRef, node_ref
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.journal import planned_launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.decisions import DecisionObstacle
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.plan import DisruptionPlan

__all__ = ["command_decision"]

_OBSTACLES: Final = ("DisruptionBlocked", "Unconsolidatable", JUDGEMENT_FAILED)
"""Reasons of the Events that say why a node is not disrupted."""


def command_decision(
    command: Command,
    plan: DisruptionPlan,
    *,
    rejection: str,
    obstacles: Sequence[DecisionObstacle],
    currency: str,
) -> Decision:
    """Return the record of a command; `plan` is the plan that it comes from.

    `rejection` is the reason why it was given up, `obstacles` are those of the command itself.
    Prices are in the reporting currency.
    """
    after = fsum(planned.cheapest.price_per_hour for planned in command.replacements)
    return Decision(
        id=command.id,
        cause=command.cause,
        kind=DISRUPT,
        at=command.created,
        summary=str(command),
        inputs=plan.inputs,
        method=command.method,
        reason=str(command.reason),
        rejection=rejection,
        price_per_hour_before=Price(command.evidence.savings_per_hour + after, currency),
        price_per_hour_after=Price(after, currency),
        alternatives=dict(command.evidence.alternatives),
        methods=tuple(
            DecisionMethodResult(
                method=report.method.name,
                eligible=report.eligible,
                constrained=report.constrained,
                cut_short=report.is_cut_short,
            )
            for report in plan.reports
        ),
        **bounded(
            objects=[ref for item in command.candidates for ref in _refs(item)],
            candidates=[
                DecisionCandidate(
                    node=item.node,
                    node_claim=item.claim,
                    node_pool=item.pool,
                    price_per_hour=item.price,
                    pods=item.pods,
                )
                for item in command.evidence.candidates
            ],
            launches=[
                planned_launch(planned, name="", currency=currency)
                for planned in command.replacements
            ],
            placements=[
                DecisionPlacement(node=name, pods=len(pods))
                for name, pods in sorted(command.moves.items())
            ],
            held_back=command.evidence.spared_by_budget,
            obstacles=[
                *obstacles,
                *obstacles_of(
                    (*plan.notices, *(item.notice for item in plan.set_aside)),
                    kinds=("Node", "NodePool"),
                    reasons=_OBSTACLES,
                ),
            ],
        ),
    )


def _refs(candidate: Candidate) -> tuple[ObjectRef, ObjectRef]:
    node = candidate.node
    return (
        candidate.claim.ref,
        node_ref(node),
    )
