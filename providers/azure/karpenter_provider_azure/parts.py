"""Builds the parts of a started provider by concern, without any call.

Each class holds the parts of one concern and takes the concerns that it builds on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlencode

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.late_failures import LateFailures
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.arm import graph
from karpenter_provider_azure.bootstrap.node_boot import ClusterBootReader, ScriptlessBoot
from karpenter_provider_azure.bootstrap.node_labels import cluster_label_value
from karpenter_provider_azure.catalogue.instance_types import (
    CatalogueSettings,
    InstanceTypeCatalogue,
)
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.catalogue.region_reads import list_skus, list_usages
from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader
from karpenter_provider_azure.doctor import ProviderDoctor
from karpenter_provider_azure.images.discovery import (
    CommunityGalleries,
    ImageReader,
    SharedGalleries,
)
from karpenter_provider_azure.images.maintenance import MaintenanceWindowReader
from karpenter_provider_azure.instances.cluster_vms import cluster_vms
from karpenter_provider_azure.instances.drift import DriftDetector
from karpenter_provider_azure.instances.orphans import OrphanCollector
from karpenter_provider_azure.instances.vm_reader import VmReader
from karpenter_provider_azure.instances.vm_updater import VmExtensions, VmUpdater
from karpenter_provider_azure.interruption.sources import InterruptionSources
from karpenter_provider_azure.launch.claim_launches import LaunchCatalogue
from karpenter_provider_azure.launch.custom_scripts import CustomScripts
from karpenter_provider_azure.launch.existing_vms import ExistingVms
from karpenter_provider_azure.launch.extensions import (
    BILLING_EXTENSION,
    SCRIPT_EXTENSION,
    ExtensionInstaller,
)
from karpenter_provider_azure.launch.failed_launches import FailedLaunches
from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
from karpenter_provider_azure.launch.image_tokens import ImageTokens
from karpenter_provider_azure.launch.node_network import NodeNetwork
from karpenter_provider_azure.launch.open_operations import OpenOperations
from karpenter_provider_azure.launch.vm_calls import VmCalls
from karpenter_provider_azure.launch.vm_launcher import VmLauncher
from karpenter_provider_azure.network.backend_pools import BackendPoolReader
from karpenter_provider_azure.network.cluster_addresses import VnetGuidReader
from karpenter_provider_azure.network.security_groups import SecurityGroupReader
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
)
from karpenter_provider_azure.price_reader import PriceReader, RetailPriceList
from karpenter_provider_azure.prices import DISK_VERSION as PRICES_DISK_VERSION
from karpenter_provider_azure.prices import RegionPrices
from karpenter_provider_azure.setting_specs import PRICING_URL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.json_service import JsonService
    from karpenter_provider_azure.launch.boot_data import BootDataBuilder
    from karpenter_provider_azure.metrics import AzureMetrics
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["ProviderParts", "ProviderServices"]

_MEMORY_DISK_VERSION: Final = "1"
_TOKEN_ACTION: Final = "imageTokens:get"  # noqa: S105 - a name for metrics
_NAMESPACE: Final = "SYSTEM_NAMESPACE"
"""The variable with the controller's namespace, where AKS keeps the maintenance window."""


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
            CatalogueSettings(
                location=location,
                cluster=cluster_label_value(settings.node_resource_group),
                overhead_percent=settings.vm_memory_overhead_percent,
                network_plugin=settings.network_plugin,
                network_plugin_mode=settings.network_plugin_mode,
            ),
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

    def __init__(self, services: ProviderServices, network: NetworkParts) -> None:
        context, settings, arm = services.context, services.settings, services.arm
        clock = context.clock
        galleries = (
            SharedGalleries(arm, gallery_subscription_id=settings.sig_subscription_id)
            if settings.use_sig
            else CommunityGalleries(arm)
        )
        self.refused_launches: Final = RefusedLaunches(clock, launch_refusal)
        self.resolver: Final = node_class_resolver(
            NodeClassPartResolvers(
                facts=context.cluster,
                images=ImageResolver(
                    ImageReader(clock, galleries),
                    MaintenanceWindowReader(
                        clock, context.read_objects, namespace=os.environ.get(_NAMESPACE, "")
                    ),
                    uses_shared_galleries=settings.use_sig,
                ),
                subnets=SubnetResolver(
                    network.subnets,
                    network.guid,
                    cluster=ClusterNetwork(
                        vnet_subnet_id=settings.vnet_subnet_id,
                        node_resource_group=settings.node_resource_group,
                    ),
                ),
                local_dns=LocalDnsResolver(
                    context.read_objects,
                    network_plugin=settings.network_plugin,
                    network_policy=settings.network_policy,
                ),
            ),
            node_class_validator(
                clock,
                DiskEncryptionSetCheck(arm, settings.node_osdisk_diskencryptionset_id),
                refused_launches=self.refused_launches,
            ),
        )
        self.finalizer: Final = NodeClassFinalizer(forget=self.resolver.forget)


@final
class LaunchParts:
    """Launches of virtual machines, their extensions, and launches that fail late."""

    def __init__(
        self, services: ProviderServices, network: NetworkParts, catalogue: CatalogueParts
    ) -> None:
        context, settings = services.context, services.settings
        clock = context.clock
        self.calls: Final = VmCalls(
            services.arm, settings, context.fence, **_image_headers(services)
        )
        self.reader: Final = VmReader(services.arm, settings)
        self.recent: Final = RecentLaunches(clock)
        boot = self._boot(services, network)
        scripts = CustomScripts(
            clock,
            boot=boot,
            catalogue=catalogue.for_launches,
            node_class_of=partial(_node_class_of, services.node_classes),
        )
        operations = OpenOperations(clock)
        failures = FailureRecorder(
            clock,
            location=settings.location,
            sizes=catalogue.for_launches.sizes,
            unavailable_offerings=catalogue.unavailable_offerings,
            observer=services.metrics.launches,
        )
        self.launcher: Final = VmLauncher(
            settings,
            clock,
            calls=self.calls,
            catalogue=catalogue.for_launches,
            network=NodeNetwork(
                settings, pools=network.pools, security_groups=network.security_groups
            ),
            boot=boot,
            failures=failures,
            existing=ExistingVms(
                self.calls,
                cluster=settings.cluster_name,
                failures=failures,
                operations=operations,
            ),
            operations=operations,
            scripts=scripts,
            recent=self.recent,
        )
        self.extensions: Final = ExtensionInstaller(
            settings,
            clock,
            calls=self.calls,
            list_vms=self._list_vms,
            read_claims=context.read_claims,
            scripts=scripts if runs_script(settings) else None,
        )
        self.late_failures: Final = LateFailures(
            FailedLaunches(
                clock,
                calls=self.calls,
                list_vms=self._list_vms,
                read_claims=context.read_claims,
                failures=failures,
                operations=operations,
            ).read,
            context.read_claims,
        )

    def _list_vms(self) -> tuple[DescribedVm, ...]:
        return self.reader.of_cluster().instances

    def _boot(self, services: ProviderServices, network: NetworkParts) -> BootDataBuilder:
        return ScriptlessBoot(
            ClusterBootReader(
                services.settings,
                services.context.cluster,
                guid=network.guid,
                security_groups=network.security_groups,
            )
        )
