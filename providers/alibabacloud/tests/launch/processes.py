"""Launching processes over the simulated cloud, and NodeClasses for them."""

from __future__ import annotations

from datetime import timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_DNS, uuid5

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.provider.catalogue import Requirements, order_by_price
from karpenter_core.provider.contract import LaunchRequest
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.token_bucket import TokenBucket
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.bootstrap.scripts import AttachScripts
from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
from karpenter_provider_alibabacloud.catalogue.current_types import CurrentInstanceTypes
from karpenter_provider_alibabacloud.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_alibabacloud.catalogue.region_types import TypesByName, fetch_region_types
from karpenter_provider_alibabacloud.catalogue.stock import StockReader
from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDiskReader
from karpenter_provider_alibabacloud.described_instances import InstanceReader, instance_id_in
from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
from karpenter_provider_alibabacloud.discovery.reservations import ReservationReader
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.instances import cluster_instances
from karpenter_provider_alibabacloud.labels import LABEL_CLASSES
from karpenter_provider_alibabacloud.launch.calls import Availability, LaunchCallBuilder
from karpenter_provider_alibabacloud.launch.ecs_cloud import ECS_TRAITS, EcsCloud
from karpenter_provider_alibabacloud.prices import RegionPrices, SpotQuote
from providers.alibabacloud.tests.catalogue.instance_type_data import EmptyDiskCache
from providers.alibabacloud.tests.manual_clock import NOON

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchOutcome
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

ZONE_B, ZONE_G, ZONE_H = (f"cn-hangzhou-{letter}" for letter in "bgh")
LARGE = "ecs.g7.large"
XLARGE = "ecs.g7.xlarge"
GROUP = "CreateAutoProvisioningGroup"
RUN = "RunInstances"
IMAGES = {
    "amd64": "aliyun_3_x64_20G_alibase_20250629.vhd",
    "arm64": "aliyun_3_arm64_20G_alibase_20250629.vhd",
}


class CloudClock:
    """The time in the cloud."""

    def __init__(self, cloud: SimulatedAlibabaCloud) -> None:
        self._cloud = cloud

    def now(self) -> datetime:
        return self._cloud.time()

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        self.forward(seconds)

    def forward(self, seconds: float) -> None:
        self._cloud.time.advance(seconds)


@cache
def _types(clients: CloudClients) -> TypesByName:
    return fetch_region_types(clients).value


class Process:
    """All parts of one process that launch; a new one knows nothing of the last."""

    def __init__(
        self,
        cloud: SimulatedAlibabaCloud,
        clients: CloudClients,
        folder: Path,
        *,
        launch_api: str = "",
        rate_per_second: float = 1000,
        burst: int = 1000,
    ) -> None:
        self.cloud, self.clients = cloud, clients
        self.clock = clock = CloudClock(cloud)
        region, cluster_id = clients.region, cloud.world.cluster
        self.waited: list[float] = []
        self.nodes: dict[str, NodeView] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.clusters = ClusterReader(
            clients, clock, cluster_id=cluster_id, cluster_type="ACKManaged"
        )
        self.prices = RegionPrices(region)
        self.unavailable_offerings = UnavailableOfferings(longest_life=timedelta(minutes=30))
        self.reservations = ReservationReader(clients, clock)
        self.vswitches = VSwitchReader(clients, clock)
        self.disks = SystemDiskReader(clients, clock)
        stock = StockReader(clients, clock, folder)
        self.offered = CurrentInstanceTypes(
            InstanceTypeCatalogue(
                region,
                overhead_percent=0.065,
                types=lambda: (_types(clients), 1),
                stock=stock,
                prices=self.prices,
                unavailable_offerings=self.unavailable_offerings,
                learned=LearnedMemory(EmptyDiskCache(), now=NOON),  # pyright: ignore[reportArgumentType] - forgets on purpose
                reserved_left=self.reservations.reservation_counts.remaining,
            ),
            clock,
            cluster=self.clusters.details,
            consider=lambda _: False,
            wake_prices=lambda: None,
        )
        self.recent = RecentLaunches(clock)
        owners = InstanceOwners(
            partial(instance_id_in, region), recent=self.recent, read_claims=lambda: self.claims
        )
        self.reader = InstanceReader(clients, cluster_id=cluster_id)
        availability = Availability(
            vswitches=self.vswitches,
            reservation_counts=self.reservations.reservation_counts,
            unavailable_offerings=self.unavailable_offerings,
            disks=self.disks,
            prices=self.prices,
        )
        self.calls = LaunchCallBuilder(
            clock,
            region=region,
            cluster_id=cluster_id,
            launch_api=launch_api,
            availability=availability,
            details=self.clusters.details,
        )
        self.launcher = ClaimLauncher(
            clock,
            EcsCloud(
                clients,
                clock,
                calls=self.calls,
                reader=self.reader,
                availability=availability,
                recent=self.recent,
                types=self.offered,
                bootstrapper=UserDataBuilder(
                    AttachScripts(clients, clock, cluster_id=cluster_id), cluster_id=cluster_id
                ),
                nodes=lambda: self.nodes,
                bucket=TokenBucket(
                    rate_per_second=rate_per_second, burst=burst, monotonic=lambda: 0.0
                ),
                sleep=self.waited.append,
            ),
            claims=TaggedClaims(CLAIM_TAGS, owners),
            recent=self.recent,
            traits=ECS_TRAITS,
        )
        self.instances = cluster_instances(
            clients,
            clock,
            reader=self.reader,
            recent=self.recent,
            owners=owners,
            reservation_counts=self.reservations.reservation_counts,
        )

    def set_spot(self, name: str, zone: str, price: float) -> None:
        """Let a spot price be known."""
        quote = SpotQuote({zone: price}, self.clock.now())
        self.prices.update_spot({name: quote}, hours=1, currency="CNY")

    def types(self, node_class: ECSNodeClass) -> dict[str, InstanceType]:
        """Return the types by name, as the core last listed them."""
        return {it.name: it for it in self.offered.instance_types(node_class)}

    def requests(self, *claims: NodeClaim, node_class: ECSNodeClass) -> list[LaunchRequest]:
        """Return launch requests as the core makes them: alike claims have the very same types."""
        known: dict[Any, tuple[InstanceType, ...]] = {}
        requests: list[LaunchRequest] = []
        for claim in claims:
            specs = claim.spec.requirements
            if specs not in known:
                requirements = Requirements.from_specs(specs)
                wanted = requirements.get(INSTANCE_TYPE)
                kept = [it for it in self.types(node_class).values() if wanted.has(it.name)]
                known[specs] = order_by_price(
                    kept, requirements, well_known=LABEL_CLASSES.well_known
                )
            requests.append(
                LaunchRequest(node_claim=claim, node_class=node_class, instance_types=known[specs])
            )
        return requests

    def launch(self, *claims: NodeClaim, node_class: ECSNodeClass) -> list[LaunchOutcome]:
        """Launch for claims that the core hands over together."""
        return self.launcher.launch(self.requests(*claims, node_class=node_class))

    def launch_one(self, claim: NodeClaim, node_class: ECSNodeClass) -> Any:
        (outcome,) = self.launch(claim, node_class=node_class)
        return outcome

    def sent(self, action: str = GROUP) -> list[Any]:
        """Return the parameters of the calls of an action that were answered."""
        return [call.parameters for call in self.cloud.calls.of(action)]

    def write_down(self, claim: NodeClaim, provider_id: str) -> None:
        """Have a claim's status name its instance, as the core writes it."""
        status = claim.status.model_copy(update={"provider_id": provider_id})
        self.claims[claim.name] = claim.model_copy(update={"status": status})

    def launched(self, outcome: Any) -> Any:
        """Return the instance of an outcome, as the cloud has it."""
        return self.cloud.instance(outcome.provider_id)


def class_of(
    cloud: SimulatedAlibabaCloud,
    *,
    status: dict[str, Any] | None = None,
    condition: dict[str, Any] | None = None,
    generation: int = 1,
    **spec: Any,
) -> ECSNodeClass:
    """Return a NodeClass of the ready world that can be launched; `spec` as in YAML."""
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": generation}
    tags = {"tags": dict(cloud.world.discovery)}
    return ECSNodeClass.model_validate(
        {
            "metadata": {
                "name": "default",
                "uid": "uid-of-class",
                "generation": generation,
                "resourceVersion": "1",
            },
            "spec": {
                "vSwitchSelectorTerms": [tags],
                "securityGroupSelectorTerms": [tags],
                "imageSelectorTerms": [{"alias": "AlibabaCloudLinux3"}],
                **spec,
            },
            "status": {
                "vSwitches": [
                    {"id": each, "zoneID": zone}
                    for zone, each in sorted(cloud.world.vswitches.items())
                ],
                "securityGroups": [{"id": cloud.world.security_group_id, "name": "nodes"}],
                "images": [
                    {
                        "id": image,
                        "name": image,
                        "requirements": [
                            {"key": "kubernetes.io/arch", "operator": "In", "values": [arch]}
                        ],
                    }
                    for arch, image in IMAGES.items()
                ],
                "conditions": [{**ready, **(condition or {})}],
                **(status or {}),
            },
        }
    )


def claim_of(
    name: str,
    *requirements: tuple[Any, ...],
    pool: str = "web",
    requests: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    created: datetime | None = None,
) -> NodeClaim:
    """Return a NodeClaim; each requirement is a key and its values, or the whole of it."""
    metadata = ObjectMeta(
        name=f"{pool}-{name}",
        uid=str(uuid5(NAMESPACE_DNS, name)),
        labels={NODE_POOL: pool},
        annotations=annotations or {},
        creation_timestamp=created,
    )
    return NodeClaim.model_validate(
        {
            "metadata": metadata.model_dump(mode="json", by_alias=True, exclude_none=True),
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.k8s.alibabacloud",
                    "kind": "ECSNodeClass",
                    "name": "default",
                },
                "requirements": [
                    values[0]
                    if key == "minValues"
                    else {"key": key, "operator": "In", "values": list(values)}
                    for key, *values in requirements
                ],
                "resources": {"requests": requests or {"cpu": "1"}},
            },
        }
    )


ON_DEMAND = (CAPACITY_TYPE, "on-demand")
SPOT = (CAPACITY_TYPE, "spot")
ONLY_LARGE = (INSTANCE_TYPE, LARGE)


def in_zone(*zones: str) -> tuple[str, ...]:
    return (ZONE, *zones)


def node_in(zone: str, number: int, pool: str = "web") -> NodeView:
    """Return a Node of a NodePool in a zone."""
    return NodeView(
        name=f"node-{number}",
        uid=f"uid-of-node-{number}",
        labels={NODE_POOL: pool, ZONE: zone},
        provider_id=f"cn-hangzhou.i-{number}",
    )
