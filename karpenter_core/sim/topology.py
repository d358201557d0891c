"""The scheduler's filters over several nodes, with indexed counts.

Counts of matching pods by node are kept per selector and updated with every pod, so a query costs a
pass over nodes and never one over pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.json_objects import JsonObject
from karpenter_core.sim.fields import Json, entries, labels_of, section
from karpenter_core.sim.filters import (
    HostPort,
    affinity_refusal,
    amounts_of,
    host_ports,
    port_refusal,
    requests_of,
    resource_refusal,
    static_refusal,
    taint_refusal,
)
from karpenter_core.sim.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NodeInfo", "PlacementView", "depends_on_other_pods"]

_MOST_COUNTS: Final = 1000  # selectors counted at a time
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(slots=True)
class NodeInfo:
    """A node and the resources that its pods use."""

    node: Json
    allocatable: dict[str, int]
    requested: dict[str, int] = field(default_factory=dict[str, int])
    ports: list[HostPort] = field(default_factory=list[HostPort])
    pods: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass(slots=True)
class _PodCounts:
    """The number of matching pods on each node."""

    matches: Callable[[Json], bool]
    by_node: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, pod: Json, node: str, amount: int) -> None:
        if self.matches(pod):
            count = self.by_node.get(node, 0) + amount
            if count:
                self.by_node[node] = count
            else:
                self.by_node.pop(node, None)


def depends_on_other_pods(pod: Json) -> bool:
    """Tell whether the placement of a pod depends on other pods."""
    affinity = section(pod["spec"], "affinity")
    return bool(
        _spreads(pod)
        or entries(section(affinity, "podAffinity"), _REQUIRED)
        or entries(section(affinity, "podAntiAffinity"), _REQUIRED)
    )


class PlacementView:
    """All nodes and bound pods, indexed for the placement of another pod."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Start empty; `namespaces` are their labels by name, for namespace selectors."""
        self.nodes: Final = dict[str, NodeInfo]()
        self._namespaces: Final[Mapping[str, Mapping[str, str]]] = (
            namespaces if namespaces is not None else dict[str, dict[str, str]]()
        )
        self._placed: Final = dict[str, tuple[Json, str]]()
        self._counts: Final = dict[bytes, _PodCounts]()
        self._repelling: Final = dict[bytes, tuple[Json, str, dict[str, int]]]()

    # Keeping up to date

    def set_node(self, node: Json) -> None:
        """Add a node, or update it."""
        name = node["metadata"]["name"]
        status = section(node, "status")
        allocatable = amounts_of(section(status, "allocatable") or section(status, "capacity"))
        viewed_node = self.nodes.get(name)
        if viewed_node is not None:
            viewed_node.node, viewed_node.allocatable = node, allocatable
            return
        info = self.nodes[name] = NodeInfo(node, allocatable)
        for pod, place in self._placed.values():
            if place == name:
                _add_usage(info, pod)

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        self.nodes.pop(name, None)

    def add_pod(self, pod: Json, node: str) -> None:
        """Add a pod to a node, once; newer versions of it change only its labels."""
        uid = pod["metadata"]["uid"]
        placed = self._placed.get(uid)
        if placed is not None:
            if labels_of(placed[0]) == labels_of(pod) and _is_leaving(placed[0]) == _is_leaving(
                pod
            ):
                return
            self.remove_pod(uid)
        self._placed[uid] = (pod, node)
        if node in self.nodes:
            _add_usage(self.nodes[node], pod)
        self._count(pod, node, 1)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod from its node."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return
        pod, node = placed
        info = self.nodes.get(node)
        if info is not None and info.pods.pop(uid, None) is not None:
            for name, amount in requests_of(pod).items():
                info.requested[name] -= amount
            for port in host_ports(pod):
                info.ports.remove(port)
        self._count(pod, node, -1)

    @property
    def has_anti_affinity(self) -> bool:
        """Whether any placed pod has required anti-affinity."""
        return bool(self._repelling)

    def _count(self, pod: Json, node: str, amount: int) -> None:
        for count in self._counts.values():
            count.add(pod, node, amount)
        anti = section(section(pod["spec"], "affinity"), "podAntiAffinity")
        namespace = pod["metadata"]["namespace"]
        for term in entries(anti, _REQUIRED):
            key = msgspec.json.encode((namespace, _merged(term, pod)))
            entry = self._repelling.setdefault(key, (_merged(term, pod), namespace, {}))
            entry[2][node] = entry[2].get(node, 0) + amount
            if not entry[2][node]:
                del entry[2][node]
            if not entry[2]:
                del self._repelling[key]

    # Judging

    def refusal(self, pod: Json, node: str) -> str | None:
        """Return the reason of the first filter that rejects a node for a pod, or None."""
        info = self.nodes[node]
        return (
            static_refusal(pod, info.node)
            or port_refusal(host_ports(pod), info.ports)
            or resource_refusal(requests_of(pod), info.allocatable, info.requested)
            or self.surrounding_refusals(pod).get(node)
        )

    def surrounding_refusals(self, pod: Json) -> dict[str, str]:
        """Return, by node, the reason why other pods' anti-affinity rejects it; others are allowed."""
        refused: dict[str, str] = {}
        for constraint in _spreads(pod):
            self._judge_spread(pod, constraint, refused)
        affinity = section(pod["spec"], "affinity")
        self._judge_affinity(pod, entries(section(affinity, "podAffinity"), _REQUIRED), refused)
        for given in entries(section(affinity, "podAntiAffinity"), _REQUIRED):
            term = _merged(given, pod)
            by_node = self._matching([term], pod["metadata"]["namespace"])
            self._refuse_domains(
                term, by_node, refused, "node(s) didn't match pod anti-affinity rules"
            )
        for term, namespace, by_node in self._repelling.values():
            if self._term_matches(term, namespace, pod):
                self._refuse_domains(
                    term,
                    by_node,
                    refused,
                    "node(s) didn't satisfy existing pods anti-affinity rules",
                )
        return refused

    def _judge_spread(self, pod: Json, constraint: Json, refused: dict[str, str]) -> None:
        namespace, key = pod["metadata"]["namespace"], constraint["topologyKey"]
        selector = _with_match_labels(constraint, pod)
        by_node = self._counted(
            msgspec.json.encode(("spread", namespace, selector)),
            lambda other: (
                other["metadata"]["namespace"] == namespace
                and not _is_leaving(other)
                and matches_selector(selector, labels_of(other))
            ),
        )
        keys = [each["topologyKey"] for each in _spreads(pod)]
        counts: dict[str, int] = {}
        for name, info in self.nodes.items():
            labels = labels_of(info.node)
            if all(each in labels for each in keys) and _is_counted(pod, info.node, constraint):
                counts[labels[key]] = counts.get(labels[key], 0) + by_node.get(name, 0)
        least = min(counts.values(), default=0)
        if len(counts) < (constraint.get("minDomains") or 1):
            least = 0
        own = matches_selector(selector, labels_of(pod))
        for name, info in self.nodes.items():
            domain = labels_of(info.node).get(key)
            why = "node(s) didn't match pod topology spread constraints"
            if domain is None:
                refused.setdefault(name, f"{why} (missing required label)")
            elif counts.get(domain, 0) + own - least > constraint["maxSkew"]:
                refused.setdefault(name, why)

    def _judge_affinity(self, pod: Json, given: list[Json], refused: dict[str, str]) -> None:
        if not given:
            return
        namespace = pod["metadata"]["namespace"]
        terms = [_merged(term, pod) for term in given]
        by_node = self._matching(terms, namespace)
        first = not any(by_node.values()) and all(
            self._term_matches(term, namespace, pod) for term in terms
        )
        for term in terms:
            key = term["topologyKey"]
            domains = {
                labels_of(self.nodes[name].node).get(key)
                for name, count in by_node.items()
                if count and name in self.nodes
            }
            for name, info in self.nodes.items():
                domain = labels_of(info.node).get(key)
                if domain is None or not (first or domain in domains):
                    refused.setdefault(name, "node(s) didn't match pod affinity rules")

    def _refuse_domains(
        self, term: Json, by_node: Mapping[str, int], refused: dict[str, str], why: str
    ) -> None:
        key = term["topologyKey"]
        domains = {
            labels_of(self.nodes[name].node).get(key)
            for name, count in by_node.items()
            if count and name in self.nodes
        } - {None}
        for name, info in self.nodes.items():
            if domains and labels_of(info.node).get(key) in domains:
                refused.setdefault(name, why)

    def _matching(self, terms: list[Json], namespace: str) -> dict[str, int]:
        return self._counted(
            msgspec.json.encode(("affinity", namespace, terms)),
            lambda other: all(self._term_matches(term, namespace, other) for term in terms),
        )

    def _counted(self, key: bytes, matches: Callable[[Json], bool]) -> dict[str, int]:
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MOST_COUNTS:
                self._counts.clear()
            count = self._counts[key] = _PodCounts(matches)
            for pod, node in self._placed.values():
                count.add(pod, node, 1)
        return count.by_node

    def _term_matches(self, term: Json, namespace: str, other: Json) -> bool:
        """Tell whether a term of a pod in `namespace` selects another pod."""
        theirs = other["metadata"]["namespace"]
        within = theirs in (term.get("namespaces") or ())
        if term.get("namespaceSelector") is not None:
            labels = self._namespaces.get(theirs, {})
            within = within or matches_selector(term["namespaceSelector"], labels)
        elif not term.get("namespaces"):
            within = theirs == namespace
        return within and matches_selector(term.get("labelSelector"), labels_of(other))


def _add_usage(info: NodeInfo, pod: Json) -> None:
    info.pods[pod["metadata"]["uid"]] = pod
    for name, amount in requests_of(pod).items():
        info.requested[name] = info.requested.get(name, 0) + amount
    info.ports.extend(host_ports(pod))


def _is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _spreads(pod: Json) -> list[Json]:
    return [
        each
        for each in entries(pod["spec"], "topologySpreadConstraints")
        if each["whenUnsatisfiable"] == "DoNotSchedule"
    ]


def _is_counted(pod: Json, node: Json, constraint: Json) -> bool:
    """Tell whether a node's pods count for a constraint, by its inclusion policies."""
    honours_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
    if honours_affinity and affinity_refusal(pod, node):
        return False
    return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or not taint_refusal(pod, node)


def _with_match_labels(term: Json, pod: Json) -> Json | None:
    """Return a term's selector with the pod's own values of matchLabelKeys (and their opposite)."""
    selector: Json | None = term.get("labelSelector")
    labels = labels_of(pod)
    more: list[JsonObject] = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field_name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field_name) or ()
        if key in labels
    ]
    if not more or selector is None:
        return selector
    return {**selector, "matchExpressions": [*entries(selector, "matchExpressions"), *more]}


def _merged(term: Json, pod: Json) -> Json:
    selector = _with_match_labels(term, pod)
    keys = ("topologyKey", "namespaces", "namespaceSelector")
    return {key: term[key] for key in keys if key in term} | {"labelSelector": selector}
