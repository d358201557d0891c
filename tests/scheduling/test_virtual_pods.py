"""Virtual pods: placed after real ones, told apart in plans, and kept through what-ifs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from karpenter_core.api.records import LOWEST_PRIORITY, VirtualSource
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.virtual_pods import (
    VirtualPlacement,
    virtual_placements,
    without_virtual_pods,
)
from karpenter_core.scheduling.whatif.what_if import WhatIf
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    offering,
    pod,
    problem,
)
from tests.verifier import violations

SMALL = instance_type("small", cpu="2", memory="8Gi", overhead={}, offerings=[offering(price=0.1)])
LARGE = instance_type("large", cpu="8", memory="32Gi", overhead={}, offerings=[offering(price=0.9)])
TYPES = catalogue(SMALL, LARGE)
PACKINGS = [SolveOptions(packing=packing) for packing in PackingPolicy]


def source(name="headroom"):
    return VirtualSource(
        api_version="autoscaling.x-k8s.io/v1beta1",
        kind="CapacityBuffer",
        namespace="web",
        name=name,
        uid=f"uid-{name}",
    )


def virtual_pods(count, *, name="headroom", priority=LOWEST_PRIORITY, **asked):
    shape = pod("template", **asked).shape
    shape = msgspec.structs.replace(shape, virtual_source=source(name), priority=priority)
    return [
        msgspec.structs.replace(pod(f"capacity-buffer-{name}-{n}"), shape=shape)
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize("options", PACKINGS, ids=lambda options: options.packing)
def test_real_pods_precede_virtual_pods(options):
    """Though the virtual ones are larger, and so would be placed first."""
    node = existing_node("node-1", cpu="2", memory="8Gi")
    asked = replace(
        problem([pod("web", cpu="1500m"), *virtual_pods(1, cpu="1800m")], catalogue=TYPES),
        nodes=(node,),
    )

    plan = solve(asked, options)

    assert [item.name for item in plan.existing["node-1"]] == ["web"]
    assert [[item.is_virtual for item in claim.pods] for claim in plan.claims] == [[True]]


@pytest.mark.parametrize("options", PACKINGS, ids=lambda options: options.packing)
def test_real_pods_precede_buffers_near_a_limit(options):
    """Virtual pods stay without a node, and no real one does."""
    pool = node_pool("default", limits={"cpu": "4"})
    real = [pod(f"web-{n}", cpu="1500m") for n in range(2)]
    asked = problem([*virtual_pods(3, cpu="2"), *real], pools=[pool], catalogue=TYPES)

    plan = solve(asked, options)

    placed = {item.name for claim in plan.claims for item in claim.pods}
    assert placed >= {"web-0", "web-1"}
    assert all(uid.startswith(("capacity-buffer", "uid")) for uid in plan.unschedulable)
    assert len(plan.unschedulable) == 3
    assert violations(asked, plan) == []


def test_virtual_pods_share_the_new_nodes_of_real_pods():
    asked = problem([pod("web", cpu="1"), *virtual_pods(1, cpu="900m")], catalogue=TYPES)

    plan = solve(asked)

    assert [len(claim.pods) for claim in plan.claims] == [2]


def test_a_plan_without_its_virtual_pods_keeps_claims_and_drops_untouched_nodes():
    virtual = virtual_pods(4, cpu="1800m")
    nodes = (existing_node("node-1", cpu="2", memory="8Gi"),)
    asked = replace(problem([pod("web", cpu="1500m"), *virtual], catalogue=TYPES), nodes=nodes)
    plan = solve(asked)

    real = without_virtual_pods(plan, {item.uid for item in virtual})

    assert {name: [p.name for p in pods] for name, pods in real.existing.items()} == {
        "node-1": ["web"]
    }
    assert len(real.claims) == len(plan.claims)
    assert [claim.pods for claim in real.claims] == [()] * len(plan.claims)
    assert real.sequence == (asked.pods[0].uid,)
    assert without_virtual_pods(plan, ()) is plan


def test_the_places_of_each_source_are_counted():
    """On existing nodes, on new ones, on none; claims that were refused count as none."""
    one, other = virtual_pods(2, cpu="1"), virtual_pods(2, name="other", cpu="100")
    nodes = (existing_node("node-1", cpu="1", memory="8Gi"),)
    plan = solve(replace(problem([*one, *other], catalogue=TYPES), nodes=nodes))
    declared = {source(): tuple(one), source("other"): tuple(other), source("none"): ()}

    assert virtual_placements(plan, declared) == {
        source(): VirtualPlacement(wanted=2, on_existing=1, on_new=1, failed=0),
        source("other"): VirtualPlacement(wanted=2, failed=2, on_existing=0, on_new=0),
    }
    refused = virtual_placements(plan, declared, refused=[0])
    assert refused[source()] == VirtualPlacement(wanted=2, on_existing=1, failed=1, on_new=0)


def test_a_node_is_not_removed_for_nothing_when_virtual_pods_are_on_it():
    """The other node has no room for them, so that they need a new one."""
    free = existing_node("free", cpu="2", memory="8Gi")
    full = existing_node("full", cpu="500m", memory="8Gi")
    asked = replace(problem(virtual_pods(1, cpu="1"), catalogue=TYPES), nodes=(free, full))

    whatif = WhatIf(asked, {})

    assert not whatif.evaluate(["free"], max_claims=0).is_possible
    assert [len(claim.pods) for claim in whatif.evaluate(["free"]).claims] == [1]
    assert whatif.evaluate(["full"]).fits


def test_virtual_pods_of_high_priority_are_placed_like_real_ones():
    """Only those of the lowest priority give way."""
    node = existing_node("node-1", cpu="2", memory="8Gi")
    asked = replace(
        problem(
            [pod("web", cpu="1500m"), *virtual_pods(1, cpu="1800m", priority=0)], catalogue=TYPES
        ),
        nodes=(node,),
    )

    plan = solve(asked)

    assert [item.is_virtual for item in plan.existing["node-1"]] == [True]


def test_pods_that_are_neither_placed_nor_failed_are_undecided():
    placement = VirtualPlacement(wanted=20, on_existing=1, on_new=3, failed=5)
    assert placement.undecided == 11
