"""Makes the SDK's HTTP transport, which is loaded late and so untyped."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.core.pipeline.transport import HttpTransport
    from azure.core.rest import HttpRequest, HttpResponse
    from requests import Session

__all__ = ["SdkTransport", "make_transport"]

SdkTransport: TypeAlias = "HttpTransport[HttpRequest, HttpResponse]"


def make_transport(
    *,
    connect_seconds: float,
    read_seconds: float,
    ca_bundle: str,
    session: Session | None = None,
) -> SdkTransport:
    """Return a transport; `ca_bundle` is a file of certificates, or empty for the system's."""
    make: Callable[..., SdkTransport] = import_module(
        "azure.core.pipeline.transport"
    ).RequestsTransport
    return make(
        session=session,
        connection_timeout=connect_seconds,
        read_timeout=read_seconds,
        connection_verify=ca_bundle or True,
    )
