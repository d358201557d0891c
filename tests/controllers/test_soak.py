"""Two weeks of a cluster leave nothing behind; `tests.controllers.soak` plays any time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.controllers.soak import CHECKPOINTS_PER_DAY, OF_ALL, PLANTED, RESIDENT, SoakRecord

ROOT = Path(__file__).parents[2]
DAYS = 14


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
def test_two_weeks_of_churn_and_faults_leak_only_the_planted_objects():
    """In a process of its own: what other tests leave in this one is no leak, and hashes are fixed."""
    played = subprocess.run(
        [sys.executable, "-m", "tests.controllers.soak", f"--days={DAYS}", "--plant", "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(played.stdout.splitlines()[-1])
    assert found["breaches"] == []
    (leak,) = found["leaks"]
    assert leak.startswith(f"{PLANTED}.LAUNCHES grows")
    assert found["checkpoints"] == DAYS * CHECKPOINTS_PER_DAY
    assert found["of the last process"] >= 8
    assert found["processes"] > 1
    assert found["counts"] > 500, "caches, tables, queues and series are counted"


def recorded(**rows):
    """A record of one process; rows begin with what it held while it warmed up."""
    count = len(next(iter(rows.values())))
    counts = [Counter({name: row[i] for name, row in rows.items()}) for i in range(count)]
    return SoakRecord(counts=counts, lives=[1] * count)


STEADY = [103, 101, 103, 102, 100, 103, 104, 101, 102, 103, 101, 102, 103, 101, 102, 103]


@pytest.mark.parametrize(
    ("values", "leaks"),
    [
        (STEADY, False),
        ([7] * 16, False),
        ([10 * number for number in range(16)], True),
        ([value + 32 * number for number, value in enumerate(STEADY)], True),
        ([value + number for number, value in enumerate(STEADY)], False),  # a tenth in a week
        ([0, 40, 80, 120, 160, *[200] * 11], False),  # a cache that fills up
        ([*range(16)][::-1], False),
        ([100 + number % 2 for number in range(16)], False),
    ],
)
def test_a_count_leaks_if_it_rises_steadily_after_the_warm_up(values, leaks):
    found = recorded(**{"Ledger._claims": values}).leaks()
    assert bool(found) == leaks, found
    assert all("Ledger._claims grows" in each for each in found)


def test_memory_that_grows_from_process_to_process_is_a_leak():
    record = recorded(**{RESIDENT: [100 * 2**20 + 3 * number * 2**20 for number in range(20)]})
    record.lives = list(range(20))
    (found,) = record.leaks()
    assert "all processes" in found
    assert RESIDENT in OF_ALL
