"""Chooses the nodes to nominate pending pods for when nodes register.

The scheduler knows nothing of plans, but it tries a pod's nominated node first, and reserves capacity
on that node against other pods of the same or of lower priority.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, HOSTNAME, MEMORY, PODS, ZONE
from karpenter_core.scheduling.resources import merge, subtract

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.records import NodeView, PodShape, PodView, Resources, TopologySpread
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "choose_nominations",
    "depends_on_other_pods",
    "planned_pods",
    "pods_compete",
    "pods_of_scarce_nodes",
]

_COMMON_KEYS: Final = frozenset({ZONE, CPU, MEMORY, EPHEMERAL_STORAGE, PODS})
"""Resources that every node has, and zones."""


def pods_compete(snapshot: Snapshot) -> bool:
    """Tell whether waiting pods differ; equal pods may take each other's places."""
    waiting = chain(snapshot.pending_pods.values(), snapshot.nominated_pods.values())
    first = next(waiting, None)
    return first is not None and any(pod.shape is not first.shape for pod in waiting)


def depends_on_other_pods(pod: PodView) -> bool:
    """Tell whether the pod's placement depends on the placement of other pods."""
    shape = pod.shape
    return bool(
        shape.pod_affinity
        or shape.pod_anti_affinity
        or any(each.is_hard for each in shape.topology_spread)
    )


def planned_pods(snapshot: Snapshot, *, claim: str, node: str) -> Iterator[PodView]:
    """Yield the waiting pods for which a claim and its node were planned."""
    for target in dict.fromkeys((claim, node)):
        for uid in snapshot.ledger.expected.get(target, ()):
            pod = snapshot.pods.get(uid)
            if pod is not None and (pod.is_nominated or _awaits_node(pod)):
                yield pod


def pods_of_scarce_nodes(
    snapshot: Snapshot, planned: Sequence[tuple[PodView, str]]
) -> list[tuple[PodView, str]]:
    """Return the pods that other waiting pods would leave without a node that they may use.

    They require a label or a resource that others do not ask for: the others may take any node, these
    only some. Zones are left out: plans of so many pods have all of them in mind.
    """
    waiting = {_scarce_keys(shape) for shape in snapshot.refused_shapes}
    if not waiting:
        return []
    common = frozenset[str].intersection(*waiting)
    shapes = {id(pod.shape): pod.shape for pod, _ in planned}
    is_scarce = {key: not _scarce_keys(shape) <= common for key, shape in shapes.items()}
    return [(pod, node) for pod, node in planned if is_scarce[id(pod.shape)]]


def _scarce_keys(shape: PodShape) -> frozenset[str]:
    """Return the labels and resources of which not every node has what a pod requires."""
    terms = shape.required_node_terms
    labels = {each.key for term in terms for each in term.match_expressions}
    return frozenset((labels | shape.node_selector.keys() | shape.requests.keys()) - _COMMON_KEYS)


def _awaits_node(pod: PodView) -> bool:
    """Tell whether the scheduler has refused a pod or has not tried it yet."""
    return pod.is_provisionable or pod.is_untried


def choose_nominations(
    snapshot: Snapshot, planned: Iterable[tuple[PodView, str]]
) -> list[tuple[PodView, str]]:
    """Return the pods to nominate now, with the name of the node for each.

    `planned` are the pods as they were when their nodes registered, with the nodes planned for them.
    Equal pods share their places: a place that one of them has taken is not nominated again, and a
    place that it has left is. Nor is one for which other pods have left no capacity: the scheduler would not
    try the pod again, and a nominated pod is not planned again for a while. A pod that has a
    nomination is left alone.
    """
    capacity = _FreeCapacity(snapshot)
    by_shape: dict[int, list[tuple[PodView, str]]] = {}
    for pod, node in planned:
        by_shape.setdefault(id(pod.shape), []).append((pod, node))
    nominations: list[tuple[PodView, str]] = []
    for items in by_shape.values():
        waiting, places, named = _waiting_and_free(snapshot, items)
        shape = items[0][0].shape
        free_places = capacity.without_full_nodes(places, shape.requests)
        spread = [each for each in shape.topology_spread if each.is_hard]
        if spread:
            chosen = list(_nominate_in_turn(snapshot, waiting, free_places, named, spread))
        else:
            chosen = list(_nominate_as_planned(waiting, free_places))
        capacity.reserve(chosen)
        nominations.extend(chosen)
    return nominations


@final
class _FreeCapacity:
    """Free resources of initialised nodes, less those of the pods that are nominated for them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot
        self._nominated: Final[dict[str, list[PodView]]] = {}
        for pod in snapshot.nominated_pods.values():
            self._nominated.setdefault(pod.nominated_node_name, []).append(pod)
        self._free: Final[dict[str, dict[str, int] | None]] = {}

    def without_full_nodes(self, places: Counter[str], requests: Resources) -> Counter[str]:
        """Return the places by node, at most as many as pods with these requests fit there."""
        return Counter(
            {
                node: min(count, self._count_fitting(node, requests))
                for node, count in places.items()
            }
        )

    def reserve(self, nominations: Iterable[tuple[PodView, str]]) -> None:
        """Take the requests of pods off their nodes."""
        for pod, node in nominations:
            free = self._free_on(node)
            if free is not None:
                self._free[node] = subtract(free, pod.shape.requests)

    def _count_fitting(self, node: str, requests: Resources) -> int:
        free = self._free_on(node)
        amounts = [(name, amount) for name, amount in requests.items() if amount]
        if free is None or not amounts:
            return sys.maxsize
        return max(0, min(free.get(name, 0) // amount for name, amount in amounts))

    def _free_on(self, node: str) -> dict[str, int] | None:
        """Return what is free on a node; None if it may not show all of its resources yet."""
        if node not in self._free:
            state_node = self._snapshot.state_nodes_by_node.get(node)
            if state_node is None or not state_node.initialized:
                self._free[node] = None
            else:
                nominated = merge(pod.shape.requests for pod in self._nominated.get(node, ()))
                free = subtract(state_node.allocatable, state_node.requests)
                self._free[node] = subtract(free, nominated)
        return self._free[node]


def _waiting_and_free(
    snapshot: Snapshot, items: Iterable[tuple[PodView, str]]
) -> tuple[list[tuple[PodView, str]], Counter[str], Counter[str]]:
    """Return waiting pods with their planned nodes, the free places, and nominations, by node."""
    waiting: list[tuple[PodView, str]] = []
    planned_places: Counter[str] = Counter()
    named: Counter[str] = Counter()
    bound_places: Counter[str] = Counter()
    for before, node in items:
        planned_places[node] += 1
        pod = snapshot.pods.get(before.uid)
        if pod is None:
            continue
        if pod.node_name:
            bound_places[pod.node_name] += 1
        elif pod.nominated_node_name in snapshot.nodes:
            named[pod.nominated_node_name] += 1
        elif pod.is_nominated or _awaits_node(pod):
            waiting.append((pod, node))
    return waiting, planned_places - bound_places - named, named


def _nominate_as_planned(
    waiting: Iterable[tuple[PodView, str]], free_places: Counter[str]
) -> Iterator[tuple[PodView, str]]:
    """Nominate each pod for its planned node while it has places, the others for the rest."""
    rest: list[PodView] = []
    for pod, node in waiting:
        if free_places[node] > 0:
            free_places[node] -= 1
            yield pod, node
        else:
            rest.append(pod)
    yield from zip(rest, sorted(free_places.elements()), strict=False)


def _nominate_in_turn(
    snapshot: Snapshot,
    waiting: Iterable[tuple[PodView, str]],
    free_places: Counter[str],
    named: Counter[str],
    spread: Sequence[TopologySpread],
) -> Iterator[tuple[PodView, str]]:
    """Nominate pods with a hard topology spread in an order that the scheduler can bind.

    The scheduler refuses such a pod a node while the node's domain is ahead of the others, although
    all places together are even. Places are therefore taken from the domains in turn, and pods in the
    order of the scheduler's queue, which follows its last writes to their status. The scheduler counts
    nominated pods on the node that it tries, but not on the others, so no more pods are nominated for
    a node at once than the skew allows; the rest follow when those are bound.
    """
    max_skew = min((each.max_skew for each in spread if each.topology_key != HOSTNAME), default=0)
    keys = [each.topology_key for each in spread]
    pods = sorted((pod for pod, _ in waiting), key=_last_status_write)
    nominated = Counter(named)
    for pod, node in zip(pods, _in_turn(free_places, keys, snapshot.nodes), strict=False):
        if not max_skew or nominated[node] < max_skew:
            nominated[node] += 1
            yield pod, node


def _last_status_write(pod: PodView) -> tuple[int, str]:
    """Return the sort key that orders pods by the last write to them."""
    return pod.resource_version, pod.uid


def _in_turn(
    places: Counter[str], keys: Sequence[str], nodes: Mapping[str, NodeView]
) -> Iterator[str]:
    """Yield the places in turn, each from the domains with the most places left.

    All domains are even in the end, so the one with the most places left is the one behind.
    """
    free_places = +places
    domains = {name: _domains(name, keys, nodes) for name in free_places}
    to_come: Counter[tuple[str, str]] = Counter()
    for name, count in free_places.items():
        for domain in domains[name]:
            to_come[domain] += count

    def rank(name: str) -> tuple[list[int], int, str]:
        return [-to_come[domain] for domain in domains[name]], -free_places[name], name

    while free_places:
        name = min(free_places, key=rank)
        yield name
        free_places[name] -= 1
        if not free_places[name]:
            del free_places[name]
        for domain in domains[name]:
            to_come[domain] -= 1


def _domains(
    name: str, keys: Sequence[str], nodes: Mapping[str, NodeView]
) -> tuple[tuple[str, str], ...]:
    """Return the domain of a node under each topology key."""
    node = nodes.get(name)
    if node is None:
        return tuple((key, name) for key in keys)
    return tuple((key, name if key == HOSTNAME else node.labels.get(key, "")) for key in keys)
