"""Worker threads of the event loop that do not hold up the process's end.

A lookup of a host name takes as long as the resolver waits for name servers that do not answer: 40 s with the
search domains of a pod. Nothing can interrupt it, and Python waits for such threads before it ends. A leader
that has lost its lease, or a process that was asked to end, would answer nobody meanwhile, and its
successor in the pod would start late. The same is true for a call that a plug-in makes in a thread pool of
its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["WorkerThreads"]

_POOL_FILE: Final = concurrent.futures.thread.__file__
_POLL_SECONDS: Final = 0.02


@final
class WorkerThreads:
    """The threads that start from now on; the running event loop works in a pool of them."""

    def __init__(self) -> None:
        self._others: Final = frozenset(threading.enumerate())
        self._pool: Final = ThreadPoolExecutor(thread_name_prefix="asyncio")
        asyncio.get_running_loop().set_default_executor(self._pool)

    async def end(self, *, within_seconds: float) -> tuple[str, ...]:
        """End idle threads, and return the names of those that Python would wait for after this time."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        loop = asyncio.get_running_loop()
        until = loop.time() + within_seconds
        while (names := self._working()) and loop.time() < until:  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(_POLL_SECONDS)
        return names

    def _working(self) -> tuple[str, ...]:
        started = [each for each in threading.enumerate() if each not in self._others]
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented
        return tuple(
            each.name
            for each in started
            if not each.daemon or _works_in_pool(frames.get(each.ident or 0))
        )


def _works_in_pool(frame: FrameType | None) -> bool:
    """Tell whether a thread runs a call of a thread pool: Python waits for it, even if it is a daemon.

    An idle thread of a pool ends with the interpreter; its innermost frame is the pool's own.
    """
    if frame is None or _is_of_pool(frame):
        return False
    while frame := frame.f_back:
        if _is_of_pool(frame):
            return True
    return False


def _is_of_pool(frame: FrameType) -> bool:
    return frame.f_code.co_filename == _POOL_FILE and frame.f_code.co_name == "_worker"
