"""Traces show the steps of a pass, and cost nothing where they are off."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from karpenter_core.errors import SettingsError
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.operator.open_telemetry import OpenTelemetryTracer, start_tracing
from karpenter_core.operator.settings import Settings
from karpenter_core.tracing import NO_TRACER
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

GUIDE = Path(__file__).parents[2] / "docs" / "observability.md"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter):
    tracer = OpenTelemetryTracer(SimpleSpanProcessor(exporter))
    yield tracer
    tracer.stop()


def test_spans_have_parents_attributes_and_errors(tracer, exporter):
    """Names of attributes have our prefix."""

    def fail():
        with tracer.span("outer", pods=2) as outer:
            outer.note(claims=1)
            with tracer.span("inner"):
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    inner, outer = exporter.get_finished_spans()

    assert (inner.name, outer.name) == ("inner", "outer")
    assert inner.parent.span_id == outer.context.span_id
    assert dict(outer.attributes) == {"karpenter.pods": 2, "karpenter.claims": 1}
    assert outer.status.status_code is StatusCode.ERROR
    assert outer.resource.attributes["service.name"] == "karpenter"


def test_a_controller_traces_its_passes_and_calls(tmp_path, tracer, exporter):
    """From the pass down to the creation of claims; launches and disruption have spans, too."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        scene.start("--disable-leader-election", tracer=tracer)
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=120)

    run_controller(tmp_path, scenario)
    spans = exporter.get_finished_spans()
    by_id = {span.context.span_id: span for span in spans}
    parents = {
        (by_id[span.parent.span_id].name if span.parent else "", span.name) for span in spans
    }
    assert {
        ("", "provisioning.pass"),
        ("provisioning.pass", "provisioning.snapshot"),
        ("provisioning.pass", "provisioning.solve"),
        ("provisioning.pass", "provisioning.create_claims"),
        ("", "disruption.pass"),
        ("disruption.pass", "disruption.plan"),
        ("disruption.pass", "disruption.start"),
    } <= parents
    assert {"provider.Create", "provider.GetInstanceTypes"} <= {span.name for span in spans}
    solves = [span.attributes for span in spans if span.name == "provisioning.solve"]
    assert (solves[0]["karpenter.pods"], solves[0]["karpenter.unschedulable"]) == (3, 0)
    assert solves[0]["karpenter.claims"] >= 1
    for span in spans:
        name = "provider.METHOD" if span.name.startswith("provider.") else span.name
        assert f"| `{name}` |" in GUIDE.read_text()


def test_nothing_of_open_telemetry_is_imported_without_the_setting():
    """Neither by the process nor by its launcher."""
    program = (
        "import sys; import karpenter_core.operator.launcher, karpenter_core.operator.wiring\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert start_tracing(Settings()) is None


def test_a_missing_library_is_named(monkeypatch):
    """With the extra that has it; the logger of the libraries keeps its handlers."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    settings = Settings(otlp_traces_endpoint="http://127.0.0.1:1/v1/traces")
    before = list(logging.getLogger("opentelemetry").handlers)
    with pytest.raises(SettingsError, match=r"pip install '\.\[otel\]'"):
        start_tracing(settings)
    assert logging.getLogger("opentelemetry").handlers == before


def test_without_a_tracer_every_step_has_the_same_span():
    """So that traces that are off allocate nothing."""
    with NO_TRACER.span("a", pods=1) as first, NO_TRACER.span("b") as second:
        first.note(claims=2)
    assert first is second
