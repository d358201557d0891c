"""Every metric is documented, under its exposed name."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import generate_latest

from karpenter_core.controllers.metrics import Metrics, markdown_table

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_every_metric_is_documented():
    """The page holds the table as the code renders it."""
    assert markdown_table(Metrics()) in DOCUMENTATION.read_text(encoding="utf-8")


def test_metrics_are_exposed_under_the_names_they_are_declared_with():
    """The client library adds suffixes of its own; what is documented is what is scraped."""
    metrics = Metrics()
    exposed = generate_latest(metrics.registry).decode()

    for name in metrics.declared:
        assert f"# TYPE {name} " in exposed
