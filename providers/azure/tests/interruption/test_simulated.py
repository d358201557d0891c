"""Evictions of the simulated Azure, as its Nodes show them."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from karpenter_core.kube.objects import view_from_manifest
from karpenter_core.provider.contract import InterruptionKind
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.interruption.sources import InterruptionSources


class CloudClock:
    def __init__(self, cloud):
        self.cloud = cloud

    def now(self):
        return self.cloud.time()

    def monotonic(self):
        return self.now().timestamp()


def test_an_eviction_is_announced_with_its_time(cloud):
    """# case 129"""
    provider_id = cloud.create_vm("aks-web-1", spot=True)
    cloud.time.advance(300)
    clock, offerings = CloudClock(cloud), UnavailableOfferings()
    sources = InterruptionSources(clock, offerings)

    def node():
        manifest = dict(cloud.node(provider_id))
        labels = {CAPACITY_TYPE: SPOT, INSTANCE_TYPE: "Standard_D4s_v5", ZONE: "westus2-1"}
        metadata = manifest["metadata"] | {"labels": manifest["metadata"]["labels"] | labels}
        return view_from_manifest(manifest | {"metadata": metadata})

    assert not sources.read(node())
    cloud.reclaim(provider_id)

    (found,) = sources.read(node())
    assert found.kind is InterruptionKind.SPOT_RECLAIM
    assert found.provider_id == provider_id
    assert timedelta(seconds=28) <= found.deadline - clock.now() <= timedelta(seconds=31)
    (mark,) = offerings.view(now=clock.now()).offerings
    assert (mark.instance_type, mark.zone, mark.capacity_type) == (
        "Standard_D4s_v5",
        "westus2-1",
        SPOT,
    )
