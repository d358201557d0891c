"""The opener of HTTP clients trusts a file of certificates, and refuses old versions of TLS."""

from __future__ import annotations

import ssl
from urllib.error import URLError

import pytest

from karpenter_core.provider.kit.calls.bounded_reads import direct_opener
from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer
from tests.support.certificates import CertificateAuthority
from tests.support.tls_defaults import follow_the_system


def test_a_server_is_trusted_by_the_named_certificates_alone(tmp_path):
    authority = CertificateAuthority(tmp_path / "pki")
    other = CertificateAuthority(tmp_path / "other")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("server", "server", hosts=["127.0.0.1"]))
    server = HttpServer(lambda _: HttpReply(status=200, body=b"hello"), name="tls", tls=tls)
    server.start()
    try:
        opener = direct_opener(ca_bundle=str(authority.certificate_file))
        with opener.open(server.endpoint_url, timeout=5) as answer:
            assert answer.read() == b"hello"
        for stranger in (direct_opener(), direct_opener(ca_bundle=str(other.certificate_file))):
            with pytest.raises(URLError, match="certificate verify failed"):
                stranger.open(server.endpoint_url, timeout=5)
    finally:
        server.stop()


def test_old_versions_of_tls_are_refused(tmp_path, monkeypatch):
    """The system may permit them."""
    authority = CertificateAuthority(tmp_path)
    made = follow_the_system(monkeypatch)

    direct_opener(ca_bundle=str(authority.certificate_file))

    assert [context.minimum_version for context in made] == [ssl.TLSVersion.TLSv1_2]
