"""Starts the provider, and builds its parts when first used.

Settings are read at the start. A part that needs the region, and so perhaps a call, is built when
the first hook needs it: a cloud that is down must not keep the core from starting.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib.metadata import version
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from karpenter_core.errors import SettingsError
from karpenter_core.provider.contract import Finding, PeriodicTask, Severity
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.node_class_registry import NodeClassRegistry
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.capacity_type_sync import CAPACITY_TYPES_PERIOD, CapacityTypeSync
from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
from karpenter_provider_aws.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_aws.catalogue.region_types import REFRESH_PERIOD, RegionTypeReader
from karpenter_provider_aws.cluster import ClusterReader
from karpenter_provider_aws.described_instances import InstanceReader, instance_id_in
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
from karpenter_provider_aws.interruption.blocks import BLOCKS_PERIOD
from karpenter_provider_aws.interruption.directory import instance_id_of
from karpenter_provider_aws.interruption.sources import InterruptionSources
from karpenter_provider_aws.interruption.status_checks import STATUS_PERIOD
from karpenter_provider_aws.kubelet.expressions import evaluate
from karpenter_provider_aws.launch.fleet_calls import Availability, FleetCallBuilder
from karpenter_provider_aws.launch.fleet_cloud import EC2_TRAITS, FleetCloud
from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.metrics import AwsMetrics
from karpenter_provider_aws.node_class.dry_runs import LaunchDryRuns
from karpenter_provider_aws.node_class.finalization import NodeClassFinalizer
from karpenter_provider_aws.node_class.resolution import NodeClassDiscovery, NodeClassResolver
from karpenter_provider_aws.node_class.static_checks import early_checks, late_checks
from karpenter_provider_aws.node_class.validation import NodeClassValidator
from karpenter_provider_aws.prices import RegionPrices
from karpenter_provider_aws.registration import PartitionGate
from karpenter_provider_aws.sdk import CloudClients
from karpenter_provider_aws.settings import NODE_CLASS_CEL, AwsSettings
from karpenter_provider_aws.zonal_shift import ZonalShiftReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.contract import ProviderContext
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo
    from karpenter_provider_aws.sdk import ClientLimits, SharedClients

__all__ = ["ProviderParts", "StartedProvider"]

_DISTRIBUTION: Final = "karpenter-provider-aws"
_DISK_VERSION: Final = "1"
_PRICES_PERIOD: Final = timedelta(hours=12)
_PROFILES_PERIOD: Final = timedelta(minutes=30)
_IMAGES_PERIOD: Final = timedelta(minutes=30)
_TEMPLATES_PERIOD: Final = timedelta(minutes=1)


@final
class ProviderParts:
    """Everything that knows its region; made by `StartedProvider` when it is first needed."""

    def __init__(self, running: StartedProvider) -> None:
        context, settings, clients = running.context, running.settings, running.clients
        clock, cluster = context.clock, settings.cluster_name
        region = clients.region
        now = clock.now()
        self.unavailable_offerings: Final = UnavailableOfferings(monotonic=clock.monotonic)
        self.network: Final = ServiceNetwork(
            clients, cluster=cluster, known=lambda: context.cluster.service_cidrs
        )
        self.cluster: Final = ClusterReader(clients, clock, settings, context.cluster, self.network)

        # Discovery
        self.parameters: Final = SsmParameterReader(clients, clock)
        self.subnets: Final = SubnetReader(
            clients, clock, refresh_interval=settings.subnet_refresh_interval
        )
        self.images: Final = ImageReader(
            clients,
            clock,
            parameters=self.parameters,
            kubernetes_version=self.cluster.version,
            refresh_interval=settings.ami_refresh_interval,
        )
        self.groups: Final = PlacementGroupReader(clients, clock)
        self.reservations: Final = ReservationReader(clients, clock)
        self.profiles: Final = InstanceProfiles(
            clients,
            clock,
            cluster=cluster,
            new_id=lambda: str(uuid4()),
            isolated=settings.isolated_vpc,
        )

        # Catalogue
        self.prices: Final = RegionPrices(region, isolated=settings.isolated_vpc)
        self.prices_disk: Final = _disk(running, "prices")
        self.prices.restore(self.prices_disk, now=now)
        self.region: Final = RegionTypeReader(clients, clock, context.cache_folder)
        catalogue = InstanceTypeCatalogue(
            region,
            settings,
            source=self.region.current,
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
            learned=LearnedMemory(_disk(running, "memory"), now=now),
            reserved_left=self.reservations.reservation_counts.remaining,
            evaluate=evaluate if NODE_CLASS_CEL in settings.gates else None,
        )
        self.types: Final = CurrentInstanceTypes(
            catalogue,
            clock,
            groups=self.groups,
            shifts=running.shifts.zones,
            node_classes=running.node_classes,
        )

        # NodeClasses
        self.templates: Final = ClusterLaunchTemplates(
            clients, clock, cluster=cluster, sizes=running.sizes
        )
        self.validator: Final = NodeClassValidator(
            clock=clock,
            network=self.network,
            checks=early_checks(settings),
            late_checks=late_checks(settings, self._infos),
            catalogue=self.types,
            cluster=self.cluster.details,
            find_group=self.types.group_of,
            dry_runs=None if settings.disable_dry_run else LaunchDryRuns(clients, self.templates),
        )
        self.resolver: Final = NodeClassResolver(
            NodeClassDiscovery(
                subnets=self.subnets,
                security_groups=SecurityGroupReader(clients, clock),
                images=self.images,
                placement_groups=self.groups,
                profiles=self.profiles,
                reservations=self.reservations if settings.reserved_capacity else None,
            ),
            self.validator,
            clock,
        )
        self.finalizer: Final = NodeClassFinalizer(
            profiles=self.profiles,
            templates=self.templates,
            resolver=self.resolver,
            validator=self.validator,
        )

        # Instances
        reader = InstanceReader(
            clients, cluster=cluster, uses_reservations=settings.reserved_capacity
        )
        recent = RecentLaunches(clock)
        owners = InstanceOwners(instance_id_in, recent=recent, read_claims=context.read_claims)
        availability = Availability(
            subnets=self.subnets,
            reservation_counts=self.reservations.reservation_counts,
            unavailable_offerings=self.unavailable_offerings,
        )
        self.launcher: Final = ClaimLauncher(
            clock,
            FleetCloud(
                clients,
                clock,
                calls=FleetCallBuilder(clock, cluster=cluster, availability=availability),
                reader=reader,
                templates=self.templates,
                availability=availability,
                types=self.types,
                prices=self.prices,
                details=self.cluster.details,
                shifts=running.shifts.zones,
                count_failure=running.metrics.count_launch_failure,
                observe_batch=running.metrics.observe_batch,
            ),
            claims=TaggedClaims(CLAIM_TAGS, owners),
            recent=recent,
            traits=EC2_TRAITS,
        )
        self.instances: Final = ClusterInstances(
            clients,
            reader=reader,
            recent=recent,
            owners=owners,
            reservation_counts=self.reservations.reservation_counts,
            shifts=running.shifts.zones,
            count_failure=running.metrics.count_termination_failure,
            observe_batch=running.metrics.observe_batch,
        )
        self.tagger: Final = InstanceTagger(
            clients,
            clock,
            cluster=cluster,
            reader=reader,
            is_tagged=self.instances.is_tagged,
            candidates=lambda: chain(
                recent.all(), map(instance_id_of, context.read_nodes().values())
            ),
            shifts=running.shifts.zones,
        )
        self.drift: Final = DriftDetector(reader=reader, recent=recent, types=self.types)
        self.interruption_sources: Final = InterruptionSources(
            clients,
            clock,
            settings=settings,
            reader=reader,
            read_nodes=context.read_nodes,
            reservations=self.reservations,
            offerings=self.unavailable_offerings,
            count_unhealthy=running.metrics.count_unhealthy,
        )
        self.capacity_types: Final = CapacityTypeSync(
            directory=self.interruption_sources.directory,
            read_nodes=context.read_nodes,
            nodes=context.nodes,
        )
        self.partition_gate: Final = PartitionGate(
            reader=reader, groups=self.groups, nodes=context.nodes
        )
        self.doctor: Final = ProviderDoctor(
            clients,
            settings=settings,
            cluster=self.cluster,
            queue=self.interruption_sources.queue,
            shifts=running.shifts,
        )

    def _infos(self) -> Iterable[InstanceTypeInfo]:
        region, _ = self.region.current()
        return region.types.values()


def _disk(running: StartedProvider, name: str) -> DiskCache:
    name = f"aws-{name}-{running.clients.region}"
    return DiskCache(running.context.cache_folder, name, version=_DISK_VERSION)


@final
class StartedProvider:
    """One started provider; callable from any thread."""

    def __init__(
        self,
        context: ProviderContext,
        *,
        limits: ClientLimits | None = None,
        shared: SharedClients | None = None,
    ) -> None:
        """Read the settings; `limits` and `shared` are for `CloudClients`.

        Raises:
            SettingsError: one of them cannot be used.
        """
        self.context: Final = context
        self.settings: Final = AwsSettings.from_context(context)
        self.metrics: Final = AwsMetrics(
            context.metrics, context.clock, with_reserved=self.settings.reserved_capacity
        )
        self.clients: Final = CloudClients(
            version=version(_DISTRIBUTION),
            limits=limits,
            observe=self.metrics.sdk.observe,
            shared=shared,
        )
        self.node_classes: Final = NodeClassRegistry[EC2NodeClass]()
        self.sizes: Final = UserDataSizes(context.metrics)
        self.shifts: Final = ZonalShiftReader(
            self.clients,
            context.clock,
            cluster=self.settings.cluster_name,
            enabled=self.settings.enable_zonal_shift,
        )
        self._lock: Final = Lock()
        self._parts: ProviderParts | None = None
        self._has_hydrated = False

    @property
    def parts(self) -> ProviderParts:
        """Everything that knows its region.

        Raises:
            SettingsError: nothing says which region it is.
        """
        self.clients.region  # noqa: B018 - may be a call, so it is asked for before the lock is taken
        with self._lock:
            if self._parts is None:
                self._parts = ProviderParts(self)
            return self._parts

    def close(self) -> None:
        """Let go of connections."""
        self.clients.close()
        self.metrics.close()

    # -- periodic work -------------------------------------------------------------------------

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return what is done now and then."""
        return (
            PeriodicTask(
                name="instance-types",
                period=REFRESH_PERIOD,
                run=self._refresh_types,
                leader_only=False,
            ),
            PeriodicTask(
                name="prices", period=_PRICES_PERIOD, run=self._refresh_prices, leader_only=False
            ),
            PeriodicTask(name="images", period=_IMAGES_PERIOD, run=self._forget_images),
            PeriodicTask(
                name="launch-templates", period=_TEMPLATES_PERIOD, run=self._sweep_templates
            ),
            PeriodicTask(
                name="instance-profiles", period=_PROFILES_PERIOD, run=self._collect_profiles
            ),
            *self.shifts.tasks(),
            PeriodicTask(
                name="instance-status", period=STATUS_PERIOD, run=self._poll_instance_status
            ),
            PeriodicTask(
                name="capacity-block-expiry", period=BLOCKS_PERIOD, run=self._poll_capacity_blocks
            ),
            PeriodicTask(
                name="capacity-types",
                period=CAPACITY_TYPES_PERIOD,
                run=self._sync_capacity_types,
            ),
        )

    def _refresh_types(self) -> None:
        self.parts.region.refresh()

    def _refresh_prices(self) -> None:
        parts = self.parts
        now = self.context.clock.now()
        parts.prices.refresh(self.clients, now=now, disk=parts.prices_disk)

    def _forget_images(self) -> None:
        self.parts.images.forget_deprecated()

    def _sweep_templates(self) -> None:
        parts = self.parts
        if not self._has_hydrated:
            parts.templates.hydrate()
            self._has_hydrated = True
        parts.templates.sweep()

    def _collect_profiles(self) -> None:
        parts = self.parts
        parts.profiles.collect(parts.resolver.profiles_in_use(), complete=True)

    def _poll_instance_status(self) -> None:
        self.parts.interruption_sources.status.run()

    def _poll_capacity_blocks(self) -> None:
        self.parts.interruption_sources.blocks.run()

    async def _sync_capacity_types(self) -> None:
        parts = await asyncio.to_thread(lambda: self.parts)
        await parts.capacity_types.run()

    # -- what is wrong -------------------------------------------------------------------------

    def check(self) -> tuple[Finding, ...]:
        """Return the findings of `karpenter doctor`."""
        try:
            doctor = self.parts.doctor
        except SettingsError as error:
            return (Finding(severity=Severity.ERROR, message=str(error), remedy="set AWS_REGION"),)
        return doctor.check()
