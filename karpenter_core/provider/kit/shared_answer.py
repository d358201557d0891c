"""Reads a cloud's answer that many launches need at once, only once."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.resolution import SharedRead

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from karpenter_core.clock import Clock

__all__ = ["AnswerRevision", "SharedAnswer"]

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class AnswerRevision(Generic[T]):
    """An answer, with the number of the read that it is from."""

    value: T
    revision: int


@final
class SharedAnswer(Generic[T]):
    """An answer that is read again after `ttl`; callable from any thread.

    Callers that need a read at the same time share one, and its error.
    """

    def __init__(self, clock: Clock, ttl: timedelta, read: Callable[[], T]) -> None:
        """`read` raises CloudProviderError if the cloud refuses or does not answer."""
        self._clock: Final = clock
        self._ttl_seconds: Final = ttl.total_seconds()
        self._read: Final = read
        self._lock: Final = Lock()
        self._held: AnswerRevision[T] | None = None
        self._read_at: float = 0.0
        self._open: SharedRead[AnswerRevision[T]] | None = None

    def current(self) -> AnswerRevision[T]:
        """Return the answer; the last one if it is old and the cloud does not answer.

        Raises:
            CloudProviderError: there is no last answer.
        """
        held = self._held
        if held is not None and self._clock.monotonic() - self._read_at < self._ttl_seconds:
            return held
        try:
            return self._next(0 if held is None else held.revision)
        except CloudProviderError:
            if held is None:
                raise
            return held

    def newer_than(self, seen: AnswerRevision[T]) -> AnswerRevision[T]:
        """Return an answer that was read after `seen`, which turned out to be wrong.

        Raises:
            CloudProviderError: the cloud refused or did not answer.
        """
        return self._next(seen.revision)

    def _next(self, seen_revision: int) -> AnswerRevision[T]:
        with self._lock:
            held = self._held
            if held is not None and held.revision > seen_revision:
                return held
            read = self._open = self._open or SharedRead(self._fetch)
        return read()

    def _fetch(self) -> AnswerRevision[T]:
        try:
            value = self._read()
        except BaseException:
            with self._lock:
                self._open = None
            raise
        with self._lock:
            # Both at once: a caller that finds this answer wrong must not wait for the same read.
            self._open = None
            revision = 1 if self._held is None else self._held.revision + 1
            self._held = AnswerRevision(value, revision)
            self._read_at = self._clock.monotonic()
            return self._held
