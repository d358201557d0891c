"""Extracts comparable facts from a CustomResourceDefinition.

Names, types, bounds, patterns and defaults of fields, and what `kubectl` shows; no descriptions and
no rules, which are each project's own words.
"""

from __future__ import annotations

from typing import Final

from karpenter_core.api.json_objects import JsonObject

__all__ = ["facts_of"]

_BELOW: Final = frozenset({"properties", "items", "additionalProperties"})
_WORDS: Final = frozenset({"description", "x-kubernetes-validations"})


def facts_of(crd: JsonObject) -> JsonObject:
    """Return the facts of a definition of one version; `fields` are by path, `.spec.tags[*]`."""
    (version,) = crd["spec"]["versions"]
    fields: dict[str, JsonObject] = {}
    _collect(version["schema"]["openAPIV3Schema"], "", fields)
    return {
        "names": crd["spec"]["names"],
        "scope": crd["spec"]["scope"],
        "version": version["name"],
        "columns": version.get("additionalPrinterColumns", []),
        "subresources": version["subresources"],
        "fields": dict(sorted(fields.items())),
    }


def _collect(schema: JsonObject, path: str, fields: dict[str, JsonObject]) -> None:
    own = {key: schema[key] for key in sorted(schema) if key not in _BELOW | _WORDS}
    if "required" in own:
        own["required"] = sorted(own["required"])
    fields[path or "."] = own
    for name, child in schema.get("properties", {}).items():
        _collect(child, f"{path}.{name}", fields)
    if "items" in schema:
        _collect(schema["items"], f"{path}[]", fields)
    if "additionalProperties" in schema:
        _collect(schema["additionalProperties"], f"{path}[*]", fields)
