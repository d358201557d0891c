"""Sizes a buffer by the bursts of pods that were observed.

A *burst* is the number of matching pods that were created within five minutes, about the time in
which a new node becomes ready: these pods would have found no room in time. Days are kept apart, so
that a burst is forgotten after a week. The size is a quantile of the bursts of these days (nearest
rank); intervals without a pod are no bursts.

Everything is a pure function of the history and of creation times. The history is kept in an
annotation of the buffer, so that a restart loses nothing; it has a bounded length, since days are
few and sizes above 99 are rounded up to two digits.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "HISTORY",
    "SIZE_FROM_BURSTS",
    "BurstHistory",
    "burst_replicas",
    "burst_setting",
    "read_history",
    "with_arrivals",
    "write_history",
]

SIZE_FROM_BURSTS: Final = "karpenter.sh/size-from-bursts"
"""Annotation of a CapacityBuffer: `true`, or the quantile of bursts to keep room for (0.95)."""
HISTORY: Final = "karpenter.sh/observed-bursts"
"""Annotation that holds the history; written by the controller."""

DEFAULT_QUANTILE: Final = Fraction(95, 100)
INTERVAL: Final = timedelta(minutes=5)
DAYS: Final = 7
LAG: Final = timedelta(seconds=10)
"""Pods are counted this long after their creation, so that watches have shown them."""

_EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)
_INTERVALS_PER_DAY: Final = timedelta(days=1) // INTERVAL
_DIGITS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstHistory:
    """Bursts by day (since 1970) and size, and the interval that is not over yet.

    `until` is the time up to which creations are counted.
    """

    until: datetime
    days: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, "Mapping[int, int]"])
    """Day to size to the number of bursts of that size."""
    interval: int
    arrivals: int = 0


def burst_setting(annotations: Mapping[str, str]) -> Fraction | None:
    """Return the quantile that a buffer's annotation asks for; None without automatic size.

    Raises:
        ValueError: the value is neither `true`, `false` nor a number above 0 and up to 1.
    """
    text = annotations.get(SIZE_FROM_BURSTS)
    if text is None or text == "false":
        return None
    if text == "true":
        return DEFAULT_QUANTILE
    try:
        # One with an exponent might have a thousand million digits.
        quantile = Fraction(0) if "e" in text.lower() else Fraction(text)
    except (ValueError, ZeroDivisionError):
        quantile = Fraction(0)
    if not 0 < quantile <= 1:
        message = f'annotation {SIZE_FROM_BURSTS}: "{text}" is neither true nor a number up to 1'
        raise ValueError(message)
    return quantile


def with_arrivals(
    history: BurstHistory | None, created: Iterable[datetime], *, now: datetime
) -> BurstHistory:
    """Return the history with the pods that were created since it was updated last.

    A new history begins at `now`: pods that exist already are no burst. One that is ahead by a day or
    more was dated by a clock that was wrong, and goes on from `now`.
    """
    until = now - LAG
    if history is None:
        return BurstHistory(until=until, interval=_interval(until))
    if history.until - until >= timedelta(days=1):
        today = _interval(until) // _INTERVALS_PER_DAY
        days = {day: sizes for day, sizes in history.days.items() if day <= today}
        return BurstHistory(until=until, days=days, interval=_interval(until))
    if until <= history.until:
        return history
    counts = Counter(_interval(each) for each in created if history.until < each <= until)
    current = _interval(until)
    if history.arrivals:
        counts[history.interval] += history.arrivals
    days = {day: Counter(sizes) for day, sizes in history.days.items()}
    for interval, count in counts.items():
        if interval < current:
            days.setdefault(interval // _INTERVALS_PER_DAY, Counter())[_rounded(count)] += 1
    first_day = current // _INTERVALS_PER_DAY - DAYS + 1
    return replace(
        history,
        until=until,
        days={day: dict(sizes) for day, sizes in sorted(days.items()) if day >= first_day},
        interval=current,
        arrivals=counts[current],
    )


def burst_replicas(history: BurstHistory, quantile: Fraction) -> int:
    """Return the quantile of the bursts, by nearest rank; 0 before the first burst.

    The interval that is not over counts, as far as it has come.
    """
    sizes = Counter[int]()
    for counts in history.days.values():
        sizes.update(counts)
    if history.arrivals:
        sizes[_rounded(history.arrivals)] += 1
    rank = -(-quantile.numerator * sizes.total() // quantile.denominator)
    for size in sorted(sizes):
        rank -= sizes[size]
        if rank <= 0:
            return size
    return 0


def write_history(history: BurstHistory) -> str:
    """Return a history as the text of its annotation."""
    return json.dumps(
        {
            "until": history.until.astimezone(UTC).isoformat(timespec="seconds"),
            "days": {str(day): {str(n): c for n, c in sorted(sizes.items())}
                     for day, sizes in sorted(history.days.items())},
            "interval": history.interval,
            "arrivals": history.arrivals,
        },
        separators=(",", ":"),
    )  # fmt: skip


def read_history(annotations: Mapping[str, str]) -> BurstHistory | None:
    """Read the history of a buffer; None if it has none yet.

    Raises:
        ValueError: the annotation cannot be read; it is not replaced.
    """
    text = annotations.get(HISTORY)
    if text is None:
        return None
    try:
        found = cast("dict[str, object]", json.loads(text))
        days = cast("dict[str, dict[str, int]]", found["days"])
        return BurstHistory(
            until=datetime.fromisoformat(str(found["until"])).astimezone(UTC),
            days={
                int(day): {_count(size): _count(count) for size, count in sizes.items()}
                for day, sizes in days.items()
            },
            interval=_count(found["interval"]),
            arrivals=_count(found["arrivals"]),
        )
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        message = f"annotation {HISTORY} cannot be read ({error}); remove it to start anew"
        raise ValueError(message) from error


def _count(value: object) -> int:
    number = int(str(value))
    if number < 0:
        message = f"{number} is negative"
        raise ValueError(message)
    return number


def _interval(moment: datetime) -> int:
    return (moment - _EPOCH) // INTERVAL


def _rounded(count: int) -> int:
    """Round up to two digits, so that a history has few distinct sizes."""
    step = 10 ** max(len(str(count)) - _DIGITS, 0)
    return -(-count // step) * step
