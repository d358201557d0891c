"""One simulation: objects, workload, settings of cloud and controller."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.nodepool import NodePool
from karpenter_core.cli.manifests import ManifestEntry, read_files
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.workload import Workload

__all__ = ["SimulationScenario", "read_node_pools"]

_GROUP: Final = "karpenter.kwok.sh"
_KIND: Final = "KWOKNodeClass"
_VERSION: Final = "v1alpha1"
_NODE_POOL: Final = ("karpenter.sh", "NodePool")
_NODES: Final = frozenset({"Node", "NodeClaim"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationScenario:
    """A simulation; another process can run it."""

    name: str
    manifests: tuple[ManifestEntry, ...]
    """NodePools and NodeClasses."""
    workload: Workload
    start: datetime
    duration: float
    step: float
    """Seconds between two points of the series."""
    seed: int = 0
    settings: tuple[str, ...] = ()
    """Flags of `karpenter run`."""
    instance_types_file: Path | None = None
    node_startup: float = 40.0
    """Seconds from the launch of an instance to its Ready node."""
    reclaims_per_hour: float = 0.0
    stock_outs_per_hour: float = 0.0
    stock_out_seconds: float = 1800.0


def read_node_pools(
    files: Sequence[Path], *, has_catalogue: bool
) -> tuple[tuple[ManifestEntry, ...], tuple[str, ...]]:
    """Read NodePools and NodeClasses, and say what of them is not used.

    Simulated time has the kwok provider only. With a catalogue file NodePools of other providers
    refer to a NodeClass of kwok instead, and their own NodeClasses are left out.

    Raises:
        BadInputError: a file cannot be used; names file, field and value.
    """
    read = read_files(files)
    names = ", ".join(str(file) for file in files)
    if read.snapshot is not None:
        raise BadInputError(f"{read.snapshot.where}: is a snapshot; a simulation reads NodePools")
    kept: list[ManifestEntry] = []
    left_out: dict[str, int] = {}
    classes: set[str] = set()
    pools = 0
    for entry in read.entries:
        if entry.kind in _NODES and entry.group in {"", _NODE_POOL[0]}:
            raise BadInputError(f"{entry.where}: {entry.title}: a simulation begins without nodes")
        if not entry.name:
            raise BadInputError(f'{entry.where}: {entry.kind}: field "metadata.name": missing')
        if entry.kind.endswith("NodeClass") and entry.group != _GROUP:
            left_out[entry.kind] = left_out.get(entry.kind, 0) + 1
            continue
        if (entry.group, entry.kind) == _NODE_POOL:
            _refuse_other_version(entry)
            pools += 1
            adapted, node_class = _with_kwok(entry, has_catalogue=has_catalogue)
            classes.add(node_class)
            kept.append(adapted)
        else:
            kept.append(entry)
    if not pools:
        raise BadInputError(f"{names}: no NodePool")
    _refuse_duplicates(kept)
    given = {entry.name for entry in kept if entry.kind == _KIND}
    made = [_node_class(name) for name in sorted(classes - given)]
    notes = [
        f"left out: {count} of kind {kind}; simulated time has the kwok provider only"
        for kind, count in sorted(left_out.items())
    ]
    return (*made, *kept), (*read.notes, *notes)


def _refuse_other_version(entry: ManifestEntry) -> None:
    version = entry.manifest.get("apiVersion")
    if version not in NodePool.resource.api_versions:
        served = ", ".join(NodePool.resource.api_versions)
        raise BadInputError(
            f"{entry.where}: {entry.title}: apiVersion: must be {served}, not {version}; "
            "`karpenter convert` converts older manifests"
        )


def _with_kwok(entry: ManifestEntry, *, has_catalogue: bool) -> tuple[ManifestEntry, str]:
    """Return a NodePool with a NodeClass of kwok, and the name of the NodeClass."""
    spec = _section(entry, entry.manifest, "spec")
    template = _section(entry, spec, "spec.template")
    inner = _section(entry, template, "spec.template.spec")
    ref = _section(entry, inner, "spec.template.spec.nodeClassRef")
    name = str(ref.get("name") or "default")
    written = f"{ref.get('kind')}.{ref.get('group')}"
    if ref and written != f"{_KIND}.{_GROUP}" and not has_catalogue:
        raise BadInputError(
            f'{entry.where}: {entry.title}: field "spec.template.spec.nodeClassRef": {written} is of another '
            f"provider; simulated time has {_KIND}.{_GROUP} only, and --instance-types-file gives other "
            "NodePools a catalogue"
        )
    own = {"group": _GROUP, "kind": _KIND, "name": name}
    requirements: object = inner.get("requirements") or []
    rebuilt: JsonObject = {**inner, "nodeClassRef": own, "requirements": requirements}
    manifest: JsonObject = {
        **entry.manifest,
        "spec": {**spec, "template": {**template, "spec": rebuilt}},
    }
    return replace(entry, manifest=manifest), name


def _section(entry: ManifestEntry, holder: JsonObject, path: str) -> JsonObject:
    value: object = holder.get(path.rpartition(".")[2])
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInputError(f'{entry.where}: {entry.title}: field "{path}": must be an object')
    return cast("JsonObject", value)


def _node_class(name: str) -> ManifestEntry:
    manifest: JsonObject = {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": _KIND,
        "metadata": {"name": name},
        "spec": {},
    }
    return ManifestEntry(where="(implied)", manifest=manifest, is_implied=True)


def _refuse_duplicates(entries: Sequence[ManifestEntry]) -> None:
    seen: dict[tuple[str, str, str, str], str] = {}
    for entry in entries:
        other = seen.setdefault((entry.group, entry.kind, entry.namespace, entry.name), entry.where)
        if other != entry.where:
            raise BadInputError(f"{entry.where}: {entry.title}: is already in {other}")
