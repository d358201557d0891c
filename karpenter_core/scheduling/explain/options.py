"""Holds the claims of one NodePool that could still host a pod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias, final

import numpy as np

from karpenter_core.scheduling.compiled.signatures import NO_MATCH, UNDECIDED_DOMAIN
from karpenter_core.scheduling.problem import PoolRejection
from karpenter_core.scheduling.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Amounts, Mask
    from karpenter_core.scheduling.compiled.class_topology import ClassTopology
    from karpenter_core.scheduling.compiled.pod_classes import ClassRelaxationStep, PodClass
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.topology_axes import TopologyAxis
    from karpenter_core.scheduling.placement.engine import PlacementEngine
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "ClaimOption",
    "ExplainedPool",
    "NarrowingResult",
    "PoolExplanation",
    "fitting",
    "listed",
]

_MAX_LISTED: Final = 6


@dataclass(frozen=True, slots=True)
class ClaimOption:
    """A possible new claim: requirements, and the catalogue rows that meet them."""

    requirements: Requirements
    bits: int


NarrowingResult: TypeAlias = tuple[ClaimOption, ...] | PoolRejection
"""The options that a constraint leaves, or the rejection when it leaves none."""


@final
class ExplainedPool:
    """Facts about one pool that explanations use repeatedly."""

    def __init__(self, compiled: CompiledProblem, number: int) -> None:
        self.number: Final = number
        self.pool: Final[CompiledPool] = compiled.pools[number]
        self._resources: Final = compiled.resources
        self.free: Final = compiled.pool_free[number]
        """resources x rows: what pods may use on each row."""
        self.usable_bits: Final = self.pool.matching_bits & self.pool.catalogue.sound_bits
        """The rows that the pool's requirements allow, sold out or not."""
        self.domains: Final = dict[tuple[ClaimOption, int], tuple[int, ...]]()
        """The domains of an axis that each option leaves, by number."""

    @cached_property
    def free_without_daemons(self) -> Amounts:
        """Resources x rows: what pods could use without daemons."""
        overhead = [self.pool.daemon_overhead(name) for name in self._resources]
        return self.free + np.stack(overhead)


@final
class PoolExplanation:
    """One class at its last relaxation step, and one pool that does not take it."""

    def __init__(self, engine: PlacementEngine, explained_pool: ExplainedPool, index: int) -> None:
        compiled = engine.compiled
        self.engine: Final = engine
        self.compiled: Final = compiled
        self.explained_pool: Final = explained_pool
        self.pool: Final = explained_pool.pool
        self.index: Final = index
        self.pod_class: Final[PodClass] = compiled.classes[index]
        relaxation_step = self.pod_class.last_relaxation_step
        self.relaxation_step: Final[ClassRelaxationStep] = self.pod_class.relaxation_steps[
            relaxation_step
        ]
        self.topology: Final[ClassTopology] = compiled.topologies[index][relaxation_step]
        self.request: Final[Amounts] = compiled.requests[:, index]
        self.remaining: Final = engine.remaining[explained_pool.number]
        self.remarks: Final = list[str]()
        """The results of earlier constraints without which a later reason would not hold."""

    def start(self) -> ClaimOption:
        """Return all rows that the pool's and the pod's requirements allow."""
        merged = self.pool.requirements.merge(self.relaxation_step.requirements)
        return ClaimOption(
            merged, self.explained_pool.usable_bits & self.pool.catalogue.matching(merged)
        )

    def within(self, bits: int, options: Iterable[ClaimOption]) -> tuple[ClaimOption, ...]:
        """Return what is left of options when only some rows may be used."""
        return tuple(
            ClaimOption(option.requirements, option.bits & bits)
            for option in options
            if option.bits & bits
        )

    def domains(self, options: Iterable[ClaimOption], axis: TopologyAxis) -> tuple[int, ...]:
        """Return the domains of an axis that a claim could be in."""
        cached_domains, domain_numbers = self.explained_pool.domains, set[int]()
        for option in options:
            domains = cached_domains.get((option, axis.number))
            if domains is None:
                number = self.claim(option)
                domains = cached_domains[option, axis.number] = tuple(
                    domain
                    for domain in self.compiled.signatures.possible(axis.number, number)
                    if self._in_domains(option, axis, (domain,)) is not None
                )
            domain_numbers.update(domains)
        return tuple(sorted(domain_numbers))

    def claim(self, option: ClaimOption) -> int:
        """Return the signature of a new claim that is an option."""
        return self.compiled.signatures.number_of_claim(
            self.pool, option.requirements, (), option.bits
        )

    def in_domains(
        self, options: Iterable[ClaimOption], axis: TopologyAxis, domains: Iterable[int]
    ) -> tuple[ClaimOption, ...]:
        """Return what is left of options when a claim has to be in one of some domains."""
        chosen = tuple(domains)
        narrowed_options = (self._in_domains(option, axis, chosen) for option in options)
        return tuple(option for option in narrowed_options if option is not None)

    def _in_domains(
        self, option: ClaimOption, axis: TopologyAxis, domains: tuple[int, ...]
    ) -> ClaimOption | None:
        signatures, number = self.compiled.signatures, self.claim(option)
        possible = set(signatures.possible(axis.number, number))
        names = frozenset(axis.names[domain] for domain in domains if domain in possible)
        if number == NO_MATCH or not names:
            return None
        if signatures.domain(axis.number, number) != UNDECIDED_DOMAIN:
            return option
        domain_requirement = Requirement(key=axis.key, complement=False, values=names)
        requirements = option.requirements.add(domain_requirement)
        bits = option.bits & self.pool.catalogue.matching(requirements)
        return ClaimOption(requirements, bits) if bits else None

    def union(self, options: Iterable[ClaimOption]) -> int:
        """Return the rows of all options."""
        bits = 0
        for option in options:
            bits |= option.bits
        return bits

    def cheapest(self, options: Iterable[ClaimOption]) -> str:
        """Return the cheapest type among options, ties by name."""
        claims = [self.compiled.signatures.claim(self.claim(option)) for option in options]
        best = min((float(c.prices[0]), self.pool.catalogue.names[int(c.rows[0])]) for c in claims)
        return best[1]

    def with_remarks(self, detail: str) -> str:
        """Return a reason with the remarks of earlier constraints."""
        return "; ".join((detail, *self.remarks))


def fitting(free: Amounts, request: Amounts) -> Mask:
    """Return which columns of `free` (resources x rows) hold a request (resources)."""
    fits: Mask = np.logical_and.reduce(free >= request[:, None])
    return fits


def listed(items: Iterable[str], most: int = _MAX_LISTED, *, separator: str = ", ") -> str:
    """Write a list for people; a long one is cut."""
    texts = list(items)
    shown = separator.join(texts[:most])
    more = len(texts) - most
    return f"{shown} and {more} more" if more > 0 else shown
