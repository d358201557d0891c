"""Implements gauges with a series per object, written when scraped."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, final

from prometheus_client.registry import Collector

from karpenter_core.provider.kit.series_text import SeriesFamily, escape_label_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client import CollectorRegistry, Metric

__all__ = ["ObjectSeries", "Row"]

Row: TypeAlias = "tuple[tuple[str, ...], float]"
"""Label values, in the order of declaration, and the value of a series."""


@final
class ObjectSeries(Collector):
    """A gauge whose series are replaced all together, and written out when it is scraped."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        ordered = sorted(range(len(labels)), key=labels.__getitem__)
        self._pick = itemgetter(*ordered) if len(labels) > 1 else None
        places = ",".join(f'{labels[i]}="%s"' for i in ordered)
        self._form = f"{name}{{{places}}} %r\n"
        self._lines: Callable[[], Iterable[str]] = tuple
        registry.register(self)

    @property
    def name(self) -> str:
        """The name of the gauge."""
        return self._name

    def set_rows(self, rows: Iterable[Row]) -> None:
        """Show these series and no others."""
        current = tuple(rows)
        self._lines = lambda: map(self._line, current)

    def set_source(self, lines: Callable[[str], Iterable[str]]) -> None:
        """Show the lines that `lines` returns at a scrape, in the thread of the scrape.

        It is called with the gauge's name. Each item is one or more lines, with their line breaks.
        """
        self._lines = lambda: lines(self._name)

    def describe(self) -> Iterable[Metric]:
        """Name the gauge without its series."""
        return (SeriesFamily(self._name, self._text, tuple),)

    def collect(self) -> Iterable[Metric]:
        """Return the gauge as it is now."""
        return (SeriesFamily(self._name, self._text, self._lines),)

    def _line(self, row: Row) -> str:
        values, number = row
        picked: tuple[str, ...] = values if self._pick is None else self._pick(values)
        return self._form % (*map(escape_label_value, picked), float(number))
