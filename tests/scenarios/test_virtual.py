"""The scenario suite in simulated time: minutes of a cluster's life in a second of the test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from karpenter_core.testing.scenarios import RunnerKind, Scenario, load_scenarios
from tests.support.virtual_world import play_virtually

SCENARIOS = load_scenarios(Path(__file__).parent, RunnerKind.VIRTUAL)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_in_simulated_time(scenario: Scenario, tmp_path: Path):
    """Run the scenario that the file describes."""

    play_virtually(scenario, tmp_path)
