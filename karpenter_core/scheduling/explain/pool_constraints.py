"""Explains rejections by taints, labels, size, ports and volumes.

Each function returns the options that one constraint allows, or a rejection when there is none.
They are in the order of `PoolConstraint`; the first rejection is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.api.labels import CPU
from karpenter_core.api.quantities import format_amount
from karpenter_core.scheduling.compiled.bitsets import bits_of_mask
from karpenter_core.scheduling.compiled.signatures import NO_MATCH
from karpenter_core.scheduling.explain.options import ClaimOption, fitting, listed
from karpenter_core.scheduling.ports import first_port_conflict, port_text
from karpenter_core.scheduling.problem import MinValuesPolicy, PoolConstraint, PoolRejection
from karpenter_core.scheduling.taints import first_untolerated, taint_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.arrays import Amounts, Mask
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.explain.options import NarrowingResult, PoolExplanation
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "min_values_missed",
    "narrow_by_devices",
    "narrow_by_free_capacity",
    "narrow_by_min_values",
    "narrow_by_ports",
    "narrow_by_resources",
    "narrow_by_stock",
    "narrow_by_volumes",
    "unmet_requirements",
    "untolerated_taint",
    "unusable_pool",
]

_MILLION_CORES: Final = 1_000_000_000
_FILTERED_OUT: Final = "nodepool requirements filtered out all available instance types"


def unusable_pool(pool: CompiledPool) -> PoolRejection:
    """Return why a pool can launch no node at all."""
    catalogue = pool.catalogue
    if pool.unreadable_reason:
        return PoolRejection(
            constraint=PoolConstraint.REQUIREMENT,
            detail=f"{_FILTERED_OUT}: {pool.unreadable_reason}",
        )
    if not pool.matching_bits:
        return PoolRejection(
            constraint=PoolConstraint.REQUIREMENT,
            detail=_FILTERED_OUT,
            remedy="change the NodePool's requirements",
        )
    if not pool.matching_bits & catalogue.sound_bits:
        return PoolRejection(
            constraint=PoolConstraint.RESOURCE,
            detail="every instance type reserves all its capacity for the system and the kubelet",
            closest=catalogue.names[_first(pool.matching_bits)],
            remedy="lower the reservations for the system and the kubelet",
        )
    offered = pool.matching_bits & pool.offered_bits & catalogue.sound_bits
    missing = catalogue.missing_min_values(offered, pool.requirements)
    if offered and missing:
        return min_values_missed(missing, prefix=f"{_FILTERED_OUT}: ")
    return PoolRejection(
        constraint=PoolConstraint.OFFERING,
        detail=f"{_FILTERED_OUT}: none has an available offering that is allowed",
        closest=catalogue.names[_first(pool.matching_bits)],
    )


def untolerated_taint(explanation: PoolExplanation) -> PoolRejection | None:
    """Name the first taint of the pool that a pod does not tolerate."""
    taint = first_untolerated(
        explanation.pool.taints, explanation.relaxation_step.node_constraints.tolerations
    )
    if taint is None:
        return None
    return PoolRejection(
        constraint=PoolConstraint.TAINT,
        detail=f'did not tolerate taint "{taint_text(taint)}"',
        remedy=f'add a toleration for "{taint_text(taint)}"',
    )


def unmet_requirements(explanation: PoolExplanation) -> PoolRejection | None:
    """Return a rejection naming required labels that no node of the pool has."""
    pool, pod_requirements = explanation.pool, explanation.relaxation_step.requirements
    refused = pool.requirements.incompatibility(
        pod_requirements, allow_undefined=pool.well_known, well_known=pool.well_known
    )
    terms = len(explanation.pod_class.shape.required_node_terms)
    last = f" (last of {terms} node affinity terms; no other found a place)" if terms > 1 else ""
    if refused is not None:
        return PoolRejection(constraint=PoolConstraint.REQUIREMENT, detail=f"{refused}{last}")
    absent = sorted(
        key
        for key in explanation.relaxation_step.node_constraints.present
        if not pool.may_have(key)
    )
    if absent:
        return PoolRejection(
            constraint=PoolConstraint.REQUIREMENT,
            detail=f"the pod requires a label that no node of the nodepool has: "
            f"{listed(absent)}{last}",
        )
    start = explanation.start()
    if start.bits:
        return None
    catalogue, usable = pool.catalogue, explanation.explained_pool.usable_bits
    met = np.zeros(catalogue.size, dtype=np.int64)
    for key in sorted(pod_requirements):
        met += catalogue.mask(catalogue.matching_one(start.requirements.get(key)))
    row = int(np.where(catalogue.mask(usable), met, -1).argmax())
    conflict = catalogue.instance_types[row].requirements.intersection_failure(start.requirements)
    return PoolRejection(
        constraint=PoolConstraint.REQUIREMENT,
        detail=f"no instance type met all requirements ({catalogue.names[row]}: {conflict}){last}",
        closest=catalogue.names[row],
    )


def narrow_by_resources(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the rows that are large enough without their daemons."""
    bare, catalogue = explanation.explained_pool.free_without_daemons, explanation.pool.catalogue
    allowed = catalogue.mask(explanation.union(options))
    fits = fitting(bare, explanation.request) & allowed
    if not fits.any():
        row = _closest(bare, explanation.request, allowed)
        return PoolRejection(
            constraint=PoolConstraint.RESOURCE,
            detail=f"no instance type has enough resources ({_shortfall(explanation, bare, row)})",
            closest=catalogue.names[row],
            remedy=_smaller(explanation, bare, row),
        )
    if explanation.pod_class.blocked is not None:
        return explanation.pod_class.blocked
    return explanation.within(bits_of_mask(fits), options)


def narrow_by_ports(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the rows on which no daemon takes a host port of the pod."""
    ports = explanation.relaxation_step.node_constraints.host_ports
    if not ports:
        return options
    options_left = explanation.within(explanation.pool.rows_without_port(ports), options)
    if options_left:
        return options_left
    conflicts = [
        f"{port_text(port)} is taken by daemon {daemon.name}"
        for daemon, _ in explanation.pool.daemons
        if (port := first_port_conflict(ports, daemon.shape.host_ports)) is not None
    ]
    return PoolRejection(
        constraint=PoolConstraint.PORT,
        detail="; ".join(conflicts),
        closest=explanation.cheapest(options),
        remedy="use another host port, or keep the DaemonSet off some nodes",
    )


def narrow_by_devices(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the options if they have devices for the pod's ResourceClaims."""
    devices = explanation.engine.devices
    if devices is None or not explanation.pod_class.shape.resource_claims:
        return options
    task = explanation.compiled.placement_task(
        explanation.index, explanation.pod_class.last_relaxation_step
    )
    details: list[str] = []
    for option in options:
        number = explanation.claim(option)
        if number == NO_MATCH:
            continue
        detail = devices.refusal(task, explanation.compiled.signatures.claim(number))
        if not detail:
            return options
        details.append(detail)
    if not details:
        return options
    return PoolRejection(
        constraint=PoolConstraint.DEVICE, detail=explanation.with_remarks(details[0])
    )


def narrow_by_volumes(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the options where the pod's volumes can be attached."""
    volumes = explanation.pod_class.volume_alternatives
    if not volumes:
        return options
    pool, bits = explanation.pool, explanation.union(options)
    options_left: list[ClaimOption] = []
    for alternative in explanation.relaxation_step.node_constraints.alternatives:
        if pool.requirements.compatible(alternative, allow_undefined=pool.well_known):
            merged = pool.requirements.merge(alternative)
            if reached := bits & pool.catalogue.matching(merged):
                options_left.append(ClaimOption(merged, reached))
    if options_left:
        if all(len(place) for place in volumes):
            explanation.remarks.append(f"its volumes need {_places(volumes)}")
        return tuple(options_left)
    conflicting_keys = [
        key
        for place in volumes
        for key in sorted(place)
        if key in explanation.relaxation_step.requirements
    ]
    own = [
        str(explanation.relaxation_step.requirements.get(key))
        for key in dict.fromkeys(conflicting_keys)
    ]
    detail = f"its volumes need {_places(volumes)}, which no node of the nodepool can have"
    if own:
        detail += f" (the pod itself asks for {listed(own)})"
    return PoolRejection(
        constraint=PoolConstraint.VOLUME,
        detail=detail,
        closest=explanation.cheapest(options),
        remedy="allow the topology of the volumes in the nodepool and the pod",
    )


def _places(alternatives: tuple[Requirements, ...]) -> str:
    """Write where volumes can be attached."""
    places = (" and ".join(str(one.get(key)) for key in sorted(one)) for one in alternatives)
    return " or ".join(dict.fromkeys(places))


def narrow_by_min_values(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the options with enough distinct values, available or not."""
    if explanation.compiled.options.min_values is not MinValuesPolicy.STRICT:
        return options
    catalogue = explanation.pool.catalogue
    reached = [catalogue.missing_min_values(one.bits, one.requirements) for one in options]
    options_left = tuple(one for one, missing in zip(options, reached, strict=True) if not missing)
    if options_left:
        return options_left
    return min_values_missed(reached[0], remarks=explanation.remarks)


def min_values_missed(
    missing: Mapping[str, int], *, prefix: str = "", remarks: list[str] | None = None
) -> PoolRejection:
    """Return a rejection naming `minValues` that cannot be reached, with the counts reached."""
    reached = ", ".join(f"{key}: {count} available" for key, count in missing.items())
    detail = (
        f"{prefix}minValues requirement is not met for label(s) (label(s)=[{' '.join(missing)}]) "
        f"({reached})"
    )
    lower = ", ".join(f"of {key} to {count}" for key, count in missing.items() if count)
    return PoolRejection(
        constraint=PoolConstraint.MIN_VALUES,
        detail="; ".join((detail, *(remarks or ()))),
        remedy=f"lower minValues {lower}" if lower else "",
    )


def narrow_by_stock(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the rows with an available and allowed offering."""
    pool = explanation.pool
    options_left = tuple(
        ClaimOption(option.requirements, bits)
        for option in options
        if (bits := option.bits & pool.offered(option.requirements))
    )
    if options_left:
        return options_left
    reserved = frozenset(pool.reservations.values())
    if any(option.bits & pool.offered(option.requirements, reserved) for option in options):
        closest = explanation.cheapest(options)
        detail = f"the pod needs reserved capacity, and none is left ({closest})"
    else:
        closest, where = _out_of_stock(explanation, options)
        detail = (
            "no instance type has the required offering (available, in an allowed "
            f"zone, with an allowed capacity type); {closest} {where}"
        )
    return PoolRejection(
        constraint=PoolConstraint.OFFERING, detail=explanation.with_remarks(detail), closest=closest
    )


def _out_of_stock(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> tuple[str, str]:
    """Return an allowed type that is unavailable now, else one that is sold elsewhere."""
    pool = explanation.pool
    for option in options:
        for row in np.flatnonzero(pool.catalogue.mask(option.bits)).tolist():
            instance_type = pool.catalogue.instance_types[row]
            sold_out = [
                f"{offering.zone} {offering.capacity_type}"
                for offering in instance_type.offerings
                if option.requirements.compatible(
                    offering.requirements, allow_undefined=pool.well_known
                )
            ]
            if sold_out:
                return instance_type.name, f"is sold out ({listed(dict.fromkeys(sold_out))})"
    closest = explanation.cheapest(options)
    sold = (
        f"{offering.zone} {offering.capacity_type}"
        for instance_type in pool.catalogue.instance_types
        if instance_type.name == closest
        for offering in instance_type.offerings
    )
    return closest, f"is only sold as {listed(dict.fromkeys(sold))}"


def narrow_by_free_capacity(
    explanation: PoolExplanation, options: tuple[ClaimOption, ...]
) -> NarrowingResult:
    """Keep the rows that are large enough beside their daemons."""
    free, catalogue = explanation.explained_pool.free, explanation.pool.catalogue
    allowed = catalogue.mask(explanation.union(options))
    fits = fitting(free, explanation.request) & allowed
    if fits.any():
        return explanation.within(bits_of_mask(fits), options)
    row = _closest(free, explanation.request, allowed)
    on_row = sorted(d.name for d, bits in explanation.pool.daemons if bits >> row & 1)
    return PoolRejection(
        constraint=PoolConstraint.DAEMON,
        detail=explanation.with_remarks(
            "no instance type has enough resources beside its daemons "
            f"({_shortfall(explanation, free, row)}; daemons: {listed(on_row)})"
        ),
        closest=catalogue.names[row],
    )


def _shortfall(explanation: PoolExplanation, free: Amounts, row: int) -> str:
    parts: list[str] = []
    for line, name in enumerate(explanation.compiled.resources):
        requested, there = int(explanation.request[line]), int(free[line, row])
        if requested > there:
            has = (
                f"{explanation.pool.catalogue.names[row]} has {format_amount(name, max(there, 0))}"
            )
            parts.append(f"{name}: {format_amount(name, requested)} asked, {has}")
            if name == CPU and requested >= _MILLION_CORES:
                parts[-1] += " (CPU request >= 1 Million, m vs M typo?)"
    return listed(parts, separator="; ")


def _smaller(explanation: PoolExplanation, free: Amounts, row: int) -> str:
    return "ask for at most " + listed(
        f"{name} {format_amount(name, max(int(free[line, row]), 0))}"
        for line, name in enumerate(explanation.compiled.resources)
        if explanation.request[line] > free[line, row]
    )


def _closest(free: Amounts, request: Amounts, allowed: Mask) -> int:
    """Return the row that misses least: smallest share of the request not covered, then name."""
    short = np.maximum(request[:, None] - free, 0)
    share = (short / np.maximum(request, 1)[:, None]).sum(axis=0)
    return int(np.where(allowed, share, np.inf).argmin())


def _first(bits: int) -> int:
    """Return the first row of a set that is not empty."""
    return (bits & -bits).bit_length() - 1
