"""Chooses the HTTP proxy of a URL from the environment, by Go's rules.

Karpenter, kubectl and the cloud controllers of a cluster read `HTTPS_PROXY` and `NO_PROXY` as Go
does. The Python HTTP clients differ: none of them knows IPv6 ranges or a port in `NO_PROXY`, and
aiohttp knows no ranges at all, so requests to `KUBERNETES_SERVICE_HOST` went to a proxy which
`NO_PROXY=10.96.0.0/12` excludes.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["checked_proxy", "proxy_for"]

_Address: TypeAlias = IPv4Address | IPv6Address

_PORTS: Final = {"http": "80", "https": "443"}
_VARIABLES: Final = {
    "http": ("HTTP_PROXY", "http_proxy"),
    "https": ("HTTPS_PROXY", "https_proxy"),
}
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_CGI: Final = "REQUEST_METHOD"
"""In a CGI program the client of the web server sets HTTP_PROXY, by a header `Proxy`."""


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for requests to `url`; None means a direct connection.

    Raises:
        SettingsError: the variable that applies holds no usable proxy.
    """
    target = urlsplit(url)
    names = _VARIABLES.get(target.scheme, ())
    name, value = _first_set(names, environment)
    if not value or not _uses_proxy(target, _first_set(_NO_PROXY, environment)[1]):
        return None
    if target.scheme == "http" and environment.get(_CGI):
        raise SettingsError(f"{name} is not used in a CGI program (REQUEST_METHOD is set)")
    return checked_proxy(value, name)


def checked_proxy(value: str, name: str) -> str:
    """Return the URL of a proxy; a host without a scheme is an HTTP proxy.

    Raises:
        SettingsError: it has no host, or a scheme that the client does not speak.
    """
    try:
        proxy = urlsplit(value)
        if not proxy.scheme or not proxy.netloc:
            proxy = urlsplit(f"http://{value}")
        host, _ = proxy.hostname, proxy.port
    except ValueError as error:
        raise SettingsError(f"{name}: not the URL of a proxy") from error  # may hold a password
    shown = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"  # never the password
    if not host:
        raise SettingsError(f'{name}: "{shown}" has no host')
    if proxy.scheme not in _PORTS:
        raise SettingsError(
            f'{name}: "{shown}" is no http or https proxy; others are not supported'
        )
    return proxy.geturl()


def _first_set(names: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the first variable that is not empty; upper case comes first."""
    return next(((name, environment[name]) for name in names if environment.get(name)), ("", ""))


def _uses_proxy(target: SplitResult, no_proxy: str) -> bool:
    host = _ascii(target.hostname or "")
    address = _address(host.partition("%")[0])
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    port = str(target.port or _PORTS[target.scheme])
    entries = [entry for part in no_proxy.split(",") if (entry := part.strip().lower())]
    if "*" in entries:
        return False
    return not any(_excludes(entry, host, port, address) for entry in entries)


def _excludes(entry: str, host: str, port: str, address: _Address | None) -> bool:
    """Tell whether an entry of NO_PROXY covers a host, an address and its port."""
    network = _network(entry)
    if network is not None:
        return address is not None and address in network
    split = _split_port(entry)
    if split.port not in {"", port}:
        return False
    excluded = _address(split.host)
    if excluded is not None or address is not None:
        return excluded == address
    suffix = _ascii(split.host[1:] if split.host.startswith("*.") else split.host)
    if suffix.startswith("."):
        return host.endswith(suffix)
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


@dataclass(frozen=True, slots=True)
class _HostPort:
    host: str
    port: str = ""


def _split_port(entry: str) -> _HostPort:
    """Split `host:port` and `[address]:port`; any other text is a host."""
    host, colon, port = entry.rpartition(":")
    if not colon:
        return _HostPort(entry)
    if host.startswith("[") and host.endswith("]"):
        return _HostPort(host[1:-1], port)
    return _HostPort(entry) if ":" in host else _HostPort(host, port)


def _network(text: str) -> IPv4Network | IPv6Network | None:
    length = text.partition("/")[2]
    if not length.isdecimal():  # Go knows no netmasks
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> _Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host
