"""Slows down a write that is sent again and again as it is taken back.

A webhook may take off what a patch adds, and another controller may put its own value back. The
reconcile that follows each write would send the same patch at once, as fast as the API server answers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.errors import TooManyRequestsError

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["FREE_REPEATS", "MAX_REPEAT_PAUSE", "RepeatedWrites"]

FREE_REPEATS: Final = 10
MAX_REPEAT_PAUSE: Final = timedelta(minutes=1)
_FORGOTTEN_SECONDS: Final = 2 * MAX_REPEAT_PAUSE.total_seconds()
_REMEMBERED: Final = 4_096
_TOO_MANY_REQUESTS: Final = 429
_HIGHEST_EXPONENT: Final = 10


@dataclass(frozen=True, slots=True)
class _LastWrite:
    """The last write of an object: its content, how often it was sent in a row, and when."""

    content: int
    times: int
    at: float


@final
class RepeatedWrites:
    """Counts equal writes of the same object in a row."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._last: Final[OrderedDict[tuple[str, ...], _LastWrite]] = OrderedDict()

    def check(self, target: tuple[str, ...], body: object) -> None:
        """Refuse a write that has been repeated so often that it has to wait now.

        Raises:
            TooManyRequestsError: it has to wait; nothing was sent.
        """
        last = self._last.get(target)
        if last is None or last.times < FREE_REPEATS or last.content != _content(body):
            return
        exponent = min(last.times - FREE_REPEATS, _HIGHEST_EXPONENT)
        pause = min(2.0**exponent, MAX_REPEAT_PAUSE.total_seconds())
        left = last.at + pause - self._clock.monotonic()
        if left > 0:
            raise TooManyRequestsError(
                f"patch {' '.join(filter(None, target))}: the same was written {last.times} times in a "
                "row, and a webhook or another controller takes it back",
                status=_TOO_MANY_REQUESTS,
                reason="RepeatedWrite",
                retry_after=timedelta(seconds=left),
            )

    def note(self, target: tuple[str, ...], body: object) -> None:
        """Count a write that was done."""
        now, content = self._clock.monotonic(), _content(body)
        last = self._last.pop(target, None)
        is_repeated = (
            last is not None and last.content == content and now - last.at < _FORGOTTEN_SECONDS
        )
        times = last.times + 1 if last is not None and is_repeated else 1
        self._last[target] = _LastWrite(content, times, now)
        while self._is_over(next(iter(self._last.values())), now):
            self._last.popitem(last=False)

    def _is_over(self, oldest: _LastWrite, now: float) -> bool:
        """Tell whether the oldest write need not be remembered any more."""
        return len(self._last) > _REMEMBERED or now - oldest.at >= _FORGOTTEN_SECONDS


def _content(body: object) -> int:
    return hash(msgspec.json.encode(body))
