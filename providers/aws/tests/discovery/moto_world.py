"""Clients of boto3 against moto in this process, and a clock that is moved by hand."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock

from botocore.awsrequest import AWSResponse

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)


@dataclass
class HandClock:
    """A clock that is moved by hand."""

    seconds: float = 0.0

    def now(self):
        return NOON + timedelta(seconds=self.seconds)

    def monotonic(self):
        return 1000.0 + self.seconds

    def forward(self, **amount):
        self.seconds += timedelta(**amount).total_seconds()


@dataclass
class CallLog:
    """The calls that left a client, by operation."""

    calls: list = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def __call__(self, model, params, **_kwargs):
        with self.lock:
            self.calls.append((model.name, params["body"]))

    def of(self, operation):
        return [body for name, body in self.calls if name == operation]

    def __len__(self):
        return len(self.calls)


@contextmanager
def call_log(client):
    """Note every call that this client makes."""
    log = CallLog()
    client.meta.events.register("before-call", log, unique_id="call-log")
    try:
        yield log
    finally:
        client.meta.events.unregister("before-call", unique_id="call-log")


class _Body:
    def __init__(self, content):
        self._content = content

    def stream(self, **_kwargs):
        yield self._content


def _ec2_error(code, message):
    return (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        "</Errors><RequestID>r-1</RequestID></Response>"
    )


def _query_error(code, message):
    return (
        f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        "<RequestId>r-1</RequestId></ErrorResponse>"
    )


def _json_error(code, message):
    return f'{{"__type": "{code}", "message": "{message}"}}'


_FORMS = {"ec2": _ec2_error, "iam": _query_error, "ssm": _json_error, "eks": _json_error}


@contextmanager
def refused(client, operation, code, message="refused", *, status=400, first=None):
    """Have AWS refuse an operation: always, or the first so many times."""
    left = [first]
    service = client.meta.service_model.service_name
    event = f"before-send.{service}.{operation}"

    def answer(request, **_kwargs):
        if left[0] is not None:
            if left[0] == 0:
                return None
            left[0] -= 1
        body = _Body(_FORMS[service](code, message).encode())
        headers = {"x-amzn-errortype": code} if service in {"ssm", "eks"} else {}
        return AWSResponse(request.url, status, headers, body)

    client.meta.events.register_first(event, answer, unique_id=f"refused-{operation}")
    try:
        yield
    finally:
        client.meta.events.unregister(event, unique_id=f"refused-{operation}")


@contextmanager
def unreachable(*clients):
    """Let no call reach AWS."""
    from botocore.exceptions import EndpointConnectionError

    def fail(request, **_kwargs):
        raise EndpointConnectionError(endpoint_url=request.url)

    for client in clients:
        client.meta.events.register_first("before-send", fail, unique_id="unreachable")
    try:
        yield
    finally:
        for client in clients:
            client.meta.events.unregister("before-send", unique_id="unreachable")
