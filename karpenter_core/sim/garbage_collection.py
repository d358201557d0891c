"""Deletes orphans, the contents of deleted namespaces and CRDs, lost pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    ResourceKind,
)
from karpenter_core.sim.custom import CLEANUP_FINALIZER, kinds_of
from karpenter_core.sim.fields import entries
from karpenter_core.sim.simulated_controller import PodsByNode, SimulatedController
from karpenter_core.sim.store import ADDED, DELETED, StoredObject

if TYPE_CHECKING:
    from collections.abc import Hashable

    from karpenter_core.clock import Clock
    from karpenter_core.sim.registry import Registry
    from karpenter_core.sim.store import ObjectChange

__all__ = ["GarbageCollector", "PodCollector"]


class GarbageCollector(SimulatedController):
    """Deletes objects whose owners are all gone, in the background."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        super().__init__(registry, clock)
        self._known_kinds: Final = set[ResourceKind]()
        self.follow(CUSTOM_RESOURCE_DEFINITIONS, self._on_definition)
        self._follow_new_kinds()

    def reconcile(self, key: Hashable) -> None:
        """Delete the dependents of an object, or the contents of a namespace or definition."""
        match key:
            case ("kinds",):
                self._follow_new_kinds()
            case ("owner", str(uid)):
                for stored in self.registry.store.dependents(uid):
                    self._collect(stored)
            case ("object", str(uid)):
                stored = self.registry.store.with_uid(uid)
                if stored is not None:
                    self._collect(stored)
            case ("namespace", str(name)):
                self._empty_namespace(name)
            case ("definition", str(name)):
                self._empty_definition(name)
            case _:
                raise AssertionError(key)

    def _follow_new_kinds(self) -> None:
        for served in self.registry.all_served():
            if served.kind not in self._known_kinds:
                self._known_kinds.add(served.kind)
                self.follow(served.kind, self._on_change)

    def _on_definition(self, change: ObjectChange) -> None:
        if change.type == ADDED:
            self.enqueue(("kinds",))
        elif "deletionTimestamp" in change.stored.obj["metadata"]:
            self.enqueue(("definition", change.stored.key[1]))

    def _on_change(self, change: ObjectChange) -> None:
        stored = change.stored
        metadata = stored.obj["metadata"]
        if change.type == DELETED:
            self.enqueue(("owner", stored.uid))
            if stored.key[0] and self._is_ending(stored.key[0]):
                self.enqueue(("namespace", stored.key[0]))
        elif metadata.get("ownerReferences"):
            self.enqueue(("object", stored.uid))
        if stored.kind == NAMESPACES and "deletionTimestamp" in metadata:
            self.enqueue(("namespace", stored.key[1]))

    def _is_ending(self, name: str) -> bool:
        namespace = self.registry.find(NAMESPACES, name)
        return namespace is not None and "deletionTimestamp" in namespace["metadata"]

    def _collect(self, stored: StoredObject) -> None:
        owners = entries(stored.obj["metadata"], "ownerReferences")
        alive = any(self.registry.store.with_uid(each["uid"]) for each in owners)
        if owners and not alive:
            self._delete(stored)

    def _delete(self, stored: StoredObject) -> None:
        if "deletionTimestamp" not in stored.obj["metadata"]:
            self.registry.delete(stored.kind, stored.key[1], stored.key[0])

    def _empty_namespace(self, name: str) -> None:
        namespace = self.registry.store.find(NAMESPACES, "", name)
        if namespace is None:
            return
        for served in self.registry.all_served():
            if served.kind.namespaced:
                for stored in self.registry.store.all(served.kind, name):
                    self._delete(stored)
        kinds = [each.kind for each in self.registry.all_served() if each.kind.namespaced]
        if not any(self.registry.store.all(kind, name) for kind in kinds):
            self.registry.commit(namespace, {**namespace.obj, "spec": {}})

    def _empty_definition(self, name: str) -> None:
        definition = self.registry.find(CUSTOM_RESOURCE_DEFINITIONS, name)
        if definition is None:
            return
        remaining_objects = 0
        for served in kinds_of(definition):
            for stored in self.registry.store.all(served.kind):
                self._delete(stored)
            remaining_objects += len(self.registry.store.all(served.kind))
        if remaining_objects:
            self.enqueue(("definition", name), after_seconds=1.0)
            return
        finalizers = definition["metadata"].get("finalizers", [])
        remaining_finalizers = [each for each in finalizers if each != CLEANUP_FINALIZER]
        patch = {"metadata": {"finalizers": remaining_finalizers}}
        if len(remaining_finalizers) < len(finalizers):
            self.registry.patch(CUSTOM_RESOURCE_DEFINITIONS, patch, name)


class PodCollector(SimulatedController):
    """Deletes the pods of deleted nodes by force."""

    def __init__(self, registry: Registry, clock: Clock, *, quarantine_seconds: float) -> None:
        super().__init__(registry, clock)
        self._quarantine_seconds: Final = quarantine_seconds
        self._pods: Final = PodsByNode.followed_by(self)
        self.follow(NODES, self._on_node)
        self.follow(PODS, self._on_pod)

    def reconcile(self, key: Hashable) -> None:
        """Delete the pods of a node unless the node exists again."""
        name = str(key)
        if self.registry.find(NODES, name) is not None:
            return
        for pod in self._pods.on(name):
            metadata = pod["metadata"]
            self.registry.delete(PODS, metadata["name"], metadata["namespace"], grace_seconds=0)

    def _on_node(self, change: ObjectChange) -> None:
        if change.type == DELETED:
            self.enqueue(change.stored.key[1], after_seconds=self._quarantine_seconds)

    def _on_pod(self, change: ObjectChange) -> None:
        node = change.stored.obj["spec"].get("nodeName", "")
        if change.type != DELETED and node and self.registry.find(NODES, node) is None:
            self.enqueue(node, after_seconds=self._quarantine_seconds)
