"""The scenario suite, with `karpenter run` as a process, on each of the clusters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.scenarios import RunnerKind, Scenario, load_scenarios
from tests.e2e.kwok import KwokCloud
from tests.support.release import account_of, denied_requests
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster, RealLocalCluster
    from tests.support.release import ReleaseAccess

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "tests" / "scenarios"
CRDS = tuple(sorted((ROOT / "crds").glob("*.yaml")))

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]


def of(runner: RunnerKind) -> pytest.MarkDecorator:
    scenarios = load_scenarios(SCENARIOS, runner)
    return pytest.mark.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name)


async def play(
    scenario: Scenario,
    local_cluster: LocalCluster,
    folder: Path,
    access: ReleaseAccess | None = None,
) -> None:
    async with ScenarioWorld(local_cluster, KwokCloud(), folder, crds=CRDS, access=access) as world:
        await world.run(scenario)


@of(RunnerKind.EMBEDDED)
async def test_scenario_on_the_embedded_cluster(
    scenario: Scenario, embedded_local_cluster: LocalCluster, tmp_path: Path
):
    """Run the scenario that the file describes."""
    await play(scenario, embedded_local_cluster, tmp_path)


@of(RunnerKind.REAL)
async def test_scenario_on_a_real_control_plane(
    scenario: Scenario,
    real_local_cluster: RealLocalCluster,
    release_access: ReleaseAccess,
    tmp_path: Path,
):
    """Run the scenario as the chart's service account, which is refused nothing that it asks."""
    await play(scenario, real_local_cluster, tmp_path, release_access)

    control_plane = real_local_cluster.control_plane
    assert await denied_requests(control_plane, account_of("karpenter")) == []
