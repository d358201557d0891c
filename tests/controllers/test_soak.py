"""Two weeks of a cluster leave nothing behind; `tests.controllers.soak` plays any time."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.controllers.soak import CHECKPOINTS_PER_DAY, OF_ALL, RESIDENT, SoakRecord, soak

DAYS = 14


@pytest.mark.cluster_runs
@pytest.mark.skipif(
    "KARPENTER_SOAK" not in os.environ,
    reason="KARPENTER_SOAK is not set: counts of one seed differ from run to run, and so the verdict",
)
@pytest.mark.timeout(3000)
def test_two_weeks_of_churn_and_faults_leak_nothing(tmp_path):
    record = soak(tmp_path, days=DAYS)
    assert record.breaches == []
    assert record.leaks() == []
    assert len(record.counts) == DAYS * CHECKPOINTS_PER_DAY
    assert len(record.counts[-1]) > 500, "caches, tables, queues and series are counted"
    assert record.lives[-1] > 1
    assert len(record.last_life()) >= 8


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
