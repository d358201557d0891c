"""A container engine builds the Dockerfile to the files of the layer, if one is there and asked for.

`IMAGES_ENGINE=buildah pytest -m images tests/images/test_engine.py` needs buildah and root. The bases are
laid out here, as nothing is pulled: that of the image, and a builder that has a shell and pip beside it.
"""

from __future__ import annotations

import ensurepip
import filecmp
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.images.conftest import EPOCH

if TYPE_CHECKING:
    from tests.images.conftest import BuiltImage

ROOT = Path(__file__).parents[2]
ENGINE = os.environ.get("IMAGES_ENGINE", "")

pytestmark = [
    pytest.mark.images,
    pytest.mark.timeout(900),
    pytest.mark.skipif(ENGINE != "buildah", reason="IMAGES_ENGINE=buildah is not set"),
]


class Buildah:
    """Buildah with a store of its own; it starts processes in a chroot."""

    def __init__(self, folder: Path) -> None:
        self._store = ("--root", folder / "store", "--runroot", folder / "run")

    def __call__(self, *arguments: str | Path) -> str:
        command = ["buildah", "--storage-driver", "vfs", *self._store, *arguments]
        done = subprocess.run(
            [str(word) for word in command], check=False, cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def build(self, tag: str, file: Path, context: Path, *options: str | Path) -> None:
        self("bud", "--isolation", "chroot", "--file", file, "--tag", tag, *options, context)


def lay_out_builder(base: Path, folder: Path) -> Path:
    """Add a shell, pip, and the settings by which this machine installs packages."""
    root = folder / "builder"
    shutil.copytree(base, root, symlinks=True)
    shutil.copy(Path("/bin/dash").resolve(), root / "usr/bin/sh")
    wheels = root / "usr/share/python-wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for wheel in (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"):
        shutil.copy(wheel, wheels)
    for name in ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt"):
        if Path("/", name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).unlink(missing_ok=True)
            shutil.copy(Path("/", name), root / name)
    (root / "tmp").mkdir(exist_ok=True)
    settings = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name in {"SSL_CERT_FILE", "http_proxy", "https_proxy"}
    }
    lines = ["FROM scratch", "COPY . /", "ENV PATH=/usr/local/bin:/usr/bin:/bin"]
    lines += [f"ENV {name}={json.dumps(value)}" for name, value in sorted(settings.items())]
    (folder / "Dockerfile.builder").write_text("\n".join([*lines, ""]))
    (folder / "Dockerfile.base").write_text("FROM scratch\nCOPY . /\n")
    return root


@pytest.fixture
def engine_image(built: BuiltImage, tmp_path: Path) -> tuple[Buildah, str]:
    """The image of the provider, built from the Dockerfile."""
    buildah = Buildah(tmp_path)
    builder = lay_out_builder(built.base, tmp_path)
    buildah.build("base", tmp_path / "Dockerfile.base", built.base)
    buildah.build("builder", tmp_path / "Dockerfile.builder", builder)
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    volumes = ("--volume", f"{wheels}:{wheels}:ro") if Path(wheels).is_absolute() else ()
    arguments = {
        "BASE": "localhost/base",
        "BUILDER": "localhost/builder",
        "PROVIDER": built.name,
        "TARGETARCH": "amd64",
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "VERSION": "0.0.1",
    }
    buildah.build(
        built.name,
        ROOT / "images/Dockerfile",
        ROOT,
        "--ignorefile",
        ROOT / "images/Dockerfile.dockerignore",
        *volumes,
        *(word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")),
    )
    return buildah, f"localhost/{built.name}"


def test_an_engine_builds_the_files_of_the_layer_from_the_dockerfile(
    built: BuiltImage, engine_image: tuple[Buildah, str]
) -> None:
    buildah, name = engine_image
    config = json.loads(buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
    assert (config["User"], config["Entrypoint"], config["Cmd"]) == (
        "65532:65532", ["karpenter"], ["run"],
    )  # fmt: skip
    assert config["Labels"]["org.opencontainers.image.version"] == "0.0.1"
    assert "CACHE_FOLDER=/var/cache/karpenter" in config["Env"]

    container = buildah("from", name).strip()
    root = Path(buildah("mount", container).strip())
    files = [path for path in built.layer.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 1000
    other = {
        str(path.relative_to(built.layer))
        for path in files
        if not filecmp.cmp(path, root / path.relative_to(built.layer), shallow=False)
    }
    # A Python writes a constant of byte code once or twice, by what it has imported itself.
    byte_code = {path for path in other if path.endswith(".pyc")}
    assert len(byte_code) < len(files) / 100
    other -= byte_code
    assert other == set()
    cache = (root / "var/cache/karpenter").stat()
    assert (cache.st_uid, cache.st_gid, oct(cache.st_mode)) == (65532, 65532, "0o40700")
    shown = buildah("run", "--isolation", "chroot", container, "--", "karpenter", "rbac")
    assert "kind: ClusterRole" in shown
