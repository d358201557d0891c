"""Interns node signatures, so that equal nodes share one number.

A planned claim's signature is its pool, its requirements, the host ports of its pods, the
reservations it holds, and the catalogue rows it may use; an existing node's is the part of its
labels that pods refer to, its taints and ports. `join` returns the signature after pods with given
constraints join (or that they cannot), once per pair; everything computed from a signature is kept
with it.

A claim has no domain (zone …) until a pod joins that some topology group over that label restricts
or counts; then it is *pinned* to one, so that all counts are exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from msgspec import Struct

from karpenter_core.api.labels import CAPACITY_TYPE, RESERVED
from karpenter_core.scheduling.compiled.claim_signature import ClaimSignature
from karpenter_core.scheduling.compiled.node_signature import NodeSignature
from karpenter_core.scheduling.ports import first_port_conflict
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.taints import first_untolerated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.records import HostPort, Taint
    from karpenter_core.scheduling.arrays import Amounts
    from karpenter_core.scheduling.compiled.pod_classes import NodeConstraints
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.compiled.topology_axes import TopologyAxis
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.scheduling.requirements import NodeLabels

__all__ = [
    "NO_DOMAIN",
    "NO_MATCH",
    "UNDECIDED_DOMAIN",
    "DomainPin",
    "SignatureTable",
]

NO_MATCH: Final = -1
"""The result of `join` when pods cannot join a node."""

UNDECIDED_DOMAIN: Final = -1
"""The domain of a planned claim that may still be pinned to one."""

NO_DOMAIN: Final = -2
"""The domain of a node without the label, or whose label is not known yet."""


class DomainPin(Struct, frozen=True, gc=False):
    """The domains of an axis that a node may be in, in the order in which they are tried.

    A soft pin is for pods that are counted, not restricted: a claim gets a domain where it can; nodes
    without one will do, but no open claims of this plan. (A struct: pins are keys of many lookups.)
    """

    axis: int
    domains: tuple[int, ...]
    soft: bool = False


@final
class SignatureTable:
    """The signatures of one pass, by number."""

    def __init__(
        self,
        pools: Sequence[CompiledPool],
        pool_free: Sequence[Amounts],
        axes: Sequence[TopologyAxis],
        options: SolveOptions,
    ) -> None:
        self._options: Final = options
        self._axes: Final = tuple(axes)
        self._domains: Final = tuple(dict[int, int]() for _ in axes)
        self._fixings: Final = dict[tuple[int, int, int], int]()
        self._claims: Final = dict[int, ClaimSignature]()
        self._nodes: Final = dict[int, NodeSignature]()
        self._numbers: Final = dict[object, int]()
        self._meetings: Final = dict[tuple[int, int, int], int]()
        self._holdings: Final = dict["tuple[int, frozenset[Reservation], bool]", int]()
        self._pool_free: Final = {
            id(pool): free for pool, free in zip(pools, pool_free, strict=True)
        }

    def __len__(self) -> int:
        return len(self._numbers)

    def is_claim(self, number: int) -> bool:
        """Whether a signature is a planned claim's."""
        return number in self._claims

    def claim(self, number: int) -> ClaimSignature:
        """Return a planned claim's signature."""
        return self._claims[number]

    def number_of_node(self, signature: NodeSignature) -> int:
        """Return the number of an existing node's signature."""
        number = self._numbers.get(signature)
        if number is None:
            number = self._numbers[signature] = len(self._numbers)
            self._nodes[number] = signature
        return number

    def number_of_pool(self, pool: CompiledPool) -> int:
        """Return the number of a pool's empty claim; NO_MATCH when it can make none."""
        return self.number_of_claim(pool, pool.requirements, (), pool.bits)

    def number_of_claim(
        self,
        pool: CompiledPool,
        requirements: Requirements,
        host_ports: tuple[HostPort, ...],
        bits: int,
        *,
        held: frozenset[Reservation] | None = None,
        min_values_relaxed: bool = False,
    ) -> int:
        """Return the number of a claim's signature; NO_MATCH when no row is left."""
        if not bits:
            return NO_MATCH
        key = (id(pool), requirements, host_ports, bits, held, min_values_relaxed)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._claims[number] = ClaimSignature(
                pool,
                requirements,
                host_ports,
                bits,
                self._pool_free[id(pool)],
                self._options,
                held=held,
                min_values_relaxed=min_values_relaxed,
            )
        return number

    def narrowed(self, number: int, bits: int) -> int:
        """Return the signature that is left when a claim may use only some rows."""
        signature = self.claim(number)
        return self.number_of_claim(
            signature.pool,
            signature.requirements,
            signature.host_ports,
            signature.bits & bits,
            held=signature.held,
            min_values_relaxed=signature.min_values_relaxed,
        )

    def restricted(self, number: int, requirements: Requirements) -> int:
        """Return the signature of a claim with more requirements; NO_MATCH when no row is left."""
        signature = self.claim(number)
        return self._narrowed_to(signature, signature.requirements.merge(requirements))

    def holding(
        self, number: int, reservations: frozenset[Reservation], *, only: bool = True
    ) -> int:
        """Return the signature of a claim that holds reservations, NO_MATCH if it cannot.

        It allows reserved offerings `only`, or others too; without reservations no reserved ones.
        """
        signature = self.claim(number)
        if not signature.pool.reservations:
            return NO_MATCH if reservations else number
        key = (number, reservations, only)
        narrowed = self._holdings.get(key)
        if narrowed is None:
            requirements = signature.requirements
            if only or not reservations:
                operator = "In" if reservations else "NotIn"
                kind = Requirement.of(CAPACITY_TYPE, operator, (RESERVED,))
                requirements = requirements.add(kind)
            narrowed = self._narrowed_to(signature, requirements, held=reservations)
            self._holdings[key] = narrowed
        return narrowed

    def relaxed(self, number: int, counts: dict[str, int]) -> int:
        """Return the signature with `minValues` lowered to the counts that are available."""
        signature = self.claim(number)
        return self.number_of_claim(
            signature.pool,
            signature.requirements.with_min_values(counts),
            signature.host_ports,
            signature.bits,
            held=signature.held,
            min_values_relaxed=True,
        )

    def admits_labels(
        self, number: int, alternatives: Iterable[NodeLabels], *, lenient: bool
    ) -> bool:
        """Whether a node has labels that meet one of the alternatives.

        A planned claim: whether every instance it may become will, or (lenient) whether some may.
        """
        claim, requirements = self._claims.get(number), self.possible_labels(number, alternatives)
        if claim is None:
            return any(self._nodes[number].has_labels(one) for one in requirements)
        if not lenient:
            return any(claim.guarantees(one) for one in requirements)
        return any(
            claim.requirements.compatible(one, allow_undefined=claim.pool.well_known)
            for one in requirements
        )

    def possible_labels(
        self, number: int, alternatives: Iterable[NodeLabels]
    ) -> tuple[Requirements, ...]:
        """Return the alternatives of which a node has, or may get, the labels that must be there."""
        return tuple(
            labels.requirements
            for labels in alternatives
            if all(self.may_have_label(number, key) for key in labels.present)
        )

    def may_have_label(self, number: int, key: str) -> bool:
        """Whether a node has a label, or the NodePool of a planned claim may give it one."""
        claim = self._claims.get(number)
        if claim is None:
            return key in self._nodes[number].requirements
        return claim.pool.may_have(key)

    def taints(self, number: int) -> tuple[Taint, ...]:
        """Return the taints of a node."""
        claim = self._claims.get(number)
        return self._nodes[number].taints if claim is None else claim.pool.taints

    def domain(self, axis: int, number: int) -> int:
        """Return the domain of a node: a number on the axis, UNDECIDED_DOMAIN or NO_DOMAIN."""
        domain = self._domains[axis].get(number)
        if domain is None:
            domain = self._domains[axis][number] = self._domain(self._axes[axis], number)
        return domain

    def _domain(self, axis: TopologyAxis, number: int) -> int:
        claim = self._claims.get(number)
        if claim is None:
            value = self._nodes[number].requirements.single_value(axis.key)
            return axis.index.get(value, NO_DOMAIN) if value else NO_DOMAIN
        if axis.key not in claim.pool.requirements and not claim.pool.catalogue.defines(axis.key):
            return NO_DOMAIN  # pods may refer to the label, but the node never gets it
        if axis.key not in claim.requirements:
            return UNDECIDED_DOMAIN
        requirement = claim.requirements.get(axis.key)
        if requirement.complement or len(requirement.values) > 1:
            return UNDECIDED_DOMAIN
        return axis.index.get(next(iter(requirement.values), ""), NO_DOMAIN)

    def possible(self, axis: int, number: int) -> tuple[int, ...]:
        """Return every domain a node may turn out to be in; for one that is known, that one."""
        domain = self.domain(axis, number)
        if domain >= 0:
            return (domain,)
        on, claim = self._axes[axis], self._claims.get(number)
        if claim is None:
            node = self._nodes[number]
            if node.undecided is None:
                return ()
            defined = on.key in node.requirements or on.key in node.undecided
            requirements = node.requirements
        else:
            defined, requirements = domain == UNDECIDED_DOMAIN, claim.requirements
        requirement = requirements.get(on.key)
        return (
            tuple(d for d, name in enumerate(on.names) if requirement.has(name)) if defined else ()
        )

    def _is_open_plan(self, axis: int, number: int) -> bool:
        """Whether a node is a claim of this plan that nobody may pin, and its domain is open."""
        node = self._nodes.get(number)
        return node is not None and node.is_planned and bool(self.possible(axis, number))

    def pinned(self, number: int, pins: tuple[DomainPin, ...]) -> int:
        """Return the signature of a node pinned to certain domains; NO_MATCH if it cannot be."""
        for position, pin in enumerate(pins):
            domain = self.domain(pin.axis, number)
            if domain in pin.domains:
                continue
            if domain != UNDECIDED_DOMAIN:
                if pin.soft and domain == NO_DOMAIN and not self._is_open_plan(pin.axis, number):
                    continue
                return NO_MATCH
            for choice in pin.domains:
                fixed = self._fixed(number, pin.axis, choice)
                if fixed != NO_MATCH:
                    met = self.pinned(fixed, pins[position + 1 :])
                    if met != NO_MATCH:
                        return met
            if not pin.soft:
                return NO_MATCH
        return number

    def within(self, number: int, pins: tuple[DomainPin, ...]) -> int:
        """Return the signature of a claim restricted to certain domains, not pinned yet."""
        for pin in pins:
            domain = self.domain(pin.axis, number)
            if domain == UNDECIDED_DOMAIN and len(pin.domains) == 1:
                fixed = self._fixed(number, pin.axis, pin.domains[0])
                if fixed == NO_MATCH:
                    if pin.soft:
                        continue
                    return NO_MATCH
                number = fixed
            elif domain == UNDECIDED_DOMAIN and not pin.soft:
                if len(pin.domains) < len(self._axes[pin.axis].names):
                    number = self._among(number, pin)
                    if number == NO_MATCH:
                        return NO_MATCH
            elif domain not in pin.domains and not pin.soft:
                return NO_MATCH
        return number

    def pinned_to_cheapest(self, number: int, pins: tuple[DomainPin, ...], row: int) -> int:
        """Pin a planned claim where one of its rows is cheapest; NO_MATCH when it goes nowhere."""
        for pin in pins:
            if self.domain(pin.axis, number) != UNDECIDED_DOMAIN:
                continue
            claim, axis = self._claims[number], self._axes[pin.axis]
            group = claim.pool.catalogue.groups[int(claim.prices_and_groups[1][row])]
            cheapest = axis.index.get(group.requirements.single_value(axis.key), NO_DOMAIN)
            choices = (cheapest, *pin.domains) if cheapest in pin.domains else pin.domains
            for domain in choices:
                fixed = self._fixed(number, pin.axis, domain)
                if fixed != NO_MATCH and self._claims[fixed].bits >> row & 1:
                    number = fixed
                    break
            else:
                if not pin.soft:
                    return NO_MATCH
        return number

    def _among(self, number: int, pin: DomainPin) -> int:
        claim, on = self._claims[number], self._axes[pin.axis]
        domain_requirement = Requirement(
            key=on.key, complement=False, values=frozenset(on.names[d] for d in pin.domains)
        )
        if not claim.requirements.get(on.key).admits(domain_requirement):
            return NO_MATCH
        return self._narrowed_to(claim, claim.requirements.add(domain_requirement))

    def _fixed(self, number: int, axis: int, domain: int) -> int:
        key = (number, axis, domain)
        fixed_signature = self._fixings.get(key)
        if fixed_signature is None:
            claim, on = self._claims[number], self._axes[axis]
            domain_requirement = Requirement(
                key=on.key, complement=False, values=frozenset({on.names[domain]})
            )
            if not claim.requirements.get(on.key).admits(domain_requirement):
                fixed_signature = NO_MATCH
            else:
                fixed_signature = self._narrowed_to(
                    claim, claim.requirements.add(domain_requirement)
                )
            self._fixings[key] = fixed_signature
        return fixed_signature

    def join(
        self, number: int, node_constraints: NodeConstraints, pins: tuple[DomainPin, ...] = ()
    ) -> int:
        """Return the signature of a node that pods join; NO_MATCH when they cannot."""
        for alternative in range(len(node_constraints.alternatives)):
            met = self.join_alternative(number, node_constraints, alternative)
            if met != NO_MATCH and pins:
                met = self.pinned(met, pins)
            if met != NO_MATCH:
                return met
        return NO_MATCH

    def join_alternative(
        self, number: int, node_constraints: NodeConstraints, alternative: int
    ) -> int:
        """Return the signature by one alternative of the constraints; NO_MATCH when none."""
        key = (number, node_constraints.index, alternative)
        joined = self._meetings.get(key)
        if joined is None:
            claim = self._claims.get(number)
            requirements = node_constraints.alternatives[alternative]
            if claim is not None:
                joined = self._join_claim(number, claim, node_constraints, requirements)
            else:
                joined = self._join_node(
                    number, self._nodes[number], node_constraints, requirements
                )
            self._meetings[key] = joined
        return joined

    def _join_node(
        self,
        number: int,
        node: NodeSignature,
        node_constraints: NodeConstraints,
        requirements: Requirements,
    ) -> int:
        if not node.admits(node_constraints):
            return NO_MATCH
        if not node.has_labels(requirements) and any(
            node.has_labels(one) for one in node_constraints.alternatives
        ):
            return NO_MATCH  # another alternative is meant
        if any(key not in node.requirements for key in node_constraints.present):
            return NO_MATCH
        if not node_constraints.host_ports:
            return number
        return self.number_of_node(
            replace(node, host_ports=_union(node.host_ports, node_constraints.host_ports))
        )

    def _join_claim(
        self,
        number: int,
        signature: ClaimSignature,
        node_constraints: NodeConstraints,
        node_requirements: Requirements,
    ) -> int:
        pool = signature.pool
        if first_untolerated(pool.taints, node_constraints.tolerations) is not None:
            return NO_MATCH
        if first_port_conflict(node_constraints.host_ports, signature.host_ports) is not None:
            return NO_MATCH
        # The template counts too: "not in" of an earlier pod does not define a custom label.
        if not all(
            own_requirements.compatible(node_requirements, allow_undefined=pool.well_known)
            for own_requirements in (pool.requirements, signature.requirements)
        ):
            return NO_MATCH
        if not all(pool.may_have(key) for key in node_constraints.present):
            return NO_MATCH
        requirements = signature.requirements.merge(node_requirements)
        if requirements == signature.requirements and not node_constraints.host_ports:
            return number
        return self._narrowed_to(signature, requirements, node_constraints.host_ports)

    def _narrowed_to(
        self,
        signature: ClaimSignature,
        requirements: Requirements,
        ports: tuple[HostPort, ...] = (),
        held: frozenset[Reservation] | None = None,
    ) -> int:
        pool = signature.pool
        held = signature.held if held is None else held
        bits = signature.bits & pool.catalogue.matching(requirements)
        bits &= pool.offered(requirements, held)
        if ports:
            bits &= pool.rows_without_port(ports)
        return self.number_of_claim(
            pool,
            requirements,
            _union(signature.host_ports, ports) if ports else signature.host_ports,
            bits,
            held=held,
            min_values_relaxed=signature.min_values_relaxed,
        )


def _union(first: tuple[HostPort, ...], second: tuple[HostPort, ...]) -> tuple[HostPort, ...]:
    return tuple(sorted({*first, *second}, key=str))
