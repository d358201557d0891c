"""Digests of many results, kept in the repository: any change of a result shows.

    KARPENTER_WRITE_RECORDS=1 .venv/bin/pytest TEST     keep the results as they are now
    KARPENTER_RECORDS_TO=FOLDER .venv/bin/pytest TEST   write the texts of all results down

To see what a change does, write the texts of both versions down and compare the folders.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tests.support.canonical_text import digest

WRITE = "KARPENTER_WRITE_RECORDS"
TEXTS = "KARPENTER_RECORDS_TO"

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def assert_digests(texts: Mapping[str, str], path: Path) -> None:
    """Compare the digests of texts by name with the kept ones; others in the file stay.

    Raises:
        AssertionError: some differ; it names them and shows the first text.
    """
    folder = os.environ.get(TEXTS)
    if folder:
        for name, text in texts.items():
            place = path.__class__(folder) / path.stem / f"{name}.txt"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")
    now = {name: digest(text) for name, text in texts.items()}
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if os.environ.get(WRITE):
        path.write_text(json.dumps({**kept, **now}, indent=0, sort_keys=True) + "\n", "utf-8")
        return
    other = [name for name in now if kept.get(name) != now[name]]
    if other:
        raise AssertionError(
            f"{len(other)} of {len(now)} results in {path.name} differ ({WRITE}=1 keeps them): "
            f"{', '.join(other[:20])}; the first is now\n{texts[other[0]]}"
        )
