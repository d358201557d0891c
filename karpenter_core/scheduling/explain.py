"""Why pods stay pending: for every pool the first constraint that fails, and what comes closest.

Computed only for classes that are left over. What could run is narrowed down, constraint by
constraint in the order of `Constraint`; the one that leaves nothing is the reason. Texts are
rendered here from the facts and read by people only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.api.labels import CPU, NODES
from karpenter_core.api.quantities import format_amount
from karpenter_core.scheduling.bitsets import bits_of_mask
from karpenter_core.scheduling.ports import first_conflict, port_text
from karpenter_core.scheduling.problem import (
    Constraint,
    MinValuesPolicy,
    PoolRejection,
    Unschedulable,
)
from karpenter_core.scheduling.taints import first_untolerated, taint_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from karpenter_core.scheduling.classes import Rung
    from karpenter_core.scheduling.columns import Amounts
    from karpenter_core.scheduling.engine import Engine
    from karpenter_core.scheduling.holdings import Deferral
    from karpenter_core.scheduling.pools import CompiledPool
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["explain"]

_MILLION_CORES: Final = 1_000_000_000
_FILTERED_OUT: Final = "nodepool requirements filtered out all available instance types"


def explain(engine: Engine, index: int) -> Unschedulable:
    """Say why pods of a class found no place in a plan."""
    compiled = engine.compiled
    pod_class = compiled.classes[index]
    if not compiled.pools:
        detail = pod_class.blocked.detail if pod_class.blocked else "no dynamic nodepools found"
        return Unschedulable(message=detail)
    pools = {
        pool.name: _PoolQuestion(engine, number, index).answer()
        for number, pool in enumerate(compiled.pools)
    }
    message = "; ".join(
        f'nodepool "{name}": {rejection.constraint}: {rejection.detail}'
        for name, rejection in pools.items()
    )
    return Unschedulable(message=message, pools=pools)


class _PoolQuestion:
    """One class and one pool that did not take it."""

    def __init__(self, engine: Engine, number: int, index: int) -> None:
        pod_class, request = engine.compiled.classes[index], engine.compiled.requests[:, index]
        self.engine: Final = engine
        self.pool: Final = engine.compiled.pools[number]
        self.remaining: Final = engine.remaining[number]
        self.pool_free: Final = engine.compiled.pool_free[number]
        self.pod_class: Final = pod_class
        self.request: Final = request
        deferral = engine.deferred.get(index)
        self.deferral: Final = deferral if deferral and deferral.pool == number else None

    def answer(self) -> PoolRejection:
        if self.deferral is not None:
            return _waiting(self.deferral)
        blocked = self.pod_class.blocked
        if blocked is not None and not self.pod_class.rungs:
            return blocked
        if not self.pool.bits:
            return _unusable(self.pool)
        rung = self.pod_class.rungs[-1]
        rejection = self._taints(rung) or self._requirements(rung)
        if rejection is not None:
            return rejection
        merged = self.pool.requirements.merge(rung.requirements)
        bits = self.pool.bits & self.pool.catalogue.matching(merged)
        bits, rejection = self._resources(bits)
        if rejection is None:
            bits, rejection = self._ports(bits, rung)
        if rejection is not None:
            return rejection
        if blocked is not None:
            return blocked
        return self._limits_and_later(bits, merged)

    def _taints(self, rung: Rung) -> PoolRejection | None:
        taint = first_untolerated(self.pool.taints, rung.ask.tolerations)
        if taint is None:
            return None
        return PoolRejection(
            constraint=Constraint.TAINT,
            detail=f'did not tolerate taint "{taint_text(taint)}"',
            remedy=f'add a toleration for "{taint_text(taint)}"',
        )

    def _requirements(self, rung: Rung) -> PoolRejection | None:
        pool, catalogue = self.pool, self.pool.catalogue
        refused = pool.requirements.incompatibility(
            rung.requirements, allow_undefined=pool.well_known, well_known=pool.well_known
        )
        if refused is not None:
            return PoolRejection(constraint=Constraint.REQUIREMENT, detail=str(refused))
        merged = pool.requirements.merge(rung.requirements)
        if pool.bits & catalogue.matching(merged):
            return None
        met = np.zeros(catalogue.size, dtype=np.int64)
        for key in sorted(rung.requirements):
            met += catalogue.mask(catalogue.matching_one(merged.get(key)))
        row = int(np.where(catalogue.mask(pool.bits), met, -1).argmax())
        name = catalogue.names[row]
        conflict = catalogue.instance_types[row].requirements.intersection_failure(merged)
        return PoolRejection(
            constraint=Constraint.REQUIREMENT,
            detail=f"no instance type met all requirements ({name}: {conflict})",
            closest=name,
        )

    def _resources(self, bits: int) -> tuple[int, PoolRejection | None]:
        """Keep the rows that are large enough before daemons take their part."""
        pool, resources = self.pool, self.engine.compiled.resources
        bare = np.stack([pool.catalogue.allocatable(name) for name in resources])
        fitting = _fitting(bare, self.request) & pool.catalogue.mask(bits)
        if fitting.any():
            return bits_of_mask(fitting), None
        row = _closest(bare, self.request, pool.catalogue.mask(bits))
        return 0, PoolRejection(
            constraint=Constraint.RESOURCE,
            detail=f"no instance type has enough resources ({self._shortfall(bare, row)})",
            closest=pool.catalogue.names[row],
            remedy=self._smaller(bare, row),
        )

    def _shortfall(self, free: Amounts, row: int) -> str:
        parts: list[str] = []
        for line, name in enumerate(self.engine.compiled.resources):
            asked, there = int(self.request[line]), int(free[line, row])
            if asked > there:
                parts.append(
                    f"{name}: {format_amount(name, asked)} asked, "
                    f"{self.pool.catalogue.names[row]} has {format_amount(name, there)}"
                )
                if name == CPU and asked >= _MILLION_CORES:
                    parts[-1] += " (CPU request >= 1 Million, m vs M typo?)"
        return "; ".join(parts)

    def _smaller(self, free: Amounts, row: int) -> str:
        return "ask for at most " + ", ".join(
            f"{name} {format_amount(name, max(int(free[line, row]), 0))}"
            for line, name in enumerate(self.engine.compiled.resources)
            if self.request[line] > free[line, row]
        )

    def _ports(self, bits: int, rung: Rung) -> tuple[int, PoolRejection | None]:
        left = (
            bits & self.pool.rows_without_port(rung.ask.host_ports) if rung.ask.host_ports else bits
        )
        if left:
            return left, None
        taken = [
            (daemon.name, port)
            for daemon, _ in self.pool.daemons
            if (port := first_conflict(rung.ask.host_ports, daemon.shape.host_ports)) is not None
        ]
        return 0, PoolRejection(
            constraint=Constraint.PORT,
            detail="; ".join(
                f"{port_text(port)} is taken by daemon {name}" for name, port in taken
            ),
        )

    def _limits_and_later(self, bits: int, merged: Requirements) -> PoolRejection:
        pool, catalogue = self.pool, self.pool.catalogue
        rejection = self._limits(bits)
        if rejection is not None:
            return rejection
        left = bits & pool.within(self.remaining)
        missing = catalogue.min_values_reached(left, merged)
        if missing and self.engine.compiled.options.min_values is MinValuesPolicy.STRICT:
            return PoolRejection(constraint=Constraint.MIN_VALUES, detail=_min_values_text(missing))
        offered = left & pool.offered(merged)
        if not offered:
            name = catalogue.names[_first(left)]
            return PoolRejection(
                constraint=Constraint.OFFERING,
                detail="no instance type has the required offering (available, in an allowed "
                f"zone, with an allowed capacity type); {name} would do",
                closest=name,
            )
        with_daemons = _fitting(self.pool_free, self.request) & catalogue.mask(offered)
        if not with_daemons.any():
            row = _closest(self.pool_free, self.request, catalogue.mask(offered))
            return PoolRejection(
                constraint=Constraint.DAEMON,
                detail="no instance type has enough resources beside its daemons "
                f"({self._shortfall(self.pool_free, row)})",
                closest=catalogue.names[row],
            )
        missing = catalogue.min_values_reached(bits_of_mask(with_daemons), merged)
        if missing or merged.has_min_values:
            return PoolRejection(
                constraint=Constraint.MIN_VALUES,
                detail=_min_values_text(missing)
                if missing
                else "minValues requirement is not met by the cheapest "
                f"{self.engine.compiled.options.max_instance_types} instance types",
            )
        return PoolRejection(constraint=Constraint.RESOURCE, detail="no claim could be opened")

    def _limits(self, bits: int) -> PoolRejection | None:
        pool = self.pool
        if self.remaining.get(NODES, 1) <= 0:
            return PoolRejection(
                constraint=Constraint.LIMIT,
                detail=f"node limits have been exhausted for nodepool ({NODES}: "
                f"{pool.limits[NODES]} allowed)",
                remedy=f"raise spec.limits.{NODES} of the nodepool",
            )
        if bits & pool.within(self.remaining):
            return None
        row = _first(bits)
        short = [
            name
            for name in pool.limited
            if not any(
                int(pool.catalogue.capacity(name)[other]) <= self.remaining[name]
                for other in np.flatnonzero(pool.catalogue.mask(bits))
            )
        ] or list(pool.limited)
        left = ", ".join(
            f"{name}: {format_amount(name, max(self.remaining[name], 0))} of "
            f"{format_amount(name, pool.limits[name])} left"
            for name in short
        )
        return PoolRejection(
            constraint=Constraint.LIMIT,
            detail=f"all available instance types exceed limits for nodepool ({left})",
            closest=pool.catalogue.names[row],
            remedy=f"raise {', '.join(f'spec.limits.{name}' for name in short)} of the nodepool",
        )


def _waiting(deferral: Deferral) -> PoolRejection:
    """Say which reserved machines would do; the next pass knows whether any is left."""
    taken = "; ".join(
        ", ".join(f"{key}={value}" for key, value in reservation) for reservation in deferral.taken
    )
    return PoolRejection(
        constraint=Constraint.RESERVATION,
        detail=f"all reserved machines that would do are taken in this pass ({taken})",
    )


def _unusable(pool: CompiledPool) -> PoolRejection:
    """Say why a pool can make no machine at all."""
    catalogue = pool.catalogue
    if pool.refusal:
        return PoolRejection(
            constraint=Constraint.REQUIREMENT, detail=f"{_FILTERED_OUT}: {pool.refusal}"
        )
    if not pool.matching_bits:
        return PoolRejection(constraint=Constraint.REQUIREMENT, detail=_FILTERED_OUT)
    offered = pool.matching_bits & pool.offered_bits & catalogue.sound_bits
    missing = catalogue.min_values_reached(offered, pool.requirements)
    if offered and missing:
        return PoolRejection(
            constraint=Constraint.MIN_VALUES, detail=f"{_FILTERED_OUT}: {_min_values_text(missing)}"
        )
    return PoolRejection(
        constraint=Constraint.OFFERING,
        detail=f"{_FILTERED_OUT}: none has an available offering that is allowed",
        closest=catalogue.names[_first(pool.matching_bits)],
    )


def _min_values_text(missing: Mapping[str, int]) -> str:
    reached = ", ".join(f"{key}: {count} to be had" for key, count in missing.items())
    return (
        f"minValues requirement is not met for label(s) (label(s)=[{' '.join(missing)}]) "
        f"({reached})"
    )


def _fitting(free: Amounts, request: Amounts) -> NDArray[np.bool_]:
    fits: NDArray[np.bool_] = np.logical_and.reduce(
        (free >= request[:, None]) & (free >= 0), axis=0
    )
    return fits


def _closest(free: Amounts, request: Amounts, allowed: NDArray[np.bool_]) -> int:
    """Return the row that misses least: smallest share of the request not covered, then name."""
    asked = np.flatnonzero(request)
    short = np.maximum(request[asked, None] - np.maximum(free[asked], 0), 0)
    share = (short / request[asked, None]).sum(axis=0)
    return int(np.where(allowed, share, np.inf).argmin())


def _first(bits: int) -> int:
    """Return the first row of a set that is not empty."""
    return (bits & -bits).bit_length() - 1
