"""Answers discovery: health, version, groups and the kinds in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.sim.status import PageNotFoundError

if TYPE_CHECKING:
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.kinds import ServedKind
    from karpenter_core.sim.registry import Registry

__all__ = ["MINOR", "discover"]

MINOR: Final = 36
"""The Kubernetes minor version whose behaviour is embedded."""

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def discover(registry: Registry, path: str) -> Json | bytes | None:
    """Answer a path above the kinds, or None if it is not one."""
    parts = path.strip("/").split("/")
    match parts:
        case ["healthz" | "livez" | "readyz"]:
            return b"ok"
        case ["version"]:
            return {"major": "1", "minor": str(MINOR), "gitVersion": f"v1.{MINOR}.0+embedded"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(registry)}
        case ["api", version]:
            return _resources(registry, "", version)
        case ["apis", group, version]:
            return _resources(registry, group, version)
        case _:
            return None


def _groups(registry: Registry) -> list[Json]:
    versions: dict[str, dict[str, Json]] = {}
    for served in registry.all_served():
        group, version = served.kind.group, served.kind.version
        if group:
            entry = {"groupVersion": f"{group}/{version}", "version": version}
            versions.setdefault(group, {}).setdefault(version, entry)
    return [
        {"name": group, "versions": entries, "preferredVersion": entries[0]}
        for group, by_version in versions.items()
        for entries in [list(by_version.values())]
    ]


def _resources(registry: Registry, group: str, version: str) -> Json:
    served_kinds = [
        served
        for served in registry.all_served()
        if (served.kind.group, served.kind.version) == (group, version)
    ]
    if not served_kinds:
        raise PageNotFoundError(f"{group}/{version}")
    group_version = f"{group}/{version}" if group else version
    resources = [entry for served in served_kinds for entry in _entries(served)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _entries(served: ServedKind) -> list[Json]:
    kind = served.kind
    entry: Json = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _VERBS,
    }
    if served.short_names:
        entry["shortNames"] = list(served.short_names)
    entries = [entry]
    if served.status:
        part = {"name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]}
        entries.append({**entry, **part})
    return entries
