"""Plug-ins that are found on a path without being installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples" / "provider_rest"
MINIMAL = ROOT / "examples" / "provider_minimal"


def distribution(
    folder: Path,
    name: str,
    entry_points: dict[str, str],
    other_entry_points: dict[str, dict[str, str]] | None = None,
    **modules: str,
) -> Path:
    """Write an importable folder with a distribution's metadata and its modules."""
    folder.mkdir(parents=True, exist_ok=True)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = {"karpenter": entry_points, **(other_entry_points or {})}
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
            for group, points in groups.items()
        )
    )
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(source))
    return folder


def minimal_provider(folder: Path) -> list[Path]:
    """Make the example provider loadable."""
    points = {"minimal": "karpenter_provider_minimal:MinimalProvider"}
    return [distribution(folder, "karpenter-provider-minimal", points), MINIMAL]


def sample_provider(folder: Path) -> list[Path]:
    """Make the sample provider of a REST cloud loadable, with its simulated cloud."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text())["project"]
    groups = dict(project["entry-points"])
    return [distribution(folder, project["name"], groups.pop("karpenter"), groups), SAMPLE]


def render_crds(provider: str, target: Path, path: list[Path]) -> list[Path]:
    """Render a provider's CRDs with `karpenter crds`."""
    program = "from karpenter_core.cli.main import main; main()"
    subprocess.run(
        [sys.executable, "-c", program, "crds", "--provider", provider, "--output-dir", target],
        check=True,
        env={**os.environ, "PYTHONPATH": ":".join(str(each) for each in path)},
    )
    return sorted(target.glob("*.yaml"))
