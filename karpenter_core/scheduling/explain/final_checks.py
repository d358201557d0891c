"""Explains rejections by reservations, `minValues` and early ends of a pass.

Also pods that the engine did not come back to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.scheduling.compiled.signatures import NO_MATCH, DomainPin
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.explain.pool_constraints import min_values_missed
from karpenter_core.scheduling.problem import MinValuesPolicy, PoolConstraint, PoolRejection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.explain.options import ClaimOption, PoolExplanation

__all__ = ["final_rejection", "taken_reservations"]


def final_rejection(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> PoolRejection:
    """Return why a pod cannot use instances that are large enough and available."""
    claims, reservations = _claims(explanation, options)
    if not claims:
        return taken_reservations(reservations)
    rejection = None
    if explanation.compiled.options.min_values is MinValuesPolicy.STRICT:
        rejection = _few_values(explanation, options, claims)
    deferral = explanation.engine.deferred.get(explanation.index)
    if rejection is None and deferral is not None:
        pool = explanation.compiled.pools[deferral.pool]
        return taken_reservations(deferral.taken, pool=pool.name)
    return rejection or _short_list(explanation, claims) or _not_retried(explanation)


def _claims(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> tuple[tuple[int, ...], Iterable[Reservation]]:
    """Return the claims that reservations allow, and the reservations that are all taken."""
    signatures, reservations = explanation.compiled.signatures, dict["Reservation", None]()
    claims: list[int] = []
    for option in options:
        number = explanation.claim(option)
        choices = explanation.engine.holdings.choices(number, explanation.request)
        claim = signatures.claim(number)
        claim_reservations = claim.reservations(claim.fitting(explanation.request))
        signature_choices = [choice.signature for choice in choices.reserved]
        if choices.plain != NO_MATCH:
            plain = signatures.claim(choices.plain)
            if plain.fitting(explanation.request).any():
                signature_choices.append(choices.plain)
        if not signature_choices:
            reservations.update(dict.fromkeys(sorted(claim_reservations)))
        claims += signature_choices
    return tuple(claims), reservations


def taken_reservations(reservations: Iterable[Reservation], *, pool: str = "") -> PoolRejection:
    """Return a rejection that names the fitting reservations; the next pass knows what is left.

    While pods wait for them they give up no preference and try no other `pool`.
    """
    names = "; ".join(
        ", ".join(f"{key}={value}" for key, value in reservation) for reservation in reservations
    )
    of_pool = f'of nodepool "{pool}" ' if pool else ""
    return PoolRejection(
        constraint=PoolConstraint.RESERVATION,
        detail=f"all fitting reserved instances {of_pool}are taken in this pass ({names})",
    )


def _few_values(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...], claims: tuple[int, ...]
) -> PoolRejection | None:
    """Return the `minValues` that the instance types which are large enough miss, if any."""
    signatures = explanation.compiled.signatures
    pins = _pins(explanation, options)
    first: PoolRejection | None = None
    for number in claims:
        claim = signatures.claim(number)
        row = int(claim.rows[claim.fitting(explanation.request)][0])
        settled = signatures.pinned_to_cheapest(number, pins, row)
        if settled != NO_MATCH:
            claim = signatures.claim(settled)
        missing = claim.missing_min_values(claim.fitting(explanation.request))
        if not missing:
            return None
        first = first or min_values_missed(missing, remarks=explanation.remarks)
    return first


def _short_list(explanation: PoolExplanation, claims: tuple[int, ...]) -> PoolRejection | None:
    """Return a rejection if claims were dropped whose cut list of types misses `minValues`."""
    signatures, most = (
        explanation.compiled.signatures,
        explanation.compiled.options.max_instance_types,
    )
    for number in claims:
        claim = signatures.claim(number)
        if claim.has_min_values and len(claim.rows) > most:
            return PoolRejection(
                constraint=PoolConstraint.MIN_VALUES,
                detail=f"minValues requirement is not met by the cheapest {most} instance types",
            )
    return None


def _pins(explanation: PoolExplanation, options: tuple[ClaimOption, ...]) -> tuple[DomainPin, ...]:
    """Return the domains that a new claim would get one of."""
    axes = explanation.compiled.axes
    return (
        *(
            DomainPin(axis, explanation.domains(options, axes[axis]))
            for axis in explanation.topology.zonal
        ),
        *(
            DomainPin(axis, tuple(range(len(axes[axis].names))), soft=True)
            for axis in explanation.topology.counted_axes
        ),
    )


def _not_retried(explanation: PoolExplanation) -> PoolRejection:
    """Return the rejection of pods whose turn did not come again before the pass ended."""
    groups = explanation.relaxation_step.bound
    kept_apart = any(group.kind is not TopologyKind.SPREAD for group in groups)
    return PoolRejection(
        constraint=PoolConstraint.AFFINITY if kept_apart else PoolConstraint.TOPOLOGY,
        detail="it had to wait for other pods, and the pass ended before it was tried again",
        remedy="wait for the next pass",
    )
