"""Writes the dashboards; `--check` only says which are stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from charts.dashboards.capacity import CAPACITY
from charts.dashboards.disruption import DISRUPTION
from charts.dashboards.parts import dashboard_document
from charts.dashboards.performance import PERFORMANCE
from charts.dashboards.providers import PROVIDERS

FOLDER: Final = Path(__file__).parents[1] / "karpenter" / "dashboards"
PAGES: Final = (CAPACITY, PERFORMANCE, DISRUPTION, PROVIDERS)


def rendered() -> dict[Path, str]:
    """Return the text of every dashboard by its file."""
    return {
        FOLDER / f"{page.name}.json": json.dumps(dashboard_document(page), indent=1) + "\n"
        for page in PAGES
    }


def main() -> int:
    """Write or check all files; return the number of stale ones."""
    is_check = "--check" in sys.argv[1:]
    stale = 0
    for path, text in rendered().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if is_check:
            stale += 1
            sys.stderr.write(f"{path.name} is stale: run python -m charts.dashboards\n")
        else:
            path.write_text(text, encoding="utf-8")
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
