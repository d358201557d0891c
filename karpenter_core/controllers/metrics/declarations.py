"""Declares metrics in a registry, with a row for the documentation of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter, Gauge, Histogram

from karpenter_core.controllers.metrics.object_series import ObjectSeries
from karpenter_core.controllers.metrics.quantiles import QuantileSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client import CollectorRegistry

__all__ = ["DURATION_BUCKETS", "NAMESPACE", "MetricDeclarations", "MetricRow"]

NAMESPACE: Final = "karpenter"

DURATION_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8,
    0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0,
    20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
)  # fmt: skip  # upstream's buckets for durations


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """The row of a metric in the documentation."""

    name: str
    type: str
    text: str
    labels: tuple[str, ...]


@final
class MetricDeclarations:
    """Creates metrics and keeps their rows; `now` is a monotonic clock in seconds."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        now: Callable[[], float],
        namespace: str = NAMESPACE,
    ) -> None:
        self.registry: Final = registry
        self.rows: dict[str, MetricRow] = {}
        self._now = now
        self._namespace = namespace

    def with_namespace(self, namespace: str) -> MetricDeclarations:
        """Return the same registry and rows under another first part of the names."""
        other = MetricDeclarations(self.registry, now=self._now, namespace=namespace)
        other.rows = self.rows
        return other

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        """Declare a counter."""
        full = self._note(name, "counter", text, labels)
        return Counter(full, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Gauge:
        """Declare a gauge."""
        full = self._note(name, "gauge", text, labels)
        return Gauge(full, text, labels, registry=self.registry)

    def series(self, name: str, text: str, labels: Sequence[str]) -> ObjectSeries:
        """Declare a gauge with a series for every object of a kind."""
        full = self._note(name, "gauge", text, labels)
        return ObjectSeries(full, text, labels, registry=self.registry)

    def summary(self, name: str, text: str, labels: Sequence[str]) -> QuantileSummary:
        """Declare a summary with quantiles."""
        full = self._note(name, "summary", text, labels)
        return QuantileSummary(full, text, labels, registry=self.registry, now=self._now)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        buckets: Sequence[float] = DURATION_BUCKETS,
    ) -> Histogram:
        """Declare a histogram."""
        full = self._note(name, "histogram", text, labels)
        return Histogram(full, text, labels, registry=self.registry, buckets=buckets)

    def _note(self, name: str, kind: str, text: str, labels: Sequence[str]) -> str:
        full = f"{self._namespace}_{name}"
        self.rows[full] = MetricRow(name=full, type=kind, text=text, labels=tuple(labels))
        return full
