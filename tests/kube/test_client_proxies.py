"""Requests of the HTTP transport go through the proxy of their URL."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from karpenter_core.errors import ApiError, SettingsError
from karpenter_core.kube.client import connect
from karpenter_core.operator.clock import SystemClock
from tests.kube.serving import GET, connected, kubeconfig, no_surroundings

__all__ = ["no_surroundings"]


@asynccontextmanager
async def proxy():
    """Serve a proxy that writes down what it is asked for, and refuses."""
    asked = []

    async def answer(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}", asked
    finally:
        server.close()


# Nothing listens there, and it is no loopback address by its number.
SERVER = "https://0.0.0.0:1"


@pytest.mark.parametrize(
    ("no_proxy", "is_asked"),
    [
        ("", True),
        ("10.96.0.0/12,.svc", True),
        ("0.0.0.0/8", False),
        ("0.0.0.0:1", False),
        ("0.0.0.0", False),
        ("*", False),
    ],
)
async def test_no_proxy_is_obeyed_as_go_does(tmp_path, monkeypatch, no_proxy, is_asked):
    """Ranges above all: the service network of a cluster is one."""
    async with proxy() as (url, asked):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setenv("NO_PROXY", no_proxy)
        async with connected(kubeconfig(tmp_path / "k", SERVER)) as transport:
            with pytest.raises(ApiError):
                await transport.request(GET)
            with pytest.raises(ApiError):
                async with transport.stream(GET):
                    pass
    assert asked == ["CONNECT 0.0.0.0:1 HTTP/1.1"] * (2 if is_asked else 0)


async def test_the_proxy_of_the_kubeconfig_comes_before_the_environment(tmp_path, monkeypatch):
    """Nothing excludes a server from it, as with client-go."""
    async with proxy() as (url, asked), proxy() as (other, others_asked):
        monkeypatch.setenv("HTTPS_PROXY", other)
        monkeypatch.setenv("NO_PROXY", "*")
        path = kubeconfig(tmp_path / "k", SERVER, **{"proxy-url": url})
        async with connected(path) as transport:
            with pytest.raises(ApiError):
                await transport.request(GET)
    assert (asked, others_asked) == (["CONNECT 0.0.0.0:1 HTTP/1.1"], [])


async def test_the_pods_own_cluster_is_reached_directly_when_its_range_is_excluded(
    tmp_path, monkeypatch
):
    from kubernetes.aio.config import incluster_config

    from karpenter_core.kube import login
    from tests.support.certificates import CertificateAuthority

    authority, token = CertificateAuthority(tmp_path / "pki"), tmp_path / "token"
    token.write_text("token")
    monkeypatch.setattr(login, "_TOKEN_FILE", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority.certificate_file))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    async with connected(None) as transport:
        assert transport.proxy == "http://proxy.corp:3128"
    monkeypatch.setenv("NO_PROXY", "10.96.0.0/12,.svc")
    async with connected(None) as transport:
        assert transport.proxy is None


async def test_a_proxy_that_cannot_be_used_is_an_error_at_the_start(tmp_path, monkeypatch):
    """Not one of each request."""
    path = kubeconfig(tmp_path / "k", SERVER, **{"proxy-url": "socks5://me:secret@proxy:1080"})
    with pytest.raises(SettingsError, match=f"proxy-url of {SERVER}") as caught:
        await connect(kubeconfig=path, clock=SystemClock())
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    with pytest.raises(SettingsError, match="HTTPS_PROXY"):
        await connect(kubeconfig=kubeconfig(tmp_path / "k", SERVER), clock=SystemClock())
