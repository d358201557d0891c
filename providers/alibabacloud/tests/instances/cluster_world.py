"""A cluster's instances in the simulated cloud, as launches leave them, and one process that looks after
them; its clock is the cloud's."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, REGISTERED, ZONE
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.provider.contract import Instance, LaunchedInstance
from karpenter_core.provider.kit.instance_owners import InstanceOwners
from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunch, RecentLaunches
from karpenter_core.provider.kit.reservation_counts import ReservationCounts
from karpenter_provider_alibabacloud.described_instances import InstanceReader, instance_id_in
from karpenter_provider_alibabacloud.instance_tags import (
    CLAIM_TAGS,
    owned_tags,
    to_tag_list,
)
from karpenter_provider_alibabacloud.instances import cluster_instances

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_provider_alibabacloud.described_instances import DescribedInstance
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

TYPE = "ecs.g7.large"
ZONE_B = "cn-hangzhou-b"


@dataclass
class CloudClock:
    """The time in the cloud."""

    cloud: SimulatedAlibabaCloud

    def now(self) -> datetime:
        return self.cloud.time()

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        self.forward(seconds)

    def forward(self, seconds: float) -> None:
        self.cloud.time.advance(seconds)


class World:
    """The cloud, and the parts of one process."""

    def __init__(self, cloud: SimulatedAlibabaCloud, clients: CloudClients) -> None:
        self.cloud, self.clients = cloud, clients
        self.clock = CloudClock(cloud)
        self.nodes: dict[str, NodeView] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.restart()

    def restart(self) -> None:
        """Begin anew as a process that knows nothing of the last."""
        self.recent = RecentLaunches(self.clock)
        self.owners = InstanceOwners(
            partial(instance_id_in, self.cloud.account.region),
            recent=self.recent,
            read_claims=lambda: self.claims,
        )
        self.reservation_counts = ReservationCounts(self.clock)
        self.batches: list[int] = []
        self.listings: list[tuple[DescribedInstance, ...]] = []
        self.reader = InstanceReader(self.clients, cluster_id=self.cloud.world.cluster)
        self.instances = cluster_instances(
            self.clients,
            self.clock,
            reader=self.reader,
            recent=self.recent,
            owners=self.owners,
            reservation_counts=self.reservation_counts,
            on_listed=lambda listed: self.listings.append(tuple(listed)),
            observe_batch=lambda _name, size: self.batches.append(size),
        )

    def launch(
        self,
        *names: str,
        user_tags: Mapping[str, str] | None = None,
        remembered: bool = False,
        instance_type: str = TYPE,
        **more: object,
    ) -> list[str]:
        """Launch one instance for each claim, all in one group; return their provider IDs."""
        claims = [ClaimRef(name=name, uid=f"uid-of-{name}") for name in names]
        tags = owned_tags(
            user_tags or {},
            cluster_id=self.cloud.world.cluster,
            node_class="default",
            node_pool="web",
        )
        tags |= CLAIM_TAGS.tags_for(claims, node_pool="web", other_tags=len(tags))
        ids = self.run(len(names), tags, instance_type=instance_type, **more)
        provider_ids = [f"{self.cloud.account.region}.{name}" for name in ids]
        if remembered:
            for name, claim, provider_id in zip(
                sorted(ids), sorted(claims, key=lambda c: c.uid), sorted(provider_ids), strict=True
            ):
                instance = Instance(
                    provider_id=provider_id,
                    node_claim=claim.name,
                    token=claim.uid,
                    instance_type=instance_type,
                    zone=ZONE_B,
                    capacity_type="on-demand",
                    created=self.clock.now(),
                )
                outcome = LaunchedInstance(
                    provider_id=provider_id,
                    instance_type=instance_type,
                    zone=ZONE_B,
                    capacity_type="on-demand",
                    capacity={},
                    allocatable={},
                )
                self.recent.add(
                    RecentLaunch(instance_id=name, owner=claim, instance=instance, outcome=outcome)
                )
        return sorted(provider_ids)

    def run(
        self, count: int, tags: Mapping[str, str], *, instance_type: str = TYPE, **more: object
    ) -> list[str]:
        """Call RunInstances, as often as so many instances need."""
        image = next(each.id for each in self.cloud.images.all if each.architecture == "x86_64")
        ids: list[str] = []
        while count > len(ids):
            answer: Mapping[str, Any] = self.clients.ecs.call(
                "RunInstances",
                {
                    "RegionId": self.cloud.account.region,
                    "InstanceType": instance_type,
                    "ImageId": image,
                    "VSwitchId": self.cloud.world.vswitches[ZONE_B],
                    "SecurityGroupIds": [self.cloud.world.security_group_id],
                    "UserData": b64encode(b"#!/bin/sh\n").decode(),
                    "Amount": min(100, count - len(ids)),
                    "Tag": to_tag_list(tags),
                    **more,
                },
            )
            ids += answer["InstanceIdSets"]["InstanceIdSet"]
        return ids

    def join(self, provider_id: str, *, spot: bool = False, **fields: object) -> NodeView:
        """Have an instance's Node registered."""
        name = f"node-{provider_id.rpartition('.')[2]}"
        labels = {
            NODE_POOL: "web",
            INSTANCE_TYPE: TYPE,
            ZONE: ZONE_B,
            CAPACITY_TYPE: "spot" if spot else "on-demand",
            REGISTERED: "true",
        }
        node_fields: dict[str, Any] = {"labels": labels, **fields}
        self.nodes[name] = NodeView(uid=name, name=name, provider_id=provider_id, **node_fields)
        return self.nodes[name]

    def read_nodes(self) -> Mapping[str, NodeView]:
        return MappingProxyType(self.nodes)

    def claim(self, name: str, provider_id: str, **labels: str) -> NodeClaim:
        """Return a claim as the core completes it after its launch."""
        instance = self.cloud.instance(provider_id)
        known = {NODE_POOL: "web", INSTANCE_TYPE: TYPE, CAPACITY_TYPE: "on-demand"}
        metadata = ObjectMeta(name=name, uid=f"uid-of-{name}", labels={**known, **labels})
        return NodeClaim.model_validate(
            {
                "metadata": metadata.model_dump(mode="json", by_alias=True, exclude_none=True),
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.k8s.alibabacloud",
                        "kind": "ECSNodeClass",
                        "name": "default",
                    }
                },
                "status": {"providerID": provider_id, "imageID": instance.image_id},
            }
        )


SPOT: Mapping[str, object] = {"SpotStrategy": "SpotAsPriceGo"}
