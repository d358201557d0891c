"""Write `tests/published_fields.json`: facts of Karpenter's EC2NodeClass CRD.

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
from typing import Final

import yaml

from karpenter_core.testing.crd_facts import facts_of

TARGET: Final = Path(__file__).parents[1] / "tests" / "published_fields.json"


if __name__ == "__main__":
    release, source = sys.argv[1:]
    facts = facts_of(yaml.safe_load(Path(source).read_text(encoding="utf-8")))
    document = {"source": f"github.com/aws/karpenter-provider-aws {release}", **facts}
    TARGET.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
