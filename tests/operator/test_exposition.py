"""The text of all metrics is written in pieces."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from karpenter_core.controllers.metrics.object_series import ObjectSeries
from karpenter_core.operator import exposition as module
from karpenter_core.operator.exposition import exposition


def registry_with(series: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("launches", "Launches.", ["pool"], registry=registry).labels("a").inc()
    Histogram("seconds", "Seconds.", registry=registry).observe(0.3)
    gauge = ObjectSeries("depth", "Depth.", ("name",), registry=registry)
    gauge.set_rows([((f"web-{number}",), float(number)) for number in range(series)])
    return registry


def test_the_text_equals_that_of_the_client_library():
    """In one piece or in many, series by series."""
    registry = registry_with(50)

    assert generate_latest(registry) == b"".join(exposition(registry))


def test_no_piece_is_much_larger_than_it_should_be(monkeypatch):
    """Neither memory nor the time that one operation takes grows with the number of series."""
    monkeypatch.setattr(module, "PIECE_CHARACTERS", 1000)

    pieces = list(exposition(registry_with(500)))

    assert len(pieces) > 10
    assert max(map(len, pieces)) < 5000
