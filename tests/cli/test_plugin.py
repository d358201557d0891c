"""`karpenter plugin`: a new provider passes at once, and faults of plug-ins are reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from karpenter_core.cli import plugin
from karpenter_core.cli.main import build_app
from karpenter_core.cli.plugin import list_plugins
from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.calls.rest import RestClient

BIN = Path(sys.executable).parent


def invoke(*arguments):
    return CliRunner().invoke(build_app(), ["plugin", *map(str, arguments)])


def run(*command, cwd, **environment):
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def starfish(tmp_path_factory):
    """Write a provider and install it into a folder of its own."""
    folder = tmp_path_factory.mktemp("starfish")
    result = invoke("new", "starfish", "--prefix", "StarFish", "--output-dir", folder / "source")
    assert result.exit_code == 0, result.output
    source, site = folder / "source", folder / "site"
    options = ["--quiet", "--offline", "--no-build-isolation", "--no-deps", "--target", str(site)]
    done = run(
        str(BIN / "uv"), "pip", "install", *options, str(source), cwd=folder,
        VIRTUAL_ENV=str(BIN.parent),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.developer_tools
def test_a_new_provider_keeps_the_contract(starfish):
    """Every rule that applies to it is shown, and the report says so."""
    done = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", "--pyargs",
        "karpenter_core.testing.conformance", "--karpenter-provider=starfish",
        cwd=starfish, PYTHONPATH=str(starfish / "site"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert 'the provider contract, tested with "starfish"' in done.stdout
    count = re.search(r"^(\d+) rules: (\d+) kept, 5 does not apply$", done.stdout, re.MULTILINE)
    assert count, done.stdout
    assert int(count[1]) == int(count[2]) + 5


@pytest.mark.developer_tools
def test_the_tutorial_s_program_creates_the_nodes_of_vms(starfish, tmp_path):
    """The program of docs/providers.md, with a script in place of kubectl."""
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text()
    (program,) = re.findall(r"^```python\n(import json\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    applied, kubectl = tmp_path / "applied", tmp_path / "kubectl"
    os.mkfifo(applied)
    kubectl.write_text(f"#!/bin/sh\ncat > {applied}\n")
    kubectl.chmod(0o755)
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            program.replace("mycloud", "starfish").replace("MyCloud", "StarFish"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(starfish / "site"),
        },
    ) as process:
        try:
            lines = [process.stdout.readline() for _ in range(2)]
            settings = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines)
            vm = {
                "token": "t",
                "cluster": "try",
                "claim": "web-1",
                "size": "small",
                "zone": "north",
            }
            vm |= {"spot": False, "image": "debian-v7", "user_data": '{"labels": {"a": "b"}}'}
            client = RestClient(
                settings["STARFISH_ENDPOINT"],
                headers={"Authorization": f"Bearer {settings['STARFISH_TOKEN']}"},
                timeout=timedelta(seconds=20),
            )
            created = client.call("create VM", "POST", "/v1/vms", dict, body=vm)
            node = json.loads(applied.read_text())
        finally:
            process.terminate()

    assert node["kind"] == "Node"
    assert node["spec"]["providerID"] == f"starfish://{created['id']}"
    assert node["metadata"]["labels"]["a"] == "b"


@pytest.mark.developer_tools
def test_a_new_provider_s_own_tests_pass(starfish):
    """Those beside the contract's, which were run already."""
    done = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", "-k", "not pc_",
        str(starfish / "source" / "tests"),
        cwd=starfish, PYTHONPATH=str(starfish / "site"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_new_provider_is_listed_and_its_kind_is_rendered(starfish):
    program = [sys.executable, "-m", "karpenter_core.cli.main"]
    path = str(starfish / "site")
    listed = run(*program, "plugin", "list", cwd=starfish, PYTHONPATH=path)
    assert listed.returncode == 0, listed.stdout
    assert "StarFishNodeClass.karpenter.starfish.example.com" in listed.stdout
    crds = run(*program, "crds", "--provider", "starfish", cwd=starfish, PYTHONPATH=path)
    assert "kind: StarFishNodeClass" in crds.stdout


def test_nothing_of_the_example_s_name_is_left(starfish):
    files = (path for path in (starfish / "source").rglob("*") if path.is_file())
    texts = [path.read_text() for path in files if path.suffix != ".pyc"]  # other tests import it
    assert len(texts) > 10
    assert not any("tinycloud" in text.lower() for text in texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Star",), 'name "Star": must be 2 to 31 lower-case letters and digits'),
        (("star-fish",), 'name "star-fish": must be'),
        (("starfish", "--prefix", "star"), '--prefix "star": must be letters and digits'),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(arguments, message, tmp_path):
    result = invoke("new", *arguments, "--output-dir", tmp_path / "new")
    assert isinstance(result.exception, BadInputError)
    assert message in str(result.exception)
    assert not (tmp_path / "new").exists()


def test_an_installation_without_the_files_of_a_provider_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(plugin, "SCAFFOLD", tmp_path / "missing")

    result = invoke("new", "starfish", "--output-dir", tmp_path / "new")

    assert isinstance(result.exception, BadInputError)
    assert "install karpenter-core with pip" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_not_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = invoke("new", "starfish", "--output-dir", tmp_path)
    assert str(result.exception) == f"{tmp_path} exists already and is not empty"


def test_the_installed_providers_are_listed_with_their_kinds():
    result = invoke("list")
    assert result.exit_code == 0
    assert re.search(
        r"^kwok +karpenter-provider-kwok \S+ +1 +KWOKNodeClass\.karpenter\.kwok\.sh +\d+$",
        result.output,
        re.MULTILINE,
    )


def test_a_plugin_that_cannot_be_loaded_is_listed_with_its_problem():
    """The others are still shown."""
    points = [
        EntryPoint("broken", "no_such_module:Plugin", "karpenter"),
        EntryPoint("kwok", "karpenter_provider_kwok.plugin:KwokProvider", "karpenter"),
    ]
    (broken, kwok), clash = list_plugins(points)
    assert "cannot be loaded from no_such_module:Plugin" in broken.problem
    assert (broken.kinds, kwok.problem, clash) == ((), "", "")
    assert kwok.kinds == ("KWOKNodeClass.karpenter.kwok.sh",)


def test_two_plugins_that_clash_are_both_named():
    value = "karpenter_provider_kwok.plugin:KwokProvider"
    points = [EntryPoint(name, value, "karpenter") for name in ("kwok", "kwok")]
    _, clash = list_plugins(points)
    assert clash.startswith('two plug-ins are named "kwok"')
