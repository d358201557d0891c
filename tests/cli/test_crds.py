"""`karpenter crds` as users call it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from karpenter_core.cli.main import main

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["crds", *arguments])
    return ended.value.code or 0


def test_the_cores_kinds_are_printed(capsys):
    assert run() == 0

    names = [crd["metadata"]["name"] for crd in yaml.safe_load_all(capsys.readouterr().out)]
    assert names == [
        "nodepools.karpenter.sh",
        "nodeclaims.karpenter.sh",
        "nodeoverlays.karpenter.sh",
        "capacitybuffers.autoscaling.x-k8s.io",
    ]


def test_files_are_those_that_are_committed(tmp_path):
    folder = tmp_path / "not" / "there"

    providers = ("kwok", "aws", "alibabacloud", "azure")
    asked = [word for name in providers for word in ("--provider", name)]
    assert run(*asked, "--output-dir", str(folder)) == 0

    written = {path.name: path.read_text() for path in folder.iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "crds").iterdir()}
    assert written == committed


def test_an_unknown_provider_is_named(capsys):
    assert run("--provider", "moon") != 0
    answer = capsys.readouterr()
    assert 'plug-in "moon" is not installed (installed: ' in answer.err
    assert answer.out == ""
