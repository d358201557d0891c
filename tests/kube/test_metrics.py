"""The kube layer's metrics: documented, and fed."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from karpenter_core.kube.garbage_collector import tune_gc
from karpenter_core.kube.metrics import KubeMetrics
from karpenter_core.operator.clock import SystemClock

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_every_metric_has_its_row():
    """Name, type and labels as they are exposed; and no row without its metric."""
    metrics = KubeMetrics(CollectorRegistry())
    declared = set()
    for slot in KubeMetrics.__slots__:
        (family,) = getattr(metrics, slot).describe()
        suffix = "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in getattr(metrics, slot)._labelnames)
        declared.add(f"| `{family.name}{suffix}` | {family.type} | {labels} |")
    section = DOCUMENTATION.read_text().partition("| client metric |")[2]
    documented = set(re.findall(r"^\| `[^|]*\|[^|]*\|[^|]*\|", section, re.MULTILINE))
    assert documented == declared


def test_pauses_of_the_collector_are_measured():
    """Until the tuning is undone."""
    registry = CollectorRegistry()
    undo = tune_gc(clock=SystemClock(), metrics=KubeMetrics(registry))
    gc.collect()
    undo()
    gc.collect()
    text = generate_latest(registry).decode()
    assert 'karpenter_core_gc_pause_seconds_count{generation="2"} 1.0' in text


def test_reading_and_writing_load_no_client_library():
    """The embedded server and offline planning go without it; only `connect` needs it."""
    modules = ("api", "events", "informers", "lease", "objects", "writer", "client")
    program = (
        f"import sys; import {', '.join(f'karpenter_core.kube.{name}' for name in modules)}\n"
        "heavy = {'kubernetes', 'aiohttp', 'numpy', 'highspy', 'cel'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
