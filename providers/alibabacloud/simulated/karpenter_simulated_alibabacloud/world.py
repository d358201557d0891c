"""Builds a world that is ready for a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_simulated_alibabacloud.clusters import AckNodePool, Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.clusters import Clusters
    from karpenter_simulated_alibabacloud.networks import Networks

__all__ = ["DISCOVERY_TAG", "World", "WorldPlan", "build_world"]

DISCOVERY_TAG: Final = "karpenter.sh/discovery"
"""The tag by which vSwitches and security groups are found; its value is the cluster's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """The plan of the ready world."""

    cluster: str = "c1f0e2d3c4b5a69788990011223344556"
    """The id of the cluster."""
    kubernetes: str = "1.32.1-aliyun.1"
    network: str = "terway-eniip"
    """`terway-eniip`, `terway-eni` or `Flannel`."""
    node_cidr_mask: str = "25"
    region_zones: tuple[str, ...] = ("b", "g", "h")
    """Letters of the zones of the region."""
    zones: tuple[str, ...] = ("b", "g", "h")
    """Letters of those that have a vSwitch."""
    zones_without_spot: tuple[str, ...] = ("h",)
    """Letters of those where no spot instance can be had."""
    vswitch_prefix: int = 20
    """Length of the vSwitches' CIDR prefix: 20 leaves 4,092 addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The resources of the ready world."""

    cluster: str
    """The id of the cluster."""
    region: str
    zones: tuple[str, ...]
    """Ids of all zones of the region."""
    vpc_id: str
    vswitches: Mapping[str, str]
    """Ids by zone."""
    security_group_id: str
    default_node_pool: str

    @property
    def discovery(self) -> Mapping[str, str]:
        """The tags by which vSwitches and security groups are found."""
        return {DISCOVERY_TAG: self.cluster}


def build_world(
    plan: WorldPlan, account: Account, *, networks: Networks, clusters: Clusters
) -> World:
    """Make the VPC, a vSwitch in each zone, the security group and the cluster."""
    vpc = networks.add_vpc(cidr="10.0.0.0/8", name=plan.cluster)
    tags = {DISCOVERY_TAG: plan.cluster}
    size = 2 ** (32 - plan.vswitch_prefix)
    vswitches: dict[str, str] = {}
    for number, letter in enumerate(plan.zones, start=1):
        zone = f"{account.region}-{letter}"
        first = 10 * 2**24 + number * max(size, 2**12)
        address = ".".join(str(first >> shift & 255) for shift in (24, 16, 8, 0))
        made = networks.add_vswitch(
            vpc.id,
            zone=zone,
            cidr=f"{address}/{plan.vswitch_prefix}",
            name=f"{plan.cluster}-{zone}",
            tags=tags,
        )
        vswitches[zone] = made.id
    group = networks.add_security_group(
        vpc.id, name=f"{plan.cluster}-node", kind="enterprise", tags=tags
    )
    pool = AckNodePool(
        id=f"np{account.ids.named('np', plan.cluster)[3:]}",
        name="default-nodepool",
        default=True,
        healthy_nodes=2,
    )
    clusters.add(
        Cluster(
            id=plan.cluster,
            name="test",
            version=plan.kubernetes,
            network=plan.network,
            node_cidr_mask=plan.node_cidr_mask,
            vpc_id=vpc.id,
            vswitch_ids=tuple(vswitches.values()),
            security_group_id=group.id,
            node_pools=[pool],
        )
    )
    return World(
        cluster=plan.cluster,
        region=account.region,
        zones=tuple(f"{account.region}-{letter}" for letter in plan.region_zones),
        vpc_id=vpc.id,
        vswitches=vswitches,
        security_group_id=group.id,
        default_node_pool=pool.id,
    )
