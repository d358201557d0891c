"""What a started provider is made of: each part is given what it needs, and nothing is asked yet."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.known_owners import KnownOwners
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.token_bucket import TokenBucket
from karpenter_core.provider.kit.unavailable import UnavailableOfferings
from karpenter_provider_alibabacloud.bootstrap.bootstrapper import Bootstrapper
from karpenter_provider_alibabacloud.bootstrap.registrations import Registrations
from karpenter_provider_alibabacloud.bootstrap.scripts import AttachScripts
from karpenter_provider_alibabacloud.catalogue.catalogue import Catalogue
from karpenter_provider_alibabacloud.catalogue.fetch import TypeCatalogue
from karpenter_provider_alibabacloud.catalogue.offered import OfferedTypes
from karpenter_provider_alibabacloud.catalogue.stock import StockBook
from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDisks
from karpenter_provider_alibabacloud.described import MachineReader, instance_id_in
from karpenter_provider_alibabacloud.discovery.cluster import Clusters
from karpenter_provider_alibabacloud.discovery.images import Images
from karpenter_provider_alibabacloud.discovery.reservations import Reservations
from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroups
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitches
from karpenter_provider_alibabacloud.doctor import Doctor
from karpenter_provider_alibabacloud.drift import DriftDetector
from karpenter_provider_alibabacloud.instances import Instances
from karpenter_provider_alibabacloud.interruption.announcing import Announcing
from karpenter_provider_alibabacloud.late_taints import LateTaints
from karpenter_provider_alibabacloud.launch.buying import Buyer
from karpenter_provider_alibabacloud.launch.calls import CallMaker, Shelves
from karpenter_provider_alibabacloud.launch.launching import Launching
from karpenter_provider_alibabacloud.node_class.dry_runs import DryRuns
from karpenter_provider_alibabacloud.node_class.finalization import Finalizer
from karpenter_provider_alibabacloud.node_class.refused_launches import RefusedLaunches
from karpenter_provider_alibabacloud.node_class.resolution import Discovery, NodeClassResolver
from karpenter_provider_alibabacloud.node_class.trial_launches import TrialLaunches
from karpenter_provider_alibabacloud.node_class.validation import Validator
from karpenter_provider_alibabacloud.price_reading import PriceReader
from karpenter_provider_alibabacloud.prices import DISK_VERSION as PRICES_DISK_VERSION
from karpenter_provider_alibabacloud.prices import Prices
from karpenter_provider_alibabacloud.tagging import Tagging

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.kit.known import Known
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.metrics import AlibabaCloudMetrics
    from karpenter_provider_alibabacloud.sdk import Clients
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = ["PRICES_TASK", "Parts"]

PRICES_TASK: Final = "prices"
"""The task that reads prices, which is woken when some are wanted that nobody has read."""
LONGEST_MARK: Final = timedelta(minutes=30)
"""What is found sold out again and again is left alone for so long at most."""
_MEMORY_DISK_VERSION: Final = "1"


@final
class Parts:
    """The parts of one started provider."""

    def __init__(
        self,
        context: ProviderContext,
        settings: AlibabaCloudSettings,
        clients: Clients,
        *,
        known: Known[ECSNodeClass],
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

        self.unavailable: Final = UnavailableOfferings(
            longest_life=LONGEST_MARK, monotonic=clock.monotonic
        )
        self.cluster: Final = Clusters(
            clients, clock, cluster_id=cluster_id, cluster_type=settings.cluster_type
        )

        # Discovery
        self.vswitches: Final = VSwitches(clients, clock, observe=metrics.observe_vswitches)
        self.reservations: Final = Reservations(clients, clock)
        self.uses_reservations: Final = context.feature_gates.reserved_capacity

        # Catalogue
        self.type_catalogue: Final = TypeCatalogue(clients, clock, context.cache_folder)
        self.stock: Final = StockBook(clients, clock, context.cache_folder)
        self.system_disks: Final = SystemDisks(clients, clock)
        prices_disk = disk("prices", PRICES_DISK_VERSION)
        self.prices: Final = Prices(region)
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
        self.types: Final = OfferedTypes(
            Catalogue(
                region,
                overhead_percent=settings.vm_memory_overhead_percent,
                types=self.type_catalogue.current,
                stock=self.stock,
                prices=self.prices,
                unavailable=self.unavailable,
                learned=LearnedMemory(disk("memory", _MEMORY_DISK_VERSION), now=now),
                reserved_left=self.reservations.availability.left,
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
        self.registrations: Final = Registrations(scripts, clock)
        self.bootstrapper: Final = Bootstrapper(scripts, cluster_id=cluster_id)
        self.refused_launches: Final = RefusedLaunches(clock)
        self.validator: Final = Validator(
            clock=clock,
            bootstrapper=self.bootstrapper,
            dry_runs=DryRuns(clients),
            launch=TrialLaunches(
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
            Discovery(
                vswitches=self.vswitches,
                security_groups=SecurityGroups(clients, clock),
                images=Images(clients, clock, self.cluster),
                reservations=self.reservations if self.uses_reservations else None,
            ),
            self.validator,
            clock,
        )
        self.finalizer: Final = Finalizer(resolver=self.resolver, validator=self.validator)

        # Instances
        reader = MachineReader(
            clients, cluster_id=cluster_id, uses_reservations=self.uses_reservations
        )
        recent = RecentLaunches(clock)
        owners = KnownOwners(
            partial(instance_id_in, region), recent=recent, read_claims=context.read_claims
        )
        shelves = Shelves(
            vswitches=self.vswitches,
            availability=self.reservations.availability,
            unavailable=self.unavailable,
            disks=self.system_disks,
            prices=self.prices,
        )
        calls = CallMaker(
            clock,
            region=region,
            cluster_id=cluster_id,
            launch_api=settings.launch_api,
            shelves=shelves,
            details=self.cluster.details,
        )
        self.launching: Final = Launching(
            clock,
            reader=reader,
            buyer=Buyer(
                clients,
                clock,
                calls=calls,
                shelves=shelves,
                recent=recent,
                bucket=TokenBucket(
                    rate_per_second=settings.launch_rate_per_second,
                    burst=settings.launch_burst,
                    monotonic=clock.monotonic,
                ),
                observe_batch=metrics.observe_batch,
                observe_pairs=metrics.observe_pairs,
            ),
            calls=calls,
            recent=recent,
            owners=owners,
            types=self.types,
            bootstrapper=self.bootstrapper,
            nodes=context.read_nodes,
        )
        self.announcing: Final = Announcing(
            clients, clock, settings=settings, reader=reader, offerings=self.unavailable
        )
        self.instances: Final = Instances(
            clients,
            clock,
            reader=reader,
            recent=recent,
            owners=owners,
            availability=self.reservations.availability,
            on_listed=self.announcing.note_listed,
            observe_batch=metrics.observe_batch,
        )
        self.tagging: Final = Tagging(
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
            scheduled=self.announcing.events.scheduled,
        )
        self.late_taints: Final = LateTaints(
            clock, nodes=context.nodes, read_nodes=context.read_nodes
        )
        self.doctor: Final = Doctor(
            clients,
            settings=settings,
            cluster=self.cluster,
            uses_reservations=self.uses_reservations,
        )
