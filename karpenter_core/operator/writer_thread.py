"""Writes items in a thread of its own: one that hangs blocks nothing else."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WriterThread"]

_T = TypeVar("_T")

CLOSE_SECONDS: Final = 2.0
"""The longest time that the end of the process waits for the last items, and for their turn."""


@final
class _End:
    """The last item of a queue."""


@final
class WriterThread(Generic[_T]):
    """Calls `write` for each item, in order; items that find the queue full are lost."""

    def __init__(self, name: str, write: Callable[[_T], None], *, size: int) -> None:
        """`write` runs in the thread `name` and never raises; `size` is that of the queue."""
        self._write: Final = write
        self._queue: Final = queue.Queue[_T | _End](size)
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start to write queued items."""
        self._thread.start()

    def put(self, item: _T) -> bool:
        """Write an item soon, without waiting; False if it is lost."""
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            return False
        return True

    def close(self) -> bool:
        """Write queued items, for a short time at most; tell whether all that began has ended."""
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._queue.put(_End(), timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not isinstance(item := self._queue.get(), _End):
            self._write(item)
