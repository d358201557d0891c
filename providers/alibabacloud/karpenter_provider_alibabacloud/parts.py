"""Builds the parts of a started provider, without any call."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.learned_memory import LearnedMemory
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
from karpenter_provider_alibabacloud.described_instances import InstanceReader, instance_id_in
from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
from karpenter_provider_alibabacloud.discovery.images import ImageReader
from karpenter_provider_alibabacloud.discovery.reservations import ReservationReader
from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroupReader
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader
from karpenter_provider_alibabacloud.doctor import ProviderDoctor
from karpenter_provider_alibabacloud.drift import DriftDetector
from karpenter_provider_alibabacloud.instance_tagger import InstanceTagger
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.instances import ClusterInstances
from karpenter_provider_alibabacloud.interruption.sources import InterruptionSources
from karpenter_provider_alibabacloud.late_taints import LateTaintRemover
from karpenter_provider_alibabacloud.launch.calls import Availability, LaunchCallBuilder
from karpenter_provider_alibabacloud.launch.ecs_cloud import ECS_TRAITS, EcsCloud
from karpenter_provider_alibabacloud.node_class.dry_runs import LaunchDryRuns
from karpenter_provider_alibabacloud.node_class.finalization import NodeClassFinalizer
from karpenter_provider_alibabacloud.node_class.refused_launches import RefusedLaunches
from karpenter_provider_alibabacloud.node_class.resolution import (
    NodeClassDiscovery,
    NodeClassResolver,
)
from karpenter_provider_alibabacloud.node_class.trial_requests import TrialRequestBuilder
from karpenter_provider_alibabacloud.node_class.validation import NodeClassValidator
from karpenter_provider_alibabacloud.price_reader import PriceReader
from karpenter_provider_alibabacloud.prices import DISK_VERSION as PRICES_DISK_VERSION
from karpenter_provider_alibabacloud.prices import RegionPrices

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.node_class_registry import NodeClassRegistry
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.metrics import AlibabaCloudMetrics
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = ["PRICES_TASK", "ProviderParts"]

PRICES_TASK: Final = "prices"
"""The task that reads prices, which is woken when some are wanted that nobody has read."""
LONGEST_SHORTAGE_LIFE: Final = timedelta(minutes=30)
"""What is found sold out again and again is left alone for so long at most."""
_MEMORY_DISK_VERSION: Final = "1"


@final
class ProviderParts:
    """The parts of one started provider."""

    def __init__(
        self,
        context: ProviderContext,
        settings: AlibabaCloudSettings,
        clients: CloudClients,
        *,
        known: NodeClassRegistry[ECSNodeClass],
        metrics: AlibabaCloudMetrics,
    ) -> None:
        """Put them together; files are read.

        Raises:
            SettingsError: the price file cannot be used.
        """
        clock, cluster_id, region = context.clock, settings.cluster_id, clients.region
        now = clock.now()

        def disk(name: str, version: str) -> DiskCache:
            return DiskCache(context.cache_folder, f"alibabacloud-{name}-{region}", version=version)

        self.unavailable_offerings: Final = UnavailableOfferings(
            longest_life=LONGEST_SHORTAGE_LIFE, monotonic=clock.monotonic
        )
        self.cluster: Final = ClusterReader(
            clients, clock, cluster_id=cluster_id, cluster_type=settings.cluster_type
        )

        # Discovery
        self.vswitches: Final = VSwitchReader(clients, clock, observe=metrics.observe_vswitches)
        self.reservations: Final = ReservationReader(clients, clock)
        self.uses_reservations: Final = context.feature_gates.reserved_capacity

        # Catalogue
        self.type_catalogue: Final = RegionTypeReader(clients, clock, context.cache_folder)
        self.stock: Final = StockReader(clients, clock, context.cache_folder)
        self.system_disks: Final = SystemDiskReader(clients, clock)
        prices_disk = disk("prices", PRICES_DISK_VERSION)
        self.prices: Final = RegionPrices(region)
        self.prices.restore(prices_disk, now=now)
        self.price_reader: Final = PriceReader(
            clients,
            self.prices,
            clock,
            types=self.type_catalogue.current,
            disk=prices_disk,
            price_file=settings.price_file,
            observe_estimated=metrics.observe_estimated,
        )
        self.types: Final = CurrentInstanceTypes(
            InstanceTypeCatalogue(
                region,
                overhead_percent=settings.vm_memory_overhead_percent,
                types=self.type_catalogue.current,
                stock=self.stock,
                prices=self.prices,
                unavailable_offerings=self.unavailable_offerings,
                learned=LearnedMemory(disk("memory", _MEMORY_DISK_VERSION), now=now),
                reserved_left=self.reservations.reservation_counts.remaining,
            ),
            clock,
            cluster=self.cluster.details,
            consider=self.price_reader.consider,
            wake_prices=lambda: context.wake(PRICES_TASK),
        )

        # NodeClasses
        scripts = (
            None if self.cluster.is_custom else AttachScripts(clients, clock, cluster_id=cluster_id)
        )
        self.registrations: Final = PendingRegistrations(scripts, clock)
        self.bootstrapper: Final = UserDataBuilder(scripts, cluster_id=cluster_id)
        self.refused_launches: Final = RefusedLaunches(clock)
        self.validator: Final = NodeClassValidator(
            clock=clock,
            bootstrapper=self.bootstrapper,
            dry_runs=LaunchDryRuns(clients),
            launch=TrialRequestBuilder(
                region,
                cluster_id=cluster_id,
                types=self.types,
                system_disks=self.system_disks,
                known=known,
            ),
            refused_launches=self.refused_launches,
            is_custom=self.cluster.is_custom,
        )
        self.resolver: Final = NodeClassResolver(
            NodeClassDiscovery(
                vswitches=self.vswitches,
                security_groups=SecurityGroupReader(clients, clock),
                images=ImageReader(clients, clock, self.cluster),
                reservations=self.reservations if self.uses_reservations else None,
            ),
            self.validator,
            clock,
        )
        self.finalizer: Final = NodeClassFinalizer(resolver=self.resolver, validator=self.validator)

        # Instances
        reader = InstanceReader(
            clients, cluster_id=cluster_id, uses_reservations=self.uses_reservations
        )
        recent = RecentLaunches(clock)
        owners = InstanceOwners(
            partial(instance_id_in, region), recent=recent, read_claims=context.read_claims
        )
        availability = Availability(
            vswitches=self.vswitches,
            reservation_counts=self.reservations.reservation_counts,
            unavailable_offerings=self.unavailable_offerings,
            disks=self.system_disks,
            prices=self.prices,
        )
        calls = LaunchCallBuilder(
            clock,
            region=region,
            cluster_id=cluster_id,
            launch_api=settings.launch_api,
            availability=availability,
            details=self.cluster.details,
        )
        self.launcher: Final = ClaimLauncher(
            clock,
            EcsCloud(
                clients,
                clock,
                calls=calls,
                reader=reader,
                availability=availability,
                recent=recent,
                types=self.types,
                bootstrapper=self.bootstrapper,
                nodes=context.read_nodes,
                bucket=TokenBucket(
                    rate_per_second=settings.launch_rate_per_second,
                    burst=settings.launch_burst,
                    monotonic=clock.monotonic,
                ),
                observe_batch=metrics.observe_batch,
                observe_targets=metrics.observe_targets,
            ),
            claims=TaggedClaims(CLAIM_TAGS, owners),
            recent=recent,
            traits=ECS_TRAITS,
        )
        self.interruption_sources: Final = InterruptionSources(
            clients, clock, settings=settings, reader=reader, offerings=self.unavailable_offerings
        )
        self.instances: Final = ClusterInstances(
            clients,
            clock,
            reader=reader,
            recent=recent,
            owners=owners,
            reservation_counts=self.reservations.reservation_counts,
            on_listed=self.interruption_sources.note_listed,
            observe_batch=metrics.observe_batch,
        )
        self.tagger: Final = InstanceTagger(
            clients,
            clock,
            cluster_id=cluster_id,
            reader=reader,
            last_listed=self.instances.last_listed,
            node_class=known.node_class,
            read_claims=context.read_claims,
        )
        self.drift: Final = DriftDetector(
            clock,
            reader=reader,
            instances=self.instances,
            scheduled=self.interruption_sources.events.scheduled,
        )
        self.late_taints: Final = LateTaintRemover(
            clock, nodes=context.nodes, read_nodes=context.read_nodes
        )
        self.doctor: Final = ProviderDoctor(
            clients,
            settings=settings,
            cluster=self.cluster,
            uses_reservations=self.uses_reservations,
        )
