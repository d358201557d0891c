"""What keeps a pod from the machines of a pool: taints, labels, size, ports, volumes, limits, stock.

Each function leaves the options that one constraint allows, or says why there is none. They are in
the order of `Constraint`, by which the first one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.api.labels import CPU, NODES
from karpenter_core.api.quantities import format_amount
from karpenter_core.scheduling.bitsets import bits_of_mask
from karpenter_core.scheduling.explain.options import Option, fitting, listed
from karpenter_core.scheduling.ports import first_conflict, port_text
from karpenter_core.scheduling.problem import Constraint, MinValuesPolicy, PoolRejection
from karpenter_core.scheduling.taints import first_untolerated, taint_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.scheduling.arrays import Amounts, Mask
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.explain.options import Answer, Question
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "min_values_missed",
    "narrow_by_limits",
    "narrow_by_min_values",
    "narrow_by_ports",
    "narrow_by_resources",
    "narrow_by_room",
    "narrow_by_stock",
    "narrow_by_volumes",
    "unmet_requirements",
    "untolerated_taint",
    "unusable",
]

_MILLION_CORES: Final = 1_000_000_000
_FILTERED_OUT: Final = "nodepool requirements filtered out all available instance types"


def unusable(pool: CompiledPool) -> PoolRejection:
    """Say why a pool can make no machine at all."""
    catalogue = pool.catalogue
    if pool.refusal:
        return PoolRejection(
            constraint=Constraint.REQUIREMENT, detail=f"{_FILTERED_OUT}: {pool.refusal}"
        )
    if not pool.matching_bits:
        return PoolRejection(
            constraint=Constraint.REQUIREMENT,
            detail=_FILTERED_OUT,
            remedy="change the NodePool's requirements",
        )
    if not pool.matching_bits & catalogue.sound_bits:
        return PoolRejection(
            constraint=Constraint.RESOURCE,
            detail="no instance type has anything left beside what it reserves for itself",
            closest=catalogue.names[_first(pool.matching_bits)],
            remedy="let nodes reserve less for the system and the kubelet",
        )
    offered = pool.matching_bits & pool.offered_bits & catalogue.sound_bits
    missing = catalogue.min_values_reached(offered, pool.requirements)
    if offered and missing:
        return min_values_missed(missing, prefix=f"{_FILTERED_OUT}: ")
    return PoolRejection(
        constraint=Constraint.OFFERING,
        detail=f"{_FILTERED_OUT}: none has an available offering that is allowed",
        closest=catalogue.names[_first(pool.matching_bits)],
    )


def untolerated_taint(question: Question) -> PoolRejection | None:
    """Name the first taint of the pool that a pod does not tolerate."""
    taint = first_untolerated(question.pool.taints, question.rung.ask.tolerations)
    if taint is None:
        return None
    return PoolRejection(
        constraint=Constraint.TAINT,
        detail=f'did not tolerate taint "{taint_text(taint)}"',
        remedy=f'add a toleration for "{taint_text(taint)}"',
    )


def unmet_requirements(question: Question) -> PoolRejection | None:
    """Say which labels a pod asks for that no machine of the pool has."""
    pool, asked = question.pool, question.rung.requirements
    refused = pool.requirements.incompatibility(
        asked, allow_undefined=pool.well_known, well_known=pool.well_known
    )
    terms = len(question.pod_class.shape.required_node_terms)
    last = f" (last of {terms} node affinity terms; no other found a place)" if terms > 1 else ""
    if refused is not None:
        return PoolRejection(constraint=Constraint.REQUIREMENT, detail=f"{refused}{last}")
    absent = sorted(key for key in question.rung.ask.present if not pool.may_have(key))
    if absent:
        return PoolRejection(
            constraint=Constraint.REQUIREMENT,
            detail=f"the pod wants a label that no machine of the nodepool has: "
            f"{listed(absent)}{last}",
        )
    start = question.start()
    if start.bits:
        return None
    catalogue, usable = pool.catalogue, question.machines.usable_bits
    met = np.zeros(catalogue.size, dtype=np.int64)
    for key in sorted(asked):
        met += catalogue.mask(catalogue.matching_one(start.requirements.get(key)))
    row = int(np.where(catalogue.mask(usable), met, -1).argmax())
    conflict = catalogue.instance_types[row].requirements.intersection_failure(start.requirements)
    return PoolRejection(
        constraint=Constraint.REQUIREMENT,
        detail=f"no instance type met all requirements ({catalogue.names[row]}: {conflict}){last}",
        closest=catalogue.names[row],
    )


def narrow_by_resources(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the rows that are large enough before daemons take their part."""
    bare, catalogue = question.machines.bare, question.pool.catalogue
    allowed = catalogue.mask(question.union(options))
    fits = fitting(bare, question.request) & allowed
    if not fits.any():
        row = _closest(bare, question.request, allowed)
        return PoolRejection(
            constraint=Constraint.RESOURCE,
            detail=f"no instance type has enough resources ({_shortfall(question, bare, row)})",
            closest=catalogue.names[row],
            remedy=_smaller(question, bare, row),
        )
    if question.pod_class.blocked is not None:
        return question.pod_class.blocked
    return question.within(bits_of_mask(fits), options)


def narrow_by_ports(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the rows on which no daemon takes a host port of the pod."""
    ports = question.rung.ask.host_ports
    if not ports:
        return options
    left = question.within(question.pool.rows_without_port(ports), options)
    if left:
        return left
    taken = [
        f"{port_text(port)} is taken by daemon {daemon.name}"
        for daemon, _ in question.pool.daemons
        if (port := first_conflict(ports, daemon.shape.host_ports)) is not None
    ]
    return PoolRejection(
        constraint=Constraint.PORT,
        detail="; ".join(taken),
        closest=question.cheapest(options),
        remedy="use another host port, or keep the DaemonSet off some nodes",
    )


def narrow_by_volumes(question: Question, options: tuple[Option, ...]) -> Answer:
    """Go on with each place where the pod's volumes can be attached."""
    volumes = question.pod_class.volume_alternatives
    if not volumes:
        return options
    pool, bits = question.pool, question.union(options)
    left: list[Option] = []
    for asked in question.rung.ask.alternatives:
        if pool.requirements.compatible(asked, allow_undefined=pool.well_known):
            merged = pool.requirements.merge(asked)
            if reached := bits & pool.catalogue.matching(merged):
                left.append(Option(merged, reached))
    if left:
        if all(len(place) for place in volumes):
            question.remarks.append(f"its volumes need {_places(volumes)}")
        return tuple(left)
    kept = [key for place in volumes for key in sorted(place) if key in question.rung.requirements]
    own = [str(question.rung.requirements.get(key)) for key in dict.fromkeys(kept)]
    detail = f"its volumes need {_places(volumes)}, which no machine of the nodepool can have"
    if own:
        detail += f" (the pod itself asks for {listed(own)})"
    return PoolRejection(
        constraint=Constraint.VOLUME,
        detail=detail,
        closest=question.cheapest(options),
        remedy="let the nodepool and the pod reach where the volumes are",
    )


def _places(alternatives: tuple[Requirements, ...]) -> str:
    """Write where volumes can be attached."""
    places = (" and ".join(str(one.get(key)) for key in sorted(one)) for one in alternatives)
    return " or ".join(dict.fromkeys(places))


def narrow_by_limits(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the rows that what is left of the pool's limits allows."""
    pool, remaining, catalogue = question.pool, question.remaining, question.pool.catalogue
    nodes_left = question.engine.nodes_left
    if nodes_left is not None and nodes_left <= 0:
        return PoolRejection(
            constraint=Constraint.LIMIT,
            detail="the cluster may have no more nodes than it has and this plan launches "
            "(--max-nodes-total)",
            closest=question.cheapest(options),
            remedy="raise --max-nodes-total",
        )
    if remaining.get(NODES, 1) <= 0:
        return PoolRejection(
            constraint=Constraint.LIMIT,
            detail=f"node limits have been exhausted for nodepool ({NODES}: "
            f"{pool.limits[NODES]} allowed)",
            closest=question.cheapest(options),
            remedy=f"raise spec.limits.{NODES} of the nodepool",
        )
    if not pool.limited or pool.is_ample(remaining, 1):
        return options
    left = question.within(pool.within(remaining), options)
    if left:
        if question.union(left) != question.union(options):
            question.remarks.append("limits of the nodepool rule out other instance types")
        return left
    rows = np.flatnonzero(catalogue.mask(question.union(options)))
    over = np.stack([pool.counted(name)[rows] - remaining[name] for name in pool.limited])
    share = np.maximum(over, 0) / np.maximum(
        np.array([[pool.limits[name]] for name in pool.limited]), 1
    )
    best = int(share.sum(axis=0).argmin())
    short = [
        (name, int(over[line, best]))
        for line, name in enumerate(pool.limited)
        if over[line, best] > 0
    ]
    left_over = ", ".join(
        f"{name}: {format_amount(name, max(remaining[name], 0))} of "
        f"{format_amount(name, pool.limits[name])} left"
        for name, _ in short
    )
    raised = ", ".join(
        f"spec.limits.{name} to {format_amount(name, pool.limits[name] + amount)}"
        for name, amount in short
    )
    return PoolRejection(
        constraint=Constraint.LIMIT,
        detail=question.remarked(
            f"all available instance types exceed limits for nodepool ({left_over})"
        ),
        closest=catalogue.names[int(rows[best])],
        remedy=f"raise {raised} or more",
    )


def narrow_by_min_values(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the options with enough distinct values, sold out or not."""
    if question.compiled.options.min_values is not MinValuesPolicy.STRICT:
        return options
    catalogue = question.pool.catalogue
    reached = [catalogue.min_values_reached(one.bits, one.requirements) for one in options]
    left = tuple(one for one, missing in zip(options, reached, strict=True) if not missing)
    if left:
        return left
    return min_values_missed(reached[0], remarks=question.remarks)


def min_values_missed(
    missing: Mapping[str, int], *, prefix: str = "", remarks: list[str] | None = None
) -> PoolRejection:
    """Say which `minValues` cannot be reached, and what can."""
    reached = ", ".join(f"{key}: {count} to be had" for key, count in missing.items())
    detail = (
        f"{prefix}minValues requirement is not met for label(s) (label(s)=[{' '.join(missing)}]) "
        f"({reached})"
    )
    lower = ", ".join(f"of {key} to {count}" for key, count in missing.items() if count)
    return PoolRejection(
        constraint=Constraint.MIN_VALUES,
        detail="; ".join((detail, *(remarks or ()))),
        remedy=f"lower minValues {lower}" if lower else "",
    )


def narrow_by_stock(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the rows with an offering that can be had and is allowed."""
    pool = question.pool
    left = tuple(
        Option(option.requirements, bits)
        for option in options
        if (bits := option.bits & pool.offered(option.requirements))
    )
    if left:
        return left
    reserved = frozenset(pool.reservations.values())
    if any(option.bits & pool.offered(option.requirements, reserved) for option in options):
        closest = question.cheapest(options)
        detail = f"only reserved capacity would do, and none of it is left ({closest})"
    else:
        closest, where = _out_of_stock(question, options)
        detail = (
            "no instance type has the required offering (available, in an allowed "
            f"zone, with an allowed capacity type); {closest} {where}"
        )
    return PoolRejection(
        constraint=Constraint.OFFERING, detail=question.remarked(detail), closest=closest
    )


def _out_of_stock(question: Question, options: tuple[Option, ...]) -> tuple[str, str]:
    """Return a type that is sold where it may be and cannot be had now, else one sold elsewhere."""
    pool = question.pool
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
    closest = question.cheapest(options)
    sold = (
        f"{offering.zone} {offering.capacity_type}"
        for instance_type in pool.catalogue.instance_types
        if instance_type.name == closest
        for offering in instance_type.offerings
    )
    return closest, f"is only sold as {listed(dict.fromkeys(sold))}"


def narrow_by_room(question: Question, options: tuple[Option, ...]) -> Answer:
    """Keep the rows that are large enough beside their daemons."""
    free, catalogue = question.machines.free, question.pool.catalogue
    allowed = catalogue.mask(question.union(options))
    fits = fitting(free, question.request) & allowed
    if fits.any():
        return question.within(bits_of_mask(fits), options)
    row = _closest(free, question.request, allowed)
    on_row = sorted(d.name for d, bits in question.pool.daemons if bits >> row & 1)
    return PoolRejection(
        constraint=Constraint.DAEMON,
        detail=question.remarked(
            "no instance type has enough resources beside its daemons "
            f"({_shortfall(question, free, row)}; daemons: {listed(on_row)})"
        ),
        closest=catalogue.names[row],
    )


def _shortfall(question: Question, free: Amounts, row: int) -> str:
    parts: list[str] = []
    for line, name in enumerate(question.compiled.resources):
        asked, there = int(question.request[line]), int(free[line, row])
        if asked > there:
            has = f"{question.pool.catalogue.names[row]} has {format_amount(name, max(there, 0))}"
            parts.append(f"{name}: {format_amount(name, asked)} asked, {has}")
            if name == CPU and asked >= _MILLION_CORES:
                parts[-1] += " (CPU request >= 1 Million, m vs M typo?)"
    return "; ".join(parts)


def _smaller(question: Question, free: Amounts, row: int) -> str:
    return "ask for at most " + ", ".join(
        f"{name} {format_amount(name, max(int(free[line, row]), 0))}"
        for line, name in enumerate(question.compiled.resources)
        if question.request[line] > free[line, row]
    )


def _closest(free: Amounts, request: Amounts, allowed: Mask) -> int:
    """Return the row that misses least: smallest share of the request not covered, then name."""
    short = np.maximum(request[:, None] - free, 0)
    share = (short / np.maximum(request, 1)[:, None]).sum(axis=0)
    return int(np.where(allowed, share, np.inf).argmin())


def _first(bits: int) -> int:
    """Return the first row of a set that is not empty."""
    return (bits & -bits).bit_length() - 1
