"""Slows down writes that are sent again and again as they are taken back.

A webhook may take off what a patch adds, and another controller may put its own value back. The
reconcile that follows each write would send the same patch at once, as fast as the API server answers,
or another one if it contains a time or answers to what was changed. So equal patches wait ever longer,
and those of one object are limited whatever they contain.
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

__all__ = ["FREE_REPEATS", "FREE_WRITES", "MAX_REPEAT_PAUSE", "WRITE_INTERVAL", "RepeatedWrites"]

FREE_REPEATS: Final = 10
MAX_REPEAT_PAUSE: Final = timedelta(minutes=1)
FREE_WRITES: Final = 60
WRITE_INTERVAL: Final = timedelta(seconds=1)
"""The time after which an object may be written once more, up to `FREE_WRITES` at once."""
_FORGOTTEN_SECONDS: Final = 2 * MAX_REPEAT_PAUSE.total_seconds()
_REMEMBERED: Final = 4_096
_TOO_MANY_REQUESTS: Final = 429
_HIGHEST_EXPONENT: Final = 10


@dataclass(frozen=True, slots=True)
class _LastWrite:
    """The last write of an object: its content, how often it was sent in a row, and when.

    `allowance` is the number of writes of any content that were left then.
    """

    content: int
    times: int
    at: float
    allowance: float

    def allowance_at(self, now: float) -> float:
        """Return the number of writes of any content that are left."""
        regained = (now - self.at) / WRITE_INTERVAL.total_seconds()
        return min(self.allowance + regained, FREE_WRITES)


@final
class RepeatedWrites:
    """Counts writes of the same object, and equal ones in a row."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._last: Final[OrderedDict[tuple[str, ...], _LastWrite]] = OrderedDict()

    def check(self, target: tuple[str, ...], body: object) -> None:
        """Refuse a write that has been repeated so often that it has to wait now.

        Raises:
            TooManyRequestsError: it has to wait; nothing was sent.
        """
        last = self._last.get(target)
        if last is None:
            return
        now = self._clock.monotonic()
        missing = 1 - last.allowance_at(now)
        if missing > 0:
            raise _error(
                target,
                f"{FREE_WRITES} writes in a short time, and a webhook or another controller changes the "
                "object after each",
                wait=missing * WRITE_INTERVAL.total_seconds(),
            )
        if last.times < FREE_REPEATS or last.content != _content(body):
            return
        exponent = min(last.times - FREE_REPEATS, _HIGHEST_EXPONENT)
        pause = min(2.0**exponent, MAX_REPEAT_PAUSE.total_seconds())
        left = last.at + pause - now
        if left > 0:
            raise _error(
                target,
                f"the same was written {last.times} times in a row, and a webhook or another controller "
                "takes it back",
                wait=left,
            )

    def note(self, target: tuple[str, ...], body: object) -> None:
        """Count a write that was done."""
        now, content = self._clock.monotonic(), _content(body)
        last = self._last.pop(target, None)
        is_repeated = (
            last is not None and last.content == content and now - last.at < _FORGOTTEN_SECONDS
        )
        times = last.times + 1 if last is not None and is_repeated else 1
        allowance = FREE_WRITES if last is None else last.allowance_at(now)
        self._last[target] = _LastWrite(content, times, now, allowance - 1)
        while self._is_over(next(iter(self._last.values())), now):
            self._last.popitem(last=False)

    def _is_over(self, oldest: _LastWrite, now: float) -> bool:
        """Tell whether the oldest write need not be remembered any more."""
        return len(self._last) > _REMEMBERED or now - oldest.at >= _FORGOTTEN_SECONDS


def _error(target: tuple[str, ...], why: str, *, wait: float) -> TooManyRequestsError:
    return TooManyRequestsError(
        f"patch {' '.join(filter(None, target))}: {why}",
        status=_TOO_MANY_REQUESTS,
        reason="RepeatedWrite",
        retry_after=timedelta(seconds=wait),
    )


def _content(body: object) -> int:
    return hash(msgspec.json.encode(body))
