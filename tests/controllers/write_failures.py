"""Failures of the writes of a controller, and the writes that an undisturbed one makes."""

from __future__ import annotations

from dataclasses import dataclass

from karpenter_core.errors import ApiError, ConflictError, TooManyRequestsError


@dataclass(frozen=True)
class FailureMode:
    """A failure of a write and its number of attempts; the writer makes five."""

    stage: str
    error: object
    attempts: int = 1
    seconds: float = 0.0


WAYS = {
    "conflict": FailureMode("request", lambda: ConflictError("somebody was faster", status=409)),
    "throttled": FailureMode("request", lambda: TooManyRequestsError("slow down", status=429)),
    "broken": FailureMode("request", lambda: ApiError("etcd is away", status=500), attempts=5),
    "timed-out": FailureMode(
        "request", lambda: ApiError("timed out", status=0), attempts=5, seconds=10.0
    ),
    "lost-reply": FailureMode("reply", lambda: ApiError("connection reset", status=0)),
}


def write_of(op):
    """Return what is the same for all attempts of a write."""
    return (op.verb, op.kind.kind, op.subresource, op.name)


class WriteRecord:
    """Notes every write of an undisturbed run."""

    def __init__(self):
        self.writes = []

    async def __call__(self, op):
        if op.stage == "request":
            self.writes.append(write_of(op))


class EveryWriteFailure:
    """Continues the run without a fault by one child for each write, which fails there in one way.

    An answer is lost only where there is one. `chosen` tells of which writes the requests fail.
    """

    def __init__(self, way, clock, forks, chosen=lambda _op: True):
        self._way, self._clock, self._forks, self._chosen = way, clock, forks, chosen
        self._asked = {}
        """Whether the last request of a write was chosen."""
        self._failing, self._left = None, way.attempts

    async def __call__(self, op):
        write = write_of(op)
        if not self._forks.is_child:
            if op.stage == "request":
                self._asked[write] = self._chosen(op)
            if op.stage != self._way.stage or not self._asked[write]:
                return
            if not self._forks.fork(f"{len(self._forks.names)}. {write}"):
                return
            self._failing = write
        if write == self._failing and op.stage == self._way.stage and self._left:
            self._left -= 1
            await self._clock.sleep(self._way.seconds)
            raise self._way.error()
