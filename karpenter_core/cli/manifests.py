"""Files with Kubernetes objects, as users have them: YAML or JSON, one or many, lists, folders.

Each object keeps where it came from, so that a refusal names file, document and object.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["BOUND_PODS", "DAEMON_SET_PODS", "KEYS", "Entry", "read_entries"]

DAEMON_SET_PODS: Final = "daemonSetPods"
"""Key of the pods that one node of each kind would run."""

BOUND_PODS: Final = "boundPods"
"""Key of the pods that are on a node already."""

NODE_CLASSES: Final = "nodeClasses"
"""Key of NodeClasses of any provider; its end is enough."""

STDIN: Final = "-"

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})

_KINDS: Final = {
    "nodePools": ("karpenter.sh/v1", "NodePool"),
    "nodeClaims": ("karpenter.sh/v1", "NodeClaim"),
    NODE_CLASSES: ("", ""),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    BOUND_PODS: ("v1", "Pod"),
    DAEMON_SET_PODS: ("v1", "Pod"),
    "daemonSets": ("apps/v1", "DaemonSet"),
    "namespaces": ("v1", "Namespace"),
    "podDisruptionBudgets": ("policy/v1", "PodDisruptionBudget"),
    "persistentVolumes": ("v1", "PersistentVolume"),
    "persistentVolumeClaims": ("v1", "PersistentVolumeClaim"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
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
"""Keys of one JSON object that holds a whole cluster, and what their lists hold."""

KEYS: Final = tuple(_KINDS)

_BY_LOWER_CASE: Final = {key.lower(): key for key in _KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object, where it was read, and under which key of a cluster file (empty: none)."""

    where: str
    manifest: dict[str, Any]
    key: str = ""
    is_implied: bool = False
    """Nobody wrote it: a cluster would have made it of what somebody wrote."""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return str(self.manifest["apiVersion"]).rpartition("/")[0]

    @property
    def kind(self) -> str:
        """The kind."""
        return str(self.manifest["kind"])

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata; empty when there is none."""
        return cast("dict[str, Any]", self.manifest.get("metadata") or {})

    @property
    def name(self) -> str:
        """The name; empty when it has none."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """The namespace, as written."""
        return str(self.metadata.get("namespace") or "")

    @property
    def title(self) -> str:
        """Kind and name, as messages say them."""
        return f'{self.kind} "{f"{self.namespace}/" if self.namespace else ""}{self.name}"'


def read_entries(paths: Iterable[Path]) -> list[Entry]:
    """Read all objects of files and folders (their YAML and JSON files, by name, recursively).

    The path `-` is the standard input. What stands beside the lists of a cluster (a title, say) is
    left out.

    Raises:
        BadInputError: a file cannot be read, or something in it is no object.
    """
    return [entry for path in paths for file in _files(path) for entry in _read_file(file)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in _SUFFIXES and p.is_file())
    if not files:
        raise BadInputError(f"{path}: no YAML or JSON file in this folder")
    return files


def _read_file(file: Path) -> Iterator[Entry]:
    is_stdin = str(file) == STDIN
    name = "standard input" if is_stdin else str(file)
    try:
        raw = sys.stdin.buffer.read() if is_stdin else file.read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise BadInputError(f"{name}: cannot be read: {reason}") from error
    for number, document in enumerate(_documents(name, text), start=1):
        if document is not None:
            yield from _objects(document, f"{name}, document {number}")


def _documents(name: str, text: str) -> list[Any]:
    """Read what a file holds; JSON is read as such whatever the file is called."""
    is_json = name.lower().endswith(".json")
    if is_json or text.lstrip().startswith(("{", "[")):
        try:
            return list(_json_documents(text))
        except json.JSONDecodeError as error:
            if is_json:
                message = (
                    f"{name}: line {error.lineno}: is not JSON: {error.msg} (column {error.colno})"
                )
                raise BadInputError(message) from error
        except RecursionError as error:
            raise BadInputError(f"{name}: is nested too deeply") from error
    return _yaml_documents(name, text)


def _json_documents(text: str) -> Iterator[Any]:
    """Read JSON documents that follow one another, as `jq` writes them."""
    decoder = json.JSONDecoder()
    position = 0
    while True:
        document, end = decoder.raw_decode(text, _next_token(text, position))
        yield document
        position = _next_token(text, end)
        if position == len(text):
            return


def _next_token(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _yaml_documents(name: str, text: str) -> list[Any]:
    import yaml

    try:
        return list(yaml.load_all(text, Loader=_yaml_loader()))
    except RecursionError as error:
        raise BadInputError(f"{name}: is nested too deeply") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" line {mark.line + 1}:"
        problem = " ".join((getattr(error, "problem", None) or str(error)).split())
        raise BadInputError(f"{name}:{line} is not YAML: {problem}") from error


def _yaml_loader() -> Any:
    """Return a loader that leaves dates as text, as Kubernetes' own readers of YAML do."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    left_alone = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}
    resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag not in left_alone]
        for first, found in base.yaml_implicit_resolvers.items()
    }
    return type("ManifestLoader", (base,), {"yaml_implicit_resolvers": resolvers})


def _objects(document: Any, where: str) -> Iterator[Entry]:
    """Take a document apart: one object, a List, or a cluster by keys."""
    if not isinstance(document, dict):
        raise BadInputError(f"{where}: is no Kubernetes object but a {type(document).__name__}")
    manifest = cast("dict[str, Any]", document)
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
    yield from _cluster(manifest, where)


def _cluster(manifest: dict[str, Any], where: str) -> Iterator[Entry]:
    """Read an object whose keys hold lists; the case of a key does not matter."""
    lists: dict[str, list[Any]] = {}
    unknown: list[str] = []
    for written, value in manifest.items():
        key = _key(str(written))
        if key is None:
            if isinstance(value, list) or not value:
                unknown.append(str(written))
            continue
        if key in lists and key != NODE_CLASSES:
            raise BadInputError(f'{where}: field "{written}": is there twice (as {key})')
        lists[key] = [*lists.get(key, ()), *_items(value, where, str(written))]
    if unknown or not lists:
        raise BadInputError(
            f'{where}: field "{[*unknown, *map(str, manifest)][0]}": unknown; an object needs '
            f"apiVersion and kind, a cluster has the keys {', '.join(KEYS)}"
        )
    for key, (version, item_kind) in _KINDS.items():
        for number, item in enumerate(lists.get(key, ())):
            place = f"{where}, {key}[{number}]"
            yield _entry(item, place, key=key, api_version=version, kind=item_kind)


def _key(written: str) -> str | None:
    """Return the key that is meant; a provider may call its list after its own kind."""
    lower = written.lower()
    if lower.endswith(NODE_CLASSES.lower()):
        return NODE_CLASSES
    return _BY_LOWER_CASE.get(lower)


def _items(value: Any, where: str, field: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInputError(f'{where}: field "{field}": must be a list')
    return cast("list[Any]", value)


def _entry(item: Any, where: str, *, key: str = "", api_version: str = "", kind: str = "") -> Entry:
    """Return one object; members of typed lists may leave out what the list says."""
    if not isinstance(item, dict):
        raise BadInputError(f"{where}: is no Kubernetes object but a {type(item).__name__}")
    manifest = dict(cast("dict[str, Any]", item))
    for field, implied in (("apiVersion", api_version), ("kind", kind)):
        manifest[field] = manifest.get(field) or implied
        if not manifest[field] or not isinstance(manifest[field], str):
            raise BadInputError(f'{where}: field "{field}": missing')
    if key and kind and manifest["kind"] != kind:
        raise BadInputError(f'{where}: field "kind": must be {kind}, not {manifest["kind"]}')
    for field in ("metadata", "spec", "status"):
        if not isinstance(manifest.get(field) or {}, dict):
            raise BadInputError(f'{where}: field "{field}": must be an object')
    return Entry(where=where, manifest=manifest, key=key)
