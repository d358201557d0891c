"""A few seeds of chaos on each cloud; `tests.clouds.chaos` plays any number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clouds.chaos import breaches_of
from tests.clouds.stages import STAGES
from tests.support.drawn_faults import drawn_runs

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = (3, 11)

pytestmark = [pytest.mark.cluster_runs, pytest.mark.timeout(600)]


@pytest.mark.parametrize("provider", STAGES)
def test_a_cluster_survives_everything_that_its_cloud_does_wrong(
    provider: str, tmp_path: Path, pytestconfig: pytest.Config
):
    for seed, folder in drawn_runs(pytestconfig, f"chaos of {provider}", SEEDS, tmp_path):
        stage = STAGES[provider]()
        with stage.open():
            breaches, happened = breaches_of(stage, seed, folder)
        assert breaches == []
        assert happened["pods away"] == 1, "it came to rest"
        assert happened.total() > 8
