"""Defines `Command`: candidates, replacements and cause of one disruption."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from karpenter_core.api.prices import amount_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import PodView
    from karpenter_core.disruption.budgets import DisruptionReason
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import NodePrices
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = [
    "CandidateEvidence",
    "Command",
    "CommandDecision",
    "CommandEvidence",
    "command_evidence",
    "with_candidates",
]


class CommandDecision(StrEnum):
    """The action of a disruption command."""

    DELETE = "delete"
    REPLACE = "replace"
    NO_OP = "no-op"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEvidence:
    """Facts about one candidate at the time of the command."""

    claim: str
    node: str
    pool: str
    price: Price
    pods: int
    """Pods that would have to move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEvidence:
    """The facts of the snapshot that justify a command.

    `savings_per_hour` is the cost of the candidates less that of their replacements.
    `spared_by_budget` names the nodes that qualified and were kept by a budget, `alternatives` the
    savings per hour of the next best moves, by node.
    """

    snapshot_version: int
    candidates: tuple[CandidateEvidence, ...]
    savings_per_hour: float
    currency: str
    """Currency of the savings: that of all reports."""
    spared_by_budget: tuple[str, ...]
    alternatives: Mapping[str, float]

    @property
    def savings_text(self) -> str:
        """The savings as logs and Events show them."""
        return f"savings: {amount_text(self.savings_per_hour, self.currency, digits=2)}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Command:
    """One disruption. `id` names it in logs, Events and journal; `cause` is what triggered it."""

    id: str
    cause: str
    method: str
    reason: DisruptionReason
    candidates: tuple[Candidate, ...]
    replacements: tuple[PlannedNodeClaim, ...] = ()
    moves: Mapping[str, tuple[PodView, ...]] = field(
        default_factory=dict[str, "tuple[PodView, ...]"]
    )
    """Pods that move to existing nodes, by node name."""
    created: datetime
    evidence: CommandEvidence

    @property
    def decision(self) -> CommandDecision:
        """The action of the command."""
        if not self.candidates:
            return CommandDecision.NO_OP
        return CommandDecision.REPLACE if self.replacements else CommandDecision.DELETE

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the candidates' pools."""
        return tuple(sorted({candidate.pool.name for candidate in self.candidates}))

    def __str__(self) -> str:
        """Write the command as logs show it."""
        text = f"{self.reason}/{self.id}: {self.decision}: nodepools=[{', '.join(self.pools)}]: "
        return f"{text}{self._describe_change} ({self.evidence.savings_text})"

    @property
    def _describe_change(self) -> str:
        text = f"[{', '.join(candidate.node.name for candidate in self.candidates)}]"
        if self.replacements:
            count = len(self.replacements)
            text += f" -> [{count} replacement{'s' if count > 1 else ''}]"
        return text

    def describe_for(self, candidate: Candidate) -> str:
        """Write what the command does to one of its candidates, as Events show it."""
        if len(self.candidates) == 1:
            return f"{self.decision}: {self._describe_change}"
        part = f"(part of {len(self.candidates)}-node consolidation)"
        return f"{self.decision}: [{candidate.node.name}] {part}"


def with_candidates(command: Command, kept: Sequence[Candidate], prices: NodePrices) -> Command:
    """Return a command without replacements, reduced to the candidates in `kept`."""
    names = {candidate.name for candidate in kept}
    spared = prices.cost_per_hour(item for item in command.candidates if item.name not in names)
    moving = {pod.uid for candidate in kept for pod in candidate.reschedulable_pods}
    moves = {
        name: tuple(pod for pod in pods if pod.uid in moving)
        for name, pods in command.moves.items()
    }
    return replace(
        command,
        candidates=tuple(kept),
        moves={name: pods for name, pods in moves.items() if pods},
        evidence=replace(
            command.evidence,
            candidates=tuple(item for item in command.evidence.candidates if item.claim in names),
            savings_per_hour=command.evidence.savings_per_hour - spared,
        ),
    )


def command_evidence(
    snapshot_version: int,
    candidates: tuple[Candidate, ...],
    *,
    savings_per_hour: float,
    currency: str,
    spared_by_budget: tuple[str, ...],
    alternatives: Mapping[str, float] | None = None,
) -> CommandEvidence:
    """Return the evidence for a command with these candidates."""
    return CommandEvidence(
        snapshot_version=snapshot_version,
        candidates=tuple(
            CandidateEvidence(
                claim=candidate.claim.name,
                node=candidate.node.name,
                pool=candidate.pool.name,
                price=candidate.price,
                pods=len(candidate.reschedulable_pods),
            )
            for candidate in candidates
        ),
        savings_per_hour=savings_per_hour,
        currency=currency,
        spared_by_budget=spared_by_budget,
        alternatives=alternatives or {},
    )
