"""A server over TLS that answers with what a test gives it, in turn."""

from __future__ import annotations

import ipaddress
import json
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer


def write_certificate(folder):
    """Write a self-signed certificate of 127.0.0.1 and its key; return both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "ca.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


@dataclass
class Received:
    method: str
    path: str
    query: dict
    headers: dict
    body: object


@dataclass
class ScriptedServer:
    """Answers requests with `replies` in turn, the last one for all further requests."""

    replies: list = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    url: str = ""
    ca_bundle: str = ""

    def reply(self, status=200, body=None, headers=(), *, content=None):
        """Add an answer; `content` is a body as it is sent, None for JSON of `body`."""
        if content is None:
            content = b"" if body is None else json.dumps(body).encode()
        self.replies.append(
            HttpReply(status=status, headers=tuple(dict(headers).items()), body=content)
        )

    def cut(self):
        """Cut the next connection without an answer."""
        self.replies.append(None)

    def answer(self, request):
        self.received.append(
            Received(
                method=request.method,
                path=request.path,
                query=dict(parse_qsl(request.query)),
                headers=dict(request.headers),
                body=json.loads(request.body)
                if request.body[:1] == b"{"
                else request.body.decode() or None,
            )
        )
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def serve(self, folder):
        """Return a server that is not started yet."""
        certificate, key = write_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = HttpServer(self.answer, name="scripted-arm", tls=context)
        self.url, self.ca_bundle = server.endpoint_url, str(certificate)
        return server
