"""A process is killed at every await of a run; its successor recovers."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from tests.controllers.cluster_runs import (
    lose_launch_answers,
    replace_drifted_nodes,
    roll_back_without_capacity,
    run_cluster,
    watch_invariants,
)
from tests.controllers.gangs import run_gangs
from tests.controllers.test_gang_kills import (
    SIZE,
    given_up,
    launched_at_the_second_attempt,
    shared,
)
from tests.support.await_kills import AwaitTracker, point_text
from tests.support.drawn_faults import is_every, random_of_run
from tests.support.forked_runs import ForkedRuns

WITHOUT_ELECTION = "--disable-leader-election"
DOWN_SECONDS = 2.0
"""Pause between a kill and the next process."""


def run_gang(folder, story, begin):
    """Play the story of a gang, of which never more than its own nodes exist, each launched once."""

    async def whole(scene):
        counts = set()
        scene.cluster.server.registry.store.listen(
            NODE_CLAIMS, lambda _change: counts.add(len(scene.harness.claims()))
        )
        with watch_invariants(scene.harness) as watch:
            end = begin(scene.harness, watch)
            await story(scene)
            end()
        # The cloud announces that an instance has failed, so that its claim ends early.
        assert [each for each in watch.breaches if "given up" not in each] == []
        assert max(counts) <= SIZE, "a node was bought twice"
        assert set(scene.launches().values()) <= {1}

    run_gangs(folder, whole)


RUNS = {
    "renewed": (run_cluster, replace_drifted_nodes, 128),
    "refused": (run_cluster, roll_back_without_capacity, 140),
    "unanswered": (run_cluster, lose_launch_answers, 120),
    "gang launched": (run_gang, launched_at_the_second_attempt, 145),
    "gang given up": (run_gang, given_up, 115),
    "gang shared": (run_gang, shared, 128),
}
"""Each with the number of awaits that it reaches; fewer would mean that some are not seen."""


def awaits_of_run(folder, run, kills=lambda _point, _times: False):
    """Run a cluster; return the awaits that the process reached.

    `kills` tells whether the process dies at an await, given how often it was there.
    """
    kept = []

    def begin(scene, watch):
        awaits = AwaitTracker(kills=kills)
        kept.append(awaits)

        async def breath(op):
            """Let a process die between the server's answer and what it makes of it."""
            await watch.note_write(op)
            await asyncio.sleep(0)

        def start():
            return scene.start(WITHOUT_ELECTION, faults=breath)

        async def revive(running):
            await awaits.killed.wait()
            await running.kill()
            await scene.cluster.clock.sleep(DOWN_SECONDS)
            start()

        reviving = asyncio.create_task(revive(awaits.start(start)))

        def end():
            awaits.is_over = True
            reviving.cancel()

        return end

    play, story, _ = RUNS[run]
    play(folder, story, begin)
    return kept[0].seen


SHARES = 4 if is_every() else 2
"""The number of tests that share the kills of a run, so that they can run side by side."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.timeout(3600 if is_every() else 1800),
]
"""Warnings: what was about to begin when the process died."""


SEEN = {}
"""The awaits that each run reaches; they are the same each time."""


def awaits_of(folder, run):
    if run not in SEEN:
        SEEN[run] = awaits_of_run(folder / run, run)
    return SEEN[run]


def kills_of(folder, run, config):
    """Return awaits with the occurrences at which the process is killed.

    All are killed at each of them where all are asked for. Else every other await is, from the first or the second
    on, at its first or its last time. At an await that an earlier run reaches too, only that run is killed.
    """
    seen = dict(awaits_of(folder, run))
    for earlier in () if is_every() else RUNS:
        if earlier == run:
            break
        for point in awaits_of(folder, earlier):
            seen.pop(point, None)
    if is_every():
        return [(point, number) for point, times in seen.items() for number in range(1, times + 1)]
    rng = random_of_run(config, f"kills {run}")
    drawn = list(seen.items())[rng.randrange(2) :: 2]
    return [(point, rng.choice((1, times))) for point, times in drawn]


@pytest.mark.parametrize("run", RUNS)
def test_every_await_of_a_run_is_observed(tmp_path, run, capsys):
    """As many as ever, as often each time, so that an occurrence means one moment."""
    seen = awaits_of_run(tmp_path / "first", run)
    with capsys.disabled():
        print(f"\n{run}: {len(seen)} awaits, reached {seen.total()} times")  # noqa: T201
    assert len(seen) >= RUNS[run][2]
    assert list(seen.items()) == list(awaits_of_run(tmp_path / "second", run).items())


@pytest.mark.cluster_runs
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("run", RUNS)
def test_a_run_converges_after_a_kill_at_any_await(tmp_path, run, share, pytestconfig):
    """The run without a kill is continued by one child for each kill."""
    chosen = set(kills_of(tmp_path / "whole", run, pytestconfig)[share::SHARES])
    folder = tmp_path / "run"
    forks = ForkedRuns(folder)

    def kills(point, number):
        is_chosen = (point, number) in chosen and not forks.is_child
        return is_chosen and forks.fork(f"{number}. {point_text(point)}")

    forks.play(lambda: awaits_of_run(folder, run, kills))
    assert len(forks.names) == len(chosen), "the process did not reach all awaits again"
