"""Writes the metrics of a registry in Prometheus' text format, in pieces.

A large cluster has a hundred mebibytes of it. In pieces, neither the whole text is ever in memory,
nor does one operation hold the interpreter for longer than a piece takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import generate_latest

from karpenter_core.provider.kit.series_text import SeriesFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["exposition"]

PIECE_CHARACTERS: Final = 2**21


class _SingleFamily:
    """A registry of one family, as `generate_latest` takes it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """Return the family."""
        return (self._family,)


def exposition(registry: CollectorRegistry) -> Iterator[bytes]:
    """Yield the text of all metrics in pieces; may be driven from any thread, one at a time."""
    held: list[str] = []
    size = 0
    for text in _texts(registry):
        held.append(text)
        size += len(text)
        if size >= PIECE_CHARACTERS:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


def _texts(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        if isinstance(family, SeriesFamily):
            yield from family.lines()
        else:
            yield generate_latest(_SingleFamily(family)).decode()  # pyright: ignore[reportArgumentType] - only collects
