"""Requests to each simulated cloud in whole lives of clusters are as they are recorded.

Nothing says that a recorded life is right: other tests do. This one says that a change which is meant to
change nothing that can be seen changes nothing, and what any other change does.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.lives.cloud_lives import OPTIONS, live_chaos, live_options, live_troubles
from tests.lives.life_record import LifeRecord, recorded
from tests.support.recorded_digests import assert_record
from tests.support.run_selection import others_as_cluster_runs

RECORDED = Path(__file__).with_name("recorded_cloud_lives.json")
SEEDS = (1, 2)
LIVES = {
    **{f"{cloud}-options": partial(live_options, cloud) for cloud in OPTIONS},
    **{f"{cloud}-troubles": partial(live_troubles, cloud) for cloud in OPTIONS},
}
MORE = {
    f"{cloud}-chaos-{seed}": partial(live_chaos, cloud, seed) for cloud in OPTIONS for seed in SEEDS
}


@pytest.mark.recorded
@pytest.mark.parametrize("name", others_as_cluster_runs([*LIVES, *MORE], first=len(LIVES)))
def test_a_life_on_a_cloud_is_the_recorded_one(name, tmp_path):
    """`cluster_runs` have more of them."""
    record = LifeRecord(str(tmp_path))
    with recorded(record):
        {**LIVES, **MORE}[name](tmp_path)
    assert_record(name, record.parts, RECORDED)
