"""NodeClasses, and readers of the simulated cloud, for tests of discovery and of NodeClasses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.base import ObjectMeta
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, ECSNodeClassSpec
from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
from karpenter_provider_alibabacloud.discovery.images import ImageReader
from karpenter_provider_alibabacloud.discovery.reservations import ReservationReader
from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroupReader
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader
from providers.alibabacloud.tests.manual_clock import HandClock

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


class Readers:
    """All readers of one process, with the clock that their caches go by."""

    def __init__(
        self,
        cloud: SimulatedAlibabaCloud,
        clients: CloudClients,
        *,
        cluster_type: str = "ACKManaged",
    ) -> None:
        self.clock = HandClock()
        self.cluster = ClusterReader(
            clients, self.clock, cluster_id=cloud.world.cluster, cluster_type=cluster_type
        )
        self.vswitches = VSwitchReader(clients, self.clock)
        self.security_groups = SecurityGroupReader(clients, self.clock)
        self.images = ImageReader(clients, self.clock, self.cluster)
        self.reservations = ReservationReader(clients, self.clock)


def node_class_of(cloud: SimulatedAlibabaCloud, **spec: object) -> ECSNodeClass:
    """Return a NodeClass that finds the world's network, and ContainerOS; `spec` as in YAML."""
    tags = {"tags": dict(cloud.world.discovery)}
    whole = {
        "vSwitchSelectorTerms": [tags],
        "securityGroupSelectorTerms": [tags],
        "imageSelectorTerms": [{"alias": "ContainerOS"}],
        **spec,
    }
    return ECSNodeClass(
        metadata=ObjectMeta(name="default", uid="uid-1", generation=1),
        spec=ECSNodeClassSpec.model_validate(whole),
    )
