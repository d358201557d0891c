"""Limits calls by token buckets, one for each action or operation class."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

__all__ = ["CallRates", "SimulatedCallRate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCallRate:
    """Number of calls that may come at once, and how many more each second."""

    bucket: float
    refill: float


@final
class CallRates:
    """Token buckets by the name of a call; without rates nothing is throttled."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._rates: Mapping[str, SimulatedCallRate] = {}
        self._tokens: dict[str, tuple[float, datetime]] = {}

    def set(self, rates: Mapping[str, SimulatedCallRate]) -> None:
        """Replace the rates, by name or by shell pattern for names; all buckets are full then."""
        with self._lock:
            self._rates = dict(rates)
            self._tokens.clear()

    def take(self, name: str, tokens: float = 1, *, by_pattern: bool = True) -> bool:
        """Take tokens from the bucket of a name, if it has enough.

        The rate is that of the name itself, else of the first pattern that matches it.
        """
        with self._lock:
            call_rate = self._rate_of(name, by_pattern=by_pattern)
            if call_rate is None:
                return True
            tokens_left = self._tokens_left(name, call_rate)
            enough = tokens_left >= tokens
            self._tokens[name] = (tokens_left - tokens if enough else tokens_left, self._clock())
            return enough

    def left(self, name: str) -> float | None:
        """Return the tokens in the bucket of a name; None if it is not limited."""
        with self._lock:
            call_rate = self._rate_of(name, by_pattern=True)
            return None if call_rate is None else self._tokens_left(name, call_rate)

    def wait_seconds(self, name: str, tokens: float = 1, *, by_pattern: bool = True) -> float:
        """Return the time until the bucket of a name has so many tokens.

        Infinity stands for never: the bucket is too small, or is not refilled.
        """
        with self._lock:
            call_rate = self._rate_of(name, by_pattern=by_pattern)
            if call_rate is None:
                return 0.0
            missing = tokens - self._tokens_left(name, call_rate)
            if missing <= 0:
                return 0.0
            if tokens > call_rate.bucket or call_rate.refill <= 0:
                return float("inf")
            return missing / call_rate.refill

    def _rate_of(self, name: str, *, by_pattern: bool) -> SimulatedCallRate | None:
        call_rate = self._rates.get(name)
        if call_rate is None and by_pattern:
            call_rate = next(
                (rate for pattern, rate in self._rates.items() if fnmatchcase(name, pattern)), None
            )
        return call_rate

    def _tokens_left(self, name: str, call_rate: SimulatedCallRate) -> float:
        now = self._clock()
        tokens_left, since = self._tokens.get(name, (call_rate.bucket, now))
        refilled = (now - since).total_seconds() * call_rate.refill
        return min(call_rate.bucket, tokens_left + refilled)
