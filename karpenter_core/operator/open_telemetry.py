"""Sends spans to a collector with OpenTelemetry, if `--otlp-traces-endpoint` is set.

The libraries come with the extra `otel` and are imported here only, when traces are on. Spans are sent in
batches by a thread of the library; when the collector does not answer, they are dropped.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final, final

from karpenter_core import __version__
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer as OtelTracer

    from karpenter_core.operator.settings import Settings
    from karpenter_core.tracing import Span, Tracer

__all__ = ["OpenTelemetryTracer", "start_tracing"]

PREFIX: Final = "karpenter."
SERVICE: Final = "karpenter"
"""The service name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another one."""


@final
class _RecordedSpan:
    """A span of OpenTelemetry."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def note(self, **counts: int | str) -> None:
        """Add attributes."""
        self._span.set_attributes({f"{PREFIX}{name}": value for name, value in counts.items()})


@final
class OpenTelemetryTracer:
    """A tracer over a processor of OpenTelemetry, which sends or keeps the spans that end."""

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider

        resource = Resource({SERVICE_NAME: SERVICE}).merge(OTELResourceDetector().detect())
        self._provider: Final = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer: Final[OtelTracer] = self._provider.get_tracer("karpenter_core", __version__)

    @contextmanager
    def span(self, name: str, **counts: int | str) -> Generator[Span]:
        """Measure the block as a span, a child of the one around it."""
        attributes = {f"{PREFIX}{key}": value for key, value in counts.items()}
        with self._tracer.start_as_current_span(name, attributes=attributes) as span:
            yield _RecordedSpan(span)

    def stop(self) -> None:
        """Send what is left; waits for the collector for some seconds."""
        self._provider.shutdown()


def start_tracing(settings: Settings) -> tuple[Tracer, Callable[[], None]] | None:
    """Return a tracer that sends spans to the endpoint of the settings, and its end; None if unset.

    Raises:
        SettingsError: the extra `otel` is not installed.
    """
    endpoint = settings.otlp_traces_endpoint
    if not endpoint:
        return None
    try:
        export = import_module("opentelemetry.sdk.trace.export")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        message = (
            f"otlp-traces-endpoint: {error.name} is not installed; install karpenter-core[otel]"
        )
        raise SettingsError(message) from error
    tracer = OpenTelemetryTracer(
        export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint))
    )
    return tracer, tracer.stop
