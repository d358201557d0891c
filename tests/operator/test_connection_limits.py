"""Whoever reaches a port of the process can neither fill its memory nor keep others from it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.operator import bounded_listener, servers
from karpenter_core.operator.servers import HttpServers
from karpenter_core.operator.serving_certificate import ServingCertificate
from karpenter_core.provider.kit.series_text import SeriesFamily
from tests.support.certificates import CertificateAuthority

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class ManySeries:
    """A metric whose text is more than the buffers of a connection take, and costs nothing to write."""

    def describe(self):
        return ()

    def collect(self):
        lines = "".join(f'pods{{name="{number:0100}"}} 1\n' for number in range(1_000))
        yield SeriesFamily("pods", "Pods.", lambda: [lines] * 100)


@asynccontextmanager
async def served(*, certificate=None, slow_routes=None, has_many_series=False):
    """The servers."""
    registry = CollectorRegistry()
    if has_many_series:
        registry.register(ManySeries())
    both = HttpServers(
        registry=registry,
        checks=(),
        address="127.0.0.1",
        metrics_port=0,
        probe_port=0,
        certificate=certificate,
        slow_routes=slow_routes,
    )
    await both.start()
    try:
        yield both
    finally:
        await both.stop()


async def connect(port, **options):
    return await asyncio.open_connection("127.0.0.1", port, **options)


async def ask(port, request=REQUEST, **options):
    """Return the status of an answer."""
    reader, writer = await connect(port, **options)
    try:
        writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        return int((await reader.read()).split()[1])
    finally:
        writer.close()


async def count_closed(readers, *, at_least):
    """Wait until so many connections are closed by the server; return how many are."""
    waiting = [asyncio.create_task(is_closed(reader)) for reader in readers]
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            while sum(task.done() for task in waiting) < at_least:  # noqa: ASYNC110 - readers tell
                await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    closed = sum(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return closed


async def is_closed(reader):
    with suppress(ConnectionError):
        await reader.read(1)


@pytest.mark.parametrize("port", ["metrics_port", "probe_port"])
async def test_the_longest_idle_connections_are_closed_when_there_are_too_many(port, monkeypatch):
    """A connection that is made now is answered, however many wait."""
    monkeypatch.setattr(bounded_listener, "MOST_CONNECTIONS", 10)
    async with served() as both:
        number = getattr(both, port)
        idle = [await connect(number) for _ in range(30)]

        assert await ask(number, REQUEST.replace(b"/metrics", b"/healthz")) in {200, 404}

        assert await count_closed([reader for reader, _ in idle], at_least=21) == 21
        assert await count_closed([reader for reader, _ in idle[-9:]], at_least=0) == 0
        for _, writer in idle:
            writer.close()


async def test_a_connection_that_was_used_last_stays(monkeypatch):
    """Other than one of the same age that was never used."""
    monkeypatch.setattr(bounded_listener, "MOST_CONNECTIONS", 3)
    async with served() as both:
        used, unused = await connect(both.metrics_port), await connect(both.metrics_port)
        used[1].write(REQUEST)
        await used[0].readuntil(b"\r\n")

        more = [await connect(both.metrics_port) for _ in range(2)]

        assert await count_closed([unused[0]], at_least=1) == 1
        used[1].write(REQUEST)
        assert b"200 OK" in await used[0].readuntil(b"200 OK")
        for _, writer in (used, unused, *more):
            writer.close()


async def test_connections_that_are_gone_are_forgotten():
    """A handler of a closed connection holds kibibytes; scrapers and kubelets connect all the time."""
    async with served() as both:
        for _ in range(20):
            assert await ask(both.metrics_port) == 200

        assert all(len(listener._open) <= 2 for listener in both._listeners)


async def test_a_request_that_arrives_bit_by_bit_is_given_up(monkeypatch):
    """Each byte starts no new time."""
    monkeypatch.setattr(bounded_listener, "FIRST_REQUEST_SECONDS", 0.3)
    async with served() as both:
        reader, writer = await connect(both.metrics_port)
        closed = asyncio.create_task(is_closed(reader))
        async with asyncio.timeout(10):
            for byte in REQUEST[:-1] + b"X-Padding: " + b"x" * 2_000:
                if closed.done():
                    break
                with suppress(ConnectionError):
                    writer.write(bytes([byte]))
                    await writer.drain()
                await asyncio.sleep(0.02)
            await closed
        writer.close()


async def test_handshakes_that_never_end_are_counted_and_given_up(tmp_path, monkeypatch):
    """A handshake takes hundreds of kibibytes before anything of HTTP is known of it."""
    monkeypatch.setattr(bounded_listener, "MOST_CONNECTIONS", 10)
    authority = CertificateAuthority(tmp_path)
    files = authority.issue("server", "metrics", hosts=["127.0.0.1"])
    trust = ssl.create_default_context(cafile=str(authority.certificate_file))
    async with served(certificate=ServingCertificate(*map(str, files))) as both:
        silent = [await connect(both.metrics_port) for _ in range(30)]

        assert await ask(both.metrics_port, ssl=trust) == 200

        assert await count_closed([reader for reader, _ in silent], at_least=21) == 21
        monkeypatch.setattr(bounded_listener, "FIRST_REQUEST_SECONDS", 0.2)
        last = await connect(both.metrics_port)
        assert await count_closed([last[0]], at_least=1) == 1
        for _, writer in (*silent, last):
            writer.close()


async def test_a_connection_that_is_being_answered_is_not_closed_for_a_new_one(monkeypatch):
    """If all connections are being answered, the new one is closed."""
    monkeypatch.setattr(bounded_listener, "MOST_CONNECTIONS", 2)
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_query):
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return "answered"

    async with served(slow_routes={"/slow": slow}) as both:
        asked = []
        for _ in range(2):
            asked.append(await connect(both.metrics_port))
            asked[-1][1].write(REQUEST.replace(b"/metrics", b"/slow"))
        await asyncio.sleep(0.2)

        extra = await connect(both.metrics_port)

        assert await count_closed([extra[0]], at_least=1) == 1
        go_on.set()
        for reader, _ in asked:
            assert b"answered" in await reader.readuntil(b"answered")
        for _, writer in (*asked, extra):
            writer.close()


async def begin_to_read(port):
    """Return a socket that has read the first byte of a scrape, and takes little more."""
    with ExitStack() as unless_read:
        one = unless_read.enter_context(socket.socket())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", port))
        one.sendall(REQUEST)
        one.setblocking(False)
        await asyncio.get_running_loop().sock_recv(one, 1)
        unless_read.pop_all()
    return one


async def test_scrapes_that_nobody_reads_are_bounded_and_end(monkeypatch, caplog):
    """They hold no place and no text for ever; the next scraper is answered."""
    monkeypatch.setattr(servers, "MOST_ANSWERS", 2)
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 2.0)
    async with served(has_many_series=True) as both:
        with ExitStack() as slow:
            async with asyncio.timeout(20):
                status = 200
                while status != 503:  # the first may have ended by now
                    for _ in range(2):
                        slow.enter_context(await begin_to_read(both.metrics_port))
                    status = await ask(both.metrics_port)
                while await ask(both.metrics_port) != 200:  # noqa: ASYNC110 - only asking tells
                    await asyncio.sleep(0.1)
    assert caplog.records == []  # else anybody could flood the log


async def test_a_scraper_that_goes_away_during_its_answer_is_not_reported(caplog):
    """It is no error of the process, and anybody could do it again and again."""
    async with served(has_many_series=True) as both:
        gone = await begin_to_read(both.metrics_port)

        gone.close()

        async with asyncio.timeout(10):
            while any(each.answering for each in both._listeners[0]._open.values()):  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.01)
        assert await ask(both.metrics_port) == 200
    assert caplog.records == []


@pytest.mark.parametrize("is_closing", [True, False])
async def test_a_write_to_a_connection_that_is_being_closed_is_no_error(is_closing):
    """The client has gone, and the connection is not taken down yet."""

    async def handler(_request):
        raise ConnectionResetError

    track = bounded_listener.BoundedListener._make_tracking(SimpleNamespace(_open={}))
    transport = SimpleNamespace(is_closing=lambda: is_closing)
    request = SimpleNamespace(protocol=None, transport=transport)
    with nullcontext() if is_closing else pytest.raises(ConnectionResetError):
        assert (await track(request, handler)).status == 200


async def test_a_handler_whose_own_call_lost_its_connection_is_reported(caplog):
    """Its client waits for an answer."""

    def lose(_query):
        raise ConnectionResetError

    async with served(slow_routes={"/lost": lose}) as both:
        assert await ask(both.metrics_port, REQUEST.replace(b"/metrics", b"/lost")) == 500
    assert [record.exc_info[0] for record in caplog.records] == [ConnectionResetError]


@pytest.mark.parametrize(
    "headers",
    [b"X-Padding: " + b"x" * 100_000, b"\r\n".join(b"X-%d: x" % number for number in range(200))],
    ids=["one-huge", "many"],
)
async def test_too_large_a_head_is_refused(headers):
    """Before it is held in whole."""
    async with served() as both:
        with suppress(ConnectionError):
            request = REQUEST.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n\r\n")
            assert await ask(both.metrics_port, request) in {400, 431}
        assert await ask(both.metrics_port) == 200


async def test_no_file_descriptor_left_is_waited_out(monkeypatch):
    """The port is served again as soon as one is free."""
    loop = asyncio.get_running_loop()
    accept, refusals = loop.sock_accept, [OSError(24, "Too many open files")]

    async def refused(listening):
        if refusals:
            raise refusals.pop()
        return await accept(listening)

    monkeypatch.setattr(bounded_listener, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(loop, "sock_accept", refused)
    async with served() as both:
        assert await ask(both.metrics_port) == 200
    assert refusals == []
