"""Summaries with quantiles, which the Prometheus client library lacks.

Quantiles are exact, over the observations of the last ten minutes, of which the latest ten thousand
count: the summaries measure nodes and pods, not requests.
"""

from __future__ import annotations

from collections import deque
from math import ceil, nan
from typing import TYPE_CHECKING, Final, final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry

__all__ = ["QUANTILES", "WINDOW_SECONDS", "QuantileSummary"]

QUANTILES: Final = (0.0, 0.5, 0.9, 0.99, 1.0)  # upstream
WINDOW_SECONDS: Final = 600.0
"""The age at which observations stop counting for the quantiles (the Go library's default)."""
MAX_OBSERVATIONS: Final = 10_000


@final
class _QuantileSeries:
    """The observations under one set of labels."""

    __slots__ = ("_latest", "_now", "count", "total")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._latest: deque[tuple[float, float]] = deque(maxlen=MAX_OBSERVATIONS)
        self.count = 0
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Take in one observation."""
        self.count += 1
        self.total += amount
        now = self._now()
        while self._latest and self._latest[0][0] <= now - WINDOW_SECONDS:
            self._latest.popleft()  # else a quiet process keeps what no scrape shows any more
        self._latest.append((now, amount))

    def quantiles(self) -> Iterable[tuple[float, float]]:
        """Yield each quantile and its value, which is NaN without recent observations."""
        since = self._now() - WINDOW_SECONDS
        recent = sorted(amount for at, amount in tuple(self._latest) if at > since)
        for quantile in QUANTILES:
            yield quantile, recent[max(ceil(quantile * len(recent)) - 1, 0)] if recent else nan


@final
class QuantileSummary(Collector):
    """A summary; `now` is a monotonic clock, in seconds."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        *,
        registry: CollectorRegistry,
        now: Callable[[], float],
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._now = now
        self._series: dict[tuple[str, ...], _QuantileSeries] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, **values: str) -> _QuantileSeries:
        """Return the series with these labels."""
        key = tuple(values[name] for name in self._labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _QuantileSeries(self._now)
        return series

    def observe(self, amount: float) -> None:
        """Take in one observation of a summary without labels."""
        self.labels().observe(amount)

    def describe(self) -> Iterable[Metric]:
        """Name the summary without its series."""
        return (Metric(self._name, self._text, "summary"),)

    def collect(self) -> Iterable[Metric]:
        """Return the summary as it is now."""
        metric = Metric(self._name, self._text, "summary")
        for key, series in tuple(self._series.items()):
            labels = dict(zip(self._labels, key, strict=True))
            for quantile, amount in series.quantiles():
                metric.add_sample(self._name, {**labels, "quantile": f"{quantile:g}"}, amount)
            metric.add_sample(f"{self._name}_sum", labels, series.total)
            metric.add_sample(f"{self._name}_count", labels, float(series.count))
        return (metric,)
