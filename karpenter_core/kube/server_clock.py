"""The API server's clock, estimated from the Date headers of its answers.

The API server dates creations and deletions. Deadlines that are computed from these times, and ages,
must be judged by the clock that wrote them: by a clock that is minutes ahead, the grace period of a
node is over minutes early.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable, Mapping

    from karpenter_core.clock import Clock

__all__ = ["CONFIRMATIONS", "DRIFT", "MAX_OFFSET", "WARNED_OFFSET", "ClockBounds", "ServerClock"]

MAX_OFFSET: Final = timedelta(days=365)
"""A Date that differs by more from this process's clock is refused: certificates are valid for about
a year, so that TLS would hardly have worked."""
WARNED_OFFSET: Final = timedelta(seconds=5)
CONFIRMATIONS: Final = 3
"""So many answers in a row have to contradict an estimate, and to agree with each other, to replace it."""
DRIFT: Final = 0.001
"""Seconds by which two clocks may come apart in a second: twice what NTP corrects at most."""
DATE_RESOLUTION_SECONDS: Final = 1.0
_BAD_REQUEST: Final = 400
_log = structlog.stdlib.get_logger("kube.server_clock")


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """Bounds of how many seconds the server's clock is ahead of our monotonic clock.

    `earliest` and `latest` held at the monotonic time `at`; they go apart with `DRIFT` as time passes.
    """

    earliest: float
    latest: float
    at: float

    @classmethod
    def of_answer(cls, date: float, *, sent: float, received: float) -> ClockBounds:
        """Return the bounds that one answer gives; `date` is in seconds since the Unix epoch.

        The server's clock was in the second that begins with `date` at some time between sending the
        request and receiving the answer.
        """
        return cls(date - received, date + DATE_RESOLUTION_SECONDS - sent, received)

    def at_time(self, monotonic: float) -> ClockBounds:
        """Return the bounds at a later time."""
        wider = DRIFT * max(monotonic - self.at, 0.0)
        return ClockBounds(self.earliest - wider, self.latest + wider, max(monotonic, self.at))

    def narrowed(self, other: ClockBounds) -> ClockBounds | None:
        """Return the bounds that follow from both; None if they contradict each other."""
        at = max(self.at, other.at)
        first, second = self.at_time(at), other.at_time(at)
        earliest = max(first.earliest, second.earliest)
        latest = min(first.latest, second.latest)
        return None if earliest > latest else ClockBounds(earliest, latest, at)

    def offset_seconds(self, own_lead: float, monotonic: float) -> float:
        """Return how far the server's clock is ahead of ours, which leads the monotonic one by `own_lead`.

        Judged at a monotonic time not before `at`. Zero where our clock is within the bounds: it is then as good as the estimate. Else the
        earliest time that the server's clock may show, so that no deadline comes early.
        """
        wider = DRIFT * max(monotonic - self.at, 0.0)
        earliest = self.earliest - wider
        return 0.0 if earliest <= own_lead <= self.latest + wider else earliest - own_lead


@final
class ServerClock:
    """A `Clock` whose `now` is the API server's, as far as the answers tell.

    Each answer bounds the difference of the clocks: its Date has a resolution of one second, and was
    written between the sending of the request and the arrival of the answer. The bounds of all
    answers are intersected, so they narrow to the shortest latency and the changes of the second,
    and a slow answer does no harm. They refer to the monotonic clock: when this host's wall clock is
    set, `now` does not change.

    Until the first usable answer, and while this process's clock is within the bounds, `now` is that
    clock's. Otherwise it is the earliest time that the server's clock may show: deadlines may come
    late, by a second at most and as a rule far less, and not early.

    Refused are answers without a Date that can be read, errors and answers from caches (proxies
    write their own Date), and a Date more than `MAX_OFFSET` from this process's clock. A single
    Date that contradicts the estimate changes nothing: only when `CONFIRMATIONS` in a row do so and
    agree with each other, as after the server's clock was set, they replace it. API servers of one
    cluster whose clocks differ by more than a second thus do not make `now` jump to and fro.
    """

    __slots__ = (
        "_agreeing",
        "_bounds",
        "_clock",
        "_contradiction",
        "_date",
        "_reported_offset",
        "_warned_absurd",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._bounds: ClockBounds | None = None
        self._contradiction: ClockBounds | None = None
        self._agreeing = 0
        """Number of consecutive answers that contradict the estimate and agree with each other."""
        self._date: tuple[str, float | None] = ("", None)
        """The last header, and the time that it means."""
        self._warned_absurd = False
        self._reported_offset = 0.0
        """Seconds that the last log line named; 0 if that said that the clocks agree."""

    def now(self) -> datetime:
        """Return the API server's time as an aware UTC datetime; callable from any thread."""
        own = self._clock.now()
        offset = self._offset_from(own)
        return own + timedelta(seconds=offset) if offset else own

    def monotonic(self) -> float:
        """Return seconds that never decrease; only differences are meaningful."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of this clock's time."""
        await self._clock.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call a function on the running loop after this many seconds of this clock's time."""
        return self._clock.call_later(seconds, callback)

    @property
    def offset_seconds(self) -> float:
        """Seconds by which the API server's clock is ahead of this process's; 0 if unknown or too little to tell."""
        return self._offset_from(self._clock.now())

    def note_answer(self, status: int, headers: Mapping[str, str], *, sent: float) -> None:
        """Learn from an answer that has just come; `sent` is the monotonic time of its request."""
        date = self._read_date(headers.get("date", ""))
        if date is None or status >= _BAD_REQUEST or "age" in headers:
            return
        received = self._clock.monotonic()
        answer = ClockBounds.of_answer(date, sent=sent, received=received)
        if self._is_absurd(answer, received):
            return
        self._take(answer)
        self._report_offset()

    def _take(self, answer: ClockBounds) -> None:
        if self._bounds is None:
            self._bounds = answer
            return
        narrowed = self._bounds.narrowed(answer)
        if narrowed is not None:
            self._bounds, self._contradiction, self._agreeing = narrowed, None, 0
            return
        agreed = None if self._contradiction is None else self._contradiction.narrowed(answer)
        self._agreeing = 1 if agreed is None else self._agreeing + 1
        self._contradiction = agreed or answer
        if self._agreeing >= CONFIRMATIONS:
            self._bounds, self._contradiction, self._agreeing = self._contradiction, None, 0

    def _offset_from(self, own: datetime) -> float:
        bounds = self._bounds
        if bounds is None:
            return 0.0
        monotonic = self._clock.monotonic()
        return bounds.offset_seconds(own.timestamp() - monotonic, monotonic)

    def _is_absurd(self, answer: ClockBounds, received: float) -> bool:
        own = self._clock.now()
        offset = answer.offset_seconds(own.timestamp() - received, received)
        if abs(offset) <= MAX_OFFSET.total_seconds():
            return False
        if not self._warned_absurd:
            self._warned_absurd = True
            _log.warning(
                "the API server's Date is refused: it is too far from this process's clock",
                seconds=round(offset, 3),
            )
        return True

    def _report_offset(self) -> None:
        """Log that a clock was set; what drifts or is corrected slowly is logged in steps of seconds."""
        offset, limit = self.offset_seconds, WARNED_OFFSET.total_seconds()
        if abs(offset) > limit:
            if abs(offset - self._reported_offset) > limit:
                self._reported_offset = offset
                _log.warning(
                    "this process's clock differs from the API server's, which deadlines go by",
                    seconds=round(offset, 3),
                )
        elif self._reported_offset:
            self._reported_offset = 0.0
            _log.info(
                "this process's clock agrees with the API server's again", seconds=round(offset, 3)
            )

    def _read_date(self, header: str) -> float | None:
        if header != self._date[0]:
            self._date = (header, _parse_date(header))
        return self._date[1]


def _parse_date(header: str) -> float | None:
    """Return the seconds since the Unix epoch of an HTTP date; None if it cannot be read."""
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    try:
        return date.timestamp()
    except (ValueError, OverflowError):
        return None
