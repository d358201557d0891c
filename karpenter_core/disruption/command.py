"""A Command: one disruption, with what it takes, what comes instead, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import PodView
    from karpenter_core.disruption.budgets import DisruptionReason
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import Prices
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["CandidateProof", "Command", "Decision", "Proof", "prove", "shortened"]


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

    `savings_per_hour` is what the machines cost less what replaces them. `held_back` names the
    machines that qualified too and were spared by a budget, `alternatives` what the next best moves
    would save per hour, by node.
    """

    snapshot_version: int
    candidates: tuple[CandidateProof, ...]
    savings_per_hour: float = 0.0
    held_back: tuple[str, ...] = ()
    alternatives: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Command:
    """One disruption. `id` names it in logs, Events and journal; `cause` says what led to it."""

    id: str
    cause: str
    method: str
    reason: DisruptionReason
    candidates: tuple[Candidate, ...]
    replacements: tuple[PlannedNodeClaim, ...] = ()
    moves: Mapping[str, tuple[PodView, ...]] = field(
        default_factory=dict[str, "tuple[PodView, ...]"]
    )
    """Where pods go that do not need a replacement, by machine name."""
    created: datetime
    proof: Proof

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
        """Write the command the way logs show it."""
        text = f"{self.reason}/{self.id}: {self.decision}: nodepools=[{', '.join(self.pools)}]: "
        return f"{text}{self._change} (savings: ${self.proof.savings_per_hour:.2f})"

    @property
    def _change(self) -> str:
        text = f"[{', '.join(candidate.node.name for candidate in self.candidates)}]"
        if self.replacements:
            count = len(self.replacements)
            text += f" -> [{count} replacement{'s' if count > 1 else ''}]"
        return text

    def part_of(self, candidate: Candidate) -> str:
        """Write what the command means for one of its candidates, the way Events show it."""
        if len(self.candidates) == 1:
            return f"{self.decision}: {self._change}"
        part = f"(part of {len(self.candidates)}-node consolidation)"
        return f"{self.decision}: [{candidate.node.name}] {part}"


def shortened(command: Command, kept: Sequence[Candidate], prices: Prices) -> Command:
    """Return a command without replacements for some of its candidates; the others stay."""
    names = {candidate.name for candidate in kept}
    spared = prices.of(item for item in command.candidates if item.name not in names)
    moving = {pod.uid for candidate in kept for pod in candidate.reschedulable_pods}
    moves = {
        name: tuple(pod for pod in pods if pod.uid in moving)
        for name, pods in command.moves.items()
    }
    return replace(
        command,
        candidates=tuple(kept),
        moves={name: pods for name, pods in moves.items() if pods},
        proof=replace(
            command.proof,
            candidates=tuple(item for item in command.proof.candidates if item.claim in names),
            savings_per_hour=command.proof.savings_per_hour - spared,
        ),
    )


def prove(
    snapshot_version: int,
    candidates: tuple[Candidate, ...],
    *,
    savings_per_hour: float,
    held_back: tuple[str, ...] = (),
    alternatives: Mapping[str, float] | None = None,
) -> Proof:
    """Write down why these candidates go."""
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
        savings_per_hour=savings_per_hour,
        held_back=held_back,
        alternatives=alternatives or {},
    )
