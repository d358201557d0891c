"""Karpenter's own end-to-end scenarios, as far as what they test is there."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.e2e.upstream.expected import EXPECTED
from tests.e2e.upstream.runner import Player
from tests.e2e.upstream.suite import LIMIT_SECONDS, scenarios

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(LIMIT_SECONDS + 120),
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def player(tmp_path_factory, kubernetes):
    """One for all, so that scenarios share a control plane."""
    async with Player(tmp_path_factory.mktemp("upstream"), kubernetes=kubernetes) as player:
        yield player


@pytest.fixture(scope="session")
def regression():
    """The scenarios of the suite, by name."""
    return {scenario.name: scenario for scenario in scenarios("regression")}


@pytest.mark.parametrize("name", sorted(EXPECTED["regression"]))
async def test_karpenters_own_scenario_passes(name, regression, player):
    """What its name says."""
    result = await player.play(regression[name])
    assert result.is_good, f"{result.state}: {result.reason}"
