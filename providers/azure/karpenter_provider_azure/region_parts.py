"""Builds the provider's parts that read the region, without any call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_azure.catalogue.price_reader import PriceReader, RetailPriceList
from karpenter_provider_azure.catalogue.prices import DISK_VERSION as PRICES_DISK_VERSION
from karpenter_provider_azure.catalogue.prices import RegionPrices
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader, list_skus, list_usages
from karpenter_provider_azure.json_service import JsonService
from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
from karpenter_provider_azure.network.cluster_network import (
    SecurityGroupReader,
    VnetGuidReader,
    backend_pools,
)
from karpenter_provider_azure.network.subnets import SubnetReader
from karpenter_provider_azure.setting_specs import PRICING_URL

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.metrics import AzureMetrics
    from karpenter_provider_azure.settings import AzureSettings


__all__ = ["CatalogueParts", "NetworkParts", "ProviderServices"]

_MEMORY_DISK_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderServices:
    """The services of the process that every part may use."""

    context: ProviderContext
    settings: AzureSettings
    arm: ArmClient
    json: JsonService
    metrics: AzureMetrics
    node_classes: NodeClassRegistry[AKSNodeClass]

    def disk(self, name: str, version: str) -> DiskCache:
        """Return the cache on disk of one kind of data of the region."""
        name = f"azure-{name}-{self.settings.location}"
        return DiskCache(self.context.cache_folder, name, version=version)


@final
class NetworkParts:
    """Readers of the cluster's network: subnets, security groups, backend pools."""

    def __init__(self, services: ProviderServices) -> None:
        arm, clock, settings = services.arm, services.context.clock, services.settings
        group = settings.node_resource_group
        self.subnets: Final = SubnetReader(arm, clock)
        self.security_groups: Final = SecurityGroupReader(arm, clock, node_resource_group=group)
        self.pools: Final = backend_pools(arm, clock, node_resource_group=group)
        self.guid: Final = VnetGuidReader(arm, clock, settings)


@final
class CatalogueParts:
    """The region's VM sizes, quotas and prices, and the offerings that are sold out."""

    def __init__(self, services: ProviderServices) -> None:
        context, settings, arm = services.context, services.settings, services.arm
        clock, location = context.clock, settings.location
        now = clock.now()
        self.unavailable_offerings: Final = UnavailableOfferings(monotonic=clock.monotonic)
        self.region: Final = RegionSizeReader(
            location,
            clock,
            context.cache_folder,
            fetch=partial(list_skus, arm),
            cache_key=settings.azure_subscription_id,
        )
        self.quotas: Final = RegionQuotas(clock, fetch=partial(list_usages, arm))
        prices_disk = services.disk("prices", PRICES_DISK_VERSION)
        self.prices: Final = RegionPrices(location)
        self.prices.restore(prices_disk, now=now)
        self.price_reader: Final = PriceReader(
            location,
            self.prices,
            clock,
            items=(
                RetailPriceList(services.json, settings.pricing_url).items
                if has_price_list(settings)
                else None
            ),
            disk=prices_disk,
        )
        self.types: Final = InstanceTypeCatalogue(
            settings,
            clock,
            sizes=self.region.current,
            prices=self.prices,
            quotas=self.quotas,
            unavailable_offerings=self.unavailable_offerings,
            learned=LearnedMemory(services.disk("memory", _MEMORY_DISK_VERSION), now=now),
        )
        self.for_launches: Final = LaunchCatalogue(
            sizes=lambda: self.region.current()[0],
            is_open=self.types.is_open,
            instance_types=self.types.instance_types,
            quotas=self.quotas,
        )
        services.metrics.watch_region(
            quotas=self.quotas,
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
        )


def has_price_list(settings: AzureSettings) -> bool:
    """Whether there is a list of the region's prices: Azure publishes those of the public cloud."""
    return bool(settings.pricing_url) and (
        settings.cloud.is_public or settings.pricing_url != PRICING_URL
    )
