"""The Job of the page about simulations, as users copy it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["INPUTS", "documented_job"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "simulate.md"
INPUTS = tuple(ROOT / "examples" / "simulate" / name for name in ("nodepools.yaml", "day.yaml"))
"""The files of the ConfigMap of the Job."""


def documented_job() -> dict[str, Any]:
    """Return the manifest of the Indexed Job."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (job,) = (read for block in blocks if (read := yaml.safe_load(block)).get("kind") == "Job")
    return job
