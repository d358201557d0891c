"""Files with Kubernetes objects, as users have them: YAML or JSON, one or many, lists, folders.

Each object keeps where it came from, so that a refusal names file, document and object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["DAEMON_SET_PODS", "Entry", "read_entries"]

DAEMON_SET_PODS: Final = "daemonSetPods"
"""Key of the pods that one node of each kind would run."""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})

_KINDS: Final = {
    "nodePools": ("karpenter.sh/v1", "NodePool"),
    "nodeClaims": ("karpenter.sh/v1", "NodeClaim"),
    "nodeClasses": ("", ""),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "boundPods": ("v1", "Pod"),
    DAEMON_SET_PODS: ("v1", "Pod"),
    "daemonSets": ("apps/v1", "DaemonSet"),
    "namespaces": ("v1", "Namespace"),
    "podDisruptionBudgets": ("policy/v1", "PodDisruptionBudget"),
    "persistentVolumes": ("v1", "PersistentVolume"),
    "persistentVolumeClaims": ("v1", "PersistentVolumeClaim"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
    "csiNodes": ("storage.k8s.io/v1", "CSINode"),
    "volumeAttachments": ("storage.k8s.io/v1", "VolumeAttachment"),
}
"""Keys of one JSON object that holds a whole cluster, and what their lists hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object, where it was read, and under which key of a cluster file (empty: none)."""

    where: str
    manifest: dict[str, Any]
    key: str = ""

    @property
    def title(self) -> str:
        """Kind and name, as messages say them."""
        metadata: Any = self.manifest.get("metadata")
        fields = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        namespace, name = fields.get("namespace"), fields.get("name", "")
        return (
            f'{self.manifest.get("kind", "object")} "{f"{namespace}/" if namespace else ""}{name}"'
        )


def read_entries(paths: Iterable[Path]) -> list[Entry]:
    """Read all objects of files and folders (their YAML and JSON files, by name, recursively).

    Raises:
        BadInputError: a file cannot be read, or something in it is no object.
    """
    return [entry for path in paths for file in _files(path) for entry in _read_file(file)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
    if not files:
        raise BadInputError(f"{path}: no YAML or JSON file in this folder")
    return files


def _read_file(file: Path) -> Iterator[Entry]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise BadInputError(f"{file}: cannot be read: {reason}") from error
    for number, document in enumerate(_documents(file, text), start=1):
        if document is not None:
            yield from _objects(document, f"{file}, document {number}")


def _documents(file: Path, text: str) -> list[Any]:
    if file.suffix == ".json":
        try:
            return [json.loads(text)]
        except json.JSONDecodeError as error:
            raise BadInputError(f"{file}: line {error.lineno}: is not JSON: {error.msg}") from error
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" line {mark.line + 1}:"
        problem = getattr(error, "problem", None) or str(error)
        raise BadInputError(f"{file}:{line} is not YAML: {problem}") from error


def _objects(document: Any, where: str) -> Iterator[Entry]:
    """Take a document apart: one object, a List, or a cluster by keys."""
    if not isinstance(document, dict):
        raise BadInputError(f"{where}: is no Kubernetes object but a {type(document).__name__}")
    manifest = cast("dict[str, Any]", document)
    kind = manifest.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and "items" in manifest:
        item_kind = kind.removesuffix("List")
        version = str(manifest.get("apiVersion", ""))
        for number, item in enumerate(_items(manifest["items"], where, "items")):
            place = f"{where}, items[{number}]"
            yield _entry(item, place, api_version=version, kind=item_kind)
        return
    if kind is not None:
        yield _entry(manifest, where)
        return
    unknown = sorted(key for key in manifest if key not in _KINDS)
    if unknown:
        raise BadInputError(
            f'{where}: field "{unknown[0]}": unknown; an object needs apiVersion and kind, a '
            f"cluster has the keys {', '.join(_KINDS)}"
        )
    for key, (version, item_kind) in _KINDS.items():
        for number, item in enumerate(_items(manifest.get(key) or [], where, key)):
            place = f"{where}, {key}[{number}]"
            yield _entry(item, place, key=key, api_version=version, kind=item_kind)


def _items(value: Any, where: str, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadInputError(f'{where}: field "{field}": must be a list')
    return cast("list[Any]", value)


def _entry(item: Any, where: str, *, key: str = "", api_version: str = "", kind: str = "") -> Entry:
    """Return one object; members of typed lists may leave out what the list says."""
    if not isinstance(item, dict):
        raise BadInputError(f"{where}: is no Kubernetes object but a {type(item).__name__}")
    manifest = {"apiVersion": api_version, "kind": kind, **cast("dict[str, Any]", item)}
    for field in ("apiVersion", "kind"):
        manifest[field] = manifest[field] or {"apiVersion": api_version, "kind": kind}[field]
        if not manifest[field] or not isinstance(manifest[field], str):
            raise BadInputError(f'{where}: field "{field}": missing')
    for field in ("metadata", "spec", "status"):
        if not isinstance(manifest.get(field, {}) or {}, dict):
            raise BadInputError(f'{where}: field "{field}": must be an object')
    return Entry(where=where, manifest=manifest, key=key)
