"""Launching processes over the simulated AWS, and NodeClasses for them."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.provider.catalogue import Requirements, order_by_price
from karpenter_core.provider.contract import LaunchRequest
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_core.provider.kit.launch.launcher import ClaimLauncher
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
from karpenter_provider_aws.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_aws.described_instances import InstanceReader, instance_id_in
from karpenter_provider_aws.discovery.placement_groups import PlacementGroupReader
from karpenter_provider_aws.discovery.reservations import ReservationReader
from karpenter_provider_aws.discovery.subnets import SubnetReader
from karpenter_provider_aws.drift import DriftDetector
from karpenter_provider_aws.instance_tagger import InstanceTagger
from karpenter_provider_aws.instance_tags import CLAIM_TAGS
from karpenter_provider_aws.instances import ClusterInstances
from karpenter_provider_aws.labels import LABEL_CLASSES
from karpenter_provider_aws.launch.fleet_calls import Availability, FleetCallBuilder
from karpenter_provider_aws.launch.fleet_cloud import EC2_TRAITS, FleetCloud
from karpenter_provider_aws.launch.template_groups import ClusterDetails
from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.prices import RegionPrices
from karpenter_provider_aws.settings import AwsSettings
from karpenter_provider_aws.zonal_shift import NO_SHIFTS
from providers.aws.tests.catalogue.recorded_region import EmptyDiskCache, small_region

TYPES = ("m5.large", "m5.xlarge", "c5.large", "t3.large", "m5.metal", "g4dn.xlarge")


class Process:
    """All parts of one process that launch; a new one knows nothing of the last."""

    def __init__(self, aws, clients, clock, *, types=TYPES, details=None) -> None:
        self.aws, self.clients, self.clock = aws, clients, clock
        cluster = aws.world.cluster
        settings = AwsSettings(cluster_name=cluster)
        self.failures: list[Any] = []
        self.shifted = NO_SHIFTS
        self.prices = RegionPrices(aws.account.region)
        self.unavailable_offerings = UnavailableOfferings()
        self.reservations = ReservationReader(clients, clock)
        self.reservation_counts = self.reservations.reservation_counts
        self.subnets = SubnetReader(
            clients, clock, refresh_interval=settings.subnet_refresh_interval
        )
        self.groups = PlacementGroupReader(clients, clock)
        self.templates = ClusterLaunchTemplates(
            clients, clock, cluster=cluster, sizes=UserDataSizes(CollectorRegistry())
        )
        self.catalogue = InstanceTypeCatalogue(
            aws.account.region,
            settings,
            source=lambda: (small_region(*types), 1),
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
            learned=LearnedMemory(EmptyDiskCache(), now=clock.now()),
            reserved_left=self.reservation_counts.remaining,
        )
        self.offered = CurrentInstanceTypes(
            self.catalogue,
            clock,
            groups=self.groups,
            shifts=lambda: self.shifted,
            node_classes=NodeClassRegistry(),
        )
        self.recent = RecentLaunches(clock)
        self.claims: dict[str, NodeClaim] = {}
        self.nodes: tuple[str, ...] = ()
        """Ids of the instances that have a Node."""
        owners = InstanceOwners(instance_id_in, recent=self.recent, read_claims=lambda: self.claims)
        self.reader = InstanceReader(clients, cluster=cluster)
        availability = Availability(
            subnets=self.subnets,
            reservation_counts=self.reservation_counts,
            unavailable_offerings=self.unavailable_offerings,
        )
        self.launcher = ClaimLauncher(
            clock,
            FleetCloud(
                clients,
                clock,
                calls=FleetCallBuilder(clock, cluster=cluster, availability=availability),
                reader=self.reader,
                templates=self.templates,
                availability=availability,
                types=self.offered,
                prices=self.prices,
                details=details
                or (
                    lambda: ClusterDetails(
                        name=cluster,
                        endpoint="https://cluster",
                        region=aws.account.region,
                        service_cidr="172.20.0.0/16",
                    )
                ),
                shifts=lambda: self.shifted,
                count_failure=lambda **labels: self.failures.append(labels),
            ),
            claims=TaggedClaims(CLAIM_TAGS, owners),
            recent=self.recent,
            traits=EC2_TRAITS,
        )
        self.instances = ClusterInstances(
            clients,
            clock,
            reader=self.reader,
            recent=self.recent,
            owners=owners,
            reservation_counts=self.reservation_counts,
            shifts=lambda: self.shifted,
        )
        self.tagger = InstanceTagger(
            clients,
            clock,
            cluster=cluster,
            reader=self.reader,
            last_listed=self.instances.last_listed,
            candidates=lambda: (*self.recent.all(), *self.nodes),
            shifts=lambda: self.shifted,
        )
        self.ended_reservations = set()
        self.drift = DriftDetector(
            instances=self.instances,
            types=self.offered,
            has_ended=self.ended_reservations.__contains__,
        )

    def types(self, node_class):
        """Return the types by name, as the core last listed them."""
        return {it.name: it for it in self.offered.instance_types(node_class)}

    def request(self, claim, node_class):
        """Return a launch request as the core makes it."""
        requirements = Requirements.from_specs(claim.spec.requirements)
        wanted = requirements.get(INSTANCE_TYPE)
        kept = [it for it in self.types(node_class).values() if wanted.has(it.name)]
        ordered = order_by_price(kept, requirements, well_known=LABEL_CLASSES.well_known)
        return LaunchRequest(node_claim=claim, node_class=node_class, instance_types=ordered)

    def launch(self, *claims, node_class):
        """Launch for claims that the core hands over together."""
        types = {}
        requests = []
        for claim in claims:
            request = self.request(claim, node_class)
            kept = types.setdefault(
                (claim.spec.requirements,), request.instance_types
            )  # claims of one wave have the very same types
            requests.append(
                LaunchRequest(node_claim=claim, node_class=node_class, instance_types=kept)
            )
        return self.launcher.launch(requests)

    def launch_one(self, claim, node_class):
        (outcome,) = self.launch(claim, node_class=node_class)
        return outcome

    def write_down(self, claim, provider_id):
        """Have a claim's status name its instance, as the core writes it."""
        status = claim.status.model_copy(update={"provider_id": provider_id})
        self.claims[claim.name] = claim.model_copy(update={"status": status})


def node_class_of(aws, clients, *, status=None, generation=1, condition=None, subnets=None, **spec):
    """Return a NodeClass of the ready world that can be launched."""
    profile = "nodes"
    if profile not in aws.profiles.all():
        clients.iam.create_instance_profile(InstanceProfileName=profile)
    image = min(
        image.id
        for image in aws.images.all
        if image.architecture == "x86_64" and "al2023" in image.name and not image.windows
    )
    zone_ids = {"a": "use1-az1", "b": "use1-az2", "c": "use1-az3"}
    found = subnets or [
        {"id": subnet, "zone": zone, "zoneID": zone_ids[zone[-1]]}
        for zone, subnet in sorted(aws.world.subnets.items())
    ]
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": generation}
    return EC2NodeClass.model_validate(
        {
            "metadata": {
                "name": "default",
                "uid": "uid-of-class",
                "generation": generation,
                "resourceVersion": "1",
            },
            "spec": {"amiFamily": "AL2023", "role": aws.world.role, **spec},
            "status": {
                "subnets": found,
                "securityGroups": [{"id": aws.world.security_group_id, "name": "nodes"}],
                "amis": [{"id": image, "name": "al2023", "requirements": []}],
                "instanceProfile": profile,
                "conditions": [{**ready, **(condition or {})}],
                **(status or {}),
            },
        }
    )


def claim_of(
    name, *requirements, pool="web", requests=None, annotations=None, labels=None, uid=None
):
    """Return a NodeClaim; each requirement is a key and its values."""
    metadata = ObjectMeta(
        name=name,
        uid=uid or f"uid-of-{name}",
        labels={NODE_POOL: pool, **(labels or {})},
        annotations=annotations or {},
    )
    return NodeClaim.model_validate(
        {
            "metadata": metadata.model_dump(mode="json", by_alias=True, exclude_none=True),
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.k8s.aws",
                    "kind": "EC2NodeClass",
                    "name": "default",
                },
                "requirements": [
                    {"key": key, "operator": "In", "values": list(values)}
                    if key != "minValues"
                    else values[0]
                    for key, *values in requirements
                ],
                "resources": {"requests": requests or {"cpu": "1"}},
            },
        }
    )


ON_DEMAND = (CAPACITY_TYPE, "on-demand")
SPOT = (CAPACITY_TYPE, "spot")


def launched_claim(claim, outcome):
    """Return the claim as the core completes it."""
    status = claim.status.model_copy(
        update={"provider_id": outcome.provider_id, "image_id": outcome.image_id}
    )
    labels = {**claim.metadata.labels, **outcome.labels, INSTANCE_TYPE: outcome.instance_type}
    metadata = claim.metadata.model_copy(update={"labels": labels})
    return claim.model_copy(update={"status": status, "metadata": metadata})


def node_of(outcome, name="ip-10-0-0-1"):
    """Return the Node of an instance."""
    return NodeView(name=name, uid=f"uid-of-{name}", provider_id=outcome.provider_id)
