"""Simulated moves free the devices of the pods that move."""

from __future__ import annotations

from dataclasses import replace

from karpenter_core.scheduling.whatif.what_if import WhatIf, WhatIfOutcome
from karpenter_core.testing.builders import catalogue, existing_node, pod, problem
from tests.scheduling.devices.builders import (
    allocated,
    claim,
    device_pod,
    devices_of,
    gpu_type,
    gpus,
    inventory,
    resource_slice,
)

PLAIN = gpu_type("plain", cpu="2")
ONE = gpu_type("one", devices_of(*gpus(1)))


def question(*, free_devices=0, types=(PLAIN, ONE), pending=(), claims=()):
    """A node with a pod that has its device, and another node with some free devices."""
    mover = device_pod("mover", "held", node_name="old", phase="Running")
    old = existing_node("old", pool="default", bound=[mover])
    other = existing_node("other", pool="default")
    held = allocated("held", "gpu-0", pool="old", node="old", consumers=(mover.uid,))
    slices = [resource_slice(*gpus(1), node="old")]
    if free_devices:
        slices.append(resource_slice(*gpus(free_devices), node="other"))
    asked = problem(pending, catalogue=catalogue(*types), nodes=[old, other])
    asked = replace(asked, devices=inventory(held, *claims, slices=slices))
    return WhatIf(asked, {"old": {mover.uid}, "other": set()})


def test_a_pod_moves_to_a_node_with_a_free_device():
    verdict = question(free_devices=1).evaluate(["old"])
    assert verdict.outcome is WhatIfOutcome.FITS
    assert [one.name for one in verdict.moves["other"]] == ["mover"]
    assert verdict.sequence == ("uid-default-mover",)


def test_a_pod_needs_a_new_node_with_a_device_where_none_is_free():
    verdict = question().evaluate(["old"])
    assert verdict.outcome is WhatIfOutcome.CLAIMS
    assert [made.instance_types for made in verdict.claims] == [("one",)]
    assert question().evaluate(["old"], max_claims=0).outcome is WhatIfOutcome.TOO_MANY
    assert question().evaluate(["old"], below_price=0.0).outcome is WhatIfOutcome.TOO_DEAR
    assert question().evaluate(["old"], max_claims=1).outcome is WhatIfOutcome.CLAIMS
    cost = verdict.cost_per_hour
    assert question().evaluate(["old"], below_price=cost).outcome is WhatIfOutcome.TOO_DEAR
    assert question().evaluate(["old"], below_price=2 * cost).outcome is WhatIfOutcome.CLAIMS


def test_a_node_stays_if_nothing_has_a_device_for_its_pod():
    verdict = question(types=(PLAIN,)).evaluate(["old"])
    assert verdict.outcome is WhatIfOutcome.LEFT
    assert [one.name for one in verdict.left] == ["mover"]


def test_devices_for_waiting_pods_are_not_given_to_moving_ones():
    asked = question(free_devices=1, pending=[device_pod("waits", "new")], claims=[claim("new")])
    assert asked.evaluate(["old"]).outcome is WhatIfOutcome.CLAIMS


def test_nodes_with_devices_are_not_removed_together_with_others():
    asked = question(free_devices=1)
    assert not asked.push(["old"]).fits
    assert asked.push(["other"]).fits


def test_other_pods_move_as_always():
    moving = pod("plain", node_name="old", phase="Running")
    nodes = [
        existing_node("old", pool="default", bound=[moving]),
        existing_node("other", pool="default"),
    ]
    asked = replace(problem([], nodes=nodes), devices=inventory())
    assert WhatIf(asked, {"old": {moving.uid}}).evaluate(["old"]).fits
