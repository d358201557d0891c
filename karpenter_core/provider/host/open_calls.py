"""Keeps a hook's open calls: equal items share a call, overdue ones wait.

An item is open from the moment it is added until its outcome is known, however long that takes. The
same item added meanwhile joins it; once the time limit has passed, who adds it gets CallPendingError
and it is not sent again. An outcome that no caller waits for any more goes to `on_late`.

The owner makes the calls: it opens an item, starts the call of those that are new, now or later, and
waits for the outcome.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import structlog

from karpenter_core.errors import CallPendingError, CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
    from datetime import timedelta

    from karpenter_core.provider.host.timed_calls import TimedCalls

__all__ = ["OpenCalls", "OpenItem"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@final
@dataclass(slots=True, eq=False)
class OpenItem(Generic[Item, Result]):
    """An item that is waiting or sent, and how many wait for it."""

    item: Item
    identity: Hashable
    answer: asyncio.Future[Result]
    waiters: int = 0
    sent: bool = False
    overdue: bool = False


@final
class OpenCalls(Generic[Item, Result]):
    """The open items of one hook, each once under its identity."""

    def __init__(
        self,
        *,
        what: str,
        limit: timedelta,
        calls: TimedCalls,
        on_late: Callable[[Item, Result | BaseException], None] | None = None,
    ) -> None:
        self._what: Final = what
        self._limit: Final = limit
        self._calls: Final = calls
        self._on_late: Final = on_late
        self._open: Final[dict[Hashable, OpenItem[Item, Result]]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    @property
    def count(self) -> int:
        """Number of items without an outcome."""
        return len(self._open)

    def open(self, item: Item, identity: Hashable) -> tuple[OpenItem[Item, Result], bool]:
        """Return the open item of this identity, and whether it is new: then it must be started.

        Raises:
            CallPendingError: its call has passed the time limit.
        """
        entry = self._open.get(identity)
        if entry is None:
            entry = self._open[identity] = OpenItem[Item, Result](
                item, identity, asyncio.get_running_loop().create_future()
            )
            return entry, True
        if entry.overdue:
            raise CallPendingError(f"{self._what} is still open from an earlier call")
        return entry, False

    async def wait(self, entry: OpenItem[Item, Result]) -> Result:
        """Wait for an item's outcome.

        Raises:
            KarpenterError: the whole call failed; CallPendingError when it is only late.
        """
        entry.waiters += 1
        try:
            return await asyncio.shield(entry.answer)
        finally:
            entry.waiters -= 1

    def forget(self, entry: OpenItem[Item, Result]) -> None:
        """Treat an item that was not sent as if it had never been added."""
        del self._open[entry.identity]

    def start(
        self,
        entries: Sequence[OpenItem[Item, Result]],
        call: Callable[[], Awaitable[Sequence[Result]]],
    ) -> asyncio.Task[None]:
        """Make one call for items, which count as sent, and give each its outcome."""
        for entry in entries:
            entry.sent = True

        def cancel(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # perhaps before it began: the call may go on or never be made
                for entry in entries:
                    entry.overdue = True
                    entry.answer.cancel()

        task = self.spawn(self._run(entries, call))
        task.add_done_callback(cancel)
        return task

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start work on open items, and keep hold of it until it is done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(
        self,
        entries: Sequence[OpenItem[Item, Result]],
        call: Callable[[], Awaitable[Sequence[Result]]],
    ) -> None:
        def late(task: asyncio.Future[Sequence[Result]]) -> None:
            if task.cancelled():
                self._fail(entries, CloudProviderError(f"{self._what} was cancelled"))
            elif (error := task.exception()) is not None:
                self._fail(entries, error)
            else:
                self._finish(entries, task.result())

        try:
            outcomes = await self._calls.run(
                call(), limit=self._limit, what=self._what, on_late=late
            )
        except CallPendingError as error:
            for entry in entries:
                entry.overdue = True
                _refuse(entry, error)
        except Exception as error:  # of any kind: callers must not wait for ever
            self._fail(entries, error)
        else:
            self._finish(entries, outcomes)

    def _finish(
        self, entries: Sequence[OpenItem[Item, Result]], outcomes: Sequence[Result]
    ) -> None:
        for entry, outcome in zip(entries, outcomes, strict=True):
            has_waiters = entry.waiters > 0 and not entry.answer.done()
            del self._open[entry.identity]
            if not entry.answer.done():
                entry.answer.set_result(outcome)
            if not has_waiters:
                self._report_late(entry.item, outcome)

    def _fail(self, entries: Sequence[OpenItem[Item, Result]], error: BaseException) -> None:
        """Give every item the same error."""
        for entry in entries:
            has_waiters = entry.waiters > 0 and not entry.answer.done()
            del self._open[entry.identity]
            _refuse(entry, error)
            if not has_waiters:
                self._report_late(entry.item, error)

    def _report_late(self, item: Item, outcome: Result | BaseException) -> None:
        """Report an outcome that no caller waits for; what goes wrong there concerns this item alone."""
        if self._on_late is None:
            return
        try:
            self._on_late(item, outcome)
        except Exception:
            structlog.get_logger("provider").exception(
                "a late outcome could not be recorded", call=self._what
            )


def _refuse(entry: OpenItem[Item, Result], error: BaseException) -> None:
    if entry.answer.done():
        return
    entry.answer.set_exception(error)
    entry.answer.exception()  # perhaps no caller waits, which is fine
