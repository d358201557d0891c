"""The REST client reads refusals, waits, and pages as a cloud writes them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    InsufficientCapacityError,
    ThrottledError,
)
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.calls.rest import RestClient, RestRefusedError
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer

ONCE = RetryPolicy(throttled_attempts=1, transient_attempts=1)


@contextmanager
def client_of(answer, **options):
    """Serve replies of status, body and headers; collect the requests."""
    requests = []

    def application(request):
        requests.append(request)
        status, body, *headers = answer(request)
        return HttpReply(status=status, headers=tuple(headers), body=json.dumps(body).encode())

    server = HttpServer(application, name="rest")
    server.start()
    try:
        yield (
            RestClient(
                server.endpoint_url + "/",
                headers={"X-Key": "k"},
                timeout=timedelta(seconds=5),
                **options,
            ),
            requests,
        )
    finally:
        server.stop()


class Thing(msgspec.Struct):
    id: str
    price: str = ""


def test_an_answer_is_decoded_and_headers_are_sent():
    with client_of(lambda _: (200, {"id": "a", "price": "0.05", "more": 1})) as (client, requests):
        assert client.get("get", "/things/a", Thing, zone="n 1") == Thing("a", "0.05")
    assert requests[0].headers["x-key"] == "k"
    assert (requests[0].path, requests[0].query) == ("/things/a", "zone=n+1")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AuthError),
        (403, AuthError),
        (429, ThrottledError),
        (409, RestRefusedError),
        (500, UncertainCallError),
        (503, UncertainCallError),
    ],
)
def test_statuses_have_their_errors(status, error):
    body = {"code": "some-code", "message": "some text"}
    with (
        client_of(lambda _: (status, body), policy=ONCE) as (client, _),
        pytest.raises(error, match="some text") as raised,
    ):
        client.call("create thing", "POST", "/things", Thing, body={})
    assert type(raised.value) is error
    if error is AuthError:
        assert raised.value.action == "create thing"


def test_an_absent_resource_is_none_and_other_refusals_are_errors():
    with client_of(lambda r: (404 if r.path == "/absent" else 409, {})) as (client, _):
        assert client.find("get", "/absent", Thing) is None
        with pytest.raises(RestRefusedError):
            client.find("get", "/there", Thing)


def test_a_code_becomes_the_error_that_the_cloud_supplies():
    def error_of(code, message):
        return InsufficientCapacityError(message) if code == "full" else None

    with (
        client_of(lambda _: (409, {"code": "full"}), error_of=error_of) as (client, _),
        pytest.raises(InsufficientCapacityError, match="create thing"),
    ):
        client.call("create thing", "POST", "/things", Thing, body={})
    with (
        client_of(lambda _: (409, {"code": "taken"}), error_of=error_of) as (client, _),
        pytest.raises(RestRefusedError) as raised,
    ):
        client.call("create thing", "POST", "/things", Thing, body={})
    assert raised.value.code == "taken"


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [("7", (7, 7)), (timedelta(hours=1), (3000, 3600)), (timedelta(hours=-1), (0, 0))],
    ids=["seconds", "date", "date in the past"],
)
def test_retry_after_is_seconds_or_a_date(retry_after, seconds):
    text = (
        retry_after
        if isinstance(retry_after, str)
        else format_datetime(datetime.now(UTC) + retry_after, usegmt=True)
    )
    with (
        client_of(lambda _: (429, {}, ("Retry-After", text)), policy=ONCE) as (client, _),
        pytest.raises(ThrottledError) as raised,
    ):
        client.get("get", "/", Thing)
    low, high = seconds
    assert low <= raised.value.retry_after.total_seconds() <= high


@pytest.mark.parametrize("text", ["", "soon", "nan"])
def test_a_retry_after_that_cannot_be_read_is_no_wait(text):
    with (
        client_of(lambda _: (429, {}, ("Retry-After", text)), policy=ONCE) as (client, _),
        pytest.raises(ThrottledError) as raised,
    ):
        client.get("get", "/", Thing)
    assert raised.value.retry_after is None


@pytest.mark.parametrize(("method", "attempts"), [("GET", 2), ("DELETE", 2), ("POST", 1)])
def test_only_calls_that_may_be_repeated_are(method, attempts):
    with (
        client_of(lambda _: (500, {})) as (client, requests),
        pytest.raises(UncertainCallError),
    ):
        client.call("call", method, "/", Thing)
    assert len(requests) == attempts


def test_the_caller_decides_whether_a_post_is_repeated():
    with (
        client_of(lambda _: (500, {})) as (client, requests),
        pytest.raises(CloudProviderError),
    ):
        client.call("ask", "POST", "/", Thing, repeatable=True)
    assert len(requests) == 2


def test_headers_can_be_new_for_each_attempt():
    seen: list[str] = []
    tokens = iter(("first", "second"))
    replies = iter((HttpReply(status=500), HttpReply(status=200, body=b'{"id": "a"}')))

    def application(request):
        seen.append(request.headers["x-token"])
        return next(replies)

    server = HttpServer(application, name="rest")
    server.start()
    try:
        client = RestClient(
            server.endpoint_url,
            headers=lambda: {"X-Token": next(tokens)},
            timeout=timedelta(seconds=5),
        )
        assert client.get("get", "/", Thing) == Thing("a")
    finally:
        server.stop()
    assert seen == ["first", "second"]


def test_a_call_without_an_answer_may_have_been_carried_out():
    server = HttpServer(lambda _: None, name="rest")
    server.start()
    try:
        client = RestClient(server.endpoint_url, headers={}, timeout=timedelta(seconds=5))
        with pytest.raises(UncertainCallError):
            client.call("create", "POST", "/", Thing, body={})
    finally:
        server.stop()


def test_an_answer_of_another_shape_is_an_error():
    with client_of(lambda _: (200, {"id": 5})) as (client, _), pytest.raises(CloudProviderError):
        client.get("get", "/", Thing)


def test_an_empty_answer_is_an_empty_object():
    server = HttpServer(lambda _: HttpReply(status=204), name="rest")
    server.start()
    try:
        client = RestClient(server.endpoint_url, headers={}, timeout=timedelta(seconds=5))
        assert client.call("delete", "DELETE", "/", dict[str, str]) == {}
    finally:
        server.stop()


def test_pages_are_read_to_the_end():
    def answer(request):
        page = int(request.query.partition("page_token=")[2] or 0)
        return 200, {"things": [{"id": str(page)}]} | ({"next": str(page + 1)} if page < 2 else {})

    with client_of(answer) as (client, requests):
        found = client.pages("list", "/things", "things", Thing, label="a")
    assert [thing.id for thing in found] == ["0", "1", "2"]
    assert all(request.query.startswith("label=a") for request in requests)
