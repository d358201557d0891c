"""The region comes from the metadata service (acceptance case 98)."""

from __future__ import annotations

import socket
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from karpenter_core.errors import SettingsError
from karpenter_provider_alibabacloud import metadata
from karpenter_provider_alibabacloud.metadata import region_id
from karpenter_provider_alibabacloud.sdk import CloudClients


class Metadata(BaseHTTPRequestHandler):
    """Answers as the service does: in the open, or to those only who come with a token."""

    server: MetadataServer

    def do_GET(self):
        self.server.asked.append(self.path)
        needed, given = self.server.token, self.headers.get("X-aliyun-ecs-metadata-token")
        self.answer(403 if needed and needed != given else self.server.status, self.server.region)

    def do_PUT(self):
        self.server.asked.append(self.path)
        is_dated = bool(self.headers.get("X-aliyun-ecs-metadata-token-ttl-seconds"))
        self.answer(200 if is_dated else 400, self.server.token)

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class MetadataServer(HTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Metadata)
        self.region, self.token, self.status = "cn-beijing", "", 200
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def service():
    with MetadataServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_region_comes_from_instance_metadata(service):
    assert region_id(service.url) == "cn-beijing"
    assert service.asked == ["/latest/meta-data/region-id"]


def test_a_token_is_fetched_where_one_is_needed(service):
    service.token = "secret"

    assert region_id(service.url) == "cn-beijing"
    assert service.asked.count("/latest/api/token") == 1


def test_no_token_is_fetched_where_the_service_fails(service):
    """Its error is told as it is, not that of a token."""
    service.status = 503

    with pytest.raises(SettingsError, match="503"):
        region_id(service.url)

    assert "/latest/api/token" not in service.asked


def test_proxies_are_not_used(service, monkeypatch):
    """They would answer with their own metadata."""
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert region_id(service.url) == "cn-beijing"


@pytest.mark.parametrize(("status", "region"), [(200, ""), (404, "none"), (500, "oops")])
def test_a_region_missing_from_metadata_is_an_error_with_the_setting(service, status, region):
    service.status, service.region = status, region

    with pytest.raises(SettingsError, match="REGION_ID"):
        region_id(service.url)


def test_an_unresponsive_metadata_service_is_an_error_within_five_seconds(monkeypatch):
    """Case 98: outside of the cloud packets to it are lost; five seconds are the most that may take."""
    assert 2 * metadata.TIMEOUT_SECONDS < 5
    monkeypatch.setattr(metadata, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(SettingsError, match=r"REGION_ID.*timed out"):
            region_id(f"http://127.0.0.1:{silent.getsockname()[1]}")

    assert time.monotonic() - started < 5


def test_the_region_is_read_once_and_only_when_not_configured(service):
    asking = CloudClients(metadata_endpoint=service.url)
    configured_clients = CloudClients(region="cn-hangzhou", metadata_endpoint=service.url)

    assert [asking.region, asking.region, configured_clients.region] == [
        "cn-beijing",
        "cn-beijing",
        "cn-hangzhou",
    ]
    assert len(service.asked) == 1
