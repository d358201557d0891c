"""Gauges with one series for every object of a kind, written as text when they are scraped.

In a large cluster they are nearly all of what is scraped: hundreds of thousands of series. The client
library makes an object, a dictionary and a sorted text of each; here a line is formatted once.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.samples import Sample

__all__ = ["ObjectSeries", "Row", "SeriesFamily", "escaped", "labels_text"]

Row: TypeAlias = "tuple[tuple[str, ...], float]"
"""Label values, in the order of declaration, and the value of a series."""


def escaped(value: str) -> str:
    """Return a label value as the text format has it between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as the text format has them between braces, sorted by name."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(labels.items()))


@final
class SeriesFamily(Metric):
    """A gauge as it is now: lines of the text format, which are samples to whoever needs those."""

    def __init__(self, name: str, text: str, lines: Callable[[], Iterable[str]]) -> None:
        self._lines: Final = lines
        super().__init__(name, text, "gauge")

    @property
    def samples(self) -> list[Sample]:
        """The series, parsed."""
        families = text_string_to_metric_families("".join(self.lines()))
        return [sample for family in families for sample in family.samples]

    @samples.setter
    def samples(self, _samples: list[Sample]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride] - an attribute there
        """Ignore the empty list that the base class begins with."""

    def lines(self) -> Iterable[str]:
        """Yield the text of the series: one line or more at a time, each with its line break."""
        yield f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} gauge\n"
        yield from self._lines()


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

    def replace(self, rows: Iterable[Row]) -> None:
        """Show these series and no others."""
        held = tuple(rows)
        self._lines = lambda: map(self._line, held)

    def follow(self, lines: Callable[[str], Iterable[str]]) -> None:
        """Show the lines that the function returns when it is scraped, in whatever thread.

        It is given the name of the gauge. What it yields is one line or more, each with its break.
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
        return self._form % (*map(escaped, picked), float(number))
