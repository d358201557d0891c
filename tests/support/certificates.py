"""Throw-away certificates for a control plane on loopback."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["CertificateAuthority", "write_key_pair"]

LIFETIME: Final = timedelta(days=7)
LEEWAY: Final = timedelta(hours=1)
"""Time before now at which validity begins, for clocks that disagree."""


@final
class CertificateAuthority:
    """One authority and the certificates it signs, as PEM files in one folder.

    Without `has_key_identifiers` they are as old authorities made them: the defaults of Python 3.13
    refuse these.
    """

    __slots__ = ("_certificate", "_folder", "_has_key_identifiers", "_key")

    def __init__(self, folder: Path, *, has_key_identifiers: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._has_key_identifiers: Final = has_key_identifiers
        self._folder: Final = folder
        self._key: Final = ec.generate_private_key(ec.SECP256R1())
        subject = _name("karpenter-testing", ())
        self._certificate: Final = self._sign(
            _builder(subject, subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True),
            self._key,
        )
        _write(self.certificate_file, self._certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def certificate_file(self) -> Path:
        """The file that holds the authority's own certificate."""
        return self._folder / "ca.crt"

    def issue(
        self,
        name: str,
        common_name: str,
        *,
        organizations: Sequence[str] = (),
        hosts: Sequence[str] = (),
    ) -> tuple[Path, Path]:
        """Write certificate and key for a client, or, with hosts, for a server as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_name(common_name, organizations), self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = self._sign(builder, key)
        certificate_file = self._folder / f"{name}.crt"
        _write(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
        return certificate_file, _write_private(self._folder / f"{name}.key", key)

    def _sign(
        self, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> x509.Certificate:
        if self._has_key_identifiers:
            subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(subject, critical=False)
            builder = builder.add_extension(issuer, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def write_key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a bare key pair (for service-account tokens); return public and private file."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = folder / f"{name}.pub"
    _write(
        public,
        key.public_key().public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        ),
    )
    return public, _write_private(folder / f"{name}.key", key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now = datetime.now(tz=UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LEEWAY)
        .not_valid_after(now + LIFETIME)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ],
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, pem)
    return path


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
