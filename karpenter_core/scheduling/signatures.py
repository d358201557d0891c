"""What a node is, apart from how full it is: interned, so that "the same" is one integer.

A planned claim's signature is its pool, its requirements, the host ports its pods took, and the
rows of the catalogue it may use; an existing node's is the part of its labels anybody asks for,
its taints and ports. `meet` says what a signature becomes when pods of a rung join (or that they
cannot), once per pair; everything computed from a signature is kept with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.bitsets import bits_of_mask, rows_of
from karpenter_core.scheduling.ports import first_conflict
from karpenter_core.scheduling.taints import first_untolerated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from karpenter_core.api.records import HostPort, Taint
    from karpenter_core.scheduling.classes import Rung
    from karpenter_core.scheduling.pools import CompiledPool
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["NO_MATCH", "ClaimSignature", "NodeSignature", "Signatures"]

NO_MATCH: Final = -1
"""What `meet` answers when pods and node do not go together."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeSignature:
    """Nodes that are there, alike in everything that somebody asks for."""

    requirements: Requirements
    taints: tuple[Taint, ...]
    host_ports: tuple[HostPort, ...]
    undecided: frozenset[str] | None = None
    """For a claim whose machine is not known yet: labels that may still appear."""

    def admits(self, rung: Rung) -> bool:
        """Whether pods of a rung may run here."""
        if first_untolerated(self.taints, rung.tolerations) is not None:
            return False
        if first_conflict(rung.host_ports, self.host_ports) is not None:
            return False
        if self.undecided is None:
            return self.requirements.compatible(rung.requirements)
        return self.requirements.guarantees(rung.requirements, undecided=self.undecided)


@final
class ClaimSignature:
    """Planned claims that may become the same machines. `bits` are the rows they may use."""

    def __init__(
        self,
        pool: CompiledPool,
        requirements: Requirements,
        host_ports: tuple[HostPort, ...],
        bits: int,
        free: NDArray[np.int64],
        *,
        min_values_relaxed: bool = False,
    ) -> None:
        self.pool: Final = pool
        self.requirements: Final = requirements
        self.host_ports: Final = host_ports
        self.bits: Final = bits
        self.min_values_relaxed: Final = min_values_relaxed
        self.has_min_values: Final = requirements.has_min_values
        self._pool_free: Final = free

    @cached_property
    def prices_and_groups(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Price of every row at its cheapest allowed offering, and that offering's group."""
        catalogue = self.pool.catalogue
        allowed = catalogue.allowed_groups(self.requirements, self.pool.well_known)
        numbers = np.flatnonzero(allowed)
        if not len(numbers):
            return np.full(catalogue.size, inf), np.zeros(catalogue.size, dtype=np.intp)
        prices = catalogue.prices[numbers]
        best = prices.argmin(axis=0)
        return prices[best, np.arange(catalogue.size)], numbers[best]

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """The rows, cheapest first, ties by name."""
        rows = rows_of(self.bits, self.pool.catalogue.size)
        return rows[np.argsort(self.prices_and_groups[0][rows], kind="stable")]

    @cached_property
    def prices(self) -> NDArray[np.float64]:
        """The prices of `rows`."""
        return self.prices_and_groups[0][self.rows]

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """What pods may use on each of `rows`: a line per resource."""
        return self._pool_free[:, self.rows]

    @cached_property
    def largest(self) -> NDArray[np.int64]:
        """The element-wise largest of `free`: more than this fits on none."""
        return self.free.max(axis=1)

    @cached_property
    def frontier(self) -> NDArray[np.int64]:
        """The machines among `rows` that no other one contains."""
        scale = np.maximum(self.largest[:, None], 1)
        left = self.free[:, np.argsort(-(self.free / scale).sum(axis=0), kind="stable")]
        kept: list[NDArray[np.int64]] = []
        while left.shape[1]:
            top = left[:, :1]
            kept.append(top)
            left = left[:, ~(left <= top).all(axis=0)]
        return np.concatenate(kept, axis=1)

    @cached_property
    def is_ragged(self) -> bool:
        """Whether "fits into `largest`" is not yet "fits on some row"."""
        return self.has_min_values or self.frontier.shape[1] > 1

    def fitting(self, used: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of `rows` hold an amount."""
        fits: NDArray[np.bool_] = np.logical_and.reduce(self.free >= used[:, None], axis=0)
        return fits

    def bits_of(self, chosen: NDArray[np.bool_]) -> int:
        """Return chosen ones among `rows` as a set."""
        mask = np.zeros(self.pool.catalogue.size, dtype=np.bool_)
        mask[self.rows[chosen]] = True
        return bits_of_mask(mask)

    def min_values_missing(self, chosen: NDArray[np.bool_]) -> dict[str, int]:
        """Return the labels whose `minValues` chosen rows miss, with the count they reach."""
        if not self.has_min_values:
            return {}
        return self.pool.catalogue.min_values_reached(self.bits_of(chosen), self.requirements)

    @cached_property
    def admissible(self) -> NDArray[np.bool_]:
        """Which of `rows` may be the measure of a claim.

        Whatever fits on such a row also fits on enough other rows for `minValues`.
        """
        if not self.has_min_values:
            return np.ones(len(self.rows), dtype=np.bool_)
        return np.array(
            [
                not self.min_values_missing(self.fitting(self.free[:, number]))
                for number in range(len(self.rows))
            ],
            dtype=np.bool_,
        )

    @cached_property
    def admissible_mask(self) -> NDArray[np.bool_]:
        """`admissible`, over all rows of the catalogue."""
        mask = np.zeros(self.pool.catalogue.size, dtype=np.bool_)
        mask[self.rows[self.admissible]] = True
        return mask

    def rooms(self, used: NDArray[np.int64], request: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many more requests fit on some row, beside what each claim uses already.

        `used` has a column per claim.
        """
        if self.has_min_values:
            return np.array(
                [self._room_with_min_values(column, request) for column in used.T], dtype=np.int64
            )
        return self._rooms(self.frontier, used, request)

    @staticmethod
    def _rooms(
        machines: NDArray[np.int64], used: NDArray[np.int64], request: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        asked = np.flatnonzero(request)
        most = np.zeros(used.shape[1], dtype=np.int64)
        for machine in machines.T:
            spare = machine[:, None] - used
            room = np.minimum.reduce(spare[asked] // request[asked, None], axis=0)
            room[np.minimum.reduce(spare, axis=0) < 0] = 0
            np.maximum(most, room, out=most)
        return most

    def _room_with_min_values(self, used: NDArray[np.int64], request: NDArray[np.int64]) -> int:
        """Find the most by bisection: more pods leave fewer rows."""
        low, high = 0, int(self._rooms(self.frontier, used[:, None], request)[0])
        while low < high:
            middle = (low + high + 1) // 2
            if self.min_values_missing(self.fitting(used + middle * request)):
                high = middle - 1
            else:
                low = middle
        return low


@final
class Signatures:
    """The signatures of one pass, by number."""

    def __init__(
        self, pools: Sequence[CompiledPool], pool_free: Sequence[NDArray[np.int64]]
    ) -> None:
        self._claims: Final = dict[int, ClaimSignature]()
        self._nodes: Final = dict[int, NodeSignature]()
        self._numbers: Final = dict[object, int]()
        self._meetings: Final = dict[tuple[int, int], int]()
        self._pool_free: Final = {
            id(pool): free for pool, free in zip(pools, pool_free, strict=True)
        }

    def __len__(self) -> int:
        return len(self._numbers)

    def claim(self, number: int) -> ClaimSignature:
        """Return a planned claim's signature."""
        return self._claims[number]

    def of_node(self, signature: NodeSignature) -> int:
        """Return the number of an existing node's signature."""
        key = (
            signature.requirements,
            signature.taints,
            signature.host_ports,
            signature.undecided,
        )
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._nodes[number] = signature
        return number

    def of_pool(self, pool: CompiledPool) -> int:
        """Return the number of a pool's empty claim; NO_MATCH when it can make none."""
        return self.of_claim(pool, pool.requirements, (), pool.bits)

    def of_claim(
        self,
        pool: CompiledPool,
        requirements: Requirements,
        host_ports: tuple[HostPort, ...],
        bits: int,
        *,
        min_values_relaxed: bool = False,
    ) -> int:
        """Return the number of a claim's signature; NO_MATCH when no row is left."""
        if not bits:
            return NO_MATCH
        key = (id(pool), requirements, host_ports, bits, min_values_relaxed)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._claims[number] = ClaimSignature(
                pool,
                requirements,
                host_ports,
                bits,
                self._pool_free[id(pool)],
                min_values_relaxed=min_values_relaxed,
            )
        return number

    def narrowed(self, number: int, bits: int) -> int:
        """Return the signature that is left when a claim may use only some rows."""
        signature = self.claim(number)
        return self.of_claim(
            signature.pool,
            signature.requirements,
            signature.host_ports,
            signature.bits & bits,
            min_values_relaxed=signature.min_values_relaxed,
        )

    def relaxed(self, number: int, counts: dict[str, int]) -> int:
        """Return the signature with `minValues` lowered to what can be had."""
        signature = self.claim(number)
        return self.of_claim(
            signature.pool,
            signature.requirements.with_min_values(counts),
            signature.host_ports,
            signature.bits,
            min_values_relaxed=True,
        )

    def meet(self, number: int, rung: Rung) -> int:
        """Return what a node becomes when pods of a rung join; NO_MATCH when they cannot."""
        key = (number, rung.index)
        known = self._meetings.get(key)
        if known is None:
            known = self._meetings[key] = self._meet(number, rung)
        return known

    def _meet(self, number: int, rung: Rung) -> int:
        claim = self._claims.get(number)
        if claim is not None:
            return self._meet_claim(number, claim, rung)
        node = self._nodes[number]
        if not node.admits(rung):
            return NO_MATCH
        if not rung.host_ports:
            return number
        return self.of_node(replace(node, host_ports=_joined(node.host_ports, rung.host_ports)))

    def _meet_claim(self, number: int, signature: ClaimSignature, rung: Rung) -> int:
        pool = signature.pool
        if first_untolerated(pool.taints, rung.tolerations) is not None:
            return NO_MATCH
        if first_conflict(rung.host_ports, signature.host_ports) is not None:
            return NO_MATCH
        # The template is asked too: "not in" of an earlier pod does not define a custom label.
        if not all(
            known.compatible(rung.requirements, allow_undefined=pool.well_known)
            for known in (pool.requirements, signature.requirements)
        ):
            return NO_MATCH
        requirements = signature.requirements.merge(rung.requirements)
        if requirements == signature.requirements and not rung.host_ports:
            return number
        bits = signature.bits & pool.catalogue.matching(requirements) & pool.offered(requirements)
        if rung.host_ports:
            bits &= pool.rows_without_port(rung.host_ports)
        return self.of_claim(
            pool,
            requirements,
            _joined(signature.host_ports, rung.host_ports),
            bits,
            min_values_relaxed=signature.min_values_relaxed,
        )


def _joined(first: tuple[HostPort, ...], second: tuple[HostPort, ...]) -> tuple[HostPort, ...]:
    return tuple(sorted({*first, *second}, key=str))
