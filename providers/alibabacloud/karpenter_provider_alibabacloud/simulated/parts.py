"""The parts of the simulated cloud, and which of them answers which call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_provider_alibabacloud.simulated.catalogue import Catalogue
from karpenter_provider_alibabacloud.simulated.clusters import Clusters
from karpenter_provider_alibabacloud.simulated.images import Images
from karpenter_provider_alibabacloud.simulated.networks import Networks
from karpenter_provider_alibabacloud.simulated.prices import Prices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_provider_alibabacloud.simulated.account import Account
    from karpenter_provider_alibabacloud.simulated.application import Handlers
    from karpenter_provider_alibabacloud.simulated.behaviour import Behaviour
    from karpenter_provider_alibabacloud.simulated.types import TypeFacts
    from karpenter_provider_alibabacloud.simulated.world import WorldPlan

__all__ = ["Parts"]


@final
class Parts:
    """Everything that the cloud keeps."""

    def __init__(
        self,
        account: Account,
        behaviour: Behaviour,  # noqa: ARG002 - read by what launches
        *,
        plan: WorldPlan,
        types: Iterable[TypeFacts] | None,
    ) -> None:
        self.images: Final = Images(account)
        self.networks: Final = Networks(account)
        self.clusters: Final = Clusters(account, self.images)
        self.catalogue: Final = Catalogue(
            account,
            zones=[f"{account.region}-{each}" for each in plan.region_zones],
            zones_without_spot=[f"{account.region}-{each}" for each in plan.zones_without_spot],
            types=types,
        )
        self.prices: Final = Prices(account, self.catalogue)
        self.handlers: Final[Handlers] = {
            "cs:DescribeClusterAttachScripts": self.clusters.describe_attach_scripts,
            "cs:DescribeClusterDetail": self.clusters.describe_detail,
            "cs:DescribeClusterNodePools": self.clusters.describe_node_pools,
            "cs:DescribeKubernetesVersionMetadata": self.clusters.describe_versions,
            "ecs:DescribeAvailableResource": self.catalogue.describe_available_resource,
            "ecs:DescribeImages": self.images.describe_images,
            "ecs:DescribeInstanceTypeFamilies": self.catalogue.describe_families,
            "ecs:DescribeInstanceTypes": self.catalogue.describe_instance_types,
            "ecs:DescribePrice": self.prices.describe_price,
            "ecs:DescribeRegions": self.catalogue.describe_regions,
            "ecs:DescribeSecurityGroups": self.networks.describe_security_groups,
            "ecs:DescribeSpotAdvice": self.prices.describe_spot_advice,
            "ecs:DescribeSpotPriceHistory": self.prices.describe_spot_price_history,
            "ecs:DescribeZones": self.catalogue.describe_zones,
            "vpc:DescribeVSwitches": self.networks.describe_vswitches,
            "vpc:DescribeVpcs": self.networks.describe_vpcs,
        }

    def clear(self) -> None:
        """Forget everything."""
        self.catalogue.clear()
        self.clusters.clear()
        self.images.clear()
        self.networks.clear()
        self.prices.clear()
