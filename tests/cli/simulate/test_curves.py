"""Replicas follow steps, schedules and curves."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from karpenter_core.cli.simulate.curves import replica_changes, start_times
from karpenter_core.cli.simulate.workload_models import DeploymentSpec, JobSpec

START = datetime(2030, 1, 1, tzinfo=UTC)
DAY = 86400.0


def changes(**fields):
    given = DeploymentSpec.model_validate({"name": "web", "cpu": "1", **fields})
    found = replica_changes(given, start=START, duration=DAY, rng=random.Random(0))
    return [(change.at / 3600, change.replicas) for change in found]


def starts(**fields):
    given = JobSpec.model_validate({"name": "job", "duration": "1m", **fields})
    return [at / 3600 for at in start_times(given, start=START, duration=DAY)]


def test_steps_follow_the_first_number():
    """Sorted by time; a number that does not change is no change."""
    steps = [{"at": "8h", "replicas": 5}, {"at": "2h", "replicas": 2}, {"at": "9h", "replicas": 5}]
    assert changes(replicas=2, steps=steps) == [(0, 2), (8, 5)]


def test_steps_after_the_end_are_left_out():
    """There is nothing to scale any more."""
    assert changes(replicas=1, steps=[{"at": "30h", "replicas": 9}]) == [(0, 1)]


def test_schedules_hold_from_each_of_their_times():
    """The beginning itself is one of them."""
    cron = [{"schedule": "0 0 * * *", "replicas": 3}, {"schedule": "0 12 * * *", "replicas": 7}]
    assert changes(replicas=1, cron=cron) == [(0, 3), (12, 7)]


def test_a_step_wins_over_a_schedule_at_its_time():
    """It is the more special of the two."""
    cron = [{"schedule": "0 12 * * *", "replicas": 7}]
    assert changes(replicas=1, cron=cron, steps=[{"at": "12h", "replicas": 2}])[-1] == (12, 2)


def test_a_curve_is_lowest_and_highest_at_its_times():
    """Half a period apart, between its bounds."""
    found = dict(changes(sine={"low": 10, "high": 50, "lowestAt": "4h", "every": "1h"}))
    assert found[4] == min(found.values()) == 10
    assert found[16] == max(found.values()) == 50


def test_noise_depends_on_the_seed_and_keeps_the_bounds():
    """Without it nothing is random."""
    curve = {"low": 10, "high": 50, "every": "1h"}
    plain, noisy = changes(sine=curve), changes(sine={**curve, "noise": 0.5})
    assert plain != noisy
    assert noisy == changes(sine={**curve, "noise": 0.5})
    assert all(10 <= replicas <= 50 for _, replicas in noisy)


def test_jobs_start_once_periodically_or_by_schedule():
    """Within the simulated time."""
    assert starts() == [0]
    assert starts(at="3h") == [3]
    assert starts(at="25h") == []
    assert starts(at="1h", every="8h") == [1, 9, 17]
    assert starts(cron="0 */12 * * *") == [0, 12]
