"""Reads a value of the cloud; keeps the last one during an outage."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock

__all__ = ["LastAnswer"]

T = TypeVar("T", bound=object)

_AT_ONCE: Final = timedelta()


def _ignore(_error: CloudProviderError) -> None:
    pass


@final
class LastAnswer(Generic[T]):
    """A value that is read again after `ttl`; callable from any thread.

    For values of the cluster, such as its version of Kubernetes, that do not become wrong with time.
    """

    def __init__(
        self,
        clock: Clock,
        ttl: timedelta,
        read: Callable[[], T],
        *,
        retry_after: timedelta = _AT_ONCE,
        note_failure: Callable[[CloudProviderError], None] = _ignore,
    ) -> None:
        """`read` raises CloudProviderError if the cloud refuses or does not answer.

        The next attempt comes `retry_after` a failed one. `note_failure` is called if the last value is
        used in its place.
        """
        self._read: Final = read
        self._retry_after: Final = retry_after
        self._note_failure: Final = note_failure
        self._fresh: Final[TtlCache[str, T]] = TtlCache(clock, ttl)
        self._last: T | None = None

    def get(self) -> T:
        """Return the value, or the last one if the cloud refuses or does not answer.

        Raises:
            CloudProviderError: there is no last value.
        """
        value = self._fresh.get("")
        if value is not None:
            return value
        try:
            value = self._read()
        except CloudProviderError as error:
            if self._last is None:
                raise
            self._note_failure(error)
            self._fresh.put("", self._last, ttl=self._retry_after)
            return self._last
        self._last = value
        self._fresh.put("", value)
        return value
