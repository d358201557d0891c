"""Creates pods of Deployments, ReplicaSets and DaemonSets."""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    ResourceKind,
)
from karpenter_core.sim.budgets import scaled
from karpenter_core.sim.fields import Json, entries, section
from karpenter_core.sim.filters import static_refusal
from karpenter_core.sim.pods import is_ready
from karpenter_core.sim.simulated_controller import SimulatedController
from karpenter_core.sim.store import DELETED

if TYPE_CHECKING:
    from collections.abc import Hashable

    from karpenter_core.clock import Clock
    from karpenter_core.sim.registry import Registry
    from karpenter_core.sim.store import ObjectChange

__all__ = ["DaemonSetController", "DeploymentController", "ReplicaSetController"]

_HASH_LABEL: Final = "pod-template-hash"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_BURST: Final = 500  # pods created or deleted in one go, as upstream's BurstReplicas
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_DAEMON_TOLERATIONS: Final = (
    *(("NoExecute", f"node.kubernetes.io/{name}") for name in ("not-ready", "unreachable")),
    *(
        ("NoSchedule", f"node.kubernetes.io/{name}")
        for name in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
"""The tolerations that the DaemonSet controller adds to its pods (documentation of DaemonSet)."""


class _OwnerController(SimulatedController):
    """A controller of objects that own others."""

    kind: ResourceKind
    dependents: ResourceKind

    def __init__(self, registry: Registry, clock: Clock) -> None:
        super().__init__(registry, clock)
        self.follow(self.kind, self._on_own)
        self.follow(self.dependents, self._on_dependent)

    def reconcile(self, key: Hashable) -> None:
        """Update one owner's dependents and status."""
        match key:
            case (str(namespace), str(name)):
                owner = self.registry.find(self.kind, name, namespace)
            case _:
                raise AssertionError(key)
        if owner is not None and "deletionTimestamp" not in owner["metadata"]:
            self.sync(owner)

    def sync(self, owner: Json) -> None:
        """Reconcile one owner."""
        raise NotImplementedError

    def owned(self, owner: Json) -> list[Json]:
        """Return the objects that an owner owns."""
        dependents = self.registry.store.dependents(owner["metadata"]["uid"])
        return [stored.obj for stored in dependents if stored.kind == self.dependents]

    def write_status(self, owner: Json, status: Json) -> None:
        """Write an owner's status; a status that has not changed is no write."""
        metadata = owner["metadata"]
        body = {"status": status | {"observedGeneration": metadata["generation"]}}
        self.registry.patch(self.kind, body, metadata["name"], metadata["namespace"], part="status")

    def create_pod(self, owner: Json, template: Json) -> None:
        """Create a pod from a template."""
        metadata = owner["metadata"]
        pod: Json = {
            "metadata": {
                **{k: v for k, v in template["metadata"].items() if k in {"labels", "annotations"}},
                "generateName": f"{metadata['name']}-",
                "ownerReferences": [_reference(owner)],
            },
            "spec": template["spec"],
        }
        self.registry.create(PODS, pod, metadata["namespace"])

    def _on_own(self, change: ObjectChange) -> None:
        if change.type != DELETED:
            self.enqueue(change.stored.key)

    def _on_dependent(self, change: ObjectChange) -> None:
        metadata = change.stored.obj["metadata"]
        for owner in entries(metadata, "ownerReferences"):
            if owner["kind"] == self.kind.kind and owner.get("controller"):
                self.enqueue((metadata["namespace"], owner["name"]))


class DeploymentController(_OwnerController):
    """Keeps one ReplicaSet per template, and moves replicas to the newest within its limits."""

    kind = DEPLOYMENTS
    dependents = REPLICA_SETS

    def sync(self, owner: Json) -> None:
        """Scale the ReplicaSets of a deployment, and sum them up in its status."""
        sets = self.owned(owner)
        template_hash = _template_hash(owner["spec"]["template"])
        current = next((each for each in sets if _hash_of(each) == template_hash), None)
        if current is None:
            current = self._create_set(owner, template_hash)
            sets.append(current)
        self._scale(owner, current, [each for each in sets if each is not current])
        sums = {
            name: sum(section(each, "status").get(name, 0) for each in sets)
            for name in ("replicas", "readyReplicas", "availableReplicas")
        }
        updated = section(current, "status").get("replicas", 0)
        missing = max(0, owner["spec"]["replicas"] - sums["availableReplicas"])
        self.write_status(
            owner, sums | {"updatedReplicas": updated, "unavailableReplicas": missing}
        )

    def _scale(self, owner: Json, current: Json, old: list[Json]) -> None:
        desired: int = owner["spec"]["replicas"]
        limits = section(owner["spec"]["strategy"], "rollingUpdate")
        old_replicas = sum(each["spec"]["replicas"] for each in old)
        if not old_replicas:
            self._set_replicas(current, desired)
            return
        surge = scaled(limits.get("maxSurge", 0), desired, up=True)
        spare = scaled(limits.get("maxUnavailable", 0), desired, up=False)
        if not limits:
            surge, spare = 0, desired  # Recreate: the old ones go first
        room = desired + surge - old_replicas - current["spec"]["replicas"]
        if room > 0 and (limits or not any(self._pods_left(each) for each in old)):
            self._set_replicas(current, min(desired, current["spec"]["replicas"] + room))
        sets = [current, *old]
        available = sum(section(each, "status").get("availableReplicas", 0) for each in sets)
        removable = max(0, available - (desired - spare))
        for each in old:
            replicas: int = each["spec"]["replicas"]
            unavailable = replicas - section(each, "status").get("availableReplicas", 0)
            cut = min(replicas, removable + unavailable)
            removable = max(0, removable - max(0, cut - unavailable))
            self._set_replicas(each, replicas - cut)

    def _pods_left(self, replica_set: Json) -> bool:
        return bool(self.registry.store.dependents(replica_set["metadata"]["uid"]))

    def _set_replicas(self, replica_set: Json, replicas: int) -> None:
        if replica_set["spec"]["replicas"] != replicas:
            metadata = replica_set["metadata"]
            self.registry.patch(
                REPLICA_SETS,
                {"spec": {"replicas": replicas}},
                metadata["name"],
                metadata["namespace"],
            )

    def _create_set(self, owner: Json, template_hash: str) -> Json:
        mark = {_HASH_LABEL: template_hash}
        spec, metadata = owner["spec"], owner["metadata"]
        template = spec["template"]
        labels = section(template["metadata"], "labels") | mark
        selector = spec["selector"]
        return self.registry.create(
            REPLICA_SETS,
            {
                "metadata": {
                    "name": f"{metadata['name']}-{template_hash}",
                    "labels": labels,
                    "ownerReferences": [_reference(owner)],
                },
                "spec": {
                    "replicas": 0,
                    "selector": selector | {"matchLabels": section(selector, "matchLabels") | mark},
                    "template": template | {"metadata": template["metadata"] | {"labels": labels}},
                },
            },
            metadata["namespace"],
        )


class ReplicaSetController(_OwnerController):
    """Keeps the number of pods, and replaces deleted ones."""

    kind = REPLICA_SETS
    dependents = PODS

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._counts: Final = dict[str, list[int]]()
        """Active and ready pods, by the UID of their owner: kept by change, since owners are large."""
        super().__init__(registry, clock)

    def sync(self, owner: Json) -> None:
        """Create or delete pods, and count them in the status."""
        active, ready = self._counts.get(owner["metadata"]["uid"], (0, 0))
        missing = owner["spec"]["replicas"] - active
        for _ in range(min(missing, _BURST)):
            self.create_pod(owner, owner["spec"]["template"])
        if missing < 0:
            pods = [pod for pod in self.owned(owner) if _is_active(pod)]
            for pod in heapq.nsmallest(min(-missing, _BURST), pods, key=_deletion_rank):
                self.registry.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        if abs(missing) > _BURST:
            self.enqueue((owner["metadata"]["namespace"], owner["metadata"]["name"]))
        counts = {"replicas": active, "readyReplicas": ready, "availableReplicas": ready}
        self.write_status(owner, counts | {"fullyLabeledReplicas": active})

    def _on_dependent(self, change: ObjectChange) -> None:
        if change.previous is not None:
            self._count(change.previous.obj, -1)
        if change.type != DELETED:
            self._count(change.stored.obj, 1)
        super()._on_dependent(change)

    def _count(self, pod: Json, amount: int) -> None:
        if not _is_active(pod):
            return
        for owner in entries(pod["metadata"], "ownerReferences"):
            counts = self._counts.setdefault(owner["uid"], [0, 0])
            counts[0] += amount
            counts[1] += amount * is_ready(pod)
            if not counts[0]:
                del self._counts[owner["uid"]]


class DaemonSetController(_OwnerController):
    """Keeps one pod on every node that a DaemonSet's pods may run on."""

    kind = DAEMON_SETS
    dependents = PODS

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._fits: Final = dict[tuple[str, int], dict[str, bool]]()
        """Whether a node takes the pods, by UID and generation of the owner and by name of the node."""
        super().__init__(registry, clock)
        self.follow(NODES, self._on_node)

    def sync(self, owner: Json) -> None:
        """Create missing pods, and delete those whose node no longer qualifies."""
        template = _daemon_template(owner["spec"]["template"])
        metadata = owner["metadata"]
        fits = self._fits.setdefault((metadata["uid"], metadata["generation"]), {})
        on_node: dict[str, list[Json]] = {}
        for pod in self.owned(owner):
            on_node.setdefault(_target_node(pod), []).append(pod)
        node_names: dict[str, None] = {}
        for node in self.registry.objects(NODES):
            name = node["metadata"]["name"]
            if name not in fits:
                refusal = static_refusal({"metadata": {}, "spec": template["spec"]}, node)
                fits[name] = refusal is None
            if fits[name]:
                node_names[name] = None
        for name in node_names:
            if not on_node.get(name):
                self.create_pod(owner, _pinned(template, name))
        for name, pods in on_node.items():
            surplus = pods[1:] if name in node_names else pods
            for pod in surplus:
                if _is_active(pod):
                    metadata = pod["metadata"]
                    self.registry.delete(PODS, metadata["name"], metadata["namespace"])
        placed = [pods[0] for name, pods in on_node.items() if name in node_names]
        ready = sum(is_ready(pod) for pod in placed)
        counts = {
            "desiredNumberScheduled": len(node_names), "currentNumberScheduled": len(placed),
            "numberReady": ready, "numberAvailable": ready, "numberMisscheduled": 0,
        }  # fmt: skip
        self.write_status(owner, counts)

    def _on_node(self, change: ObjectChange) -> None:
        before = change.previous
        if before is not None and change.type != DELETED:
            node = change.stored.obj
            same_labels = node["metadata"].get("labels") == before.obj["metadata"].get("labels")
            if same_labels and node["spec"] == before.obj["spec"]:
                return
        for fits in self._fits.values():
            fits.pop(change.stored.key[1], None)
        for stored in self.registry.store.all(DAEMON_SETS):
            self.enqueue(stored.key)

    def _on_own(self, change: ObjectChange) -> None:
        metadata = change.stored.obj["metadata"]
        now = (metadata["uid"], metadata["generation"])
        for key in [key for key in self._fits if key[0] == now[0]]:
            if change.type == DELETED or key != now:
                del self._fits[key]
        super()._on_own(change)


def _reference(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _template_hash(template: Json) -> str:
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()
    return digest[:10]


def _hash_of(replica_set: Json) -> str:
    return section(replica_set["metadata"], "labels").get(_HASH_LABEL, "")


def _is_active(pod: Json) -> bool:
    return (
        "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in _TERMINAL
    )


def _deletion_rank(pod: Json) -> tuple[object, ...]:
    """Order pods as a ReplicaSet deletes them (upstream's ActivePodsWithRanks)."""
    annotations = section(pod["metadata"], "annotations")
    try:
        cost = int(annotations.get(_DELETION_COST, "0"))
    except ValueError:
        cost = 0
    newest_first = [-ord(letter) for letter in pod["metadata"]["creationTimestamp"]]
    return (
        bool(pod["spec"].get("nodeName")),
        pod["status"].get("phase") != "Pending",
        is_ready(pod),
        cost,
        newest_first,
        pod["metadata"]["name"],
    )


def _daemon_template(template: Json) -> Json:
    given = entries(template["spec"], "tolerations")
    added = [
        {"key": key, "operator": "Exists", "effect": effect} for effect, key in _DAEMON_TOLERATIONS
    ]
    return template | {"spec": template["spec"] | {"tolerations": [*given, *added]}}


def _pinned(template: Json, node: str) -> Json:
    """Return the template for one node: an affinity that only that node satisfies."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = section(template["spec"], "affinity") | {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return template | {"spec": template["spec"] | {"affinity": affinity}}


def _target_node(pod: Json) -> str:
    if node := pod["spec"].get("nodeName", ""):
        return node
    affinity = section(section(pod["spec"], "affinity"), "nodeAffinity")
    required = section(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    for term in entries(required, "nodeSelectorTerms"):
        for field in entries(term, "matchFields"):
            return field["values"][0]
    return ""
