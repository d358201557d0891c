"""The metrics of a claim that is deleted for a reason."""

from __future__ import annotations

from msgspec.structs import replace

from karpenter_core.lifecycle.changes import LifecycleMetric
from karpenter_core.lifecycle.nodeclaim.disruption_metrics import disrupted_metrics
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import node_and_claim, synced_state


def counted(*pods):
    its_node, claim = node_and_claim("web", capacity_type="spot")
    snapshot = synced_state(its_node, claim, *pods).snapshot()
    metric_updates = disrupted_metrics(snapshot, claim, "expired")
    assert all(
        (each.labels["reason"], each.labels["nodepool"], each.labels["capacity_type"])
        == ("expired", "default", "spot")
        for each in metric_updates
    )
    return {each.metric: each.value for each in metric_updates}


def test_the_claim_is_counted_once_and_its_pods_that_will_need_another_place():
    """Not those that have ended, nor those of other nodes."""
    staying = replace(pod("ended", node_name="web"), phase="Succeeded")
    pods = [pod(f"web-{n}", node_name="web", phase="Running") for n in range(3)]
    elsewhere = pod("other", node_name="elsewhere", phase="Running")

    assert counted(*pods, staying, elsewhere) == {
        LifecycleMetric.NODECLAIMS_DISRUPTED: 1.0,
        LifecycleMetric.PODS_DISRUPTION_INITIATED: 3,
    }


def test_a_node_without_pods_counts_none():
    assert counted()[LifecycleMetric.PODS_DISRUPTION_INITIATED] == 0
