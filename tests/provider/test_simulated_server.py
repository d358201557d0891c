"""The server keeps the connections of its clients until it ends."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection, IncompleteRead

import pytest

from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer


def echo(request):
    """Answer with the body of the request."""
    headers = (("Content-Type", "text/plain"),)
    return HttpReply(status=200, headers=headers, body=request.body + b"!")


def broken(request):
    raise RuntimeError("not simulated")


@pytest.fixture
def connect():
    """Serve an application; return the server and a connection to it."""
    servers = []

    def serve(application):
        server = HttpServer(application, name="simulated")
        server.start()
        servers.append(server)
        return server, HTTPConnection(server.endpoint_url.removeprefix("http://"), timeout=20)

    yield serve
    for server in servers:
        server.stop()


def said(connection, text):
    connection.request("POST", "/", body=text)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.will_close


def test_calls_of_a_client_share_a_connection(connect):
    _, connection = connect(echo)
    with closing(connection):
        assert said(connection, b"one") == (200, b"one!", False)
        first = connection.sock
        assert said(connection, b"") == (200, b"!", False)
        assert connection.sock is first


def test_an_answer_that_is_cut_has_the_length_of_the_whole_and_half_of_the_body(connect):
    _, connection = connect(lambda _request: HttpReply(status=200, body=b"12345678", is_cut=True))
    with closing(connection):
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.headers["Content-Length"] == "8"
        with pytest.raises(IncompleteRead) as raised:
            answer.read()
        assert raised.value.partial == b"1234"


def test_an_application_that_fails_is_a_server_error(connect):
    _, connection = connect(broken)
    with closing(connection):
        assert said(connection, b"one") == (500, b"", True)


def test_a_server_that_ends_cuts_the_connections(connect):
    """A client that keeps one would go on being answered."""
    server, connection = connect(echo)
    with closing(connection):
        said(connection, b"one")
        server.stop()
        connection.sock.settimeout(20)
        with pytest.raises(ConnectionError):
            said(connection, b"two")
