"""The API's verbs over plain dicts: checks a write and applies its effects.

The HTTP server and the controllers of the embedded cluster both call it; only the server decodes
bytes.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from karpenter_core.kube.patches import apply_merge_patch
from karpenter_core.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    PODS,
    ResourceKind,
)
from karpenter_core.sim import status
from karpenter_core.sim.custom import CLEANUP_FINALIZER, SERVED_DEFINITIONS, kinds_of
from karpenter_core.sim.fields import Json, section
from karpenter_core.sim.kinds import BUILT_IN, ServedKind, metadata_issues
from karpenter_core.sim.patches import PatchError, json_patch
from karpenter_core.sim.store import ObjectStore, StoredObject

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["Registry", "parse_time", "render_time"]

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # those Kubernetes draws names from
_EVENT_LIFETIME: Final = timedelta(hours=1)  # upstream default of --event-ttl
_SYSTEM_FIELDS: Final = (
    "name", "namespace", "generateName", "uid", "creationTimestamp", "generation",
    "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
PatchForm = Literal["merge", "json"]


def render_time(instant: datetime) -> str:
    """Write an instant the way Kubernetes does: whole seconds, `Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Read an instant as Kubernetes writes it."""
    return datetime.fromisoformat(text)


class Registry:
    """Create, read, update, patch and delete objects of every served kind."""

    def __init__(self, clock: Clock, *, history_size: int, seed: int) -> None:
        self.store: Final = ObjectStore(history_size=history_size)
        self._clock: Final = clock
        self._random: Final = random.Random(seed)  # noqa: S311 - names, not secrets
        self._served: Final = dict[tuple[str, str, str], ServedKind]()
        self._event_expiries: Final = deque[tuple[datetime, str, str]]()
        for served in (*BUILT_IN, SERVED_DEFINITIONS):
            self._serve(served)

    # Kinds

    def served(self, group: str, version: str, plural: str) -> ServedKind:
        """Return how a kind is served.

        Raises:
            PageNotFoundError: there is no such kind (its CRD is not installed).
        """
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise status.PageNotFoundError(f"{group}/{version} {plural}") from None

    def all_served(self) -> list[ServedKind]:
        """Return every kind that is served at the moment."""
        return list(self._served.values())

    def _serve(self, served: ServedKind) -> None:
        kind = served.kind
        self._served[kind.group, kind.version, kind.plural] = served

    def _of(self, kind: ResourceKind) -> ServedKind:
        return self.served(kind.group, kind.version, kind.plural)

    # Reading

    def find(self, kind: ResourceKind, name: str, namespace: str = "") -> Json | None:
        """Return an object (shared: not to be changed), if it exists."""
        stored = self.store.find(kind, namespace, name)
        return None if stored is None else stored.obj

    def read(self, kind: ResourceKind, name: str, namespace: str = "") -> Json:
        """Return an object (shared: not to be changed).

        Raises:
            StatusError: 404.
        """
        return self.existing(kind, name, namespace).obj

    def objects(self, kind: ResourceKind, namespace: str | None = None) -> list[Json]:
        """Return a kind's objects (shared: not to be changed), of all namespaces by default."""
        return [stored.obj for stored in self.store.all(kind, namespace)]

    def existing(self, kind: ResourceKind, name: str, namespace: str) -> StoredObject:
        """Return the newest version of an object.

        Raises:
            StatusError: 404.
        """
        stored = self.store.find(kind, namespace, name)
        if stored is None:
            self._of(kind)
            raise status.not_found(kind, name)
        return stored

    # Creating

    def create(self, kind: ResourceKind, obj: Json, namespace: str = "") -> Json:
        """Create an object: set the server's fields, and refuse one that breaks a rule.

        Raises:
            StatusError: 400, 403, 404 (namespace), 409 (exists) or 422.
        """
        served = self._of(kind)
        obj = msgspec.json.decode(msgspec.json.encode(obj))
        metadata = self._new_metadata(kind, section(obj, "metadata"), namespace)
        obj = {"apiVersion": kind.api_version, "kind": kind.kind} | obj | {"metadata": metadata}
        if kind.namespaced:
            self._require_namespace(kind, metadata)
        if served.status and not served.status_on_create:
            obj.pop("status", None)
        if served.generation:
            metadata["generation"] = 1
        obj = served.prepare(obj, None)
        issues = [*metadata_issues(kind, metadata), *served.issues(obj, None)]
        if issues:
            raise status.invalid(kind, metadata.get("name", ""), issues)
        if self.store.find(kind, metadata.get("namespace", ""), metadata["name"]):
            raise status.already_exists(kind, metadata["name"])
        stored = self.store.put(kind, obj)
        if kind == CUSTOM_RESOURCE_DEFINITIONS:
            for brought in kinds_of(obj):
                self._serve(brought)
        elif kind == EVENTS:
            self._expire_events(stored)
        return stored.obj

    def _new_metadata(self, kind: ResourceKind, given: Json, namespace: str) -> Json:
        if given.get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        metadata = {
            key: value
            for key, value in given.items()
            if key not in {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}
        }
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(kind, metadata["generateName"], namespace)
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise status.bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
        else:
            metadata.pop("namespace", None)
        if kind == CUSTOM_RESOURCE_DEFINITIONS:
            metadata["finalizers"] = [*metadata.get("finalizers", ()), CLEANUP_FINALIZER]
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = render_time(self._clock.now())
        return metadata

    def _free_name(self, kind: ResourceKind, prefix: str, namespace: str) -> str:
        while True:
            name = prefix + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
            if self.store.find(kind, namespace, name) is None:
                return name

    def _require_namespace(self, kind: ResourceKind, metadata: Json) -> None:
        namespace = self.store.find(NAMESPACES, "", metadata["namespace"])
        if namespace is None:
            raise status.not_found(NAMESPACES, metadata["namespace"])
        if "deletionTimestamp" in namespace.obj["metadata"]:
            raise status.forbidden(
                kind,
                metadata.get("name", ""),
                f"unable to create new content in namespace {metadata['namespace']} because it is "
                "being terminated",
            )

    def _expire_events(self, newest: StoredObject) -> None:
        now = self._clock.now()
        self._event_expiries.append((now + _EVENT_LIFETIME, *newest.key))
        while self._event_expiries[0][0] <= now:
            _, namespace, name = self._event_expiries.popleft()
            expired = self.store.find(EVENTS, namespace, name)
            if expired is not None:
                self.store.remove(expired)

    # Changing

    def update(
        self, kind: ResourceKind, obj: Json, name: str, namespace: str = "", *, part: str = ""
    ) -> Json:
        """Replace an object, or its part (`status`).

        Raises:
            StatusError: 400, 404, 409 or 422.
        """
        served = self._of(kind)
        metadata = section(obj, "metadata")
        if metadata.get("name", name) != name:
            raise status.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL "
                f"({name})"
            )
        old = self.existing(kind, name, namespace)
        if not served.unconditional_update and not metadata.get("resourceVersion"):
            issue = "Invalid value: 0: must be specified for an update"
            raise status.invalid(kind, name, [status.FieldIssue("metadata.resourceVersion", issue)])
        return self._replace(served, old, obj, part=part)

    def patch(
        self,
        kind: ResourceKind,
        patch: object,
        name: str,
        namespace: str = "",
        *,
        part: str = "",
        form: PatchForm = "merge",
    ) -> Json:
        """Patch an object, or its part (`status`).

        Raises:
            StatusError: 400, 404, 409 or 422.
        """
        served = self._of(kind)
        old = self.existing(kind, name, namespace)
        return self._replace(served, old, apply_patch(old.obj, patch, form), part=part)

    def _replace(self, served: ServedKind, old: StoredObject, new: Json, *, part: str) -> Json:
        kind, before = served.kind, old.obj
        new = {**new, "kind": before["kind"], "apiVersion": before["apiVersion"]}
        new["metadata"] = self._kept_metadata(kind, section(new, "metadata"), before["metadata"])
        if part == "status":
            new = {**before, "status": section(new, "status")}
        elif served.status and "status" in before:
            new["status"] = before["status"]
        elif served.status:
            new.pop("status", None)
        new = served.prepare(msgspec.json.decode(msgspec.json.encode(new)), before)
        if served.generation and _substance(new) != _substance(before):
            new["metadata"]["generation"] = before["metadata"]["generation"] + 1
        if new == before:
            return before
        issues = [
            *metadata_issues(kind, new["metadata"]),
            *_finalizer_issues(new["metadata"], before["metadata"]),
            *served.issues(new, before),
        ]
        if issues:
            raise status.invalid(kind, old.key[1], issues)
        return self.commit(old, new)

    def _kept_metadata(self, kind: ResourceKind, new: Json, old: Json) -> Json:
        """Check the writer's preconditions and restore fields that only the server may change."""
        if new.get("resourceVersion", old["resourceVersion"]) != old["resourceVersion"]:
            raise status.conflict(kind, old["name"])
        if new.get("uid", old["uid"]) != old["uid"]:
            raise status.conflict(
                kind,
                old["name"],
                f"Precondition failed: UID in precondition: {new['uid']}, "
                f"UID in object meta: {old['uid']}",
            )
        metadata = {key: value for key, value in new.items() if key not in _SYSTEM_FIELDS}
        metadata |= {key: old[key] for key in _SYSTEM_FIELDS if key in old}
        metadata["resourceVersion"] = old["resourceVersion"]
        for key in ("labels", "annotations", "finalizers", "ownerReferences"):
            if key in metadata and not metadata[key]:
                del metadata[key]
        return metadata

    def commit(self, old: StoredObject, new: Json) -> Json:
        """Write a checked change; remove an object whose last finalizer is gone."""
        if _is_released(new):
            self._forget(self.store.remove(old))
            return new
        stored = self.store.put(old.kind, new)
        if old.kind == CUSTOM_RESOURCE_DEFINITIONS:
            for brought in kinds_of(new):
                self._serve(brought)
        return stored.obj

    # Deleting

    def delete(
        self,
        kind: ResourceKind,
        name: str,
        namespace: str = "",
        *,
        grace_seconds: int | None = None,
        preconditions: Json | None = None,
    ) -> Json:
        """Delete an object, or mark it as deleted while finalizers or its kubelet hold it.

        Returns the object as far as it still exists, else a Status (pods: their last state).

        Raises:
            StatusError: 404 or 409.
        """
        stored = self.existing(kind, name, namespace)
        metadata = stored.obj["metadata"]
        for field, key, words in (
            ("uid", "uid", "UID"),
            ("resourceVersion", "resourceVersion", "ResourceVersion"),
        ):
            required_value = (preconditions or {}).get(field)
            if required_value and required_value != metadata[key]:
                raise status.conflict(
                    kind,
                    name,
                    f"Precondition failed: {words} in precondition: {required_value}, "
                    f"{words} in object meta: {metadata[key]}",
                )
        grace = _pod_grace(stored.obj, grace_seconds) if kind == PODS else 0
        if grace == 0 and not _is_held(stored.obj):
            last = self._forget(self.store.remove(stored))
            return (
                last.obj if kind == PODS else status.success(kind, name=name, uid=metadata["uid"])
            )
        return self._mark_deleted(stored, grace)

    def _mark_deleted(self, stored: StoredObject, grace: int) -> Json:
        metadata = stored.obj["metadata"]
        start = self._clock.now()
        if "deletionTimestamp" in metadata:
            granted = metadata["deletionGracePeriodSeconds"]
            if grace >= granted:
                return stored.obj
            start = parse_time(metadata["deletionTimestamp"]) - timedelta(seconds=granted)
            start = max(start, self._clock.now() - timedelta(seconds=grace))
        marked: Json = {
            **metadata,
            "deletionTimestamp": render_time(start + timedelta(seconds=grace)),
            "deletionGracePeriodSeconds": grace,
        }
        if "generation" in marked and "deletionTimestamp" not in metadata:
            marked["generation"] += 1
        obj = {**stored.obj, "metadata": marked}
        if stored.kind == NAMESPACES:
            obj["status"] = {"phase": "Terminating"}
        return self.store.put(stored.kind, obj).obj

    def _forget(self, last: StoredObject) -> StoredObject:
        if last.kind == CUSTOM_RESOURCE_DEFINITIONS:
            for served in kinds_of(last.obj):
                kind = served.kind
                self._served.pop((kind.group, kind.version, kind.plural), None)
        return last


def apply_patch(obj: Json, patch: object, form: PatchForm) -> Json:
    """Apply a patch to an object.

    Raises:
        StatusError: 400, or 422 when a JSON patch does not fit the object.
    """
    if form == "merge":
        if not isinstance(patch, dict):
            raise status.bad_request("a merge patch must be an object")
        return cast("Json", apply_merge_patch(obj, cast("Json", patch)))
    try:
        return cast("Json", json_patch(obj, patch))
    except PatchError as error:
        raise status.StatusError(422, "Invalid", str(error)) from error


def _substance(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}


def _finalizer_issues(new: Json, old: Json) -> list[status.FieldIssue]:
    if "deletionTimestamp" not in old:
        return []
    added = [each for each in new.get("finalizers", ()) if each not in old.get("finalizers", ())]
    if not added:
        return []
    return [
        status.FieldIssue(
            "metadata.finalizers",
            "Forbidden: no new finalizers can be added if the object is being deleted, found new "
            f"finalizers {added!r}",
        )
    ]


def _is_held(obj: Json) -> bool:
    finalizers = obj["metadata"].get("finalizers")
    return bool(finalizers or (obj["kind"] == "Namespace" and obj["spec"].get("finalizers")))


def _is_released(obj: Json) -> bool:
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or _is_held(obj):
        return False
    return metadata.get("deletionGracePeriodSeconds", 0) == 0


def _pod_grace(pod: Json, requested: int | None) -> int:
    """Return a pod's grace period in seconds: zero unless a kubelet may be running it."""
    spec = pod["spec"]
    if not spec.get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return 0
    grace: int = spec["terminationGracePeriodSeconds"] if requested is None else requested
    return grace if grace >= 0 else 1
