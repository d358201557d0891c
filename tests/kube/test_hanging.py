"""Hanging headers, credential plug-ins and token files block no request."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from karpenter_core.errors import ApiError, SettingsError
from karpenter_core.kube import login
from karpenter_core.kube.client import connect
from karpenter_core.kube.exec_plugin import ExecPlugin
from karpenter_core.kube.transport import NO_ANSWER
from tests.kube.serving import (
    GET,
    HeldClock,
    connected,
    kubeconfig,
    no_surroundings,
    plugin,
    serving,
    until,
)

__all__ = ["no_surroundings"]


async def test_a_watch_without_headers_is_closed(tmp_path):
    """Late ones are waited for: some proxies send them with the first bookmark, after a minute."""
    clock = HeldClock()
    asked = []
    late = asyncio.Event()

    async def handler(request):
        asked.append(request)
        await late.wait()
        return web.Response(body=b'{"n": 1}\n')

    async def watch(transport):
        async with transport.stream(GET) as (_, lines):
            return [line async for line in lines]

    async with (
        serving(handler) as url,
        connected(kubeconfig(tmp_path / "k", url), clock=clock) as transport,
    ):
        watching = asyncio.ensure_future(watch(transport))
        await until(lambda: len(asked) == 1)
        clock.advance(75)
        late.set()
        assert await asyncio.wait_for(watching, 60) == [b'{"n": 1}']

        late.clear()
        watching = asyncio.ensure_future(watch(transport))
        await until(lambda: len(asked) == 2)
        clock.advance(120)
        with pytest.raises(ApiError, match="no headers within 90 s") as caught:
            await asyncio.wait_for(watching, 60)
        late.set()
    assert (caught.value.status, caught.value.reason) == (0, NO_ANSWER)


def hanging_plugin(tmp_path, *, first_token):
    """Return a credential plug-in that hangs with a child of its own, at once or after a token."""
    user = plugin(tmp_path, expirationTimestamp="2001-01-01T00:00:00Z")
    script = tmp_path / "plugin.py"
    script.write_text(
        "import os, pathlib, subprocess, sys, time\n"
        f"calls, pids = pathlib.Path({str(tmp_path / 'calls')!r}), {str(tmp_path / 'pids')!r}\n"
        f"if calls.exists() or not {first_token!r}:\n"
        "    child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        "    with open(pids, 'a') as file: file.write(f'{os.getpid()} {child.pid} ')\n"
        "    time.sleep(600)\n" + script.read_text()
    )
    return user


def started(tmp_path):
    path = tmp_path / "pids"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(tmp_path):
    return not any(lives(pid) for pid in started(tmp_path))


@pytest.fixture
def no_leftovers(tmp_path):
    """End what a failing test leaves behind."""
    yield
    for pid in started(tmp_path):
        if lives(pid):
            os.kill(pid, 9)


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@needs_proc
@pytest.mark.usefixtures("no_leftovers")
async def test_a_plugin_that_hangs_is_killed_and_the_old_credentials_are_used_on(tmp_path):
    """Requests go on after a moment; the plug-in and its child end; one warning is enough."""
    seen = []
    clock = HeldClock()

    async def handler(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async with serving(handler) as url:
        path = kubeconfig(tmp_path / "k", url, hanging_plugin(tmp_path, first_token=True))
        async with connected(path, clock=clock) as transport:
            with capture_logs() as lines:
                for attempt in (1, 2):
                    clock.advance(61)
                    request = asyncio.ensure_future(transport.request(GET))
                    await until(lambda count=2 * attempt: len(started(tmp_path)) == count)
                    assert len(seen) == 2 * attempt - 2
                    clock.advance(3)
                    assert (await asyncio.wait_for(request, 60)).status == 200
                    assert (await asyncio.wait_for(transport.request(GET), 60)).status == 200
                    assert not gone(tmp_path)
                    clock.advance(60)
                    await until(lambda: gone(tmp_path) and transport._login._renewal.done())
    assert seen == ["Bearer token-1"] * 4
    assert [line["error"] for line in lines if line["log_level"] == "warning"] == [
        "no answer within 60 s"
    ]


@needs_proc
@pytest.mark.usefixtures("no_leftovers")
async def test_a_plugin_that_hangs_after_a_refusal_does_not_hold_the_request_for_ever(tmp_path):
    clock = HeldClock()

    async def handler(_):
        return web.json_response({}, status=401)

    async with serving(handler) as url:
        path = kubeconfig(tmp_path / "k", url, hanging_plugin(tmp_path, first_token=True))
        async with connected(path, clock=clock) as transport:
            clock.advance(30)
            request = asyncio.ensure_future(transport.request(GET))
            await until(lambda: len(started(tmp_path)) == 2)
            # One step of the clock may come before the limit of the renewal is set.
            while not request.done():
                clock.advance(61)
                await asyncio.wait([request], timeout=0.1)
            assert (await request).status == 401
            # With more steps of the clock another renewal may have begun, which hangs as well; with fewer
            # the first may still have time.
            async with asyncio.timeout(60):
                while any(map(lives, started(tmp_path)[:2])):
                    clock.advance(61)
                    await asyncio.sleep(0.1)


@needs_proc
@pytest.mark.usefixtures("no_leftovers")
async def test_a_plugin_whose_time_ends_while_it_is_started_leaves_no_child(tmp_path, monkeypatch):
    """Its process may run before the event loop has taken its pipes over."""
    started_process = asyncio.create_subprocess_exec
    goes_on = asyncio.Event()

    async def slowly_started(*arguments, **options):
        process = await started_process(*arguments, **options)
        await goes_on.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly_started)
    settings = hanging_plugin(tmp_path, first_token=False)["exec"]
    running = asyncio.ensure_future(ExecPlugin(settings, clock=HeldClock()).run())
    await until(lambda: len(started(tmp_path)) == 2)
    running.cancel()
    asyncio.get_running_loop().call_later(0.1, goes_on.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: gone(tmp_path))


@needs_proc
@pytest.mark.usefixtures("no_leftovers")
async def test_closing_ends_a_plugin_that_still_runs(tmp_path):
    clock = HeldClock()

    async def handler(_):
        return web.json_response({})

    async with serving(handler) as url:
        path = kubeconfig(tmp_path / "k", url, hanging_plugin(tmp_path, first_token=True))
        async with connected(path, clock=clock) as transport:
            clock.advance(61)
            request = asyncio.ensure_future(transport.request(GET))
            await until(lambda: len(started(tmp_path)) == 2)
            clock.advance(3)
            await asyncio.wait_for(request, 60)
    await until(lambda: gone(tmp_path))


@needs_proc
@pytest.mark.usefixtures("no_leftovers")
async def test_a_plugin_that_hangs_at_the_start_is_an_error(tmp_path, monkeypatch):
    """Naming the command, instead of a process that never says anything; nobody logs in by hand here."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    clock = HeldClock()
    user = hanging_plugin(tmp_path, first_token=False)
    path = kubeconfig(tmp_path / "k", "https://127.0.0.1:1", user)
    connecting = asyncio.ensure_future(connect(kubeconfig=path, clock=clock))
    await until(lambda: len(started(tmp_path)) == 2)
    clock.advance(61)
    message = f'plug-in "{sys.executable}" gave no credentials within 60 s'
    with pytest.raises(SettingsError, match=message):
        await asyncio.wait_for(connecting, 60)
    await until(lambda: gone(tmp_path))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("not json", "its output is not JSON"),
        ("[]", "its output has no status"),
        ('{"apiVersion": "v0", "status": {"token": "x"}}', 'API version "v0"'),
        ('{"apiVersion": "v1", "status": {}}', "neither a token nor a client certificate"),
        ('{"apiVersion": "v1", "status": {"clientCertificateData": "x"}}', "without its key"),
        ('{"apiVersion": "v1", "status": {"token": "x", "expirationTimestamp": "soon"}}', '"soon"'),
    ],
)
async def test_a_plugin_that_gives_nothing_usable_is_an_error_that_says_why(
    tmp_path, output, message
):
    user = {"exec": {"apiVersion": "v1", "command": "echo", "args": [output]}}
    path = kubeconfig(tmp_path / "k", "https://127.0.0.1:1", user)
    with pytest.raises(SettingsError, match=message) as caught:
        await connect(kubeconfig=path, clock=HeldClock())
    assert 'the credential plug-in "echo"' in str(caught.value)


async def test_a_token_file_that_is_being_replaced_does_not_stop_requests(tmp_path, monkeypatch):
    """The pod's service account: the old token is used on, with one warning."""
    from kubernetes.aio.config import incluster_config

    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    ca.write_text("not used over http")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr(login, "_TOKEN_FILE", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    result = await login.find_login(kubeconfig=None, context=None, clock=HeldClock())
    result.token_file._read_at = None
    token.write_text("")
    with capture_logs() as lines:
        assert await result.authorization() == "bearer first"
        assert await result.authorization() == "bearer first"
        token.write_text("second")
        assert await result.authorization() == "bearer second"
    assert [line["log_level"] for line in lines] == ["warning"]
