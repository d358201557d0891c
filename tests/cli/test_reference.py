"""`docs/reference/plan.md` documents options and output of the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from karpenter_core.cli import manifests
from karpenter_core.cli.explain.command import node, nodeclaim, nodepool, pod
from karpenter_core.cli.explain.tables import NODE_CLAIM_STATES, NODE_STATES, STATES
from karpenter_core.cli.plan import plan
from karpenter_core.disruption.acceptance import DeclineReason
from karpenter_core.disruption.blocked_nodes import DisruptionObstacle
from karpenter_core.disruption.explain import MethodVerdict
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.scheduling.problem import PoolConstraint
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.cli.inputs import option_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/plan.md").read_text()
README = (ROOT / "README.md").read_text()


def rows(heading):
    """Return what stands in backticks in the first column of the table with this heading."""
    lines = PAGE.partition(heading)[2].splitlines()[2:]
    table = lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]
    return {name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


@pytest.mark.parametrize("command", [plan, pod, node, nodepool, nodeclaim])
def test_every_option_is_in_the_table(command):
    """And none that does not exist."""
    options = option_names(command)

    of_plan = set() if command is plan else {"--rebalance"}
    of_pod = set() if command is pod else {"--namespace", "-n"}
    assert rows("| option | meaning |") - of_plan - of_pod == options


def test_every_key_of_a_cluster_is_in_the_table():
    """And none that is not read."""
    assert rows("| key | entries |") == set(manifests.KEYS)


def test_every_state_is_in_the_table():
    """Of explanations."""
    assert rows("| `state` | meaning | `placement` |") == set(STATES)


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("| `state` of a node | meaning |", set(NODE_STATES)),
        ("| `verdict` | meaning |", set(MethodVerdict)),
        ("| `obstacle` | what blocks the disruption of the node; the", set(DisruptionObstacle)),
        ("| `declined` | why a method does not apply to the node |", set(DeclineReason)),
    ],
)
def test_the_lists_of_explanations_of_nodes_are_closed(heading, known):
    """Every word that the JSON may hold, and no other."""
    assert rows(heading) == known


def test_every_field_of_an_explanation_of_a_node_is_in_the_table(program, monkeypatch):
    """And none that does not exist."""
    monkeypatch.chdir(ROOT)
    arguments = ("--offline", "examples/disruption", "--instance-types-file", "examples/instance-types.json")  # fmt: skip
    document = json.loads(program("explain", "node", "node-3", *arguments, "-o", "json").out)

    for answer in document["methods"].values():
        assert set(answer) == rows("| field of a method | meaning |")
    output_section = PAGE.partition("## Output of `karpenter explain node`")[2]
    assert all(f"`{key}`" in output_section for key in document)


def test_every_field_and_state_of_an_explanation_of_a_node_claim_is_on_the_page(
    program, monkeypatch
):
    """And no state that does not exist."""
    monkeypatch.chdir(ROOT)
    arguments = ("--offline", "examples/disruption", "--instance-types-file", "examples/instance-types.json")  # fmt: skip
    document = json.loads(program("explain", "nodeclaim", "node-3", *arguments, "-o", "json").out)

    section = PAGE.partition("## Output of `karpenter explain nodeclaim`")[2]
    assert all(f"`{key}`" in section for key in document)
    assert rows("| `state` of a NodeClaim | meaning |") == set(NODE_CLAIM_STATES)


def test_every_field_of_a_rebalance_is_in_the_table(program, monkeypatch):
    """And none that does not exist."""
    monkeypatch.chdir(ROOT)
    arguments = ("--offline", "examples/disruption", "--instance-types-file", "examples/instance-types.json")  # fmt: skip
    document = json.loads(program("plan", "--rebalance", *arguments, "-o", "json").out)

    section = PAGE.partition("## Output of `karpenter plan --rebalance`")[2].partition("\n## ")[0]
    names = {*document, *document["steps"][0], *document["blocked"][0], *document["before"]}
    assert all(f"`{name}`" in section or f"`{name}[]`" in section for name in names)


def test_the_list_of_constraints_is_closed():
    """In the order in which they are tried."""
    section = PAGE.partition("All constraints, in the order")[2]
    listed = section.partition("\n\nThe solver relaxes")[0]

    assert re.findall(r"^\| `(\w+)`", listed, re.MULTILINE) == [
        constraint.value for constraint in PoolConstraint
    ]


def test_the_role_names_every_kind_that_is_listed():
    """And it permits nothing else."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    role = yaml.safe_load(text)

    listed = {(kind.group, kind.plural) for kind in Codecs([KWOKNodeClass]).kinds}

    assert role["kind"] == "ClusterRole"
    assert all(rule["verbs"] == ["list"] for rule in role["rules"])
    assert listed == {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def sessions(page):
    """Return the commands of console blocks, each with what the page says it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = [command for block in blocks for command in block.split("$ ")[1:]]
    return [tuple(command.split("\n", 1)) for command in commands]


@pytest.mark.parametrize(("command", "printed"), [*sessions(PAGE), *sessions(README)])
def test_commands_print_the_output_of_the_documentation(program, monkeypatch, command, printed):
    """In a terminal of 80 columns; JSON by value and order, timings aside."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    name, *arguments = command.split()

    shown = program(*arguments).out

    assert name == "karpenter"
    if "json" in arguments:
        result, said = json.loads(shown), json.loads(printed)
        assert result.pop("timings", {}).keys() == said.pop("timings", {}).keys()
        assert json.dumps(result) == json.dumps(said)
    else:
        assert [line.rstrip() for line in shown.splitlines()] == printed.splitlines()


def test_both_pages_show_commands():
    """A renamed fence would leave nothing to compare."""
    assert {command.split()[1] for command, _ in sessions(PAGE)} == {"plan", "explain"}
    assert {command.split()[1] for command, _ in sessions(README)} == {"plan", "explain"}
