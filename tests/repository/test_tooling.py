"""The files that builds depend on agree with each other."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTROL_PLANE = ROOT / "tests" / "e2e" / "controlplane"
TARGETS = ("demo", "test", "lint", "types", "e2e", "bench", "charts", "crds", "docs", "lock")


def pyproject(path: Path = ROOT) -> dict[str, dict[str, object]]:
    return tomllib.loads((path / "pyproject.toml").read_text())


def locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("target", TARGETS)
def test_make_target_exists_and_bootstraps_by_itself(target: str):
    """From a bare clone any of them may be the first."""
    makefile = (ROOT / "Makefile").read_text()

    assert re.search(rf"^{target}: \$\(READY\) ## \S", makefile, re.MULTILINE)


@pytest.mark.parametrize("script", [".ci/run", ".ci/bootstrap"])
def test_script_is_executable_and_well_formed(script: str):
    """A syntax error in a late step would show after half an hour only."""
    path = ROOT / script

    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", path], check=True)


def test_every_declared_dependency_is_locked():
    """`requirements.lock` is all that is ever installed."""
    project = pyproject()["project"]
    groups = pyproject()["dependency-groups"]
    declared = [*project["dependencies"], *groups["dev"]]  # type: ignore[misc]  # lists of str
    names = {re.split(r"[\[<>=~!; ]", each)[0].lower() for each in declared}

    assert names - set(locked()) == set()


def test_every_locked_file_has_a_hash():
    """A changed file is refused from every server."""
    blocks = re.split(
        r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE
    )
    without = [block.partition(" ")[0] for block in blocks[1:] if "--hash=sha256:" not in block]

    assert without == []


def test_every_dependency_has_an_upper_bound():
    """A new major version is a decision, not an accident."""
    project = pyproject()["project"]
    open_ended = [each for each in project["dependencies"] if "<" not in each]  # type: ignore[attr-defined]  # a list of str

    assert open_ended == []


def test_distributions_move_in_lockstep():
    """A provider requires the core of its own series."""
    core = str(pyproject()["project"]["version"])
    series = core.rpartition(".")[0]
    for path in sorted((ROOT / "providers").glob("**/pyproject.toml")):
        project = pyproject(path.parent)["project"]
        assert project["version"] == core
        needed = str(project["dependencies"])
        assert re.search(rf"karpenter-core(\[testing\])?~={re.escape(series)}\.0", needed)


def test_go_modules_pin_the_versions_that_are_built():
    """The table in build.py and the go.mod files say the same."""
    build = (CONTROL_PLANE / "build.py").read_text()
    pins = {
        (name, minor): f"{module} {version}"
        for name, module, major in (
            ("kubernetes", "k8s.io/kubernetes", "1"),
            ("kwok", "sigs.k8s.io/kwok", "0"),
        )
        for minor, version in re.findall(rf'"({major}\.\d+)": "(v{major}\.[\d.]+)"', build)
    }

    assert {name for name, _ in pins} == {"kubernetes", "kwok"}
    assert {path.parent.name for path in CONTROL_PLANE.glob("*/go.mod")} == {
        f"{name}-{minor}" for name, minor in pins
    }
    for (name, minor), pin in pins.items():
        folder = CONTROL_PLANE / f"{name}-{minor}"
        assert re.search(rf"{re.escape(pin)}\b", (folder / "go.mod").read_text())
        assert f"{pin} h1:" in (folder / "go.sum").read_text()
