"""One name stands for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

CORE = Path(__file__).resolve().parents[2] / "karpenter_core"


def test_public_classes_of_the_core_have_different_names():
    places = defaultdict(list)
    for file in sorted(CORE.rglob("*.py")):
        if "scaffold" in file.parts:
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(CORE)))
    assert not {name: files for name, files in places.items() if len(files) > 1}
