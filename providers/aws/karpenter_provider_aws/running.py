"""What a started provider is made of.

Settings are read at the start. Whatever needs the region, and so perhaps a call, is made when the first
hook needs it: a cloud that is down must not keep the core from starting.
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
from karpenter_core.provider.kit.known import Known
from karpenter_core.provider.kit.known_owners import KnownOwners
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable import UnavailableOfferings
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.capacity_types import CAPACITY_TYPES_PERIOD, CapacityTypes
from karpenter_provider_aws.catalogue.catalogue import Catalogue
from karpenter_provider_aws.catalogue.fetch import REFRESH_PERIOD, RegionCatalogue
from karpenter_provider_aws.catalogue.offered import OfferedTypes
from karpenter_provider_aws.cluster import ClusterSource
from karpenter_provider_aws.described import MachineReader, instance_id_in
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.discovery.images import Images
from karpenter_provider_aws.discovery.parameters import Parameters
from karpenter_provider_aws.discovery.placement_groups import PlacementGroups
from karpenter_provider_aws.discovery.profiles import Profiles
from karpenter_provider_aws.discovery.reservations import Reservations
from karpenter_provider_aws.discovery.security_groups import SecurityGroups
from karpenter_provider_aws.discovery.subnets import Subnets
from karpenter_provider_aws.doctor import Doctor
from karpenter_provider_aws.drift import DriftDetector
from karpenter_provider_aws.instances import Instances
from karpenter_provider_aws.interruption.announcing import Announcing
from karpenter_provider_aws.interruption.blocks import BLOCKS_PERIOD
from karpenter_provider_aws.interruption.directory import instance_id_of
from karpenter_provider_aws.interruption.status import STATUS_PERIOD
from karpenter_provider_aws.kubelet.expressions import evaluate
from karpenter_provider_aws.launch.buying import Buyer, Shelves
from karpenter_provider_aws.launch.launching import Launching
from karpenter_provider_aws.launch.templates import LaunchTemplates
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.metrics import AwsMetrics
from karpenter_provider_aws.node_class.dry_runs import DryRuns
from karpenter_provider_aws.node_class.finalization import Finalizer
from karpenter_provider_aws.node_class.resolution import Discovery, NodeClassResolver
from karpenter_provider_aws.node_class.static_checks import early_checks, late_checks
from karpenter_provider_aws.node_class.validation import Validator
from karpenter_provider_aws.prices import Prices
from karpenter_provider_aws.registration import PartitionGate
from karpenter_provider_aws.sdk import Clients
from karpenter_provider_aws.settings import NODE_CLASS_CEL, AwsSettings
from karpenter_provider_aws.tagging import Tagging
from karpenter_provider_aws.zonal_shift import ZonalShifts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.contract import ProviderContext
    from karpenter_provider_aws.sdk import Limits, SharedClients
    from karpenter_provider_aws.type_facts import InstanceTypeInfo

__all__ = ["Parts", "Running"]

_DISTRIBUTION: Final = "karpenter-provider-aws"
_DISK_VERSION: Final = "1"
_PRICES_PERIOD: Final = timedelta(hours=12)
_PROFILES_PERIOD: Final = timedelta(minutes=30)
_IMAGES_PERIOD: Final = timedelta(minutes=30)
_TEMPLATES_PERIOD: Final = timedelta(minutes=1)


@final
class Parts:
    """Everything that knows its region; made by `Running` when it is first needed."""

    def __init__(self, running: Running) -> None:
        context, settings, clients = running.context, running.settings, running.clients
        clock, cluster = context.clock, settings.cluster_name
        region = clients.region
        now = clock.now()
        self.unavailable: Final = UnavailableOfferings(monotonic=clock.monotonic)
        self.network: Final = ServiceNetwork(
            clients, cluster=cluster, known=lambda: context.cluster.service_cidrs
        )
        self.cluster: Final = ClusterSource(clients, clock, settings, context.cluster, self.network)

        # Discovery
        self.parameters: Final = Parameters(clients, clock)
        self.subnets: Final = Subnets(
            clients, clock, refresh_interval=settings.subnet_refresh_interval
        )
        self.images: Final = Images(
            clients,
            clock,
            parameters=self.parameters,
            kubernetes_version=self.cluster.version,
            refresh_interval=settings.ami_refresh_interval,
        )
        self.groups: Final = PlacementGroups(clients, clock)
        self.reservations: Final = Reservations(clients, clock)
        self.profiles: Final = Profiles(
            clients,
            clock,
            cluster=cluster,
            new_id=lambda: str(uuid4()),
            isolated=settings.isolated_vpc,
        )

        # Catalogue
        self.prices: Final = Prices(region, isolated=settings.isolated_vpc)
        self.prices_disk: Final = _disk(running, "prices")
        self.prices.restore(self.prices_disk, now=now)
        self.region: Final = RegionCatalogue(clients, clock, context.cache_folder)
        catalogue = Catalogue(
            region,
            settings,
            source=self.region.current,
            prices=self.prices,
            unavailable=self.unavailable,
            learned=LearnedMemory(_disk(running, "memory"), now=now),
            reserved_left=self.reservations.availability.left,
            evaluate=evaluate if NODE_CLASS_CEL in settings.gates else None,
        )
        self.types: Final = OfferedTypes(
            catalogue,
            clock,
            groups=self.groups,
            shifts=running.shifts.zones,
            known=running.known,
        )

        # NodeClasses
        self.templates: Final = LaunchTemplates(
            clients, clock, cluster=cluster, sizes=running.sizes
        )
        self.validator: Final = Validator(
            clock=clock,
            network=self.network,
            checks=early_checks(settings),
            late_checks=late_checks(settings, self._infos),
            catalogue=self.types,
            cluster=self.cluster.details,
            find_group=self.types.group_of,
            dry_runs=None if settings.disable_dry_run else DryRuns(clients, self.templates),
        )
        self.resolver: Final = NodeClassResolver(
            Discovery(
                subnets=self.subnets,
                security_groups=SecurityGroups(clients, clock),
                images=self.images,
                placement_groups=self.groups,
                profiles=self.profiles,
                reservations=self.reservations if settings.reserved_capacity else None,
            ),
            self.validator,
            clock,
        )
        self.finalizer: Final = Finalizer(
            profiles=self.profiles,
            templates=self.templates,
            resolver=self.resolver,
            validator=self.validator,
        )

        # Instances
        reader = MachineReader(
            clients, cluster=cluster, uses_reservations=settings.reserved_capacity
        )
        recent = RecentLaunches(clock)
        owners = KnownOwners(instance_id_in, recent=recent, read_claims=context.read_claims)
        shelves = Shelves(
            subnets=self.subnets,
            availability=self.reservations.availability,
            unavailable=self.unavailable,
        )
        self.launching: Final = Launching(
            clock,
            reader=reader,
            buyer=Buyer(
                clients,
                clock,
                cluster=cluster,
                templates=self.templates,
                shelves=shelves,
                recent=recent,
                count_failure=running.metrics.count_launch_failure,
                observe_batch=running.metrics.observe_batch,
            ),
            recent=recent,
            owners=owners,
            shelves=shelves,
            types=self.types,
            prices=self.prices,
            details=self.cluster.details,
            shifts=running.shifts.zones,
        )
        self.instances: Final = Instances(
            clients,
            reader=reader,
            recent=recent,
            owners=owners,
            availability=self.reservations.availability,
            shifts=running.shifts.zones,
            count_failure=running.metrics.count_termination_failure,
            observe_batch=running.metrics.observe_batch,
        )
        self.tagging: Final = Tagging(
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
        self.announcing: Final = Announcing(
            clients,
            clock,
            settings=settings,
            machines=reader,
            read_nodes=context.read_nodes,
            reservations=self.reservations,
            offerings=self.unavailable,
            count_unhealthy=running.metrics.count_unhealthy,
        )
        self.capacity_types: Final = CapacityTypes(
            directory=self.announcing.directory,
            read_nodes=context.read_nodes,
            nodes=context.nodes,
        )
        self.partition_gate: Final = PartitionGate(
            reader=reader, groups=self.groups, nodes=context.nodes
        )
        self.doctor: Final = Doctor(
            clients,
            settings=settings,
            cluster=self.cluster,
            queue=self.announcing.queue,
            shifts=running.shifts,
        )

    def _infos(self) -> Iterable[InstanceTypeInfo]:
        region, _ = self.region.current()
        return region.types.values()


def _disk(running: Running, name: str) -> DiskCache:
    name = f"aws-{name}-{running.clients.region}"
    return DiskCache(running.context.cache_folder, name, version=_DISK_VERSION)


@final
class Running:
    """One started provider; callable from any thread."""

    def __init__(
        self,
        context: ProviderContext,
        *,
        limits: Limits | None = None,
        shared: SharedClients | None = None,
    ) -> None:
        """Read the settings; `limits` and `shared` are for `Clients`.

        Raises:
            SettingsError: one of them cannot be used.
        """
        self.context: Final = context
        self.settings: Final = AwsSettings.from_context(context)
        self.metrics: Final = AwsMetrics(
            context.metrics, context.clock, with_reserved=self.settings.reserved_capacity
        )
        self.clients: Final = Clients(
            version=version(_DISTRIBUTION),
            limits=limits,
            observe=self.metrics.sdk.observe,
            shared=shared,
        )
        self.known: Final = Known[EC2NodeClass]()
        self.sizes: Final = UserDataSizes(context.metrics)
        self.shifts: Final = ZonalShifts(
            self.clients,
            context.clock,
            cluster=self.settings.cluster_name,
            enabled=self.settings.enable_zonal_shift,
        )
        self._lock: Final = Lock()
        self._parts: Parts | None = None
        self._has_hydrated = False

    @property
    def parts(self) -> Parts:
        """Everything that knows its region.

        Raises:
            SettingsError: nothing says which region it is.
        """
        self.clients.region  # noqa: B018 - may be a call, so it is asked for before the lock is taken
        with self._lock:
            if self._parts is None:
                self._parts = Parts(self)
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
            PeriodicTask(name="instance-status", period=STATUS_PERIOD, run=self._look_at_status),
            PeriodicTask(
                name="capacity-block-expiry", period=BLOCKS_PERIOD, run=self._look_at_blocks
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

    def _look_at_status(self) -> None:
        self.parts.announcing.status.run()

    def _look_at_blocks(self) -> None:
        self.parts.announcing.blocks.run()

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
