"""A process is killed at every await of a life; its successor recovers."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.controllers.lives import live, refused, renewed, unanswered
from tests.support.await_kills import AwaitTracker, point_text

WITHOUT_ELECTION = "--disable-leader-election"
DOWN_SECONDS = 2.0
"""Pause between a kill and the next process."""
LIVES = {"renewed": (renewed, 128), "refused": (refused, 140), "unanswered": (unanswered, 120)}
"""Each with how many awaits it has come by; fewer would mean that some are not seen."""


def lived(folder, life, **kill):
    """Live a life, killed where that is wanted; return the awaits that were come by."""
    kept = []

    def begin(scene, watch):
        awaits = AwaitTracker(**kill)
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

    live(folder, LIVES[life][0], begin)
    assert kept[0].is_dead == bool(kill), "the process did not reach this await again"
    return kept[0].seen


SHARES = 12
"""Into how many tests the kills of a life are split, so that they can run side by side."""
EVERY = "KARPENTER_EVERY_KILL"
"""Set it to kill at every occurrence of every await, not only at its first and its last."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.timeout(3600 if os.environ.get(EVERY) else 1800),
]
"""Warnings: what was about to begin when the process died."""


SEEN = {}
"""The awaits that each life comes by; they are the same each time."""


def awaits_of(folder, life):
    if life not in SEEN:
        SEEN[life] = lived(folder / life, life)
    return SEEN[life]


def kills(folder, life):
    """Each await with the occurrences at which the process is killed.

    Awaits that an earlier life has come by as well are killed there alone.
    """
    seen = dict(awaits_of(folder, life))
    for earlier in () if os.environ.get(EVERY) else LIVES:
        if earlier == life:
            break
        for point in awaits_of(folder, earlier):
            seen.pop(point, None)
    for point, times in seen.items():
        chosen = range(1, times + 1) if os.environ.get(EVERY) else sorted({1, times})
        yield from ({"kill_at": point, "occurrence": number} for number in chosen)


@pytest.mark.parametrize("life", LIVES)
def test_every_await_of_a_run_is_observed(tmp_path, life, capsys):
    """As many as ever, as often each time, so that an occurrence means one moment."""
    seen = lived(tmp_path / "first", life)
    with capsys.disabled():
        print(f"\n{life}: {len(seen)} awaits, come by {seen.total()} times")  # noqa: T201
    assert len(seen) >= LIVES[life][1]
    assert list(seen.items()) == list(lived(tmp_path / "second", life).items())


@pytest.mark.lives
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("life", LIVES)
def test_a_run_converges_after_a_kill_at_any_await(tmp_path, life, share):
    failed = []
    for number, kill in enumerate([*kills(tmp_path / "whole", life)][share::SHARES]):
        try:
            lived(tmp_path / str(number), life, **kill)
        except Exception as error:
            failed.append(f"{kill['occurrence']}. {point_text(kill['kill_at'])}: {error!r}")
    assert failed == []
