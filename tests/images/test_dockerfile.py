"""The Dockerfile agrees with the program, the manifests and the steps that build a layer."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from images.build import PYTHON
from images.byte_code import SCRIPT, STANDARD_LIBRARY
from images.layer import CACHE, USER
from images.locked import PROVIDERS
from images.run import ENVIRONMENT
from tests.support.image_runs import image_environment

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "images/Dockerfile").read_text()
STAGES = [stage.replace("\\\n", " ") for stage in re.split(r"(?m)^(?=FROM )", TEXT)]


def words(name, stage=STAGES[-1]):
    return re.findall(rf"(?m)^{name} (.*)$", stage)


def test_the_container_starts_the_program_as_the_user_of_the_layer():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (entry,) = words("ENTRYPOINT")
    (arguments,) = words("CMD")

    assert json.loads(entry) == [SCRIPT.name]
    assert SCRIPT.name in scripts
    assert json.loads(arguments) == ["run"]
    assert words("USER") == [f"{USER}:{USER}"]
    assert str(SCRIPT.parent) in {each.strip("/") for each in ENVIRONMENT["PATH"].split(":")}
    assert image_environment()["CACHE_FOLDER"] == f"/{CACHE}"


def test_base_and_builder_have_the_python_that_layers_are_compiled_for():
    bases = dict(re.findall(r"(?m)^ARG (BASE|BUILDER)=(\S+)$", STAGES[0]))

    assert bases["BUILDER"].startswith(f"docker.io/library/python:{PYTHON}-")
    assert bases["BASE"] == "gcr.io/distroless/python3-debian13:nonroot"
    assert f"/{STANDARD_LIBRARY}" in TEXT
    assert STANDARD_LIBRARY.name == f"python{PYTHON}"


def test_the_last_stage_runs_nothing_and_takes_all_from_the_layer():
    assert words("RUN") == []
    assert words("COPY")[0].split() == ["--from=build", "/layer/", "/"]


def test_an_image_has_labels_with_its_sources():
    (labels,) = words("LABEL")
    names = set(re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", labels))

    assert names == {
        "title", "description", "licenses", "version", "revision", "created", "source", "base.name",
        "base.digest",
    }  # fmt: skip
    used = set(re.findall(r"\$\{([A-Z_]+)\}", labels))
    assert used <= set(words("ARG"))


def test_all_that_a_layer_is_built_from_is_sent_to_the_builder():
    ignored = (ROOT / "images/Dockerfile.dockerignore").read_text().splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    committed = {
        path.split("/")[0]
        for path in subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    }

    assert {"images", "karpenter_core", "providers", "pyproject.toml", "requirements.lock"} <= sent
    assert sent <= committed
    assert "providers/*/simulated" in ignored


@pytest.mark.parametrize("cloud", [name for name in PROVIDERS if name != "kwok"])
def test_guides_name_the_image_of_their_cloud(cloud):
    assert f"karpenter-core-{cloud}" in (ROOT / "docs" / f"{cloud}.md").read_text()
