"""Builds the layer of an image: all files that it has beside its base.

The Dockerfile and the checks of this repository run the same steps. Run with a Python that has the
packages of `images.locked.TOOLS`, as .venv and the folder that `--tools` makes have.

    python -m images.build --provider aws --output /layer
    python -m images.build --provider all --arch arm64 --python python3.13 --output /layer --tar layer.tar
    python3 -m images.build --tools /tools       makes a virtual environment with the tools
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

from images.byte_code import compile_packages, compile_standard_library, write_script
from images.layer import (
    PACKAGES,
    make_writable_folders,
    remove_unneeded_files,
    remove_unneeded_packages,
    set_modes_and_times,
    write_tar,
)
from images.locked import PROVIDERS, TOOLS, locked_requirements, requirement_names

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PLATFORMS", "build_layer", "main"]

ROOT: Final = Path(__file__).resolve().parents[1]
PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_40", "arm64": "aarch64-manylinux_2_40"}
"""Architecture in the names of images -> wheels that run there; the base has glibc 2.41."""
PYTHON: Final = "3.13"
"""The Python of the base image, gcr.io/distroless/python3-debian13."""


def build_layer(
    image: str, output: Path, *, arch: str, python: str, standard_library: Path | None, epoch: int
) -> None:
    """Build the layer of the image with one provider, or with all, in an empty folder.

    Raises:
        ValueError: the folder is not empty, or requirements.lock lacks a package.
        subprocess.CalledProcessError: a package cannot be fetched, built or compiled.
    """
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise ValueError(f"{output}: the folder for the layer must be empty")
    providers = PROVIDERS if image == "all" else (image,)
    projects = [ROOT, *(ROOT / "providers" / name for name in providers)]
    packages = output / PACKAGES
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        requirements = folder / "requirements.txt"
        names = set[str]().union(*(requirement_names(each / "pyproject.toml") for each in projects))
        requirements.write_text(
            locked_requirements((ROOT / "requirements.lock").read_text(), names)
        )
        into = ("--target", packages, "--python-version", PYTHON, "--link-mode", "copy")
        into = (*into, "--python-platform", PLATFORMS[arch], "--no-deps", "--quiet")
        # Two packages have no wheel: theirs are built here, by the pinned setuptools.
        install = ("pip", "install", *into, "--no-build-isolation")
        _uv(environment, *install, "--require-hashes", "--requirement", requirements)
        wheels = folder / "wheels"
        for project in projects:
            build = ("build", "--wheel", "--no-build-isolation", "--quiet", "--out-dir", wheels)
            _uv(environment, *build, project)
        _uv(environment, *install, "--offline", *sorted(wheels.glob("*.whl")))
    remove_unneeded_packages(packages, python_version=PYTHON, arch=arch, ours="karpenter-")
    remove_unneeded_files(packages)
    compile_packages(output, python=python, environment=environment)
    if standard_library is not None:
        compile_standard_library(standard_library, output, python=python, environment=environment)
    write_script(output)
    _write_sbom(image, output, environment)
    make_writable_folders(output)
    set_modes_and_times(output, epoch)


def make_tools(folder: Path) -> None:
    """Make a virtual environment that has the tools, with their hashes checked."""
    venv.create(folder, with_pip=True, symlinks=True)
    with tempfile.TemporaryDirectory(prefix="tools-") as name:
        requirements = Path(name) / "requirements.txt"
        requirements.write_text(
            locked_requirements((ROOT / "requirements.lock").read_text(), TOOLS)
        )
        pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps")
        options = ("--disable-pip-version-check", "--require-hashes", "--requirement")
        _run(dict(os.environ), *pip, *options, requirements)


def _write_sbom(image: str, output: Path, environment: dict[str, str]) -> None:
    """Write what the layer holds, with licences, in the CycloneDX format."""
    target = output / f"usr/local/share/sbom/karpenter-core-{image}.cdx.json"
    target.parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="sbom-") as name:
        # The generator asks a Python where its packages are: this one tells only those of the layer.
        asked = Path(name) / "python"
        path = output / PACKAGES
        asked.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
        asked.chmod(0o755)
        _run(
            environment,
            Path(sysconfig.get_path("scripts")) / "cyclonedx-py",
            "environment",
            "-S",
            "--output-reproducible",
            f"--pyproject={ROOT / 'pyproject.toml'}",
            f"--output-file={target}",
            asked,
        )


def _uv(environment: dict[str, str], *arguments: str | Path) -> None:
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    # An environment of this name would be used in the place of the Python that runs the tools.
    others = {name: value for name, value in environment.items() if name != "VIRTUAL_ENV"}
    _run(others, uv, *arguments, "--python", sys.executable)


def _run(environment: dict[str, str], *command: str | Path) -> None:
    subprocess.run([str(each) for each in command], check=True, env=environment, cwd=ROOT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what the command line asks for; tell the digest of the tar file, if one is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", type=Path, metavar="FOLDER", help="only make the tools")
    parser.add_argument("--provider", choices=(*PROVIDERS, "all"))
    parser.add_argument("--arch", choices=PLATFORMS, default="amd64")
    parser.add_argument("--output", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--python", default=sys.executable, help=f"a Python {PYTHON}, for byte code"
    )
    parser.add_argument(
        "--standard-library",
        type=Path,
        metavar="FOLDER",
        help=f"/usr/lib/python{PYTHON} of the base image, to compile it too",
    )
    parser.add_argument("--tar", type=Path, metavar="FILE", help="also write the layer here")
    options = parser.parse_args(arguments)
    if options.tools:
        make_tools(options.tools)
        return 0
    if not options.provider or not options.output:
        parser.error("--provider and --output are needed")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    try:
        build_layer(
            options.provider,
            options.output,
            arch=options.arch,
            python=options.python,
            standard_library=options.standard_library,
            epoch=epoch,
        )
    except (ValueError, subprocess.CalledProcessError) as error:
        print(f"images.build: {error}", file=sys.stderr)
        return 1
    if options.tar:
        print(write_tar(options.output, options.tar, epoch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
