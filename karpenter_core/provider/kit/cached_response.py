"""Caches a large response of a cloud in memory and on disk; refreshes it.

The first caller fetches the value, and concurrent callers wait for the same result. A process that
starts uses the value that an earlier process stored, and refreshes it in the background.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, final

import msgspec
import structlog

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.disk_cache import DiskCache

__all__ = ["CachedResponse", "Fetched", "decode_as", "fetched_items"]

_DOUBTED_READINGS: Final = 8
"""Readings in a row with the same problem until it is taken for a property of the cloud."""
_NAMED_ITEMS: Final = 3
"""Unreadable items that a message names."""

T = TypeVar("T")


class Fetched(NamedTuple, Generic[T]):
    """A value as it was fetched."""

    value: T
    """Without the items that cannot be read, or with what was known of them before."""
    problem: str = ""
    """Names the call, each unreadable item and its field; empty if all items were read."""


def fetched_items(
    call: str,
    items: Mapping[str, T],
    *,
    unreadable: Mapping[str, str],
    last: Mapping[str, T] | None,
    none_found: str,
) -> Fetched[Mapping[str, T]]:
    """Return the items by name, sorted, with what was known of those that cannot be read.

    `unreadable` has a reason for each name; an item without a readable name is "". It may be any item, so
    all known ones that were not read stay.

    Raises:
        CloudProviderError: there are no items, as `none_found` says, or none can be read.
    """
    known = last or {}
    stays = (
        known if "" in unreadable else {name: known[name] for name in unreadable if name in known}
    )
    together = {**stays, **items}
    problem = _problem_of(call, unreadable)
    if not together:
        raise CloudProviderError(problem or f"{call}: {none_found}")
    return Fetched({name: together[name] for name in sorted(together)}, problem)


def _problem_of(call: str, unreadable: Mapping[str, str]) -> str:
    if not unreadable:
        return ""
    reasons = [unreadable[name] for name in sorted(unreadable)]
    more = len(reasons) - _NAMED_ITEMS
    text = "; ".join(reasons[:_NAMED_ITEMS]) + (f"; and {more} more" if more > 0 else "")
    return f"{call}: items cannot be read: {text}"


def decode_as(kind: type[T], *, is_usable: Callable[[T], object]) -> Callable[[object], T | None]:
    """Return a function that reads JSON as a type; None if it is damaged or not usable."""

    def decode(value: object) -> T | None:
        try:
            decoded = msgspec.convert(value, kind)
        except (msgspec.ValidationError, TypeError):
            return None
        return decoded if is_usable(decoded) else None

    return decode


class _CachedValue(NamedTuple, Generic[T]):
    value: T
    revision: int
    fetched_at: float | None
    """Time of the fetch by the monotonic clock; None if it was read from disk."""


@final
class CachedResponse(Generic[T]):
    """The last fetched value; callable from any thread.

    `fetch` gets the previous value, None at first, and raises CloudProviderError. `encode` converts a
    value to JSON; `decode` (`decode_as`) converts it back and returns None for invalid data.

    A value with a problem is used, and `refresh` raises until the problem has gone, so that its task
    runs again soon: one damaged item must not be missing until the next period. After eight readings
    with the same problem, the cloud describes the item in this way, and the value counts as read.
    """

    def __init__(
        self,
        clock: Clock,
        disk: DiskCache,
        *,
        fetch: Callable[[T | None], Fetched[T]],
        encode: Callable[[T], object] = msgspec.to_builtins,
        decode: Callable[[object], T | None],
        life: timedelta,
        instead_of_waiting: timedelta | None = None,
    ) -> None:
        """Use the stored value instead of a fetch that fails, up to the age `life`.

        Up to the age `instead_of_waiting`, by default the same, use it without a fetch.
        """
        self._clock: Final = clock
        self._disk: Final = disk
        self._fetch: Final = fetch
        self._encode: Final = encode
        self._decode: Final = decode
        self._life: Final = life
        self._fresh: Final = life if instead_of_waiting is None else instead_of_waiting
        self._lock: Final = Lock()
        self._cached: _CachedValue[T] | None = None
        self._open: Future[_CachedValue[T]] | None = None
        self._problem = ""
        self._readings_with_problem = 0
        self._log: FilteringBoundLogger = structlog.get_logger("cache")

    def current(self) -> tuple[T, int]:
        """Return the value, and a number that grows when the value changes.

        Raises:
            CloudProviderError: there is no value yet, and the cloud refused or did not answer.
        """
        held = self._cached or self._from_disk(self._fresh)
        if held is None:
            try:
                held = self._fetch_once(is_needed=lambda: self._cached is None)
            except CloudProviderError:
                held = self._from_disk(self._life)
                if held is None:
                    raise
        return held.value, held.revision

    def refresh(self, *, unless_within: timedelta) -> bool:
        """Fetch again, unless the last fetch was recent; return True if the value has changed.

        Raises:
            CloudProviderError: the cloud refused or did not answer, and the old value is kept; or an
                item of the new value cannot be read.
        """
        before = self._cached or self._from_disk(self._fresh)
        fetched = None if before is None else before.fetched_at
        if (
            not self._is_doubted
            and fetched is not None
            and self._clock.monotonic() - fetched < unless_within.total_seconds()
        ):
            return False
        has_changed = self._fetch_once().revision != (0 if before is None else before.revision)
        if self._is_doubted:
            raise CloudProviderError(self._problem)
        return has_changed

    @property
    def _is_doubted(self) -> bool:
        return 0 < self._readings_with_problem < _DOUBTED_READINGS

    def _fetch_once(self, *, is_needed: Callable[[], bool] = lambda: True) -> _CachedValue[T]:
        """Fetch, or wait for the fetch of another thread.

        `is_needed` is asked under the lock: that fetch may have ended since the caller looked.
        """
        with self._lock:
            if self._cached is not None and not is_needed():
                return self._cached
            is_mine = self._open is None
            answer = self._open = self._open or Future()
        if not is_mine:
            return answer.result()
        try:
            fetched = self._fetch(self._last_value())
            held = self._keep(fetched.value)
            self._note(fetched.problem)
        except BaseException as error:
            self._close()
            answer.set_exception(error)
            raise
        self._close()
        answer.set_result(held)
        return held

    def _note(self, problem: str) -> None:
        """Count the readings with this problem; only the thread that fetched calls it."""
        is_same = problem == self._problem
        self._problem = problem
        if not problem:
            self._readings_with_problem = 0
            return
        self._readings_with_problem = self._readings_with_problem + 1 if is_same else 1
        if self._readings_with_problem == _DOUBTED_READINGS:
            self._log.warning("a part of an answer stays unreadable", problem=problem)

    def _last_value(self) -> T | None:
        if self._cached is not None:
            return self._cached.value
        return self._read(self._life)

    def _close(self) -> None:
        with self._lock:
            self._open = None

    def _keep(self, value: T) -> _CachedValue[T]:
        now = self._clock.monotonic()
        with self._lock:
            cached = self._cached
            if cached is None:
                held = _CachedValue(value, 1, now)
            elif cached.value == value:
                # The objects that are known stay: what was built of them is not built anew.
                held = cached._replace(fetched_at=now)
            else:
                held = _CachedValue(value, cached.revision + 1, now)
            self._cached = held
        self._disk.write(self._encode(value), now=self._clock.now())
        return held

    def _from_disk(self, max_age: timedelta) -> _CachedValue[T] | None:
        value = self._read(max_age)
        if value is None:
            return None
        with self._lock:
            if self._cached is None:
                self._cached = _CachedValue(value, 1, None)
            return self._cached

    def _read(self, max_age: timedelta) -> T | None:
        value: object = self._disk.read(now=self._clock.now(), max_age=max_age)
        return None if value is None else self._decode(value)
