"""Tells growth from noise in values that were measured at equal intervals.

The slope is Theil and Sen's, the median of the slopes between all pairs: a third of the values may be
outliers. Growth is significant by the test of Mann and Kendall, which counts the pairs that rise
and those that fall, with its correction for equal values. It assumes no distribution.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from math import erfc, sqrt
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Trend", "trend_of"]

NORMAL_975: Final = 1.96
"""Bound that a normally distributed value exceeds in 1 of 40 cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The rise of a series of values."""

    first: float
    last: float
    slope: float
    """Rise from one value to the next."""
    rise: float
    """Rise from the first value to the last, by the slope."""
    p_value: float
    """Probability of so steady a rise without any growth."""
    slope_bounds: tuple[float, float]
    """Bounds that hold the slope with 95 % confidence (Sen)."""

    def exceeds(self, *, rise: float, share: float = 0.0, p_value: float = 0.001) -> bool:
        """Return whether the values grow: steadily, by more than `rise` and by a share of the first."""
        least = max(rise, share * abs(self.first))
        return self.p_value < p_value and self.rise >= least


def trend_of(values: Sequence[float]) -> Trend:
    """Return the trend of values; a single one has none."""
    pairs = list(combinations(enumerate(values), 2))
    slopes = sorted((later - sooner) / (b - a) for (a, sooner), (b, later) in pairs) or [0.0]
    slope = median(slopes)
    score = sum((later > sooner) - (later < sooner) for (_, sooner), (_, later) in pairs)
    return Trend(
        first=values[0],
        last=values[-1],
        slope=slope,
        rise=slope * (len(values) - 1),
        p_value=_p_value(score, values),
        slope_bounds=_bounds(slopes, values),
    )


def _p_value(score: int, values: Sequence[float]) -> float:
    variance = _score_variance(values)
    if score <= 0 or variance <= 0:
        return 1.0
    return erfc((score - 1) / sqrt(variance) / sqrt(2)) / 2


def _bounds(slopes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the slopes as far from the middle one as the score is from 0 by chance."""
    by_chance = NORMAL_975 * sqrt(_score_variance(values))
    low = max(0, round((len(slopes) - by_chance) / 2))
    high = min(len(slopes) - 1, round((len(slopes) + by_chance) / 2))
    return slopes[low], slopes[high]


def _score_variance(values: Sequence[float]) -> float:
    ties = Counter(values).values()
    return (_pair_weight(len(values)) - sum(map(_pair_weight, ties))) / 18


def _pair_weight(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)
