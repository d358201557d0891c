"""Builds the parts of a started provider by concern, without any call.

Each class holds the parts of one concern and takes the concerns that it builds on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.instances.foreign_launches import ForeignLaunches
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.node_class.refused_launches import RefusedLaunches
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.token_bucket import TokenBucket
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_alibabacloud.bootstrap.registrations import PendingRegistrations
from karpenter_provider_alibabacloud.bootstrap.scripts import AttachScripts
from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
from karpenter_provider_alibabacloud.catalogue.current_types import CurrentInstanceTypes
from karpenter_provider_alibabacloud.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_alibabacloud.catalogue.region_types import RegionTypeReader
from karpenter_provider_alibabacloud.catalogue.stock import StockReader
from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDiskReader
from karpenter_provider_alibabacloud.described_instances import (
    FOREIGN_MARKS,
    InstanceReader,
    instance_id_in,
)
from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
from karpenter_provider_alibabacloud.discovery.images import ImageReader
from karpenter_provider_alibabacloud.discovery.reservations import ReservationReader
from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroupReader
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader
from karpenter_provider_alibabacloud.doctor import ProviderDoctor
from karpenter_provider_alibabacloud.drift import DriftDetector
from karpenter_provider_alibabacloud.instance_tagger import InstanceTagger
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.instances import cluster_instances
from karpenter_provider_alibabacloud.interruption.sources import InterruptionSources
from karpenter_provider_alibabacloud.late_taints import LateTaintRemover
from karpenter_provider_alibabacloud.launch.calls import Availability, LaunchCallBuilder
from karpenter_provider_alibabacloud.launch.ecs_cloud import ECS_TRAITS, EcsCloud
from karpenter_provider_alibabacloud.node_class.dry_runs import LaunchDryRuns
from karpenter_provider_alibabacloud.node_class.refused_launches import launch_refusal
from karpenter_provider_alibabacloud.node_class.resolution import (
    NodeClassDiscovery,
    node_class_resolver,
)
from karpenter_provider_alibabacloud.node_class.trial_requests import TrialRequestBuilder
from karpenter_provider_alibabacloud.node_class.validation import node_class_validator
from karpenter_provider_alibabacloud.price_reader import PriceReader
from karpenter_provider_alibabacloud.prices import DISK_VERSION as PRICES_DISK_VERSION
from karpenter_provider_alibabacloud.prices import RegionPrices

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.metrics import AlibabaCloudMetrics
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = ["PRICES_TASK", "ProviderParts", "ProviderServices"]

PRICES_TASK: Final = "prices"
"""The task that reads prices, which is woken when some are wanted that have not been read."""
LONGEST_SHORTAGE_LIFE: Final = timedelta(minutes=30)
"""Longest pause after repeated shortages of an offering."""
_MEMORY_DISK_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderServices:
    """The services of the process that every part may use."""

    context: ProviderContext
    settings: AlibabaCloudSettings
    clients: CloudClients
    metrics: AlibabaCloudMetrics
    node_classes: NodeClassRegistry[ECSNodeClass]

    @property
    def uses_reservations(self) -> bool:
        """Whether reserved capacity is used."""
        return self.context.feature_gates.reserved_capacity

    def disk(self, name: str, version: str) -> DiskCache:
        """Return the cache on disk of one kind of data of the region."""
        name = f"alibabacloud-{name}-{self.clients.region}"
        return DiskCache(self.context.cache_folder, name, version=version)


@final
class DiscoveryParts:
    """Readers of the cluster, and of what NodeClasses select: vSwitches, images and so on."""

    def __init__(self, services: ProviderServices) -> None:
        clients, clock, settings = services.clients, services.context.clock, services.settings
        self.cluster: Final = ClusterReader(
            clients, clock, cluster_id=settings.cluster_id, cluster_type=settings.cluster_type
        )
        self.vswitches: Final = VSwitchReader(
            clients, clock, observe=services.metrics.observe_vswitches
        )
        self.security_groups: Final = SecurityGroupReader(clients, clock)
        self.images: Final = ImageReader(clients, clock, self.cluster)
        self.reservations: Final = ReservationReader(clients, clock)


@final
class CatalogueParts:
    """The region's instance types, stock, disks and prices, and the offerings that are sold out."""

    def __init__(self, services: ProviderServices, discovery: DiscoveryParts) -> None:
        context, settings, clients = services.context, services.settings, services.clients
        clock, region = context.clock, clients.region
        now = clock.now()
        self.unavailable_offerings: Final = UnavailableOfferings(
            longest_life=LONGEST_SHORTAGE_LIFE, monotonic=clock.monotonic
        )
        self.region: Final = RegionTypeReader(clients, clock, context.cache_folder)
        self.stock: Final = StockReader(clients, clock, context.cache_folder)
        self.system_disks: Final = SystemDiskReader(clients, clock)
        prices_disk = services.disk("prices", PRICES_DISK_VERSION)
        self.prices: Final = RegionPrices(region)
        self.prices.restore(prices_disk, now=now)
        self.price_reader: Final = PriceReader(
            clients,
            self.prices,
            clock,
            types=self.region.current,
            disk=prices_disk,
            price_file=settings.price_file,
            observe_estimated=services.metrics.observe_estimated,
        )
        catalogue = InstanceTypeCatalogue(
            region,
            overhead_percent=settings.vm_memory_overhead_percent,
            types=self.region.current,
            stock=self.stock,
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
            learned=LearnedMemory(services.disk("memory", _MEMORY_DISK_VERSION), now=now),
            reserved_left=(
                discovery.reservations.reservation_counts.remaining
                if services.uses_reservations
                else None
            ),
        )
        self.types: Final = CurrentInstanceTypes(
            catalogue,
            clock,
            cluster=discovery.cluster.details,
            consider=self.price_reader.consider,
            wake_prices=lambda: context.wake(PRICES_TASK),
        )


@final
class NodeClassParts:
    """Resolution, validation and finalization of NodeClasses, and the user data of their nodes."""

    def __init__(
        self, services: ProviderServices, discovery: DiscoveryParts, catalogue: CatalogueParts
    ) -> None:
        clients, clock = services.clients, services.context.clock
        cluster_id, is_custom = services.settings.cluster_id, discovery.cluster.is_custom
        scripts = None if is_custom else AttachScripts(clients, clock, cluster_id=cluster_id)
        self.registrations: Final = PendingRegistrations(scripts, clock)
        self.bootstrapper: Final = UserDataBuilder(scripts, cluster_id=cluster_id)
        self.refused_launches: Final = RefusedLaunches(clock, launch_refusal)
        validator = node_class_validator(
            clock,
            bootstrapper=self.bootstrapper,
            dry_runs=None if services.context.observing else LaunchDryRuns(clients),
            launch=TrialRequestBuilder(
                clients.region,
                cluster_id=cluster_id,
                types=catalogue.types,
                system_disks=catalogue.system_disks,
                known=services.node_classes,
            ),
            refused_launches=self.refused_launches,
            is_custom=is_custom,
        )
        self.resolver: Final = node_class_resolver(
            NodeClassDiscovery(
                vswitches=discovery.vswitches,
                security_groups=discovery.security_groups,
                images=discovery.images,
                reservations=discovery.reservations if services.uses_reservations else None,
            ),
            validator,
            clock,
        )
        self.finalizer: Final = NodeClassFinalizer(forget=self.resolver.forget)


@final
class LaunchParts:
    """Launches of instances, and the memory of recent ones."""

    def __init__(
        self,
        services: ProviderServices,
        discovery: DiscoveryParts,
        catalogue: CatalogueParts,
        bootstrapper: UserDataBuilder,
    ) -> None:
        context, settings, clients = services.context, services.settings, services.clients
        clock, region = context.clock, clients.region
        self.reader: Final = InstanceReader(
            clients, cluster_id=settings.cluster_id, uses_reservations=services.uses_reservations
        )
        self.recent: Final = RecentLaunches(clock)
        self.owners: Final = InstanceOwners(
            partial(instance_id_in, region), recent=self.recent, read_claims=context.read_claims
        )
        cloud = self._cloud(services, discovery, catalogue, bootstrapper)
        self.launcher: Final = ClaimLauncher(
            clock,
            cloud,
            claims=TaggedClaims(CLAIM_TAGS, self.owners),
            recent=self.recent,
            traits=ECS_TRAITS,
        )
        self.foreign: Final = ForeignLaunches(
            clock,
            launch=self.launcher.launch,
            outcome_of=cloud.outcome_of_existing,
            reader=self.reader,
            owners=self.owners,
            marks=FOREIGN_MARKS,
            log_name=ECS_TRAITS.log_name,
        )

    def _cloud(
        self,
        services: ProviderServices,
        discovery: DiscoveryParts,
        catalogue: CatalogueParts,
        bootstrapper: UserDataBuilder,
    ) -> EcsCloud:
        settings, clients, clock = services.settings, services.clients, services.context.clock
        availability = Availability(
            vswitches=discovery.vswitches,
            reservation_counts=discovery.reservations.reservation_counts,
            unavailable_offerings=catalogue.unavailable_offerings,
            disks=catalogue.system_disks,
            prices=catalogue.prices,
        )
        return EcsCloud(
            clients,
            clock,
            calls=LaunchCallBuilder(
                clock,
                region=clients.region,
                cluster_id=settings.cluster_id,
                launch_api=settings.launch_api,
                availability=availability,
                details=discovery.cluster.details,
            ),
            reader=self.reader,
            availability=availability,
            recent=self.recent,
            types=catalogue.types,
            bootstrapper=bootstrapper,
            nodes=services.context.read_nodes,
            bucket=TokenBucket(
                rate_per_second=settings.launch_rate_per_second,
                burst=settings.launch_burst,
                monotonic=clock.monotonic,
            ),
            observe_batch=services.metrics.observe_batch,
            observe_targets=services.metrics.observe_targets,
        )


@final
class InstanceParts:
    """Listing, termination, tagging and drift of launched instances, and their late taints."""

    def __init__(
        self,
        services: ProviderServices,
        discovery: DiscoveryParts,
        launch: LaunchParts,
        interruption_sources: InterruptionSources,
    ) -> None:
        context, clients, clock = services.context, services.clients, services.context.clock
        self.instances: Final = cluster_instances(
            clients,
            clock,
            reader=launch.reader,
            recent=launch.recent,
            owners=launch.owners,
            reservation_counts=discovery.reservations.reservation_counts,
            on_listed=interruption_sources.note_listed,
            observe_batch=services.metrics.observe_batch,
        )
        self.tagger: Final = InstanceTagger(
            clients,
            clock,
            cluster_id=services.settings.cluster_id,
            reader=launch.reader,
            last_listed=self.instances.last_listed,
            node_class=services.node_classes.node_class,
            read_claims=context.read_claims,
        )
        self.drift: Final = DriftDetector(
            instances=self.instances,
            scheduled=interruption_sources.events.scheduled,
        )
        self.late_taints: Final = LateTaintRemover(
            clock, nodes=context.nodes, read_nodes=context.read_nodes
        )


@final
class ProviderParts:
    """The parts of one started provider."""

    def __init__(self, services: ProviderServices) -> None:
        """Put them together; files are read.

        Raises:
            SettingsError: the price file cannot be used.
        """
        self.discovery: Final = DiscoveryParts(services)
        self.catalogue: Final = CatalogueParts(services, self.discovery)
        self.node_class: Final = NodeClassParts(services, self.discovery, self.catalogue)
        self.launch: Final = LaunchParts(
            services, self.discovery, self.catalogue, self.node_class.bootstrapper
        )
        self.interruption_sources: Final = InterruptionSources(
            services.clients,
            services.context.clock,
            settings=services.settings,
            reader=self.launch.reader,
            offerings=self.catalogue.unavailable_offerings,
        )
        self.operations: Final = InstanceParts(
            services, self.discovery, self.launch, self.interruption_sources
        )
        self.doctor: Final = ProviderDoctor(
            services.clients,
            settings=services.settings,
            cluster=self.discovery.cluster,
            uses_reservations=services.uses_reservations,
        )
