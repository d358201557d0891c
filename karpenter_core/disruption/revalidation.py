"""The second look at a consolidation: everything must still hold, on the cluster as it is now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.disruption.budgets import pool_budgets
from karpenter_core.disruption.command import prove
from karpenter_core.disruption.consolidation import Move, best_move, within_budgets
from karpenter_core.disruption.validation import Rejection, Verdict

if TYPE_CHECKING:
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Method, Pass, Steps

__all__ = ["revalidate_steps"]


def revalidate_steps(method: Method, command: Command, look: Pass) -> Steps[Verdict]:
    """Ask again what was asked, and take the new answer if it is of the same kind.

    All candidates must have remained ones, their budgets must have room, and what is to be
    launched must be something that the new answer allows too.
    """
    failed = len(command.candidates)
    found = {
        item.claim.uid: item
        for item in look.candidates(method.disruption_class).candidates
        if method.accept(item, look).accepted
    }
    alive = [found[c.claim.uid] for c in command.candidates if c.claim.uid in found]
    if len(alive) < failed:
        return Verdict(rejection=Rejection.CHURN, failed=failed)
    _, over = within_budgets(alive, pool_budgets(look.snapshot, method.reason, now=look.now))
    if over:
        return Verdict(rejection=Rejection.BUDGET, failed=failed)
    yield from look.simulation.prepare_steps(peaceful=True)
    move = best_move(look, alive, most_claims=max(len(command.replacements), 1))
    if not isinstance(move, Move) or not _is_alike(command, move):
        return Verdict(rejection=Rejection.SCHEDULING, failed=failed)
    return Verdict(
        command=replace(
            command,
            candidates=move.candidates,
            replacements=move.replacements,
            moves=move.verdict.moves,
            proof=prove(
                look.snapshot.version,
                move.candidates,
                savings_per_hour=move.savings_per_hour,
                held_back=command.proof.held_back,
                alternatives=command.proof.alternatives,
            ),
        )
    )


def _is_alike(command: Command, move: Move) -> bool:
    """Tell whether a new answer needs as many machines, of which the old ones are examples."""
    if len(command.replacements) != len(move.replacements):
        return False
    if len(command.replacements) != 1:
        return True
    (old,), (new,) = command.replacements, move.verdict.claims
    return set(old.instance_types) <= set(new.instance_types)
