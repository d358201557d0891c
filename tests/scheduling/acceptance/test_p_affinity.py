"""Cases 251 to 269: pod affinity and anti-affinity."""

from __future__ import annotations

from itertools import permutations

import pytest

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ZONE
from karpenter_core.api.records import NamespaceView
from karpenter_core.testing.builders import node_pool
from tests.scheduling.acceptance.workloads import TEST, selector, spread, term, wish

S2 = {"security": "s2"}
LARGE = {"cpu": "2"}
"""Pods that are placed before those that ask for less."""


@pytest.fixture
def cluster(empty_cluster):
    """A cluster with a pool of every capacity type."""
    empty_cluster.apply(node_pool(requirements=[(CAPACITY_TYPE, "Exists")], limits={"cpu": "2000"}))
    return empty_cluster


def spread_over_hosts(cluster, number=10):
    """Make pods that end on as many nodes."""
    return cluster.pods(number, labels=TEST, spread=[spread(HOSTNAME)])


def one_per_zone(cluster, **options):
    return [
        cluster.pod(node_selector={ZONE: zone}, **LARGE, **options) for zone in ("z1", "z2", "z3")
    ]


def together(cluster, *pods):
    return len({cluster.node_of(pod).name for pod in pods}) == 1


def test_case_251_no_terms_at_all(cluster):
    pod = cluster.pod(near=(), away=())
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


def test_case_252_affinity_to_a_pod_among_others(cluster):
    target, follower = cluster.pod(labels=S2), cluster.pod(near=[term(S2)])
    cluster.provision(*spread_over_hosts(cluster), target, follower)
    assert together(cluster, target, follower)


def test_case_252_affinity_to_an_architecture_on_another_host(cluster):
    rule = spread(HOSTNAME, of=S2)
    first = cluster.pod(labels=S2, spread=[rule], node_selector={ARCH: "arm64"}, cpu="2")
    second = cluster.pod(labels=S2, spread=[rule], near=[term(S2, ARCH)], cpu="1")
    cluster.provision(first, second)
    assert cluster.labels_of(first)[ARCH] == cluster.labels_of(second)[ARCH] == "arm64"
    assert not together(cluster, first, second)


def test_case_253_self_affinity_to_a_host(cluster):
    pods = cluster.pods(3, labels=S2, near=[term(S2)])
    cluster.provision(*pods)
    assert together(cluster, *pods)


def test_case_253_one_host_and_no_second_one(cluster):
    pods = cluster.pods(10, labels=S2, near=[term(S2)])
    cluster.provision(*pods)
    placed = cluster.scheduled(pods)
    assert len(placed) == 5
    assert together(cluster, *placed)
    later = cluster.pods(10, labels=S2, near=[term(S2)])
    cluster.provision(*later)
    assert cluster.is_unscheduled(*later)


def test_case_254_affinity_to_a_host_in_a_zone_that_is_excluded(cluster):
    cluster.provision(cluster.pod(labels=S2, near=[term(S2)], node_selector={ZONE: "z1"}))
    pods = cluster.pods(10, labels=S2, near=[term(S2)], where=[(ZONE, "In", "z2", "z3")])
    cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)


@pytest.mark.parametrize("zone", [None, "z3"])
def test_case_255_self_affinity_to_a_zone(cluster, zone):
    where = [(ZONE, "In", zone)] if zone else ()
    pods = cluster.pods(3, labels=S2, near=[term(S2, ZONE)], where=where)
    cluster.provision(*pods)
    assert together(cluster, *pods)
    assert zone is None or cluster.skew_by_value(ZONE, S2) == {zone: 3}


def test_case_255_matching_pods_that_exclude_each_other(cluster):
    """Upstream launches a node for both; kube-scheduler binds one of them and never the other."""
    pods = [
        cluster.pod(labels=S2, near=[term(S2, ZONE)], where=[(ZONE, "In", zone)])
        for zone in ("z2", "z3")
    ]
    cluster.provision(*pods)
    assert [cluster.is_scheduled(pod) for pod in pods] == [True, False]


def test_case_256_preferred_affinity_to_a_pod_that_is_not_there(cluster):
    pod = cluster.pod(wish_near=[wish(50, term(S2))])
    cluster.provision(*spread_over_hosts(cluster), pod)
    assert cluster.is_scheduled(pod)


def test_case_256_preferred_anti_affinity_to_every_zone(cluster):
    others = cluster.pods(3, labels=TEST, spread=[spread(ZONE)])
    pods = cluster.pods(10, wish_away=[wish(50, term(TEST, ZONE))])
    cluster.provision(*others, *pods)
    assert cluster.is_scheduled(*others, *pods)


@pytest.mark.parametrize("first", ["plain", "averse"])
def test_case_257_anti_affinity_keeps_two_pods_apart_in_either_order(cluster, first):
    for _ in range(10):
        made = {}
        for name in sorted(["plain", "averse"], key=lambda name: name != first):
            options = {"labels": S2} if name == "plain" else {"away": [term(S2)]}
            made[name] = cluster.pod(**options)
        cluster.provision(*made.values())
        assert cluster.is_scheduled(*made.values())
        assert not together(cluster, *made.values())


@pytest.mark.parametrize("large", ["plain", "averse"])
def test_case_257_in_either_order_of_placement(cluster, large):
    plain = cluster.pod(labels=S2, cpu="1" if large == "plain" else "")
    averse = cluster.pod(away=[term(S2)], cpu="1" if large == "averse" else "")
    cluster.provision(plain, averse)
    assert cluster.is_scheduled(plain, averse)
    assert not together(cluster, plain, averse)


def test_case_258_anti_affinity_to_pods_in_every_zone(cluster):
    targets = one_per_zone(cluster, labels=S2)
    pod = cluster.pod(away=[term(S2, ZONE)])
    cluster.provision(*targets, pod)
    assert cluster.is_scheduled(*targets)
    assert cluster.is_unscheduled(pod)


def test_case_259_a_target_that_could_be_anywhere(cluster):
    target = cluster.pod(labels=S2, **LARGE)
    pod = cluster.pod(away=[term(S2, ZONE)])
    cluster.provision(target, pod)
    assert cluster.is_scheduled(target)
    assert cluster.is_unscheduled(pod)


def test_case_260_anti_affinity_to_an_architecture(cluster):
    rule = spread(HOSTNAME, of=S2)
    first = cluster.pod(labels=S2, spread=[rule], node_selector={ARCH: "arm64"}, cpu="2")
    second = cluster.pod(labels=S2, spread=[rule], away=[term(S2, ARCH)], cpu="1")
    cluster.provision(first, second)
    assert cluster.labels_of(first)[ARCH] == "arm64"
    assert cluster.labels_of(second)[ARCH] == "amd64"


@pytest.mark.parametrize("batches", [1, 2], ids=["261-one-batch", "263-existing-nodes"])
@pytest.mark.parametrize("required", [True, False])
def test_case_261_263_anti_affinity_keeps_its_target_away(cluster, batches, required):
    affinity_term = term(S2, ZONE)
    options = {"away": [affinity_term]} if required else {"wish_away": [wish(10, affinity_term)]}
    averse = one_per_zone(cluster, **options)
    target = cluster.pod(labels=S2)
    if batches == 1:
        cluster.provision(*averse, target)
    else:
        cluster.provision(*averse)
        cluster.provision(target)
    assert cluster.is_scheduled(*averse)
    assert cluster.is_unscheduled(target) is required


def test_case_262_a_pod_with_anti_affinity_that_could_be_anywhere(cluster):
    averse = cluster.pod(away=[term(S2, ZONE)], **LARGE)
    target = cluster.pod(labels=S2)
    cluster.provision(averse, target)
    assert cluster.is_scheduled(averse)
    assert cluster.is_unscheduled(target)
    cluster.provision(target)
    assert cluster.labels_of(averse)[ZONE] != cluster.labels_of(target)[ZONE]


def test_case_264_an_affinity_that_is_preferred_gives_way_to_a_required_spread(cluster):
    target = cluster.pod(labels=S2)
    pods = cluster.pods(3, labels=TEST, spread=[spread(HOSTNAME)], wish_near=[wish(50, term(S2))])
    cluster.provision(*pods, target)
    assert cluster.is_scheduled(*pods, target)
    assert cluster.skew(HOSTNAME) == [1, 1, 1]


def test_case_265_zonal_self_anti_affinity_takes_a_batch_for_each_zone(cluster):
    for expected in ([1], [1, 1], [1, 1, 1], [1, 1, 1]):
        pods = cluster.pods(3, labels=S2, away=[term(S2, ZONE)])
        cluster.provision(*pods)
        assert cluster.skew(ZONE, S2) == expected
        cluster.evict(*(pod for pod in pods if cluster.is_unscheduled(pod)))


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_case_266_affinity_to_a_pod_that_is_not_there(cluster, key):
    pods = cluster.pods(10, near=[term(S2, key)])
    cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)


def test_case_267_affinity_to_a_target_in_no_zone_yet(cluster):
    target = cluster.pod(labels=S2)
    pods = cluster.pods(10, near=[term(S2, ZONE)])
    cluster.provision(*pods, target)
    assert cluster.is_scheduled(target)
    assert cluster.is_unscheduled(*pods)
    cluster.provision(*pods)
    assert cluster.skew(ZONE, {}) == [11]


def test_case_267_affinity_to_a_target_in_a_zone(cluster):
    target = cluster.pod(labels=S2, where=[(ZONE, "In", "z1")])
    pods = cluster.pods(10, near=[term(S2, ZONE)])
    cluster.provision(*pods, target)
    assert cluster.skew_by_value(ZONE, {}) == {"z1": 11}


@pytest.mark.parametrize(
    "order", list(permutations(range(4))), ids=lambda order: "".join(map(str, order))
)
def test_case_268_a_chain_of_affinities_in_any_order(cluster, order):
    labels = [{"type": name, "spread": "spread"} for name in ("db", "web", "cache", "ui")]
    chain = {}
    for place in order:
        near = [term(labels[place - 1])] if place else ()
        chain[place] = cluster.pod(labels=labels[place], near=near)
    cluster.provision(*chain.values())
    assert together(cluster, *chain.values())


@pytest.mark.parametrize(
    ("options", "follows"),
    [
        ({}, False),
        ({"namespaces": ["other"]}, True),
        ({"namespace_selector": selector()}, True),
        ({"namespace_selector": selector({"foo": "bar"})}, True),
        ({"namespace_selector": selector({"foo": "baz"})}, False),
        ({"namespaces": ["other"], "namespace_selector": selector({"foo": "baz"})}, True),
    ],
    ids=["own", "listed", "all", "selected", "not selected", "listed or selected"],
)
def test_case_269_targets_in_other_namespaces(cluster, options, follows):
    cluster.apply(
        NamespaceView(uid="ns-default", name="default"),
        NamespaceView(uid="ns-other", name="other", labels={"foo": "bar"}),
    )
    target = cluster.pod(labels=S2, namespace="other")
    pod = cluster.pod(near=[term(S2, **options)])
    cluster.provision(*spread_over_hosts(cluster), target, pod)
    assert cluster.is_scheduled(target)
    assert cluster.is_scheduled(pod) is follows
    assert not follows or together(cluster, target, pod)
