"""The HTTP transport and how it logs in, over loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from karpenter_core import __version__
from karpenter_core.errors import ApiError, SettingsError
from karpenter_core.kube import login, resources
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.informers import Informers
from karpenter_core.kube.transport import LINE_TOO_LONG, NO_ANSWER, UNREACHABLE, ApiRequest
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.operator.clock import SystemClock
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.http_server import ApiHttpServer, write_kubeconfig
from tests.kube.serving import (
    GET,
    MovableClock,
    connected,
    kubeconfig,
    no_surroundings,
    plugin,
    serving,
    until,
)
from tests.support.certificates import CertificateAuthority

__all__ = ["no_surroundings"]


async def test_informers_follow_a_server_over_http(tmp_path):
    """List, watch, restart: everything real but the server's store."""
    face = ApiHttpServer(frontend := ServerFrontend(ApiServer(SystemClock())))
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, await face.start())
    changes = []
    async with connected(str(path)) as transport:
        clock, codecs = SystemClock(), Codecs()
        api = KubeApi(transport, clock=clock)
        informers = Informers(
            ClusterApis(api),
            codecs,
            clock=clock,
            sink=lambda change: changes.append((type(change).__name__, change.object.name)),
            kinds=[resources.NODES],
            jitter=lambda: 0.1,
        )
        running = asyncio.ensure_future(informers.run())
        await asyncio.wait_for(informers.wait_synced(), 5)
        await api.create(resources.NODES, {"metadata": {"name": "a"}})
        await until(lambda: changes == [("ObjectObserved", "a")])
        frontend.stop()
        frontend.start()
        await api.delete(resources.NODES, "a")
        await until(lambda: changes[-1] == ("ObjectRemoved", "a"))
        running.cancel()
        await asyncio.wait({running})
    await face.stop()


async def test_requests_name_the_client_and_accepted_types(tmp_path):
    """The user agent, no compression on a near network, the body as it is."""
    seen = []

    async def handler(request):
        seen.append((request, await request.read()))
        return web.json_response({"a": 1}, status=201, headers={"X-Y": "z"})

    async with serving(handler) as url, connected(kubeconfig(tmp_path / "k", url)) as transport:
        response = await transport.request(
            ApiRequest(
                method="PATCH",
                path="/apis/a/b",
                query={"fieldSelector": "x=y,z!=1"},
                body=b'{"raw": true}',
                content_type="application/merge-patch+json",
            )
        )
    request, body = seen[0]
    assert request.headers["User-Agent"] == f"karpenter/{__version__}"
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert "Authorization" not in request.headers
    assert request.query == {"fieldSelector": "x=y,z!=1"}
    assert body == b'{"raw": true}'
    assert (response.status, response.body, response.headers["x-y"]) == (201, b'{"a": 1}', "z")


async def test_a_stream_gives_lines_and_its_end(tmp_path):
    """A line that is cut off is left out: it comes again."""

    async def handler(_):
        return web.Response(body=b'{"n": 1}\n\n{"n": 2}\n{"n":')

    async with (
        serving(handler) as url,
        connected(kubeconfig(tmp_path / "k", url)) as transport,
        transport.stream(GET) as (response, lines),
    ):
        assert response.status == 200
        assert [json.loads(line)["n"] async for line in lines] == [1, 2]


async def test_a_refused_stream_has_a_body_and_no_lines(tmp_path):
    """The Status says why."""

    async def handler(_):
        return web.json_response({"message": "too old"}, status=410)

    async with (
        serving(handler) as url,
        connected(kubeconfig(tmp_path / "k", url)) as transport,
        transport.stream(GET) as (response, _),
    ):
        assert response.status == 410
        assert json.loads(response.body) == {"message": "too old"}


async def test_a_line_beyond_every_object_is_named(tmp_path, monkeypatch):
    """So that the informer lists instead of trying for ever."""
    monkeypatch.setattr("karpenter_core.kube.client._LINE_BYTES", 1000)

    async def handler(_):
        return web.Response(body=b"x" * 5000 + b"\n")

    async with (
        serving(handler) as url,
        connected(kubeconfig(tmp_path / "k", url)) as transport,
        transport.stream(GET) as (_, lines),
    ):
        with pytest.raises(ApiError) as caught:
            await anext(aiter(lines))
    assert (caught.value.status, caught.value.reason) == (0, LINE_TOO_LONG)


async def test_no_answer_says_whether_anything_was_sent(tmp_path):
    """Refused before, or broken off after."""

    async def handler(request):
        request.transport.abort()
        return web.Response()

    async with serving(handler) as url:
        path = kubeconfig(tmp_path / "k", url)
        async with connected(path) as transport:
            with pytest.raises(ApiError) as caught:
                await transport.request(ApiRequest(method="POST", path="/x", body=b"{}"))
            assert (caught.value.status, caught.value.reason) == (0, NO_ANSWER)
    async with connected(path) as transport:
        with pytest.raises(ApiError, match=f"no answer from {url}") as caught:
            await transport.request(GET)
        assert (caught.value.status, caught.value.reason) == (0, UNREACHABLE)
        with pytest.raises(ApiError) as caught:
            async with transport.stream(GET):
                pass
        assert caught.value.reason == UNREACHABLE


async def test_a_token_file_is_read_again(tmp_path):
    """Every minute, as projected tokens are replaced."""
    seen = []

    async def handler(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    token, clock = tmp_path / "token", MovableClock()
    token.write_text("first\n")
    async with serving(handler) as url:
        path = kubeconfig(tmp_path / "k", url, {"tokenFile": str(token)})
        async with connected(path, clock=clock) as transport:
            await transport.request(GET)
            token.write_text("second")
            await transport.request(GET)
            clock.ahead = 61
            await transport.request(GET)
    assert seen == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_plugin_without_expiry_runs_again_when_refused(tmp_path):
    """Once, and the request is repeated; not on every request, not for ever."""
    good = "Bearer token-1"
    seen = []

    async def handler(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({}, status=200 if seen[-1] == good else 401)

    clock = MovableClock()
    async with serving(handler) as url:
        path = kubeconfig(tmp_path / "k", url, plugin(tmp_path))
        async with connected(path, clock=clock) as transport:
            clock.ahead = 3600
            assert (await transport.request(GET)).status == 200
            good = "Bearer token-2"
            assert (await transport.request(GET)).status == 200
            good = "Bearer token-9"
            assert (await transport.request(GET)).status == 401
    assert seen == ["Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-2"]


async def test_a_plugins_expiry_is_honoured(tmp_path):
    """A token that runs out within minutes is replaced before it does; a long one is kept."""
    seen = []

    async def handler(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async def ask(minutes):
        expiry = datetime.now(UTC) + timedelta(minutes=minutes)
        user = plugin(tmp_path, expirationTimestamp=expiry.strftime("%Y-%m-%dT%H:%M:%SZ"))
        clock = MovableClock()
        path = kubeconfig(tmp_path / "k", url, user)
        async with connected(path, clock=clock) as transport:
            await transport.request(GET)
            clock.ahead = 61
            await transport.request(GET)

    async with serving(handler) as url:
        await ask(minutes=3)
        await ask(minutes=60)
    assert seen == ["Bearer token-1", "Bearer token-2", "Bearer token-3", "Bearer token-3"]


async def test_comments_beside_an_authority_may_have_any_encoding(tmp_path):
    """OpenSSL passes over them."""
    authority = CertificateAuthority(tmp_path / "pki").certificate_file.read_bytes()
    file = tmp_path / "ca.crt"
    file.write_bytes(b"# Beh\xf6rde\n" + authority)
    trusted = {"certificate-authority": str(file)}
    async with connected(kubeconfig(tmp_path / "k", "https://127.0.0.1:1", {}, **trusted)) as found:
        assert found.ca_pem.encode().endswith(authority)


async def test_both_sides_prove_themselves_over_tls(tmp_path):
    """The server by the cluster's authority, the client by its certificate."""
    authority = CertificateAuthority(tmp_path / "pki")
    certificate, key = authority.issue("server", "server", hosts=["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate_file)
    tls.load_cert_chain(certificate, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    own_certificate, own_key = authority.issue("client", "karpenter", organizations=["admins"])
    user = {"client-certificate": str(own_certificate), "client-key": str(own_key)}

    async def handler(request):
        (name,) = request.transport.get_extra_info("peercert")["subject"][-1]
        return web.json_response(name)

    async with serving(handler, tls) as url:
        trusted = {"certificate-authority": str(authority.certificate_file)}
        async with connected(kubeconfig(tmp_path / "k", url, user, **trusted)) as transport:
            response = await transport.request(GET)
            assert json.loads(response.body) == ["commonName", "karpenter"]
            assert transport.ca_pem == authority.certificate_file.read_text()
        async with connected(kubeconfig(tmp_path / "k", url, user)) as transport:
            with pytest.raises(ApiError, match="certificate verify failed") as caught:
                await transport.request(GET)
            assert caught.value.reason == UNREACHABLE


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        (None, None, "no such file"),
        ("a: [", None, "line 1: is not YAML"),
        ("just text", None, "not a kubeconfig"),
        ("contexts: []", None, "no current-context"),
        ("current-context: main\ncontexts: [{name: other}]", None, 'no context "main"'),
        ("current-context: main\ncontexts: [{name: main}]", "prod", "there are: main"),
        (
            "current-context: main\ncontexts: [{name: main}]",
            None,
            'context "main": cluster: missing',
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_one_clear_error(
    tmp_path, content, context, message
):
    """Naming the file and what is wrong."""
    path = tmp_path / "k"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match=message) as caught:
        await connect(kubeconfig=str(path), context=context, clock=SystemClock())
    assert str(path) in str(caught.value)


async def test_a_plugin_that_fails_is_an_error_at_start(tmp_path):
    """Instead of going on unauthenticated."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    with pytest.raises(SettingsError, match='credential plug-in "no-such-plugin"'):
        await connect(
            kubeconfig=kubeconfig(tmp_path / "k", "https://127.0.0.1:1", user), clock=SystemClock()
        )


async def test_a_missing_kubeconfig_names_the_searched_places():
    """Nothing given, nothing found."""
    with pytest.raises(SettingsError, match=r"KUBECONFIG not set, not in a pod.*~/.kube/config"):
        await connect(clock=SystemClock())


async def test_kubeconfig_places_are_searched_in_order(tmp_path, monkeypatch):
    """The given file, KUBECONFIG, the default file."""
    default = tmp_path / "home" / ".kube" / "config"
    default.parent.mkdir(parents=True)
    kubeconfig(default, "http://127.0.0.1:3")
    async with connected(None) as transport:
        assert transport.host == "http://127.0.0.1:3"
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path / "env", "http://127.0.0.1:2"))
    async with connected(None) as transport:
        assert transport.host == "http://127.0.0.1:2"
    async with connected(kubeconfig(tmp_path / "given", "http://127.0.0.1:1")) as transport:
        assert transport.host == "http://127.0.0.1:1"


async def test_a_pod_uses_its_service_account(tmp_path, monkeypatch):
    """The token is read again when it is replaced."""
    from kubernetes.aio.config import incluster_config

    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first")
    ca.write_text("not used over http")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr(login, "_TOKEN_FILE", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    clock = SteppedClock()
    result = await login.find_login(kubeconfig=None, context=None, clock=clock)
    assert result.in_cluster
    assert result.configuration.host == "https://127.0.0.1:1"
    assert await result.authorization() == "bearer first"
    token.write_text("second")
    clock.elapsed += 59
    assert await result.authorization() == "bearer first"
    clock.wall -= timedelta(hours=3)  # set back meanwhile
    clock.elapsed += 1
    assert await result.authorization() == "bearer second"
    token.write_text("third")
    clock.elapsed += 10
    assert await result.renew(result.credentials), "the API server has refused the token"
    assert await result.authorization() == "bearer third"
    assert not await result.renew(result.credentials), "it was read a moment ago"


class SteppedClock:
    """A clock that goes on when it is told to."""

    def __init__(self):
        self.elapsed = 1000.0
        self.wall = datetime(2026, 3, 1, tzinfo=UTC)

    def now(self):
        return self.wall

    def monotonic(self):
        return self.elapsed

    async def sleep(self, seconds):
        self.elapsed += seconds


async def test_a_name_that_does_not_resolve_is_no_answer_until_it_does(tmp_path, monkeypatch):
    """DNS fails at first: the client goes on by itself when it works."""
    loop = asyncio.get_running_loop()
    resolve, works = loop.getaddrinfo, False

    async def lookup(host, port, **options):
        if host != "api.cluster.test":
            return await resolve(host, port, **options)
        if not works:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return await resolve("127.0.0.1", port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", lookup)

    async def handler(_request):
        answer = web.json_response({"a": 1})
        answer.force_close()  # the next request looks the name up again
        return answer

    async with serving(handler) as url:
        named = url.replace("127.0.0.1", "api.cluster.test")
        async with connected(kubeconfig(tmp_path / "k", named)) as transport:
            for works in (False, True):
                if works:
                    assert (await transport.request(GET)).status == 200
                else:
                    with pytest.raises(ApiError, match="no answer") as raised:
                        await transport.request(GET)
                    assert raised.value.reason in {UNREACHABLE, NO_ANSWER}


async def test_open_watches_over_tls_need_little_memory_each(tmp_path):
    """A leader has forty: the loop's own buffers would take a quarter of a megabyte for each."""
    authority = CertificateAuthority(tmp_path / "pki")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("server", "server", hosts=["127.0.0.1"]))
    count, ended = 20, asyncio.Event()

    async def handler(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        await ended.wait()
        return answer

    async def follow(transport):
        async with transport.stream(GET):
            opened.append(1)
            await ended.wait()

    async with serving(handler, tls) as url:
        path = kubeconfig(
            tmp_path / "k", url, **{"certificate-authority": str(authority.certificate_file)}
        )
        async with connected(path) as transport, asyncio.TaskGroup() as group:
            opened = []
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                group.create_task(follow(transport))
            await until(lambda: len(opened) == count)
            taken = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            ended.set()

    both_ends = 2 * count
    assert taken / both_ends < 2**17
