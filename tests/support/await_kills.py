"""Kills a controller process at a chosen await.

Every task of the process is watched: whenever one is suspended, the chain of awaits that it stands
in is noted, as far as it lies in the code under test. A run without a kill yields the points; a
second run with the same inputs takes the same turns, and can die exactly there: nothing of the process
runs on but the unwinding, and nothing of that gets out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from karpenter_core.testing.harness import RunningProcess

__all__ = ["SCOPE", "AwaitPoint", "AwaitTracker", "point_text"]

AwaitPoint: TypeAlias = tuple[tuple[str, str, int], ...]
"""Point of suspension of a task: module, function and line, from the outermost await inwards."""

SCOPE: Final = (
    "karpenter_core.controllers",
    "karpenter_core.provider",
    "karpenter_core.kube.writer",
)
"""The modules whose awaits count; the writer is among them to tell before a write from after it."""

_current: Final[ContextVar[AwaitTracker | None]] = ContextVar("awaits of the process", default=None)


def point_text(point: AwaitPoint) -> str:
    """Write a point in one line."""
    return " > ".join(
        f"{module.removeprefix('karpenter_core.')}:{line} {function}"
        for module, function, line in point
    )


@final
class AwaitTracker:
    """The awaits of one process: counted, and at one of them it may be killed.

    `awaits.start(lambda: harness.start(...))` starts it. `kills` tells whether it dies at a point,
    given the number of passes so far.
    """

    def __init__(self, *, kills: Callable[[AwaitPoint, int], bool]) -> None:
        self.seen: Final[Counter[AwaitPoint]] = Counter()
        """Number of passes of each point, in the order of their first time."""
        self.killed: Final = asyncio.Event()
        self._kills: Final = kills
        self._running: RunningProcess | None = None
        self.has_begun = False
        self.is_over = False
        """Set it when what comes is not of the life any more: the end of the test, say."""

    def start(self, start: Callable[[], RunningProcess]) -> RunningProcess:
        """Start a process whose tasks are watched, and theirs in turn."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(_watched_task)
        token = _current.set(self)
        try:
            self._running = start()
        finally:
            _current.reset(token)
        return self._running

    @property
    def is_dead(self) -> bool:
        """Whether the process has been killed."""
        return self.killed.is_set()

    def note(self, coro: Any) -> None:
        """Count where a task is suspended; die if `kills` says so."""
        point = tuple(_frames(coro))
        if not point or self.is_dead or self.is_over:
            return
        self.seen[point] += 1
        if self._kills(point, self.seen[point]):
            self.killed.set()
            if self._running is not None:
                self._running.cut()


@final
class _WatchedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that notes where it is suspended, and goes no further in a dead process."""

    def __init__(
        self, coro: Coroutine[Any, Any, Any], awaits: AwaitTracker, *, is_shell: bool
    ) -> None:
        self._coro: Final = coro
        self._awaits: Final = awaits
        self._is_shell: Final = is_shell

    def send(self, value: Any) -> Any:
        if self._awaits.is_dead and not self._is_shell:
            return self._coro.throw(asyncio.CancelledError())
        yielded = self._coro.send(value)
        self._awaits.note(self._coro)
        return yielded

    def throw(self, *error: Any) -> Any:
        yielded = self._coro.throw(*error)
        self._awaits.note(self._coro)
        return yielded

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Any:
        raise NotImplementedError("made for tasks only")


def _watched_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Make a task; one of a watched process is watched from its first step."""
    context = options.get("context")
    awaits = _current.get() if context is None else context.get(_current)
    if awaits is not None:
        # The first one only takes the rest down in the end: it closes files and connections.
        coro = _WatchedCoroutine(coro, awaits, is_shell=not awaits.has_begun)
        awaits.has_begun = True
    return asyncio.Task(coro, loop=loop, **options)


_INWARDS: Final[Mapping[type[Any], tuple[str, str]]] = {
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
}
"""Attributes of the frame and the awaited object, per kind."""


def _frames(coro: Any) -> Sequence[tuple[str, str, int]]:
    result: list[tuple[str, str, int]] = []
    while coro is not None:
        names = _INWARDS.get(cast("type[Any]", type(coro)))
        frame: FrameType | None = getattr(coro, names[0]) if names is not None else None
        if names is None or frame is None:
            break
        coro = getattr(coro, names[1])
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(SCOPE):
            result.append((module, frame.f_code.co_qualname, frame.f_lineno))
    return result
