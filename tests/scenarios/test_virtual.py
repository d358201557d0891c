"""The scenario suite in simulated time: minutes of a cluster's life in a second of the test's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.expectations import CloudAccount
from karpenter_core.testing.harness import ControllerHarness
from karpenter_core.testing.scenarios import RunnerKind, Scenario, load_scenarios
from karpenter_provider_kwok.dump import dump_file
from karpenter_provider_kwok.plugin import KwokProvider
from tests.support.virtual_world import VirtualScenarioWorld

SCENARIOS = load_scenarios(Path(__file__).parent, RunnerKind.VIRTUAL)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_in_simulated_time(scenario: Scenario, tmp_path: Path):
    """Run the scenario that the file describes."""

    async def play() -> None:
        faults = tmp_path / "faults.json"
        option = f"--kwok-faults-file={faults}"
        async with ControllerHarness(
            lambda: {"kwok": KwokProvider()}, folder=tmp_path, arguments=[option]
        ) as harness:

            def account() -> CloudAccount:
                state = tmp_path / "kwok.sqlite3"
                if not state.exists():
                    return CloudAccount()
                cloud_dump = dump_file(str(state), now=harness.cluster.clock.now())
                return CloudAccount(
                    instances=cloud_dump["instances"], launches=cloud_dump["launches"]
                )

            def suffer(suffered: list[dict[str, Any]]) -> None:
                faults.write_text(json.dumps(suffered))

            await VirtualScenarioWorld(harness, account, suffer).run(scenario)

    run_virtual(play())
