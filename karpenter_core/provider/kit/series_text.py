"""Writes series of metrics as text, for gauges that have very many of them.

In a large cluster hundreds of thousands of series are scraped. The client library makes an object, a
dictionary and a sorted text of each; here a line is formatted once, when it is scraped.
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
    """Return a label value as the text format has it between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as the text format has them between braces, sorted by name."""
    return ",".join(
        f'{name}="{escape_label_value(value)}"' for name, value in sorted(labels.items())
    )


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
