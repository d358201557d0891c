"""Reads the provider's settings.

Flags, variables and defaults are those of Karpenter's Alibaba Cloud provider, and some of this one.
The core's `--cluster-name` is not used: ACK identifies clusters by id, and so do the tags of
instances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from karpenter_core.api.durations import format_duration
from karpenter_core.errors import SettingsError
from karpenter_core.provider.contract import SettingSpec
from karpenter_core.provider.kit.setting_values import duration_of, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.provider.contract import ProviderContext

__all__ = [
    "CLUSTER_TYPES",
    "LAUNCH_APIS",
    "NETWORKS",
    "SETTINGS",
    "AlibabaCloudSettings",
]

CLUSTER_TYPES: Final = ("ACKManaged", "Custom")
LAUNCH_APIS: Final = ("", "AutoProvisioningGroup", "RunInstances")
NETWORKS: Final = ("", "public", "vpc")
PROTOCOLS: Final = ("http", "https")

SHORTEST_POLL: Final = timedelta(seconds=1)
_POLL: Final = timedelta(seconds=20)
_METADATA: Final = "http://100.100.100.200"
"""Where every instance reaches the metadata service."""

SETTINGS: Final = (
    SettingSpec(
        flag="--cluster-id",
        env="CLUSTER_ID",
        default="",
        help="Id of the ACK cluster, which marks its instances; required.",
    ),
    SettingSpec(
        flag="--region-id",
        env="REGION_ID",
        default="",
        help="Region of the cluster; empty = read from the instance metadata service.",
    ),
    SettingSpec(
        flag="--alibaba-cloud-network",
        env="ALIBABA_CLOUD_NETWORK",
        default="",
        help="Network of the endpoints: public, or vpc for those within the VPC; empty = public.",
    ),
    SettingSpec(
        flag="--vm-memory-overhead-percent",
        env="VM_MEMORY_OVERHEAD_PERCENT",
        default=0.065,
        help="Share of an instance type's memory that its nodes are assumed to lack, until one has "
        "registered; 0.065 = 6.5 %.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--interruption",
        env="INTERRUPTION",
        default=True,
        help="Poll ECS for instances that will be reclaimed or maintained.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--interruption-poll-interval",
        env="INTERRUPTION_POLL_INTERVAL",
        default=_POLL,
        help="Period of polls for reclaimed spot instances; one second at least.",
    ),
    SettingSpec(
        flag="--telemetry-share",
        env="TELEMETRY_SHARE",
        default=True,
        help="Accepted for existing charts; no statistics are reported.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--launch-qps",
        env="LAUNCH_QPS",
        default=10.0,
        help="Launches per second on average.",
    ),
    SettingSpec(
        flag="--launch-burst",
        env="LAUNCH_BURST",
        default=0,
        help="Launches that may be made at once; 0 = the value of --apg-qps.",
    ),
    SettingSpec(
        flag="--apg-qps",
        env="APG_CREATION_QPS",
        default=100,
        help="Another name of --launch-burst, kept for existing charts.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--launch-api",
        env="LAUNCH_API",
        default="",
        help="API of launches: AutoProvisioningGroup or RunInstances; empty = provisioning groups, "
        "unless the NodeClass has settings that they do not support.",
    ),
    SettingSpec(
        flag="--cluster-type",
        env="CLUSTER_TYPE",
        default=CLUSTER_TYPES[0],
        help="ACKManaged, or Custom for a cluster outside of ACK: user data is used as it is, and "
        "ACK is not called.",
    ),
    SettingSpec(
        flag="--alibaba-endpoint-ecs",
        env="ALIBABA_ENDPOINT_ECS",
        default="",
        help="Host and port of ECS; empty = the region's.",
    ),
    SettingSpec(
        flag="--alibaba-endpoint-vpc",
        env="ALIBABA_ENDPOINT_VPC",
        default="",
        help="Host and port of VPC; empty = the region's.",
    ),
    SettingSpec(
        flag="--alibaba-endpoint-cs",
        env="ALIBABA_ENDPOINT_CS",
        default="",
        help="Host and port of ACK; empty = the region's.",
    ),
    SettingSpec(
        flag="--alibaba-endpoint-protocol",
        env="ALIBABA_ENDPOINT_PROTOCOL",
        default="https",
        help="Protocol of all endpoints: https, or http for a simulated cloud.",
    ),
    SettingSpec(
        flag="--alibaba-http-pool",
        env="ALIBABA_HTTP_POOL",
        default=64,
        help="Connections kept open to each endpoint.",
    ),
    SettingSpec(
        flag="--price-file",
        env="PRICE_FILE",
        default="",
        help="File with prices that override those of the cloud, as JSON: {region: {type: "
        '{"onDemand": price, "spot": {zone: price}}}}; empty = none.',
    ),
    SettingSpec(
        flag="--metadata-endpoint",
        env="METADATA_ENDPOINT",
        default=_METADATA,
        help="URL of the instance metadata service.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlibabaCloudSettings:
    """The settings, read."""

    cluster_id: str
    region_id: str = ""
    """As configured; empty when it is to be asked of the metadata service."""
    network: str = ""
    """One of `NETWORKS`; empty means public."""
    vm_memory_overhead_percent: float = 0.065
    """A share: 0.065 is 6.5 %."""
    interruption: bool = True
    interruption_poll_interval: timedelta = _POLL
    launch_rate_per_second: float = 10.0
    launch_burst: int = 100
    launch_api: str = ""
    """One of `LAUNCH_APIS`; empty means whichever can carry what the NodeClass asks for."""
    cluster_type: str = CLUSTER_TYPES[0]
    """One of `CLUSTER_TYPES`."""
    endpoint_ecs: str = ""
    endpoint_vpc: str = ""
    endpoint_cs: str = ""
    endpoint_protocol: str = "https"
    """One of `PROTOCOLS`."""
    http_pool: int = 64
    price_file: str = ""
    metadata_endpoint: str = _METADATA

    @classmethod
    def from_context(cls, context: ProviderContext) -> AlibabaCloudSettings:
        """Read what the core hands over.

        Raises:
            SettingsError: a value cannot be used; all such values are named.
        """
        given = context.settings
        settings = cls(
            cluster_id=str(given["cluster-id"]).strip(),
            region_id=str(given["region-id"]).strip(),
            network=str(given["alibaba-cloud-network"]),
            vm_memory_overhead_percent=number_of(context, "vm-memory-overhead-percent"),
            interruption=given["interruption"] is True,
            interruption_poll_interval=duration_of(context, "interruption-poll-interval"),
            launch_rate_per_second=number_of(context, "launch-qps"),
            launch_burst=int(number_of(context, "launch-burst") or number_of(context, "apg-qps")),
            launch_api=str(given["launch-api"]),
            cluster_type=str(given["cluster-type"]),
            endpoint_ecs=str(given["alibaba-endpoint-ecs"]),
            endpoint_vpc=str(given["alibaba-endpoint-vpc"]),
            endpoint_cs=str(given["alibaba-endpoint-cs"]),
            endpoint_protocol=str(given["alibaba-endpoint-protocol"]),
            http_pool=int(number_of(context, "alibaba-http-pool")),
            price_file=str(given["price-file"]),
            metadata_endpoint=str(given["metadata-endpoint"]).rstrip("/"),
        )
        complaints = [*settings._findings()]
        if complaints:
            raise SettingsError("; ".join(complaints))
        return settings

    def _findings(self) -> Iterator[str]:
        if not self.cluster_id:
            yield (
                "missing field, cluster-id: without --cluster-id the instances of several "
                "clusters cannot be distinguished"
            )
        yield from self._unknown_choices()
        yield from self._numbers_out_of_bounds()
        yield from self._unusable_addresses()

    def _unknown_choices(self) -> Iterator[str]:
        for flag, value, choices in (
            ("alibaba-cloud-network", self.network, NETWORKS),
            ("launch-api", self.launch_api, LAUNCH_APIS),
            ("cluster-type", self.cluster_type, CLUSTER_TYPES),
            ("alibaba-endpoint-protocol", self.endpoint_protocol, PROTOCOLS),
        ):
            if value not in choices:
                choice_text = " or ".join(choice for choice in choices if choice)
                yield f'--{flag}: must be {choice_text}, not "{value}"'

    def _numbers_out_of_bounds(self) -> Iterator[str]:
        share = self.vm_memory_overhead_percent
        if not 0 <= share < 1:
            yield f"--vm-memory-overhead-percent: must be zero or more and below 1, not {share}"
        if self.interruption_poll_interval < SHORTEST_POLL:
            interval = format_duration(self.interruption_poll_interval)
            yield f"--interruption-poll-interval: must be one second or more, not {interval}"
        if not 0 < self.launch_rate_per_second < math.inf:
            yield f"--launch-qps: must be above zero, not {self.launch_rate_per_second}"
        if self.launch_burst < 1:
            yield f"--launch-burst: must be one or more, not {self.launch_burst}"
        if self.http_pool < 1:
            yield f"--alibaba-http-pool: must be one or more, not {self.http_pool}"

    def _unusable_addresses(self) -> Iterator[str]:
        for flag, endpoint in (
            ("alibaba-endpoint-ecs", self.endpoint_ecs),
            ("alibaba-endpoint-vpc", self.endpoint_vpc),
            ("alibaba-endpoint-cs", self.endpoint_cs),
        ):
            if endpoint and not _is_host(endpoint):
                yield f'--{flag}: must be a host, maybe with a port, not "{endpoint}"'
        if not _is_absolute(self.metadata_endpoint):
            yield f'--metadata-endpoint: must be a URL with a host, not "{self.metadata_endpoint}"'


def _is_absolute(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in PROTOCOLS and bool(parts.hostname)
    except ValueError:  # such as brackets without an address
        return False


def _is_host(text: str) -> bool:
    """Tell whether a text is `host` or `host:port`, without protocol and path."""
    try:
        parts = urlsplit(f"//{text}")
        return bool(parts.hostname) and parts.netloc == text and parts.port != 0
    except ValueError:  # such as a port that is no number
        return False
