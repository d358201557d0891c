"""A credential plug-in gives credentials that are never shown, and no more output than those need."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.kube import exec_plugin
from karpenter_core.kube.exec_plugin import MAX_OUTPUT_BYTES, ExecPlugin
from tests.kube.serving import MovableClock

VERSION = "client.authentication.k8s.io/v1"
STATUS = {"token": "planted-token", "clientCertificateData": "pem", "clientKeyData": "planted-key"}


def plugin(program):
    settings = {"apiVersion": VERSION, "command": sys.executable, "args": ["-c", program]}
    return ExecPlugin(settings, clock=MovableClock())


def printing(status, stream="stdout"):
    answer = json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})
    return f"import sys; sys.{stream}.write({answer!r})"


async def test_credentials_are_read_and_not_shown():
    credentials = await plugin(printing(STATUS)).run()

    assert (credentials.token, credentials.key) == ("planted-token", "planted-key")
    assert "planted" not in repr(credentials)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_is_refused_while_the_plug_in_still_runs(stream):
    """It is killed: nothing waits for an end that does not come."""
    endless = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"

    with pytest.raises(SettingsError, match=f"it writes more than {MAX_OUTPUT_BYTES} bytes"):
        await plugin(endless).run()


async def test_no_reader_is_left_when_output_is_refused():
    """Two readers of one stream at a time are an error, and whoever kills the program reads the rest."""
    endless, silent = asyncio.StreamReader(), asyncio.StreamReader()
    endless.feed_data(b"x" * (MAX_OUTPUT_BYTES + 1))

    with pytest.raises(SettingsError):
        await exec_plugin._bounded_output(SimpleNamespace(stdout=endless, stderr=silent))

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_start_that_hangs_is_given_up_with_the_call(monkeypatch):
    """A file system that does not answer would keep a task for each attempt."""

    async def hang(*_arguments, **_options):
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", hang)
    monkeypatch.setattr(exec_plugin, "_REAP_SECONDS", 0)
    call = asyncio.create_task(plugin(printing(STATUS)).run())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_large_bundle_of_certificates_is_no_excess():
    credentials = await plugin(printing({**STATUS, "clientCertificateData": "c" * 100_000})).run()

    assert len(credentials.certificate) == 100_000


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (printing("planted-token"), "its output has no status"),
        (printing({"token": "", "clientKeyData": "planted-key"}), "neither a token nor"),
        (printing({"clientCertificateData": "planted-token"}), "without its key"),
        ("print('planted-token')", "its output is not JSON"),
        ("print('[' * 100_000)", "its output is not JSON"),
        (printing({**STATUS, "expirationTimestamp": "soon"}), '"soon" is not a time'),
    ],
)
async def test_unreadable_output_is_refused_without_its_text(program, message):
    with pytest.raises(SettingsError, match=message) as raised:
        await plugin(program).run()

    assert "planted" not in str(raised.value)


async def test_credentials_that_expired_in_the_first_year_are_renewed():
    """Go's zero time: five minutes before it, there is no time."""
    found = plugin(printing({**STATUS, "expirationTimestamp": "0001-01-01T00:00:00Z"}))
    await found.run()

    assert not found.is_current
