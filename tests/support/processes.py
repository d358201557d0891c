"""Starts, watches and stops child processes of a test."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

__all__ = ["ChildProcess", "ProcessFailedError", "free_ports", "wait_until"]

STOP_GRACE_SECONDS: Final = 15.0
LOG_TAIL_LINES: Final = 25

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
"""Linux, prctl(2): the signal that a process gets when its parent dies."""


class ProcessFailedError(Exception):
    """A child process ended, or did not become ready; carries the end of its log."""


@final
class ChildProcess:
    """One child process with its output in a log file.

    Signals go to this process alone, by the handle that started it.
    """

    __slots__ = ("_process", "arguments", "environment", "log", "name")

    def __init__(
        self,
        name: str,
        arguments: Sequence[str | Path],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name: Final = name
        self.arguments: Final = tuple(str(argument) for argument in arguments)
        self.log: Final = log
        self.environment: Final = None if environment is None else dict(environment)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The id of the process that runs, or ran last."""
        return self._started.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """Exit code; negative for a signal, None while the process runs."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start it; its output is appended to the log."""
        if self.is_running:
            raise ProcessFailedError(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env=self.environment,
                preexec_fn=_end_with_parent,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that is gone already is fine."""
        with contextlib.suppress(ProcessLookupError):
            self._started.send_signal(number)

    async def wait(self, seconds: float) -> int:
        """Wait for its end and return how it ended.

        Raises:
            ProcessFailedError: it still runs when the time is over.
        """
        try:
            return await asyncio.wait_for(self._started.wait(), seconds)
        except TimeoutError as error:
            raise ProcessFailedError(
                f"{self.name} still runs after {seconds:.0f} s\n{self.log_tail()}",
            ) from error

    async def kill(self) -> None:
        """End it at once (SIGKILL) and wait until it is gone."""
        if self.is_running:
            self.signal(signal.SIGKILL)
            await self._started.wait()

    async def stop(self, grace_seconds: float = STOP_GRACE_SECONDS) -> None:
        """Ask it to end (SIGTERM); after the grace time it is killed."""
        if not self.is_running:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._started.wait(), grace_seconds)
        except TimeoutError:
            await self.kill()

    async def ready(self, check: Callable[[], Awaitable[bool]], *, seconds: float) -> None:
        """Wait until the check holds.

        Raises:
            ProcessFailedError: the process ended, or the time is over.
        """

        async def holds() -> bool:
            if not self.is_running:
                raise ProcessFailedError(
                    f"{self.name} ended with {self.exit_code} before it was ready\n"
                    f"{self.log_tail()}",
                )
            return await check()

        try:
            await wait_until(holds, seconds=seconds)
        except TimeoutError as error:
            raise ProcessFailedError(
                f"{self.name} was not ready within {seconds:.0f} s\n{self.log_tail()}",
            ) from error

    def log_text(self) -> str:
        """Return everything it has written so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self) -> str:
        """Return the last lines it has written, under its command line."""
        lines = self.log_text().splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"$ {' '.join(self.arguments)}", *lines])

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far, user and system (Linux)."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Return the memory it holds (Linux)."""
        return self._status_bytes("VmRSS")

    def peak_memory_bytes(self) -> int:
        """Return the most memory it ever held (Linux)."""
        return self._status_bytes("VmHWM")

    def open_files(self) -> int:
        """Return the number of its open file descriptors (Linux)."""
        return len(list((Path("/proc") / str(self.pid) / "fd").iterdir()))

    def _status_bytes(self, name: str) -> int:
        for line in self._proc("status").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise ProcessFailedError(f"{self.name} has no {name} in its status")

    def _proc(self, name: str) -> str:
        return (Path("/proc") / str(self.pid) / name).read_text()

    @property
    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ProcessFailedError(f"{self.name} was never started")
        return self._process


async def wait_until(
    check: Callable[[], Awaitable[bool]],
    *,
    seconds: float,
    interval_seconds: float = 0.1,
) -> None:
    """Ask again and again until the check holds.

    Raises:
        TimeoutError: it did not within the time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not await check():
        if loop.time() >= deadline:
            raise TimeoutError
        await asyncio.sleep(interval_seconds)


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _end_with_parent() -> None:
    """Ask Linux to end this child when the test's process dies, however it dies."""
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
