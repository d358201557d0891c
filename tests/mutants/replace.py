"""Loads one module of the product with another text; a pytest plugin.

KARPENTER_MUTANT="PATH=FILE" python -m pytest -p tests.mutants.replace ...
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.mutants.areas import ROOT
from tests.mutants.probes import Hook

_path, _, _file = os.environ["KARPENTER_MUTANT"].partition("=")
_replaced = str((ROOT / _path).resolve())


def _compiled(source: str, path: str):
    text = Path(_file).read_text("utf-8") if str(Path(path).resolve()) == _replaced else source
    return compile(text, path, "exec", dont_inherit=True)


Hook([(ROOT / _path).parent], _compiled).install()
