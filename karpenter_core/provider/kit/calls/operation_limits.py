"""Limits and pauses calls by operation class, from any thread.

A cloud counts calls by class: reads and writes of a subscription, or each action of an account. Once it
refuses one call of a class until some time, it would refuse the others too, and often counts them. After
that time it permits few calls at first: calls take turns, which come closer with each answer. A cloud that
names no time can be called in turns at once, whose time doubles with each further refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.kit.calls.failures import AttemptFailure

__all__ = ["CallRate", "OperationLimits", "OperationPause"]

_LONGEST_PAUSE_SECONDS: Final = 300
"""As the core's for hooks. A cloud that asks for hours is asked again before: one wrong header must not
stop every call of a class for a day."""
_LONGEST_TURN_SECONDS: Final = 2.0
"""A cloud that refills a bucket names about the time of one call. One that counts calls in windows names
the rest of its window, and permits many calls after it."""
_SHORTEST_TURN_SECONDS: Final = 0.02
_TURN_FACTOR: Final = 0.9
_TURNS_END_AFTER_SECONDS: Final = 60
"""Without a further refusal for this long, calls take no turns any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRate:
    """The rate of calls that a cloud permits in one operation class."""

    per_second: float
    burst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPause:
    """A time until which no call of an operation class is sent."""

    ends_at: float
    """By the monotonic clock."""
    failure: AttemptFailure
    """The refusal that began it."""


@dataclass(slots=True, kw_only=True)
class _Turns:
    """The turns that the calls of one class take after a refusal."""

    seconds: float
    """The time of each turn."""
    refused_at: float
    next_at: float
    """Time at which the next turn begins."""


@final
class OperationLimits:
    """The rates and pauses of the operation classes of one cloud; callable from any thread."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        rates: Mapping[str, CallRate] | None = None,
        first_turn_seconds: float = 0,
    ) -> None:
        """`rates` are by operation class; a class without one is limited by its pauses alone.

        `first_turn_seconds` is the time of turns after the first refusal that names no time to wait; 0
        leaves such waits to each call.
        """
        self._monotonic: Final = monotonic
        self._first_turn_seconds: Final = first_turn_seconds
        self._buckets: Final = {
            name: TokenBucket(
                rate_per_second=rate.per_second, burst=rate.burst, monotonic=monotonic
            )
            for name, rate in (rates or {}).items()
        }
        self._lock: Final = Lock()
        self._pauses: Final[dict[str, OperationPause]] = {}
        self._turns: Final[dict[str, _Turns]] = {}

    def reserve(self, operation_class: str, *, longest_seconds: float) -> float:
        """Reserve one call within the rate of a class; return the seconds to wait for it.

        Nothing is reserved if the wait would be longer than `longest_seconds`.
        """
        bucket = self._buckets.get(operation_class)
        return 0.0 if bucket is None else bucket.reserve(longest_seconds=longest_seconds)

    def pause(
        self, operation_class: str, failure: AttemptFailure, *, turn_at: float | None = None
    ) -> float:
        """Pause a class for the `retry_after` of a refusal, five minutes at most, or slow it down.

        A longer pause that is open stays. A call that got its turn (`turn_at`, by the monotonic clock; None
        is now) before the class was slowed down does not slow it down further. Return until when this refusal
        asks to wait, by the monotonic clock.
        """
        now = self._monotonic()
        if failure.retry_after is None:
            if self._first_turn_seconds > 0:
                with self._lock:
                    self._lengthen_turns(operation_class, now, now if turn_at is None else turn_at)
            return now
        ends_at = now + min(failure.retry_after.total_seconds(), _LONGEST_PAUSE_SECONDS)
        with self._lock:
            pause = self._pauses.get(operation_class)
            if pause is None or pause.ends_at < ends_at:
                self._pauses[operation_class] = OperationPause(ends_at=ends_at, failure=failure)
            if ends_at > now:
                self._slow_down(operation_class, now, ends_at)
        return ends_at

    def take_turn(self, operation_class: str, *, longest_seconds: float) -> float:
        """Take the next turn of a class that was paused; return the seconds to wait for it.

        No turn is taken if the wait would be longer than `longest_seconds`. A class that was not refused
        lately has no turns: the wait is 0.
        """
        now = self._monotonic()
        with self._lock:
            turns = self._turns.get(operation_class)
            if turns is None:
                return 0.0
            if now - turns.refused_at > _TURNS_END_AFTER_SECONDS:
                del self._turns[operation_class]
                return 0.0
            wait_seconds = max(0.0, turns.next_at - now)
            if wait_seconds <= longest_seconds:
                turns.next_at = now + wait_seconds + turns.seconds
            return wait_seconds

    def note_answer(self, operation_class: str) -> None:
        """Let calls of a class follow each other sooner: the cloud has taken one."""
        with self._lock:
            turns = self._turns.get(operation_class)
            if turns is None:
                return
            turns.seconds *= _TURN_FACTOR
            if turns.seconds < _SHORTEST_TURN_SECONDS:
                del self._turns[operation_class]

    def _slow_down(self, operation_class: str, now: float, ends_at: float) -> None:
        seconds = min(ends_at - now, _LONGEST_TURN_SECONDS)
        turns = self._turns.get(operation_class)
        if turns is None:
            self._turns[operation_class] = _Turns(seconds=seconds, refused_at=now, next_at=ends_at)
            return
        turns.seconds = max(turns.seconds, seconds)
        turns.refused_at = now
        turns.next_at = max(turns.next_at, ends_at)

    def _lengthen_turns(self, operation_class: str, now: float, turn_at: float) -> None:
        turns = self._turns.get(operation_class)
        if turns is None or now - turns.refused_at > _TURNS_END_AFTER_SECONDS:
            self._turns.pop(operation_class, None)
            seconds = self._first_turn_seconds
        elif turn_at < turns.refused_at:
            return
        else:
            seconds = min(max(2 * turns.seconds, self._first_turn_seconds), _LONGEST_TURN_SECONDS)
        self._slow_down(operation_class, now, now + seconds)

    def open_pause(self, operation_class: str) -> OperationPause | None:
        """Return the pause of a class; None if its calls may be sent."""
        with self._lock:
            pause = self._pauses.get(operation_class)
            if pause is not None and pause.ends_at <= self._monotonic():
                del self._pauses[operation_class]
                return None
            return pause
