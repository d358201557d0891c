"""Creates a CA and a certificate for 127.0.0.1 at each start of a cloud."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from tempfile import TemporaryDirectory
from typing import Final, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Certificates"]

_VALID_FOR: Final = timedelta(days=3650)


@final
class Certificates:
    """The files of a certificate authority that is trusted by nobody else."""

    def __init__(self) -> None:
        """Create both certificates in a temporary directory."""
        self._directory: Final = TemporaryDirectory(prefix="simulated-azure-")
        folder = Path(self._directory.name)
        self.ca_bundle: Final = folder / "ca.pem"
        """The file of the authority, for REQUESTS_CA_BUNDLE and `connection_verify`."""
        self._server_file: Final = folder / "server.pem"
        authority_key = ec.generate_private_key(ec.SECP256R1())
        name = _name("simulated-azure")
        authority = (
            _builder(name, name, authority_key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()),
                critical=False,
            )
            .sign(authority_key, hashes.SHA256())
        )
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("localhost")]
        certificate = (
            _builder(_name("127.0.0.1"), name, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                critical=False,
            )
            .sign(authority_key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        self.ca_bundle.write_bytes(authority.public_bytes(pem))
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._server_file.write_bytes(private + certificate.public_bytes(pem))

    def server_context(self) -> SSLContext:
        """Return the TLS settings of the server."""
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._server_file)
        return context

    def write(self, name: str, content: str) -> Path:
        """Write another file into the directory: the token of a service account."""
        path = Path(self._directory.name) / name
        path.write_text(content, encoding="utf-8")
        return path

    def remove(self) -> None:
        """Remove the files."""
        self._directory.cleanup()


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALID_FOR)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
