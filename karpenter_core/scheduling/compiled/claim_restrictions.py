"""Restricts claim signatures by limits, quotas, capacity types and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.api.labels import CAPACITY_TYPE, SPOT
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.compiled.signatures import SignatureTable

__all__ = [
    "decided_alternatives",
    "restricted_to_capacity_type",
    "restricted_to_limits",
    "restricted_to_quotas",
]


def restricted_to_limits(
    signatures: SignatureTable, number: int, remaining: Mapping[str, int]
) -> int:
    """Return the signature that is left of a claim within the rest of its pool's limits."""
    signature = signatures.claim(number)
    pool = signature.pool
    return signatures.narrowed(number, pool.rows_within_limits(remaining, signature.requirements))


def restricted_to_capacity_type(signatures: SignatureTable, number: int, *, spot: bool) -> int:
    """Return the signature of a claim that is spot, or that is not; NO_MATCH if it cannot be."""
    operator = "In" if spot else "NotIn"
    return _required(signatures, number, Requirement.of(CAPACITY_TYPE, operator, (SPOT,)))


def restricted_to_quotas(
    signatures: SignatureTable, number: int, remaining: Mapping[str, int]
) -> int:
    """Return the signature of a claim that no exhausted quota counts; NO_MATCH when none.

    It is the same one if no quota is exhausted for any of its rows.
    """
    for line in signatures.claim(number).pool.quota_lines.values():
        signature = signatures.claim(number)
        counted = signature.counted_against_limits(line.name)[signature.rows]
        if counted.max(initial=0) <= max(remaining[line.name], 0):
            continue
        opposites = (_opposite(Requirements((r,))) for r in line.quota.requirements.values())
        number = next(
            (
                outside
                for opposite in opposites
                if opposite is not None
                and (outside := _required(signatures, number, opposite)) != NO_MATCH
            ),
            NO_MATCH,
        )
        if number == NO_MATCH:
            return NO_MATCH
    return number


def decided_alternatives(
    signatures: SignatureTable, number: int, alternatives: tuple[Requirements, ...]
) -> tuple[int, ...]:
    """Return the narrowed signatures that surely miss, or surely meet, the alternatives.

    First the one that meets none, if one requirement for each alternative can express that.
    """
    claim = signatures.claim(number)
    opposites = tuple(opposite for one in alternatives if (opposite := _opposite(one)) is not None)
    choices = [*alternatives]
    if len(opposites) == len(alternatives):
        choices.insert(0, Requirements(opposites))
    well_known = claim.pool.well_known
    narrowed = [
        signatures.restricted(number, choice)
        for choice in choices
        if claim.requirements.compatible(
            claim.requirements.merge(choice), allow_undefined=well_known
        )
    ]
    return tuple(choice for choice in narrowed if choice != NO_MATCH)


def _required(signatures: SignatureTable, number: int, requirement: Requirement) -> int:
    """Return the signature of a claim with one more requirement; NO_MATCH if it cannot have it."""
    signature = signatures.claim(number)
    required = Requirements((requirement,))
    pool = signature.pool
    undecided = {key for key in required if key in pool.well_known or pool.catalogue.defines(key)}
    if not signature.requirements.compatible(required, allow_undefined=undecided):
        return NO_MATCH
    return signatures.restricted(number, required)


def _opposite(requirements: Requirements) -> Requirement | None:
    """Return what is met exactly where requirements are not; None: no one requirement is."""
    all_requirements = tuple(requirements.values())
    if (
        len(all_requirements) != 1
        or all_requirements[0].gte is not None
        or all_requirements[0].lte is not None
    ):
        return None
    return replace(
        all_requirements[0], complement=not all_requirements[0].complement, min_values=None
    )
