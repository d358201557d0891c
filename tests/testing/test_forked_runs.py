"""Forked runs have one fault each, report it, and leave the run as it was."""

from __future__ import annotations

import asyncio
import os
import sqlite3

import pytest

from karpenter_core.sim.virtual_time import run_virtual
from tests.support.forked_runs import ForkedRuns


@pytest.fixture
def forks(tmp_path):
    return ForkedRuns(tmp_path)


def play(forks, run):
    forks.play(lambda: run_virtual(run()))


def test_every_child_has_one_fault_and_plays_on_in_virtual_time(forks, tmp_path):
    async def run():
        faults = []
        for name in ("first", "second", "third"):
            await asyncio.sleep(60)
            if not forks.is_child and forks.fork(name):
                faults.append(name)
        await asyncio.sleep(60)
        assert faults == forks.names[-1:] if forks.is_child else not faults

    play(forks, run)
    assert forks.names == ["first", "second", "third"]


def test_only_drawn_faults_have_a_child(tmp_path):
    drawn = ForkedRuns(tmp_path, lambda number: number == 1)

    async def run():
        for name in ("first", "second", "third"):
            if not drawn.is_child and drawn.fork(name):
                raise ValueError(name)

    with pytest.raises(AssertionError, match=r"^second: "):
        play(drawn, run)
    assert drawn.names == ["first", "second", "third"]
    assert drawn.played == ["second"]


def test_the_error_of_a_child_fails_the_run_by_the_name_of_its_fault(forks):
    async def run():
        for name in ("harmless", "harmful"):
            if not forks.is_child and forks.fork(name) and name == "harmful":
                await asyncio.sleep(1)
                raise ValueError("the pod is lost")

    with pytest.raises(AssertionError, match=r"(?s)^harmful: .*the pod is lost"):
        play(forks, run)
    assert len(forks.failures) == 1


def test_an_error_that_python_cannot_raise_in_a_child_fails_the_run(forks):
    class Broken:
        def __del__(self):
            raise ValueError("lost on the way")

    async def run():
        if forks.fork("fault"):
            Broken()

    with pytest.raises(AssertionError, match="lost on the way"):
        play(forks, run)


def test_a_failing_child_process_ends_the_run(forks):
    async def run():
        if forks.fork("fault"):
            os._exit(7)

    with pytest.raises(ChildProcessError, match="fault: the process ended with 7"):
        play(forks, run)


def test_files_and_open_databases_are_as_before_when_a_child_has_ended(forks, tmp_path):
    database = sqlite3.connect(tmp_path / "store", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE calls (name TEXT)")
    (tmp_path / "faults").write_text("none")

    async def run():
        for name in ("one", "two"):
            if not forks.is_child and forks.fork(name):
                (tmp_path / "faults").write_text("changed")
                (tmp_path / "new").touch()
            database.execute("INSERT INTO calls VALUES (?)", [name])

    play(forks, run)
    assert database.execute("SELECT name FROM calls").fetchall() == [("one",), ("two",)]
    database.close()
    assert (tmp_path / "faults").read_text() == "none"
    assert not (tmp_path / "new").exists()
