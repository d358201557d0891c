"""Caches answers of a cloud for a limited time."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Hashable
    from datetime import timedelta

    from karpenter_core.clock import Clock

__all__ = ["TtlCache"]

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

_SWEEP_ABOVE: Final = 64


@final
class TtlCache(Generic[K, V]):
    """A map whose entries expire `ttl` after they were put; callable from any thread.

    Callers never wait for each other: two callers that miss at once both call the cloud, and the
    later result is kept.
    """

    def __init__(self, clock: Clock, ttl: timedelta) -> None:
        self._clock: Final = clock
        self._ttl_seconds: Final = ttl.total_seconds()
        self._lock: Final = Lock()
        self._entries: Final[dict[K, tuple[float, V]]] = {}

    def get(self, key: K) -> V | None:
        """Return the value, unless it has expired."""
        now = self._clock.monotonic()
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry[0] <= now:
                del self._entries[key]
                return None
            return entry[1]

    def put(self, key: K, value: V, *, ttl: timedelta | None = None) -> None:
        """Store a value, by default for the `ttl` of this cache."""
        now = self._clock.monotonic()
        kept_seconds = self._ttl_seconds if ttl is None else ttl.total_seconds()
        with self._lock:
            if len(self._entries) >= _SWEEP_ABOVE:
                self._sweep(now)
            self._entries[key] = (now + kept_seconds, value)

    def drop(self, key: K) -> None:
        """Remove a value."""
        with self._lock:
            self._entries.pop(key, None)

    def items(self) -> dict[K, V]:
        """Return a copy of all values that have not expired."""
        now = self._clock.monotonic()
        with self._lock:
            self._sweep(now)
            return {key: value for key, (_, value) in self._entries.items()}

    def _sweep(self, now: float) -> None:
        for key in [key for key, (end, _) in self._entries.items() if end <= now]:
            del self._entries[key]
