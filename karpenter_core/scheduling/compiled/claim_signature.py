"""Computes the types, prices and capacity that a claim signature allows.

Everything that follows from a signature alone is computed once, on first use.
"""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import CAPACITY_TYPE, SPOT
from karpenter_core.api.spot_share import OTHER_NODES, SPOT_NODES
from karpenter_core.scheduling.compiled.bitsets import bits_of_mask, rows_of
from karpenter_core.scheduling.compiled.instance_shapes import OfferingMatrix
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import HostPort
    from karpenter_core.scheduling.arrays import Amounts, Columns, Counts, Mask, Prices
    from karpenter_core.scheduling.compiled.instance_shapes import InstanceShapes
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.problem import SolveOptions

__all__ = ["ClaimSignature"]


@final
class ClaimSignature:
    """The data shared by planned claims with the same possible instances; `bits` are their rows."""

    def __init__(
        self,
        pool: CompiledPool,
        requirements: Requirements,
        host_ports: tuple[HostPort, ...],
        bits: int,
        free: Amounts,
        options: SolveOptions,
        *,
        held: frozenset[Reservation] | None,
        min_values_relaxed: bool,
    ) -> None:
        self._options: Final = options
        self.pool: Final = pool
        self.requirements: Final = requirements
        self.host_ports: Final = host_ports
        self.bits: Final = bits
        self.held: Final = held
        """The reservations it may use; None: it is not decided yet which."""
        self.min_values_relaxed: Final = min_values_relaxed
        self.has_min_values: Final = requirements.has_min_values
        self._pool_free: Final = free

    @cached_property
    def allowed_groups(self) -> Mask:
        """The groups of offerings that the claim may use."""
        return self.pool.allowed_groups(self.requirements, self.held)

    def groups_of(self, rows: Columns) -> list[int]:
        """Return the groups of offerings that some of these catalogue rows can be had from."""
        prices = self.pool.catalogue.prices[:, rows]
        is_sold: Mask = np.logical_or.reduce(np.isfinite(prices), axis=1)
        groups: list[int] = np.flatnonzero(self.allowed_groups & is_sold).tolist()
        return groups

    def reservations(self, chosen: Mask) -> frozenset[Reservation]:
        """Return the reservations that some of chosen `rows` can be had from."""
        rows, prices = self.rows[chosen], self.pool.catalogue.prices
        return frozenset(
            reservation
            for group, reservation in self.pool.reservations.items()
            if self.allowed_groups[group] and np.isfinite(prices[group, rows]).any()
        )

    @cached_property
    def prices_and_groups(self) -> tuple[Prices, Columns]:
        """By catalogue row: its price at its cheapest allowed offering, and that offering's group."""
        catalogue = self.pool.catalogue
        numbers = np.flatnonzero(self.allowed_groups)
        if not len(numbers):
            return np.full(catalogue.size, inf), np.zeros(catalogue.size, dtype=np.intp)
        prices = catalogue.prices[numbers]
        best = prices.argmin(axis=0)
        return prices[best, np.arange(catalogue.size)], numbers[best]

    def counted_against_limits(self, name: str) -> Amounts:
        """Return what each catalogue row counts against a limit of the pool: catalogue rows."""
        return self.pool.counted_against_limits(name, self.requirements)

    def capacity_of(self, row: int) -> dict[str, int]:
        """Return what one node takes of each limit of the pool; `row` is one of the catalogue."""
        return {name: int(self.counted_against_limits(name)[row]) for name in self.pool.limited}

    def charge(self, rows: Columns) -> dict[str, int]:
        """Return what a claim counts against limits: the largest of the rows it may become."""
        return {
            name: int(self.counted_against_limits(name)[rows].max()) for name in self.pool.limited
        }

    @property
    def spot_count(self) -> str:
        """Name under which its nodes count for a share of spot."""
        return SPOT_NODES if self.requirements.get(CAPACITY_TYPE).has(SPOT) else OTHER_NODES

    @cached_property
    def rows(self) -> Columns:
        """The rows, cheapest first, ties by name."""
        rows = rows_of(self.bits, self.pool.catalogue.size)
        return rows[np.argsort(self.prices_and_groups[0][rows], kind="stable")]

    @cached_property
    def prices(self) -> Prices:
        """rows: the prices of `rows`."""
        return self.prices_and_groups[0][self.rows]

    @cached_property
    def free(self) -> Amounts:
        """Resources x rows: what pods may use on each of `rows`."""
        return self._pool_free[:, self.rows]

    @cached_property
    def _overdrawn(self) -> list[int]:
        """The resources of which some row has less than zero, so that not even no pods fit."""
        lines: list[int] = np.flatnonzero((self.free < 0).any(axis=1)).tolist()
        return lines

    @cached_property
    def largest(self) -> Amounts:
        """resources: the element-wise largest of `free`; more than this fits on none."""
        return self.free.max(axis=1)

    @cached_property
    def frontier(self) -> Amounts:
        """Resources x some rows: the amounts of those among `rows` that no other row contains."""
        scale = np.maximum(self.largest[:, None], 1)
        undominated = self.free[:, np.argsort(-(self.free / scale).sum(axis=0), kind="stable")]
        kept: list[Amounts] = []
        while undominated.shape[1]:
            top = undominated[:, :1]
            kept.append(top)
            undominated = undominated[:, ~(undominated <= top).all(axis=0)]
        return np.concatenate(kept, axis=1)

    @cached_property
    def needs_row_check(self) -> bool:
        """Whether "fits into `largest`" is not yet "fits on some row"."""
        return self.has_min_values or self.frontier.shape[1] > 1

    def fitting(self, used: Amounts) -> Mask:
        """Return which of `rows` hold the amounts of one node (`used`: resources)."""
        free, lines = self.free, [*self._overdrawn, *used.nonzero()[0].tolist()] or [0]
        fits: Mask = np.logical_and.reduce([free[line] >= used[line] for line in lines])
        return fits

    def guarantees(self, asked: Requirements, bits: int | None = None) -> bool:
        """Whether every instance of some rows (None: of all its rows) meets requirements."""
        bits = self.bits if bits is None else bits
        return all(
            self.requirements.guarantees(
                Requirements((requirement,)), undecided=self.pool.well_known
            )
            or (
                self.pool.catalogue.defines(requirement.key)
                and not bits & ~self.pool.catalogue.guaranteeing(requirement)
            )
            for requirement in asked.values()
        )

    def bits_of(self, chosen: Mask) -> int:
        """Return chosen ones among `rows` as a set."""
        mask = np.zeros(self.pool.catalogue.size, dtype=np.bool_)
        mask[self.rows[chosen]] = True
        return bits_of_mask(mask)

    def missing_min_values(self, chosen: Mask) -> dict[str, int]:
        """Return the labels whose `minValues` chosen rows miss, with the count they reach."""
        if not self.has_min_values:
            return {}
        return self.pool.catalogue.missing_min_values(self.bits_of(chosen), self.requirements)

    @cached_property
    def admissible(self) -> Mask:
        """The rows out of `rows` that may measure a claim.

        Whatever fits on such a row also fits on enough other rows for `minValues`.
        """
        if not self.has_min_values:
            return np.ones(len(self.rows), dtype=np.bool_)
        return np.array(
            [
                not self.missing_min_values(self.fitting(self.free[:, number]))
                for number in range(len(self.rows))
            ],
            dtype=np.bool_,
        )

    @cached_property
    def buys_spot(self) -> bool:
        """Whether some of its rows are cheapest as spot."""
        groups = self.pool.catalogue.groups
        used: set[int] = set(self.prices_and_groups[1][self.rows].tolist())
        return any(groups[g].requirements.single_value(CAPACITY_TYPE) == SPOT for g in used)

    @cached_property
    def instance_shapes(self) -> InstanceShapes:
        """The shapes worth measuring by; their `row` is a position in `rows`."""
        options = self._options
        prices = np.where(self.admissible, self.prices, inf)
        return self.pool.catalogue.instance_shapes(
            OfferingMatrix(
                capacity=self.free,
                prices=prices[None, :],
                types=self.pool.catalogue.type_numbers[self.rows],
                robust_weight=np.array([options.robust_price_weight if self.buys_spot else 0.0]),
                robust_rank=options.robust_price_rank,
                flexibility_floor=options.flexibility_floor,
            )
        )

    @cached_property
    def admissible_mask(self) -> Mask:
        """`admissible`, over all rows of the catalogue."""
        mask = np.zeros(self.pool.catalogue.size, dtype=np.bool_)
        mask[self.rows[self.admissible]] = True
        return mask

    def fit_counts(self, used: Amounts, request: Amounts) -> Counts:
        """Return how many more requests fit on some row, beside what each claim uses already.

        `used` is resources x claims, `request` resources, the result claims.
        """
        if self.has_min_values:
            return np.array(
                [self._fit_count_with_min_values(column, request) for column in used.T],
                dtype=np.int64,
            )
        return self._fit_counts(self.frontier, used, request)

    def fit_count(
        self,
        used: Amounts,
        request: Amounts,
        requested_lines: Sequence[tuple[int, int]],
    ) -> int:
        """Return `fit_counts` of one claim; `requested_lines` are the nonzero ones of `request`."""
        if self.has_min_values:
            return self._fit_count_with_min_values(used, request)
        most, amounts = 0, used.tolist()
        for row in self._frontier_rows:
            spare = [there - used_amount for there, used_amount in zip(row, amounts, strict=True)]
            if min(spare) >= 0:
                most = max(most, min([spare[line] // amount for line, amount in requested_lines]))
        return most

    @cached_property
    def _frontier_rows(self) -> list[list[int]]:
        return self.frontier.T.tolist()

    @staticmethod
    def _fit_counts(rows: Amounts, used: Amounts, request: Amounts) -> Counts:
        lines = request.nonzero()[0]
        most = np.zeros(used.shape[1], dtype=np.int64)
        for row in rows.T:
            spare = row[:, None] - used
            room = np.minimum.reduce(spare[lines] // request[lines, None])
            room[np.minimum.reduce(spare) < 0] = 0
            np.maximum(most, room, out=most)
        return most

    def _fit_count_with_min_values(self, used: Amounts, request: Amounts) -> int:
        """Find the most by bisection: more pods leave fewer rows."""
        low, high = 0, int(self._fit_counts(self.frontier, used[:, None], request)[0])
        while low < high:
            middle = (low + high + 1) // 2
            if self.missing_min_values(self.fitting(used + middle * request)):
                high = middle - 1
            else:
                low = middle
        return low
