"""Cases 88 to 98: basic provisioning."""

from __future__ import annotations

import pytest

from karpenter_core.api.conditions import Condition
from karpenter_core.api.durations import Duration
from karpenter_core.api.labels import (
    ARCH,
    INSTANCE_TYPE,
    NODE_POOL,
    NODE_POOL_HASH,
    OS,
    ZONE,
)
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import build_node_claim
from karpenter_core.lifecycle.nodepool.hashing import node_pool_hash
from karpenter_core.state.events import ObjectObserved
from karpenter_core.testing.builders import requirement_spec
from tests.scheduling.acceptance.catalogues import INTEGER, SIZE, VENDOR_A, VENDOR_B, default_pool


def test_case_088_one_pending_pod_gets_one_node(cluster):
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)
    assert len(cluster.nodes) == 1


def test_case_088_many_pods_schedule(cluster):
    pods = cluster.pods(100)
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)


@pytest.mark.parametrize(
    ("of_pool", "default", "expected"),
    [(None, "98h", "98h"), (None, None, None), ("223h", "47h", "223h")],
    ids=["the default", "none", "the pool's"],
)
def test_case_089_termination_grace_period_is_the_pools_or_the_default(
    cluster, of_pool, default, expected
):
    pool = default_pool()
    if of_pool:
        spec = pool.spec.template.spec.model_copy(
            update={"termination_grace_period": Duration(of_pool)}
        )
        template = pool.spec.template.model_copy(update={"spec": spec})
        pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"template": template})})
    cluster.use(pool)
    (planned,) = cluster.provision(cluster.pod()).plan.claims
    claim = build_node_claim(
        planned,
        pool,
        suffix="x",
        node_pool_hash="1",
        node_pool_hash_version="v1",
        default_termination_grace_period=Duration(default) if default else None,
    )
    assert claim.spec.termination_grace_period == (Duration(expected) if expected else None)


def test_case_090_a_deleting_pool_is_ignored(cluster):
    pool = cluster.snapshot.node_pools["default"]
    meta = pool.metadata.model_copy(update={"deletion_timestamp": cluster.now})
    cluster.apply(pool.model_copy(update={"metadata": meta}))
    pod = cluster.pod()
    made = cluster.provision(pod)
    assert made.reason(pod) == "no dynamic nodepools found"
    assert not cluster.nodes


def test_case_090_without_pools_all_pods_are_marked_failed(empty_cluster):
    pods = empty_cluster.pods(3)
    made = empty_cluster.provision(*pods)
    assert {made.reason(pod) for pod in pods} == {"no dynamic nodepools found"}
    decisions = empty_cluster.snapshot.ledger.decisions
    assert [decisions[pod.uid].placed for pod in pods] == [False] * 3


@pytest.mark.parametrize("condition", ["ValidationSucceeded", "NodeClassReady"])
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_case_091_a_pool_that_is_not_ready_is_ignored(cluster, condition, status):
    pool = cluster.snapshot.node_pools["default"]
    conditions = tuple(
        Condition(
            type=item.type,
            status=status if item.type in {condition, "Ready"} else item.status,
            reason="Test",
            message="",
            last_transition_time=cluster.now,
        )
        for item in pool.status.conditions
    )
    changed = pool.status.model_copy(update={"conditions": conditions})
    cluster.state.apply_event(ObjectObserved(pool.model_copy(update={"status": changed})))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


SELECTORS = [
    (NODE_POOL, "default", "unknown"),
    (ZONE, "z1", "unknown"),
    (INSTANCE_TYPE, "default-instance-type", "unknown"),
    (ARCH, "arm64", "unknown"),
    (OS, "linux", "unknown"),
    (OS, "windows", "unknown"),
    (SIZE, "small", "unknown"),
    (INTEGER, "16", "17"),
]


@pytest.mark.parametrize(("key", "right", "wrong"), SELECTORS)
def test_case_092_node_selectors_on_well_known_labels(cluster, key, right, wrong):
    good, bad = cluster.pod(node_selector={key: right}), cluster.pod(node_selector={key: wrong})
    cluster.provision(good, bad)
    assert cluster.labels_of(good)[key] == right
    assert cluster.is_unscheduled(bad)


@pytest.mark.parametrize(("key", "right", "wrong"), SELECTORS)
def test_case_092_node_affinity_on_well_known_labels(cluster, key, right, wrong):
    good, bad = cluster.pod(where=[(key, "In", right)]), cluster.pod(where=[(key, "In", wrong)])
    cluster.provision(good, bad)
    assert cluster.labels_of(good)[key] == right
    assert cluster.is_unscheduled(bad)


def test_case_093_accelerators_requested_by_limits_only(cluster):
    first, second = (cluster.pod(limits={device: "1"}) for device in (VENDOR_A, VENDOR_B))
    cluster.provision(first, second)
    assert cluster.labels_of(first)[INSTANCE_TYPE] == "gpu-vendor-instance-type"
    assert cluster.labels_of(second)[INSTANCE_TYPE] == "gpu-vendor-b-instance-type"


def test_case_094_a_type_for_one_pod_gives_every_pod_a_node(cluster):
    only = requirement_spec(INSTANCE_TYPE, "In", "single-pod-instance-type")
    cluster.use(default_pool(requirements=[only]))
    pods = cluster.pods(3)
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == 3


@pytest.mark.xfail(
    strict=True,
    reason="claims are built from the pool as it is when they are created, so they carry its hash",
)
def test_case_095_the_hash_is_the_one_from_scheduling_time(cluster):
    before = node_pool_hash(default_pool())
    cluster.apply(cluster.pod())
    made = cluster.plan()
    cluster.apply(default_pool(labels={"new-label": "new-value"}))
    cluster.carry_out(made)
    (claim,) = made.claims
    assert claim.metadata.annotations[NODE_POOL_HASH] == before


def test_case_096_pods_of_a_deleting_node_and_pending_ones_share_one_new_node(cluster):
    bound = cluster.pods(3)
    cluster.provision(*bound)
    (old,) = cluster.nodes
    cluster.terminate(old)
    pending = cluster.pods(2)
    made = cluster.provision(*pending)
    assert len(cluster.nodes) == 2
    (claim,) = made.plan.claims
    assert {pod.uid for pod in claim.pods} == {pod.uid for pod in (*bound, *pending)}
    assert {cluster.node_of(pod).name for pod in pending} == {cluster.nodes[1].name}


def test_case_098_a_pod_is_noted_with_its_claim_and_no_longer_once_it_fails(cluster):
    pod = cluster.pod()
    (claim,) = cluster.provision(pod, bind=False).claims
    assert cluster.snapshot.ledger.placements[pod.uid].target == claim.name
    cluster.delete(cluster.claims[0], *cluster.nodes)
    cluster.use()
    cluster.provision()
    assert pod.uid not in cluster.snapshot.ledger.placements
