"""A few random histories; `tests.controllers.histories` plays any number."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.disruption.emptiness import EmptinessMethod
from tests.controllers.histories import History, breaches_of
from tests.controllers.whole_controller import deployment
from tests.support.drawn_faults import drawn_runs

HISTORIES = 20
EACH = 5
"""One of so many seeds is played in a run of the tests."""


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, HISTORIES, EACH))
def test_nothing_is_broken_at_any_time_of_a_random_history(tmp_path, first, pytestconfig):
    seeds = range(first, min(first + EACH, HISTORIES))
    for seed, folder in drawn_runs(pytestconfig, "history", seeds, tmp_path):
        assert breaches_of(seed, folder) == []


def test_an_error_in_an_unawaited_task_is_a_breach(tmp_path, monkeypatch):
    async def unfold(_history):
        async def fail():
            raise ValueError("nobody awaits this")

        asyncio.create_task(fail())  # noqa: RUF006 - nobody is to hold it
        await asyncio.sleep(1)

    monkeypatch.setattr(History, "unfold", unfold)
    (breach,) = breaches_of(0, tmp_path)
    assert breach == "Task exception was never retrieved: ValueError('nobody awaits this')"


def test_a_decision_that_fails_is_a_breach(tmp_path, monkeypatch):
    """Its object is left out of a pass and the rest goes on, so nothing else shows it."""

    async def unfold(history):
        history.begin()
        history.cluster.apply([deployment("judged", 1)])
        await history.clock.sleep(120)

    def fail(*_):
        raise ValueError("no acceptance")

    monkeypatch.setattr(History, "unfold", unfold)
    monkeypatch.setattr(EmptinessMethod, "accept", fail)
    breaches = breaches_of(0, tmp_path)
    assert any("judgement failed: skipped in emptiness" in each for each in breaches)
    assert any(each.startswith("emptiness: ValueError: no acceptance") for each in breaches)
