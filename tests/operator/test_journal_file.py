"""The journal's file has whole lines and a size limit, and blocks no caller."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import UTC, datetime

import pytest
import structlog
from structlog.testing import capture_logs

from karpenter_core.api.decisions import Decision
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.operator import journal_file, writer_thread
from karpenter_core.operator.journal_file import JournalFile


def decision(number):
    return Decision(
        id=f"decision-{number}",
        cause="test",
        kind="disrupt",
        at=datetime(2030, 1, 1, tzinfo=UTC),
        summary="x" * 100,
    )


@pytest.fixture(autouse=True)
def logging():
    """Log everything, whatever tests before this one have configured."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def opened(tmp_path, metrics):
    """Return a function that writes decisions to a file and closes it."""

    def write(*numbers, path=None, max_bytes=10**6):
        file = JournalFile(
            path or tmp_path / "journal.jsonl",
            max_bytes=max_bytes,
            lost=metrics.decision_journal_lost,
        )
        file.start()
        for number in numbers:
            file.write(decision(number))
        file.close()

    return write


def lost(metrics, reason):
    return metrics.registry.get_sample_value(
        "karpenter_decision_journal_lost_total", {"reason": reason}
    )


def ids(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_decisions_are_appended_line_by_line(opened, tmp_path):
    """A second process goes on where the first one ended."""
    opened(1, 2)
    opened(3)

    assert ids(tmp_path / "journal.jsonl") == ["decision-1", "decision-2", "decision-3"]


def test_the_file_is_bounded(opened, tmp_path):
    """One file before it is kept; nothing is lost at the change."""
    opened(*range(40), max_bytes=4_000)

    now, before = tmp_path / "journal.jsonl", tmp_path / "journal.jsonl.1"
    assert sorted(path.name for path in tmp_path.iterdir()) == [now.name, before.name]
    assert max(now.stat().st_size, before.stat().st_size) <= 4_000
    kept = [*ids(before), *ids(now)]
    assert kept == [f"decision-{n}" for n in range(40)][-len(kept) :]


def test_unwritable_file_is_counted_and_logged_once(opened, metrics, tmp_path):
    """For any number of decisions."""
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        opened(1, 2, 3, path=tmp_path / "file" / "journal.jsonl")

    assert lost(metrics, "write_failed") == 3
    assert [line["log_level"] for line in logs] == ["error"]


def test_after_a_full_disk_lines_are_whole_again(opened, metrics, tmp_path, monkeypatch):
    """The partial line is ended, and later lines follow."""
    write, failed = os.write, []

    def half(file, data):
        if b"decision-2" in data and not failed:
            failed.append(write(file, data[:20]))
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(journal_file.os, "write", half)
    with capture_logs() as logs:
        opened(1, 2, 3)

    first, broken, third = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert json.loads(first)["id"] == "decision-1"
    assert len(broken) == 20
    assert json.loads(third)["id"] == "decision-3"
    assert lost(metrics, "write_failed") == 1
    assert [line["log_level"] for line in logs] == ["error", "info"]


def test_a_hanging_disk_blocks_no_caller(metrics, tmp_path, monkeypatch):
    """Entries wait, then are lost; `write` and `close` come back."""
    released = threading.Event()
    monkeypatch.setattr(journal_file.os, "write", lambda _file, data: released.wait() and len(data))
    monkeypatch.setattr(writer_thread, "CLOSE_SECONDS", 0.01)
    file = JournalFile(
        tmp_path / "journal.jsonl", max_bytes=10**6, lost=metrics.decision_journal_lost
    )
    file.start()
    for number in range(journal_file.QUEUE_SIZE + 10):
        file.write(decision(number))
    file.close()
    released.set()

    assert lost(metrics, "queue_full") >= 9


def test_a_file_that_cannot_be_moved_keeps_its_limit_and_is_reported_once(
    opened, metrics, tmp_path, monkeypatch
):
    """As one that is mounted by itself: what does not fit is lost, and counted."""

    def refuse(*_):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(type(tmp_path), "replace", refuse)
    with capture_logs() as logs:
        opened(*range(10), max_bytes=1_000)

    assert (tmp_path / "journal.jsonl").stat().st_size <= 1_000
    assert lost(metrics, "write_failed") + len(ids(tmp_path / "journal.jsonl")) == 10
    assert [line["log_level"] for line in logs] == ["error"]


def test_a_file_above_its_limit_is_moved_before_the_first_line(opened, tmp_path):
    """As after a start with a lower limit."""
    opened(*range(10))
    opened(10, max_bytes=1_000)

    assert ids(tmp_path / "journal.jsonl") == ["decision-10"]


def test_a_pipe_is_never_moved(opened, tmp_path):
    """Nor is /dev/stdout: there is no file that would grow."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        opened(*range(10), path=pipe, max_bytes=1_000)
        lines = os.read(reader, 10**6).splitlines()
    finally:
        os.close(reader)

    assert [json.loads(line)["id"] for line in lines] == [f"decision-{n}" for n in range(10)]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("moved", [True, False])
def test_a_file_that_others_move_or_remove_is_made_anew(metrics, tmp_path, moved):
    """Decisions would otherwise go to a file that nobody finds."""
    path = tmp_path / "logs" / "journal.jsonl"
    file = JournalFile(path, max_bytes=10**6, lost=metrics.decision_journal_lost)
    file._write_now(decision(1))
    if moved:
        path.rename(tmp_path / "rotated")
    else:
        shutil.rmtree(path.parent)
    file._write_now(decision(2))
    file._close_file()

    assert ids(path) == ["decision-2"]
