"""Generates the parts of the charts that follow from the code; with `--write`, writes them.

Generated are the CRDs as templates, the permissions of the core and of each provider, the settings that
the controller has, and their schema. Without `--write`, stale files are named, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import yaml

from charts.generate.crd_templates import crd_templates
from charts.generate.rbac_rules import RELEASE, rules_by_file
from charts.generate.settings_table import chart_settings, node_class_kinds, required_values
from charts.generate.values_file import describe, values_of, with_settings

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "karpenter"
CRD_CHART: Final = ROOT / "charts" / "karpenter-crd"
HEAD: Final = "# Generated from the code by charts/generate; `make charts` writes it anew.\n"


def main() -> int:
    """Return 1 if a file is stale."""
    os.environ["SYSTEM_NAMESPACE"] = RELEASE
    files = generated_files()
    left_over = [
        path for folder in _folders() for path in folder.glob("*.yaml") if path not in files
    ]
    if "--write" in sys.argv[1:]:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for path in left_over:
            path.unlink()
        return 0
    stale = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in (*stale, *left_over):
        print(f"{path.relative_to(ROOT)} is stale: run make charts", file=sys.stderr)
    return 1 if stale or left_over else 0


def _folders() -> tuple[Path, ...]:
    """Return the folders in which every YAML file is generated."""
    rights = CHART / "files" / "rbac"
    return (rights, rights / "observe", CRD_CHART / "templates")


def generated_files() -> dict[Path, str]:
    """Return the text of every generated file."""
    settings = chart_settings()
    values_path, schema_path = CHART / "values.yaml", CHART / "values.schema.json"
    values = with_settings(values_path.read_text(encoding="utf-8"), settings)
    schema = describe(
        json.loads(schema_path.read_text(encoding="utf-8")), values_of(values), settings
    )
    table = {
        "nodeClasses": node_class_kinds(),
        "required": required_values(),
        "settings": [
            {
                "name": each.name,
                "env": each.env,
                "form": str(each.form),
                "providers": list(each.providers),
            }
            for each in settings
        ],
    }
    return {
        values_path: values,
        schema_path: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        CHART / "files" / "settings.yaml": HEAD + _yaml(table),
        **{
            CHART / "files" / "rbac" / f"{name}.yaml": HEAD + _yaml(rules)
            for name, rules in rules_by_file().items()
        },
        **{
            CRD_CHART / "templates" / name: text
            for name, text in crd_templates(ROOT / "crds").items()
        },
    }


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=110)


if __name__ == "__main__":
    sys.exit(main())
