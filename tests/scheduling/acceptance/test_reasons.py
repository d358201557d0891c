"""Reasons of pods without a place: the first constraint of each pool.

Each of the acceptance cases in which a pod stays pending, with the reason it is given; the list of
constraints is closed.
"""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, HOSTNAME, INSTANCE_TYPE, ZONE
from karpenter_core.scheduling.problem import PoolConstraint
from karpenter_core.testing.builders import node_term, offering, requirement_spec
from karpenter_core.testing.state_builders import node_claim
from tests.scheduling.acceptance.catalogues import (
    INTEGER,
    SIZE,
    VENDOR_A,
    VENDOR_B,
    default_pool,
    fake_type,
    minimum,
)
from tests.scheduling.acceptance.workloads import (
    claimed,
    csi_node,
    spread,
    storage_class,
    term,
    volume,
    volume_claim,
)

APP = {"app": "test"}


def why(cluster, pod, pool="default"):
    """Make a pass and return why a pool does not take a pod."""
    cluster.provision(pod)
    return cluster.passes[-1].plan.unschedulable[pod.uid].pools[pool]


@pytest.mark.parametrize(
    "options",
    [
        {"node_selector": {ZONE: "unknown"}},
        {"where": [(ARCH, "In", "unknown")]},
        {"where": [("test-key", "Exists")]},
        {"node_selector": {SIZE: "middling"}},
        {"where": [(ZONE, "NotIn", "z1", "z2", "z3")]},
        {"required": [node_term((INSTANCE_TYPE, "In", "tiny"))]},
    ],
)
def test_labels_that_no_node_of_the_pool_has(cluster, options):
    reason = why(cluster, cluster.pod(**options))
    assert reason.constraint is PoolConstraint.REQUIREMENT


def test_a_taint_is_named(cluster):
    cluster.use(default_pool(taints=["team=blue:NoSchedule"]))
    reason = why(cluster, cluster.pod())
    assert reason.constraint is PoolConstraint.TAINT
    assert 'did not tolerate taint "team=blue:NoSchedule"' in reason.detail


def test_resources_that_no_one_type_has(cluster):
    reason = why(cluster, cluster.pod(requests={VENDOR_A: "1", VENDOR_B: "1"}))
    assert reason.constraint is PoolConstraint.RESOURCE
    assert f"{VENDOR_A}: 1 asked" in reason.detail or f"{VENDOR_B}: 1 asked" in reason.detail


def test_the_closest_type_is_named_with_its_unmet_requirements(cluster):
    reason = why(cluster, cluster.pod(cpu="1000", node_selector={ZONE: "z1"}))
    assert (reason.constraint, reason.closest) == (PoolConstraint.RESOURCE, "arm-instance-type")
    assert "ask for at most cpu 15900m" in reason.remedy


@pytest.mark.parametrize(
    ("limits", "cpu"), [({"cpu": "2"}, "2100m"), ({"memory": "1Gi"}, "1"), ({"nodes": "0"}, "1")]
)
def test_limits_that_leave_no_type(cluster, limits, cpu):
    cluster.use(default_pool(limits=limits))
    pod = cluster.pod(cpu=cpu)
    assert why(cluster, pod).constraint is PoolConstraint.LIMIT
    assert "for nodepool" in cluster.passes[-1].reason(pod)


def test_daemons_that_leave_no_resources(cluster):
    cluster.apply(cluster.daemon_set(cpu="10000"))
    reason = why(cluster, cluster.pod())
    assert reason.constraint is PoolConstraint.DAEMON
    assert reason.closest


def test_a_port_that_daemons_take_on_every_type(cluster):
    cluster.apply(cluster.daemon_set(host_ports=[8080]))
    reason = why(cluster, cluster.pod(host_ports=[8080]))
    assert reason.constraint is PoolConstraint.PORT
    assert "Port=8080" in reason.detail


@pytest.mark.parametrize(
    "requirements",
    [
        [minimum(3, INSTANCE_TYPE)],
        [minimum(2, INTEGER, "Lt", "4")],
        [minimum(1, INSTANCE_TYPE, "In", "type-1"), minimum(2, INSTANCE_TYPE)],
        [minimum(2, INSTANCE_TYPE), minimum(4, ZONE)],
    ],
)
def test_min_values_that_cannot_be_had(cluster, requirements):
    types = [fake_type("type-1", "1"), fake_type("type-2", "4")]
    cluster.use(default_pool(requirements=requirements), types=types)
    assert why(cluster, cluster.pod()).constraint is PoolConstraint.MIN_VALUES


def test_sold_out_offerings(cluster):
    sold = [offering("z1", "spot", 1.0, available=False), offering("z2", "spot", 1.0)]
    cluster.use(default_pool(), types=[fake_type("a", offerings=sold)])
    reason = why(cluster, cluster.pod(node_selector={ZONE: "z1"}))
    assert (reason.constraint, reason.closest) == (PoolConstraint.OFFERING, "a")


def test_spread_that_every_domain_would_break(cluster):
    cluster.use(default_pool(requirements=[requirement_spec(ZONE, "In", "z1")]))
    rule = spread(ZONE, of=APP)
    cluster.apply(cluster.node("elsewhere", labels={ZONE: "z9"}, allocatable={"cpu": "0"}))
    cluster.provision(cluster.pod(labels=APP, spread=[rule], cpu="1"))
    assert why(cluster, cluster.pod(labels=APP, spread=[rule], cpu="1")).constraint is (
        PoolConstraint.TOPOLOGY
    )


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_affinity_to_no_pod(cluster, key):
    reason = why(cluster, cluster.pod(near=[term(APP, key)]))
    assert reason.constraint is PoolConstraint.AFFINITY


def test_anti_affinity_to_pods_in_every_zone(cluster):
    targets = [cluster.pod(labels=APP, node_selector={ZONE: f"z{n}"}) for n in (1, 2, 3)]
    cluster.provision(*targets)
    reason = why(cluster, cluster.pod(away=[term(APP, ZONE)]))
    assert reason.constraint is PoolConstraint.AFFINITY


def test_a_volume_in_a_zone_that_the_pod_excludes(cluster):
    cluster.apply(volume("pv", [(ZONE, "In", "z3")]), volume_claim("claim", to="pv"))
    pod = cluster.pod(volumes=[claimed("data", "claim")], node_selector={ZONE: "z1"})
    assert why(cluster, pod).constraint is PoolConstraint.VOLUME


def test_the_first_constraint_that_fails_is_the_reason(cluster):
    cluster.use(default_pool("tainted", taints=["team:NoSchedule"]), default_pool("plain"))
    pod = cluster.pod(cpu="1000", node_selector={ZONE: "z1"})
    cluster.provision(pod)
    pools = cluster.passes[-1].plan.unschedulable[pod.uid].pools
    assert {name: reason.constraint for name, reason in pools.items()} == {
        "tainted": PoolConstraint.TAINT,
        "plain": PoolConstraint.RESOURCE,
    }


def test_an_undefined_label_is_not_defined_by_an_excluded_value(cluster):
    """Pods that want no `test-key=a` do not make `test-key=b` possible for others."""
    refusing = cluster.pod(cpu="1", where=[("test-key", "NotIn", "a")])
    wanting = cluster.pod(node_selector={"test-key": "b"})
    cluster.provision(refusing, wanting)
    assert cluster.is_scheduled(refusing)
    assert cluster.is_unscheduled(wanting)


def test_a_launching_node_takes_only_pods_that_fit_all_its_types(cluster):
    """A claim without an instance may still land in either zone."""
    types = ("default-instance-type", "small-instance-type")
    cluster.apply(
        node_claim(
            "ordered",
            requirements=[
                requirement_spec(ZONE, "In", "z1", "z2"),
                requirement_spec(INSTANCE_TYPE, "In", *types),
            ],
        )
    )
    anywhere, either, one = (
        cluster.pod(),
        cluster.pod(where=[(ZONE, "NotIn", "z3")]),
        cluster.pod(node_selector={ZONE: "z1"}),
    )
    for pod, fits in ((anywhere, True), (either, True), (one, False)):
        plan = cluster.provision(pod, bind=False).plan
        assert ("ordered" in plan.existing) is fits


def test_an_overdrawn_node_takes_nothing(cluster):
    """For any requests: with one resource overcommitted the kubelet refuses every pod."""
    cluster.apply(cluster.node("overdrawn"))
    cluster.apply(*cluster.pods(1, memory="11Gi", node_name="overdrawn"))
    pod = cluster.pod(cpu="1")
    cluster.provision(pod)
    assert cluster.node_of(pod).name != "overdrawn"


def test_a_node_without_free_attachments_is_no_reason_to_wait(cluster):
    """There is always a new node for one more volume."""
    cluster.apply(
        cluster.node("full", labels={ZONE: "z1"}),
        csi_node("full", fake__csi__provider=0),
        storage_class("fast"),
        volume_claim("claim", of="fast"),
    )
    pod = cluster.pod(volumes=[claimed("data", "claim")])
    cluster.provision(pod)
    assert cluster.node_of(pod).name != "full"
