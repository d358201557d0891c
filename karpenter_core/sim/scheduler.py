"""Binds pods as kube-scheduler does, or reports why it cannot.

Without preemption and preferences: the nominated node is tried first; of the nodes that fit, the
least (or most) allocated one is taken, ties by name. Pods that differ only in their names are
evaluated once. Nominated pods reserve nothing, but an unschedulable pod loses its nomination, as
upstream. Devices are not allocated: a pod waits until somebody has written the allocations of its
ResourceClaims, and goes to the node that they name.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from karpenter_core.kube.resources import NAMESPACES, NODES, PODS, RESOURCE_CLAIMS
from karpenter_core.sim.device_claims import device_nodes
from karpenter_core.sim.fields import Json, entries, labels_of, section
from karpenter_core.sim.filters import (
    host_ports,
    port_refusal,
    requests_of,
    resource_refusal,
    static_refusal,
)
from karpenter_core.sim.pods import bind, with_condition
from karpenter_core.sim.simulated_controller import SimulatedController
from karpenter_core.sim.store import DELETED, Key
from karpenter_core.sim.topology import NodeInfo, PlacementView, depends_on_other_pods

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from karpenter_core.clock import Clock
    from karpenter_core.sim.registry import Registry
    from karpenter_core.sim.store import ObjectChange

__all__ = ["Scheduler"]

_CYCLE: Final = "cycle"
_CYCLE_PODS: Final = 250  # pods bound before others get the loop
_REPEAT_SECONDS: Final = 10.0  # longest back-off of kube-scheduler: so often a reason is renewed
_MAX_POD_GROUPS: Final = 1000  # shapes of pods remembered at a time
_ABSENT: Final = object()
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})

Preference = Literal["least-allocated", "most-allocated"]


class _PodGroup:
    """Pods of one shape in one cycle, with their requests and the nodes that fit."""

    def __init__(self, pod: Json) -> None:
        self.requests: Final = requests_of(pod)
        self.ports: Final = host_ports(pod)
        self.nodes: list[tuple[float, str]] | None = None
        self.refusals: dict[str, str] = {}


class Scheduler(SimulatedController):
    """Binds the pods of one scheduler name."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        name: str = "default-scheduler",
        preference: Preference = "least-allocated",
    ) -> None:
        super().__init__(registry, clock)
        self._name: Final = name
        self._sign: Final = 1.0 if preference == "least-allocated" else -1.0
        self._namespaces: Final = dict[str, dict[str, str]]()
        self._view: Final = PlacementView(self._namespaces)
        self._pending: Final = dict[Key, Json]()
        self._waiting_for_others: Final = dict[Key, None]()
        self._active: Final = dict[Key, None]()
        self._order: Final = list[tuple[int, str, Key]]()
        """Heap of the ranks of active pods; entries of pods that are not active any more stay in it."""
        self._explained: tuple[dict[str, str], int, int, str] = ({}, 0, 0, "")
        """The last refusals, their number, the number of nodes, and the message about them."""
        self._report_again: Final = dict[Key, float]()
        self._classes: Final = dict[bytes, _PodGroup]()
        self.follow(NAMESPACES, self._on_namespace)
        self.follow(NODES, self._on_node)
        self.follow(PODS, self._on_pod)
        self.follow(RESOURCE_CLAIMS, self._on_claim)

    # Hearing

    def _on_claim(self, change: ObjectChange) -> None:
        if change.type != DELETED and "allocation" in section(change.stored.obj, "status"):
            self._activate(
                [
                    key
                    for key, pod in self._pending.items()
                    if entries(pod["spec"], "resourceClaims")
                ]
            )

    def _on_namespace(self, change: ObjectChange) -> None:
        self._namespaces[change.stored.key[1]] = labels_of(change.stored.obj)

    def _on_node(self, change: ObjectChange) -> None:
        node, before = change.stored.obj, change.previous
        if change.type == DELETED:
            self._view.remove_node(node["metadata"]["name"])
        else:
            self._view.set_node(node)
        if before is None or change.type == DELETED or _placement(before.obj) != _placement(node):
            self._retry_all()

    def _on_pod(self, change: ObjectChange) -> None:
        pod, key = change.stored.obj, change.stored.key
        ended = change.type == DELETED or pod["status"].get("phase") in _TERMINAL
        bound = pod["spec"].get("nodeName", "")
        if ended:
            self._view.remove_pod(pod["metadata"]["uid"])
        elif bound:
            self._view.add_pod(pod, bound)
        waiting = not ended and not bound and "deletionTimestamp" not in pod["metadata"]
        if waiting and pod["spec"]["schedulerName"] == self._name:
            fresh = key not in self._pending
            self._pending[key] = pod
            if depends_on_other_pods(pod):
                self._waiting_for_others[key] = None
            if fresh or (change.previous and change.previous.obj["spec"] != pod["spec"]):
                self._activate([key])
            return
        was_pending = self._pending.pop(key, None) is not None
        for kept in (self._active, self._waiting_for_others, self._report_again):
            kept.pop(key, None)
        if ended and bound:
            self._retry_all()
        elif was_pending and bound:
            self._activate(list(self._waiting_for_others))

    def _retry_all(self) -> None:
        self._classes.clear()
        self._activate(list(self._pending))

    def _activate(self, keys: list[Key]) -> None:
        for key in keys:
            if key not in self._active:
                self._active[key] = None
                heapq.heappush(self._order, self._rank(key))
        if self._active:
            self.enqueue(_CYCLE)

    # Acting

    def reconcile(self, key: Hashable) -> None:
        """Run one scheduling cycle, or renew the message of an unschedulable pod."""
        if key != _CYCLE:
            self._activate([each for each in self._pending if each == key])
            return
        count = 0
        while self._order and count < _CYCLE_PODS:
            each = heapq.heappop(self._order)[-1]
            if self._active.pop(each, _ABSENT) is _ABSENT:
                continue
            count += 1
            self._schedule(each, self._pending[each])
        if self._active:
            self.enqueue(_CYCLE)

    def _rank(self, key: Key) -> tuple[int, str, Key]:
        pod = self._pending[key]
        return -pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"], key

    def _schedule(self, key: Key, pod: Json) -> None:
        if entries(pod["spec"], "schedulingGates"):
            self._report(
                key,
                pod,
                "SchedulingGated",
                "Scheduling is blocked due to non-empty scheduling gates",
            )
            return
        named = device_nodes(self.registry, pod)
        if isinstance(named, str):
            node, refusals = None, dict.fromkeys(self._view.nodes, named)
        elif named is not None:
            node, refusals = self._choose_among(pod, named)
        else:
            node, refusals = self._choose(pod)
        if node is None:
            if pod["status"].get("nominatedNodeName"):
                cleared_nomination: Json = {"status": {"nominatedNodeName": None}}
                self.registry.patch(PODS, cleared_nomination, key[1], key[0], part="status")
            self._report(key, pod, "Unschedulable", self._explain(refusals))
            return
        binding: Json = {"target": {"kind": "Node", "name": node}}
        bind(self.registry, binding, key[1], key[0], now=self.clock.now())

    def _choose_among(self, pod: Json, names: Iterable[str]) -> tuple[str | None, dict[str, str]]:
        """Return the first of some nodes that takes a pod, or the reason of each."""
        pod_group = self._pod_group_of(pod)
        refusals: dict[str, str] = {}
        for name in names:
            info = self._view.nodes.get(name)
            if info is None:
                continue
            why = static_refusal(pod, info.node) or _capacity_refusal(pod_group, info)
            if not why:
                return name, {}
            refusals[name] = why
        return None, refusals

    def _choose(self, pod: Json) -> tuple[str | None, dict[str, str]]:
        """Return the best node, or the reason of each node."""
        pod_group = self._pod_group_of(pod)
        if nominated := self._nominated(pod, pod_group):
            return nominated, {}
        if not self._view.has_anti_affinity and not depends_on_other_pods(pod):
            return self._choose_by_pod_group(pod, pod_group), pod_group.refusals
        refusals = dict(self._view.surrounding_refusals(pod))
        best: tuple[float, str] | None = None
        for name, info in self._view.nodes.items():
            why = static_refusal(pod, info.node) or _capacity_refusal(pod_group, info)
            if why:
                refusals[name] = why
            if name not in refusals:
                scored_node = (self._score(pod_group, info), name)
                best = scored_node if best is None else min(best, scored_node)
        return (None if best is None else best[1]), refusals

    def _nominated(self, pod: Json, pod_group: _PodGroup) -> str | None:
        """Return the node that the pod's status names, if it takes the pod."""
        name = pod["status"].get("nominatedNodeName", "")
        info = self._view.nodes.get(name)
        if info is None or static_refusal(pod, info.node) or _capacity_refusal(pod_group, info):
            return None
        is_checked = self._view.has_anti_affinity or depends_on_other_pods(pod)
        return None if is_checked and name in self._view.surrounding_refusals(pod) else name

    def _choose_by_pod_group(self, pod: Json, pod_group: _PodGroup) -> str | None:
        """Pop the best node of a heap, after checking its remaining resources again."""
        if pod_group.nodes is None:
            pod_group.nodes = []
            for name, info in self._view.nodes.items():
                why = static_refusal(pod, info.node)
                if why:
                    pod_group.refusals[name] = why
                else:
                    pod_group.nodes.append((self._score(pod_group, info), name))
            heapq.heapify(pod_group.nodes)
        while pod_group.nodes:
            score, name = pod_group.nodes[0]
            info = self._view.nodes[name]
            why = _capacity_refusal(pod_group, info)
            now = self._score(pod_group, info)
            if why:
                pod_group.refusals[name] = why
                heapq.heappop(pod_group.nodes)
            elif now != score:
                heapq.heapreplace(pod_group.nodes, (now, name))
            else:
                return name
        return None

    def _pod_group_of(self, pod: Json) -> _PodGroup:
        key = msgspec.json.encode((pod["metadata"]["namespace"], pod["spec"]))
        pod_group = self._classes.get(key)
        if pod_group is None:
            if len(self._classes) >= _MAX_POD_GROUPS:
                self._classes.clear()
            pod_group = self._classes[key] = _PodGroup(pod)
        return pod_group

    def _score(self, pod_group: _PodGroup, info: NodeInfo) -> float:
        shares = [
            (info.requested.get(name, 0) + pod_group.requests.get(name, 0)) / info.allocatable[name]
            for name in ("cpu", "memory")
            if info.allocatable.get(name)
        ]
        return self._sign * sum(shares)

    # Telling

    def _explain(self, refusals: dict[str, str]) -> str:
        total = len(self._view.nodes)
        last, count, last_total, message = self._explained
        if refusals is last and (len(refusals), total) == (count, last_total):
            return message  # the next pod of the same group
        counts = sorted(f"{count} {why}" for why, count in Counter(refusals.values()).items())
        message = f"0/{total} nodes are available: {', '.join(counts)}."
        if not total:
            message = "no nodes available to schedule pods"
        self._explained = (refusals, len(refusals), total, message)
        return message

    def _report(self, key: Key, pod: Json, reason: str, message: str) -> None:
        """Write the PodScheduled condition, for one pod not more often than upstream would."""
        now, again = self.clock.monotonic(), self._report_again.get(key, 0.0)
        condition = {
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        }  # fmt: skip
        old = entries(pod["status"], "conditions")
        if any(condition.items() <= each.items() for each in old):
            return
        if now < again:  # from the instant itself: what is left of a period may round to nothing
            self.enqueue(key, after_seconds=again - now)
            return
        self._report_again[key] = now + _REPEAT_SECONDS
        conditions = with_condition(old, condition, self.clock.now())
        self.registry.patch(
            PODS, {"status": {"conditions": conditions}}, key[1], key[0], part="status"
        )


def _capacity_refusal(pod_group: _PodGroup, info: NodeInfo) -> str | None:
    return port_refusal(pod_group.ports, info.ports) or resource_refusal(
        pod_group.requests, info.allocatable, info.requested
    )


def _placement(node: Json) -> tuple[Json, object, object]:
    """Return the fields of a node that decide about pods."""
    return labels_of(node), node["spec"], node.get("status", {}).get("allocatable")
