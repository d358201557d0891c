"""Cases 130 to 140: several pools, and their limits."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import HOSTNAME, INSTANCE_TYPE, NODE_POOL
from karpenter_core.testing.builders import node_pool
from karpenter_core.testing.state_builders import node_and_claim
from tests.scheduling.acceptance.catalogues import VENDOR_A, default_pool
from tests.scheduling.acceptance.workloads import term

FOO = {"app": "foo"}


def test_case_130_a_pool_selected_by_name(cluster):
    cluster.use(default_pool("target"), default_pool("zzz"))
    pod = cluster.pod(node_selector={NODE_POOL: "target"})
    cluster.provision(pod)
    assert cluster.labels_of(pod)[NODE_POOL] == "target"


def test_case_130_a_pool_selected_by_a_template_label(cluster):
    cluster.use(default_pool("target", labels={"foo": "bar"}), default_pool("zzz"))
    pod = cluster.pod(node_selector={"foo": "bar"})
    cluster.provision(pod)
    assert cluster.labels_of(pod)[NODE_POOL] == "target"


def test_case_131_all_pods_go_to_the_heaviest_pool(cluster):
    cluster.use(
        default_pool("none"), default_pool("some", weight=20), default_pool("most", weight=100)
    )
    pods = cluster.pods(3)
    cluster.provision(*pods)
    assert cluster.pools_of(pods) == {"most"}


def test_case_131_pools_of_one_weight_in_descending_order_of_name(cluster):
    cluster.use(
        default_pool("a", weight=5), default_pool("c", weight=5), default_pool("b", weight=5)
    )
    pods = cluster.pods(3)
    cluster.provision(*pods)
    assert cluster.pools_of(pods) == {"c"}


def test_case_132_an_explicit_choice_beats_weight(cluster):
    cluster.use(
        default_pool("target"), default_pool("some", weight=20), default_pool("most", weight=100)
    )
    pod = cluster.pod(node_selector={NODE_POOL: "target"})
    cluster.provision(pod)
    assert cluster.labels_of(pod)[NODE_POOL] == "target"


def test_case_133_a_static_pool_serves_no_pending_pods(cluster):
    cluster.use(node_pool("static", replicas=2))
    pod = cluster.pod()
    made = cluster.provision(pod)
    assert made.reason(pod) == "no dynamic nodepools found"
    assert not cluster.claims


def test_case_133_beside_a_dynamic_pool_that_one_is_used(cluster):
    cluster.use(node_pool("static", replicas=2), default_pool("dynamic"))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.labels_of(pod)[NODE_POOL] == "dynamic"


def limited(**limits):
    return default_pool(limits=limits)


def test_case_134_a_pool_over_its_limit_gets_nothing(cluster):
    cluster.use(limited(cpu="20"))
    cluster.apply(*node_and_claim("big", capacity={"cpu": "100", "pods": "0"}))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_135_nodes_within_the_limit_are_launched(cluster):
    cluster.use(limited(cpu="2"))
    pod = cluster.pod(cpu="1750m")
    cluster.provision(pod)
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "small-instance-type"


def test_case_136_a_batch_is_placed_up_to_the_limit(cluster):
    cluster.use(limited(cpu="3"))
    pods = cluster.pods(2, labels=FOO, cpu="1500m", away=[term(FOO, HOSTNAME)])
    cluster.provision(*pods)
    assert len(cluster.scheduled(pods)) == 1


def test_case_136_pods_too_large_to_share_a_node(cluster):
    cluster.use(limited(cpu="3"))
    pods = cluster.pods(2, cpu="1500m")
    cluster.provision(*pods)
    assert len(cluster.scheduled(pods)) == 1


def test_case_137_a_limit_that_no_large_enough_type_keeps(cluster):
    cluster.use(limited(cpu="2"))
    pod = cluster.pod(cpu="2100m")
    made = cluster.provision(pod)
    assert "all available instance types exceed limits for nodepool" in made.reason(pod)


def test_case_138_pods_can_be_limited_like_any_resource(cluster):
    cluster.use(limited(pods="1"))
    pod = cluster.pod(limits={VENDOR_A: "1"})
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_139_limits_count_existing_nodes(cluster):
    cluster.use(limited(cpu="2"))
    first, second = cluster.pods(2, cpu="1750m")
    cluster.provision(first)
    assert cluster.is_scheduled(first)
    cluster.provision(second)
    assert cluster.is_unscheduled(second)


def test_case_140_the_number_of_nodes_can_be_limited(cluster):
    cluster.use(limited(nodes="2"))
    pods = cluster.pods(3, labels=FOO, cpu="1500m", away=[term(FOO, HOSTNAME)])
    for pod in pods:
        made = cluster.provision(pod)
    assert cluster.is_scheduled(*pods[:2])
    assert cluster.is_unscheduled(pods[2])
    assert "node limits have been exhausted for nodepool" in made.reason(pods[2])


@pytest.mark.parametrize("batches", [1, 3])
def test_case_140_within_a_batch_and_across_batches(cluster, batches):
    """One batch may not overshoot either: each claim that is opened counts."""
    cluster.use(limited(nodes="2"))
    pods = cluster.pods(3, cpu="15")
    for number in range(batches):
        cluster.provision(*pods[number::batches])
    assert len(cluster.scheduled(pods)) == 2
    assert len(cluster.nodes) == 2
