"""Packs nodes of a finished plan better, in its order and its domains.

For constraints over domains, claims of one signature are alike, and so are pods with the same
constraints. Two changes therefore break none of them:

* the order of pods with the same constraints: larger pods get the places on cheaper claims (spot
  before on-demand, if pods are spread over both);
* the claim of a pod among the claims of its signature. Cheaper nodes for the pods of a signature are
  found by a search over pairs if there are few, and by a program over contents if there are many.

`recorded_placement` then places the pods on these nodes, and checks all constraints that this module
does not see.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import fsum
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.packing.content_program import ContentsProblem, contents_steps
from karpenter_core.scheduling.packing.merging import merge_patterns
from karpenter_core.scheduling.packing.pair_search import MAX_NODES, search_pairs_steps
from karpenter_core.scheduling.packing.patterns import NodePattern, PatternProblem, pattern_steps
from karpenter_core.scheduling.packing.shape_choice import cheapest_shapes
from karpenter_core.scheduling.placement.plan_profile import (
    ClaimOpening,
    PlannedNodes,
    RecordedEntry,
    RecordedPlacement,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable, Sequence

    from karpenter_core.scheduling.arrays import Amounts, Columns, Counts, Floats, Mask
    from karpenter_core.scheduling.compiled.claim_signature import ClaimSignature
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.portfolio.finished_plan import FinishedPlan

__all__ = ["repacked_steps"]

_MAX_SIZES: Final = 64
_FEW_PODS: Final = 64
"""Up to so many pods, nodes are planned also as if no rule about hosts bound them: a trial costs little."""

_PATTERN_UNITS: Final = 100
"""Work units for patterns of few nodes."""

_NOTHING: Final = 1e-9

_AVOIDING_SHARE: Final = 0.5
"""No pods change places where those that avoid each other need more of the claims of a signature.

New nodes are planned without knowledge of these pods, and could not hold them.
"""

_DIFFERENT: Final = 1.01
"""Rates of claims that differ by less are taken for equal."""


def repacked_steps(
    plan: FinishedPlan,
) -> Generator[int, None, list[RecordedPlacement]]:
    """Return placements that may be cheaper than a plan; none if it is not of a kind that can be."""
    compiled = plan.engine.compiled
    if plan.left or plan.dropped or not plan.sized_claims or not _is_simple(compiled):
        return []
    repacker = _Repacker(plan)
    if not repacker.has_ample_limits:
        return []
    placements: list[RecordedPlacement] = []
    for entries in (repacker.entries, repacker.exchanged_entries()):
        if entries is not None:
            placements += yield from repacker.placement_steps(entries)
    return placements


def _is_simple(compiled: CompiledProblem) -> bool:
    """Whether nothing but resources and topology decides where pods may be."""
    pools = compiled.pools
    return (
        compiled.devices is None
        and compiled.max_new_nodes is None
        and not compiled.initial_counts.possible_counts
        and not any(pod_class.shared_volumes for pod_class in compiled.classes)
        and not any(p.reservations or p.spot_share is not None or p.quota_lines for p in pools)
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kind:
    """The claims of one signature, and the shapes that they may have."""

    signature: int
    pool: int
    claim: ClaimSignature
    columns: Columns


@dataclass(slots=True, eq=False)
class _Choice:
    """One way to choose nodes for all signatures."""

    nodes: list[PlannedNodes] = field(default_factory=list[PlannedNodes])
    saving: float = 0.0
    differs: bool = False
    """Whether it is another way than the first."""


@final
class _Repacker:
    """One plan whose nodes are to be packed better."""

    def __init__(self, plan: FinishedPlan) -> None:
        self._compiled: Final = plan.engine.compiled
        self._fee_per_hour: Final = plan.engine.fee_per_hour
        self._nodes: Final = plan.engine.nodes
        self._weights: Final[Floats] = plan.engine.weights
        sizes, numbers = np.unique(self._compiled.requests, axis=1, return_inverse=True)
        self.sizes: Final[Amounts] = sizes
        self._size_of: Final[Columns] = numbers.reshape(-1)
        columns = np.array(sorted(plan.sized_claims), dtype=np.intp)
        signatures = self._nodes.signature[columns]
        pools = {id(pool): number for number, pool in enumerate(self._compiled.pools)}
        self._kinds: Final[list[_Kind]] = []
        for signature in dict.fromkeys(signatures.tolist()):  # the numbers must decide nothing
            claim = self._compiled.signatures.claim(signature)
            self._kinds.append(
                _Kind(
                    signature=signature,
                    pool=pools[id(claim.pool)],
                    claim=claim,
                    columns=columns[signatures == signature],
                )
            )
        self._place: Final = {
            column: -1 - number
            for number, kind in enumerate(self._kinds)
            for column in kind.columns.tolist()
        }
        self.entries: Final = [
            RecordedEntry(
                index=index,
                places=[self._place.get(column, column) for column in where],
                counts=counts,
            )
            for index, where, counts in self._nodes.log
        ]
        self._bound: Final = self._host_bound()
        self._is_bound_column: Final = self._bound_columns()
        self._has_few_pods: Final = sum(sum(n) for _, _, n in self._nodes.log) <= _FEW_PODS
        value = self._weights * self._nodes.used.sum(axis=1)
        self._scarcest: Final[list[int]] = sorted(np.argsort(-value, kind="stable")[:2].tolist())

    @property
    def has_ample_limits(self) -> bool:
        """Whether no other nodes that might be launched are near a limit."""
        pools = {kind.pool for kind in self._kinds}
        count = 2 * sum(len(kind.columns) for kind in self._kinds)
        return all(
            self._compiled.pools[pool].has_ample_limits(self._compiled.pools[pool].remaining, count)
            for pool in pools
        )

    def _host_bound(self) -> list[bool]:
        """Return for each class whether something but room decides which nodes it may share."""
        return [
            bool(pod_class.relaxation_steps[0].node_constraints.host_ports)
            or any(group.is_host for group in pod_class.counted)
            or any(step.host for step in topology)
            for pod_class, topology in zip(
                self._compiled.classes, self._compiled.topologies, strict=True
            )
        ]

    def _bound_columns(self) -> Mask:
        """Return for each node whether it has a pod of such a class."""
        is_bound = np.zeros(self._nodes.count, dtype=np.bool_)
        for index, where, _ in self._nodes.log:
            if self._bound[index]:
                is_bound[where] = True
        return is_bound

    # -- which pods go where ---------------------------------------------------------------------

    def exchanged_entries(self) -> list[RecordedEntry] | None:
        """Give the larger of like pods the places on cheaper claims; None: there are none."""
        rates = [self._rate(kind.claim) for kind in self._kinds]
        if len(rates) < 2 or max(rates) <= min(rates) * _DIFFERENT:  # noqa: PLR2004
            return None
        if any(self._fewest(kind) > _AVOIDING_SHARE * len(kind.columns) for kind in self._kinds):
            return None
        alike: dict[Hashable, set[int]] = {}
        for entry in self.entries:
            if any(step.zonal for step in self._compiled.topologies[entry.index]):
                alike.setdefault(self._constraints(entry.index), set()).add(entry.index)
        mixed = {
            key for key, indices in alike.items() if len({self._size_of[i] for i in indices}) > 1
        }
        if not mixed:
            return None
        runs: list[tuple[int, int]] = []
        for entry in self.entries:
            for place, count in zip(entry.places, entry.counts, strict=True):
                runs += [(entry.index, place)] * count
        changed = list(runs)
        for key in sorted(mixed, key=lambda key: min(alike[key])):
            those = [
                number
                for number, (index, place) in enumerate(runs)
                if place < 0 and index in alike[key]
            ]
            places = sorted(those, key=lambda number: (rates[-1 - runs[number][1]], number))
            pods = sorted((runs[number][0] for number in those), key=self._largest_first)
            for number, index in zip(places, pods, strict=True):
                changed[number] = (index, runs[number][1])
        return None if changed == runs else _entries(changed)

    def _largest_first(self, index: int) -> tuple[float, int]:
        return (-round(float(self._weights @ self._compiled.requests[:, index]), 15), index)

    def _constraints(self, index: int) -> Hashable:
        """Return all that decides where pods of a class may be and what they count for."""
        pod_class = self._compiled.classes[index]
        step, *others = pod_class.relaxation_steps
        if others or self._bound[index]:
            return index
        constraints = step.node_constraints.index
        return (constraints, step.bound, step.strict, pod_class.counted, pod_class.shape.gives_way)

    def _rate(self, claim: ClaimSignature) -> float:
        """Return the lowest price for the worth of room on a claim."""
        shapes = claim.instance_shapes
        worth = self._weights @ np.maximum(shapes.capacity, 0)
        rates = shapes.robust_price[worth > 0] / worth[worth > 0]
        return float(rates.min(initial=np.inf))

    # -- on which nodes --------------------------------------------------------------------------

    def placement_steps(
        self, entries: Sequence[RecordedEntry]
    ) -> Generator[int, None, list[RecordedPlacement]]:
        """Look for better nodes for the pods of each signature; none are returned that are not cheaper."""
        contents = np.zeros((self.sizes.shape[1], self._nodes.count), dtype=np.int64)
        for index, where, counts in self._nodes.log:
            np.add.at(contents[self._size_of[index]], where, counts)
        yield 2
        choices = (_Choice(), _Choice())
        for number, kind in enumerate(self._kinds):
            there = contents[:, kind.columns]
            problem = self._problem(kind, there.sum(axis=1))
            now: Sequence[NodePattern] = _on_cheapest(problem, there)
            found: Sequence[Sequence[NodePattern]] = (now,)
            if kind.claim.has_min_values:
                pass
            elif entries is not self.entries:
                exchanged = self._problem(kind, self._count_at(entries, -1 - number))
                found = ((yield from _patterns_steps(exchanged)),)
            else:
                found = yield from self._nodes_steps(kind, there, now)
            for choice, nodes in zip(choices, (found[0], found[-1]), strict=True):
                held = sum(pattern.content.sum() * pattern.nodes for pattern in nodes)
                # Of nodes that are not for all pods it is not known what the others will cost.
                choice.saving += (
                    np.inf if held < there.sum() else _cost(problem, now) - _cost(problem, nodes)
                )
                choice.nodes += self._planned(kind, nodes)
                choice.differs |= nodes is not found[0]
        return [
            RecordedPlacement(
                entries=entries,
                signatures=[kind.signature for kind in self._kinds],
                nodes=choice.nodes,
                size_of=self._size_of,
            )
            for choice in choices
            if choice.saving > _NOTHING and (choice is choices[0] or choice.differs)
        ]

    def _nodes_steps(
        self, kind: _Kind, contents: Counts, now: Sequence[NodePattern]
    ) -> Generator[int, None, Sequence[Sequence[NodePattern]]]:
        """Return nodes for the pods of a signature in one or two ways; which is better is found by placing."""
        problem = self._problem(kind, contents.sum(axis=1))
        if np.count_nonzero(problem.count) > _MAX_SIZES:
            nodes = yield from self._mixed_steps(kind, problem)
            return (nodes or now,)
        if len(kind.columns) > MAX_NODES:
            return (yield from self._program_steps(kind, contents))
        is_kept = self._is_bound_column[kind.columns]
        nodes = yield from self._pairs_steps(kind, contents, is_kept)
        if not self._has_few_pods or not is_kept.any():
            return (nodes,)
        mixed = yield from self._mixed_steps(kind, problem)
        return (nodes, mixed or nodes)

    def _mixed_steps(
        self, kind: _Kind, problem: PatternProblem
    ) -> Generator[int, None, Sequence[NodePattern]]:
        """Return nodes for pods as if any of them could share one; () if many of them avoid each other."""
        fewest = self._fewest(kind)
        if fewest > _AVOIDING_SHARE * len(kind.columns):
            return ()
        nodes = yield from _patterns_steps(problem)
        return nodes if sum(pattern.nodes for pattern in nodes) >= fewest else ()

    def _count_at(self, entries: Iterable[RecordedEntry], place: int) -> Counts:
        """Return how many pods of each size are at a place."""
        count = np.zeros(self.sizes.shape[1], dtype=np.int64)
        for entry in entries:
            for where, pods in zip(entry.places, entry.counts, strict=True):
                if where == place:
                    count[self._size_of[entry.index]] += pods
        return count

    def _pairs_steps(
        self, kind: _Kind, contents: Counts, is_kept: Mask
    ) -> Generator[int, None, list[NodePattern]]:
        """Search the pairs of claims on which nothing but room decides; keep the others."""
        problem = self._problem(kind, contents[:, ~is_kept].sum(axis=1))
        nodes: Sequence[NodePattern] = _on_cheapest(problem, contents[:, ~is_kept])
        if len(nodes) > 1:
            nodes = yield from search_pairs_steps(problem, nodes)
            others = yield from _patterns_steps(problem)
            nodes = min(nodes, others or nodes, key=lambda nodes: _cost(problem, nodes))
        return [*_on_cheapest(problem, contents[:, is_kept]), *nodes]

    def _program_steps(
        self, kind: _Kind, contents: Counts
    ) -> Generator[int, None, Sequence[Sequence[NodePattern]]]:
        """Solve the program over contents, which begins with those that are there."""
        count: Counts = contents.sum(axis=1)
        used = np.flatnonzero(count)
        problem = self._problem(kind, count)
        if len(self._scarcest) == 1 or not self.sizes[self._scarcest][:, used].any(axis=0).all():
            return ((),)
        bought, rest = yield from contents_steps(
            ContentsProblem(
                request=self.sizes[:, used],
                count=count[used],
                capacity=problem.capacity,
                price=problem.price,
                lines=(self._scarcest[0], self._scarcest[1]),
                nodes=self._fewest(kind),
            ),
            np.unique(contents[:, contents.any(axis=0)][used], axis=1).astype(np.float64),
        )
        whole = [_of_all_sizes(pattern, used, len(count)) for pattern in bought]
        if not rest:
            return (whole,)
        return (whole, [*whole, *(_of_all_sizes(pattern, used, len(count)) for pattern in rest)])

    def _problem(self, kind: _Kind, count: Counts) -> PatternProblem:
        shapes = kind.claim.instance_shapes
        return PatternProblem(
            request=self.sizes,
            count=count,
            capacity=shapes.capacity,
            price=shapes.robust_price + self._fee_per_hour,
        )

    def _fewest(self, kind: _Kind) -> int:
        """Return the fewest nodes for the pods on some claims that avoid each other."""
        members: dict[int, int] = {}
        caps: dict[int, int] = {}
        here = np.zeros(self._nodes.count, dtype=np.bool_)
        here[kind.columns] = True
        for index, where, counts in self._nodes.log:
            pod_class = self._compiled.classes[index]
            for group in pod_class.relaxation_steps[0].owned:
                if (
                    group.is_host
                    and group.kind is not TopologyKind.AFFINITY
                    and group in pod_class.counted
                ):
                    pods = sum(n for c, n in zip(where, counts, strict=True) if here[c])
                    members[group.index] = members.get(group.index, 0) + pods
                    caps[group.index] = group.max_skew if group.kind is TopologyKind.SPREAD else 1
        return max((-(-count // caps[index]) for index, count in members.items()), default=0)

    def _planned(self, kind: _Kind, patterns: Iterable[NodePattern]) -> list[PlannedNodes]:
        shapes = kind.claim.instance_shapes
        return [
            PlannedNodes(
                opening=ClaimOpening(
                    pool=kind.pool,
                    count=pattern.nodes,
                    pods=0,
                    signature=kind.signature,
                    asked=kind.signature,
                    limit=shapes.capacity[:, pattern.shape],
                    row=int(kind.claim.rows[shapes.row[pattern.shape]]),
                    charge=kind.claim.pool.largest,
                ),
                content=pattern.content,
            )
            for pattern in patterns
        ]


def _patterns_steps(problem: PatternProblem) -> Generator[int, None, tuple[NodePattern, ...]]:
    """Plan patterns for pods of which nothing is known but how many there are."""
    if not problem.count.any():
        return ()
    bought = yield from pattern_steps(problem, budget=_PATTERN_UNITS)
    if bought is None or bought.left.any():
        return ()
    return (yield from search_pairs_steps(problem, merge_patterns(problem, bought.patterns)))


def _of_all_sizes(pattern: NodePattern, used: Columns, sizes: int) -> NodePattern:
    """Return a pattern of some sizes as one of all."""
    content = np.zeros(sizes, dtype=np.int64)
    content[used] = pattern.content
    return replace(pattern, content=content)


def _cost(problem: PatternProblem, patterns: Iterable[NodePattern]) -> float:
    return fsum(float(problem.price[pattern.shape]) * pattern.nodes for pattern in patterns)


def _entries(runs: Sequence[tuple[int, int]]) -> list[RecordedEntry]:
    """Write pods and their places down, those of one class that follow each other together."""
    entries: list[RecordedEntry] = []
    start = 0
    for end in range(1, len(runs) + 1):
        if end == len(runs) or runs[end][0] != runs[start][0]:
            places = [place for _, place in runs[start:end]]
            entries.append(
                RecordedEntry(index=runs[start][0], places=places, counts=[1] * len(places))
            )
            start = end
    return entries


def _on_cheapest(problem: PatternProblem, contents: Counts) -> list[NodePattern]:
    """Return nodes for contents (K x C), each on the cheapest shape that holds it."""
    prices, shapes = cheapest_shapes(problem.request @ contents, problem.capacity, problem.price)
    return [
        NodePattern(shape=int(shapes[number]), content=contents[:, number], nodes=1)
        for number in np.flatnonzero(np.isfinite(prices)).tolist()
    ]
