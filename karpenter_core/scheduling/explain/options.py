"""What an explanation narrows down: the machines of one pool that could still host a pod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias, final

import numpy as np

from karpenter_core.scheduling.compiled.signatures import FLOATING, NO_MATCH
from karpenter_core.scheduling.problem import PoolRejection
from karpenter_core.scheduling.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Amounts, Mask
    from karpenter_core.scheduling.compiled.axes import Axis
    from karpenter_core.scheduling.compiled.classes import PodClass, Rung
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.ties import Ties
    from karpenter_core.scheduling.placement.engine import Engine
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["Answer", "Machines", "Option", "Question", "fitting", "listed"]

_MOST_LISTED: Final = 6


@dataclass(frozen=True, slots=True)
class Option:
    """What a new claim might be: requirements, and the rows of the catalogue that meet them."""

    requirements: Requirements
    bits: int


Answer: TypeAlias = tuple[Option, ...] | PoolRejection
"""What a constraint leaves, or why that is nothing."""


@final
class Machines:
    """What is asked of one pool again and again."""

    def __init__(self, compiled: CompiledProblem, number: int) -> None:
        self.number: Final = number
        self.pool: Final[CompiledPool] = compiled.pools[number]
        self._resources: Final = compiled.resources
        self.free: Final = compiled.pool_free[number]
        """What pods may use on each row: a line per resource."""
        self.usable_bits: Final = self.pool.matching_bits & self.pool.catalogue.sound_bits
        """The rows that the pool's requirements allow, sold out or not."""
        self.domains: Final = dict[tuple[Option, int], tuple[int, ...]]()
        """What was found out of options: the domains of an axis, by number."""

    @cached_property
    def bare(self) -> Amounts:
        """What `free` would be without daemons."""
        overhead = [self.pool.daemon_overhead(name) for name in self._resources]
        return self.free + np.stack(overhead)


@final
class Question:
    """One class, as it is when it has given up all it can, and one pool that does not take it."""

    def __init__(self, engine: Engine, machines: Machines, index: int) -> None:
        compiled = engine.compiled
        self.engine: Final = engine
        self.compiled: Final = compiled
        self.machines: Final = machines
        self.pool: Final = machines.pool
        self.index: Final = index
        self.pod_class: Final[PodClass] = compiled.classes[index]
        rung = self.pod_class.last_rung
        self.rung: Final[Rung] = self.pod_class.rungs[rung]
        self.ties: Final[Ties] = compiled.ties[index][rung]
        self.request: Final[Amounts] = compiled.requests[:, index]
        self.remaining: Final = engine.remaining[machines.number]
        self.remarks: Final = list[str]()
        """What earlier constraints left, where a later reason is only true because of it."""

    def start(self) -> Option:
        """Return all machines that the pool's and the pod's requirements allow."""
        merged = self.pool.requirements.merge(self.rung.requirements)
        return Option(merged, self.machines.usable_bits & self.pool.catalogue.matching(merged))

    def within(self, bits: int, options: Iterable[Option]) -> tuple[Option, ...]:
        """Return what is left of options when only some rows may be used."""
        return tuple(
            Option(option.requirements, option.bits & bits)
            for option in options
            if option.bits & bits
        )

    def domains(self, options: Iterable[Option], axis: Axis) -> tuple[int, ...]:
        """Return the domains of an axis that a claim could be in."""
        known, found = self.machines.domains, set[int]()
        for option in options:
            domains = known.get((option, axis.number))
            if domains is None:
                number = self.claim(option)
                domains = known[option, axis.number] = tuple(
                    domain
                    for domain in self.compiled.signatures.possible(axis.number, number)
                    if self._in_domains(option, axis, (domain,)) is not None
                )
            found.update(domains)
        return tuple(sorted(found))

    def claim(self, option: Option) -> int:
        """Return the signature of a new claim that is an option."""
        return self.compiled.signatures.of_claim(self.pool, option.requirements, (), option.bits)

    def in_domains(
        self, options: Iterable[Option], axis: Axis, domains: Iterable[int]
    ) -> tuple[Option, ...]:
        """Return what is left of options when a claim has to be in one of some domains."""
        chosen = tuple(domains)
        left = (self._in_domains(option, axis, chosen) for option in options)
        return tuple(option for option in left if option is not None)

    def _in_domains(self, option: Option, axis: Axis, domains: tuple[int, ...]) -> Option | None:
        signatures, number = self.compiled.signatures, self.claim(option)
        possible = set(signatures.possible(axis.number, number))
        names = frozenset(axis.names[domain] for domain in domains if domain in possible)
        if number == NO_MATCH or not names:
            return None
        if signatures.domain(axis.number, number) != FLOATING:
            return option
        wanted = Requirement(key=axis.key, complement=False, values=names)
        requirements = option.requirements.add(wanted)
        bits = option.bits & self.pool.catalogue.matching(requirements)
        return Option(requirements, bits) if bits else None

    def union(self, options: Iterable[Option]) -> int:
        """Return the rows of all options."""
        bits = 0
        for option in options:
            bits |= option.bits
        return bits

    def cheapest(self, options: Iterable[Option]) -> str:
        """Return the type among options that costs least as far as it is sold, ties by name."""
        claims = [self.compiled.signatures.claim(self.claim(option)) for option in options]
        best = min((float(c.prices[0]), self.pool.catalogue.names[int(c.rows[0])]) for c in claims)
        return best[1]

    def remarked(self, detail: str) -> str:
        """Return a reason with what earlier constraints have to do with it."""
        return "; ".join((detail, *self.remarks))


def fitting(free: Amounts, request: Amounts) -> Mask:
    """Return which columns hold a request."""
    fits: Mask = np.logical_and.reduce(free >= request[:, None], axis=0)
    return fits


def listed(items: Iterable[str], most: int = _MOST_LISTED) -> str:
    """Write a list for people; a long one is cut."""
    known = list(items)
    shown = ", ".join(known[:most])
    more = len(known) - most
    return f"{shown} and {more} more" if more > 0 else shown
