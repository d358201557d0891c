"""Answers of AWS are read up to a size and for a time; what is more is no answer."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from threading import Thread

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, HTTPClientError

from karpenter_core.provider.kit.calls.failures import AttemptFailureKind
from karpenter_provider_aws import bounded_answers
from karpenter_provider_aws.api_calls import attempt_failure
from karpenter_provider_aws.bounded_answers import BoundedSession, bound_answers

ACCOUNT = (
    b"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account>"
    b"</GetCallerIdentityResult></GetCallerIdentityResponse>"
)


@contextmanager
def serving(pieces, *, headers=b"", pause=0.0):
    """Answer each connection with pieces of a body; yield the endpoint."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n")
                    for piece in pieces():
                        connection.sendall(piece)
                        time.sleep(pause)
                except OSError:
                    continue

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def identity(endpoint, *, seconds=30.0):
    client = boto3.client(
        "sts",
        "us-west-2",
        endpoint_url=endpoint,
        aws_access_key_id="id",
        aws_secret_access_key="key",
        config=Config(retries={"mode": "standard", "total_max_attempts": 1}, read_timeout=5),
    )
    bound_answers(client, seconds=seconds)
    try:
        return client.get_caller_identity()
    finally:
        client.close()


def endless():
    while True:
        yield b"x" * 2**16


def test_an_answer_is_read_as_before():
    length = b"Content-Length: %d\r\n" % len(ACCOUNT)

    with serving(lambda: [ACCOUNT], headers=length) as endpoint:
        assert identity(endpoint)["Account"] == "123456789012"


def test_an_endless_answer_is_no_answer(monkeypatch):
    monkeypatch.setattr(BoundedSession.__init__, "__kwdefaults__", {"most_bytes": 2**20})

    with (
        serving(endless) as endpoint,
        pytest.raises(HTTPClientError, match="larger than") as raised,
    ):
        identity(endpoint)

    assert attempt_failure(raised.value).kind is AttemptFailureKind.UNANSWERED


def test_an_answer_that_drips_is_no_answer():
    """Each byte comes within the time limit of a read."""
    with (
        serving(lambda: (b"x" for _ in range(200)), pause=0.05) as endpoint,
        pytest.raises(HTTPClientError, match="not complete after") as raised,
    ):
        identity(endpoint, seconds=0.2)

    assert attempt_failure(raised.value).kind is AttemptFailureKind.UNANSWERED


def test_the_largest_page_of_instances_is_within_the_bound():
    """1,000 instances, each with 50 tags of the longest names and values."""
    tags = 50 * (128 + 256 + len("<item><key></key><value></value></item>"))
    rest_of_an_instance = 16_384

    assert 1000 * (tags + rest_of_an_instance) < bounded_answers.MOST_ANSWER_BYTES


def test_a_name_that_does_not_resolve_is_no_answer(monkeypatch):
    """DNS fails: the call may be made again, and nothing is taken for refused."""

    def unresolved(*_arguments, **_options):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unresolved)

    with pytest.raises(EndpointConnectionError) as raised:
        identity("http://sts.us-west-2.example.test")

    assert attempt_failure(raised.value).kind is AttemptFailureKind.UNANSWERED
