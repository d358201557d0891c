"""Samples the stacks of all threads, for flame graphs.

A sample reads the frames of the running threads, which costs microseconds and needs no rights, unlike
programs that trace a process from outside. Of coroutines it shows the one that runs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

__all__ = ["StackSampler"]

SAMPLES_PER_SECOND: Final = 100
DEFAULT_SECONDS: Final = 30  # as net/http/pprof
MAX_SECONDS: Final = 300
MAX_DEPTH: Final = 200


@final
class StackSampler:
    """Profiles on demand, one at a time; costs nothing in between."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._busy = threading.Lock()

    def profile(self, query: Mapping[str, str]) -> str:
        """Return collapsed stacks and their numbers of samples, the most frequent first.

        A line is `thread;outermost;...;innermost count`. Blocks for the `seconds` of the query, so call it
        in a thread of its own, which is left out.

        Raises:
            BadInputError: the query makes no sense, or a profile is being taken already.
        """
        seconds = _seconds(query)
        if not self._busy.acquire(blocking=False):
            raise BadInputError("another profile is being taken, try again later")
        try:
            samples = self._sample(seconds)
        finally:
            self._busy.release()
        return "".join(f"{stack} {count}\n" for stack, count in samples.most_common())

    def _sample(self, seconds: int) -> Counter[str]:
        samples: Counter[str] = Counter()
        own, end = threading.get_ident(), self._monotonic() + seconds
        while self._monotonic() < end:
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the documented way
            for ident, frame in frames.items():
                if ident != own:
                    samples[_collapsed(names.get(ident, "thread"), frame)] += 1
            self._sleep(1 / SAMPLES_PER_SECOND)
        return samples


def _seconds(query: Mapping[str, str]) -> int:
    unknown = sorted(set(query) - {"seconds"})
    if unknown:
        raise BadInputError(f'unknown parameter "{unknown[0]}"; known: seconds')
    text = query.get("seconds", str(DEFAULT_SECONDS))
    is_short = len(text) <= len(str(MAX_SECONDS))  # no number of thousands of digits is read
    if not (is_short and text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_SECONDS):
        raise BadInputError(f'seconds: "{text}" is not a number from 1 to {MAX_SECONDS}')
    return int(text)


def _collapsed(thread: str, frame: FrameType | None) -> str:
    stack: list[str] = []
    while frame is not None and len(stack) < MAX_DEPTH:
        code = frame.f_code
        stack.append(f"{PurePath(code.co_filename).stem}.{code.co_qualname}")
        frame = frame.f_back
    # Semicolons and spaces separate the parts of a line.
    return ";".join([thread, *reversed(stack)]).replace(" ", "_")
