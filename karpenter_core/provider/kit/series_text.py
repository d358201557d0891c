"""Writes series of metrics as text, for gauges with very many series.

In a large cluster hundreds of thousands of series are scraped. The client library creates an object, a
dictionary and a sorted text for each; here each line is formatted once, during the scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.samples import Sample

__all__ = ["SeriesFamily", "escape_label_value", "labels_text"]


def escape_label_value(value: str) -> str:
    """Return a label value escaped for the text format."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels in the text format, without braces, sorted by name."""
    return ",".join(
        f'{name}="{escape_label_value(value)}"' for name, value in sorted(labels.items())
    )


@final
class SeriesFamily(Metric):
    """A gauge at the moment of a scrape: lines of the text format, parsed to samples on demand."""

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
        """Ignore the empty list that the base class assigns."""

    def lines(self) -> Iterable[str]:
        """Yield the text of the series: one or more lines at a time, each with its line break."""
        yield f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} gauge\n"
        yield from self._lines()
