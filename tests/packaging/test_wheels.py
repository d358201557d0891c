"""All distributions build, install without an index, and find each other."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DISTRIBUTIONS = {
    ".": "karpenter_core",
    "providers/alibabacloud": "karpenter_provider_alibabacloud",
    "providers/alibabacloud/simulated": "karpenter_simulated_alibabacloud",
    "providers/aws": "karpenter_provider_aws",
    "providers/aws/simulated": "karpenter_simulated_aws",
    "providers/azure": "karpenter_provider_azure",
    "providers/azure/simulated": "karpenter_simulated_azure",
    "providers/kwok": "karpenter_provider_kwok",
}
NAMES = (
    "karpenter-core",
    "karpenter-provider-alibabacloud",
    "karpenter-provider-aws",
    "karpenter-provider-azure",
    "karpenter-provider-kwok",
    "karpenter-simulated-alibabacloud",
    "karpenter-simulated-aws",
    "karpenter-simulated-azure",
)
PROVIDERS = ("alibabacloud", "aws", "azure", "kwok")

pytestmark = pytest.mark.xdist_group("packaging")


def run(*arguments: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=ROOT,
        env={**os.environ, "PIP_NO_INDEX": "1", "UV_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of each distribution, built without network."""
    folder = tmp_path_factory.mktemp("dist")
    for source in DISTRIBUTIONS:
        build = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable)
        run(BIN / "uv", *build, "--out-dir", folder, source)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment which sees our dependencies, but not our working copy."""
    folder = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    # A plain path in a .pth file: the .pth files over there, the editable ones, do not count.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def assert_works(environment: Path) -> None:
    """Assert that the installed program runs and loads the provider by its entry point."""
    python = environment / "bin" / "python"
    where = run(
        python,
        "-I",
        "-c",
        "import importlib, sys; "
        "print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))",
        *DISTRIBUTIONS.values(),
    )
    assert where.count(str(environment)) == len(DISTRIBUTIONS)
    assert "run" in run(environment / "bin" / "karpenter", "--help")
    asked = [word for name in PROVIDERS for word in ("--provider", name)]
    crds = run(environment / "bin" / "karpenter", "crds", *asked)
    assert "kwoknodeclasses.karpenter.kwok.sh" in crds
    assert "ec2nodeclasses.karpenter.k8s.aws" in crds
    assert "ecsnodeclasses.karpenter.k8s.alibabacloud" in crds
    assert "aksnodeclasses.karpenter.azure.com" in crds


@pytest.mark.developer_tools
def test_wheels_install_without_an_index(wheels: Path, environment: Path):
    """As on a host that has nothing but the wheels."""
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment / "bin" / "python",
        "install",
        "--ignore-installed",
        "--no-index",
        "--find-links",
        wheels,
        "--no-deps",
        *NAMES,
    )

    assert_works(environment)


@pytest.mark.developer_tools
def test_a_clone_installs_with_pip(environment: Path):
    """`pip install . ./providers/alibabacloud ./providers/aws ./providers/azure ./providers/kwok`."""
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        environment / "bin" / "python",
        "install",
        "--no-build-isolation",
        "--no-deps",
        *(f"./{source}" for source in DISTRIBUTIONS),
    )

    assert_works(environment)


@pytest.mark.parametrize("package", DISTRIBUTIONS.values())
def test_wheel_holds_the_package_and_nothing_else(wheels: Path, package: str):
    """Types are shipped; tests are not."""
    (wheel,) = wheels.glob(f"{package}-*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert f"{package}/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package}
    (folder,) = (name for name, held in DISTRIBUTIONS.items() if held == package)
    source = ROOT / folder / package
    modules = {str(path.relative_to(source.parent)) for path in source.rglob("*.py")}
    assert modules <= set(names)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_needs_no_simulated_cloud(wheels: Path, provider: str):
    """A production image carries no fake cloud, by files or by what is installed with them."""
    (wheel,) = wheels.glob(f"karpenter_provider_{provider}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        lines = archive.read(metadata).decode().splitlines()

    needed = [
        line for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    assert [
        line for line in needed if "moto" in line or "flask" in line or "simulated" in line
    ] == []
    assert [name for name in names if "simulated" in name] == []


def test_the_wheel_holds_the_scaffold_of_a_new_provider(wheels: Path):
    """Every file of the scaffold that is committed, whatever its name."""
    (wheel,) = wheels.glob("karpenter_core-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    committed = run("git", "ls-files", "karpenter_core/cli/scaffold").split()
    assert len(committed) > 10
    assert set(committed) <= names


def test_the_wheel_has_the_page_of_the_dashboard(wheels: Path):
    (wheel,) = wheels.glob("karpenter_core-*.whl")
    folder = Path("karpenter_core/operator/dashboard/page")
    files = {str(folder / each.name) for each in (ROOT / folder).iterdir()}

    assert files <= set(zipfile.ZipFile(wheel).namelist())
    assert len(files) > 5
