"""Limits calls to a simulated cloud by a token bucket for each action."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

__all__ = ["CallRate", "CallRates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRate:
    """Number of calls that may come at once, and how many more each second."""

    bucket: float
    refill: float


@final
class CallRates:
    """Token buckets by the name of a call; without rates nothing is throttled."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._rates: Mapping[str, CallRate] = {}
        self._tokens: dict[str, tuple[float, datetime]] = {}

    def set(self, rates: Mapping[str, CallRate]) -> None:
        """Replace the rates, by name or by shell pattern for names; all buckets are full then."""
        with self._lock:
            self._rates = dict(rates)
            self._tokens.clear()

    def take(self, name: str, tokens: float = 1, *, by_pattern: bool = True) -> bool:
        """Take tokens from the bucket of a name, if it has enough.

        The rate is that of the name itself, else of the first pattern that matches it.
        """
        with self._lock:
            call_rate = self._rates.get(name)
            if call_rate is None and by_pattern:
                call_rate = next(
                    (rate for pattern, rate in self._rates.items() if fnmatchcase(name, pattern)),
                    None,
                )
            if call_rate is None:
                return True
            now = self._clock()
            tokens_left, since = self._tokens.get(name, (call_rate.bucket, now))
            tokens_left = min(
                call_rate.bucket, tokens_left + (now - since).total_seconds() * call_rate.refill
            )
            enough = tokens_left >= tokens
            self._tokens[name] = (tokens_left - tokens if enough else tokens_left, now)
            return enough
