"""What keeps a pod from a pool that has machines for it: reservations, and `minValues` at the end.

Also pods that the engine did not come back to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.scheduling.compiled.signatures import NO_MATCH, Pin
from karpenter_core.scheduling.compiled.topology import Kind
from karpenter_core.scheduling.explain.machines import min_values_missed
from karpenter_core.scheduling.problem import Constraint, MinValuesPolicy, PoolRejection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.explain.options import Option, Question

__all__ = ["last_obstacle", "taken_reservations"]


def last_obstacle(question: Question, options: tuple[Option, ...]) -> PoolRejection:
    """Say what keeps a pod from machines that are large enough and on sale."""
    claims, taken = _claims(question, options)
    if not claims:
        return taken_reservations(taken)
    rejection = None
    if question.compiled.options.min_values is MinValuesPolicy.STRICT:
        rejection = _few_values(question, options, claims)
    deferral = question.engine.deferred.get(question.index)
    if rejection is None and deferral is not None:
        pool = question.compiled.pools[deferral.pool]
        return taken_reservations(deferral.taken, pool=pool.name)
    return rejection or _short_list(question, claims) or _not_tried_again(question)


def _claims(
    question: Question, options: tuple[Option, ...]
) -> tuple[tuple[int, ...], Iterable[Reservation]]:
    """Return what could be opened as far as reservations go, and those that are all taken."""
    signatures, taken = question.compiled.signatures, dict["Reservation", None]()
    claims: list[int] = []
    for option in options:
        number = question.claim(option)
        choices = question.engine.holdings.choices(number, question.request)
        claim = signatures.claim(number)
        wanted = claim.reservations(claim.fitting(question.request))
        found = [choice.signature for choice in choices.reserved]
        if choices.plain != NO_MATCH:
            plain = signatures.claim(choices.plain)
            if plain.fitting(question.request).any():
                found.append(choices.plain)
        if not found:
            taken.update(dict.fromkeys(sorted(wanted)))
        claims += found
    return tuple(claims), taken


def taken_reservations(reservations: Iterable[Reservation], *, pool: str = "") -> PoolRejection:
    """Say which reserved machines would do; the next pass knows whether any is left.

    While pods wait for them they give up nothing and are asked of no other `pool`.
    """
    names = "; ".join(
        ", ".join(f"{key}={value}" for key, value in reservation) for reservation in reservations
    )
    of_pool = f'of nodepool "{pool}" ' if pool else ""
    return PoolRejection(
        constraint=Constraint.RESERVATION,
        detail=f"all reserved machines {of_pool}that would do are taken in this pass ({names})",
    )


def _few_values(
    question: Question, options: tuple[Option, ...], claims: tuple[int, ...]
) -> PoolRejection | None:
    """Say which `minValues` are missed by the machines that are large enough, where they are."""
    signatures = question.compiled.signatures
    pins = _pins(question, options)
    first: PoolRejection | None = None
    for number in claims:
        claim = signatures.claim(number)
        row = int(claim.rows[claim.fitting(question.request)][0])
        settled = signatures.settled(number, pins, row)
        if settled != NO_MATCH:
            claim = signatures.claim(settled)
        missing = claim.min_values_missing(claim.fitting(question.request))
        if not missing:
            return None
        first = first or min_values_missed(missing, remarks=question.remarks)
    return first


def _short_list(question: Question, claims: tuple[int, ...]) -> PoolRejection | None:
    """Say that claims were dropped whose list of types, cut to its maximum, misses `minValues`."""
    signatures, most = question.compiled.signatures, question.compiled.options.max_instance_types
    for number in claims:
        claim = signatures.claim(number)
        if claim.has_min_values and len(claim.rows) > most:
            return PoolRejection(
                constraint=Constraint.MIN_VALUES,
                detail=f"minValues requirement is not met by the cheapest {most} instance types",
            )
    return None


def _pins(question: Question, options: tuple[Option, ...]) -> tuple[Pin, ...]:
    """Return the domains that a new claim would get one of."""
    axes = question.compiled.axes
    return (
        *(Pin(axis, question.domains(options, axes[axis])) for axis in question.ties.zonal),
        *(
            Pin(axis, tuple(range(len(axes[axis].names))), soft=True)
            for axis in question.ties.counted_axes
        ),
    )


def _not_tried_again(question: Question) -> PoolRejection:
    """Say of pods that had to wait for others that the pass ended before their turn came again."""
    groups = question.rung.bound
    kept_apart = any(group.kind is not Kind.SPREAD for group in groups)
    return PoolRejection(
        constraint=Constraint.AFFINITY if kept_apart else Constraint.TOPOLOGY,
        detail="it had to wait for other pods, and the pass ended before it was tried again",
        remedy="wait for the next pass",
    )
