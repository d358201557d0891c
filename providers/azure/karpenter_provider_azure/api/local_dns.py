"""Models of the DNS cache on each node (LocalDNS)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import DURATION, Facets

__all__ = ["LocalDNS", "LocalDNSMode", "LocalDNSState", "LocalDNSZone"]

_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_ZONE: Final = rf"^(\.|{_LABEL}(\.{_LABEL})*\.?)$"
_CLUSTER_ZONE: Final = "cluster.local"
_REQUIRED: Final = Facets(required=True)
_MAX_ZONES: Final = 100


class LocalDNSMode(StrEnum):
    """Modes in which users ask for LocalDNS."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"
    DISABLED = "Disabled"


class LocalDNSState(StrEnum):
    """Whether nodes of a NodeClass have LocalDNS."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class LocalDNSZone(Model):
    """Configuration of one DNS zone."""

    cel: ClassVar = (
        CEL(
            f"self.forwardDestination != 'VnetDNS' || !self.zone.endsWith('{_CLUSTER_ZONE}')",
            f"a zone that ends in {_CLUSTER_ZONE} is not forwarded to VnetDNS",
        ),
        CEL(
            "self.serveStale != 'Verify' || self.protocol != 'ForceTCP'",
            "serveStale Verify needs a protocol other than ForceTCP",
        ),
    )

    zone: Annotated[str, Facets(pattern=_ZONE, min_length=1, max_length=254), _REQUIRED] = ""
    """The DNS zone; a dot alone stands for all zones without an entry."""
    query_logging: Annotated[str, Facets(enum=("Error", "Log")), _REQUIRED] = ""
    """Queries to log: those that fail, or all."""
    protocol: Annotated[str, Facets(enum=("PreferUDP", "ForceTCP")), _REQUIRED] = ""
    """Protocol to the upstream DNS server."""
    forward_destination: Annotated[str, Facets(enum=("ClusterCoreDNS", "VnetDNS")), _REQUIRED] = ""
    """Upstream DNS server."""
    forward_policy: Annotated[
        str, Facets(enum=("Sequential", "RoundRobin", "Random")), _REQUIRED
    ] = ""
    """Choice between several upstream DNS servers."""
    max_concurrent: Annotated[int | None, Facets(format="int32", minimum=0), _REQUIRED] = None
    """Maximum number of concurrent queries to upstream DNS servers."""
    cache_duration: Annotated[str, Facets(pattern=DURATION), _REQUIRED] = ""
    """Longest time for which an answer is cached, such as 1h."""
    serve_stale_duration: Annotated[str, Facets(pattern=DURATION), _REQUIRED] = ""
    """Time for which an expired answer may be served, such as 1h."""
    serve_stale: Annotated[str, Facets(enum=("Verify", "Immediate", "Disable")), _REQUIRED] = ""
    """Use of expired answers: after a check of the upstream server, at once, or never."""


_ZONES: Final = Facets(
    max_items=_MAX_ZONES, list_type="map", list_map_keys=("zone",), required=True
)
_REQUIRED_ZONES: Final = CEL(
    f"self.exists(z, z.zone == '.') && self.exists(z, z.zone == '{_CLUSTER_ZONE}')",
    f"entries for the zones '.' and '{_CLUSTER_ZONE}' are needed",
)


class LocalDNS(Model):
    """The DNS cache on each node."""

    mode: Annotated[str, Facets(enum=tuple(item.value for item in LocalDNSMode)), _REQUIRED] = ""
    """Whether nodes have the cache; Preferred enables it where the cluster supports it."""
    vnet_dns_overrides: Annotated[
        tuple[LocalDNSZone, ...],
        _ZONES,
        _REQUIRED_ZONES,
        CEL(
            "!self.exists(z, z.zone == '.' && z.forwardDestination == 'ClusterCoreDNS')",
            "the zone '.' of vnetDNSOverrides is not forwarded to ClusterCoreDNS",
        ),
        CEL(
            f"!self.exists(z, z.zone != '.' && !z.zone.endsWith('{_CLUSTER_ZONE}') && "
            "z.forwardDestination == 'ClusterCoreDNS')",
            f"only zones of vnetDNSOverrides that end in {_CLUSTER_ZONE} are forwarded to "
            "ClusterCoreDNS",
        ),
        Field(alias="vnetDNSOverrides"),
    ] = ()
    """Zones for queries of the kubelet and of pods with the DNS policy Default."""
    kube_dns_overrides: Annotated[
        tuple[LocalDNSZone, ...], _ZONES, _REQUIRED_ZONES, Field(alias="kubeDNSOverrides")
    ] = ()
    """Zones for queries of pods with the DNS policy ClusterFirst."""
