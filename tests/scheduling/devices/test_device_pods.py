"""Pods with ResourceClaims get nodes that have the devices."""

from __future__ import annotations

from karpenter_core.testing.builders import pod

from tests.scheduling.devices.builders import (
    claim,
    device_pod,
    devices_of,
    gpu_type,
    gpus,
    planned,
    reason,
    request,
)

PLAIN = gpu_type("a-plain")
ONE = gpu_type("b-one", devices_of(*gpus(1)))
TWO = gpu_type("c-two", devices_of(*gpus(2)))


def test_a_claim_lists_only_types_with_the_device():
    plan = planned([device_pod("p", "gpu")], [PLAIN, ONE, TWO], claim("gpu"))
    (made,) = plan.claims
    assert set(made.instance_types) == {"b-one", "c-two"}
    assert made.device_drivers == ("gpu.example.com",)


def test_two_pods_share_a_claim_and_the_third_opens_another():
    claims = [claim(f"gpu-{n}") for n in range(3)]
    plan = planned([device_pod(f"p-{n}", f"gpu-{n}") for n in range(3)], [PLAIN, ONE, TWO], *claims)
    assert [len(one.pods) for one in plan.claims] == [2, 1]
    assert plan.claims[0].instance_types == ("c-two",)
    assert set(plan.claims[1].instance_types) == {"b-one", "c-two"}


def test_no_type():
    plan = planned([device_pod("p", "gpu")], [PLAIN], claim("gpu"))
    assert not plan.claims
    print(reason(plan, "p"))
    plan = planned([device_pod("p", "gpu")], [ONE], claim("gpu", request(count=2)))
    print(reason(plan, "p"))
    plan = planned([device_pod("p", "gpu")], [ONE])
    print(reason(plan, "p"))
    plan = planned([device_pod("p", "gpu"), pod("q")], [ONE], claim("gpu"))
    assert len(plan.claims) == 1 and len(plan.claims[0].pods) == 2
