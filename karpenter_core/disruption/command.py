"""A Command: one disruption, with what it takes, what comes instead, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.prices import Price
    from karpenter_core.disruption.budgets import DisruptionReason
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["CandidateProof", "Command", "Decision", "Proof"]


class Decision(StrEnum):
    """What a command does."""

    DELETE = "delete"
    REPLACE = "replace"
    NO_OP = "no-op"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateProof:
    """What was known of one candidate when the command was made."""

    claim: str
    node: str
    pool: str
    price: Price
    pods: int
    """Pods that would have to move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Why a command is right, as far as the snapshot tells.

    `savings_per_hour` is what the machines cost less what replaces them, in the candidates'
    currency. `held_back` names the machines that qualified too and the budget that spared them.
    """

    snapshot_version: int
    candidates: tuple[CandidateProof, ...]
    savings_per_hour: float = 0.0
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Command:
    """One disruption. `id` names it in logs, Events and journal; `cause` says what led to it."""

    id: str
    cause: str
    method: str
    reason: DisruptionReason
    candidates: tuple[Candidate, ...]
    replacements: tuple[PlannedNodeClaim, ...] = ()
    created: datetime
    proof: Proof = field(kw_only=True)

    @property
    def decision(self) -> Decision:
        """What the command does."""
        if not self.candidates:
            return Decision.NO_OP
        return Decision.REPLACE if self.replacements else Decision.DELETE

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools it touches."""
        return tuple(sorted({candidate.pool.name for candidate in self.candidates}))

    @property
    def pod_count(self) -> int:
        """How many pods have to move."""
        return sum(len(candidate.reschedulable_pods) for candidate in self.candidates)

    def __str__(self) -> str:
        """Write the command the way logs and Events show it."""
        nodes = ", ".join(candidate.node.name for candidate in self.candidates)
        text = f"{self.reason}/{self.id}: {self.decision}: "
        text += f"nodepools=[{', '.join(self.pools)}]: [{nodes}]"
        if self.replacements:
            count = len(self.replacements)
            text += f" -> [{count} replacement{'s' if count > 1 else ''}]"
        return f"{text} (savings: ${self.proof.savings_per_hour:.2f})"


def prove(
    snapshot_version: int, candidates: tuple[Candidate, ...], *, held_back: tuple[str, ...] = ()
) -> Proof:
    """Write down why these candidates go, nothing coming in their place."""
    return Proof(
        snapshot_version=snapshot_version,
        candidates=tuple(
            CandidateProof(
                claim=candidate.claim.name,
                node=candidate.node.name,
                pool=candidate.pool.name,
                price=candidate.price,
                pods=len(candidate.reschedulable_pods),
            )
            for candidate in candidates
        ),
        savings_per_hour=sum(candidate.price.amount for candidate in candidates),
        held_back=held_back,
    )
