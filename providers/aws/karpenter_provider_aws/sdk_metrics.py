"""Counts and times the calls to AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

__all__ = ["SdkMetrics"]

_LABELS: Final = ("service", "action", "status_code")
_DURATIONS: Final = tuple(round(0.01 * 1.5**n, 6) for n in range(20))  # upstream's
_RETRIES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)


@final
class SdkMetrics:
    """Records calls, as an observer of `ApiCalls`; the status 0 is a call without an answer.

    The names are those that Karpenter's dashboards read, which say in which language the SDK was.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls: Final = Counter(
            "aws_sdk_go_request_total", "Calls to AWS.", _LABELS, registry=registry
        )
        self._attempts: Final = Counter(
            "aws_sdk_go_request_attempt_total",
            "Attempts of calls to AWS, including the first one.",
            _LABELS,
            registry=registry,
        )
        self._duration: Final = Histogram(
            "aws_sdk_go_request_duration_seconds",
            "Duration of calls to AWS, including retries.",
            _LABELS,
            buckets=_DURATIONS,
            registry=registry,
        )
        self._attempt_duration: Final = Histogram(
            "aws_sdk_go_request_attempt_duration_seconds",
            "Duration of single attempts of calls to AWS.",
            _LABELS,
            buckets=_DURATIONS,
            registry=registry,
        )
        self._retries: Final = Histogram(
            "aws_sdk_go_request_retry_count",
            "Number of retries of calls to AWS.",
            _LABELS,
            buckets=_RETRIES,
            registry=registry,
        )
        self.collectors: Final[tuple[Collector, ...]] = (
            self._calls,
            self._attempts,
            self._duration,
            self._attempt_duration,
            self._retries,
        )

    def note_attempt(self, service: str, operation: str, status: int, seconds: float) -> None:
        """Record one attempt of a call."""
        labels = (service, operation, str(status))
        self._attempts.labels(*labels).inc()
        self._attempt_duration.labels(*labels).observe(seconds)

    def note_call(
        self, service: str, operation: str, status: int, seconds: float, *, retries: int
    ) -> None:
        """Record a call that has ended; `status` is that of its last attempt."""
        labels = (service, operation, str(status))
        self._calls.labels(*labels).inc()
        self._duration.labels(*labels).observe(seconds)
        self._retries.labels(*labels).observe(retries)
