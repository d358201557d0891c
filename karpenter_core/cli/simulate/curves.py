"""Computes replicas of Deployments over time, and start times of jobs."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.api.cron_schedule import CronSchedule
from karpenter_core.cli.simulate.workload import ReplicaChange

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from datetime import datetime

    from karpenter_core.cli.simulate.workload_models import DeploymentSpec, JobSpec, SineCurve

__all__ = ["replica_changes", "start_times"]


def replica_changes(
    given: DeploymentSpec, *, start: datetime, duration: float, rng: random.Random
) -> tuple[ReplicaChange, ...]:
    """Return the replicas of a Deployment over time, from 0 on; a repeated number is left out.

    At the same time a step wins over a cron step, and the later one in the file over the earlier one.
    """
    if given.sine is not None:
        changes = list(_sine(given.sine, duration, rng))
    else:
        changes = [ReplicaChange(0.0, given.replicas or 0)]
        for row in given.cron:
            changes += [
                ReplicaChange(at, row.replicas) for at in _cron(row.schedule, start, duration)
            ]
        changes += [ReplicaChange(row.at, row.replicas) for row in given.steps if row.at < duration]
    by_time = {change.at: change.replicas for change in changes}
    kept: list[ReplicaChange] = []
    for at, replicas in sorted(by_time.items()):
        if not kept or kept[-1].replicas != replicas:
            kept.append(ReplicaChange(at, replicas))
    return tuple(kept)


def start_times(given: JobSpec, *, start: datetime, duration: float) -> tuple[float, ...]:
    """Return the times at which the pods of a job arrive."""
    if given.cron is not None:
        return tuple(_cron(given.cron, start, duration))
    first = given.at or 0.0
    if first >= duration:
        return ()
    if given.every is None:
        return (first,)
    count = math.ceil((duration - first) / given.every)
    return tuple(first + number * given.every for number in range(count))


def _sine(curve: SineCurve, duration: float, rng: random.Random) -> Iterator[ReplicaChange]:
    middle, swing = (curve.low + curve.high) / 2, (curve.high - curve.low) / 2
    for number in range(math.ceil(duration / curve.every)):
        at = number * curve.every
        phase = 2 * math.pi * (at - curve.lowest_at) / curve.period
        level = middle - swing * math.cos(phase)
        if curve.noise:
            level += level * curve.noise * rng.uniform(-1, 1)
        yield ReplicaChange(at, min(max(round(level), curve.low), curve.high))


def _cron(schedule: str, start: datetime, duration: float) -> Iterator[float]:
    """Return the hits of a schedule from the start on, the start itself among them."""
    parsed = CronSchedule.parse(schedule)
    at = start - timedelta(seconds=1)
    while (hit := parsed.next_after(at)) is not None:
        seconds = (hit - start).total_seconds()
        if seconds >= duration:
            return
        yield seconds
        at = hit
