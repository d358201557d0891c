"""The scripts of a release publish what can be verified, and built again.

An image without its base goes to a registry on loopback: the layer that `images.build` builds, for both
architectures. A key stands for the identity of the workflow, and there is no transparency log.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from images.build import build_layer
from images.debian_base import find_python
from images.layer import write_tar
from tests.release.build_tools import FOLDER
from tests.support.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
HELM = FOLDER.parents[1] / "helm"
PROVIDER, VERSION, EPOCH = "kwok", "1.2.3", 1_700_000_000
NAME = f"karpenter-core-{PROVIDER}"
ARCHITECTURES = ("amd64", "arm64")
VALUES: dict[str, Callable[[Release], tuple[str, ...]]] = {
    "karpenter-crd": lambda _: (),
    "karpenter": lambda release: (
        "--set=provider=kwok,replicas=1",
        f"--set=controller.image.registry={release.repository}",
    ),
}
"""Values that a user has to give, by chart."""


@dataclass(frozen=True)
class Release:
    """The published image, and its keys."""

    repository: str
    folder: Path
    keys: Path
    image: str
    """With its digest."""

    def run(
        self, *command: str | Path, is_signing: bool = False
    ) -> subprocess.CompletedProcess[str]:
        return run(*command, environment=signing(self.keys) if is_signing else {})

    def verify(self, *command: str | Path, key: str = "cosign.pub"):
        known = ("--key", self.keys / key, "--insecure-ignore-tlog")
        return self.run("cosign", command[0], *known, *command[1:])


def run(*command: str | Path, environment: dict[str, str] | None = None):
    (helm,) = HELM.glob("*/helm")
    paths = f"{FOLDER}:{helm.parent}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": paths, "COSIGN_PASSWORD": "", **(environment or {})}
    words = [str(each) for each in command]
    return subprocess.run(words, env=given, cwd=ROOT, capture_output=True, text=True, check=False)


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def signing(keys: Path) -> dict[str, str]:
    """Return variables with which cosign signs by a key and asks nobody."""
    return {
        "COSIGN_KEY": str(keys / "cosign.key"),
        "COSIGN_TLOG_UPLOAD": "false",
        "COSIGN_USE_SIGNING_CONFIG": "false",
        "HELM_PUSH_OPTIONS": "--plain-http",
    }


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, as the builder of an image has")
    (port,) = free_ports(1)
    command = [FOLDER / "crane", "registry", "serve", f"--address=127.0.0.1:{port}"]
    log = tmp_path_factory.mktemp("registry") / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        until = time.monotonic() + 30
        while run("crane", "catalog", f"127.0.0.1:{port}").returncode:
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
        process.terminate()


def push(image: str, folder: Path) -> str:
    """Build the layers into a folder and push them as an index of images; return its digest."""
    for arch in ARCHITECTURES:
        layer, tar = folder / f"linux_{arch}", folder / f"{arch}.tar"
        build_layer(
            PROVIDER,
            layer,
            arch=arch,
            python=str(find_python()),
            standard_library=None,
            epoch=EPOCH,
        )
        write_tar(layer, tar, EPOCH)
        target = f"{image}-{arch}"
        done(run("crane", "append", "--oci-empty-base", "--new_layer", tar, "--new_tag", target))
        options = (
            "--set-platform",
            f"linux/{arch}",
            "--entrypoint",
            "karpenter",
            "--user",
            "65532",
        )
        done(run("crane", "mutate", target, *options, "--tag", target))
    parts = [word for arch in ARCHITECTURES for word in ("--manifest", f"{image}-{arch}")]
    done(run("crane", "index", "append", *parts, "--tag", image))
    return done(run("crane", "digest", image)).strip()


@pytest.fixture(scope="module")
def release(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder, keys = tmp_path_factory.mktemp("layers"), tmp_path_factory.mktemp("keys")
    repository = f"{registry}/team"
    for name in ("cosign", "other"):
        done(run("cosign", "generate-key-pair", "--output-key-prefix", keys / name))
    image = f"{repository}/{NAME}@{push(f'{repository}/{NAME}:{VERSION}', folder)}"
    published = Release(repository=repository, folder=folder, keys=keys, image=image)
    words = (image, PROVIDER, VERSION, folder, folder / "dist")
    done(published.run("images/sign.sh", *words, is_signing=True))
    done(published.run("charts/release.sh", VERSION, repository, folder / "dist", is_signing=True))
    return published


def test_a_second_build_has_the_digest_of_the_pulled_image(release: Release, tmp_path: Path):
    done(release.run("crane", "pull", "--format=oci", release.image, tmp_path / "pulled"))
    again = push(f"{release.repository}/again:{VERSION}", tmp_path / "again")

    index = json.loads((tmp_path / "pulled/index.json").read_text())
    (pulled,) = [each["digest"] for each in index["manifests"]]
    assert pulled == again == release.image.partition("@")[2]
    blobs = [path for path in (tmp_path / "pulled/blobs/sha256").iterdir() if path.is_file()]
    assert len(blobs) >= 1 + 3 * len(ARCHITECTURES)
    for blob in blobs:
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    unsigned = f"{release.repository}/again@{again}"
    assert "no signatures found" in release.verify("verify", unsigned).stderr


def test_a_signature_is_of_the_key_and_of_the_digest(release: Release):
    (claim,) = json.loads(done(release.verify("verify", release.image)))

    digest = release.image.partition("@")[2]
    assert claim["critical"]["image"]["docker-manifest-digest"] == digest
    assert release.verify("verify", release.image, key="other.pub").returncode != 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_image_of_an_architecture_is_attested_by_its_own_packages(release: Release, arch: str):
    index = json.loads(done(release.run("crane", "manifest", release.image)))
    (digest,) = [e["digest"] for e in index["manifests"] if e["platform"]["architecture"] == arch]
    image = f"{release.image.partition('@')[0]}@{digest}"

    attested = done(release.verify("verify-attestation", "--type", "cyclonedx", image))

    (line,) = attested.splitlines()
    statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
    sbom = release.folder / f"dist/{NAME}-{VERSION}-{arch}.cdx.json"
    assert statement["predicate"] == json.loads(sbom.read_text())
    assert [each["digest"]["sha256"] for each in statement["subject"]] == [digest[len("sha256:") :]]
    assert "msgspec" in {each["name"] for each in statement["predicate"]["components"]}


@pytest.mark.parametrize("chart", VALUES)
def test_a_chart_is_signed_and_can_be_installed_from_the_registry(
    release: Release, chart: str, tmp_path: Path
):
    name = f"{release.repository}/charts/{chart}"
    done(release.verify("verify", f"{name}:{VERSION}"))

    options = ("--version", VERSION, "--plain-http")
    done(release.run("helm", "pull", f"oci://{name}", *options, "--destination", tmp_path))
    pulled, packed = (
        folder / f"{chart}-{VERSION}.tgz" for folder in (tmp_path, release.folder / "dist")
    )
    assert pulled.read_bytes() == packed.read_bytes()
    rendered = done(release.run("helm", "template", "karpenter", pulled, *VALUES[chart](release)))
    assert f'app.kubernetes.io/version: "{VERSION}"' in rendered
    images = re.findall(r"image: *\"?([^\"\s]+)", rendered)
    assert images == ([] if chart == "karpenter-crd" else [images[0]])
    for image in images:
        digest = done(release.run("crane", "digest", image)).strip()
        assert release.image.endswith(f"{NAME}@{digest}")
