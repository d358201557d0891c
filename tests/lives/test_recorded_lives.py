"""Whole lives of clusters leave the process as they are recorded: every write, cloud call and log line.

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
from tests.support.virtual_world import play_virtually

RECORDED = Path(__file__).with_name("recorded_lives.json")
SCENARIOS = load_scenarios(Path(__file__).parents[1] / "scenarios", RunnerKind.VIRTUAL)
LARGE = ("five-hundred-replicas", "fifty-replicas")
COMBINATIONS = (0, 2, 4, 7, 8, 13)
HISTORIES = (0, 2, 4, 6, 7, 10)
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


@pytest.mark.parametrize("name", LIVES)
def test_a_life_is_the_recorded_one(name, tmp_path):
    record = LifeRecord(str(tmp_path))
    with recorded(record, KwokCloud):
        LIVES[name](tmp_path)
    assert_record(name, record.parts, RECORDED)
