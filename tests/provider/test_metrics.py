"""The façade's metrics are documented."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from karpenter_core.provider.host.metrics import PluginCallMetrics

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_every_metric_has_its_row():
    """Name and type as they are exposed; and no row without its metric."""
    registry = CollectorRegistry()
    PluginCallMetrics(registry)
    declared = {
        (f"{family.name}{'_total' if family.type == 'counter' else ''}", family.type)
        for family in registry.collect()
    }
    section = DOCUMENTATION.read_text().partition("| provider metric |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"^\| `([^`]*)` \| (\w+) \|", section, re.MULTILINE))
    assert documented == declared
