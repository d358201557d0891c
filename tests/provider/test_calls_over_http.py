"""A REST client of the standard library makes its calls by the kit, over real connections."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from karpenter_core.errors import ThrottledError
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.calls.http_failures import http_failure
from karpenter_core.provider.kit.calls.pages import token_pages

THROTTLED, CUT_OFF = 429, 0


class RestCloud:
    """Answers requests by a script of statuses, then with the items of a page."""

    def __init__(self):
        self.script, self.requests = [], []
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                cloud.requests.append(self.path)
                status = cloud.script.pop(0) if cloud.script else 200
                if status == CUT_OFF:
                    self.close_connection = True
                    return
                page = int(self.path.partition("page=")[2] or 0)
                body = json.dumps({"items": [page], "next": page + 1 if page < 2 else 0}).encode()
                self.send_response(status)
                if status == THROTTLED:
                    self.send_header("Retry-After", "7")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815 - the name that the server looks for

            def log_message(self, *_):
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def classify(error):
    """The whole of what such a cloud supplies."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return http_failure(error.code, retry_after=error.headers.get("Retry-After"))
    if isinstance(error, OSError | http.client.HTTPException):
        return http_failure(0, message=str(error))
    return None


class RestClient:
    def __init__(self, endpoint):
        self.endpoint, self.slept, self.now = endpoint, [], 0.0
        self.caller = CloudCaller(classify, sleep=self.sleep, monotonic=lambda: self.now)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def call(self, method, path, *, repeatable=True):
        request = urllib.request.Request(self.endpoint + path, method=method)

        def send():
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)

        kind = "reads" if method == "GET" else "writes"
        return self.caller.call(
            send, action=f"{method} {path}", operation_class=kind, repeatable=repeatable
        )


@pytest.fixture
def cloud():
    cloud = RestCloud()
    yield cloud
    cloud.close()


@pytest.fixture
def client(cloud):
    return RestClient(cloud.endpoint)


def test_retry_after_and_a_lost_reply_cost_one_wait_each(cloud, client):
    cloud.script = [THROTTLED, CUT_OFF]

    assert client.call("GET", "/v1/vms")["items"] == [0]
    assert len(cloud.requests) == 3
    assert client.slept[0] == 7


def test_a_create_without_a_token_whose_reply_is_lost_is_sent_once(cloud, client):
    cloud.script = [CUT_OFF]

    with pytest.raises(UncertainCallError, match="POST /v1/vms"):
        client.call("POST", "/v1/vms", repeatable=False)
    assert len(cloud.requests) == 1


def test_a_refusal_after_a_lost_reply_leaves_the_create_uncertain(cloud, client):
    cloud.script = [CUT_OFF, 409]

    with pytest.raises(UncertainCallError, match="409"):
        client.call("POST", "/v1/vms")


def test_a_cloud_that_throttles_on_and_on_is_left_to_the_core(cloud, client):
    cloud.script = [THROTTLED] * 9

    with pytest.raises(ThrottledError) as refused:
        client.call("GET", "/v1/vms")
    assert refused.value.retry_after == timedelta(seconds=7)
    assert len(cloud.requests) == 5


def test_pages_are_followed_by_link_through_a_fault(cloud, client):
    cloud.script = [200, 503]

    pages = token_pages(
        lambda page: client.call("GET", f"/v1/vms?page={page or 0}"), lambda page: page["next"]
    )

    assert [item for page in pages for item in page["items"]] == [0, 1, 2]
