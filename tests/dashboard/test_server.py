"""The server of the dashboard answers GET only, with strict headers, within bounds."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from contextlib import asynccontextmanager, suppress
from html.parser import HTMLParser
from importlib import resources

import aiohttp
import pytest
import structlog
from prometheus_client import CollectorRegistry

from karpenter_core.operator.dashboard import server as server_module
from karpenter_core.operator.dashboard import subscribers
from karpenter_core.operator.dashboard.server import DashboardServer
from karpenter_core.operator.metrics_access import AccessReviewer
from karpenter_core.operator.servers import FurtherServer, HttpServers
from karpenter_core.sim.virtual_time import LoopClock
from tests.dashboard.moments import Running, ScriptedContent, World, decision, node_row
from tests.operator.test_metrics_access import SCRAPER, Reviews
from tests.support.processes import wait_until

PATHS = [*server_module._FILES, "/dashboard/v1/state", "/dashboard/v1/pods?node=one",
         "/dashboard/v1/rebalance", "/dashboard/v1/explain?node=one", "/dashboard/v1/explain?pod=default/web"]  # fmt: skip


@asynccontextmanager
async def served(world, reviewer=None, address="127.0.0.1"):
    """Serve a dashboard on a free port of loopback, as if it were bound to the address; yield its URL."""
    further = FurtherServer(
        make_app=DashboardServer(world.feed, address=address, reviewer=reviewer).make_app,
        address="127.0.0.1", port=0, option="dashboard-port",
    )  # fmt: skip
    servers = HttpServers(
        registry=CollectorRegistry(), checks=(), address="127.0.0.1", metrics_port=0,
        probe_port=0, dashboard=further,
    )  # fmt: skip
    async with Running(world):
        await servers.start()
        try:
            yield f"http://127.0.0.1:{servers.dashboard_port}"
        finally:
            world.feed.subscribers.drop_all()
            await servers.stop()


async def until(condition):
    """Wait until a condition holds, two seconds at most."""
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition never held")


async def ask(url, method="GET", **headers):
    """Return the status, the headers and the text of an answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, headers=headers) as response,
    ):
        return response.status, response.headers, await response.text()


async def test_every_answer_has_the_headers_that_keep_a_page_to_itself():
    async with served(World(ScriptedContent(node_row("one")))) as url:
        answers = [await ask(url + path) for path in PATHS]
        odd = [await ask(url + "/none"), await ask(url + "/", "POST"),
               await ask(url + "/dashboard/v1/pods?node=none")]  # fmt: skip

    assert [status for status, *_ in answers] == [200] * len(PATHS)
    assert [status for status, *_ in odd] == [404, 405, 400]
    for _, headers, _ in (*answers, *odd):
        policy = dict(
            part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Python" not in headers.get("Server", "")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods_than_get_are_refused(method):
    async with served(World(ScriptedContent(node_row("one")))) as url:
        for path in PATHS:
            status, headers, _ = await ask(url + path, method)
            assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "query", ["", "?node=", "?pod=a&node=b", "?node=a&node=b", "?name=a", "?node=none"]
)
async def test_queries_without_an_answer_are_named(query):
    async with served(World(ScriptedContent(node_row("one")))) as url:
        status, _, text = await ask(f"{url}/dashboard/v1/pods{query}")

    assert status == 400
    assert "node" in json.loads(text)["error"]


async def test_requests_of_other_sites_are_refused():
    async with served(World(ScriptedContent())) as url:
        state = f"{url}/dashboard/v1/state"
        assert (await ask(state, **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
        assert (await ask(state, **{"Sec-Fetch-Site": "same-origin"}))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8080", 200), ("demo.localhost", 200),
     ("evil.example:80", 403), ("127.0.0.1.evil.example", 403), ("10.0.0.1", 403), ("[::1", 403)],
)  # fmt: skip
async def test_a_name_that_was_pointed_at_loopback_is_refused(host, status):
    """A page of another site could otherwise read the dashboard of the person who opens it."""
    async with served(World(ScriptedContent())) as url:
        for path in ("/", "/dashboard/v1/state"):
            assert (await ask(url + path, Host=host))[0] == status


@pytest.mark.parametrize(
    ("address", "has_tokens", "warned"),
    [("127.0.0.1", False, 0), ("::1", False, 0), ("0.0.0.0", True, 0), ("0.0.0.0", False, 1),
     ("", False, 1)],
)  # fmt: skip
async def test_a_dashboard_that_others_reach_without_a_token_is_warned_of(
    address, has_tokens, warned
):
    reviewer = AccessReviewer.of(Reviews({}, []), clock=LoopClock()) if has_tokens else None
    world = World(ScriptedContent())
    with structlog.testing.capture_logs() as lines:
        DashboardServer(world.feed, address=address, reviewer=reviewer).make_app()

    assert [line["setting"] for line in lines] == ["dashboard-bind-address"] * warned


async def test_any_name_serves_a_dashboard_that_others_reach():
    for address in ("", "0.0.0.0", "10.0.0.1"):
        async with served(World(ScriptedContent()), address=address) as url:
            assert (await ask(f"{url}/dashboard/v1/state", Host="karpenter.internal"))[0] == 200


async def test_a_reader_of_the_state_that_stops_is_disconnected(monkeypatch):
    """It holds neither its place nor the memory of its answer for ever."""
    monkeypatch.setattr(server_module, "WRITE_SECONDS", 1.0)
    monkeypatch.setattr(server_module, "MOST_REQUESTS", 1)
    nodes = [node_row(f"node-{number}", reason="x" * 10_000) for number in range(2_000)]
    async with served(World(ScriptedContent(*nodes))) as url:
        port = int(url.rpartition(":")[2])
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET /dashboard/v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n")
            slow.setblocking(False)
            await asyncio.get_running_loop().sock_recv(slow, 1)  # the answer begins
            status, headers, _ = await ask(f"{url}/dashboard/v1/pods?node=node-1")
            assert (status, headers["Retry-After"]) == (503, "5")

            async def is_served():
                return (await ask(f"{url}/dashboard/v1/pods?node=node-1"))[0] == 200

            await wait_until(is_served, seconds=30)


async def test_tokens_are_needed_for_data_and_not_for_the_page():
    api = Reviews({"good": SCRAPER}, [(SCRAPER["username"], "get", "/dashboard/v1/state")])
    reviewer = AccessReviewer.of(api, clock=LoopClock())
    async with served(World(ScriptedContent(node_row("one"))), reviewer) as url:
        state = f"{url}/dashboard/v1/state"
        page = [(await ask(url + path))[0] for path in server_module._FILES]
        without, headers, _ = await ask(state)
        statuses = [
            (await ask(target, Authorization=f"Bearer {token}"))[0]
            for target, token in (
                (state, "good"), (state, "bad"), (f"{url}/dashboard/v1/explain?node=one", "good"),
                (f"{url}/dashboard/v1/events", "bad"), (f"{url}/dashboard/v1/pods?node=one", ""),
            )
        ]  # fmt: skip

    assert page == [200] * len(server_module._FILES)
    assert (without, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert statuses == [200, 401, 403, 401, 401]


async def test_changes_arrive_as_events():
    world = World(ScriptedContent(node_row("one")), interval_seconds=0.05)
    async with (
        served(world) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/dashboard/v1/events") as response,
    ):
        assert response.content_type == "text/event-stream"
        hello = await response.content.readuntil(b"\n\n")
        assert hello.startswith(b"event: hello\ndata: ")
        world.sink(decision(1))
        world.content.nodes.append(node_row("two"))
        world.change()
        text = b""
        while b'"name":"two"' not in text:
            text += await asyncio.wait_for(response.content.readuntil(b"\n\n"), 10)
    assert b"event: decision\n" in text


async def test_a_page_too_many_is_refused_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(subscribers, "MOST_SUBSCRIBERS", 2)
    world = World(ScriptedContent())
    async with served(world) as url, aiohttp.ClientSession() as session:
        events = f"{url}/dashboard/v1/events"
        async with session.get(events) as first, session.get(events) as second:
            status, headers, text = await ask(events)
            assert (status, headers["Retry-After"]) == (503, "5")
            assert json.loads(text) == {"error": "too many pages are open"}
            assert (first.status, second.status) == (200, 200)
            first.close()

            def is_gone():
                world.sink(decision(1))  # a closed connection shows at the next write
                return len(world.feed.subscribers) < 2

            await until(is_gone)
            async with session.get(events) as third:
                assert third.status == 200


async def test_a_viewer_that_stops_reading_is_disconnected(monkeypatch):
    """Its messages are not piled up in the controller."""
    monkeypatch.setattr(server_module, "BUFFER_BYTES", 1 << 12)
    world = World(ScriptedContent())
    async with served(world) as url:
        port = int(url.rpartition(":")[2])
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET /dashboard/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: len(world.feed.subscribers) == 1)
            for number in range(2_000):
                world.sink(decision(number, summary="x" * 10_000))
                if not len(world.feed.subscribers):
                    break
                await asyncio.sleep(0)
            assert len(world.feed.subscribers) == 0
            assert world.feed.subscribers.dropped == 1
            await asyncio.sleep(0.05)
            slow.settimeout(5)  # which ends the test if the connection stays open
            received = 0
            with suppress(ConnectionResetError):
                while chunk := slow.recv(1 << 20):
                    received += len(chunk)
            assert received < 10_000_000  # of 20: the kernel takes some MiB


async def test_a_stream_ends_after_a_while_so_that_its_token_is_reviewed_again(monkeypatch):
    monkeypatch.setattr(server_module, "STREAM_SECONDS", 0.2)
    async with served(World(ScriptedContent())) as url:
        status, _, text = await asyncio.wait_for(ask(f"{url}/dashboard/v1/events"), 10)

    assert (status, text.count("event: hello")) == (200, 1)


class Inline(HTMLParser):
    """Collects what a strict policy refuses."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.script = False

    def handle_starttag(self, tag, attrs):
        self.script = tag == "script" and not dict(attrs).get("src")
        for name, value in attrs:
            if name.startswith("on") or name == "style" or "//" in (value or ""):
                self.found.append((tag, name, value))
        if tag == "style" or self.script:
            self.found.append((tag, "", ""))


def test_the_page_has_nothing_inline_and_nothing_of_elsewhere():
    folder = resources.files("karpenter_core.operator.dashboard") / "page"
    parser = Inline()
    parser.feed((folder / "index.html").read_text())

    assert parser.found == []
    scripts = [each for each in folder.iterdir() if each.name.endswith(".js")]
    assert {f"/{each.name}" for each in scripts} < set(server_module._FILES)
    for script in scripts:
        code = script.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setAttribute\(.style",
            code,
        )
        addresses = re.findall(r"\w+://[^\"]+", code)
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert sum(len(each.read_bytes()) for each in folder.iterdir()) < 50_000
