"""Finds calls that block the event loop, and threads and processes left."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Sequence

__all__ = [
    "BlockedLoop",
    "child_processes",
    "left_processes",
    "left_threads",
    "watch_loop",
    "watch_threads",
]

_BLOCKING_EVENTS: Final = frozenset({"time.sleep", "socket.connect", "socket.getaddrinfo"})
_HEARTBEAT_SECONDS: Final = 0.05
_LONGEST_GAP_SECONDS: Final = 1.0
_ENDING_SECONDS: Final = 2.0
"""Time that threads and processes have to end after karpenter_stop."""
_PAUSE_SECONDS: Final = 0.02
_ENDED: Final = frozenset({"Z", "X"})
"""States of processes that have ended and were not waited for."""
_HOOK_THREADS: Final = "provider-"
"""Beginning of the names of the threads in which the host runs hooks."""


@dataclass(slots=True)
class BlockedLoop:
    """The blocking calls that were made on the event loop, by the hook that was called."""

    thread: int = field(default_factory=threading.get_ident)
    hook: str = ""
    """The hook that is called now."""
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Hook, and name of the blocking function."""

    async def call(self, hook: str, function: Callable[[], Awaitable[object]]) -> None:
        """Call a hook through the façade, and note what blocks the loop meanwhile."""
        self.hook = hook
        await function()
        await asyncio.sleep(2 * _HEARTBEAT_SECONDS)  # a gap is noted after it


_WATCHED: Final[list[BlockedLoop]] = []
_INSTALLED: Final[list[bool]] = []


@asynccontextmanager
async def watch_loop() -> AsyncGenerator[BlockedLoop, None]:
    """Note what blocks the running event loop while the context is open."""
    if not _INSTALLED:  # audit hooks stay for the life of the process
        _INSTALLED.append(True)
        sys.addaudithook(_note)
    loop = BlockedLoop()
    heartbeat = asyncio.create_task(_note_gaps(loop))
    _WATCHED.append(loop)
    try:
        yield loop
    finally:
        _WATCHED.remove(loop)
        heartbeat.cancel()


async def _note_gaps(loop: BlockedLoop) -> None:
    """Note when the loop did not run for long; Python 3.11 has no audit event for `time.sleep`."""
    while True:
        at = time.monotonic()
        await asyncio.sleep(_HEARTBEAT_SECONDS)
        seconds = time.monotonic() - at
        if seconds >= _LONGEST_GAP_SECONDS:
            loop.calls.append((loop.hook, f"something that takes {seconds:.1f} s"))


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if not _WATCHED or event not in _BLOCKING_EVENTS:
        return
    if event == "socket.connect" and _is_non_blocking(arguments[0]):
        return
    thread = threading.get_ident()
    for loop in _WATCHED:
        if loop.thread == thread:
            loop.calls.append((loop.hook, event))


def _is_non_blocking(connection: object) -> bool:
    """Tell whether a socket never waits, as those of asyncio."""
    return getattr(connection, "gettimeout", lambda: None)() == 0


@contextmanager
def watch_threads() -> Generator[list[threading.Thread], None, None]:
    """Note the threads that hooks start while the context is open, and those that these threads start.

    Python 3.11 has no audit event for it.
    """
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def noting(self: threading.Thread) -> None:
        starter = threading.current_thread()
        if starter.name.startswith(_HOOK_THREADS) or starter in started:
            started.append(self)
        start(self)

    threading.Thread.start = noting
    try:
        yield started
    finally:
        threading.Thread.start = start


def left_threads(started: Sequence[threading.Thread]) -> list[str]:
    """Return the names of threads that go on once they had time to end."""
    until = time.monotonic() + _ENDING_SECONDS
    while (names := sorted(each.name for each in started if each.is_alive())) and (
        time.monotonic() < until
    ):
        time.sleep(_PAUSE_SECONDS)
    return names


def left_processes(before: Collection[int]) -> list[str]:
    """Return the command lines of later children of this process, once they had time to end."""
    until = time.monotonic() + _ENDING_SECONDS
    while (left := child_processes() - set(before)) and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
    return sorted(_command(pid) for pid in left)


def child_processes() -> frozenset[int]:
    """Return the ids of the running children of this process; none on systems without /proc."""
    me = str(os.getpid())
    found: set[int] = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        state, parent = (*_text(file).rpartition(")")[2].split(), "", "")[:2]
        if parent == me and state not in _ENDED:
            found.add(int(file.parent.name))
    return frozenset(found)


def _command(pid: int) -> str:
    return _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ").strip() or str(pid)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
