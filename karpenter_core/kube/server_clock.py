"""A clock that shows the API server's time, read from the `Date` headers of its answers.

The API server dates creations and deletions, and the deadlines of drains and of `expireAfter` follow from
them. On a host whose wall clock is wrong these deadlines would come early or late by as much.

`Date` has whole seconds (RFC 9110, section 6.6.1), and an answer takes time. Therefore a header only
bounds the server's time, and a wall clock that is within `TOLERANCE` of these bounds counts as right.
"""

from __future__ import annotations

from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.kube.transport import ApiRequest, ApiResponse, Transport

__all__ = ["CONFIRMATIONS", "TOLERANCE", "DatedTransport", "ServerClock"]

TOLERANCE: Final = timedelta(seconds=2)
"""Differences up to this are not corrected: no deadline is that precise."""

DATE_RESOLUTION: Final = timedelta(seconds=1)

CONFIRMATIONS: Final = 3
"""So many answers in a row must contradict the clock before it is set again; one may be a proxy's."""


@final
class ServerClock:
    """The API server's wall clock; before the first answer the host's.

    Between two answers the time advances with the monotonic clock, so that setting the host's wall
    clock does not change it. A right wall clock is followed exactly; for a wrong one the time is the
    latest that the server has certainly reached: deadlines come up to a second late, never early.
    """

    __slots__ = ("_base", "_contradictions", "_epoch", "_is_host_wrong", "_log")

    def __init__(self, base: Clock) -> None:
        self._base: Final = base
        self._epoch: datetime | None = None
        """The server's time at the zero of the monotonic clock."""
        self._contradictions = 0
        self._is_host_wrong = False
        self._log: FilteringBoundLogger = structlog.get_logger("clock")

    def now(self) -> datetime:
        """Return the API server's time as an aware UTC datetime."""
        if self._epoch is None:
            return self._base.now()
        return self._epoch + timedelta(seconds=self._base.monotonic())

    def monotonic(self) -> float:
        """Return the seconds of the host's monotonic clock."""
        return self._base.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        await self._base.sleep(seconds)

    def host_offset_seconds(self) -> float:
        """Return how far the server's time is ahead of the host's wall clock; negative if behind."""
        if self._epoch is None:
            return 0.0
        return (self._epoch - self._host_epoch()).total_seconds()

    def observe(self, date: str, *, sent: float) -> None:
        """Take the `Date` header of an answer that has just come.

        `sent` is the monotonic time at which the request was sent. A header that is no date is ignored.
        """
        try:
            server = parsedate_to_datetime(date)
        except ValueError:
            return
        earliest = server - timedelta(seconds=self._base.monotonic())
        latest = server + DATE_RESOLUTION - timedelta(seconds=sent)
        epoch = self._consistent_epoch(earliest, latest)
        if self._epoch is not None and abs(epoch - self._epoch) > TOLERANCE:
            self._contradictions += 1
            if self._contradictions < CONFIRMATIONS:
                return
        self._contradictions = 0
        self._epoch = epoch
        self._report()

    def _consistent_epoch(self, earliest: datetime, latest: datetime) -> datetime:
        """Return the host's epoch if it is within the bounds, else the nearest to the known one."""
        host = self._host_epoch()
        if earliest - TOLERANCE <= host <= latest + TOLERANCE:
            return host
        return min(max(self._epoch or earliest, earliest), latest)

    def _host_epoch(self) -> datetime:
        return self._base.now() - timedelta(seconds=self._base.monotonic())

    def _report(self) -> None:
        offset = self.host_offset_seconds()
        is_wrong = abs(offset) > TOLERANCE.total_seconds()
        if is_wrong and not self._is_host_wrong:
            self._log.warning(
                "this host's clock differs from the API server's, whose time is used",
                host_is_ahead_seconds=-round(offset),
            )
        self._is_host_wrong = is_wrong


@final
class DatedTransport:
    """A transport that shows the date of each answer to a clock."""

    def __init__(self, transport: Transport, clock: ServerClock) -> None:
        self._transport: Final = transport
        self._clock: Final = clock

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Send a request and read the whole answer.

        Raises:
            ApiError: as the transport does.
        """
        sent = self._clock.monotonic()
        response = await self._transport.request(request)
        if date := response.headers.get("date"):
            self._clock.observe(date, sent=sent)
        return response

    def stream(
        self, request: ApiRequest
    ) -> AbstractAsyncContextManager[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Send a request and iterate over the lines of its answer."""
        return self._transport.stream(request)

    async def close(self) -> None:
        """Let go of connections."""
        await self._transport.close()
