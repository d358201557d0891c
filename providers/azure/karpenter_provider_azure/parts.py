"""Builds the parts of a started provider by concern, without any call.

Each class holds the parts of one concern and takes the concerns that it builds on.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_azure.catalogue.quotas import RegionQuotas, quota_remark
from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader, list_skus, list_usages
from karpenter_provider_azure.doctor import ProviderDoctor
from karpenter_provider_azure.images.discovery import (
    CommunityGalleries,
    ImageReader,
    SharedGalleries,
)
from karpenter_provider_azure.images.maintenance import (
    NAMESPACE_VARIABLE,
    MaintenanceWindowReader,
)
from karpenter_provider_azure.interruption.sources import InterruptionSources
from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
from karpenter_provider_azure.network.cluster_network import (
    BackendPoolReader,
    SecurityGroupReader,
    VnetGuidReader,
)
from karpenter_provider_azure.network.subnets import ClusterNetwork, SubnetReader
from karpenter_provider_azure.node_class.images import ImageResolver
from karpenter_provider_azure.node_class.local_dns import LocalDnsResolver
from karpenter_provider_azure.node_class.resolution import (
    NodeClassPartResolvers,
    node_class_resolver,
)
from karpenter_provider_azure.node_class.subnets import SubnetResolver
from karpenter_provider_azure.node_class.validation import (
    DiskEncryptionSetCheck,
    launch_refusal,
    node_class_validator,
    unused_fields_remark,
)
from karpenter_provider_azure.price_reader import PriceReader, RetailPriceList
from karpenter_provider_azure.prices import DISK_VERSION as PRICES_DISK_VERSION
from karpenter_provider_azure.prices import RegionPrices
from karpenter_provider_azure.setting_specs import PRICING_URL
from karpenter_provider_azure.vm_parts import InstanceParts, LaunchParts

if TYPE_CHECKING:
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.settings import AzureSettings
    from karpenter_provider_azure.vm_parts import ProviderServices

__all__ = ["CatalogueParts", "NetworkParts", "NodeClassParts", "ProviderParts"]

_MEMORY_DISK_VERSION: Final = "1"


@final
class NetworkParts:
    """Readers of the cluster's network: subnets, security groups, backend pools."""

    def __init__(self, services: ProviderServices) -> None:
        arm, clock, settings = services.arm, services.context.clock, services.settings
        group = settings.node_resource_group
        self.subnets: Final = SubnetReader(arm, clock)
        self.security_groups: Final = SecurityGroupReader(arm, clock, node_resource_group=group)
        self.pools: Final = BackendPoolReader(arm, clock, node_resource_group=group)
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


@final
class NodeClassParts:
    """Resolution, validation and finalization of NodeClasses."""

    def __init__(
        self, services: ProviderServices, network: NetworkParts, catalogue: CatalogueParts
    ) -> None:
        context, settings, arm = services.context, services.settings, services.arm
        clock, location = context.clock, settings.location
        galleries = (
            SharedGalleries(arm, gallery_subscription_id=settings.sig_subscription_id)
            if settings.use_sig
            else CommunityGalleries(arm)
        )

        def remark(node_class: AKSNodeClass) -> str:
            remarks = (
                unused_fields_remark(node_class, provision_mode=settings.provision_mode),
                quota_remark(catalogue.quotas.view().quotas, location=location),
            )
            return "; ".join(filter(None, remarks))

        self.refused_launches: Final = RefusedLaunches(clock, launch_refusal)
        self.resolver: Final = node_class_resolver(
            NodeClassPartResolvers(
                facts=context.cluster,
                images=ImageResolver(
                    ImageReader(clock, galleries),
                    MaintenanceWindowReader(
                        clock,
                        context.read_objects,
                        namespace=os.environ.get(NAMESPACE_VARIABLE, ""),
                    ),
                    uses_shared_galleries=settings.use_sig,
                ),
                subnets=SubnetResolver(
                    network.subnets,
                    guid=network.guid,
                    security_groups=network.security_groups,
                    cluster=ClusterNetwork(
                        vnet_subnet_id=settings.vnet_subnet_id,
                        node_resource_group=settings.node_resource_group,
                    ),
                ),
                local_dns=LocalDnsResolver(
                    context.read_objects,
                    network_plugin=settings.network_plugin,
                    network_policy=settings.network_policy,
                    preferred_since=settings.local_dns_preferred_since,
                ),
            ),
            node_class_validator(
                clock,
                DiskEncryptionSetCheck(arm, settings.node_osdisk_diskencryptionset_id),
                refused_launches=self.refused_launches,
                additional_tags=settings.additional_tags,
                remark=remark,
            ),
        )
        self.finalizer: Final = NodeClassFinalizer(forget=self.resolver.forget)


@final
class ProviderParts:
    """The parts of one started provider."""

    def __init__(self, services: ProviderServices) -> None:
        self.network: Final = NetworkParts(services)
        self.catalogue: Final = CatalogueParts(services)
        self.node_class: Final = NodeClassParts(services, self.network, self.catalogue)
        self.launch: Final = LaunchParts(services, self.network, self.catalogue)
        self.interruptions: Final = InterruptionSources(
            services.context.clock, self.catalogue.unavailable_offerings
        )
        self.operations: Final = InstanceParts(services, self.launch, self.interruptions)
        self.doctor: Final = ProviderDoctor(
            services.arm,
            settings=services.settings,
            security_groups=self.network.security_groups,
        )
