"""Serves the metrics over TLS with a certificate that is renewed in place.

cert-manager and projected volumes replace the files while the process runs. Each handshake compares
the files with those in use, so that there is no period in which a renewed certificate is not served.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import SettingsError
from karpenter_core.kube.file_stamps import read_stamps
from karpenter_core.provider.kit.calls.tls_versions import refuse_old_tls

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["ServingCertificate"]


@final
class ServingCertificate:
    """A certificate and its key, as the TLS context of a server."""

    def __init__(self, certificate_file: str, key_file: str) -> None:
        """Read the files.

        Raises:
            SettingsError: they cannot be used.
        """
        self._files: Final = (certificate_file, key_file)
        self._log: Final[FilteringBoundLogger] = structlog.get_logger("operator")
        self._stamps = read_stamps(self._files)
        try:
            self._in_use = self._load()
        except OSError as error:  # ssl.SSLError is one
            raise SettingsError(
                f"metrics-tls-cert-file, metrics-tls-key-file: {certificate_file} and {key_file} "
                f"cannot be used: {error.strerror or error}"
            ) from error
        self.context: Final = self._load()
        """The context to listen with; it stays the same when the files change."""
        self.context.sni_callback = self._choose  # pyright: ignore[reportAttributeAccessIssue] - OpenSSL calls it without a server name too

    def _choose(
        self, connection: ssl.SSLObject, _server_name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Give a handshake the files of now, or the last ones that could be used."""
        # Before the files: what changes meanwhile is seen next time.
        stamps = read_stamps(self._files)
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._in_use = self._load()
            except OSError as error:
                # Certificate and key are replaced one after the other; the second one changes a stamp.
                message = "renewed TLS files cannot be used yet; the old ones remain in use"
                self._log.warning(message, files=list(self._files), error=str(error))
            else:
                self._log.info("using renewed TLS files", files=list(self._files))
        connection.context = self._in_use

    def _load(self) -> ssl.SSLContext:
        context = refuse_old_tls(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(*self._files, password="")
        return context
