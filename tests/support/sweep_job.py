"""The Job of the page about simulations, as users copy it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

__all__ = ["INPUTS", "container_arguments", "documented_collection", "documented_job"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "simulate.md"
INPUTS = tuple(ROOT / "examples" / "simulate" / name for name in ("nodepools.yaml", "day.yaml"))
"""The files of the ConfigMap of the Job."""


def documented_job() -> dict[str, Any]:
    """Return the manifest of the Indexed Job."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (job,) = (read for block in blocks if (read := yaml.safe_load(block)).get("kind") == "Job")
    return job


def container_arguments(job: dict[str, Any], index: int, folder: Path) -> list[str]:
    """Return the arguments of an index's container, as a kubelet makes them; `folder` is its input."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "input")
    return [
        each.replace("$(JOB_COMPLETION_INDEX)", str(index)).replace(mount["mountPath"], str(folder))
        for each in container["args"]
    ]


def documented_collection() -> list[str]:
    """Return the commands that put the parts of the Job together: logs, and the sweep."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "kubectl logs" in each)
    return block.replace("\\\n", "").strip().splitlines()
