"""Certificates renewed in place are read again, over real TLS on loopback."""

from __future__ import annotations

import json
import shutil
import ssl

import pytest
from aiohttp import web
from kubernetes.aio.client import Configuration
from structlog.testing import capture_logs

from karpenter_core.errors import ApiError, SettingsError
from karpenter_core.kube import login
from karpenter_core.kube.client import connect
from karpenter_core.kube.tls import TlsFiles
from karpenter_core.kube.transport import UNREACHABLE
from tests.controllers.clocks import TwoClocks
from tests.kube.serving import GET, MovableClock, connected, kubeconfig, no_surroundings, serving
from tests.support.certificates import CertificateAuthority
from tests.support.tls_defaults import follow_the_system

__all__ = ["no_surroundings"]


async def name_of_client(request):
    """Answer with the common name of the client's certificate."""
    certificate = request.transport.get_extra_info("peercert")
    name = dict(part for [part] in certificate["subject"])["commonName"] if certificate else ""
    return web.json_response(name)


def tls_of(authority, *, asks_client=True):
    certificate, key = authority.issue("server", "server", hosts=["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate_file)
    tls.load_cert_chain(certificate, key)
    if asks_client:
        tls.verify_mode = ssl.CERT_REQUIRED
    return tls


def put_in_place(issued, folder):
    """Copy files over those of a client, as an agent that renews them does."""
    for source, name in zip(issued, ("client.crt", "client.key"), strict=True):
        shutil.copyfile(source, folder / name)


async def asked(transport):
    response = await transport.request(GET)
    return json.loads(response.body)


async def test_a_client_certificate_renewed_in_place_is_used_within_a_minute(tmp_path):
    authority = CertificateAuthority(tmp_path / "pki")
    put_in_place(authority.issue("one", "first"), tmp_path)
    user = {
        "client-certificate": str(tmp_path / "client.crt"),
        "client-key": str(tmp_path / "client.key"),
    }
    clock = MovableClock()
    async with serving(name_of_client, tls_of(authority)) as url:
        trusted = {"certificate-authority": str(authority.certificate_file)}
        path = kubeconfig(tmp_path / "k", url, user, **trusted)
        async with connected(path, clock=clock) as transport:
            assert await asked(transport) == "first"
            put_in_place(authority.issue("two", "second"), tmp_path)
            clock.ahead = 31
            assert await asked(transport) == "second"


def test_files_are_checked_every_half_minute(tmp_path):
    """A look at each connection would cost more than the connection."""
    authority = CertificateAuthority(tmp_path / "pki")
    configuration = Configuration()
    configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
    shutil.copyfile(authority.certificate_file, configuration.ssl_ca_cert)
    clock = TwoClocks()
    files = TlsFiles(configuration, clock=clock)
    before = files.context()
    other = CertificateAuthority(tmp_path / "other")
    shutil.copyfile(other.certificate_file, configuration.ssl_ca_cert)
    clock.passes(29.9)
    assert files.context() is before
    clock.passes(0.1)
    assert files.context() is not before


def test_files_that_did_not_change_are_not_loaded_again(tmp_path):
    """New connections would share no TLS session, and the log would tell of a renewal that was none."""
    configuration = Configuration()
    configuration.ssl_ca_cert = str(CertificateAuthority(tmp_path / "pki").certificate_file)
    clock = TwoClocks()
    files = TlsFiles(configuration, clock=clock)
    before = files.context()
    with capture_logs() as lines:
        for _ in range(3):
            clock.passes(31)
            assert files.context() is before
    assert lines == []


async def test_a_partial_certificate_keeps_the_old_one_with_one_warning(tmp_path):
    """Until the rest is there: the certificate comes before its key, or only a part of it."""
    authority = CertificateAuthority(tmp_path / "pki")
    put_in_place(authority.issue("one", "first"), tmp_path)
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    clock = MovableClock()
    async with serving(name_of_client, tls_of(authority)) as url:
        trusted = {"certificate-authority": str(authority.certificate_file)}
        path = kubeconfig(tmp_path / "k", url, user, **trusted)
        async with connected(path, clock=clock) as transport:
            new_certificate, new_key = authority.issue("two", "second")
            whole = new_certificate.read_text()
            with capture_logs() as lines:
                for content in (whole[:100], whole, ""):
                    certificate.write_text(content)
                    clock.ahead += 31
                    assert await asked(transport) == "first"
                certificate.unlink()
                clock.ahead += 31
                assert await asked(transport) == "first"
                assert [line["log_level"] for line in lines] == ["warning"]
                assert str(certificate) in lines[0]["files"]
                put_in_place((new_certificate, new_key), tmp_path)
                clock.ahead += 31
                assert await asked(transport) == "second"


@pytest.fixture
def in_a_pod(tmp_path, monkeypatch):
    """Return a function that makes this process one in a pod of the cluster at a URL."""
    from kubernetes.aio.config import incluster_config

    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("token")

    def enter(url):
        host, port = url.removeprefix("https://").split(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        monkeypatch.setattr(login, "_TOKEN_FILE", token)
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))

    enter.ca = ca
    return enter


async def test_a_new_authority_of_the_pods_own_cluster_is_trusted_within_a_minute(
    tmp_path, in_a_pod
):
    """The cluster has changed its authority, and the kubelet the file."""
    old, new = CertificateAuthority(tmp_path / "old"), CertificateAuthority(tmp_path / "new")
    shutil.copyfile(old.certificate_file, in_a_pod.ca)
    clock = MovableClock()
    async with serving(name_of_client, tls_of(new, asks_client=False)) as url:
        in_a_pod(url)
        async with connected(None, clock=clock) as transport:
            with pytest.raises(ApiError, match="certificate verify failed") as caught:
                await transport.request(GET)
            assert caught.value.reason == UNREACHABLE
            shutil.copyfile(new.certificate_file, in_a_pod.ca)
            clock.ahead = 31
            assert await asked(transport) == ""


async def test_tls_files_that_cannot_be_used_at_the_start_are_an_error(tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text("not a certificate")
    path = kubeconfig(
        tmp_path / "k", "https://127.0.0.1:1", **{"certificate-authority": str(authority)}
    )
    with pytest.raises(SettingsError, match=r"TLS material for https://127.0.0.1:1"):
        await connect(kubeconfig=path, clock=MovableClock())


async def test_a_plain_connection_loads_no_authorities(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: loaded.append("system"))
    plain = kubeconfig(tmp_path / "plain", "http://127.0.0.1:1")
    secret = kubeconfig(tmp_path / "secret", "https://127.0.0.1:1")
    proxied = kubeconfig(
        tmp_path / "proxied", "http://127.0.0.1:1", **{"proxy-url": "https://127.0.0.1:2"}
    )

    for path, expected in ((plain, []), (secret, ["system"]), (proxied, ["system"])):
        loaded.clear()
        await (await connect(kubeconfig=path, clock=MovableClock())).close()
        assert loaded == expected


def test_old_versions_of_tls_are_refused(monkeypatch):
    """The system may permit them."""
    follow_the_system(monkeypatch)

    context = TlsFiles(Configuration(), clock=TwoClocks()).context()

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


async def test_an_authority_without_a_key_identifier_is_trusted(tmp_path, monkeypatch):
    """As kubectl does: Python 3.13, which images have, would refuse the clusters of EKS that have none."""
    default = ssl.create_default_context

    def of_python_3_13(*arguments, **options):
        context = default(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    authority = CertificateAuthority(tmp_path / "pki", has_key_identifiers=False)
    server = tls_of(authority, asks_client=False)
    other = CertificateAuthority(tmp_path / "other")
    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    async with serving(name_of_client, server) as url:
        trusted = {"certificate-authority": str(authority.certificate_file)}
        async with connected(kubeconfig(tmp_path / "k", url, **trusted)) as transport:
            assert await asked(transport) == ""
        wrong = {"certificate-authority": str(other.certificate_file)}
        async with connected(kubeconfig(tmp_path / "wrong", url, **wrong)) as transport:
            with pytest.raises(ApiError, match="certificate verify failed"):
                await transport.request(GET)
