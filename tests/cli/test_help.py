"""Every command has a help text with examples that can be used."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import typer
import yaml

from karpenter_core.cli.command_examples import EXAMPLES
from karpenter_core.cli.main import build_app

WIDTH = 80


def commands(group=None, path=()):
    """Yield the path and the command of every command, those of plug-ins included."""
    if group is None:
        group = typer.main.get_command(build_app())
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_ends_with_examples(path, program, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))

    shown = program(*path, "--help").out

    lines = [line.strip() for line in shown.splitlines()]
    assert "Examples:" in lines
    after = lines[lines.index("Examples:") + 1 :]
    assert any(f"karpenter {' '.join(path)}" in line for line in after)
    assert "\x1b" not in shown
    if path != ("run",):
        assert max(map(len, shown.splitlines())) <= WIDTH


@pytest.mark.parametrize("path", [path for path in COMMANDS if path != ("run",)], ids=" ".join)
def test_examples_have_options_that_exist(path):
    """Their values are checked, too; a file need not exist."""
    command = COMMANDS[path]
    lines = (command.epilog or "").split("\n\n")[1:]
    parts = [part.strip() for line in lines for part in line.split("|")]
    own = [
        words[1:]
        for words in (shlex.split(part.partition(" > ")[0]) for part in parts)
        if words[0] == "karpenter" and tuple(words[1 : 1 + len(path)]) == path
    ]

    assert own
    for words in own:
        command.make_context("karpenter", words[len(path) :])


def test_no_example_is_of_a_command_that_is_gone():
    assert set(EXAMPLES) <= {" ".join(path) for path in COMMANDS}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_command_that_prints_can_print_json(path, program):
    """By `--output`, or its short form `-o`; what prints nothing else needs none."""
    writes_no_table = {
        ("run",),
        ("demo",),
        ("snapshot",),
        ("plugin", "new"),
        ("kwok", "dump"),
        ("kwok", "catalogue"),
    }
    if path in writes_no_table:
        return
    options = {name: each for each in COMMANDS[path].params for name in each.opts}

    assert options["-o"] is options["--output"]
    assert re.search(r"--output .*<[a-z|]*json[a-z|]*>", program(*path, "--help").out)


def test_manifests_are_printed_as_one_list_in_json(program):
    for command, kind in (("crds", "CustomResourceDefinition"), ("rbac", "ClusterRole")):
        printed = json.loads(program(command, "--provider", "kwok", "-o", "json").out)
        assert printed["kind"] == "List"
        assert kind in {each["kind"] for each in printed["items"]}


def test_crds_are_the_same_in_both_formats(program):
    documents = list(yaml.safe_load_all(program("crds").out))
    assert json.loads(program("crds", "-o", "json").out)["items"] == documents


def test_files_of_crds_are_yaml(program, tmp_path):
    shown = program("crds", "-o", "json", "--output-dir", tmp_path, code=2)

    assert "omit --output json" in shown.err
    assert list(tmp_path.iterdir()) == []
