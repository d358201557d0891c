"""Builds the parts of a started provider that know its region, by concern.

Each class holds the parts of one concern and takes the concerns that it builds on. No part makes a call
when it is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.instances.foreign_launches import ForeignLaunches
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.node_class.finalization import NodeClassFinalizer
from karpenter_core.provider.kit.plugin import CloudHooks
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.capacity_type_sync import CapacityTypeSync
from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
from karpenter_provider_aws.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_aws.catalogue.region_types import RegionTypeReader
from karpenter_provider_aws.cluster import ClusterReader
from karpenter_provider_aws.described_instances import (
    FOREIGN_MARKS,
    InstanceReader,
    instance_id_in,
)
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.discovery.images import ImageReader
from karpenter_provider_aws.discovery.parameters import SsmParameterReader
from karpenter_provider_aws.discovery.placement_groups import PlacementGroupReader
from karpenter_provider_aws.discovery.profiles import InstanceProfiles
from karpenter_provider_aws.discovery.reservations import ReservationReader
from karpenter_provider_aws.discovery.security_groups import SecurityGroupReader
from karpenter_provider_aws.discovery.subnets import SubnetReader
from karpenter_provider_aws.doctor import ProviderDoctor
from karpenter_provider_aws.drift import DriftDetector
from karpenter_provider_aws.instance_tagger import InstanceTagger
from karpenter_provider_aws.instance_tags import CLAIM_TAGS
from karpenter_provider_aws.instances import ClusterInstances
from karpenter_provider_aws.interruption.directory import instance_id_of
from karpenter_provider_aws.interruption.sources import InterruptionSources
from karpenter_provider_aws.kubelet.expressions import evaluate
from karpenter_provider_aws.launch.fleet_calls import Availability, FleetCallBuilder
from karpenter_provider_aws.launch.fleet_cloud import EC2_TRAITS, FleetCloud
from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
from karpenter_provider_aws.node_class.dry_runs import LaunchDryRuns
from karpenter_provider_aws.node_class.resolution import NodeClassDiscovery, NodeClassResolver
from karpenter_provider_aws.node_class.static_checks import early_checks, late_checks
from karpenter_provider_aws.node_class.validation import LaunchTrial, node_class_validator
from karpenter_provider_aws.prices import RegionPrices
from karpenter_provider_aws.registration import PartitionGate
from karpenter_provider_aws.settings import NODE_CLASS_CEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo
    from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
    from karpenter_provider_aws.metrics import AwsMetrics
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.settings import AwsSettings
    from karpenter_provider_aws.zonal_shift import ZonalShiftReader

__all__ = ["ProviderParts", "ProviderServices"]

_DISK_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderServices:
    """The services of the process that every part may use."""

    context: ProviderContext
    settings: AwsSettings
    clients: CloudClients
    metrics: AwsMetrics
    node_classes: NodeClassRegistry[EC2NodeClass]
    sizes: UserDataSizes
    shifts: ZonalShiftReader

    def disk(self, name: str) -> DiskCache:
        """Return the cache on disk of one kind of data of the region."""
        name = f"aws-{name}-{self.clients.region}"
        return DiskCache(self.context.cache_folder, name, version=_DISK_VERSION)


@final
class DiscoveryParts:
    """Readers of the cluster, and of what NodeClasses select: subnets, images and so on."""

    def __init__(self, services: ProviderServices) -> None:
        context, settings, clients = services.context, services.settings, services.clients
        clock, cluster = context.clock, settings.cluster_name
        self.network: Final = ServiceNetwork(
            clients, cluster=cluster, known=lambda: context.cluster.service_cidrs
        )
        self.cluster: Final = ClusterReader(clients, clock, settings, context.cluster, self.network)
        self.subnets: Final = SubnetReader(
            clients, clock, refresh_interval=settings.subnet_refresh_interval
        )
        self.security_groups: Final = SecurityGroupReader(clients, clock)
        self.images: Final = ImageReader(
            clients,
            clock,
            parameters=SsmParameterReader(clients, clock),
            kubernetes_version=self.cluster.version,
            refresh_interval=settings.ami_refresh_interval,
        )
        self.placement_groups: Final = PlacementGroupReader(clients, clock)
        self.reservations: Final = ReservationReader(clients, clock)
        self.profiles: Final = InstanceProfiles(
            clients,
            clock,
            cluster=cluster,
            new_id=lambda: str(uuid4()),
            fence=context.fence,
            isolated=settings.isolated_vpc,
        )


@final
class CatalogueParts:
    """The region's instance types and prices, and the offerings that are sold out."""

    def __init__(self, services: ProviderServices, discovery: DiscoveryParts) -> None:
        context, settings, clients = services.context, services.settings, services.clients
        clock, region = context.clock, clients.region
        now = clock.now()
        self.unavailable_offerings: Final = UnavailableOfferings(monotonic=clock.monotonic)
        self.prices: Final = RegionPrices(region, isolated=settings.isolated_vpc)
        self.prices_disk: Final = services.disk("prices")
        self.prices.restore(self.prices_disk, now=now)
        self.region: Final = RegionTypeReader(clients, clock, context.cache_folder)
        catalogue = InstanceTypeCatalogue(
            region,
            settings,
            source=self.region.current,
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
            learned=LearnedMemory(services.disk("memory"), now=now),
            reserved_left=discovery.reservations.reservation_counts.remaining,
            evaluate=evaluate if NODE_CLASS_CEL in settings.gates else None,
        )
        self.types: Final = CurrentInstanceTypes(
            catalogue,
            clock,
            groups=discovery.placement_groups,
            shifts=services.shifts.zones,
            node_classes=services.node_classes,
        )

    def infos(self) -> Iterable[InstanceTypeInfo]:
        """Return the region's instance types as they are known now."""
        region, _ = self.region.current()
        return region.types.values()


@final
class NodeClassParts:
    """Resolution, validation and finalization of NodeClasses."""

    def __init__(
        self, services: ProviderServices, discovery: DiscoveryParts, catalogue: CatalogueParts
    ) -> None:
        settings, clients, clock = services.settings, services.clients, services.context.clock
        self.templates: Final = ClusterLaunchTemplates(
            clients, clock, cluster=settings.cluster_name, sizes=services.sizes
        )
        dry_runs = LaunchDryRuns(clients, self.templates)
        trial = LaunchTrial(
            dry_runs,
            catalogue.types,
            cluster=discovery.cluster.details,
            find_group=catalogue.types.group_of,
        )
        validator = node_class_validator(
            clock,
            checks=early_checks(settings, discovery.network),
            late_checks=late_checks(settings, catalogue.infos),
            trial=None if settings.disable_dry_run or services.context.observing else trial,
        )
        self.resolver: Final = NodeClassResolver(
            NodeClassDiscovery(
                subnets=discovery.subnets,
                security_groups=discovery.security_groups,
                images=discovery.images,
                placement_groups=discovery.placement_groups,
                profiles=discovery.profiles,
                reservations=discovery.reservations if settings.reserved_capacity else None,
            ),
            validator,
            clock,
        )
        self.finalizer: Final[NodeClassFinalizer[EC2NodeClass]] = NodeClassFinalizer(
            discovery.profiles.remove_all,
            lambda node_class: self.templates.delete_all(node_class.name),
            forget=self.resolver.forget,
        )


@final
class LaunchParts:
    """Launches of instances, and the memory of recent ones."""

    def __init__(
        self,
        services: ProviderServices,
        discovery: DiscoveryParts,
        catalogue: CatalogueParts,
        templates: ClusterLaunchTemplates,
    ) -> None:
        context, settings, clients = services.context, services.settings, services.clients
        clock, cluster = context.clock, settings.cluster_name
        self.reader: Final = InstanceReader(
            clients, cluster=cluster, uses_reservations=settings.reserved_capacity
        )
        self.recent: Final = RecentLaunches(clock)
        self.owners: Final = InstanceOwners(
            instance_id_in, recent=self.recent, read_claims=context.read_claims
        )
        availability = Availability(
            subnets=discovery.subnets,
            reservation_counts=discovery.reservations.reservation_counts,
            unavailable_offerings=catalogue.unavailable_offerings,
        )
        cloud = FleetCloud(
            clients,
            clock,
            calls=FleetCallBuilder(clock, cluster=cluster, availability=availability),
            reader=self.reader,
            templates=templates,
            availability=availability,
            types=catalogue.types,
            prices=catalogue.prices,
            details=discovery.cluster.details,
            shifts=services.shifts.zones,
            count_failure=services.metrics.count_launch_failure,
            observe_batch=services.metrics.observe_batch,
        )
        self.launcher: Final = ClaimLauncher(
            clock,
            cloud,
            claims=TaggedClaims(CLAIM_TAGS, self.owners),
            recent=self.recent,
            traits=EC2_TRAITS,
        )
        self.foreign: Final = ForeignLaunches(
            clock,
            launch=self.launcher.launch,
            outcome_of=cloud.outcome_of_existing,
            reader=self.reader,
            owners=self.owners,
            marks=FOREIGN_MARKS,
            log_name=EC2_TRAITS.log_name,
        )


@final
class InstanceParts:
    """Listing, termination, tagging, drift and registration of launched instances."""

    def __init__(
        self,
        services: ProviderServices,
        discovery: DiscoveryParts,
        catalogue: CatalogueParts,
        launch: LaunchParts,
    ) -> None:
        context, clients, metrics = services.context, services.clients, services.metrics
        self.instances: Final = ClusterInstances(
            clients,
            context.clock,
            reader=launch.reader,
            recent=launch.recent,
            owners=launch.owners,
            reservation_counts=discovery.reservations.reservation_counts,
            shifts=services.shifts.zones,
            count_failure=metrics.count_termination_failure,
            observe_batch=metrics.observe_batch,
        )
        self.tagger: Final = InstanceTagger(
            clients,
            context.clock,
            cluster=services.settings.cluster_name,
            reader=launch.reader,
            last_listed=self.instances.last_listed,
            candidates=lambda: chain(
                launch.recent.all(), map(instance_id_of, context.read_nodes().values())
            ),
            shifts=services.shifts.zones,
        )
        self.drift: Final = DriftDetector(
            instances=self.instances,
            types=catalogue.types,
            has_ended=discovery.reservations.has_ended,
        )
        self.partition_gate: Final = PartitionGate(
            reader=launch.reader, groups=discovery.placement_groups, nodes=context.nodes
        )


@final
class InterruptionParts:
    """Sources of interruptions, and the capacity types that follow from them."""

    def __init__(
        self,
        services: ProviderServices,
        discovery: DiscoveryParts,
        catalogue: CatalogueParts,
        reader: InstanceReader,
    ) -> None:
        context = services.context
        self.sources: Final = InterruptionSources(
            services.clients,
            context.clock,
            settings=services.settings,
            reader=reader,
            read_nodes=context.read_nodes,
            read_claims=context.read_claims,
            reservations=discovery.reservations,
            offerings=catalogue.unavailable_offerings,
            count_unhealthy=services.metrics.count_unhealthy,
        )
        self.capacity_types: Final = CapacityTypeSync(
            directory=self.sources.directory,
            read_nodes=context.read_nodes,
            nodes=context.nodes,
        )


@final
class ProviderParts:
    """Everything that knows its region; made by `StartedProvider` when it is first needed."""

    def __init__(self, services: ProviderServices) -> None:
        self.discovery: Final = DiscoveryParts(services)
        self.catalogue: Final = CatalogueParts(services, self.discovery)
        self.node_class: Final = NodeClassParts(services, self.discovery, self.catalogue)
        self.launch: Final = LaunchParts(
            services, self.discovery, self.catalogue, self.node_class.templates
        )
        self.operations: Final = InstanceParts(
            services, self.discovery, self.catalogue, self.launch
        )
        self.interruption: Final = InterruptionParts(
            services, self.discovery, self.catalogue, self.launch.reader
        )
        self.doctor: Final = ProviderDoctor(
            services.clients,
            settings=services.settings,
            cluster=self.discovery.cluster,
            queue=self.interruption.sources.queue,
            shifts=services.shifts,
            observing=services.context.observing,
        )
        self.hooks: Final = CloudHooks(
            resolve_node_class=self.node_class.resolver.resolve,
            finalize_node_class=self.node_class.finalizer.finalize,
            list_instance_types=lambda _, node_class: self.catalogue.types.instance_types(
                node_class
            ),
            launch_instances=self.launch.foreign.launch,
            fetch_instances=self.operations.instances.fetch,
            list_instances=self.operations.instances.list,
            sync_instance=self._sync,
            detect_drift=self.operations.drift.detect,
            terminate_instances=self.operations.instances.terminate,
            poll_interruptions=self.interruption.sources.poll,
            acknowledge_interruptions=self.interruption.sources.acknowledge,
            record_offerings=services.metrics.offerings.record,
        )

    def _sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Tag the instance with its claim and Node; learn how much memory its type really has."""
        self.operations.tagger.sync(node_claim, node)
        self.catalogue.types.learn_memory(node_claim, node)
