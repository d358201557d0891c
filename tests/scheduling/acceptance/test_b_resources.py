"""Cases 36 to 38, 42 to 44, 48, 52, 53 and 55: ports, taints, and what pods ask for, in a cluster.

The arithmetic itself is tested where it is written: ports, requests of pods, groups of offerings.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.api.quantities import parse_resources
from karpenter_core.api.records import HostPort, Taint
from karpenter_core.scheduling.instance_types import Overhead
from karpenter_core.state.taints import is_ephemeral
from karpenter_core.testing.builders import taint
from tests.scheduling.acceptance.catalogues import DEFAULT_TYPES, default_pool, fake_type
from tests.scheduling.acceptance.workloads import pod_of


def test_case_036_a_pods_own_port_is_no_conflict(cluster):
    """A pod that moves from a node that goes is counted once, not against itself."""
    pod = cluster.pod(host_ports=[80])
    cluster.provision(pod)
    cluster.terminate(cluster.nodes[0])
    made = cluster.provision()
    (claim,) = made.plan.claims
    assert [item.uid for item in claim.pods] == [pod.uid]


def test_case_036_a_bound_pod_that_changes_keeps_its_node_usable(cluster):
    """Seen again with a new condition, it still holds its port once."""
    pod = cluster.pod(host_ports=[80])
    cluster.provision(pod)
    cluster.change(pod, ready=True)
    other = cluster.pod(host_ports=[81])
    cluster.provision(other)
    assert cluster.node_of(other).name == cluster.node_of(pod).name


@pytest.mark.parametrize(
    ("ports", "nodes"),
    [
        ((HostPort(port=80), HostPort(port=80)), 2),
        ((HostPort(port=80, ip="10.0.0.0"), HostPort(port=80)), 2),
        ((HostPort(port=80, protocol="UDP"), HostPort(port=80)), 1),
        ((HostPort(port=80), HostPort(port=443)), 1),
    ],
    ids=["same", "any address", "other protocol", "other port"],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_case_037_pods_with_one_host_port_go_to_two_nodes(cluster, ports, nodes, batches):
    pods = [cluster.pod(host_ports=[port]) for port in ports]
    if batches == 1:
        cluster.provision(*pods)
    else:
        for pod in pods:
            cluster.provision(pod)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == nodes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node.kubernetes.io/not-ready:NoSchedule", True),
        ("node.kubernetes.io/not-ready:NoExecute", True),
        ("node.kubernetes.io/unreachable:NoSchedule", True),
        ("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule", True),
        ("karpenter.sh/unregistered:NoExecute", True),
        ("readiness.k8s.io/anything:NoSchedule", True),
        ("readiness.k8s.io/anything:NoExecute", True),
        ("readiness.k8s.io/anything:PreferNoSchedule", True),
        ("foo.readiness.k8s.io/anything:NoSchedule", False),
        ("node.kubernetes.io/unreachable:NoExecute", False),
        ("example.com/other:NoSchedule", False),
    ],
)
def test_case_038_ephemeral_taints(text, expected):
    assert is_ephemeral(taint(text)) is expected


def test_case_038_only_key_and_effect_of_an_ephemeral_taint_count():
    key = "node.cloudprovider.kubernetes.io/uninitialized"
    assert is_ephemeral(Taint(key=key, value="", effect="NoSchedule"))


SIDECAR = ("4900m", "2900Mi", "Always")


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_of("p", [("6", "2Gi")], init=[("10", "4Gi"), SIDECAR]), "11-5"),
        (pod_of("p", [("6", "2Gi")], init=[SIDECAR, ("5", "1Gi")]), "11-5"),
        (pod_of("p", [("5", "1Gi")], init=[SIDECAR, ("6", "2Gi")]), "11-5"),
        (
            pod_of(
                "p",
                [("5", "1Gi")],
                init=[("6", "2Gi"), ("4", "2Gi", "Always")],
                resources=("9900m", "3900Mi"),
            ),
            "10-4",
        ),
    ],
    ids=["42", "43-small-init", "43-large-init", "44-pod-level"],
)
def test_case_042_043_044_the_type_that_just_holds_the_pod(cluster, pod, expected):
    types = [
        fake_type(f"{cpu}-{memory}", str(cpu), f"{memory}Gi")
        for cpu, memory in ((10, 4), (11, 5), (12, 6))
    ]
    cluster.use(default_pool(), types=[*DEFAULT_TYPES[:2], *types])
    cluster.provision(pod)
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == expected


def test_case_048_a_request_of_an_unknown_resource_is_unschedulable(cluster):
    pod = cluster.pod(requests={"foo.com/weird-resources": "0"}, limits={"example.com/none": "0"})
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


SLOTS = "test.com/extended-slots"


def overridden_type(*, available):
    """A type half of whose offerings have slots, and less memory."""
    made = fake_type("override-capable", "4", "8Gi")
    memory = Overhead(system_reserved=parse_resources({"memory": "1Gi"})).total()
    dearer = [
        replace(offer, available=available, capacity_override={SLOTS: 4}, overhead_override=memory)
        for offer in made.offerings
    ]
    return replace(made, offerings=(*made.offerings, *dearer))


def test_case_052_a_resource_of_some_offerings_is_launched_only_with_them(cluster):
    cluster.is_judged = False
    cheaper = fake_type("normal", "4", "8Gi", price=0.01)
    cluster.use(default_pool(), types=[overridden_type(available=True), cheaper])
    cluster.apply(cluster.pod(requests={SLOTS: "1"}))
    (claim,) = cluster.plan().plan.claims
    assert claim.instance_types == ("override-capable",)


def test_case_053_sold_out_offerings_are_not_used(cluster):
    cluster.use(default_pool(), types=[overridden_type(available=False)])
    pod = cluster.pod(requests={SLOTS: "1"})
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_055_overhead_of_the_runtime_class_counts(cluster):
    pod = pod_of("p", [("1", "1Mi")], overhead={"cpu": "2"})
    cluster.provision(pod)
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "default-instance-type"
