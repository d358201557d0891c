"""Pods of DaemonSets take devices of nodes that are still to come."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from karpenter_core.scheduling.problem import DaemonPod
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    pod_shape,
    problem,
)
from tests.scheduling.devices.builders import (
    claim,
    device_class,
    device_pod,
    devices_of,
    gpu_type,
    gpus,
    inventory,
    reason,
    request,
)

PLAIN = gpu_type("a-plain")
ONE = gpu_type("b-one", devices_of(*gpus(1)))
TWO = gpu_type("c-two", devices_of(*gpus(2)))
FOUR = gpu_type("d-four", devices_of(*gpus(4)))
TYPES = (PLAIN, ONE, TWO, FOUR)


def agent(name="default/agent", **shape):
    return DaemonPod(name=name, shape=pod_shape(cpu="10m", owner_kind="DaemonSet", **shape))


def planned(*pods, claims, taken, daemons=None, types=TYPES, nodes=(), **fields):
    """Solve a problem in which the DaemonSet takes what these requests say."""
    asked = problem(pods, catalogue=catalogue(*types), daemons=daemons or [agent()], nodes=nodes)
    held = replace(
        inventory(*claims, **fields),
        daemon_claims={"default/agent": (claim("agent", *taken),)},
        expected_daemons={node.name: frozenset({"default/agent"}) for node in nodes},
    )
    return solve(replace(asked, devices=held))


def types_of(plan):
    (made,) = plan.claims
    return set(made.instance_types)


def test_a_new_node_has_devices_for_its_daemons_too():
    """Else the daemon may take the one for which the node is launched, again and again."""
    plan = planned(device_pod("training", "gpu"), claims=[claim("gpu")], taken=[request()])
    assert types_of(plan) == {"c-two", "d-four"}


def test_pods_share_what_the_daemons_of_a_node_leave():
    pods = [device_pod(f"training-{number}", f"gpu-{number}") for number in range(4)]
    claims = [claim(f"gpu-{number}") for number in range(4)]
    plan = planned(*pods, claims=claims, taken=[request()], types=(FOUR,))
    assert sorted(len(made.pods) for made in plan.claims) == [1, 3]


@pytest.mark.parametrize(
    "taken",
    [
        [request(admin_access=True)],
        [request(count=5)],
        [request(device_class="other.example.com")],
    ],
    ids=["watches", "does not run there", "of another class"],
)
def test_devices_that_no_daemon_takes_are_for_pods(taken):
    """A daemon without devices does not run; one with administrative access shares them."""
    other = device_class("other.example.com", 'device.driver == "other.example.com"')
    plan = planned(
        device_pod("training", "gpu"),
        claims=[claim("gpu")],
        taken=taken,
        classes=(device_class(), other),
    )
    assert types_of(plan) == {"b-one", "c-two", "d-four"}


def test_a_daemon_takes_devices_only_where_it_runs():
    elsewhere = agent(node_selector={"node.kubernetes.io/instance-type": "c-two"})
    plan = planned(
        device_pod("training", "gpu"), claims=[claim("gpu")], taken=[request(count=2)],
        daemons=[elsewhere],
    )  # fmt: skip
    assert types_of(plan) == {"b-one", "d-four"}


def test_a_pod_without_devices_learns_which_daemons_have_them():
    plan = planned(
        device_pod("training", "gpu"), claims=[claim("gpu")], taken=[request()], types=(ONE,)
    )
    assert not plan.claims
    assert reason(plan, "training").endswith("; DaemonSets take some: default/agent")


def test_a_daemon_whose_claim_is_not_supported_leaves_nothing_certain():
    odd = msgspec.structs.replace(claim("agent"), unsupported="a strange field")
    asked = problem([device_pod("training", "gpu")], catalogue=catalogue(*TYPES), daemons=[agent()])
    held = replace(inventory(claim("gpu")), daemon_claims={"default/agent": (odd,)})
    plan = solve(replace(asked, devices=held))
    assert not plan.claims
    assert 'daemonset "default/agent"' in reason(plan, "training")
    assert "a strange field" in reason(plan, "training")


@pytest.mark.parametrize(("devices", "is_taken"), [(ONE, False), (TWO, True)])
def test_a_starting_node_keeps_devices_for_daemons_that_are_to_come(devices, is_taken):
    node = existing_node("starting", initialized=False)
    plan = planned(
        device_pod("training", "gpu"),
        claims=[claim("gpu")],
        taken=[request()],
        nodes=[node],
        types=(instance_type("plain"),),
        node_types={"starting": (devices.devices,)},
    )
    assert ("starting" in plan.existing) == is_taken
