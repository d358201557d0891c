"""Credentials that expire while a watch is open are renewed, and no change is lost."""

from __future__ import annotations

import asyncio
import json
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from karpenter_core.kube import resources
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.informer import Informer
from karpenter_core.kube.wire.codecs import Codecs
from tests.kube.serving import GET, MovableClock, connected, kubeconfig, no_surroundings, serving
from tests.kube.test_tls import tls_of
from tests.support.certificates import CertificateAuthority

__all__ = ["no_surroundings"]

UNAUTHORIZED = {"kind": "Status", "apiVersion": "v1", "code": 401, "reason": "Unauthorized"}
PLUGIN_VERSION = "client.authentication.k8s.io/v1"
FAR_EXPIRY = (datetime.now(UTC) + timedelta(days=1)).isoformat()


def node(name, version):
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version}}


def line(kind, item):
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class TokenFile:
    """A token that an agent replaces."""

    server_tls = None

    def __init__(self, folder):
        self._file = folder / "token"
        self.user = {"tokenFile": str(self._file)}
        self.trusted = {}

    def give(self, name):
        self._file.write_text(name)

    def name_in(self, request):
        return request.headers.get("Authorization", "").removeprefix("Bearer ")


class PluginToken(TokenFile):
    """A token of a credential plug-in, which prints a file."""

    def __init__(self, folder, **status):
        self.answer, self._status = folder / "answer.json", status
        section = {"apiVersion": PLUGIN_VERSION, "command": "cat", "args": [str(self.answer)]}
        self.user = {"exec": section}
        self.trusted = {}

    def give(self, name):
        self.print_status({"token": name})

    def print_status(self, status):
        whole = {"kind": "ExecCredential", "apiVersion": PLUGIN_VERSION}
        self.answer.write_text(json.dumps({**whole, "status": {**self._status, **status}}))


class PluginCertificate(PluginToken):
    """A client certificate of a credential plug-in, which says how long it is good for."""

    def __init__(self, folder):
        super().__init__(folder, expirationTimestamp=FAR_EXPIRY)
        self._authority = CertificateAuthority(folder / "pki")
        self.server_tls = tls_of(self._authority)
        self.trusted = {"certificate-authority": str(self._authority.certificate_file)}

    def give(self, name):
        certificate, key = self._authority.issue(name, name)
        pair = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
        self.print_status(pair)

    def name_in(self, request):
        certificate = request.transport.get_extra_info("peercert")
        return dict(part for [part] in certificate["subject"])["commonName"]


CREDENTIALS = {
    "token file": TokenFile,
    "plug-in without expiry": PluginToken,
    "plug-in with a later expiry": lambda folder: PluginToken(
        folder, expirationTimestamp=FAR_EXPIRY
    ),
    "certificate of a plug-in": PluginCertificate,
}


class ExpiringServer:
    """Accepts one name; ends the first watch as its credentials expire, when a second node appears."""

    def __init__(self, credentials, clock, *, says_why):
        self.credentials, self.clock, self.says_why = credentials, clock, says_why
        self.accepted, self.nodes = "first", [node("a", "10")]
        self.refused = self.watches = 0

    async def answer(self, request):
        if self.credentials.name_in(request) != self.accepted:
            self.refused += 1
            return web.json_response(UNAUTHORIZED, status=401)
        if "watch" not in request.query:
            version = self.nodes[-1]["metadata"]["resourceVersion"]
            return web.json_response(
                {"kind": "NodeList", "metadata": {"resourceVersion": version}, "items": self.nodes}
            )
        self.watches += 1
        stream = web.StreamResponse()
        await stream.prepare(request)
        if self.watches == 1:
            self.accepted = "second"
            self.credentials.give("second")
            self.clock.ahead += 30  # less than the period in which credentials are read anyway
            self.nodes.append(node("b", "12"))
            if self.says_why:
                await stream.write(line("ERROR", UNAUTHORIZED))
            return stream
        if request.query["resourceVersion"] == "10":
            await stream.write(line("ADDED", self.nodes[1]))
        await asyncio.Event().wait()
        return stream


@pytest.mark.parametrize("says_why", [True, False], ids=["error event", "stream that ends"])
@pytest.mark.parametrize("kind", CREDENTIALS)
async def test_credentials_that_expire_within_a_watch_are_renewed(tmp_path, kind, says_why):
    credentials, clock = CREDENTIALS[kind](tmp_path), MovableClock()
    credentials.give("first")
    server = ExpiringServer(credentials, clock, says_why=says_why)
    found, complete = [], asyncio.Event()

    def sink(change):
        found.append(change.object.name)
        if "b" in found:
            complete.set()

    async with serving(server.answer, credentials.server_tls) as url:
        path = kubeconfig(tmp_path / "config", url, credentials.user, **credentials.trusted)
        transport = await connect(kubeconfig=path, clock=clock)
        informer = Informer(
            resources.NODES,
            Codecs().for_kind(resources.NODES),
            KubeApi(transport, clock=clock),
            clock=clock,
            sink=sink,
            watch_list=False,
            on_invalid=None,
            jitter=lambda: 0.0,
        )
        task = asyncio.ensure_future(informer.run())
        try:
            async with asyncio.timeout(60):
                await complete.wait()
        finally:
            task.cancel()
            await asyncio.wait({task})
            await transport.close()

    assert found == ["a", "b"]
    assert server.refused >= 1


def count_private_files(folder):
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    return len(files)


async def test_certificates_of_a_plug_in_leave_no_files_behind(tmp_path, monkeypatch):
    """One that is renewed each hour would else fill a file system that is in memory."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    credentials, clock = PluginCertificate(tmp_path), MovableClock()
    names = ["first", "second", "third", "fourth"]
    credentials.give(names[0])

    async def answer(request):
        is_good = credentials.name_in(request) == accepted
        return web.json_response({}, status=200 if is_good else 401)

    counts = []
    async with serving(answer, credentials.server_tls) as url:
        path = kubeconfig(tmp_path / "config", url, credentials.user, **credentials.trusted)
        async with connected(path, clock=clock) as transport:
            for accepted in names:
                credentials.give(accepted)
                clock.ahead += 30
                assert (await transport.request(GET)).status == 200
                counts.append(count_private_files(folder))

    assert counts == [2] * len(names)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", CREDENTIALS)
async def test_requests_that_are_refused_at_once_all_use_the_new_credentials(tmp_path, kind):
    """The first gets them; those that come later are not failed for having been tried a moment ago."""
    credentials, clock = CREDENTIALS[kind](tmp_path), MovableClock()
    credentials.give("first")
    accepted, waiting, all_wait = "first", [], asyncio.Event()

    async def answer(request):
        name = credentials.name_in(request)
        if name == "first" and accepted == "second":
            waiting.append(request)
            if len(waiting) == 5:
                all_wait.set()
            await all_wait.wait()
            await asyncio.sleep(0.05 * waiting.index(request))  # one answer after the other
        return web.json_response({}, status=200 if name == accepted else 401)

    async with serving(answer, credentials.server_tls) as url:
        path = kubeconfig(tmp_path / "config", url, credentials.user, **credentials.trusted)
        async with connected(path, clock=clock) as transport:
            assert (await transport.request(GET)).status == 200
            credentials.give("second")
            accepted = "second"
            clock.ahead += 30
            answers = await asyncio.gather(*(transport.request(GET) for _ in range(5)))

    assert [each.status for each in answers] == [200] * 5
    assert len(waiting) == 5
