"""Sets the oldest version of TLS that connections accept."""

from __future__ import annotations

from ssl import TLSVersion
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["refuse_old_tls"]


def refuse_old_tls(context: SSLContext) -> SSLContext:
    """Return the context, which accepts TLS 1.2 or newer; a newer minimum of the system stays.

    Python sets this minimum itself, unless it was built to follow the system's OpenSSL, as Debian's.
    There, the security level of OpenSSL refuses old versions, until the administrator lowers it.
    """
    context.minimum_version = max(context.minimum_version, TLSVersion.TLSv1_2)
    return context
