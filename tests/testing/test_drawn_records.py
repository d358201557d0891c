"""A part of the recorded results is drawn: some of each file, and all of them in the course of many runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.drawn_records import EXAMPLES, MARKER, pytest_collection_modifyitems


@dataclass(frozen=True, eq=False)
class RecordedTest:
    path: Path
    is_recorded: bool = True

    def get_closest_marker(self, name):
        return self.is_recorded and name == MARKER


@dataclass
class Run:
    """A run of the tests: its options and its hooks."""

    seed: int
    deselected: list = field(default_factory=list)

    @property
    def hook(self):
        return self

    def pytest_deselected(self, items):
        self.deselected.extend(items)

    def getoption(self, _name):
        return self.seed


PLANS = [RecordedTest(Path("test_recorded_plans.py")) for _ in range(24)]
LIVES = [RecordedTest(Path("test_recorded_lives.py")) for _ in range(3)]
OTHERS = [RecordedTest(Path("test_rules.py"), is_recorded=False) for _ in range(5)]
ALL = [*PLANS, *OTHERS, *LIVES]


def left_by(seed):
    run, items = Run(seed), list(ALL)
    pytest_collection_modifyitems(run, items)
    assert [item for item in ALL if item in items or item in run.deselected] == ALL
    assert len(items) + len(run.deselected) == len(ALL)
    return items


def test_all_are_played_unless_a_part_is_asked_for(monkeypatch):
    monkeypatch.delenv(EXAMPLES, raising=False)
    assert left_by(0) == ALL
    monkeypatch.setenv(EXAMPLES, "")
    assert left_by(0) == ALL


@pytest.mark.parametrize("seed", range(20))
def test_some_of_each_file_are_left_and_every_other_test(monkeypatch, seed):
    monkeypatch.setenv(EXAMPLES, "/10")
    left = left_by(seed)
    assert 2 <= len(set(left) & set(PLANS)) <= 3
    assert len(set(left) & set(LIVES)) == 1
    assert set(OTHERS) <= set(left)
    assert left == left_by(seed)


def test_every_one_is_drawn_in_some_run(monkeypatch):
    monkeypatch.setenv(EXAMPLES, "/10")
    assert set().union(*(left_by(seed) for seed in range(200))) == set(ALL)
