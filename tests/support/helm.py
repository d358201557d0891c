"""Runs the real Helm on the project's charts."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from karpenter_core.testing.cluster import Object
from tests.support.controlplane import BinariesMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CHART",
    "CRD_CHART",
    "ROOT",
    "HelmError",
    "container_of",
    "find_helm",
    "helm",
    "only",
    "pod_of",
    "render",
]

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "karpenter"
CRD_CHART: Final = ROOT / "charts" / "karpenter-crd"
LONGEST_SECONDS: Final = 180


class HelmError(Exception):
    """Helm refused; the text is what it printed."""


@cache
def find_helm() -> Path:
    """Return the newest Helm that was built.

    Raises:
        BinariesMissingError: there is none.
    """
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache_folder / "karpenter-core" / "helm"
    found = sorted(folder.glob("v*/helm"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise BinariesMissingError(
            f"there is no helm in {folder}; `tests/charts/build_helm.py` builds it"
        )
    return found[-1]


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm and return what it prints; it keeps nothing in the user's home.

    Raises:
        HelmError: it did not succeed.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        done = subprocess.run(
            [find_helm(), *arguments],
            env={
                "HOME": home,
                "PATH": os.environ["PATH"],
                **({} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def render(
    values: Mapping[str, object] | None = None,
    *,
    chart: Path = CHART,
    namespace: str = "karpenter",
    name: str = "karpenter",
    options: Sequence[str] = (),
) -> list[Object]:
    """Return the objects that a release with these values has.

    Raises:
        HelmError: the chart refuses the values.
    """
    return json.loads(_render(json.dumps(values or {}), chart, namespace, name, tuple(options)))


@cache
def _render(values: str, chart: Path, namespace: str, name: str, options: Sequence[str]) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(values)
        file.flush()
        text = helm(
            "template", name, chart, f"--namespace={namespace}", f"--values={file.name}", *options
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return json.dumps([each for each in yaml.load_all(text, loader) if each])


def only(objects: Sequence[Object], kind: str, name: str = "", namespace: str = "") -> Object:
    """Return the one object of a kind, and of this name and namespace if there are several."""
    (found,) = (
        each
        for each in objects
        if each["kind"] == kind
        and name in {"", each["metadata"]["name"]}
        and namespace in {"", each["metadata"].get("namespace", "")}
    )
    return found


def pod_of(objects: Sequence[Object]) -> Object:
    """Return the template of the Deployment's pods."""
    return only(objects, "Deployment")["spec"]["template"]


def container_of(objects: Sequence[Object]) -> Object:
    """Return the only container of the Deployment's pods."""
    (result,) = pod_of(objects)["spec"]["containers"]
    return result
