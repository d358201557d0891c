"""What bootstrapping machines must know of their cluster, asked of its API server once, at the start.

Nothing here is worth failing for: what the API server does not tell stays empty, and a provider that
cannot do without asks its own cloud or says which setting it needs.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import structlog

from karpenter_core.errors import ApiError, NotFoundError
from karpenter_core.kube.transport import Request
from karpenter_core.provider.contract import ClusterFacts

if TYPE_CHECKING:
    from karpenter_core.kube.transport import Transport

__all__ = ["DNS_SERVICE", "read_cluster_facts"]

DNS_SERVICE: Final = "/api/v1/namespaces/kube-system/services/kube-dns"
"""The service under which every distribution keeps its cluster DNS, CoreDNS too."""
_SERVICE_CIDRS: Final = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
"""The range of service addresses that the API server was started with (Kubernetes 1.33 and newer)."""


class _Version(msgspec.Struct):
    version: str = msgspec.field(name="gitVersion", default="")


class _ServiceSpec(msgspec.Struct):
    address: str = msgspec.field(name="clusterIP", default="")


class _Service(msgspec.Struct):
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


class _CidrSpec(msgspec.Struct):
    cidrs: tuple[str, ...] = ()


class _ServiceCidr(msgspec.Struct):
    spec: _CidrSpec = msgspec.field(default_factory=_CidrSpec)


async def read_cluster_facts(
    transport: Transport, *, name: str, endpoint: str, ca_bundle: str
) -> ClusterFacts:
    """Ask for the version, the address of DNS and the ranges of service addresses, all at once.

    Without an address of DNS the IP family is that of the first range, and IPv4 without either.
    """
    version, dns, ranges = await asyncio.gather(
        _ask(transport, "/version", _Version),
        _ask(transport, DNS_SERVICE, _Service),
        _ask(transport, _SERVICE_CIDRS, _ServiceCidr),
    )
    dns_ip = dns.spec.address if _is_address(dns.spec.address) else ""
    first = dns_ip or next((cidr.partition("/")[0] for cidr in ranges.spec.cidrs), "")
    return ClusterFacts(
        name=name,
        version=version.version,
        endpoint=endpoint,
        ca_bundle=ca_bundle,
        dns_ip=dns_ip,
        service_cidrs=ranges.spec.cidrs,
        ip_family="IPv6" if _is_ipv6(first) else "IPv4",
    )


_Answer = TypeVar("_Answer", bound=msgspec.Struct)


async def _ask(transport: Transport, path: str, kind: type[_Answer]) -> _Answer:
    log = structlog.get_logger("operator")
    try:
        response = await transport.request(Request(method="GET", path=path))
        return msgspec.json.decode(response.body, type=kind)
    except NotFoundError:
        log.debug("the cluster does not have this", path=path)
    except (ApiError, msgspec.DecodeError) as error:
        log.warning("could not read this of the cluster", path=path, error=str(error))
    return kind()


def _is_address(text: str) -> bool:
    """Whether a service has an address: `None` is the word for a headless one."""
    return _is_ipv6(text) is not None


def _is_ipv6(text: str) -> bool | None:
    """Whether an address is of that family; None: it is none."""
    try:
        return isinstance(ip_address(text), IPv6Address)
    except ValueError:
        return None
