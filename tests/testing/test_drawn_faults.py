"""Parts of sweeps are drawn so that nothing is left out for ever, and drawn again from the same seed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.controllers.write_failures import WAYS
from tests.support.drawn_faults import EVERY, PARTS, drawn_faults, drawn_of

NUMBERS = range(30)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run of the tests."""

    seed: str

    def getoption(self, _name):
        return self.seed


@pytest.fixture(autouse=True)
def draws(monkeypatch):
    monkeypatch.delenv(EVERY, raising=False)


def played(seed, variant=0):
    return set(filter(drawn_faults(RunOptions(seed), "sweep", variant), NUMBERS))


@pytest.mark.parametrize("seed", ["0", "1", "7"])
def test_as_many_variants_as_parts_play_each_fault_once(seed):
    variants = [played(seed, variant) for variant in range(PARTS)]

    assert set.union(*variants) == set(NUMBERS)
    assert sum(map(len, variants)) == len(NUMBERS)


def test_each_run_fails_every_write_in_one_way():
    assert len(WAYS) >= PARTS


def test_seeds_draw_every_part_and_each_the_same_again():
    parts = [frozenset(played(str(seed))) for seed in range(30)]

    assert len(set(parts)) == PARTS
    assert parts == [frozenset(played(str(seed))) for seed in range(30)]


def test_one_of_the_seeds_is_drawn():
    drawn = [drawn_of(RunOptions(str(seed)), "runs", range(5)) for seed in range(50)]

    assert {len(each) for each in drawn} == {1}
    assert {seed for each in drawn for seed in each} == set(range(5))


def test_all_are_played_where_all_are_asked_for(monkeypatch):
    monkeypatch.setenv(EVERY, "1")

    assert played("0") == set(NUMBERS)
    assert drawn_of(RunOptions("0"), "runs", range(5)) == range(5)
