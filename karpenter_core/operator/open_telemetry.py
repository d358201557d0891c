"""Sends spans to an OpenTelemetry collector (`--otlp-traces-endpoint`).

The libraries come with the extra `otel` and are imported here only, when traces are on. Spans are sent in
batches by a thread of the library; when the collector does not answer, they are dropped.

Texts of errors stay in the process: a span has the type of an error only, and of a message of the libraries
only its constant part is logged. Both may have been made from an answer, a URL or a header with a password.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import structlog

from karpenter_core import __version__
from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer as OtelTracer
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.operator.settings import Settings
    from karpenter_core.tracing import Span, Tracer

__all__ = ["OpenTelemetryTracer", "start_tracing"]

PREFIX: Final = "karpenter."
SERVICE: Final = "karpenter"
"""The service name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has another one."""
STOP_SECONDS: Final = 5.0
"""A pod has 30 seconds to end, and the library waits as long for a collector that does not answer."""
QUIET_SECONDS: Final = 60.0
_LIBRARIES: Final = "opentelemetry"


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
        from opentelemetry.trace import StatusCode

        attributes = {f"{PREFIX}{key}": value for key, value in counts.items()}
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _RecordedSpan(span)
            except Exception as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    def stop(self) -> None:
        """Send what is left; waits for the collector for some seconds, then gives the spans up."""
        ending = Thread(target=self._provider.shutdown, name="end of traces", daemon=True)
        ending.start()
        ending.join(STOP_SECONDS)


@final
class _LibraryMessages(logging.Handler):
    """Logs what the libraries have to say, each message once a minute at most.

    Without a handler each span that is dropped would be a line of plain text on stderr.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._log: FilteringBoundLogger = structlog.get_logger("traces")
        self._next_at: dict[str, float] = {}
        self._unwritten: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the constant part of a message, or count it."""
        message = str(record.msg)
        self._unwritten[message] += 1
        if record.created < self._next_at.get(message, 0.0):
            return
        self._next_at[message] = record.created + QUIET_SECONDS
        count = self._unwritten.pop(message)
        self._log.warning("OpenTelemetry reports a problem", problem=message, times=count)


def _hear_libraries() -> None:
    logger = logging.getLogger(_LIBRARIES)
    logger.propagate = False
    logger.handlers[:] = [_LibraryMessages()]


def start_tracing(settings: Settings) -> tuple[Tracer, Callable[[], None]] | None:
    """Return a tracer that sends spans to the endpoint of the settings, and its end; None if unset.

    Raises:
        SettingsError: the extra `otel` is not installed, or the endpoint is no URL that may be used.
    """
    endpoint = settings.otlp_traces_endpoint
    if not endpoint:
        return None
    _check(endpoint)
    try:
        export = import_module("opentelemetry.sdk.trace.export")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        message = (
            f"otlp-traces-endpoint: {error.name} is not installed; in a checkout of karpenter-core: "
            "pip install '.[otel]'"
        )
        raise SettingsError(message) from error
    _hear_libraries()
    tracer = OpenTelemetryTracer(
        export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint))
    )
    return tracer, tracer.stop


def _check(endpoint: str) -> None:
    """Refuse an endpoint to which nothing can be sent, or with a password, which others could read."""
    try:
        url = urlsplit(endpoint)
        is_usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_usable, url = False, urlsplit("")
    if "@" in endpoint:
        raise SettingsError(
            "otlp-traces-endpoint: the URL has a user or a password; set a header by "
            "OTEL_EXPORTER_OTLP_HEADERS instead"
        )
    if not is_usable:
        message = f'otlp-traces-endpoint: "{endpoint}" is no URL of http or https'
        raise SettingsError(message)
