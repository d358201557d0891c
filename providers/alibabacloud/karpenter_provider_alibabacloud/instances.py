"""Makes `ClusterInstances` for ECS, which omits instances that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_provider_alibabacloud.described_instances import VISIBLE_WITHIN
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.instance_terminator import instance_terminator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_core.provider.kit.reservation_counts import ReservationCounts
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["cluster_instances"]


def cluster_instances(
    clients: CloudClients,
    clock: Clock,
    *,
    reader: InstanceReader,
    recent: RecentLaunches,
    owners: InstanceOwners,
    reservation_counts: ReservationCounts,
    on_listed: Callable[[Sequence[DescribedInstance]], None] = lambda _listed: None,
    observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
) -> ClusterInstances[DescribedInstance]:
    """Return the instances of one cluster.

    `on_listed` gets all instances whenever all could be listed, without those whose termination was
    started. `observe_batch` is a method of `AlibabaCloudMetrics`.
    """
    terminator = instance_terminator(clients, clock, observe_batch=observe_batch)
    return ClusterInstances(
        clock,
        service="ECS",
        reader=reader,
        terminator=terminator,
        claims=TaggedClaims(CLAIM_TAGS, owners),
        recent=recent,
        shown_within=VISIBLE_WITHIN,
        reservation_counts=reservation_counts,
        on_listed=lambda listed: on_listed(
            [each for each in listed if not terminator.is_started(each.id)]
        ),
    )
