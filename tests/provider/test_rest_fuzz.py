"""Whatever a cloud's REST API answers, a call returns what was asked for or raises the core's error.

`KARPENTER_PROPERTY_EXAMPLES=20000 pytest tests/provider/test_rest_fuzz.py` tries many.
"""

from __future__ import annotations

import resource
import socket
import threading
from datetime import timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.bounded_reads import UnusableAnswerError, read_bounded
from karpenter_core.provider.kit.calls.metrics import CallMetrics
from karpenter_core.provider.kit.calls.pages import EndlessListingError, token_pages
from karpenter_core.provider.kit.calls.rest import RestClient
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from tests.properties import with_examples

ONCE = RetryPolicy(throttled_attempts=1, transient_attempts=1)
DEEP = b"[" * 100_000 + b"]" * 100_000


class Thing(msgspec.Struct):
    id: str
    size: int = 0
    tags: dict[str, str] = {}


class RawServer:
    """Answers each connection with the next bytes, and closes it."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.answers = []
        self.heads = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection):
        try:
            head = connection.recv(65536)
            self.heads.append(head)
            answer = self.answers.pop(0) if self.answers else b""
            for part in [answer] if isinstance(answer, bytes) else answer:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass

    def stop(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture(scope="module")
def server():
    running = RawServer()
    yield running
    running.stop()


def client_of(server, **options):
    given_options = {"timeout": timedelta(seconds=2), "policy": ONCE, **options}
    return RestClient(server.url, headers={"X-Key": "secret"}, **given_options)


def http(body, status=200, headers=(), length=None):
    head = [
        b"HTTP/1.1 %d X" % status,
        b"Content-Length: %d" % (len(body) if length is None else length),
    ]
    return b"\r\n".join([*head, *headers, b"", body])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "size", "tags", "things", "next"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
BODIES = (
    JSON.map(msgspec.json.encode) | st.binary(max_size=20) | st.sampled_from([DEEP, b"", b"\xff"])
)
HEADERS = st.lists(
    st.sampled_from([
        b"Retry-After: 5", b"Retry-After: -1", b"Retry-After: nan", b"Retry-After: 1e400", b"Retry-After: \xff",
        b"Retry-After: Mon, 32 Foo 99999 99:99:99 GMT", b"Retry-After: Tue, 01 Jan 0001 00:00:00 +2359",
        b"Location: http://127.0.0.1:1/", b"Transfer-Encoding: chunked", b"Content-Encoding: gzip",
        b"Content-Type: text/html; charset=none", b"X: " + b"y" * 70_000, b"broken", b"Connection: close",
    ]),
    max_size=2,
)  # fmt: skip
ANSWERS = (
    st.builds(
        http,
        BODIES,
        st.sampled_from(
            [200, 200, 201, 204, 301, 302, 307, 400, 401, 404, 409, 429, 500, 503, 100, 999]
        ),
        HEADERS,
        st.none() | st.integers(-1, 2**40),
    )
    | st.binary(max_size=60)
    | st.just(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n{}")
)
CALLS = {
    "get": lambda client: client.get("get thing", "/things/a", Thing),
    "find": lambda client: client.find("find thing", "/things/a", Thing),
    "post": lambda client: client.call("make thing", "POST", "/things", Thing, body={"size": 1}),
    "pages": lambda client: client.pages("list things", "/things", "things", Thing),
}


@pytest.mark.parametrize("name", CALLS)
@with_examples(100)
@given(answers=st.lists(ANSWERS, min_size=1, max_size=3))
@example(answers=[http(b'{"id":"a"}')])
@example(answers=[http(b"{}")])
@example(answers=[http(DEEP)])
def test_any_answer_is_a_result_or_an_error_of_the_core(server, name, answers):
    server.answers[:] = answers
    try:
        found = CALLS[name](client_of(server))
    except CloudProviderError as error:
        text = str(error)
    else:
        text = ""
        found = found if name == "pages" else [found]
        assert all(isinstance(each, Thing) or (each is None and name == "find") for each in found)
    assert len(text) < 5_000


def test_a_redirect_is_a_refusal_and_takes_no_credentials_along(server):
    elsewhere = RawServer()
    server.answers[:] = [http(b"", 302, [b"Location: %s/stolen" % elsewhere.url.encode()])]
    with pytest.raises(CloudProviderError, match="302"):
        client_of(server).get("get thing", "/things/a", Thing)
    elsewhere.stop()
    assert elsewhere.heads == []


def test_an_endless_answer_ends_at_its_bound(server):
    """And takes no more memory than the bound and what is read at once."""
    server.answers[:] = [iter([b"HTTP/1.1 200 X\r\n\r\n", *[b" " * 2**20] * 64])]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CloudProviderError, match="larger than 1048576 bytes"):
        client_of(server, most_bytes=2**20).get("get thing", "/things/a", Thing)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB


class Dripping:
    """An answer that sends a byte each second, for ever."""

    length = None

    def __init__(self):
        self.now = 0.0

    def read1(self, size):
        self.now += 1
        return b" "


def test_an_answer_that_drips_ends_in_time():
    answer = Dripping()
    with pytest.raises(UnusableAnswerError, match="not complete after 30 s"):
        read_bounded(answer, seconds=30, now=lambda: answer.now)
    assert answer.now < 35


def test_a_truncated_answer_is_not_read_as_a_shorter_one(server):
    """A list that ends early must not look complete."""
    server.answers[:] = [http(b'{"things":[]}', length=400)]
    with pytest.raises(CloudProviderError, match="cut 387 bytes before its end"):
        client_of(server).pages("list things", "/things", "things", Thing)


def test_a_page_without_its_items_is_an_error(server):
    server.answers[:] = [http(b'{"error":"later"}')]
    with pytest.raises(CloudProviderError, match="no field 'things'"):
        client_of(server).pages("list things", "/things", "things", Thing)


def test_pages_with_ever_new_tokens_end():
    count = 0

    def fetch(_token):
        nonlocal count
        count += 1
        return count

    with pytest.raises(EndlessListingError, match="more than 10000 pages"):
        for _ in token_pages(fetch, str):
            pass
    assert count == 10_000


def test_unknown_error_codes_of_a_cloud_share_few_series():
    registry = CollectorRegistry()
    metrics = CallMetrics(registry, "made_up", cloud="a cloud")
    for number in range(5_000):
        metrics.observe("list", f"Code{number}", 0.1)
    metrics.observe("list", "x" * 1_000_000, 0.1)
    text = generate_latest(registry).decode()
    assert text.count("karpenter_made_up_api_requests_total{") <= 202
    assert 'code="other"' in text
    assert len(text) < 50_000
