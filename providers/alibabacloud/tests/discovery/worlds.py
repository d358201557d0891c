"""NodeClasses, and readers of the simulated cloud, for tests of discovery and of NodeClasses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.base import ObjectMeta
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass, ECSNodeClassSpec
from karpenter_provider_alibabacloud.discovery.cluster import Clusters
from karpenter_provider_alibabacloud.discovery.images import Images
from karpenter_provider_alibabacloud.discovery.reservations import Reservations
from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroups
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitches
from providers.alibabacloud.tests.hand_clock import HandClock

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.sdk import Clients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


class Readers:
    """All readers of one process, with the clock that their caches go by."""

    def __init__(
        self, cloud: SimulatedAlibabaCloud, clients: Clients, *, cluster_type: str = "ACKManaged"
    ) -> None:
        self.clock = HandClock()
        self.cluster = Clusters(
            clients, self.clock, cluster_id=cloud.world.cluster, cluster_type=cluster_type
        )
        self.vswitches = VSwitches(clients, self.clock)
        self.security_groups = SecurityGroups(clients, self.clock)
        self.images = Images(clients, self.clock, self.cluster)
        self.reservations = Reservations(clients, self.clock)


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
