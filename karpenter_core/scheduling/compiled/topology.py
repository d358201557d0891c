"""Defines topology groups: the pods that a constraint counts, and where.

A spread constraint or a pod (anti-)affinity term becomes a `TopologyGroup`; equal ones share one. A
group over `kubernetes.io/hostname` counts on nodes, any other on the domains of its label. Required
anti-affinity makes two: one counts the pods that its owner avoids, the inverse one counts the
owners, for the pods that are avoided.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import HOSTNAME
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.requirements import NodeLabels, Requirements, read_expressions
from karpenter_core.scheduling.selectors import PodSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from karpenter_core.api.records import (
        AffinityTerm,
        PodShape,
        Toleration,
        TopologySpread,
    )
    from karpenter_core.scheduling.compiled.relaxation import RelaxationStep

__all__ = ["CountedNodeFilter", "PodFilter", "TopologyGroup", "TopologyGroups", "TopologyKind"]

_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label that the API server puts on every namespace."""


class TopologyKind(Enum):
    """The meaning of a group's counts for a pod."""

    SPREAD = auto()
    AFFINITY = auto()
    ANTI = auto()
    """Pods that an owner avoids."""
    INVERSE = auto()
    """Owners of anti-affinity, for the pods they avoid."""


@dataclass(frozen=True, slots=True)
class CountedNodeFilter:
    """The nodes on which a spread constraint counts: `alternatives` of labels, taints tolerated.

    None: that side does not matter. The labels of the pod's other constraints, which must be `present`,
    have any value.
    """

    alternatives: tuple[NodeLabels, ...] | None
    tolerations: tuple[Toleration, ...] | None
    present: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodFilter:
    """The pods that a term speaks of.

    `namespaces` None means every namespace, `selector` None that no pod is selected.
    """

    namespaces: frozenset[str] | None
    selector: PodSelector | None

    def selects(self, shape: PodShape) -> bool:
        """Whether the filter selects pods of a shape."""
        return (
            self.selector is not None
            and (self.namespaces is None or shape.namespace in self.namespaces)
            and self.selector.matches(shape.labels)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopologyGroup:
    """One constraint, shared by all its owners; `row` is its line among the groups of its key.

    It counts the pods that `pods` and each of `other_terms` select.
    """

    index: int
    row: int
    kind: TopologyKind
    key: str
    pods: PodFilter
    other_terms: tuple[PodFilter, ...]
    """The other required pod affinity terms of the owner: kube-scheduler counts only pods that all of
    its terms select."""
    max_skew: int
    min_domains: int
    node_filter: CountedNodeFilter | None

    @property
    def is_host(self) -> bool:
        """Whether every node is a domain of its own."""
        return self.key == HOSTNAME

    def selects(self, shape: PodShape) -> bool:
        """Whether pods of a shape are counted (for an inverse group: avoided)."""
        return self.pods.selects(shape) and all(each.selects(shape) for each in self.other_terms)


@final
class TopologyGroups:
    """All groups of a pass, interned, and found by the labels of what they select."""

    def __init__(
        self,
        namespaces: Callable[[], Mapping[str, Mapping[str, str]]],
        *,
        aliases: Mapping[str, str],
    ) -> None:
        self.all: Final = list[TopologyGroup]()
        self.keys: Final = dict[str, list[TopologyGroup]]()
        """The groups of every topology key, in the order of their rows."""
        self._read_namespaces: Final = namespaces
        self._aliases: Final = aliases
        self._interned: Final = dict[object, TopologyGroup]()
        self._by_pair: Final = dict[tuple[str, str], list[TopologyGroup]]()
        self._others: Final = list[TopologyGroup]()
        self._label_keys: Final = set[str]()
        self._selected: Final = dict[object, tuple[TopologyGroup, ...]]()

    def of_spread(
        self, shape: PodShape, step: RelaxationStep, spread: TopologySpread
    ) -> TopologyGroup:
        """Return the group of a spread constraint at a step of relaxation.

        Terms of node affinity that the pod has given up still say which nodes count: they do to the
        Kubernetes scheduler, which knows nothing of giving up.
        """
        extra = {key: shape.labels[key] for key in spread.match_label_keys if key in shape.labels}
        alternatives = tolerations = None
        present = self._other_keys(shape, spread)
        if spread.node_affinity_policy == "Honor" and (
            shape.node_selector or shape.required_node_terms
        ):
            alternatives = self._alternatives(shape)
        if spread.node_taints_policy == "Honor":
            tolerations = step.tolerations
        return self._intern(
            TopologyKind.SPREAD,
            spread.topology_key,
            PodFilter(frozenset({shape.namespace}), PodSelector.read(spread.selector, extra)),
            max_skew=spread.max_skew,
            min_domains=spread.min_domains or 0,
            node_filter=(
                None
                if alternatives is None and tolerations is None and not present
                else CountedNodeFilter(alternatives, tolerations, present)
            ),
        )

    def of_term(
        self,
        shape: PodShape,
        term: AffinityTerm,
        kind: TopologyKind,
        *,
        others: Iterable[AffinityTerm] = (),
    ) -> TopologyGroup:
        """Return the group of a pod affinity or anti-affinity term.

        `others` are the terms that must select a pod, too, before it counts.
        """
        pods = self._filter(shape, term)
        other_terms = dict.fromkeys(self._filter(shape, other) for other in others)
        other_terms.pop(pods, None)
        return self._intern(kind, term.topology_key, pods, other_terms=tuple(other_terms))

    def of_steps(
        self, shape: PodShape, steps: Iterable[RelaxationStep]
    ) -> Iterator[list[TopologyGroup]]:
        """Return the groups a pod owns at each step; inverse ones are `inverse_of`."""
        for step in steps:
            yield [
                *(self.of_spread(shape, step, spread) for spread in step.spreads),
                *self._of_affinity(shape, step.affinity),
                *(self.of_term(shape, term, TopologyKind.ANTI) for term in step.anti_affinity),
            ]

    def _of_affinity(
        self, shape: PodShape, terms: Iterable[AffinityTerm]
    ) -> Iterator[TopologyGroup]:
        """Return the groups of pod affinity terms: the required ones together, preferred ones each.

        To kube-scheduler a pod that meets one required term alone is no reason to go there.
        """
        required = shape.pod_affinity
        for number, term in enumerate(terms):
            others = (*required[:number], *required[number + 1 :])
            yield self.of_term(
                shape,
                term,
                TopologyKind.AFFINITY,
                others=others if number < len(required) else (),
            )

    def inverse_of(self, shape: PodShape) -> tuple[TopologyGroup, ...]:
        """Return the inverse groups whose counts grow with every pod of a shape."""
        terms = shape.pod_anti_affinity
        return tuple(dict.fromkeys(self.of_term(shape, t, TopologyKind.INVERSE) for t in terms))

    def selecting(self, shape: PodShape) -> tuple[TopologyGroup, ...]:
        """Return every group that selects pods of a shape. Ask when all groups are there."""
        looked_at = self._label_keys
        labels = tuple(sorted([pair for pair in shape.labels.items() if pair[0] in looked_at]))
        key = (shape.namespace, labels)
        selecting_groups = self._selected.get(key)
        if selecting_groups is None:
            candidates = [g for pair in labels for g in self._by_pair.get(pair, ())]
            matching = (g for g in (*candidates, *self._others) if g.selects(shape))
            selecting_groups = self._selected[key] = tuple(
                sorted(matching, key=lambda group: group.index)
            )
        return selecting_groups

    @cached_property
    def _namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return self._read_namespaces()

    def _alternatives(self, shape: PodShape) -> tuple[NodeLabels, ...]:
        """Return the labels of nodes that a pod selects; a term that no node can meet is none."""
        terms = [term for term in shape.required_node_terms if term.match_expressions]
        selected = Requirements.from_labels(shape.node_selector, aliases=self._aliases)
        if not terms:
            return (NodeLabels(selected, frozenset()),)
        read: list[NodeLabels] = []
        for term in terms:
            try:
                expressions = read_expressions(term.match_expressions, aliases=self._aliases)
            except BadInputError:
                continue
            labels = NodeLabels.of((*selected.values(), *expressions))
            if labels is not None:
                read.append(labels)
        return tuple(read)

    def _other_keys(self, shape: PodShape, spread: TopologySpread) -> frozenset[str]:
        """Return the labels of a pod's other spread constraints over domains.

        kube-scheduler counts no node that lacks the label of one of them. Every node has a host name.
        """
        if not spread.is_hard or spread.topology_key == HOSTNAME:
            return frozenset()
        keys = {
            self._aliases.get(other.topology_key, other.topology_key)
            for other in shape.topology_spread
            if other.is_hard
        }
        own = self._aliases.get(spread.topology_key, spread.topology_key)
        return frozenset(keys - {own, HOSTNAME})

    def _filter(self, shape: PodShape, term: AffinityTerm) -> PodFilter:
        return PodFilter(self._scope(shape, term), PodSelector.read(term.selector))

    def _scope(self, shape: PodShape, term: AffinityTerm) -> frozenset[str] | None:
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (shape.namespace,))
        selector = PodSelector.read(term.namespace_selector)
        if selector is None:
            return frozenset(term.namespaces)
        if not selector.labels and not selector.expressions:
            return None
        matching = (
            name
            for name, labels in self._namespaces.items()
            if selector.matches({_NAMESPACE_NAME: name, **labels})
        )
        return frozenset((*matching, *term.namespaces))

    def _intern(
        self,
        kind: TopologyKind,
        key: str,
        pods: PodFilter,
        *,
        other_terms: tuple[PodFilter, ...] = (),
        max_skew: int = 1,
        min_domains: int = 0,
        node_filter: CountedNodeFilter | None = None,
    ) -> TopologyGroup:
        key = self._aliases.get(key, key)
        identity = (kind, key, pods, other_terms, max_skew, min_domains, node_filter)
        interned = self._interned.get(identity)
        if interned is not None:
            return interned
        of_key = self.keys.setdefault(key, [])
        group = self._interned[identity] = TopologyGroup(
            index=len(self.all),
            row=len(of_key),
            kind=kind,
            key=key,
            pods=pods,
            other_terms=other_terms,
            max_skew=max_skew,
            min_domains=min_domains,
            node_filter=node_filter,
        )
        self.all.append(group)
        of_key.append(group)
        for each in (pods, *other_terms):
            self._label_keys.update(each.selector.keys if each.selector else ())
        if pods.selector is not None:
            pair = pods.selector.pair
            (self._others if pair is None else self._by_pair.setdefault(pair, [])).append(group)
        return group
