"""The mix of workloads has the pods that were asked for, and figures are compared by ratios."""

from __future__ import annotations

import pytest

from benchmarks.mixed_scale_up import ScaleUp, medians, summary, workloads

ZONES = ["a", "b", "c"]


@pytest.mark.parametrize("pods", [8, 160, 1001])
def test_eight_deployments_share_all_pods(pods):
    made = workloads(pods, ZONES)
    assert sum(each.replicas for each in made) == pods
    assert len({(each.cpu, each.memory) for each in made}) == len(made) == 8
    assert max(each.replicas for each in made) - min(each.replicas for each in made) <= 1


def test_spreads_count_the_pods_of_their_own_deployment():
    made = {each.name: each.manifest() for each in workloads(80, ZONES)}
    spread = {
        name: term
        for name, manifest in made.items()
        for term in manifest["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    }
    assert set(spread) == {"zone-small", "zone-large", "hostname"}
    for name, term in spread.items():
        assert term["labelSelector"] == made[name]["spec"]["selector"]


def scale_up(seconds):
    return ScaleUp(
        all_bound_seconds=seconds,
        nodes=3,
        price_per_hour=2.0,
        cpu_seconds=1.0,
        memory_mib=100.0,
        calls=10,
    )


def test_medians_are_compared_with_floor_and_peer():
    ours = medians([scale_up(9.0), scale_up(6.0), scale_up(7.0)])
    lines = summary({"karpenter-core": ours, "Karpenter": medians([scale_up(14.0)])}, 4.0)
    assert lines[0].startswith("karpenter-core: all_bound_seconds 7.00")
    assert "karpenter-core takes 1.75 x it" in lines[2]
    assert lines[3].startswith(
        "karpenter-core beside Karpenter: all_bound_seconds 0.50 x, nodes 1.00 x"
    )
