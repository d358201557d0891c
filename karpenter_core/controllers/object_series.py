"""Gauges with one series for every object of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry, Metric

__all__ = ["ObjectSeries", "Row"]

Row: TypeAlias = "tuple[tuple[str, ...], float]"
"""Label values, in the order of declaration, and the value of a series."""


@final
class ObjectSeries(Collector):
    """A gauge whose series are replaced all together, and written out when it is scraped.

    The client library's own gauge keeps a lock, a dictionary and an object for each series, 2.5 KiB
    in all; fifteen thousand pods with three series each would need as much as everything else.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._rows: Callable[[], Iterable[Row]] = tuple
        registry.register(self)

    def replace(self, rows: Iterable[Row]) -> None:
        """Show these series and no others."""
        held = tuple(rows)
        self._rows = lambda: held

    def follow(self, rows: Callable[[], Iterable[Row]]) -> None:
        """Show what the function returns whenever it is scraped, in whatever thread."""
        self._rows = rows

    def describe(self) -> Iterable[Metric]:
        """Name the gauge without its series."""
        return (self._family(),)

    def collect(self) -> Iterable[Metric]:
        """Return the gauge as it is now."""
        family = self._family()
        for values, number in self._rows():
            family.add_metric(values, number)
        return (family,)

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._text, labels=self._labels)
