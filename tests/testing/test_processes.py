"""Child processes report readiness, their end and failures."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import ChildProcess, ProcessFailedError, free_ports

if TYPE_CHECKING:
    from pathlib import Path

WAIT = "import signal; print('up', flush=True); signal.pause()"


def child(folder: Path, program: str) -> ChildProcess:
    return ChildProcess("child", [sys.executable, "-c", program], log=folder / "child.log")


async def test_runs_until_it_is_stopped(tmp_path: Path):
    """Ready by its own words, ended by SIGTERM."""
    process = child(tmp_path, WAIT)

    async def said_up() -> bool:
        return "up" in process.log_text()

    await process.start()
    await process.ready(said_up, seconds=20)
    assert process.is_running
    assert process.peak_memory_bytes() > 0
    assert process.cpu_seconds() >= 0
    await process.stop()

    assert process.exit_code == -signal.SIGTERM


async def test_stop_ends_a_process_that_is_suspended(tmp_path: Path):
    """A stopped process gets its SIGTERM only after it goes on."""
    process = child(tmp_path, WAIT)
    await process.start()
    process.signal(signal.SIGSTOP)

    await process.stop()

    assert not process.is_running


async def test_starts_again_after_a_kill(tmp_path: Path):
    """With the same arguments and the same log."""
    process = child(tmp_path, WAIT)
    await process.start()
    first = process.pid
    await process.kill()
    assert process.exit_code == -signal.SIGKILL

    await process.start()

    assert process.pid != first
    await process.kill()


async def test_an_early_end_is_reported_with_the_log(tmp_path: Path):
    """Not as a time-out after a minute of waiting."""
    process = child(tmp_path, "import sys; print('no such flag'); sys.exit(3)")

    async def never() -> bool:
        return False

    await process.start()
    with pytest.raises(ProcessFailedError, match=r"ended with 3(.|\n)*no such flag"):
        await process.ready(never, seconds=20)


async def test_missing_readiness_is_a_failure(tmp_path: Path):
    """Both the readiness that does not come and the end that does not."""
    process = child(tmp_path, WAIT)

    async def never() -> bool:
        return False

    await process.start()
    with pytest.raises(ProcessFailedError, match="not ready within"):
        await process.ready(never, seconds=0.1)
    with pytest.raises(ProcessFailedError, match="still runs"):
        await process.wait(0.1)
    await process.kill()


def test_free_ports_are_different():
    """Several servers of one test must not meet."""
    assert len(set(free_ports(20))) == 20
