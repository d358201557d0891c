"""Reads the provider's settings.

Flags, variables and defaults are those of Karpenter's Alibaba Cloud provider, and some of this one.
The core's `--cluster-name` is not used: ACK identifies clusters by id, and so do the tags of
instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.contract import SettingSpec
from karpenter_core.provider.kit.setting_values import SettingReader

if TYPE_CHECKING:
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
"""Address of the metadata service, the same for every instance."""

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
        help="Share of an instance type's memory that is assumed to be missing on its nodes, until one "
        "of them has registered, such as 0.075 for 7.5 %.",
        falls_back=True,
    ),
    SettingSpec(
        flag="--interruption",
        env="INTERRUPTION",
        default=True,
        help="Poll ECS for instances that will be reclaimed or get maintenance.",
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
        help="Launches that may exceed --launch-qps in a burst; 0 = the value of --apg-qps.",
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
        read = SettingReader(context)
        cluster_id = read.text("cluster-id")
        if not cluster_id:
            read.complain(
                "--cluster-id: must be given; without it the instances of several clusters cannot be "
                "distinguished"
            )
        launch_burst = int(read.number("launch-burst") or read.number("apg-qps"))
        if launch_burst < 1:
            read.complain(f"--launch-burst: must be at least 1, not {launch_burst}")
        settings = cls(
            cluster_id=cluster_id,
            region_id=read.text("region-id"),
            network=read.text("alibaba-cloud-network", choices=NETWORKS),
            vm_memory_overhead_percent=read.number(
                "vm-memory-overhead-percent", at_least=0, below=1
            ),
            interruption=read.switch("interruption"),
            interruption_poll_interval=read.duration(
                "interruption-poll-interval", at_least=SHORTEST_POLL
            ),
            launch_rate_per_second=read.number("launch-qps", above=0),
            launch_burst=launch_burst,
            launch_api=read.text("launch-api", choices=LAUNCH_APIS),
            cluster_type=read.text("cluster-type", choices=CLUSTER_TYPES),
            endpoint_ecs=read.host("alibaba-endpoint-ecs"),
            endpoint_vpc=read.host("alibaba-endpoint-vpc"),
            endpoint_cs=read.host("alibaba-endpoint-cs"),
            endpoint_protocol=read.text("alibaba-endpoint-protocol", choices=PROTOCOLS),
            http_pool=read.count("alibaba-http-pool", at_least=1),
            price_file=read.text("price-file"),
            metadata_endpoint=read.url(
                "metadata-endpoint", schemes=PROTOCOLS, required=True
            ).rstrip("/"),
        )
        read.finish()
        return settings
