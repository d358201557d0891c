"""Lets one cluster live for weeks of simulated time, with random faults, and looks for leaks.

Users, cloud and API server behave as in a random history (tests.controllers.histories), and every
invariant is checked at every change. At even intervals all faults are ended and all pods leave;
the cluster has to shrink to nothing. Then everything that the process holds is counted: memory,
tasks, open files, metric series, and the items of every container of every object. In the first
part controllers are killed as well; after it one process lives until the end. A count that rises
steadily is a leak: by the test of Mann and Kendall, and by more than a few items (tests.support.trends).

    .venv/bin/python -m tests.controllers.soak                           two weeks, the form of CI
    .venv/bin/python -m tests.controllers.soak --days 56 --actions 40    eight weeks of dense faults

With `--plant` every launch leaves its claim's name behind, which has to be found. Sets are ordered by
hashes, and what happens depends a little on it: PYTHONHASHSEED plays the same run again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from karpenter_core.controllers.disruption import controller as disruption
from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
from karpenter_core.controllers.observability import cluster as observability
from karpenter_core.controllers.provisioning import provisioner
from karpenter_core.kube.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS
from tests.controllers.histories import COLLECTED_AT, History, breaches_of
from tests.controllers.whole_controller import NODE_CLASS
from tests.support.object_sizes import (
    count_held,
    count_open_files,
    count_series,
    count_tasks,
    settled_memory,
)
from tests.support.small_bounds import small_bounds
from tests.support.trends import trend_of

CHECKPOINTS_PER_DAY = 2
DAY_SECONDS = 86400.0
ACTIONS = 6
"""Faults and changes between two checkpoints: CI has minutes for two weeks."""
KILLING_SHARE = 0.3
"""The part of the time in which controllers are killed."""
WARM_UP_SHARE = 0.5
"""The part of the time, and of the last process' life, in which caches may fill."""
QUIET_SECONDS = 3 * 3600.0
"""Time without pods before a count: longer than the lives of what is kept for a while."""
DEPLOYMENTS_AT_ONCE = 6
HISTORY_SIZE = 500
"""Changes that the API server keeps: few, so that it is full from the first day on."""
LEAST_RISE = 25.0
"""Items by which a count has to rise to be a leak: an item for each tenth node that comes and goes.

What is compiled for the pools as they are edited rises by ten and falls again."""
LEAST_HANDLES = 5.0
"""Tasks or open files by which their number has to rise."""
LEAST_BLOCKS = 200_000
"""The API server's history alone holds that many, more or fewer with what happened last."""
LEAST_SERIES = 40.0
"""Series by which a metric has to rise: a rare error is the first of its kind on any day."""
LEAST_SHARE = 0.5
"""Part of the first value by which a count of items has to rise."""
LEAST_SHARE_OF_ALL = 0.05
"""The same of memory, tasks and files."""
LEAST_BYTES = 24 * 2**20
"""Rise of resident memory that may be fragmentation: the API server's objects are in it too."""
SLOW_LOOPS = (
    (disruption, "PERIOD_SECONDS", 60.0),
    (observability, "PERIOD_SECONDS", 60.0),
    (provisioner, "RETRY_SECONDS", 60.0),
)
"""Loops that look again without a cause: two weeks have 20,000 rounds of a minute, enough for any leak."""
PLANTED = "karpenter_planted"
OF_BOUNDED_CACHES = ("KwokFault",)
"""Classes of which functions with a bounded cache keep instances."""
RESIDENT = "resident bytes"
BLOCKS = "memory blocks"
"""Live blocks of Python's allocator, which do not depend on fragmentation."""
TASKS = "tasks"
FILES = "open files"
OF_ALL = (RESIDENT, BLOCKS, TASKS, FILES)
"""Counts that may not grow from one process to the next either."""


@dataclass(slots=True)
class SoakRecord:
    """Counts of the checkpoints, each with the number of processes started until then."""

    counts: list[Counter] = field(default_factory=list)
    lives: list[int] = field(default_factory=list)
    actions: Counter = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """CPU time."""

    def last_life(self):
        """Return the counts of the last process, without its warm-up."""
        own = [c for c, life in zip(self.counts, self.lives, strict=True) if life == self.lives[-1]]
        return own[round(WARM_UP_SHARE * len(own)) :]

    def leaks(self):
        """Describe each count that rises steadily."""
        warm = self.counts[round(WARM_UP_SHARE * len(self.counts)) :]
        of_all = [Counter({name: each[name] for name in OF_ALL}) for each in warm]
        return [
            *leaks_in(self.last_life()),
            *(f"{each} (all processes)" for each in leaks_in(of_all)),
        ]


def leaks_in(counts):
    """Describe the counts that rise steadily."""
    found = []
    for name in sorted(set().union(*counts)):
        if name.partition(".")[0] in OF_BOUNDED_CACHES:
            continue
        trend = trend_of([each[name] for each in counts])
        share = LEAST_SHARE_OF_ALL if name in OF_ALL else LEAST_SHARE
        if trend.exceeds(rise=_least_rise(name), share=share):
            found.append(
                f"{name} grows: {trend.first:.0f} -> {trend.last:.0f}, {trend.slope:.2f} from one "
                f"checkpoint to the next, p = {trend.p_value:.1g}"
            )
    return found


def _least_rise(name):
    if name in {RESIDENT, BLOCKS}:
        return LEAST_BYTES if name == RESIDENT else LEAST_BLOCKS
    if name in {TASKS, FILES}:
        return LEAST_HANDLES
    return LEAST_SERIES if name.startswith("series ") else LEAST_RISE


class Soak(History):
    """One cluster that lives for weeks."""

    look_seconds = 120.0

    def __init__(self, *arguments, days, actions, record, **options):
        super().__init__(*arguments, **options)
        self.record = record
        self._days, self._actions = days, actions
        self._lives = 0

    def begin(self):
        self.cluster.apply([NODE_CLASS, *map(self._pool, ("general", "spare", "batch"))])
        self.arguments = [
            "--disable-leader-election",  # a renewal every two seconds: real time is for that
            "--feature-gates=SpotToSpotConsolidation=true",
            "--kwok-launch-latency=2s",
            "--kwok-registration-delay=5s",
            "--kwok-termination-delay=5s",
        ]
        self.injected_faults.begin()
        self.start()

    def start(self):
        if PLANTED in sys.modules:  # a leak ends with its process
            sys.modules[PLANTED].LAUNCHES.clear()
        super().start()
        self._lives += 1

    def deploy(self):
        """Add a Deployment in the place of the oldest one."""
        names = self._names(DEPLOYMENTS)
        if len(names) >= DEPLOYMENTS_AT_ONCE:
            self.cluster.delete(DEPLOYMENTS, names[0], namespace="default")
        super().deploy()

    async def unfold(self):
        self.begin()
        doings = self.doings()
        checkpoints = round(self._days * CHECKPOINTS_PER_DAY)
        for number in range(checkpoints):
            due = self.clock.monotonic() + DAY_SECONDS / CHECKPOINTS_PER_DAY
            if number >= KILLING_SHARE * checkpoints:
                doings.pop(self.kill, None)
                doings.pop(self.restart, None)
            self.rebudget()
            while len(self._names(DEPLOYMENTS)) < DEPLOYMENTS_AT_ONCE // 2:
                self.deploy()
            busy = (due - QUIET_SECONDS - self.clock.monotonic()) / 2
            for _ in range(self._actions):
                await self._pass(2 * busy / self._actions * self.rng.random())
                await self.act(doings)
            await self.come_to_rest()
            self._clear_away()
            await self._pass(max(QUIET_SECONDS, due - self.clock.monotonic()))
            self._count()

    def _clear_away(self):
        """Delete everything of the users but the NodePools."""
        for kind in (DEPLOYMENTS, POD_DISRUPTION_BUDGETS):
            for name in self._names(kind):
                self.cluster.delete(kind, name, namespace="default")

    def _count(self):
        counts = count_held()
        counts.update(count_series(self.running.process.metrics.registry))
        counts.update({TASKS: count_tasks(), FILES: count_open_files(), RESIDENT: settled_memory()})
        counts[BLOCKS] = sys.getallocatedblocks()
        self.record.counts.append(counts)
        self.record.lives.append(self._lives)
        self._show(", ".join(f"{name} {counts[name]}" for name in OF_ALL))


def soak(folder, *, days=14.0, actions=ACTIONS, seed=0, verbose=False):
    """Let a cluster live, and return the record."""
    record = SoakRecord()
    began = time.process_time()
    with small_bounds(), slow_loops():
        record.breaches = breaches_of(
            seed,
            folder,
            verbose=verbose,
            events_counted=record.actions,
            make=partial(Soak, days=days, actions=actions, record=record),
            history_size=HISTORY_SIZE,
        )
    record.seconds = time.process_time() - began
    return record


@contextlib.contextmanager
def slow_loops():
    """Let loops that look again without a cause do so once a minute."""
    with contextlib.ExitStack() as stack:
        for module, name, period in SLOW_LOOPS:
            assert getattr(module, name) < period, f"{module.__name__}.{name}"
            stack.enter_context(patch.object(module, name, period))
        yield


@contextlib.contextmanager
def planted_leak():
    """Keep the name of every claim that an instance is launched for."""
    planted = ModuleType(PLANTED)
    planted.LAUNCHES = []
    launch = InstanceLauncher.launch

    async def leaky_launch(self, claim, *arguments, **options):
        planted.LAUNCHES.append(claim.name)
        return await launch(self, claim, *arguments, **options)

    with (
        patch.dict(sys.modules, {PLANTED: planted}),
        patch.object(InstanceLauncher, "launch", leaky_launch),
    ):
        yield


def summary_of(record):
    """Return the findings, and how much was looked at, as JSON."""
    return {
        "breaches": record.breaches,
        "leaks": record.leaks(),
        "checkpoints": len(record.counts),
        "of the last process": len(record.last_life()),
        "processes": record.lives[-1],
        "counts": len(record.counts[-1]),
        "happened": record.actions,
        "cpu_seconds": record.seconds,
    }


def main():
    """Let a cluster live, print what was found; the exit code is 1 when anything leaks or broke."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=float, default=14.0, help="simulated days")
    parser.add_argument("--actions", type=int, default=ACTIONS, help="between two checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="tell and log what happens")
    parser.add_argument("--plant", action="store_true", help="plant a leak")
    parser.add_argument(
        "--json", action="store_true", help="print the findings as JSON, exit with 0"
    )
    options = vars(parser.parse_args())
    gc.set_threshold(*COLLECTED_AT)
    is_json, is_planted = options.pop("json"), options.pop("plant")
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        planted_leak() if is_planted else contextlib.nullcontext(),
    ):
        record = soak(Path(folder), **options)
    if is_json:
        print(json.dumps(summary_of(record)))  # noqa: T201
        return
    for name in OF_ALL:
        trend = trend_of([each[name] for each in record.last_life()])
        print(f"{name:16} {trend.first:12.0f} -> {trend.last:12.0f}   p {trend.p_value:.2f}")  # noqa: T201
    print(f"{len(record.counts)} checkpoints, {record.lives[-1]} processes, "  # noqa: T201
          f"{len(record.counts[-1])} counts, {record.seconds:.0f} s of CPU")  # fmt: skip
    print(f"what happened: {dict(sorted(record.actions.items()))}")  # noqa: T201
    wrong = [*record.breaches, *record.leaks()]
    print(*(wrong or ["nothing leaks, nothing broke"]), sep="\n")  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
