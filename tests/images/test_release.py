"""Workflows are valid and pin what they run; that of a release publishes every image that can be built."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from images.locked import PROVIDERS
from tests.release.build_tools import TOOLS

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github/workflows/release.yaml"
AUDIT = WORKFLOW.with_name("audit.yaml")
LINTER = Path(__file__).parent / "actionlint"
SCRIPT = ROOT / "images/release.sh"
SCRIPTS = (SCRIPT, ROOT / "images/sign.sh", ROOT / "charts/release.sh")
INDEX = {
    "manifests": [
        {"digest": f"sha256:{arch}", "platform": {"os": os, "architecture": arch}}
        for os, arch in (("linux", "amd64"), ("linux", "arm64"), ("unknown", "unknown"))
    ]
}
"""An index of images as a registry has it, with the attestations of the builder."""


def jobs(workflow=WORKFLOW):
    return yaml.safe_load(workflow.read_text())["jobs"]


def steps(*workflows):
    return [
        step
        for workflow in workflows or (WORKFLOW,)
        for job in jobs(workflow).values()
        for step in job.get("steps", ())
    ]


@pytest.mark.images
@pytest.mark.timeout(600)
def test_the_workflows_are_valid(tmp_path):
    if shutil.which("go") is None:
        pytest.skip("actionlint is built by Go")
    lint = ["go", "tool", "actionlint", "-no-color"]

    def run(path):
        return subprocess.run(
            [*lint, str(path)], cwd=LINTER, capture_output=True, text=True, check=False
        )

    for workflow in WORKFLOW.parent.iterdir():
        found = run(workflow)
        assert found.returncode == 0, found.stdout + found.stderr
    broken = tmp_path / "broken.yaml"
    broken.write_text(WORKFLOW.read_text().replace("needs: images", "needs: missing"))
    assert "missing" in run(broken).stdout


def test_every_image_is_published():
    assert set(jobs()["images"]["strategy"]["matrix"]["provider"]) == {*PROVIDERS, "all"}
    commands = "\n".join(step.get("run", "") for step in steps())
    assert "images/release.sh" in commands
    assert "charts/release.sh" in commands


def test_actions_are_pinned_by_commit_and_tools_by_version():
    for step in steps(WORKFLOW, AUDIT):
        if "uses" in step:
            assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", step["uses"])
    for name, program in TOOLS.items():
        assert yaml.safe_load(WORKFLOW.read_text())["env"][name] == program


def test_dependencies_are_audited_every_week_and_before_a_release():
    document = yaml.safe_load(AUDIT.read_text())
    (command,) = [step["run"] for step in steps(AUDIT) if "run" in step]

    assert re.search(r"pip-audit==\d+\.\d+\.\d+ .*--require-hashes .*-r requirements.lock", command)
    triggers = document[True]  # YAML reads the key "on" as a truth value
    assert triggers["schedule"]
    assert triggers["pull_request"] == {"paths": ["requirements.lock"]}
    assert jobs()["audit"]["uses"].endswith(AUDIT.name)
    assert jobs()["check"]["needs"] == "audit"


def test_the_workflow_may_do_nothing_by_default_and_signs_without_a_key():
    document = yaml.safe_load(WORKFLOW.read_text())

    assert document["permissions"] == {"contents": "read"}
    for name in ("images", "charts"):
        assert document["jobs"][name]["permissions"]["id-token"] == "write"
    assert "secrets." not in WORKFLOW.read_text().replace("secrets.GITHUB_TOKEN", "")
    texts = [WORKFLOW.read_text(), *(script.read_text() for script in SCRIPTS)]
    assert not any("--key" in text or "COSIGN_KEY=" in text for text in texts)


def arguments(tool, folder, index=INDEX):
    """A stand-in for a program: notes its arguments, and answers as the program does."""
    (folder / tool).write_text(
        "#!/bin/bash\n"
        f'echo "{tool} $*" >>"$CALLS"\n'
        'case "$*" in\n'
        f"manifest*) echo '{json.dumps(index)}' ;;\n"
        "*imagetools*builder*|*imagetools*python:*) echo sha256:bbbb ;;\n"
        "*imagetools*) echo sha256:aaaa ;;\n"
        "esac\n"
        "while [ $# -gt 0 ]; do\n"
        '    case "$1" in\n'
        '    --metadata-file) echo \'{"containerimage.digest": "sha256:cccc"}\' >"$2" ;;\n'
        "    type=local,dest=*) for arch in amd64 arm64; do\n"
        '        mkdir -p "${1#*dest=}/linux_$arch/usr/local/share/sbom"\n'
        '        echo "{\\"of\\": \\"$arch\\"}" >"${1#*dest=}/linux_$arch/usr/local/share/sbom/karpenter-core-aws.cdx.json"\n'
        "    done ;;\n"
        "    esac\n"
        "    shift\n"
        "done\n"
    )
    (folder / tool).chmod(0o755)


def release(folder):
    return subprocess.run(
        ["bash", SCRIPT, "aws", "1.2.3", "registry.example.com/team", folder / "dist"],
        env={
            "PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin",
            "CALLS": str(folder / "calls"),
            "SOURCE": "https://example.com/karpenter-core",
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_pins_base_images_by_digest_and_signs_pushed_images(tmp_path):
    calls = tmp_path / "calls"
    for tool in ("docker", "cosign", "crane"):
        arguments(tool, tmp_path)
    done = release(tmp_path)

    assert done.returncode == 0, done.stderr
    pushed = "registry.example.com/team/karpenter-core-aws@sha256:cccc"
    lines = calls.read_text().splitlines()
    build, layer = (line for line in lines if line.startswith("docker buildx build"))
    assert "--build-arg BASE=gcr.io/distroless/python3-debian13@sha256:aaaa " in build
    assert "--build-arg BASE_DIGEST=sha256:aaaa " in build
    assert "--build-arg BUILDER=docker.io/library/python@sha256:bbbb " in build
    assert "--build-arg PROVIDER=aws " in build
    assert "--platform linux/amd64,linux/arm64 " in build
    assert "push=true" in build
    assert "push=true" not in layer
    assert f"cosign sign --yes {pushed}" in lines
    attested = [line for line in lines if line.startswith("cosign attest")]
    for arch, line in zip(("amd64", "arm64"), attested, strict=True):
        sbom = tmp_path / "dist" / f"karpenter-core-aws-1.2.3-{arch}.cdx.json"
        assert json.loads(sbom.read_text()) == {"of": arch}
        assert line.endswith(
            f"--predicate {sbom} registry.example.com/team/karpenter-core-aws@sha256:{arch}"
        )


def test_a_release_without_an_image_for_an_architecture_ends(tmp_path):
    for tool in ("docker", "cosign", "crane"):
        arguments(tool, tmp_path, index={"manifests": INDEX["manifests"][:1]})
    done = release(tmp_path)

    assert done.returncode != 0
    assert "the index has 0 images for linux/arm64, not one" in done.stderr


def test_a_base_whose_digest_is_unknown_ends_the_release(tmp_path):
    arguments("cosign", tmp_path)
    (tmp_path / "docker").write_text("#!/bin/bash\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}

    done = subprocess.run(
        ["bash", SCRIPT, "aws", "1.2.3", "registry.example.com/team", tmp_path / "dist"],
        env=environment,
        capture_output=True,
        check=False,
    )

    assert done.returncode != 0
    assert not (tmp_path / "calls").exists()
