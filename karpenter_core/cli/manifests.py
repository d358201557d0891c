"""Reads Kubernetes objects from files: YAML, JSON, lists and folders.

Each object keeps where it came from, so that a refusal names file, document and object.
"""

from __future__ import annotations

import codecs
import gzip
import os
import sys
import zlib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.cli.parsing import read_documents
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from karpenter_core.api.json_objects import JsonObject

__all__ = [
    "BOUND_PODS",
    "DAEMON_SET_PODS",
    "KEYS",
    "SNAPSHOT_KEY",
    "ManifestEntry",
    "Manifests",
    "SnapshotFile",
    "json_type",
    "manifest_files",
    "manifest_text",
    "read_files",
]

DAEMON_SET_PODS: Final = "daemonSetPods"
"""Key of the pods that each DaemonSet runs on a node."""

BOUND_PODS: Final = "boundPods"
"""Key of the pods that are bound to a node."""

NODE_CLASSES: Final = "nodeClasses"
"""Suffix of keys of NodeClasses."""

SNAPSHOT_KEY: Final = "karpenterSnapshot"
"""Field of a List that makes a file a snapshot."""

STDIN: Final = "-"

_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Beginnings of files in UTF-16, which `kubectl get > FILE` is in PowerShell; kubectl reads them too."""
_GZIP: Final = b"\x1f\x8b"
"""The beginning of a compressed file."""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})

_KINDS: Final = {
    "nodePools": ("karpenter.sh/v1", "NodePool"),
    "nodeClaims": ("karpenter.sh/v1", "NodeClaim"),
    "nodeOverlays": ("karpenter.sh/v1alpha1", "NodeOverlay"),
    NODE_CLASSES: ("", ""),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    BOUND_PODS: ("v1", "Pod"),
    DAEMON_SET_PODS: ("v1", "Pod"),
    "daemonSets": ("apps/v1", "DaemonSet"),
    "namespaces": ("v1", "Namespace"),
    "podDisruptionBudgets": ("policy/v1", "PodDisruptionBudget"),
    "podTemplates": ("v1", "PodTemplate"),
    "provisioningRequests": ("autoscaling.x-k8s.io/v1", "ProvisioningRequest"),
    "persistentVolumes": ("v1", "PersistentVolume"),
    "persistentVolumeClaims": ("v1", "PersistentVolumeClaim"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
    "csiDrivers": ("storage.k8s.io/v1", "CSIDriver"),
    "csiNodes": ("storage.k8s.io/v1", "CSINode"),
    "volumeAttachments": ("storage.k8s.io/v1", "VolumeAttachment"),
    "services": ("v1", "Service"),
    "replicationControllers": ("v1", "ReplicationController"),
    "replicaSets": ("apps/v1", "ReplicaSet"),
    "statefulSets": ("apps/v1", "StatefulSet"),
    "deployments": ("apps/v1", "Deployment"),
    "jobs": ("batch/v1", "Job"),
    "cronJobs": ("batch/v1", "CronJob"),
    "priorityClasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "resourceClaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "resourceClaimTemplates": ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    "resourceSlices": ("resource.k8s.io/v1", "ResourceSlice"),
    "deviceClasses": ("resource.k8s.io/v1", "DeviceClass"),
}
"""Keys of a JSON object that contains a whole cluster, and the kinds of their lists."""

KEYS: Final = tuple(_KINDS)

_JSON_TYPES: Final = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
}

_COMMON_KEYS: Final = ("nodePools", "nodes", BOUND_PODS, "pods", DAEMON_SET_PODS)

_ALIKE: Final = 0.75
"""Similarity to a known key from which an unknown key counts as misspelt."""

_BY_LOWER_CASE: Final = {key.lower(): key for key in _KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One object, the place where it was read, and its key in a cluster file (empty: none)."""

    where: str
    manifest: JsonObject
    key: str = ""
    is_implied: bool = False
    """The object was not written by anybody: a cluster would create it for another object."""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return str(self.manifest["apiVersion"]).rpartition("/")[0]

    @property
    def kind(self) -> str:
        """The kind."""
        return str(self.manifest["kind"])

    @property
    def metadata(self) -> JsonObject:
        """The metadata; empty if there is none."""
        return cast("JsonObject", self.manifest.get("metadata") or {})

    @property
    def name(self) -> str:
        """The name; empty if it has none."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """The namespace, as written."""
        return str(self.metadata.get("namespace") or "")

    @property
    def title(self) -> str:
        """Kind and name, as messages say them."""
        return f'{self.kind} "{f"{self.namespace}/" if self.namespace else ""}{self.name}"'


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SnapshotFile:
    """A file of `karpenter snapshot`: its header, and its objects."""

    where: str
    header: object
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """The objects of files, and other content of the files."""

    entries: tuple[ManifestEntry, ...] = ()
    notes: tuple[str, ...] = ()
    snapshot: SnapshotFile | None = None
    """The snapshot among the files; its objects are not among `entries`."""


def read_files(paths: Iterable[Path]) -> Manifests:
    """Read all objects of files and folders (their YAML and JSON files, by name, recursively).

    The path `-` is the standard input.

    Raises:
        BadInputError: a file cannot be read, or contains something that is no object.
    """
    notes: list[str] = []
    snapshots: list[SnapshotFile] = []
    entries = [
        entry
        for path in paths
        for file in manifest_files(path)
        for entry in _read_file(file, notes, snapshots)
    ]
    if len(snapshots) > 1:
        names = " and ".join(each.where for each in snapshots)
        raise BadInputError(f"{names}: only one snapshot can be read")
    return Manifests(
        entries=tuple(entries),
        notes=tuple(notes),
        snapshot=next(iter(snapshots), None),
    )


def manifest_files(path: Path) -> list[Path]:
    """Return the YAML and JSON files of a folder, by name, recursively; or the file itself.

    Folders whose names begin with two dots are those that the links in a mounted ConfigMap point into.

    Raises:
        BadInputError: a folder without such a file, or of which a part cannot be read.
    """
    if not path.is_dir():
        return [path]
    files: list[Path] = []
    for folder, inner, names in os.walk(path, onerror=_refuse_folder):
        inner[:] = [name for name in inner if not name.startswith("..")]
        found = (Path(folder, name) for name in names)
        files += (each for each in found if each.suffix.lower() in _SUFFIXES and each.is_file())
    files.sort()
    if not files:
        raise BadInputError(f"{path}: no YAML or JSON file in this folder")
    return files


def _refuse_folder(error: OSError) -> None:
    raise BadInputError(f"{error.filename}: cannot be read: {error.strerror}") from error


def manifest_text(file: Path) -> tuple[str, str]:
    """Return the name of a file for messages, and its text; `-` is the standard input.

    Raises:
        BadInputError: the file cannot be read.
    """
    is_stdin = str(file) == STDIN
    name = "standard input" if is_stdin else str(file)
    try:
        raw = sys.stdin.buffer.read() if is_stdin else file.read_bytes()
        if raw.startswith(_GZIP):
            raw = gzip.decompress(raw)
        return name, raw.decode("utf-16" if raw.startswith(_UTF_16) else "utf-8-sig")
    except EOFError as error:
        reason = "the compressed file ends early; save the file again"
        raise BadInputError(f"{name}: cannot be read: {reason}") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        reason = f"the compressed file is damaged ({error}); save the file again"
        raise BadInputError(f"{name}: cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        reason = "is neither text in UTF-8 nor compressed by gzip"
        raise BadInputError(f"{name}: cannot be read: {reason}") from error
    except OSError as error:
        raise BadInputError(f"{name}: cannot be read: {error.strerror or error}") from error


def _read_file(
    file: Path, notes: list[str], snapshots: list[SnapshotFile]
) -> Iterator[ManifestEntry]:
    name, text = manifest_text(file)
    documents = read_documents(name, text)
    if all(document is None for document in documents):
        notes.append(f"{name}: is empty")
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        where = f"{name}, document {number}"
        header = (
            cast("JsonObject", document).get(SNAPSHOT_KEY) if isinstance(document, dict) else None
        )
        if header is not None:
            entries = tuple(_objects(cast("object", document), where, notes))
            snapshots.append(SnapshotFile(where=name, header=header, entries=entries))
        else:
            yield from _objects(cast("object", document), where, notes)


def _objects(document: object, where: str, notes: list[str]) -> Iterator[ManifestEntry]:
    """Split a document: one object, a List, or a cluster by keys."""
    if not isinstance(document, dict):
        raise BadInputError(f"{where}: is no Kubernetes object but {json_type(document)}")
    manifest = cast("JsonObject", document)
    kind = manifest.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and "items" in manifest:
        item_kind = kind.removesuffix("List")
        version = str(manifest.get("apiVersion", "")) if item_kind else ""
        for number, item in enumerate(_items(manifest["items"], where, "items")):
            place = f"{where}, items[{number}]"
            yield _entry(item, place, api_version=version, kind=item_kind)
        return
    if kind is not None:
        yield _entry(manifest, where)
        return
    yield from _cluster(manifest, where, notes)


def _cluster(manifest: JsonObject, where: str, notes: list[str]) -> Iterator[ManifestEntry]:
    """Read an object whose keys hold lists; the case of a key does not matter."""
    seen: dict[str, str] = {}
    foreign: list[str] = []
    for name, value in manifest.items():
        written = str(name)
        key = _key(written)
        if key is None:
            foreign.append(written)
            continue
        if key in seen and key != NODE_CLASSES:
            raise BadInputError(f'{where}: field "{written}": is duplicated (as {seen[key]})')
        seen[key] = written
        api_version, kind = _KINDS[key]
        for number, item in enumerate(_items(cast("object", value), where, written)):
            place = f"{where}, {written}[{number}]"
            yield _entry(item, place, key=key, api_version=api_version, kind=kind)
    read = [
        entry
        for name in foreign
        for entry in _entries_under_other_keys(name, manifest[name], where, notes)
    ]
    yield from read
    if not seen and not read:
        raise BadInputError(_no_cluster(manifest, where))


def _entries_under_other_keys(
    written: str, value: object, where: str, notes: list[str]
) -> Iterator[ManifestEntry]:
    """Read keys that are not known; objects there are never ignored silently."""
    if not isinstance(value, (list, dict)):
        return
    alike = get_close_matches(written.lower(), _BY_LOWER_CASE, n=1, cutoff=_ALIKE)
    field = f'{where}: field "{written}"'
    if alike:
        raise BadInputError(f'{field}: unknown; is "{_BY_LOWER_CASE[alike[0]]}" meant?')
    items = cast("list[object]", value if isinstance(value, list) else [value])
    if not any(isinstance(item, dict) and "metadata" in item for item in items):
        if isinstance(value, list) and items:
            notes.append(f"{field}: unknown, ignored")
        return
    for number, item in enumerate(_items(cast("object", value), where, written)):
        yield _entry(item, f"{where}, {written}[{number}]")


def _no_cluster(manifest: JsonObject, where: str) -> str:
    """Return the error of a document that is neither an object nor a cluster."""
    if "apiVersion" in manifest:
        return f'{where}: field "kind": missing'
    what = f'field "{next(iter(manifest))}": unknown' if manifest else "is empty"
    return (
        f"{where}: {what}; an object needs apiVersion and kind, a cluster has lists under keys "
        f"such as {', '.join(_COMMON_KEYS)}"
    )


def _key(written: str) -> str | None:
    """Return the key that is probably meant; a provider may name its list after its kind."""
    lower = written.lower()
    if lower.endswith(NODE_CLASSES.lower()):
        return NODE_CLASSES
    return _BY_LOWER_CASE.get(lower)


def _items(value: object, where: str, field: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInputError(f'{where}: field "{field}": must be a list')
    return cast("list[object]", value)


def json_type(value: object) -> str:
    """Return the JSON name of a value's type."""
    return next((name for kind, name in _JSON_TYPES.items() if isinstance(value, kind)), "nothing")


def _entry(
    item: object, where: str, *, key: str = "", api_version: str = "", kind: str = ""
) -> ManifestEntry:
    """Return one object; entries of typed lists may omit kind and apiVersion."""
    if not isinstance(item, dict):
        raise BadInputError(f"{where}: is no Kubernetes object but {json_type(item)}")
    manifest = dict(cast("JsonObject", item))
    for field, implied in (("apiVersion", api_version), ("kind", kind)):
        manifest[field] = manifest.get(field) or implied
        if not manifest[field] or not isinstance(manifest[field], str):
            raise BadInputError(f'{where}: field "{field}": missing')
    if key and kind and manifest["kind"] != kind:
        raise BadInputError(f'{where}: field "kind": must be {kind}, not {manifest["kind"]}')
    for field in ("metadata", "spec", "status"):
        if not isinstance(manifest.get(field) or {}, dict):
            raise BadInputError(f'{where}: field "{field}": must be an object')
    for field in ("name", "namespace", "uid"):
        value = cast("JsonObject", manifest.get("metadata") or {}).get(field)
        if value is not None and not isinstance(value, str):
            raise BadInputError(
                f'{where}: field "metadata.{field}": must be a string, not {json_type(value)}'
            )
    return ManifestEntry(where=where, manifest=manifest, key=key)
