"""Fixtures: a cluster, and what listens for the end of its instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_provider_alibabacloud.instances import cluster_instances
from karpenter_provider_alibabacloud.interruption.sources import InterruptionSources
from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings
from providers.alibabacloud.tests.instances.cluster_world import TYPE, ZONE_B, World

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.provider.contract import Interruption
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


class ListeningProcess(World):
    """A process that listens."""

    def restart(self, **settings: object) -> None:
        super().restart()
        self.offerings = UnavailableOfferings()
        self.interruption_sources = InterruptionSources(
            self.clients,
            self.clock,
            settings=AlibabaCloudSettings(cluster_id=self.cloud.world.cluster, **settings),
            reader=self.reader,
            offerings=self.offerings,
        )
        self.instances = cluster_instances(
            self.clients,
            self.clock,
            reader=self.reader,
            recent=self.recent,
            owners=self.owners,
            reservation_counts=self.reservation_counts,
            on_listed=self.interruption_sources.note_listed,
        )

    def poll(self) -> tuple[Interruption, ...]:
        """Poll every source once; return the announcements."""
        self.instances.list()
        for task in self.interruption_sources.tasks():
            task.run()
        return self.interruption_sources.poll()

    def acknowledge(self, *said: Interruption) -> None:
        self.interruption_sources.acknowledge([each.id for each in said])

    def is_marked(self, capacity_type: str = "spot", *, after: timedelta | None = None) -> bool:
        """Whether instances are marked as sold out, now or later."""
        now = self.clock.now() if after is None else self.clock.now() + after
        return (
            UnavailableOffering(TYPE, ZONE_B, capacity_type)
            in self.offerings.view(now=now).offerings
        )


@pytest.fixture
def world(cloud: SimulatedAlibabaCloud, clients: CloudClients) -> ListeningProcess:
    return ListeningProcess(cloud, clients)
