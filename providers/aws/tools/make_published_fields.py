"""Write `tests/published_fields.json`: what Karpenter's own CRD says of EC2NodeClass, as facts.

Names, types, bounds, patterns and defaults of fields, and what `kubectl` shows; no descriptions, no
rules. A test compares our CRD with it. The published file is given:

    go mod download -json github.com/aws/karpenter-provider-aws@latest   # names `Dir` or `Zip`
    python providers/aws/tools/make_published_fields.py v1.15.1 $Dir/pkg/apis/crds/*nodeclasses.yaml
"""
# ruff: noqa: INP001 - a script, not a module

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

TARGET: Final = Path(__file__).parents[1] / "tests" / "published_fields.json"

_BELOW: Final = frozenset({"properties", "items", "additionalProperties"})
_WORDS: Final = frozenset({"description", "x-kubernetes-validations"})


def facts_of(crd: dict[str, Any]) -> dict[str, Any]:
    """Return what a CustomResourceDefinition of one version says, without words and rules."""
    (version,) = crd["spec"]["versions"]
    fields: dict[str, dict[str, Any]] = {}
    _collect(version["schema"]["openAPIV3Schema"], "", fields)
    return {
        "names": crd["spec"]["names"],
        "scope": crd["spec"]["scope"],
        "version": version["name"],
        "columns": version["additionalPrinterColumns"],
        "subresources": version["subresources"],
        "fields": dict(sorted(fields.items())),
    }


def _collect(schema: dict[str, Any], path: str, fields: dict[str, dict[str, Any]]) -> None:
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


if __name__ == "__main__":
    release, source = sys.argv[1:]
    facts = facts_of(yaml.safe_load(Path(source).read_text(encoding="utf-8")))
    document = {"source": f"github.com/aws/karpenter-provider-aws {release}", **facts}
    TARGET.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
