"""The scenario suite, with `karpenter run` as a process, on each of the clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.scenarios import Runner, Scenario, load_scenarios
from tests.e2e.kwok import KwokCloud
from tests.support.runner import World

if TYPE_CHECKING:
    from tests.support.beds import Bed

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "tests" / "scenarios"
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]


def of(runner: Runner) -> pytest.MarkDecorator:
    scenarios = load_scenarios(SCENARIOS, runner)
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name)


async def play(scenario: Scenario, bed: Bed, folder: Path) -> None:
    async with World(bed, KwokCloud(), folder, crds=CRDS) as world:
        await world.run(scenario)


@of(Runner.EMBEDDED)
async def test_scenario_on_the_embedded_cluster(
    scenario: Scenario, embedded_bed: Bed, tmp_path: Path
):
    """What the scenario's summary says."""
    await play(scenario, embedded_bed, tmp_path)


@of(Runner.REAL)
async def test_scenario_on_a_real_control_plane(scenario: Scenario, real_bed: Bed, tmp_path: Path):
    """What the scenario's summary says."""
    await play(scenario, real_bed, tmp_path)
