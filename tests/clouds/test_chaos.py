"""A few seeds of chaos on each cloud; `tests.clouds.chaos` plays any number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clouds.chaos import breaches_of
from tests.clouds.stages import STAGES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster_runs, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("provider", "seed"), [(name, seed) for name in STAGES for seed in (3, 11)]
)
def test_a_cluster_survives_everything_that_its_cloud_does_wrong(
    provider: str, seed: int, tmp_path: Path
):
    stage = STAGES[provider]()
    with stage.open():
        breaches, happened = breaches_of(stage, seed, tmp_path)
    assert breaches == []
    assert happened["pods away"] == 1, "it came to rest"
    assert happened.total() > 8
