"""Pods without ResourceClaims on nodes that are planned for pods with some."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from karpenter_core.api.labels import ARCH
from karpenter_core.scheduling.problem import DaemonPod
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    node_pool,
    pod,
    pod_shape,
    problem,
    requirement_spec,
)
from tests.scheduling.acceptance.workloads import TEST, spread
from tests.scheduling.devices.builders import (
    ZONE,
    claim,
    device_pod,
    devices_of,
    gpu_type,
    gpus,
    inventory,
)
from tests.verifier import violations

ALL = {}
"""The labels of a selector that counts every pod."""


def asked_for(pods, *types, **fields):
    """Make a problem of pods beside one that has a claim, `trains`."""
    pods = [device_pod("trains", "gpu", cpu="1"), *pods]
    asked = problem(pods, catalogue=catalogue(*types), **fields)
    return replace(asked, devices=inventory(claim("gpu")))


def spread_pod(name, *constraints, **fields):
    made = pod(name, **fields)
    shape = msgspec.structs.replace(made.shape, topology_spread=constraints)
    return msgspec.structs.replace(made, shape=shape)


def gpu_sold_in(*zones, **options):
    return gpu_type("gpu", devices_of(*gpus(1)), zones=zones, **options)


def test_a_pod_does_not_share_the_node_if_a_daemon_there_will_take_its_port():
    daemon = DaemonPod(name="ds", shape=pod_shape(host_ports=[9090]))
    asked = asked_for(
        [pod("web", host_ports=[9090]), pod("other")], gpu_sold_in("zone-a"), daemons=[daemon]
    )

    plan = solve(asked)

    assert [uid.removeprefix("uid-default-") for uid in plan.unschedulable] == ["web"]
    assert violations(asked, plan) == []


def test_a_pod_that_a_spread_counts_does_not_share_a_node_whose_zone_is_open():
    """The node of `trains` may be bought in any zone, as nothing counts it."""
    zones = ("zone-a", "zone-b", "zone-c")
    counted = [spread_pod(f"web-{n}", spread(ZONE), labels=TEST, cpu="3") for n in range(2)]
    asked = asked_for(
        [*counted, pod("counted", labels=TEST, cpu="1")],
        gpu_sold_in(*zones),
        gpu_type("plain", zones=zones),
    )

    plan = solve(asked)

    assert not plan.unschedulable
    assert violations(asked, plan) == []


def test_a_counted_pod_with_a_spread_of_its_own_does_not_share_such_a_node_either():
    """Its own constraint is met there; the other one counts it in a zone that is open."""
    zones = ("zone-a", "zone-b", "zone-c")
    counted = [spread_pod(f"web-{n}", spread(ZONE), labels=TEST, cpu="3") for n in range(2)]
    asked = asked_for(
        [*counted, spread_pod("counted", spread(ARCH), labels=TEST, cpu="1")],
        gpu_sold_in(*zones),
        gpu_type("plain", zones=zones),
        pools=[node_pool(requirements=[requirement_spec(ARCH, "In", "amd64")])],
    )

    plan = solve(asked)

    assert not plan.unschedulable
    assert violations(asked, plan) == []


def test_a_spread_counts_the_pods_of_a_node_that_is_sold_in_the_one_zone_of_its_selector():
    """A claim need not name a zone that all of its instance types have in common."""
    web = spread_pod("web", spread(ARCH, of=ALL), node_selector={ZONE: "zone-a"}, cpu="3500m")
    asked = asked_for(
        [web],
        gpu_sold_in("zone-a", arch="arm64"),
        gpu_type("plain", zones=("zone-a",), price=0.2),
        gpu_type("plain-arm", zones=("zone-a",), arch="arm64", price=0.1),
    )

    plan = solve(asked)

    assert archs_of(plan, "web") == {"amd64"}
    assert violations(asked, plan) == []


def test_a_spread_counts_the_pods_of_a_node_that_has_the_labels_of_its_other_constraints():
    """Whatever the zone: kube-scheduler leaves out only nodes that lack one of the labels."""
    zones = ("zone-a", "zone-b")
    web = spread_pod("web", spread(ARCH, of=ALL), spread(ZONE), labels=TEST, cpu="3500m")
    asked = asked_for(
        [web],
        gpu_sold_in(*zones, arch="arm64"),
        gpu_type("plain", zones=zones, price=0.2),
        gpu_type("plain-arm", zones=zones, arch="arm64", price=0.1),
    )

    plan = solve(asked)

    assert archs_of(plan, "web") == {"amd64"}
    assert violations(asked, plan) == []


def archs_of(plan, pod_name):
    (made,) = [one for one in plan.claims if pod_name in {placed.name for placed in one.pods}]
    return {value for one in made.requirements if one.key == ARCH for value in one.values}
