"""Layers of images, built once for all tests of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from images.build import build_layer
from images.byte_code import STANDARD_LIBRARY
from images.debian_base import find_base, find_python
from images.layer import write_tar

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = 1_700_000_000
FIGURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of images."""
    parser.addoption(
        "--images", default="kwok", help="images to build and run, by comma: kwok,aws,all"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test for each of the chosen images."""
    if "image" in metafunc.fixturenames:
        images = metafunc.config.getoption("--images").split(",")
        metafunc.parametrize("image", images, scope="session")


@dataclass(frozen=True)
class BuiltImage:
    """The layer of an image beside its base."""

    name: str
    base: Path
    layer: Path
    digest: str
    """SHA-256 of the layer as a tar file."""


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., BuiltImage]:
    """A function that builds an image in a folder of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root, as the builder of an image has")

    base = find_base("amd64")

    def built(
        image: str, arch: str = "amd64", standard_library: Path | None = base / STANDARD_LIBRARY
    ) -> BuiltImage:
        folder = tmp_path_factory.mktemp(f"image-{image}-{arch}")
        build_layer(
            image,
            folder / "layer",
            arch=arch,
            python=str(find_python()),
            standard_library=standard_library,
            epoch=EPOCH,
        )
        digest = write_tar(folder / "layer", folder / "layer.tar", EPOCH)
        (folder / "layer.tar").unlink()
        return BuiltImage(image, base, folder / "layer", digest)

    return built


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that notes a line for the summary of the run."""
    return request.config.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the figures of the images; what a test prints itself is captured."""
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(f"image {line}")


@pytest.fixture(scope="session")
def built(image: str, build: Callable[..., BuiltImage]) -> BuiltImage:
    """The image of the test."""
    return build(image)
