"""Which pods the scheduler is told of when a node is let in, and which place each is dealt.

The scheduler knows nothing of plans, but it tries the node first that a pod's status names, and
keeps that node's room from other pods of the same or of lower priority.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.records import NodeView, PodView, TopologySpread
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "deal_places",
    "looks_around",
    "meant_pods",
    "pods_compete",
]

_HARD: Final = "DoNotSchedule"


def pods_compete(snapshot: Snapshot) -> bool:
    """Tell whether the pods that wait differ: equal ones may take each other's places."""
    waiting = chain(snapshot.pending_pods.values(), snapshot.nominated_pods.values())
    first = next(waiting, None)
    return first is not None and any(pod.shape is not first.shape for pod in waiting)


def looks_around(pod: PodView) -> bool:
    """Tell whether where the pod may go depends on where other pods are."""
    shape = pod.shape
    return bool(
        shape.pod_affinity
        or shape.pod_anti_affinity
        or any(each.when_unsatisfiable == _HARD for each in shape.topology_spread)
    )


def meant_pods(snapshot: Snapshot, *, claim: str, node: str) -> Iterator[PodView]:
    """Yield the waiting pods that a machine was planned for."""
    for target in dict.fromkeys((claim, node)):
        for uid in snapshot.ledger.expected.get(target, ()):
            pod = snapshot.pending_pods.get(uid) or snapshot.nominated_pods.get(uid)
            if pod is not None:
                yield pod


def deal_places(
    snapshot: Snapshot, meant: Iterable[tuple[PodView, str]]
) -> list[tuple[PodView, str]]:
    """Return the pods whose status should name a node now, with the name.

    `meant` are pods as they were when their nodes were let in, with the nodes that were planned
    for them. Equal pods share their places: what one of them has taken is no longer there for the
    others, and what it has left is. A pod whose status names a node is left alone.
    """
    by_shape: dict[int, list[tuple[PodView, str]]] = {}
    for pod, node in meant:
        by_shape.setdefault(id(pod.shape), []).append((pod, node))
    dealt: list[tuple[PodView, str]] = []
    for items in by_shape.values():
        waiting, left, named = _where_they_are(snapshot, items)
        spread = [
            each for each in items[0][0].shape.topology_spread if each.when_unsatisfiable == _HARD
        ]
        if spread:
            dealt.extend(_deal_in_turn(snapshot, waiting, left, named, spread))
        else:
            dealt.extend(_deal_planned(waiting, left))
    return dealt


def _where_they_are(
    snapshot: Snapshot, items: Iterable[tuple[PodView, str]]
) -> tuple[list[tuple[PodView, str]], Counter[str], Counter[str]]:
    """Return the pods without a node and their plans, the places left, and those being taken."""
    waiting: list[tuple[PodView, str]] = []
    left: Counter[str] = Counter()
    named: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for before, node in items:
        left[node] += 1
        pod = snapshot.pods.get(before.uid)
        if pod is None:
            continue
        if pod.node_name:
            taken[pod.node_name] += 1
        elif pod.nominated_node_name in snapshot.nodes:
            named[pod.nominated_node_name] += 1
        elif pod.is_provisionable or pod.is_nominated:
            waiting.append((pod, node))
    return waiting, left - taken - named, named


def _deal_planned(
    waiting: Iterable[tuple[PodView, str]], left: Counter[str]
) -> Iterator[tuple[PodView, str]]:
    """Deal each pod its own place if that is left, and then the others what remains."""
    rest: list[PodView] = []
    for pod, node in waiting:
        if left[node] > 0:
            left[node] -= 1
            yield pod, node
        else:
            rest.append(pod)
    yield from zip(rest, sorted(left.elements()), strict=False)


def _deal_in_turn(
    snapshot: Snapshot,
    waiting: Iterable[tuple[PodView, str]],
    left: Counter[str],
    named: Counter[str],
    spread: Sequence[TopologySpread],
) -> Iterator[tuple[PodView, str]]:
    """Deal places so that the scheduler can take them as they come.

    A pod that must be spread is refused a place while its domain is ahead of the others, although
    all places together are even. The places are therefore dealt with the domains in turn, and to
    the pods in the order in which the scheduler has them in its queue: that of its last word on
    each. Nominated pods count on the node that is looked at but not on the others, so a node is
    named to no more of them at once than the skew allows; the rest follow when those are bound.
    """
    most = min((each.max_skew for each in spread if each.topology_key != HOSTNAME), default=0)
    keys = [each.topology_key for each in spread]
    pods = sorted((pod for pod, _ in waiting), key=_last_word)
    dealt = Counter(named)
    for pod, node in zip(pods, _in_turn(left, keys, snapshot.nodes), strict=False):
        if not most or dealt[node] < most:
            dealt[node] += 1
            yield pod, node


def _last_word(pod: PodView) -> tuple[int, str]:
    """Order pods as the scheduler last wrote their status."""
    return pod.resource_version, pod.uid


def _in_turn(
    places: Counter[str], keys: Sequence[str], nodes: Mapping[str, NodeView]
) -> Iterator[str]:
    """Yield the places, always next one of the domains that have the most places left.

    In the end all domains are even; so the one with the most to come is behind.
    """
    left = +places
    domains = {name: _domains(name, keys, nodes) for name in left}
    to_come: Counter[tuple[str, str]] = Counter()
    for name, count in left.items():
        for domain in domains[name]:
            to_come[domain] += count

    def rank(name: str) -> tuple[list[int], int, str]:
        return [-to_come[domain] for domain in domains[name]], -left[name], name

    while left:
        name = min(left, key=rank)
        yield name
        left[name] -= 1
        if not left[name]:
            del left[name]
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
