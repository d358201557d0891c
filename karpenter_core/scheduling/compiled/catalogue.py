"""Compiles instance-type catalogues into columns, and caches them.

Instance types become rows, sorted by name; one row for each group of offerings with the same
allocatable resources (`offerings.allocatable_groups`). Requirements become sets of rows, offerings
a table of prices by group of like offerings (same zone, capacity type …) and row. Nothing here
depends on pods or pools; a `CatalogueCache` keeps compiled catalogues between passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

import numpy as np

from karpenter_core.api.labels import RESERVED
from karpenter_core.scheduling.compiled.bitsets import bits_of, mask_of
from karpenter_core.scheduling.compiled.instance_shapes import find_instance_shapes
from karpenter_core.scheduling.compiled.node_table import NodeTable
from karpenter_core.scheduling.offerings import allocatable_groups, price_amount
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.scheduling.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from karpenter_core.api.records import Resources
    from karpenter_core.scheduling.arrays import Amounts, Mask, Prices
    from karpenter_core.scheduling.compiled.instance_shapes import InstanceShapes, OfferingMatrix
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["CatalogueCache", "CompiledCatalogue", "OfferingGroup"]

K = TypeVar("K")
V = TypeVar("V")

_MAX_OFFERING_MATRICES: Final = 64
"""Offering matrices whose shapes a catalogue caches, at some 50 kB each."""
_MAX_REQUIREMENTS: Final = 1024
"""Requirements whose rows a catalogue caches: pods invent new ones without end, and it may live for
weeks. A pass with more of them compares some again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferingGroup:
    """Offerings of many types with the same requirements (one zone, one capacity type)."""

    requirements: Requirements
    zone: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class _CatalogueRow:
    instance_type: InstanceType
    offerings: tuple[Offering, ...]
    capacity: Resources
    allocatable: Resources


@final
class CompiledCatalogue:
    """The rows, columns and row sets of one catalogue at one set of exchange rates."""

    def __init__(
        self, catalogue: Catalogue, *, currency: str, exchange_rates: Mapping[str, float]
    ) -> None:
        rows = [
            _CatalogueRow(it, group.offerings, group.capacity, group.allocatable)
            for it in sorted(catalogue.instance_types, key=lambda it: it.name)
            for group in allocatable_groups(it)
        ]
        self.size: Final = len(rows)
        self.instance_types: Final = tuple(row.instance_type for row in rows)
        self.names: Final = tuple(row.instance_type.name for row in rows)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(self.names))}
        self.name_array: Final = np.array(self.names, dtype=np.object_)
        self.has_twins: Final = len(numbers) < self.size
        """Whether some type has several rows."""
        self.type_numbers: Final = np.array([numbers[n] for n in self.names], dtype=np.intp)
        """The number of each row's instance type; rows of one type share it."""
        self.all_bits: Final = (1 << self.size) - 1
        self.sound_bits: Final = bits_of(
            number
            for number, row in enumerate(rows)
            if min(row.allocatable.values(), default=0) >= 0
        )
        """Rows without an overdrawn resource; nothing fits on the others."""
        self._allocatable: Final = _columns([row.allocatable for row in rows])
        self._capacity: Final = _columns([row.capacity for row in rows])
        self.resources: Final = tuple(self._capacity)
        self._zeros: Final = np.zeros(self.size, dtype=np.int64)
        rates = {currency: 1.0, **exchange_rates}
        self._rates: Final = rates
        currencies = {o.price.currency for row in rows for o in row.offerings}
        self.is_priced: Final = all(name in rates for name in currencies)
        """Whether prices are in the reporting currency; else they are as the provider gave them."""
        if not self.is_priced and len(currencies) == 1:
            rates = dict.fromkeys(currencies, 1.0)
        self.groups, self.prices = _price_table(rows, rates)
        self.reserved, self.plain_labels = _reserved(catalogue.instance_types)
        """The remaining capacity of reserved offerings; the labels that any other offering has."""
        self._defined, self._values, self._absent, self._others = _index(self.instance_types)
        self._sold_as: Final = tuple(
            dict.fromkeys(o.requirements for it in catalogue.instance_types for o in it.offerings)
        )
        """The requirements of all offerings, available or not."""
        self._matches: Final = dict[Requirement, int]()
        self._ensured: Final = dict[Requirement, int]()
        self._shapes: Final = dict[object, "InstanceShapes"]()

    @cached_property
    def _sold_amounts(self) -> tuple[tuple[Requirements, ...], Amounts]:
        """The requirements of all offerings, in stock or not, and their prices: offerings x rows.

        Prices are in millionths of the reporting currency (`price_amount`), -1 where not sold.
        """
        numbers = {requirements: line for line, requirements in enumerate(self._sold_as)}
        amounts = np.full((len(numbers), self.size), -1, dtype=np.int64)
        for column, instance_type in enumerate(self.instance_types):
            for offering in instance_type.offerings:
                line = numbers[offering.requirements]
                amount = price_amount(offering.uncommitted_price or offering.price, self._rates)
                amounts[line, column] = max(int(amounts[line, column]), amount)
        return self._sold_as, amounts

    def highest_prices(self, requirements: Requirements, well_known: Container[str]) -> Amounts:
        """Return the highest price of a node of each row, in millionths of the currency: rows.

        -1 for rows without an offering that meets the requirements, in stock or not.
        """
        offerings, amounts = self._sold_amounts
        allowed = [
            line
            for line, offered in enumerate(offerings)
            if requirements.compatible(offered, allow_undefined=well_known)
        ]
        highest: Amounts = amounts[allowed].max(axis=0, initial=-1)
        return highest

    def allocatable(self, resource: str) -> Amounts:
        """Return how much of a resource each row's pods and daemons may use: rows."""
        return self._allocatable.get(resource, self._zeros)

    def capacity(self, resource: str) -> Amounts:
        """Return how much of a resource each row has before overhead: rows."""
        return self._capacity.get(resource, self._zeros)

    def matching(self, requirements: Requirements) -> int:
        """Return the rows that these requirements allow; labels a type does not define are free."""
        bits = self.all_bits
        for requirement in requirements.values():
            bits &= self.matching_one(requirement)
        return bits

    def matching_one(self, requirement: Requirement) -> int:
        """Return the rows that one requirement allows."""
        if requirement.key not in self._values:
            return self.all_bits
        matches = self._matches.get(requirement)
        if matches is None:
            matches = self._match(requirement)
            _keep(self._matches, requirement, matches, most=_MAX_REQUIREMENTS)
        return matches

    def _match(self, requirement: Requirement) -> int:
        values = self._values[requirement.key]
        bits = self.all_bits & ~self._defined[requirement.key]
        if requirement.complement:
            for value, rows in values.items():
                if requirement.has(value):
                    bits |= rows
        else:
            for value in requirement.values:
                bits |= values.get(value, 0)
        if requirement.operator in {"NotIn", "DoesNotExist"}:
            bits |= self._absent.get(requirement.key, 0)
        for other, rows in self._others.get(requirement.key, ()):
            if other.admits(requirement):
                bits |= rows
        return bits

    def guaranteeing(self, requirement: Requirement) -> int:
        """Return the rows that meet one requirement with every value they may take."""
        type_bits = self._ensured.get(requirement)
        if type_bits is None:
            ensuring = (
                row
                for row, described in enumerate(self.instance_types)
                if described.requirements.get(requirement.key).guarantees(requirement)
            )
            type_bits = bits_of(ensuring)
            _keep(self._ensured, requirement, type_bits, most=_MAX_REQUIREMENTS)
        return type_bits

    def defines(self, key: str) -> bool:
        """Whether some type defines a label."""
        return key in self._values

    def values_of(self, key: str) -> tuple[str, ...]:
        """Return every value that some type may have for a label."""
        return tuple(sorted(self._values.get(key, ())))

    def unsold_values(
        self, key: str, requirements: Requirements, well_known: Container[str]
    ) -> frozenset[str]:
        """Return the values of a label that only offerings have which requirements do not allow.

        Availability makes no difference.
        """
        sold, unsold = set[str](), set[str]()
        for offered in self._sold_as:
            if key in offered:
                allowed = requirements.compatible(offered, allow_undefined=well_known)
                (sold if allowed else unsold).update(offered.get(key).values)
        return frozenset(unsold - sold)

    def allowed_groups(self, requirements: Requirements, well_known: Container[str]) -> Mask:
        """Return which groups of offerings a claim's requirements allow: groups."""
        return np.array(
            [
                requirements.compatible(group.requirements, allow_undefined=well_known)
                for group in self.groups
            ],
            dtype=np.bool_,
        )

    def count_values(self, bits: int, key: str) -> int:
        """Count the distinct values of a label over a set of rows."""
        values = self._values.get(key)
        return 0 if values is None else sum(1 for rows in values.values() if rows & bits)

    def missing_min_values(self, bits: int, requirements: Requirements) -> dict[str, int]:
        """Return the labels whose `minValues` a set of rows misses, with the count it reaches."""
        missing: dict[str, int] = {}
        for requirement in requirements.values():
            if requirement.min_values is not None:
                count = self.count_values(bits, requirement.key)
                if count < requirement.min_values:
                    missing[requirement.key] = count
        return missing

    def instance_shapes(self, market: OfferingMatrix) -> InstanceShapes:
        """Return the shapes of an offering matrix; cached, since passes ask for the same ones."""
        content = market.content
        shapes = self._shapes.get(content)
        if shapes is None:
            shapes = find_instance_shapes(market)
            _keep(self._shapes, content, shapes, most=_MAX_OFFERING_MATRICES)
        return shapes

    def mask(self, bits: int) -> Mask:
        """Return a set of rows as a mask: rows."""
        return mask_of(bits, self.size)


def _keep(cache: dict[K, V], key: K, value: V, *, most: int) -> None:
    """Add an entry to a cache, which begins anew once it holds `most` entries."""
    if len(cache) >= most:
        cache.clear()
    cache[key] = value


def _columns(parts: Sequence[Resources]) -> dict[str, Amounts]:
    names = sorted({name for part in parts for name in part})
    return {name: np.array([part.get(name, 0) for part in parts], dtype=np.int64) for name in names}


def _price_table(
    rows: Sequence[_CatalogueRow], rates: Mapping[str, float]
) -> tuple[tuple[OfferingGroup, ...], Prices]:
    """Return the groups of like offerings, and prices: groups x rows (inf: not sold).

    An offering in a currency without a rate beside others that have one cannot be ranked and is
    left out.
    """
    numbers: dict[Requirements, int] = {}
    groups: list[OfferingGroup] = []
    sold: list[tuple[int, int, float]] = []
    for column, row in enumerate(rows):
        for offering in row.offerings:
            number = numbers.setdefault(offering.requirements, len(groups))
            if number == len(groups):
                groups.append(
                    OfferingGroup(
                        requirements=offering.requirements,
                        zone=offering.zone,
                        capacity_type=offering.capacity_type,
                    )
                )
            rate = rates.get(offering.price.currency)
            if rate is not None:
                sold.append((number, column, round(offering.price.amount * rate, 12)))
    order = sorted(range(len(groups)), key=lambda number: _group_order(groups[number]))
    line_of = {number: line for line, number in enumerate(order)}
    prices = np.full((len(groups), len(rows)), inf, dtype=np.float64)
    for number, column, price in sold:
        line = line_of[number]
        prices[line, column] = min(prices[line, column], price)
    return tuple(groups[number] for number in order), prices


def _reserved(
    instance_types: Sequence[InstanceType],
) -> tuple[dict[Requirements, int], frozenset[str]]:
    """Return the capacity left of reserved offerings, and the labels of other offerings.

    Of like offerings the least counts, whether it is on offer now or not.
    """
    reserved: dict[Requirements, int] = {}
    plain: dict[Requirements, None] = {}
    for instance_type in instance_types:
        for offering in instance_type.offerings:
            if offering.capacity_type == RESERVED:
                count = offering.reservation_capacity
                count_before = reserved.get(offering.requirements, count)
                reserved[offering.requirements] = min(count_before, count)
            else:
                plain[offering.requirements] = None
    labels = (label for requirements in plain for label in requirements.values())
    return reserved, frozenset(r.key for r in labels if r.values and not r.complement)


def _group_order(group: OfferingGroup) -> tuple[str, str, str]:
    return (group.zone, group.capacity_type, str(group.requirements))


def _index(
    instance_types: Sequence[InstanceType],
) -> tuple[
    dict[str, int],
    dict[str, dict[str, int]],
    dict[str, int],
    dict[str, list[tuple[Requirement, int]]],
]:
    """Index rows by each label: those that define it, its values, its absence, or other requirements."""
    defined: dict[str, int] = {}
    values: dict[str, dict[str, int]] = {}
    absent: dict[str, int] = {}
    others: dict[str, dict[Requirement, int]] = {}
    for row, instance_type in enumerate(instance_types):
        bit = 1 << row
        for key, requirement in instance_type.requirements.items():
            defined[key] = defined.get(key, 0) | bit
            of_key = values.setdefault(key, {})
            if requirement.complement:
                rest = others.setdefault(key, {})
                rest[requirement] = rest.get(requirement, 0) | bit
            elif requirement.values:
                for value in requirement.values:
                    of_key[value] = of_key.get(value, 0) | bit
            else:
                absent[key] = absent.get(key, 0) | bit
    return defined, values, absent, {key: list(rest.items()) for key, rest in others.items()}


@final
class CatalogueCache:
    """Compiled catalogues and columns of nodes, kept between passes by the caller.

    One per pool: a new version, or new rates, replace the old one; pools that are gone are dropped
    by `retain`. So the cache never holds more than the existing pools.
    """

    def __init__(self) -> None:
        self._compiled: Final = dict[str, tuple[Catalogue, _Rates, CompiledCatalogue]]()
        self.nodes: Final = NodeTable()
        """The columns of the existing nodes of the last problem."""

    def compiled(
        self, pool: str, catalogue: Catalogue, *, currency: str, exchange_rates: Mapping[str, float]
    ) -> CompiledCatalogue:
        """Return the catalogue of a pool as columns."""
        rates: _Rates = (currency, tuple(sorted(exchange_rates.items())))
        cached = self._compiled.get(pool)
        if (
            cached is not None
            and cached[1] == rates
            and (cached[0] is catalogue or cached[0].version == catalogue.version)
        ):
            return cached[2]
        compiled = next(
            (
                compiled
                for other, of_rates, compiled in self._compiled.values()
                if other is catalogue and of_rates == rates
            ),
            None,
        ) or CompiledCatalogue(catalogue, currency=currency, exchange_rates=exchange_rates)
        self._compiled[pool] = (catalogue, rates, compiled)
        return compiled

    def retain(self, pools: Container[str]) -> None:
        """Drop what belongs to pools that are not among these."""
        for pool in [pool for pool in self._compiled if pool not in pools]:
            del self._compiled[pool]


_Rates: TypeAlias = tuple[str, tuple[tuple[str, float], ...]]
