"""Binds pods as kube-scheduler does, or reports why it cannot.

Without preemption and preferences: the nominated node is tried first; of the nodes that fit, the
least (or most) allocated one is taken, ties by name. Of pods that differ only in their names one is
evaluated for all; those that no node takes wait, as upstream's queueing hints let them, until a change may
help them. Nominated pods reserve nothing, but an unschedulable pod loses its nomination, as
upstream. Devices are not allocated: a pod waits until a test has written the allocations of its
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
from karpenter_core.sim.pod_groups import PodGroup
from karpenter_core.sim.pods import bind, with_condition
from karpenter_core.sim.simulated_controller import SimulatedController
from karpenter_core.sim.store import DELETED, Key
from karpenter_core.sim.topology import PlacementView

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from karpenter_core.clock import Clock
    from karpenter_core.sim.pod_groups import PodRank
    from karpenter_core.sim.registry import Registry
    from karpenter_core.sim.store import ObjectChange
    from karpenter_core.sim.topology import NodeInfo

__all__ = ["Scheduler"]

_CYCLE: Final = "cycle"
_CYCLE_PODS: Final = 250  # pods bound before others get the loop
_REPEAT_SECONDS: Final = 10.0  # longest back-off of kube-scheduler: so often a reason is renewed
_MAX_POD_GROUPS: Final = 1000  # shapes of pods remembered at a time
_ABSENT: Final = object()
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})

Preference = Literal["least-allocated", "most-allocated"]


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
        self._parked: Final = dict[Key, PodGroup]()
        """Pods that wait, each with the group that it waits in."""
        self._alone: Final = dict[Key, None]()
        """Pods that wait by themselves: gated ones, and those with devices."""
        self._woken: Final = dict[Key, PodGroup]()
        """Active pods that waited in a group: the next one follows them."""
        self._active: Final = dict[Key, None]()
        self._order: Final = list["PodRank"]()
        """Heap of the ranks of active pods; entries of pods that are not active any more stay in it."""
        self._explained: tuple[dict[str, str], int, int, str] = ({}, 0, 0, "")
        """The last refusals, the number of their changes, the number of nodes, and the message."""
        self._report_again: Final = dict[Key, float]()
        self._groups: Final = dict[bytes, PodGroup]()
        self._most_groups = _MAX_POD_GROUPS
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
        name = node["metadata"]["name"]
        if change.type == DELETED:
            self._view.remove_node(name)
        else:
            self._view.set_node(node)
        if before is None or change.type == DELETED or _placement(before.obj) != _placement(node):
            self._retry(name)

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
            if fresh or (change.previous and change.previous.obj["spec"] != pod["spec"]):
                self._activate([key])
            return
        was_pending = self._pending.pop(key, None) is not None
        if was_pending:
            self._forget(key)
        if ended and bound:
            self._retry(bound)
        elif was_pending and bound:
            self._on_bound(bound)

    def _forget(self, key: Key) -> None:
        """Let a pod go that waits no longer."""
        for kept in (self._active, self._alone, self._report_again):
            kept.pop(key, None)
        parked_in = self._parked.pop(key, None)
        if parked_in is not None:
            parked_in.leave(key)
        woken = self._woken.pop(key, None)
        if woken is not None:
            woken.is_woken = False
            self._wake_group(woken)

    def _on_bound(self, node: str) -> None:
        """Retry pods whose placement depends on others, now that another one is placed."""
        info = self._view.nodes.get(node)
        for group in self._groups.values():
            if group.depends_on_others:
                self._wake_group(group)
            elif self._sign < 0:  # a fuller node is better for others, too
                group.observe(node, info, self._score)

    def _retry(self, node: str) -> None:
        """Wake pods after a change of a node: the first of each group, for all that wait in it."""
        info = self._view.nodes.get(node)
        for key, group in tuple(self._groups.items()):
            if not group.is_needed:
                del self._groups[key]  # computed anew when it is needed
                continue
            group.observe(node, info, self._score)
            self._wake_group(group)
        self._activate(list(self._alone))

    def _wake_group(self, group: PodGroup) -> None:
        """Try the first pod that waits in a group; the others follow if a node takes it."""
        key = None if group.is_woken else group.first()
        if key is not None:
            group.is_woken = True
            self._woken[key] = group
            self._activate([key])

    def _activate(self, keys: list[Key]) -> None:
        for key in keys:
            if key not in self._active:
                self._alone.pop(key, None)
                parked_in = self._parked.pop(key, None)
                if parked_in is not None:
                    parked_in.leave(key)
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
            woken = self._woken.pop(each, None)
            if woken is not None:
                woken.is_woken = False
            if self._schedule(each, self._pending[each]) and woken is not None:
                self._wake_group(woken)
        if self._active:
            self.enqueue(_CYCLE)

    def _rank(self, key: Key) -> PodRank:
        pod = self._pending[key]
        return -pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"], key

    def _schedule(self, key: Key, pod: Json) -> bool:
        """Bind a pod or let it wait; return whether others of its group may still be placed."""
        if entries(pod["spec"], "schedulingGates"):
            gated = "Scheduling is blocked due to non-empty scheduling gates"
            self._alone[key] = None
            self._report(key, pod, "SchedulingGated", gated)
            return True
        named = device_nodes(self.registry, pod)
        group = self._group_of(pod)
        if named is None:
            node = self._choose(pod, group)
        elif isinstance(named, str):
            group.refuse(dict.fromkeys(self._view.nodes, named))
            node = None
        else:
            node = self._choose_among(named, group)
        if node is not None:
            binding: Json = {"target": {"kind": "Node", "name": node}}
            bind(self.registry, binding, key[1], key[0], now=self.clock.now())
            return True
        if named is None:
            group.park(self._rank(key))
            self._parked[key] = group
        else:
            self._alone[key] = None
        # As upstream: a pod that preempts none keeps its nomination.
        preempts = pod["spec"].get("preemptionPolicy") != "Never"
        if preempts and pod["status"].get("nominatedNodeName"):
            cleared_nomination: Json = {"status": {"nominatedNodeName": None}}
            self.registry.patch(PODS, cleared_nomination, key[1], key[0], part="status")
        self._report(key, pod, "Unschedulable", self._explain(group))
        return False

    def _choose_among(self, names: Iterable[str], group: PodGroup) -> str | None:
        """Return the first of some nodes that takes a pod."""
        refusals: dict[str, str] = {}
        for name in names:
            info = self._view.nodes.get(name)
            if info is None:
                continue
            why = group.refusal(info)
            if not why:
                return name
            refusals[name] = why
        group.refuse(refusals)
        return None

    def _choose(self, pod: Json, group: PodGroup) -> str | None:
        """Return the best node."""
        is_free = not self._view.has_anti_affinity and not group.depends_on_others
        if nominated := self._nominated(pod, group, is_free=is_free):
            return nominated
        if is_free:
            return group.best(self._view.nodes, self._score)
        refusals = dict(self._view.surrounding_refusals(pod))
        best: tuple[float, str] | None = None
        for name, info in self._view.nodes.items():
            why = group.refusal(info)
            if why:
                refusals[name] = why
            if name not in refusals:
                scored_node = (self._score(group.requests, info), name)
                best = scored_node if best is None else min(best, scored_node)
        group.refuse(refusals)
        return None if best is None else best[1]

    def _nominated(self, pod: Json, group: PodGroup, *, is_free: bool) -> str | None:
        """Return the node that the pod's status names, if it takes the pod."""
        name = pod["status"].get("nominatedNodeName", "")
        info = self._view.nodes.get(name)
        if info is None or group.refusal(info):
            return None
        return name if is_free or name not in self._view.surrounding_refusals(pod) else None

    def _group_of(self, pod: Json) -> PodGroup:
        metadata = pod["metadata"]
        shape = (metadata["namespace"], metadata.get("labels"), pod["spec"])
        key = msgspec.json.encode(shape)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= self._most_groups:
                kept = {key: each for key, each in self._groups.items() if each.is_needed}
                self._groups.clear()
                self._groups.update(kept)
                self._most_groups = max(_MAX_POD_GROUPS, 2 * len(kept))
            group = self._groups[key] = PodGroup(pod)
        return group

    def _score(self, requests: Mapping[str, int], info: NodeInfo) -> float:
        shares = [
            (info.requested.get(name, 0) + requests.get(name, 0)) / info.allocatable[name]
            for name in ("cpu", "memory")
            if info.allocatable.get(name)
        ]
        return self._sign * sum(shares)

    # Telling

    def _explain(self, group: PodGroup) -> str:
        total, refusals = len(self._view.nodes), group.refusals
        last, changes, last_total, message = self._explained
        if refusals is last and (group.changes, total) == (changes, last_total):
            return message  # the next pod of the same group
        counts = sorted(f"{count} {why}" for why, count in Counter(refusals.values()).items())
        message = f"0/{total} nodes are available: {', '.join(counts)}."
        if not total:
            message = "no nodes available to schedule pods"
        self._explained = (refusals, group.changes, total, message)
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


def _placement(node: Json) -> tuple[Json, object, object]:
    """Return the fields of a node that decide about pods."""
    return labels_of(node), node["spec"], node.get("status", {}).get("allocatable")
