"""Serves the kinds that a CustomResourceDefinition adds, by its schema."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, ResourceKind
from karpenter_core.sim.kinds import ServedKind
from karpenter_core.sim.status import FieldIssue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.api.schema import SchemaValidator
    from karpenter_core.sim.fields import Json

__all__ = ["CLEANUP_FINALIZER", "SERVED_DEFINITIONS", "kinds_of"]

_MAX_INT32: Final = 2**31 - 1
CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"


def kinds_of(definition: Json) -> list[ServedKind]:
    """Return the kinds that a definition serves, one entry per served version."""
    versions: list[Json] = definition["spec"]["versions"]
    stored = next((version["name"] for version in versions if version.get("storage")), "")
    return [
        _serve(definition["spec"], version, stored) for version in versions if version.get("served")
    ]


def _serve(spec: Json, version: Json, stored: str) -> ServedKind:
    schema: Json = version.get("schema", {}).get("openAPIV3Schema", {"type": "object"})
    validator = _validator_of(msgspec.json.encode(schema))
    subresources: Json = version.get("subresources") or {}
    scale: Json | None = subresources.get("scale")

    def prepare(obj: Json, _old: Json | None) -> Json:
        return validator.default(obj)

    def issues(obj: Json, old: Json | None) -> Iterator[FieldIssue]:
        for error in validator.validate(obj, old):
            yield FieldIssue(error.path, error.message)
        if scale:
            yield from _scale_issues(obj, scale["specReplicasPath"])

    return ServedKind(
        kind=ResourceKind(
            spec["group"],
            version["name"],
            spec["names"]["plural"],
            spec["names"]["kind"],
            spec["scope"] == "Namespaced",
        ),
        status="status" in subresources,
        generation=True,
        unconditional_update=False,
        custom=True,
        stored_version="" if version["name"] == stored else stored,
        warning=_warning(spec, version) if version.get("deprecated") else "",
        scale=(scale["specReplicasPath"], scale["statusReplicasPath"]) if scale else None,
        short_names=tuple(spec["names"].get("shortNames", ())),
        prepare=prepare,
        issues=issues,
    )


def _scale_issues(obj: Json, path: str) -> Iterator[FieldIssue]:
    """Refuse a number that the subresource `scale` cannot show; a schema need not forbid it."""
    value: Json | None = obj
    for name in path.strip(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, int):
        return
    if value > _MAX_INT32:
        message = f"should be less than or equal to {_MAX_INT32}"
        yield FieldIssue(path.strip("."), f"Invalid value: {value}: {message}")
    elif value < 0:
        yield FieldIssue(
            path.strip("."), f"Invalid value: {value}: should be a non-negative integer"
        )


def _warning(spec: Json, version: Json) -> str:
    named = f"{spec['group']}/{version['name']} {spec['names']['kind']} is deprecated"
    return version.get("deprecationWarning") or named


@lru_cache(maxsize=64)
def _validator_of(schema: bytes) -> SchemaValidator:
    """Compile a schema once for all clusters and all writes of its definition."""
    from karpenter_core.api.schema import SchemaValidator

    return SchemaValidator(msgspec.json.decode(schema))


def _prepare_definition(definition: Json, old: Json | None) -> Json:
    names = definition["spec"].setdefault("names", {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    if old is None:
        stored = [each["name"] for each in definition["spec"]["versions"] if each.get("storage")]
        definition["status"] = {
            "acceptedNames": names,
            "storedVersions": stored,
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
            ],
        }
    return definition


def _definition_issues(definition: Json, _old: Json | None) -> Iterator[FieldIssue]:
    spec = definition["spec"]
    expected_name = f"{spec['names'].get('plural')}.{spec.get('group')}"
    if definition["metadata"]["name"] != expected_name:
        yield FieldIssue(
            "metadata.name",
            f'Invalid value: "{definition["metadata"]["name"]}": must be spec.names.plural+"."+'
            f"spec.group",
        )


SERVED_DEFINITIONS: Final = ServedKind(
    kind=CUSTOM_RESOURCE_DEFINITIONS,
    status=True,
    generation=True,
    short_names=("crd", "crds"),
    prepare=_prepare_definition,
    issues=_definition_issues,
)
