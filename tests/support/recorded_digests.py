"""Digests of many results, kept in the repository: any change of a result shows.

    KARPENTER_WRITE_RECORDS=1 .venv/bin/pytest TEST     keep the results as they are now
    KARPENTER_RECORDS_TO=FOLDER .venv/bin/pytest TEST   write the texts of all results down

To see what a change does, write the texts of both versions down and compare the folders.
"""

from __future__ import annotations

import json
import os
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from tests.support.canonical_text import digest

WRITE = "KARPENTER_WRITE_RECORDS"
TEXTS = "KARPENTER_RECORDS_TO"
BLOCK_DIGITS: Final = 4

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


BLOCK_LINES: Final = 80
"""Least number of lines that one digest of a long text stands for."""


def assert_record(name: str, parts: Iterable[str], path: Path) -> None:
    """Compare a long text with the kept digests of its blocks; other texts in the file stay.

    Raises:
        AssertionError: it differs; shows the first part of it that does.
    """
    blocks = _blocks(parts)
    _write_down({name: "\n".join(blocks)}, path)
    now = [digest(block)[:BLOCK_DIGITS] for block in blocks]
    kept = _kept(path)
    if os.environ.get(WRITE):
        _keep({**kept, name: " ".join(now)}, path)
        return
    before = kept.get(name, "").split()
    if before == now:
        return
    pairs = zip_longest(before, now)
    first = next(number for number, (old, new) in enumerate(pairs) if old != new)
    text = blocks[first] if first < len(blocks) else f"(it ends after {len(blocks)} blocks)"
    raise AssertionError(
        f"{name} is not as in {path.name}: block {first + 1} of {len(before)} is the first that differs. "
        f"{WRITE}=1 keeps the new text; {TEXTS}=FOLDER, in the old version and in this one, writes "
        f"both down to be compared. The block is now\n{text}"
    )


def _blocks(parts: Iterable[str]) -> list[str]:
    """Join parts to blocks of some length."""
    blocks: list[str] = []
    block: list[str] = []
    lines = 0
    for part in parts:
        block.append(part)
        lines += part.count("\n") + 1
        if lines >= BLOCK_LINES:
            blocks.append("\n".join(block))
            block, lines = [], 0
    return [*blocks, "\n".join(block)] if block else blocks


def _write_down(texts: Mapping[str, str], path: Path) -> None:
    folder = os.environ.get(TEXTS)
    if folder:
        for name, text in texts.items():
            place = path.__class__(folder) / path.stem / f"{name}.txt"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")


def _kept(path: Path) -> dict[str, str]:
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _keep(digests: Mapping[str, str], path: Path) -> None:
    path.write_text(json.dumps(digests, indent=0, sort_keys=True) + "\n", "utf-8")


def assert_digests(texts: Mapping[str, str], path: Path) -> None:
    """Compare the digests of texts by name with the kept ones; others in the file stay.

    Raises:
        AssertionError: some differ; it names them and shows the first text.
    """
    _write_down(texts, path)
    now = {name: digest(text) for name, text in texts.items()}
    kept = _kept(path)
    if os.environ.get(WRITE):
        _keep({**kept, **now}, path)
        return
    other = [name for name in now if kept.get(name) != now[name]]
    if other:
        raise AssertionError(
            f"{len(other)} of {len(now)} results in {path.name} differ ({WRITE}=1 keeps them): "
            f"{', '.join(other[:20])}; the first is now\n{texts[other[0]]}"
        )
