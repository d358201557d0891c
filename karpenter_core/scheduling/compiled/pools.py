"""Compiles NodePools: catalogue rows, daemon overhead, limits.

The overhead of daemons depends on the instance type: each row has that of the daemons which may run
on it (their preferences do not matter, any of their terms may match).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import ALIASES, NODES, PRICE_PER_HOUR, RESERVED, WELL_KNOWN
from karpenter_core.api.quantities import LARGEST_AMOUNT, parse_resources
from karpenter_core.api.spot_share import OTHER_NODES, SPOT_NODES
from karpenter_core.scheduling.compiled.bitsets import bits_of_mask, rows_of
from karpenter_core.scheduling.compiled.daemons import CompiledDaemon, read_daemons
from karpenter_core.scheduling.compiled.pool_templates import read_pool_template
from karpenter_core.scheduling.compiled.quotas import quota_lines
from karpenter_core.scheduling.compiled.reservations import (
    AvailableReservations,
    find_available_reservations,
)
from karpenter_core.scheduling.ports import first_port_conflict
from karpenter_core.scheduling.problem import MinValuesPolicy, PoolConstraint
from karpenter_core.scheduling.taints import PREFERENCE_TOLERATION, first_untolerated

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import HostPort, Resources
    from karpenter_core.scheduling.arrays import Amounts, Mask
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache, CompiledCatalogue
    from karpenter_core.scheduling.compiled.quotas import QuotaLine
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.problem import SchedulingProblem, SolveOptions
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["CompiledPool", "compile_pool_steps"]


@final
class CompiledPool:
    """One compiled NodePool: the catalogue rows that it can launch."""

    def __init__(
        self,
        pool: NodePool,
        catalogue: CompiledCatalogue,
        *,
        daemons: Sequence[CompiledDaemon],
        usage: Resources,
        aliases: Mapping[str, str],
        well_known: frozenset[str],
        min_values: MinValuesPolicy,
        reservations: AvailableReservations,
        quotas: Sequence[QuotaLine],
    ) -> None:
        template = read_pool_template(pool, aliases=aliases)
        self.name: Final = pool.name
        self.weight: Final = pool.spec.weight or 0
        self.catalogue: Final = catalogue
        self.well_known: Final = well_known
        self.taints: Final = template.taints
        self.labels: Final = template.labels
        self.requirements: Final = template.requirements
        self.unreadable_reason: Final = template.unreadable_reason
        self.limits: Final = parse_resources(pool.spec.limits)
        self.quota_lines: Final = {
            line.name: line
            for line in quotas
            if line.counted_rows(catalogue, self.requirements, self.requirements, well_known)
        }
        """The quotas that may count its nodes, by name: shared with other NodePools."""
        self.remaining: Final = {
            **{
                name: max(amount - usage.get(name, 0), -LARGEST_AMOUNT)
                for name, amount in self.limits.items()
            },
            **{name: line.remaining for name, line in self.quota_lines.items()},
        }
        self.spot_share: Final = template.spot_share
        """The part of the nodes that should be spot; None: whatever is cheapest."""
        if self.spot_share is not None:
            # Existing nodes, as a negative rest: what-ifs give some back, as with other limits.
            self.remaining.update((name, -usage.get(name, 0)) for name in (SPOT_NODES, OTHER_NODES))
        self.limited: Final = (
            *sorted(name for name in self.limits if name != NODES),
            *self.quota_lines,
        )
        self.reservations: Final = {
            number: reservations.reservation_of(group.requirements)
            for number, group in enumerate(catalogue.groups)
            if group.capacity_type == RESERVED
        }
        """The groups of offerings that are reserved, with the reservation."""
        self._usable: Final = frozenset(reservations.capacity)
        self.offered_bits: Final = self.offered(self.requirements)
        self.matching_bits: Final = catalogue.matching(self.requirements)
        self.unusable_constraint: Final = self._unusable_constraint(min_values)
        """The reason why it can launch no node at all; None when it can."""
        self.bits: Final = self._launchable_bits() if self.unusable_constraint is None else 0
        """The rows this pool can make at all; empty when its requirements leave none."""
        self._counted: Final = dict[str, "Amounts"]()
        self._counted_for: Final = dict["tuple[str, Requirements]", "Amounts"]()
        self.daemons: Final = tuple(
            (daemon, daemon_bits)
            for daemon in daemons
            if (daemon_bits := self._daemon_bits(daemon))
        )
        """The daemons that run on some rows, with the rows."""

    def _launchable_bits(self) -> int:
        """Return the rows that the template leaves and that are offered, whatever `minValues`."""
        if self.unreadable_reason:
            return 0
        return self.matching_bits & self.offered_bits & self.catalogue.sound_bits

    def _unusable_constraint(self, min_values: MinValuesPolicy) -> PoolConstraint | None:
        bits = self._launchable_bits()
        if min_values is MinValuesPolicy.STRICT and self.catalogue.missing_min_values(
            bits, self.requirements
        ):
            return PoolConstraint.MIN_VALUES
        return None if bits else PoolConstraint.REQUIREMENT

    def allowed_groups(
        self, requirements: Requirements, held: frozenset[Reservation] | None
    ) -> Mask:
        """Return which offering groups a claim may use, reserved ones only of what it holds: groups.

        `held` None: of any reservation of which there is something left.
        """
        allowed = self.catalogue.allowed_groups(requirements, self.well_known)
        usable = self._usable if held is None else held
        for number, reservation in self.reservations.items():
            if reservation not in usable:
                allowed[number] = False
        return allowed

    def offered(
        self, requirements: Requirements, held: frozenset[Reservation] | None = None
    ) -> int:
        """Return the rows that have an available offering which a claim may use."""
        allowed = self.allowed_groups(requirements, held)
        offered: Mask = np.logical_or.reduce(np.isfinite(self.catalogue.prices[allowed]))
        return bits_of_mask(offered)

    def may_have(self, key: str) -> bool:
        """Whether a node of the pool can have a label, whatever its value."""
        return key in self.requirements or key in self.well_known

    def _daemon_bits(self, daemon: CompiledDaemon) -> int:
        tolerations = (*daemon.shape.tolerations, PREFERENCE_TOLERATION)
        if first_untolerated(self.taints, tolerations) is not None:
            return 0
        bits = 0
        for labels in daemon.alternatives:
            if self.requirements.compatible(
                labels.requirements, allow_undefined=self.well_known
            ) and all(self.may_have(key) for key in labels.present):
                bits |= self.catalogue.matching(labels.requirements)
        return bits

    def daemon_overhead(self, resource: str) -> Amounts:
        """Return how much of a resource daemons take: rows.

        A daemon takes nothing of a device that a row lacks: it waits there, and keeps no pod off.
        """
        total = np.zeros(self.catalogue.size, dtype=np.int64)
        for daemon, bits in self.daemons:
            amount = daemon.requests.get(resource, 0)
            if amount:
                total += amount * self.catalogue.mask(bits)
        return np.where(self.catalogue.capacity(resource) > 0, total, 0)

    def free(self, resources: Sequence[str]) -> Amounts:
        """Return what pods may use: resources x rows."""
        return np.stack(
            [self.catalogue.allocatable(name) - self.daemon_overhead(name) for name in resources]
        )

    def rows_without_port(self, port_sets: Sequence[HostPort]) -> int:
        """Return the rows on which no daemon takes one of these ports."""
        bits = self.catalogue.all_bits
        for daemon, daemon_bits in self.daemons:
            if first_port_conflict(port_sets, daemon.shape.host_ports) is not None:
                bits &= ~daemon_bits
        return bits

    def counted_against_limits(
        self, name: str, requirements: Requirements | None = None
    ) -> Amounts:
        """Return what each row counts against a limit (rows), for a claim with requirements.

        `name` is a resource or the name of a quota's line; without requirements it is any claim of
        this NodePool.
        """
        if name != PRICE_PER_HOUR and name not in self.quota_lines:
            return self._largest_capacity(name)
        requirements = requirements or self.requirements
        counted = self._counted_for.get((name, requirements))
        if counted is None:
            counted = self._counted_for[name, requirements] = self._counted_of(name, requirements)
        return counted

    def _counted_of(self, name: str, requirements: Requirements) -> Amounts:
        if name == PRICE_PER_HOUR:
            return self.catalogue.highest_prices(requirements, self.well_known)
        line = self.quota_lines[name]
        rows = line.counted_rows(self.catalogue, self.requirements, requirements, self.well_known)
        mask = self.catalogue.mask(rows)
        if line.is_refusal:
            return np.where(mask, LARGEST_AMOUNT, 0)
        if line.resource == NODES:
            return mask.astype(np.int64)
        return np.where(mask, self.counted_against_limits(line.resource, requirements), 0)

    def _largest_capacity(self, resource: str) -> Amounts:
        """Return the largest capacity of each row's type: rows.

        Offerings of one type may have different capacities, and the provider chooses the offering
        that a claim gets.
        """
        counted = self._counted.get(resource)
        if counted is None:
            counted = self.catalogue.capacity(resource)
            if self.catalogue.has_twins:
                rows = rows_of(self.bits, self.catalogue.size)
                types = self.catalogue.type_numbers[rows]
                largest = np.zeros(self.catalogue.size, dtype=np.int64)
                np.maximum.at(largest, types, counted[rows])
                counted = counted.copy()
                counted[rows] = largest[types]
            self._counted[resource] = counted
        return counted

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """The most that any node of this pool takes of each limited resource."""
        rows = rows_of(self.bits, self.catalogue.size)
        return {name: int(self.counted_against_limits(name)[rows].max()) for name in self.limited}

    @property
    def freed_names(self) -> tuple[str, ...]:
        """The names of `remaining` that the removal of a node of this pool gives back."""
        shares = () if self.spot_share is None else (SPOT_NODES, OTHER_NODES)
        return (*self.limits, *shares)

    def capacity_of(self, row: int) -> dict[str, int]:
        """Return what one node takes of each limited resource."""
        return {name: int(self.counted_against_limits(name)[row]) for name in self.limited}

    def with_freed_limits(self, freed: Resources) -> CompiledPool:
        """Return the pool with limits raised by the capacity of nodes that are being removed."""
        other = copy(self)
        vars(other)["remaining"] = {
            name: amount + freed.get(name, 0) for name, amount in self.remaining.items()
        }
        return other

    def has_ample_limits(self, remaining: Mapping[str, int], count: int) -> bool:
        """Whether that many claims of any type stay within the limits, if it is the same of which type."""
        return (
            self.spot_share is None
            and all(2 * count * self.largest[name] <= remaining[name] for name in self.limited)
            and 2 * count <= remaining.get(NODES, 2 * count)
        )

    def rows_within_limits(
        self, remaining: Mapping[str, int], requirements: Requirements | None = None
    ) -> int:
        """Return the rows whose whole capacity stays inside what is left of the limits.

        A row that takes nothing of a limit is inside, even of an exceeded limit of a quota.
        """
        mask = np.ones(self.catalogue.size, dtype=np.bool_)
        for name in self.limited:
            counted = self.counted_against_limits(name, requirements)
            inside = counted <= remaining[name]
            if name in self.quota_lines:
                inside |= counted == 0
            mask &= inside
        return bits_of_mask(mask)


def compile_pool_steps(
    problem: SchedulingProblem, options: SolveOptions, cache: CatalogueCache
) -> Generator[int, None, tuple[tuple[CompiledPool, ...], AvailableReservations]]:
    """Compile the pools that have a catalogue, in the order in which they are asked.

    Heavier ones first, then by name, the later in the alphabet first (upstream's order). Also
    returns the reservations that they may use.
    """
    daemons = read_daemons(problem)
    usable = [pool for pool in problem.pools if pool.name in problem.catalogues]
    ordered = sorted(usable, key=lambda pool: pool.name, reverse=True)
    ordered.sort(key=lambda pool: -(pool.spec.weight or 0))
    columns: dict[str, CompiledCatalogue] = {}
    for pool in ordered:
        columns[pool.name] = cache.compiled(
            pool.name,
            problem.catalogues[pool.name],
            currency=options.currency,
            exchange_rates=options.exchange_rates,
        )
        yield 5
    reservations = find_available_reservations(columns.values())
    if not options.reserved_capacity:
        reservations = replace(reservations, capacity={})
    quotas = quota_lines(problem.quotas)
    compiled: list[CompiledPool] = []
    for pool in ordered:
        compiled.append(
            CompiledPool(
                pool,
                columns[pool.name],
                daemons=daemons,
                usage=problem.pool_usage.get(pool.name, {}),
                aliases={**ALIASES, **problem.aliases},
                well_known=WELL_KNOWN | problem.well_known,
                min_values=options.min_values,
                reservations=reservations,
                quotas=quotas,
            )
        )
        yield 1
    return tuple(compiled), reservations
