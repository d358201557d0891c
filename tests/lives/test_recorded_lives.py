"""Whole lives of clusters are as they are recorded: every write, cloud call and log line.

Nothing says that a recorded life is right: other tests do. This one says that a change which is meant to
change nothing that can be seen changes nothing, and what any other change does.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from karpenter_core.testing.scenarios import RunnerKind, load_scenarios
from karpenter_provider_kwok.cloud import KwokCloud
from tests.lives.drawn_lives import live_combination, live_history
from tests.lives.life_record import LifeRecord, recorded
from tests.lives.told_lives import TOLD
from tests.support.recorded_digests import assert_record
from tests.support.run_selection import others_as_cluster_runs
from tests.support.virtual_world import play_virtually

RECORDED = Path(__file__).with_name("recorded_lives.json")
SCENARIOS = load_scenarios(Path(__file__).parents[1] / "scenarios", RunnerKind.VIRTUAL)
LARGE = ("five-hundred-replicas", "fifty-replicas")
COMBINATIONS = (0, 2, 7)
HISTORIES = (0, 2, 6)
MORE_COMBINATIONS = (4, 5, 8, 13, 19, 29, 45, 52, 60)
MORE_HISTORIES = (1, 4, 7, 8, 10, 11)
LIVES = {
    **{
        f"scenario-{each.name}": partial(play_virtually, each)
        for each in SCENARIOS
        if each.name not in LARGE
    },
    **{f"told-{name}": live for name, live in TOLD.items()},
    **{f"combination-{seed}": partial(live_combination, seed) for seed in COMBINATIONS},
    **{f"history-{seed}": partial(live_history, seed) for seed in HISTORIES},
}
MORE = {
    **{f"combination-{seed}": partial(live_combination, seed) for seed in MORE_COMBINATIONS},
    **{f"history-{seed}": partial(live_history, seed) for seed in MORE_HISTORIES},
}


@pytest.mark.recorded
@pytest.mark.parametrize("name", others_as_cluster_runs([*LIVES, *MORE], first=len(LIVES)))
def test_a_life_is_the_recorded_one(name, tmp_path):
    """`cluster_runs` have more of them."""
    record = LifeRecord(str(tmp_path))
    with recorded(record, KwokCloud):
        {**LIVES, **MORE}[name](tmp_path)
    assert_record(name, record.parts, RECORDED)
