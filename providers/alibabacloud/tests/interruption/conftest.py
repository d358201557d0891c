"""Fixtures: a cluster, and what listens for the end of its instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.provider.kit.unavailable import OfferingMark, UnavailableOfferings
from karpenter_provider_alibabacloud.instances import Instances
from karpenter_provider_alibabacloud.interruption.announcing import Announcing
from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings
from providers.alibabacloud.tests.machines.cluster_world import TYPE, ZONE_B, World

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.provider.contract import Interruption
    from karpenter_provider_alibabacloud.sdk import Clients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


class Listening(World):
    """A process that listens."""

    def restart(self, **settings: object) -> None:
        super().restart()
        self.offerings = UnavailableOfferings()
        self.announcing = Announcing(
            self.clients,
            self.clock,
            settings=AlibabaCloudSettings(cluster_id=self.cloud.world.cluster, **settings),
            reader=self.reader,
            offerings=self.offerings,
        )
        self.instances = Instances(
            self.clients,
            self.clock,
            reader=self.reader,
            recent=self.recent,
            owners=self.owners,
            availability=self.availability,
            on_listed=self.announcing.note_listed,
        )

    def poll(self) -> tuple[Interruption, ...]:
        """Have every source look once; return what is announced."""
        self.instances.list()
        for task in self.announcing.tasks():
            task.run()
        return self.announcing.poll()

    def acknowledge(self, *said: Interruption) -> None:
        self.announcing.acknowledge([each.id for each in said])

    def is_marked(self, capacity_type: str = "spot", *, after: timedelta | None = None) -> bool:
        """Whether machines are marked as sold out, now or later."""
        now = self.clock.now() if after is None else self.clock.now() + after
        return OfferingMark(TYPE, ZONE_B, capacity_type) in self.offerings.view(now=now).offerings


@pytest.fixture
def world(cloud: SimulatedAlibabaCloud, clients: Clients) -> Listening:
    return Listening(cloud, clients)
