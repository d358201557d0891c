"""What the consolidating methods have in common: which machines, and what a move comes to.

A move takes some candidates away and puts something cheaper in their place, or nothing. Whether
their pods have places is answered by the simulation; here is what it may cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.disruption.candidates import Candidate, machine_notices
from karpenter_core.disruption.command import Command, prove
from karpenter_core.disruption.floors import least_savings
from karpenter_core.disruption.method import Acceptance, Declined
from karpenter_core.disruption.pricing import Refused
from karpenter_core.disruption.simulation import leftover_message
from karpenter_core.scheduling.whatif.what_if import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.method import Method, Pass
    from karpenter_core.disruption.pricing import Prices
    from karpenter_core.scheduling.problem import PlannedNodeClaim
    from karpenter_core.scheduling.whatif.what_if import Verdict

__all__ = [
    "UNCONSOLIDATABLE_WINDOW",
    "Move",
    "Refusal",
    "accept",
    "best_move",
    "by_savings",
    "candidate_notices",
    "command_of",
    "consolidation_disabled",
    "each_within_budget",
    "rejection_notices",
    "renewed",
    "still_accepted",
    "unconsolidatable",
    "within_budgets",
]

UNCONSOLIDATABLE_WINDOW: Final = timedelta(minutes=15)  # upstream default
_WHEN_EMPTY: Final = "WhenEmpty"
_TOO_DEAR: Final = "Can't replace with a cheaper node"
_ROUNDING: Final = 1e-9
"""A price per hour that is nothing: floors are shares, and sums of prices are not exact."""
_SPOT_FLEXIBILITY: Final = 15
"""Types that a spot node needs to be replaced by spot one for one, and that are sent to launch.

What is launched is then among the cheapest fifteen, so a chain of replacements ends (upstream)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Move:
    """Candidates that can go, and what comes in their place."""

    candidates: tuple[Candidate, ...]
    verdict: Verdict
    replacements: tuple[PlannedNodeClaim, ...] = ()
    savings_per_hour: float
    """At the price of the cheapest type that each replacement may become."""

    @property
    def disturbance(self) -> float:
        """What moving its pods costs."""
        return sum(candidate.reschedule_cost for candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why candidates cannot go, as Events say it; empty when nothing is to be said."""

    message: str = ""


# -- which machines --------------------------------------------------------------------------------


def accept(candidate: Candidate) -> Acceptance:
    """Take settled machines of pools that consolidate machines in use, and say why not."""
    pool = candidate.pool
    if pool.spec.replicas is not None:
        return Acceptance(accepted=False, declined=Declined.STATIC)
    labels = candidate.machine.labels
    declined, problem = Declined.UNKNOWN_OFFERING, ""
    if candidate.instance_type is None:
        problem = f'Instance Type "{labels.get(INSTANCE_TYPE, "")}" not found'
    elif CAPACITY_TYPE not in labels:
        problem = f'Node does not have label "{CAPACITY_TYPE}"'
    elif ZONE not in labels:
        problem = f'Node does not have label "{ZONE}"'
    elif pool.spec.disruption.consolidate_after.timedelta is None:
        declined, problem = Declined.DISABLED, consolidation_disabled(pool.name)
    elif candidate.is_empty:
        return Acceptance(accepted=False, declined=Declined.EMPTY)
    elif pool.spec.disruption.consolidation_policy == _WHEN_EMPTY:
        declined = Declined.POLICY
        problem = (
            f'NodePool "{pool.name}" has consolidation policy WhenEmpty, but node is not empty'
        )
    if problem:
        return Acceptance(
            accepted=False, declined=declined, notices=unconsolidatable(candidate, problem)
        )
    if not is_true(candidate.claim.status.conditions, CONSOLIDATABLE):
        return Acceptance(accepted=False, declined=Declined.UNSETTLED)
    return Acceptance(accepted=True)


def consolidation_disabled(pool: str) -> str:
    """Say that a pool consolidates nothing."""
    return f'NodePool "{pool}" has consolidation disabled'


def unconsolidatable(candidate: Candidate, message: str) -> tuple[Notice, ...]:
    """Say on a machine why it is not consolidated."""
    return machine_notices(
        candidate.machine,
        reason="Unconsolidatable",
        message=message,
        window=UNCONSOLIDATABLE_WINDOW,
    )


def by_savings(candidates: Sequence[Candidate], prices: Prices) -> list[Candidate]:
    """Sort by what ending a machine saves for what it disturbs, best first."""

    def rank(candidate: Candidate) -> tuple[float, str]:
        return -prices.of_price(candidate.price) / candidate.reschedule_cost, candidate.name

    return sorted(candidates, key=rank)


def within_budgets(
    candidates: Sequence[Candidate], budgets: Mapping[str, PoolBudget]
) -> tuple[list[Candidate], list[Candidate]]:
    """Part candidates, in their order, into those the budgets of their pools allow and the rest."""
    left = {name: budget.remaining for name, budget in budgets.items()}
    chosen: list[Candidate] = []
    spared: list[Candidate] = []
    for candidate in candidates:
        pool = candidate.pool.name
        if left.get(pool, 0) > 0:
            left[pool] -= 1
            chosen.append(candidate)
        else:
            spared.append(candidate)
    return chosen, spared


def each_within_budget(
    candidates: Sequence[Candidate], budgets: Mapping[str, PoolBudget]
) -> list[Candidate]:
    """Return the candidates that the budgets of their pools allow, each looked at by itself."""
    return [
        c for c in candidates if (b := budgets.get(c.pool.name)) is not None and b.remaining > 0
    ]


# -- what a move comes to --------------------------------------------------------------------------


def best_move(
    look: Pass, candidates: Sequence[Candidate], *, most_claims: int = 1
) -> Move | Refusal:
    """Say what comes of candidates going all at once, or why they cannot.

    Replacements cost less than what goes, by the savings floor of its pools at least, whatever
    they are launched as.
    """
    chosen = tuple(candidates)
    price = look.prices.of(chosen)
    least = least_savings(chosen, look.prices, now=look.now)
    # Exactly the floor is enough; a saving of nothing never is.
    below = min(price, price - least + _ROUNDING) if least else price
    verdict = look.simulation.evaluate(chosen, most_claims=most_claims, below_price=below)
    if verdict.outcome is Outcome.LEFT:
        text = leftover_message(verdict)
        return Refusal(text[:1].upper() + text[1:])
    if verdict.outcome is Outcome.TOO_MANY:
        return Refusal(f"Can't remove without creating more than {most_claims} candidates")
    unrated = look.prices.unrated(candidate.price.currency for candidate in chosen)
    if unrated and (verdict.outcome is Outcome.TOO_DEAR or verdict.claims):
        return Refusal(f"Can't compare prices: {unrated} (--exchange-rates)")
    if verdict.outcome is Outcome.TOO_DEAR:
        return Refusal(_TOO_DEAR + _floor_text(least))
    if verdict.fits and price < least - _ROUNDING:
        return Refusal("Can't save enough by removing" + _floor_text(least))
    unready = look.simulation.unready_destination(verdict)
    if unready:
        return Refusal(unready[:1].upper() + unready[1:])
    try:
        replacements = _replacements(look, chosen, verdict, below)
    except Refused as refused:
        return Refusal(str(refused) + _floor_text(least))
    saved = price - sum(planned.cheapest.price_per_hour for planned in replacements)
    return Move(
        candidates=chosen, verdict=verdict, replacements=replacements, savings_per_hour=saved
    )


def _floor_text(least: float) -> str:
    return f" (savings floor: ${least:.4f} per hour)" if least else ""


def _replacements(
    look: Pass, candidates: tuple[Candidate, ...], verdict: Verdict, below: float
) -> tuple[PlannedNodeClaim, ...]:
    """Narrow what the simulation would open down to what costs less in any case.

    Several replacements share the price that they must stay below by what each costs at best.
    """
    claims = verdict.claims
    total = sum(planned.cheapest.price_per_hour for planned in claims)
    all_spot = all(candidate.capacity_type == SPOT for candidate in candidates)
    found: list[PlannedNodeClaim] = []
    for planned in claims:
        if planned.min_values_relaxed:
            raise Refused("Can't replace without relaxing minValues")
        ceiling = (
            below
            if len(claims) == 1 or total <= 0
            else below * (planned.cheapest.price_per_hour / total)
        )
        if all_spot and look.prices.is_spot_possible(planned):
            # As many for as many could go on for ever, each time by a little.
            endless = len(claims) >= len(candidates)
            narrowed = _spot_for_spot(look, planned, ceiling, is_flexible=endless)
        else:
            narrowed = look.prices.narrowed(planned, below_price=ceiling)
        if len(candidates) > 1 and len(claims) == 1:
            narrowed = look.prices.without(narrowed, _ceilings(look, candidates))
        found.append(narrowed)
    return tuple(found)


def _spot_for_spot(
    look: Pass, planned: PlannedNodeClaim, ceiling: float, *, is_flexible: bool
) -> PlannedNodeClaim:
    if not look.options.spot_to_spot:
        raise Refused(
            "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        )
    narrowed = look.prices.narrowed(planned, below_price=ceiling, only_spot=True)
    if not is_flexible:
        return narrowed
    count = len(narrowed.instance_types)
    if count < _SPOT_FLEXIBILITY:
        raise Refused(
            f"SpotToSpotConsolidation requires {_SPOT_FLEXIBILITY} cheaper instance type options"
            f" than the current candidate to consolidate, got {count}"
        )
    return look.prices.limited(narrowed, _SPOT_FLEXIBILITY)


def _ceilings(look: Pass, candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return the lowest current price of each type among the candidates."""
    lowest: dict[str, float] = {}
    for candidate in candidates:
        if candidate.instance_type is not None:
            price = look.prices.of_price(candidate.price)
            name = candidate.instance_type.name
            lowest[name] = min(price, lowest.get(name, price))
    return lowest


# -- commands --------------------------------------------------------------------------------------


def command_of(
    look: Pass,
    method: Method,
    move: Move,
    *,
    held_back: Sequence[Candidate] = (),
    alternatives: Mapping[str, float] | None = None,
) -> Command:
    """Return the command that carries a move out."""
    return Command(
        id=look.command_id,
        cause=look.cause,
        method=method.name,
        reason=method.reason,
        candidates=move.candidates,
        replacements=move.replacements,
        moves=move.verdict.moves,
        created=look.now,
        proof=prove(
            look.snapshot.version,
            move.candidates,
            savings_per_hour=move.savings_per_hour,
            held_back=tuple(candidate.name for candidate in held_back),
            alternatives=alternatives,
        ),
    )


def still_accepted(method: Method, command: Command, look: Pass) -> list[Candidate]:
    """Return those of a command's candidates that its method would take again, as they are now."""
    uids = {candidate.claim.uid for candidate in command.candidates}
    found = {
        item.claim.uid: item
        for item in look.candidates(method.disruption_class).candidates
        if item.claim.uid in uids and method.accept(item, look).accepted
    }
    return [found[c.claim.uid] for c in command.candidates if c.claim.uid in found]


def renewed(command: Command, move: Move, look: Pass) -> Command:
    """Return a command that carries out the move which a later look found in its place."""
    return replace(
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


def candidate_notices(command: Command) -> tuple[Notice, ...]:
    """Say on every machine of a command that it is about to be consolidated."""
    return _command_notices(command, "ConsolidationCandidate", "Consolidation candidate: {}")


def rejection_notices(command: Command, reason: str) -> tuple[Notice, ...]:
    """Say on every machine of a command that it was given up, and why."""
    return _command_notices(
        command, "ConsolidationRejected", f"Consolidation rejected: {{}}, reason: {reason}"
    )


def _command_notices(command: Command, reason: str, pattern: str) -> tuple[Notice, ...]:
    savings = f" (savings: ${command.proof.savings_per_hour:.2f})"
    notices: list[Notice] = []
    for candidate in command.candidates:
        text = pattern.format(command.part_of(candidate))
        notices += machine_notices(
            candidate.machine, reason=reason, message=text + savings, dedupe=(text,)
        )
    return tuple(notices)
