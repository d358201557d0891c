"""Karpenter's own end-to-end scenarios pass where the feature exists."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.e2e.upstream.environment import COLLECTION_SECONDS
from tests.e2e.upstream.expected import EXPECTED
from tests.e2e.upstream.runner import ScenarioPlayer
from tests.e2e.upstream.suite import LIMIT_SECONDS, scenarios

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(LIMIT_SECONDS + COLLECTION_SECONDS + 120),
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def player(tmp_path_factory, kubernetes):
    """One for all, so that scenarios share a control plane."""
    async with ScenarioPlayer(tmp_path_factory.mktemp("upstream"), kubernetes=kubernetes) as player:
        yield player


@pytest.fixture(scope="session")
def regression():
    """The scenarios of the suite, by name."""
    return {scenario.name: scenario for scenario in scenarios("regression")}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", sorted(EXPECTED["regression"]))
async def test_karpenters_own_scenario_passes(name, regression, player):
    """Run the scenario of this name."""
    result = await player.play(regression[name])
    assert result.is_good, f"{result.state}: {result.reason}"


def test_every_scenario_is_expected_to_pass(regression):
    """No scenario of a new version is forgotten."""
    assert set(EXPECTED["regression"]) == regression.keys()
