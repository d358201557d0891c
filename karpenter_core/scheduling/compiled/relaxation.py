"""Lists the relaxation steps of a pod: each step drops one more preference.

The first step treats every preference as required; each next step drops one preference, in
upstream's order: alternative node affinity terms, preferred pod affinity, preferred pod
anti-affinity, preferred node affinity (heaviest first each), ScheduleAnyway spread, and at last
tolerating PreferNoSchedule taints.

A step holds all that is not given up yet, so its memory grows with the square of their number. Only so
many preferences of each kind are read: whoever may create pods could else stop the scheduling of all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.requirements import (
    NodeLabels,
    Requirement,
    Requirements,
    read_expressions,
)
from karpenter_core.scheduling.taints import PREFERENCE_TOLERATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from karpenter_core.api.records import (
        AffinityTerm,
        NodeSelectorTerm,
        PodShape,
        PreferredNodeTerm,
        Toleration,
        TopologySpread,
        WeightedAffinityTerm,
    )

__all__ = [
    "MOST_PREFERENCES",
    "RelaxationStep",
    "node_alternatives",
    "read_relaxation_steps",
]

MOST_PREFERENCES: Final = 50
"""Number of preferences of a kind that a pod may have: the heaviest; the others are given up at once."""

_Preference = TypeVar("_Preference", "WeightedAffinityTerm", "PreferredNodeTerm")


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxationStep:
    """One step: the labels of nodes, and the constraints on other pods.

    `strict` are the labels without preferences: they say which domains a pod may be in at all.
    """

    labels: NodeLabels
    strict: Requirements
    tolerations: tuple[Toleration, ...]
    spreads: tuple[TopologySpread, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    """Preferred terms that are not given up yet are among the last two."""


@dataclass(frozen=True, slots=True)
class _PodPreferences:
    """The constraints and preferences of a pod that are not given up yet."""

    terms: tuple[NodeSelectorTerm, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    nodes: tuple[NodeSelectorTerm, ...]
    spreads: tuple[TopologySpread, ...]
    softened: bool = False


def read_relaxation_steps(
    shape: PodShape,
    *,
    aliases: Mapping[str, str],
    respect_preferences: bool,
    softens_taints: bool,
) -> tuple[RelaxationStep, ...]:
    """Return the relaxation steps of a pod, without those that no node could ever meet.

    Raises:
        BadInputError: required expressions cannot be read, or exclude each other.
    """
    base = [Requirement.of(k, "In", (v,), aliases=aliases) for k, v in shape.node_selector.items()]
    read: dict[int, list[Requirement]] = {}
    for term in shape.required_node_terms:
        read[id(term)] = read_expressions(term.match_expressions, aliases=aliases)
    for preferred in shape.preferred_node_terms:
        with suppress(BadInputError):  # a preference that cannot be read is given up at once
            expressions = preferred.term.match_expressions
            read[id(preferred.term)] = read_expressions(expressions, aliases=aliases)
    steps: list[RelaxationStep] = []
    wished = _all_constraints(shape, read) if respect_preferences else _required_constraints(shape)
    softens = softens_taints and PREFERENCE_TOLERATION not in shape.tolerations
    for wishes in _relaxations(wished, softens=softens):
        term = read[id(wishes.terms[0])] if wishes.terms else []
        strict = NodeLabels.of((*base, *term))
        if strict is None:
            continue
        labels = strict
        if wishes.nodes:
            labels = NodeLabels.of((*base, *term, *read[id(wishes.nodes[0])]))
        if labels is None:
            continue
        tolerations = shape.tolerations
        if wishes.softened:
            tolerations = (*tolerations, PREFERENCE_TOLERATION)
        steps.append(
            RelaxationStep(
                labels=labels,
                strict=strict.requirements,
                tolerations=tolerations,
                spreads=wishes.spreads,
                affinity=(*shape.pod_affinity, *wishes.affinity),
                anti_affinity=(*shape.pod_anti_affinity, *wishes.anti_affinity),
            )
        )
    if not steps:
        raise BadInputError("node selector and required node affinity exclude each other")
    return tuple(steps)


def node_alternatives(shape: PodShape, *, aliases: Mapping[str, str]) -> tuple[NodeLabels, ...]:
    """Return the alternatives a pod's node selector and required node affinity leave.

    Raises:
        BadInputError: required expressions cannot be read, or exclude each other.
    """
    steps = read_relaxation_steps(
        shape, aliases=aliases, respect_preferences=False, softens_taints=False
    )
    return tuple(dict.fromkeys(step.labels for step in steps))


def _required_constraints(shape: PodShape) -> _PodPreferences:
    terms = tuple(term for term in shape.required_node_terms if term.match_expressions)
    spreads = (s for s in shape.topology_spread if s.is_hard)
    return _PodPreferences(terms, (), (), (), tuple(spreads))


def _all_constraints(shape: PodShape, read: Mapping[int, list[Requirement]]) -> _PodPreferences:
    """Return all constraints and preferences of a pod, the heaviest preferences first."""
    readable = [each for each in shape.preferred_node_terms if id(each.term) in read]
    return replace(
        _required_constraints(shape),
        affinity=tuple(w.term for w in _heaviest(shape.preferred_pod_affinity)),
        anti_affinity=tuple(w.term for w in _heaviest(shape.preferred_pod_anti_affinity)),
        nodes=tuple(w.term for w in _heaviest(readable)),
        spreads=_with_first_soft(shape.topology_spread),
    )


def _heaviest(wishes: Sequence[_Preference]) -> list[_Preference]:
    return sorted(wishes, key=lambda wish: -wish.weight)[:MOST_PREFERENCES]


def _with_first_soft(spreads: Sequence[TopologySpread]) -> tuple[TopologySpread, ...]:
    """Return all hard constraints, and the first of the others, in their order."""
    soft = (s for s in spreads if not s.is_hard)
    kept = {id(each) for each in islice(soft, MOST_PREFERENCES)}
    return tuple(s for s in spreads if s.is_hard or id(s) in kept)


def _relaxations(wishes: _PodPreferences, *, softens: bool) -> Iterator[_PodPreferences]:
    """Give up one thing after the other."""
    while True:
        yield wishes
        soft = [s for s in wishes.spreads if not s.is_hard]
        if len(wishes.terms) > 1:
            wishes = replace(wishes, terms=wishes.terms[1:])
        elif wishes.affinity:
            wishes = replace(wishes, affinity=wishes.affinity[1:])
        elif wishes.anti_affinity:
            wishes = replace(wishes, anti_affinity=wishes.anti_affinity[1:])
        elif wishes.nodes:
            wishes = replace(wishes, nodes=wishes.nodes[1:])
        elif soft:
            wishes = replace(wishes, spreads=_without_first_soft(wishes.spreads))
        elif softens and not wishes.softened:
            wishes = replace(wishes, softened=True)
        else:
            return


def _without_first_soft(spreads: Sequence[TopologySpread]) -> tuple[TopologySpread, ...]:
    """Drop the first constraint that may be broken; the last one takes its place (as upstream)."""
    remaining = list(spreads)
    place = next(n for n, s in enumerate(remaining) if not s.is_hard)
    remaining[place] = remaining[-1]
    return tuple(remaining[:-1])
