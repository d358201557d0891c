"""Fetches the facts about the cluster that bootstrapping instances need.

A refusal or an outage at the start says nothing about the cluster. Such a fact stays unknown, with
the reason, and is requested again; providers that need it wait (`ClusterFacts.check_known`) or ask
their own cloud. Only a 404 means that the cluster does not have it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import msgspec
import structlog

from karpenter_core.errors import ApiError
from karpenter_core.kube.api_errors import error_of
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.transport import ApiRequest

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.kube.transport import Transport
    from karpenter_core.provider.contract import ClusterFacts

__all__ = ["ASK_SECONDS", "DNS_SERVICE", "REFRESH_SECONDS", "RETRY_SECONDS", "ClusterFactsReader"]

DNS_SERVICE: Final = "/api/v1/namespaces/kube-system/services/kube-dns"
"""The service under which every distribution keeps its cluster DNS, CoreDNS too."""
_SERVICE_CIDRS: Final = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
"""The range of service addresses that the API server was started with (Kubernetes 1.33 and newer)."""
_VERSION: Final = "/version"

ASK_SECONDS: Final = 10.0
"""The longest time that one answer may take: the start waits for the first."""
RETRY_SECONDS: Final = 10.0
"""The interval of requests while one of the facts is not known."""
REFRESH_SECONDS: Final = 300.0
"""The later interval of requests: clusters are upgraded, and get their DNS after their nodes."""

_NOT_FOUND: Final = 404
_REFUSALS: Final = frozenset({401, 403})
_BAD_REQUEST: Final = 400


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


_Answer = TypeVar("_Answer", bound=msgspec.Struct)


@dataclass(slots=True, kw_only=True)
class _FactSource(Generic[_Answer]):
    """One object of the API server, and the facts read from it."""

    path: str
    kind: type[_Answer]
    permission: str
    """The permission that a role must grant for it."""
    answer: _Answer | None = None
    """The last good answer; the empty one when the cluster does not have it."""
    problem: str = ""
    """The reason why the last request was not answered."""

    def why_unknown(self) -> str:
        """Return why there is no answer; empty if there is one."""
        return "" if self.answer is not None else self.problem or "not requested yet"


@final
class ClusterFactsReader:
    """Keeps the facts of a cluster up to date."""

    def __init__(self, transport: Transport, facts: ClusterFacts, *, clock: Clock) -> None:
        self._transport: Final = transport
        self._clock: Final = clock
        self._log: FilteringBoundLogger = structlog.get_logger("operator")
        self._version: Final = _FactSource(
            path=_VERSION,
            kind=_Version,
            permission="get of the URL /version (ClusterRole system:discovery)",
        )
        self._dns: Final = _FactSource(
            path=DNS_SERVICE,
            kind=_Service,
            permission='get of services "kube-dns" in the namespace kube-system',
        )
        self._ranges: Final = _FactSource(
            path=_SERVICE_CIDRS,
            kind=_ServiceCidr,
            permission='get of servicecidrs.networking.k8s.io "kubernetes"',
        )
        self.facts: Final = facts
        self._publish()

    async def read(self) -> None:
        """Request all facts once, and store the answers."""
        await asyncio.gather(
            self._ask(self._version), self._ask(self._dns), self._ask(self._ranges)
        )
        self._publish()

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await self._clock.sleep(RETRY_SECONDS if self.facts.unknown else REFRESH_SECONDS)
            await self.read()

    async def _ask(self, source: _FactSource[_Answer]) -> None:
        try:
            async with time_limit(self._clock, ASK_SECONDS):
                source.answer = await self._fetch(source)
        except (ApiError, msgspec.DecodeError, TimeoutError) as error:
            self._note_problem(source, _reason(source, error))
        else:
            if source.problem:
                self._log.info("facts about the cluster can be read again", path=source.path)
            source.problem = ""

    async def _fetch(self, source: _FactSource[_Answer]) -> _Answer:
        try:
            response = await self._transport.request(ApiRequest(method="GET", path=source.path))
            if response.status >= _BAD_REQUEST:
                raise error_of(response, f"get {source.path}")
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._log.debug("the API server has no such object", path=source.path)
            return source.kind()
        return msgspec.json.decode(response.body, type=source.kind)

    def _note_problem(self, source: _FactSource[_Answer], problem: str) -> None:
        if source.problem != problem:
            self._log.warning(
                "request for a fact about the cluster failed; retrying",
                path=source.path,
                error=problem,
                known_from_before=source.answer is not None,
            )
        source.problem = problem

    def _publish(self) -> None:
        """Publish the known facts; the reasons for unknown ones come last."""
        facts = self.facts
        unknown: dict[str, str] = {}
        if (version := self._version.answer) is not None:
            facts.version = version.version
        else:
            unknown["version"] = self._version.why_unknown()
        if (dns := self._dns.answer) is not None:
            facts.dns_ip = dns.spec.address if _is_address(dns.spec.address) else ""
        else:
            unknown["dns_ip"] = self._dns.why_unknown()
        if (ranges := self._ranges.answer) is not None:
            facts.service_cidrs = ranges.spec.cidrs
        else:
            unknown["service_cidrs"] = self._ranges.why_unknown()
        family = _family_of(facts)
        facts.ip_family = family or facts.ip_family  # it never changes in the life of a cluster
        if not facts.ip_family:
            unknown["ip_family"] = self._dns.why_unknown() or self._ranges.why_unknown() or _NEITHER
        facts.unknown = unknown


_NEITHER: Final = "there is neither a Service kube-system/kube-dns nor a ServiceCIDR kubernetes"


def _family_of(facts: ClusterFacts) -> str:
    """Return the family of the DNS address, else that of the first range; empty without either."""
    address = facts.dns_ip or next((cidr.partition("/")[0] for cidr in facts.service_cidrs), "")
    is_ipv6 = _is_ipv6(address)
    if is_ipv6 is None:
        return ""
    return "IPv6" if is_ipv6 else "IPv4"


def _reason(source: _FactSource[_Answer], error: Exception) -> str:
    if isinstance(error, ApiError) and error.status in _REFUSALS:
        return f"{error} (allow {source.permission})"
    if isinstance(error, TimeoutError):
        return f"get {source.path}: no answer within {round(ASK_SECONDS)} s"
    if isinstance(error, msgspec.DecodeError):
        return f"get {source.path}: the answer cannot be read: {error}"
    return str(error)


def _is_address(text: str) -> bool:
    """Whether a Service has an address; headless Services have the text `None`."""
    return _is_ipv6(text) is not None


def _is_ipv6(text: str) -> bool | None:
    """Whether an address is of that family; None: it is none."""
    try:
        return isinstance(ip_address(text), IPv6Address)
    except ValueError:
        return None
