"""Traces sent with the real exporter: to a collector, past planted secrets, and to dead collectors."""

from __future__ import annotations

import gc
import json
import logging
import random
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.exporter.otlp.common import http as exporter_http
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from karpenter_core.errors import SettingsError
from karpenter_core.operator import open_telemetry
from karpenter_core.operator.logs import configure_logs
from karpenter_core.operator.open_telemetry import start_tracing
from karpenter_core.operator.settings import Settings
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.sim.faults import RequestFault
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.planted_secrets import ENVIRONMENT, OF_ALL, SECRET, found_in, with_secret
from tests.support.run_selection import others_as_cluster_runs

HEADER = "planted-header"
QUERY = "planted-query"
THREADS = ("OtelBatch", "end of traces")
ERROR = 2
"""The code of a span that failed."""


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent; answers with a status, or never."""

    daemon_threads = True

    def __init__(self, *, status: int = 200, answers: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.may_answer = threading.Event()
        if answers:
            self.may_answer.set()
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces?key={QUERY}"

    def spans(self):
        """Return each span that was received, with its resource."""
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            (resource.resource, span)
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        self.server.may_answer.wait(60)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        return


@contextmanager
def collector(**options):
    server = Collector(**options)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No proxy of the machine is asked, the logger starts without handlers, and the end may be slow.

    An exporter of an earlier test may still try again, and a handler of that test would log it. Its pauses
    are drawn apart, then and later: hypothesis refuses examples during which `random` was used.
    """
    exporter_http.random = random.Random()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(open_telemetry, "STOP_SECONDS", 60.0)
    logger = logging.getLogger("opentelemetry")
    before = logger.propagate, list(logger.handlers)
    logger.propagate, logger.handlers[:] = False, [logging.NullHandler()]
    yield
    logger.propagate, logger.handlers[:] = before


def tracing(url):
    started = start_tracing(Settings(otlp_traces_endpoint=url))
    assert started is not None
    return started


def play(folder, tracer, *, refused_claims=0):
    """Let pods with a secret get nodes, of which the API server refuses the first."""
    fault = RequestFault(
        matches=lambda request: request.method == "POST" and "nodeclaims" in request.path,
        times=refused_claims,
        status=500,
    )
    web = deployment("web", 3)
    web["spec"]["template"] = with_secret(web["spec"]["template"])

    async def scenario(scene):
        scene.cluster.apply([SECRET, NODE_CLASS, node_pool(), web])
        if refused_claims:
            scene.cluster.frontend.faults.add(fault)
        scene.start("--disable-leader-election", tracer=tracer)
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=600)

    run_controller(folder, scenario)


def live_spans():
    gc.collect()
    return sum(isinstance(each, ReadableSpan) for each in gc.get_objects())


def threads():
    return [each for each in threading.enumerate() if each.name.startswith(THREADS)]


def test_a_collector_receives_the_passes_of_a_controller(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{HEADER}")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=blue")
    before = threads()
    with collector() as received:
        tracer, stop = tracing(received.url)
        play(tmp_path, tracer)
        stop()
        spans = received.spans()
    names = {span.name for _resource, span in spans}
    assert {
        "provisioning.pass",
        "provisioning.solve",
        "disruption.pass",
        "provider.Create",
    } <= names
    by_id = {span.span_id: span.name for _resource, span in spans}
    solves = [span for _resource, span in spans if span.name == "provisioning.solve"]
    assert {by_id[span.parent_span_id] for span in solves} == {"provisioning.pass"}
    (resource,) = {str(resource) for resource, _span in spans}
    assert all(word in resource for word in ("service.name", "karpenter", "blue"))
    assert {headers["authorization"] for headers in received.headers} == {f"Bearer {HEADER}"}
    assert set(threads()) - set(before) == set()


def test_planted_secrets_are_in_no_span(tmp_path, monkeypatch):
    """The text of an error, which may come from an answer, stays out of the span that it ends."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with collector() as received:
        tracer, stop = tracing(received.url)
        play(tmp_path, tracer, refused_claims=2)
        with pytest.raises(RuntimeError), tracer.span("provider.Create", provider="aws"):
            raise RuntimeError(f"refused: {' '.join(OF_ALL)}")
        stop()
        spans = [span for _resource, span in received.spans()]
        bodies = b"".join(received.bodies).decode(errors="replace")
    failed = {(span.name, span.status.message) for span in spans if span.status.code == ERROR}
    assert failed == {("provider.Create", "RuntimeError")}
    assert not any(span.events for span in spans)
    assert found_in({"spans": bodies}, (*OF_ALL, "Traceback")) == set()


@pytest.mark.parametrize("kind", others_as_cluster_runs(["fails", "refuses", "is silent"]))
def test_a_dead_collector_neither_stalls_nor_grows_nor_floods_the_log(
    tmp_path, monkeypatch, kind, capfd
):
    """Passes go on, at most a queue of spans is kept, and the end comes at once."""
    monkeypatch.setattr(open_telemetry, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(open_telemetry, "QUIET_SECONDS", 3600.0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={HEADER}, {HEADER}")
    logs = tmp_path / "log.jsonl"
    close = configure_logs(load_settings([f"--log-output-paths={logs}", "--log-format=json"], {}))
    before = live_spans()
    with collector(status=503, answers=kind != "is silent") as received:
        url = received.url if kind != "refuses" else f"http://127.0.0.1:1/?key={QUERY}"
        tracer, stop = tracing(url)
        play(tmp_path, tracer)
        started = time.perf_counter()
        for _ in range(6_000):
            with tracer.span("provisioning.pass", triggers=1):
                pass
        spent = time.perf_counter() - started
        kept = live_spans() - before
        started = time.perf_counter()
        stop()
        stopping = time.perf_counter() - started
    close()
    written, printed = logs.read_text(), "".join(capfd.readouterr())
    # With a wait for the collector it would be a time limit of 10 s for each of 11 batches.
    assert spent < 100
    # The queue, and the batch that is being sent.
    assert kept <= 2048 + 512 + 10
    # The library would wait for 30 s.
    assert stopping < 15
    lines = map(json.loads, written.splitlines())
    problems = [line["problem"] for line in lines if line["logger"] == "controller.traces"]
    assert problems
    assert len(problems) == len(set(problems))
    assert found_in({"log": written, "terminal": printed}, (HEADER, QUERY)) == set()
    assert "opentelemetry" not in printed.lower()
    assert "dropping" not in printed


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("collector:4318", r'"collector:4318" is no URL of http or https'),
        ("ftp://collector/v1/traces", "is no URL of http or https"),
        ("http:///v1/traces", "is no URL of http or https"),
        ("http://[::1/v1/traces", "is no URL of http or https"),
        ("http://collector:99999/v1/traces", "is no URL of http or https"),
        (
            "https://me:planted-pod-variable@collector/",
            "set a header by OTEL_EXPORTER_OTLP_HEADERS",
        ),
        ("me:planted-pod-variable@collector", "set a header by OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint, message):
    """Without showing a password in it."""
    with pytest.raises(SettingsError, match=message) as refused:
        start_tracing(Settings(otlp_traces_endpoint=endpoint))
    assert "planted" not in str(refused.value)
