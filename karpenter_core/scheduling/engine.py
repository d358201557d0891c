"""Put classes of pods on nodes: open ones first, then new claims of the first pool that can.

One engine makes every kind of plan. What differs is the `Profile`: whether a new claim stays open
to every type that can still hold it (first-fit), or is measured by one row of the catalogue that
is chosen by what its room costs; and which open nodes are filled first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import NODES
from karpenter_core.scheduling.columns import NO_ROW, OpenNodes
from karpenter_core.scheduling.problem import MinValuesPolicy
from karpenter_core.scheduling.signatures import NO_MATCH

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from numpy.typing import NDArray

    from karpenter_core.scheduling.classes import Rung
    from karpenter_core.scheduling.columns import Amounts, Columns
    from karpenter_core.scheduling.compiled import CompiledProblem
    from karpenter_core.scheduling.pools import CompiledPool
    from karpenter_core.scheduling.signatures import ClaimSignature

__all__ = ["Engine", "Measure", "Profile"]

_NEARLY_EQUAL: Final = 1.01
"""Prices within one percent are taken for equal; the larger machine is chosen then."""

_TOLERATED_RISE: Final = 1.05
"""Pods whose wishes make a claim's machine dearer than that (on-demand only …) get another one."""


class Measure(StrEnum):
    """How the row that measures a new claim is chosen."""

    NONE = "none"
    """Not at all: the claim stays open to every row."""
    PODS = "pods"
    """Lowest price per pod of the class at hand."""
    DEMAND = "demand"
    """Lowest price per share of everything that still waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How one plan is made."""

    measure: Measure
    tight: bool
    """Fill the planned claims with the least room first, instead of in the order of opening."""


@final
class Engine:
    """One plan in the making."""

    def __init__(self, compiled: CompiledProblem, profile: Profile) -> None:
        self.compiled: Final = compiled
        self.profile: Final = profile
        self.nodes: Final = OpenNodes(compiled.node_free, compiled.node_signatures)
        self.remaining: Final = tuple(dict(pool.remaining) for pool in compiled.pools)
        """What is left of each pool's limits."""
        self.left: Final = dict[int, int]()
        """Pods that found no place, by class."""
        counts = np.array([len(c.members) for c in compiled.classes], dtype=np.int64)
        self._demand = (compiled.requests * counts).sum(axis=1) if len(counts) else counts
        self._weights: Final = 1.0 / np.maximum(self._demand, 1)

    def steps(self) -> Generator[int, None, None]:
        """Place every class; yields units of work done."""
        for index, pod_class in enumerate(self.compiled.classes):
            request = self.compiled.requests[:, index]
            left = len(pod_class.members)
            if pod_class.blocked is None:
                for rung in pod_class.rungs:
                    left = self._fill(index, rung, request, left)
                    if left:
                        left = yield from self._open(index, rung, request, left)
                    if not left:
                        break
                    yield 1
            if left:
                self.left[index] = left
            self._demand -= request * len(pod_class.members)
            yield 1 + self.nodes.count // 1000

    # -- open nodes ----------------------------------------------------------------------------

    def _fill(self, index: int, rung: Rung, request: Amounts, left: int) -> int:
        """Put as many pods as go on open nodes; return how many are left."""
        nodes = self.nodes
        if not nodes.count:
            return left
        met = self._met(rung)
        room = self._room(request)
        room[met[nodes.signature] == NO_MATCH] = 0
        if rung.host_ports:
            np.minimum(room, 1, out=room)
        self._correct(room, met, request)
        columns = self._ranked(np.flatnonzero(room > 0))
        if not len(columns):
            return left
        total = np.cumsum(room[columns])
        needed = int(np.searchsorted(total, left)) + 1
        columns = columns[:needed]
        counts = room[columns]
        placed = min(int(total[len(columns) - 1]), left)
        counts[-1] -= int(total[len(columns) - 1]) - placed
        nodes.place(index, columns, counts, request)
        self._become(columns, met)
        return left - placed

    def _met(self, rung: Rung) -> Columns:
        """Return what each signature in use becomes under a rung."""
        signatures = self.compiled.signatures
        used = np.flatnonzero(np.bincount(self.nodes.signature))
        met = np.full(int(used[-1]) + 1, NO_MATCH, dtype=np.intp)
        for number in used:
            met[number] = signatures.meet(int(number), rung)
        return met

    def _room(self, request: Amounts) -> Amounts:
        """Return how many requests each node takes at most, signatures aside."""
        free = self.nodes.free
        first, *rest = np.flatnonzero(request)
        room = free[first] // request[first]
        for line in rest:
            np.minimum(room, free[line] // request[line], out=room)
        np.maximum(room, 0, out=room)
        return room

    def _correct(self, room: Amounts, met: Columns, request: Amounts) -> None:
        """Make the room exact where the largest amounts alone do not tell."""
        nodes, signatures = self.nodes, self.compiled.signatures
        planned = np.flatnonzero(room[nodes.existing :]) + nodes.existing
        if not len(planned):
            return
        for number in np.flatnonzero(np.bincount(nodes.signature[planned])):
            claim = signatures.claim(int(met[number]))
            changed = met[number] != number
            if not changed and not claim.is_ragged:
                continue
            columns = planned[nodes.signature[planned] == number]
            is_open = nodes.row[columns] == NO_ROW
            if changed:
                measured = columns[~is_open]
                refused = self._refused_rows(signatures.claim(int(number)), claim)
                room[measured[refused[nodes.row[measured]]]] = 0
            exact = claim.rooms(nodes.used[:, columns[is_open]], request)
            room[columns[is_open]] = np.minimum(room[columns[is_open]], exact)

    @staticmethod
    def _refused_rows(before: ClaimSignature, after: ClaimSignature) -> NDArray[np.bool_]:
        """Return the rows that pods must not join: impossible with them, or much dearer."""
        limit = before.prices_and_groups[0] * _TOLERATED_RISE
        return ~after.admissible_mask | (after.prices_and_groups[0] > limit)

    def _ranked(self, columns: Columns) -> Columns:
        """Order nodes: those that are there as they come, then planned ones by the profile."""
        if not self.profile.tight:
            return columns
        existing = columns[columns < self.nodes.existing]
        planned = columns[columns >= self.nodes.existing]
        worth = self._weights @ self.nodes.free[:, planned]
        return np.concatenate((existing, planned[np.argsort(worth, kind="stable")]))

    def _become(self, columns: Columns, met: Columns) -> None:
        """Give nodes the signature that they have with the pods that joined."""
        nodes, signatures = self.nodes, self.compiled.signatures
        before = nodes.signature[columns]
        changed = met[before] != before
        if not changed.any():
            return
        columns, before = columns[changed], before[changed]
        for number in np.flatnonzero(np.bincount(before)):
            after = int(met[number])
            those = columns[before == number]
            nodes.become(those[those < nodes.existing], after, None)
            planned = those[those >= nodes.existing]
            if len(planned):
                open_ones = nodes.row[planned] == NO_ROW
                nodes.become(planned[~open_ones], after, None)
                nodes.become(planned[open_ones], after, signatures.claim(after).largest)

    # -- new claims ----------------------------------------------------------------------------

    def _open(
        self, index: int, rung: Rung, request: Amounts, left: int
    ) -> Generator[int, None, int]:
        """Open claims in the first pool that can, then the next; return how many pods are left."""
        compiled = self.compiled
        for number, pool in enumerate(compiled.pools):
            signature = compiled.pool_signatures[number]
            if signature != NO_MATCH:
                signature = compiled.signatures.meet(signature, rung)
            while left and signature != NO_MATCH:
                opening = self._opening(
                    pool, self.remaining[number], signature, rung, request, left
                )
                if opening is None:
                    break
                columns = self.nodes.open(
                    opening.count,
                    signature=opening.signature,
                    limit=opening.limit,
                    row=opening.row,
                )
                counts = np.full(opening.count, opening.pods, dtype=np.int64)
                counts[-1] = min(opening.pods, left - opening.pods * (opening.count - 1))
                self.nodes.place(index, columns, counts, request)
                left -= int(counts.sum())
                for name in self.remaining[number]:
                    charge = 1 if name == NODES else opening.charge[name]
                    self.remaining[number][name] -= charge * opening.count
                yield 1
            if not left:
                break
        return left

    def _opening(
        self,
        pool: CompiledPool,
        remaining: Mapping[str, int],
        signature: int,
        rung: Rung,
        request: Amounts,
        left: int,
    ) -> _Opening | None:
        """Say which claims to open next for a class; None when the pool can make none."""
        if remaining.get(NODES, 1) <= 0:
            return None
        signatures = self.compiled.signatures
        if pool.limited:
            signature = signatures.narrowed(signature, pool.within(remaining))
            if signature == NO_MATCH:
                return None
        opening = None
        if self.profile.measure is not Measure.NONE:
            opening = self._measured_opening(signature, rung, request, left)
        if opening is None:
            opening = self._open_opening(signature, rung, request, left)
        if opening is None:
            return None
        count = min(opening.count, remaining.get(NODES, opening.count))
        for name in pool.limited:
            count = min(count, _repetitions(pool, name, remaining[name], opening))
        return replace(opening, count=count)

    def _open_opening(
        self, signature: int, rung: Rung, request: Amounts, left: int
    ) -> _Opening | None:
        """Open claims that may become any of their rows."""
        signatures = self.compiled.signatures
        claim = signatures.claim(signature)
        fitting = claim.fitting(request)
        if not fitting.any():
            return None
        missing = claim.min_values_missing(fitting)
        if missing:
            if self.compiled.options.min_values is MinValuesPolicy.STRICT:
                return None
            signature = signatures.relaxed(signature, missing)
            claim = signatures.claim(signature)
        pods = int(claim.rooms(np.zeros((len(request), 1), dtype=np.int64), request)[0])
        if rung.host_ports:
            pods = min(pods, 1)
        if not pods:
            return None
        return _Opening(
            count=-(-left // pods),
            pods=pods,
            signature=signature,
            limit=claim.largest,
            row=NO_ROW,
            charge=_charge(claim, claim.rows[fitting]),
        )

    def _measured_opening(
        self, signature: int, rung: Rung, request: Amounts, left: int
    ) -> _Opening | None:
        """Open claims measured by the row whose room is cheapest."""
        claim = self.compiled.signatures.claim(signature)
        pool = claim.pool
        if pool.limited and claim.has_min_values:
            return None  # cutting the list to the limits could break minValues
        asked = np.flatnonzero(request)
        pods = np.minimum.reduce(claim.free[asked] // request[asked, None], axis=0)
        pods[(np.minimum.reduce(claim.free, axis=0) < 0) | ~claim.admissible] = 0
        if rung.host_ports:
            np.minimum(pods, 1, out=pods)
        candidates = np.flatnonzero(pods > 0)
        if not len(candidates):
            return None
        held = np.minimum(pods[candidates], left)
        if self.profile.measure is Measure.PODS:
            worth = held.astype(np.float64)
        else:
            useful = np.minimum(claim.free[:, candidates], self._demand[:, None])
            worth = self._weights @ useful
        fee = self.compiled.options.node_fee_per_hour
        score = (claim.prices[candidates] + fee) / worth
        good = np.flatnonzero(score <= score.min() * _NEARLY_EQUAL)
        best = candidates[good[np.lexsort((good, score[good], -held[good]))[0]]]
        row, per_claim = int(claim.rows[best]), int(pods[best])
        if pool.limited:
            ceiling = {name: int(pool.catalogue.capacity(name)[row]) for name in pool.limited}
            signature = self.compiled.signatures.narrowed(signature, pool.within(ceiling))
        return _Opening(
            count=max(left // per_claim, 1),
            pods=per_claim,
            signature=signature,
            limit=claim.free[:, best],
            row=row,
            charge=_charge(claim, np.array([row], dtype=np.intp)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Opening:
    """Claims to open at once: `pods` on each (fewer on the last), `charge` for each."""

    count: int
    pods: int
    signature: int
    limit: Amounts
    row: int
    charge: Mapping[str, int]


def _charge(claim: ClaimSignature, rows: Columns) -> dict[str, int]:
    """Return what a claim counts against limits: the largest of the rows it may become."""
    capacity = claim.pool.catalogue.capacity
    return {name: int(capacity(name)[rows].max()) for name in claim.pool.limited}


def _repetitions(pool: CompiledPool, name: str, remaining: int, opening: _Opening) -> int:
    """Return how often a claim can be opened before the limits leave it fewer rows (at least 1)."""
    charge = opening.charge[name]
    if charge <= 0:
        return opening.count
    largest = int(pool.catalogue.capacity(name).max())
    if opening.row != NO_ROW:
        return max(remaining // charge, 1)
    return 1 + max((remaining - largest) // charge, 0)
