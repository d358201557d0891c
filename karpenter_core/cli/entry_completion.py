"""Completes objects from files as an API server and its controllers would.

Hand-written pods lack fields that a cluster fills in: the status, the PersistentVolumeClaim of an
ephemeral volume, the labels of its namespace. Existing values are kept, and gaps are always filled
in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.cli.manifests import BOUND_PODS, DAEMON_SET_PODS, ManifestEntry
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["complete_entries"]

_NODE_POOL: Final = "karpenter.sh/nodepool"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_CORDONED: Final = "node.kubernetes.io/unschedulable"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_SERVERS_OWN: Final = frozenset({"resourceVersion", "managedFields"})
_INSTANTS: Final = ("creationTimestamp", "deletionTimestamp")


def complete_entries(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Complete hand-written objects.

    Raises:
        BadInputError: a field that cannot be derived is missing, or a time is invalid.
    """
    entries = [_with_metadata(entry) for entry in entries]
    gaps = _EntryCompleter(entries)
    replaced = gaps.replaced_daemon_sets()
    filled = [gaps.fill(entry) for entry in entries if id(entry) not in replaced]
    return [*filled, *gaps.missing_namespaces(), *gaps.missing_volume_claims()]


def _with_metadata(entry: ManifestEntry) -> ManifestEntry:
    """Drop fields that only a server may set, and refuse invalid times."""
    metadata = dict(entry.metadata)
    for name in _SERVERS_OWN:
        metadata.pop(name, None)
    if not metadata.get("uid"):
        metadata.pop("uid", None)
    for name in _INSTANTS:
        value = metadata.get(name)
        if value is not None and not _is_instant(value):
            raise BadInputError(
                f"{entry.where}: {entry.title}: metadata.{name}: must be a time with its zone, "
                f"such as 2024-01-31T12:00:00Z, not {value!r}"
            )
    return _changed(entry, metadata=metadata)


def _is_instant(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _changed(entry: ManifestEntry, **fields: object) -> ManifestEntry:
    return ManifestEntry(
        where=entry.where,
        manifest={**entry.manifest, **fields},
        key=entry.key,
        is_implied=entry.is_implied,
    )


class _EntryCompleter:
    """Facts that the objects of one input need about each other."""

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self._by_kind: Final = defaultdict[tuple[str, str], list[ManifestEntry]](list)
        for entry in entries:
            self._by_kind[entry.group, entry.kind].append(entry)
        self._nodes: Final = {entry.name for entry in self._by_kind["", "Node"]}
        self._class: Final = _default_class(self._by_kind["storage.k8s.io", "StorageClass"])
        self._sampled: Final = {
            (_namespace(entry), owner)
            for entry in entries
            if entry.key == DAEMON_SET_PODS
            for owner in (entry.name, *_daemon_set_owners(entry))
        }
        self._claims: Final = {_key(entry) for entry in self._by_kind["", "PersistentVolumeClaim"]}
        self._provider_ids: Final = _ProviderIds(
            nodes=self._by_kind["", "Node"], claims=self._by_kind["karpenter.sh", "NodeClaim"]
        )
        self._node_class_refs: Final = {
            entry.name: _template_spec(entry).get("nodeClassRef")
            for entry in self._by_kind["karpenter.sh", "NodePool"]
        }

    def replaced_daemon_sets(self) -> set[int]:
        """Return the ids of the entries of DaemonSets that a pod in the input describes."""
        daemon_sets = self._by_kind["apps", "DaemonSet"]
        return {id(entry) for entry in daemon_sets if _key(entry) in self._sampled}

    def fill(self, entry: ManifestEntry) -> ManifestEntry:
        """Return the object with its gaps filled."""
        match entry.group, entry.kind:
            case "", "Pod" if entry.key == DAEMON_SET_PODS:
                return _daemon_set(entry)
            case "", "Pod":
                return self._pod(entry)
            case "", "Node":
                return self._provider_ids.joined(_node(entry))
            case "karpenter.sh", "NodeClaim":
                return self._provider_ids.joined(self._node_claim(entry))
            case "", "PersistentVolumeClaim":
                return self._volume_claim(entry)
            case "", "Namespace":
                labels = {_NAMESPACE_NAME: entry.name, **_mapping(entry.metadata, "labels")}
                return _changed(entry, metadata={**entry.metadata, "labels": labels})
            case _:
                return entry

    def _pod(self, entry: ManifestEntry) -> ManifestEntry:
        spec = _mapping(entry.manifest, "spec")
        if entry.key == BOUND_PODS and not spec.get("nodeName"):
            raise BadInputError(
                f"{entry.where}: {entry.title}: spec.nodeName: missing; a bound pod names its node"
            )
        status = _mapping(entry.manifest, "status")
        if str(status.get("phase")) in _FINISHED:
            return entry
        if spec.get("nodeName"):
            phase = status.get("phase") or "Running"
            return _changed(entry, status={**status, "phase": phase})
        nominated = status.get("nominatedNodeName")
        kept = {name: value for name, value in status.items() if name != "nominatedNodeName"}
        if isinstance(nominated, str) and nominated in self._nodes:
            kept["nominatedNodeName"] = nominated
        conditions = [
            condition
            for condition in _objects(status, "conditions")
            if condition.get("type") != "PodScheduled"
        ]
        if not spec.get("schedulingGates"):
            # The scheduler has seen the pod and found no node for it.
            conditions.append(
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            )
        return _changed(entry, status={**kept, "phase": "Pending", "conditions": conditions})

    def _node_claim(self, entry: ManifestEntry) -> ManifestEntry:
        """Complete the requirements of a claim, and the NodeClass of its NodePool."""
        spec = dict(_mapping(entry.manifest, "spec"))
        pool = _mapping(entry.metadata, "labels").get(_NODE_POOL)
        if not spec.get("nodeClassRef") and isinstance(pool, str):
            spec["nodeClassRef"] = self._node_class_refs.get(pool)
        spec["requirements"] = spec.get("requirements") or []
        return _changed(entry, spec=spec, status=_with_amounts(entry))

    def _volume_claim(self, entry: ManifestEntry) -> ManifestEntry:
        spec = dict(_mapping(entry.manifest, "spec"))
        status = dict(_mapping(entry.manifest, "status"))
        metadata = dict(entry.metadata)
        if spec.get("storageClassName") is None and self._class:
            spec["storageClassName"] = self._class
        if spec.get("volumeName") and "phase" not in status:
            status["phase"] = "Bound"
        if status.get("phase") == "Bound":
            metadata["annotations"] = {_BIND_COMPLETED: "yes", **_mapping(metadata, "annotations")}
        return _changed(entry, metadata=metadata, spec=spec, status=status)

    def missing_namespaces(self) -> Iterator[ManifestEntry]:
        """Yield the namespaces of pods that are not in the input."""
        namespace_names = {entry.name for entry in self._by_kind["", "Namespace"]}
        for entry in self._by_kind["", "Pod"]:
            name = _namespace(entry)
            if name not in namespace_names:
                namespace_names.add(name)
                labels = {_NAMESPACE_NAME: name}
                yield _new_entry(entry, "v1", "Namespace", {"name": name, "labels": labels})

    def missing_volume_claims(self) -> Iterator[ManifestEntry]:
        """Yield the PersistentVolumeClaims of the ephemeral volumes of pods."""
        claim_keys = set(self._claims)
        for entry in self._by_kind["", "Pod"]:
            if entry.key == DAEMON_SET_PODS:
                continue
            for volume in _objects(_mapping(entry.manifest, "spec"), "volumes"):
                template = _mapping(_mapping(volume, "ephemeral"), "volumeClaimTemplate")
                name = f"{entry.name}-{volume.get('name', '')}"
                if not template or (_namespace(entry), name) in claim_keys:
                    continue
                claim_keys.add((_namespace(entry), name))
                metadata = {"name": name, "namespace": _namespace(entry)}
                claim = _new_entry(
                    entry, "v1", "PersistentVolumeClaim", metadata, spec=template.get("spec") or {}
                )
                yield self._volume_claim(claim)


class _ProviderIds:
    """Joins Nodes and NodeClaims of one instance by provider ID.

    A Node without a provider ID gets one; a claim that names the Node shares it.
    """

    def __init__(self, *, nodes: Iterable[ManifestEntry], claims: Iterable[ManifestEntry]) -> None:
        self._ids: Final = dict[str, str]()
        for entry in claims:
            status = _mapping(entry.manifest, "status")
            if status.get("nodeName") and status.get("providerID"):
                self._ids[str(status["nodeName"])] = str(status["providerID"])
        for entry in nodes:
            written = _mapping(entry.manifest, "spec").get("providerID")
            self._ids[entry.name] = str(
                written or self._ids.get(entry.name) or f"node://{entry.name}"
            )

    def joined(self, entry: ManifestEntry) -> ManifestEntry:
        """Return a Node or NodeClaim with its provider ID, if it can be derived."""
        part = "spec" if entry.kind == "Node" else "status"
        fields = _mapping(entry.manifest, part)
        node = entry.name if entry.kind == "Node" else str(fields.get("nodeName") or "")
        if fields.get("providerID") or node not in self._ids:
            return entry
        return _changed(entry, **{part: {**fields, "providerID": self._ids[node]}})


def _template_spec(pool: ManifestEntry) -> JsonMapping:
    return _mapping(_mapping(_mapping(pool.manifest, "spec"), "template"), "spec")


def _node(entry: ManifestEntry) -> ManifestEntry:
    """Complete amounts, and turn a cordon into a taint."""
    spec, status = _mapping(entry.manifest, "spec"), _with_amounts(entry)
    taints = _objects(spec, "taints")
    if spec.get("unschedulable") is True and not any(t.get("key") == _CORDONED for t in taints):
        spec = {**spec, "taints": [*taints, {"key": _CORDONED, "effect": "NoSchedule"}]}
    return _changed(entry, spec=spec, status=status)


def _with_amounts(entry: ManifestEntry) -> JsonObject:
    """Return a status in which capacity and allocatable complete each other."""
    status = _mapping(entry.manifest, "status")
    capacity, allocatable = _mapping(status, "capacity"), _mapping(status, "allocatable")
    return {**status, "capacity": capacity or allocatable, "allocatable": allocatable or capacity}


def _daemon_set(entry: ManifestEntry) -> ManifestEntry:
    """Return a DaemonSet whose pods equal this one."""
    labels = _mapping(entry.metadata, "labels")
    spec = dict(_mapping(entry.manifest, "spec"))
    spec.pop("nodeName", None)
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": entry.name, "namespace": entry.metadata.get("namespace")},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": _mapping(entry.metadata, "annotations"),
                },
                "spec": spec,
            },
        },
    }
    return ManifestEntry(where=entry.where, key=entry.key, manifest=manifest)


def _default_class(classes: Iterable[ManifestEntry]) -> str:
    """Return the default StorageClass: the newest of those marked as default."""
    defaults = [
        (str(entry.metadata.get("creationTimestamp") or ""), entry.name)
        for entry in classes
        if _mapping(entry.metadata, "annotations").get(_DEFAULT_CLASS) == "true"
    ]
    newest = max((created for created, _ in defaults), default="")
    return min((name for created, name in defaults if created == newest), default="")


def _daemon_set_owners(entry: ManifestEntry) -> Iterator[str]:
    for owner in _objects(entry.metadata, "ownerReferences"):
        if owner.get("kind") == "DaemonSet":
            yield str(owner.get("name") or "")


def _new_entry(
    entry: ManifestEntry, api_version: str, kind: str, metadata: JsonMapping, **fields: object
) -> ManifestEntry:
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": dict(metadata), **fields}
    return ManifestEntry(where=entry.where, manifest=manifest, is_implied=True)


def _key(entry: ManifestEntry) -> tuple[str, str]:
    return _namespace(entry), entry.name


def _namespace(entry: ManifestEntry) -> str:
    return entry.namespace or "default"


def _mapping(parent: JsonMapping, field: str) -> JsonMapping:
    """Return a field that should be an object; another type is refused later, when decoded."""
    value: object = parent.get(field)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _objects(parent: JsonMapping, field: str) -> list[JsonObject]:
    """Return a field that should be a list of objects."""
    value: object = parent.get(field)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("JsonObject", item) for item in items if isinstance(item, dict)]
