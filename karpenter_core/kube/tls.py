"""Builds the TLS context of a session, again when one of its files changes.

Certificates of clients and authorities are renewed in place: by the kubelet for projected volumes,
by agents for kubeconfigs. Connections that are open go on; new ones use the new files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import SettingsError
from karpenter_core.kube.file_stamps import read_stamps
from karpenter_core.provider.kit.calls.tls_versions import refuse_old_tls

if TYPE_CHECKING:
    import ssl

    from kubernetes.aio.client import Configuration

    from karpenter_core.clock import Clock

__all__ = ["TlsFiles"]

_CHECK_SECONDS: Final = 30.0
"""Period between two checks of the files; a file of a projected volume may be a minute old itself."""

_BUFFER_BYTES: Final = 2**16
"""Read buffer of a TLS connection: four records. asyncio takes 256 KiB, and a leader has forty watches."""

_log = structlog.stdlib.get_logger("kube.tls")


@final
class TlsFiles:
    """The authority, certificate and key that a configuration names, as a TLS context."""

    def __init__(self, configuration: Configuration, *, clock: Clock) -> None:
        """Read the files.

        Raises:
            SettingsError: one of them cannot be used.
        """
        _limit_buffers()
        self._configuration: Final = configuration
        self._clock: Final = clock
        self._checked_at = clock.monotonic()
        self._paths = self._named()
        self._stamps = read_stamps(self._paths)
        self._is_failing = False
        try:
            self._context = self._load()
        except OSError as error:  # ssl.SSLError is one
            host = str(configuration.host).rstrip("/")
            raise SettingsError(f"TLS material for {host} cannot be used: {error}") from error

    def context(self) -> ssl.SSLContext:
        """Return the context for new connections, from files of half a minute ago at the oldest."""
        now = self._clock.monotonic()
        # A credential plug-in that gives certificates names another file each time.
        if now - self._checked_at >= _CHECK_SECONDS or self._named() != self._paths:
            self._checked_at = now
            self._follow()
        return self._context

    def _follow(self) -> None:
        """Use files that have changed, or go on with the old ones while they cannot be used."""
        self._paths = self._named()
        # Before the files: what changes meanwhile is seen next time.
        stamps = read_stamps(self._paths)
        if stamps == self._stamps:
            return
        try:
            self._context = self._load()
        except OSError as error:
            if not self._is_failing:
                message = "renewed TLS files cannot be used yet; the old ones remain in use"
                _log.warning(message, files=list(self._paths), error=str(error))
            self._is_failing = True
            return
        self._stamps = stamps
        self._is_failing = False
        _log.info("using renewed TLS files", files=list(self._paths))

    def _load(self) -> ssl.SSLContext:
        from kubernetes.aio.client.rest import RESTClientObject

        # Python 3.13 refuses authorities without a key identifier, as many clusters of EKS have; kubectl
        # does not. Chain, names and times are checked all the same.
        self._configuration.disable_strict_ssl_verification = True
        return refuse_old_tls(RESTClientObject(self._configuration).ssl_context)

    def _named(self) -> tuple[str, ...]:
        named = self._configuration
        return tuple(
            str(path) for path in (named.ssl_ca_cert, named.cert_file, named.key_file) if path
        )


def _limit_buffers() -> None:
    """Let the TLS connections of this process have small buffers; the loop has no option for it."""
    from asyncio.sslproto import SSLProtocol

    SSLProtocol.max_size = min(SSLProtocol.max_size, _BUFFER_BYTES)
