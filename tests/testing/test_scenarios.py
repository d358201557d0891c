"""The scenario format accepts good files and refuses bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from karpenter_core.testing.scenarios import (
    CountBounds,
    RunnerKind,
    Scenario,
    ScenarioError,
    load_scenario,
    load_scenarios,
)

SCENARIOS = Path(__file__).parents[1] / "scenarios"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_shipped_scenario_is_valid_and_has_expectations(path: Path):
    """Each file is valid, and at least one of its steps expects something."""
    scenario = load_scenario(path)

    assert any(step.then is not None for step in scenario.steps)


def test_every_runner_has_scenarios():
    """Every back end has a scenario."""
    assert all(list(load_scenarios(SCENARIOS, runner)) for runner in RunnerKind)


def test_unknown_key_is_refused_with_file_and_field(tmp_path: Path):
    """A misspelt expectation must not pass as one that is always met."""
    path = tmp_path / "typo.yaml"
    path.write_text(
        "{name: typo, summary: s, given: {}, steps: [{then: {nothingleft: true}}]}",
    )

    with pytest.raises(ScenarioError, match=r"typo\.yaml(.|\n)*nothingleft"):
        load_scenario(path)


def test_name_must_be_the_file_name(tmp_path: Path):
    """A failing test's name leads to its file."""
    path = tmp_path / "one.yaml"
    path.write_text("{name: two, summary: s, given: {}, steps: [{when: {wait: 1s}}]}")

    with pytest.raises(ScenarioError, match=r"one\.yaml: name"):
        load_scenario(path)


@pytest.mark.parametrize("action", [{}, {"wait": "1s", "kill": "controller"}])
def test_an_action_is_exactly_one_thing(action: dict[str, str]):
    """Order within a step is the order of its actions, so each is one thing."""
    with pytest.raises(ValueError, match="exactly one action"):
        Scenario.model_validate(
            {"name": "n", "summary": "s", "given": {}, "steps": [{"when": action}]},
        )


def test_a_number_is_a_count_of_exactly_that_many():
    """`running: 3` is short for both bounds."""
    scenario = Scenario.model_validate(
        {
            "name": "n",
            "summary": "s",
            "given": {},
            "steps": [{"then": {"nodes": 3, "instances": {"atLeast": 2}}}],
        },
    )
    then = scenario.steps[0].then

    assert then is not None
    assert then.nodes == CountBounds(at_least=3, at_most=3)
    assert [then.nodes.accepts(number) for number in (2, 3, 4)] == [False, True, False]
    assert then.instances is not None
    assert [then.instances.accepts(number) for number in (1, 2, 99)] == [False, True, True]


def test_given_creates_classes_before_pools_before_deployments():
    """Referenced objects come first."""
    scenario = Scenario.model_validate(
        {
            "name": "n",
            "summary": "s",
            "given": {
                "deployments": [{"name": "web"}],
                "nodePools": [{"name": "general"}],
                "manifests": [{"kind": "Node"}],
            },
            "steps": [{"when": {"wait": "1s"}}],
        },
    )

    assert [each["kind"] for each in scenario.given.objects()] == [
        "KWOKNodeClass",
        "NodePool",
        "Node",
        "Deployment",
    ]
