"""Counts and times the calls to AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, final

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from botocore.awsrequest import AWSRequest
    from botocore.client import BaseClient
    from botocore.model import OperationModel
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from karpenter_core.clock import Clock

__all__ = ["SdkMetrics"]

_LABELS: Final = ("service", "action", "status_code")
_DURATIONS: Final = tuple(round(0.01 * 1.5**n, 6) for n in range(20))  # upstream's
_RETRIES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
_CALL: Final = "karpenter_call"
_ATTEMPT: Final = "karpenter_attempt"
_NO_ANSWER: Final = "0"


@final
class SdkMetrics:
    """Listens to clients of boto3.

    The names are those that Karpenter's dashboards read, which say in which language the SDK was.
    """

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock: Final = clock
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

    def observe(self, client: BaseClient) -> None:
        """Listen to a new client."""
        events = client.meta.events
        events.register("before-call", self._begin_call)
        events.register("request-created", self._begin_attempt)
        events.register("response-received", self._end_attempt)
        events.register("after-call", self._end_call)
        events.register("after-call-error", self._fail_call)

    def _begin_call(
        self, *, model: OperationModel, context: MutableMapping[str, object], **_: object
    ) -> None:
        context[_CALL] = (str(model.service_model.service_id), model.name, self._clock.monotonic())

    def _begin_attempt(self, *, request: AWSRequest, **_: object) -> None:
        context = cast("MutableMapping[str, object]", request.context)
        context[_ATTEMPT] = self._clock.monotonic()

    def _end_attempt(
        self,
        *,
        context: Mapping[str, object],
        response_dict: Mapping[str, object] | None = None,
        **_: object,
    ) -> None:
        call, began = _call_in(context), context.get(_ATTEMPT)
        if call is None or not isinstance(began, float):
            return
        status = _NO_ANSWER if response_dict is None else str(response_dict.get("status_code", 0))
        labels = (*call[:2], status)
        self._attempts.labels(*labels).inc()
        self._attempt_duration.labels(*labels).observe(self._clock.monotonic() - began)

    def _end_call(
        self, *, parsed: Mapping[str, object], context: Mapping[str, object], **_: object
    ) -> None:
        about = cast("Mapping[str, int]", parsed.get("ResponseMetadata", {}))
        self._count(
            context, str(about.get("HTTPStatusCode", 0)), retries=about.get("RetryAttempts", 0)
        )

    def _fail_call(self, *, context: Mapping[str, object], **_: object) -> None:
        self._count(context, _NO_ANSWER, retries=None)

    def _count(self, context: Mapping[str, object], status: str, *, retries: int | None) -> None:
        call = _call_in(context)
        if call is None:
            return
        service, action, began = call
        labels = (service, action, status)
        self._calls.labels(*labels).inc()
        self._duration.labels(*labels).observe(self._clock.monotonic() - began)
        if retries is not None:
            self._retries.labels(*labels).observe(retries)


def _call_in(context: Mapping[str, object]) -> tuple[str, str, float] | None:
    return cast("tuple[str, str, float] | None", context.get(_CALL))
