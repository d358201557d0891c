"""Answers of Alibaba Cloud are read up to a size and for a time, and from the asked place alone."""

from __future__ import annotations

import gzip
import socket
from contextlib import suppress

import pytest

from karpenter_core.provider.kit.calls import bounded_reads
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.sdk import ClientLimits, CloudClients
from karpenter_simulated_alibabacloud.testing import simulated_environment

LIMITS = ClientLimits(read_seconds=1.0, retries=RetryPolicy(transient_attempts=1))
JSON = ("Content-Type", "application/json")


def describe(endpoint):
    """Call ECS where it is said to be."""
    clients = CloudClients(
        region="cn-hangzhou", endpoint_ecs=endpoint, protocol="http", limits=LIMITS
    )
    with clients:
        return clients.ecs.call("DescribeInstances", {"RegionId": "cn-hangzhou"})


@pytest.fixture
def serve(cloud):
    """Answer calls with one reply; return the endpoint, and the requests."""
    servers = []

    def start(reply):
        requests = []

        def application(request):
            requests.append(request)
            return reply(request) if callable(reply) else reply

        server = HttpServer(application, name="answers")
        server.start()
        servers.append(server)
        return server.endpoint, requests

    with simulated_environment(cloud):
        yield start
    for server in servers:
        server.stop()


def test_an_answer_is_read_as_before_compressed_too(serve):
    body = gzip.compress(b'{"RequestId": "r"}')
    headers = (JSON, ("Content-Encoding", "gzip"))
    endpoint, _ = serve(HttpReply(status=200, headers=headers, body=body))

    assert describe(endpoint)["RequestId"] == "r"


def test_a_small_answer_that_unpacks_to_a_large_one_is_no_answer(serve):
    body = gzip.compress(b" " * (bounded_reads.MOST_ANSWER_BYTES + 1))
    headers = (JSON, ("Content-Encoding", "gzip"))
    endpoint, _ = serve(HttpReply(status=200, headers=headers, body=body))

    with pytest.raises(ApiError, match="no answer: the answer is larger than"):
        describe(endpoint)


def test_an_answer_that_is_cut_is_no_answer(serve):
    endpoint, _ = serve(HttpReply(status=200, headers=(JSON,), body=b"{}" * 500, is_cut=True))

    with pytest.raises(ApiError, match="no answer"):
        describe(endpoint)


def test_a_redirect_takes_no_credentials_along(serve):
    elsewhere, taken = serve(HttpReply(status=200, headers=(JSON,), body=b"{}"))
    endpoint, _ = serve(HttpReply(status=302, headers=(("Location", f"http://{elsewhere}/"),)))

    with suppress(ApiError):
        describe(endpoint)

    assert taken == []


def test_a_name_that_does_not_resolve_is_no_answer(monkeypatch, serve):
    """DNS fails: the call may be made again, and nothing is taken for refused."""
    del serve  # credentials

    def unresolved(*_arguments, **_options):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unresolved)

    with pytest.raises(ApiError, match="no answer") as raised:
        describe("ecs.example.test")

    assert raised.value.code == ""
