"""Cases 300 to 310: effective zones, and what the state knows when a pass asks it."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, NODE_POOL, ZONE
from karpenter_core.state.node_pool_usage import pool_usage
from karpenter_core.testing.builders import node_pool, preferred_node_term, taint
from karpenter_core.testing.state_builders import node_and_claim
from tests.scheduling.acceptance.catalogues import default_pool
from tests.scheduling.acceptance.workloads import (
    claimed,
    csi_node,
    spread,
    storage_class,
    template,
    term,
    volume_claim,
)

APP = {"app": "pod-label"}


@pytest.fixture
def cluster(empty_cluster):
    """A cluster with a pool of every capacity type."""
    empty_cluster.apply(node_pool(requirements=[(CAPACITY_TYPE, "Exists")], limits={"cpu": "2000"}))
    return empty_cluster


def zones_of(cluster, *pods):
    """Return the count of pending pods by effective zone, of a plan with these pods."""
    cluster.apply(*pods)
    return dict(cluster.plan().plan.pending_by_zone)


def in_zones(cluster, *zones):
    """Have a labelled pod run in each of these zones."""
    pods = [cluster.pod(labels=APP, node_selector={ZONE: zone}) for zone in zones]
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)


def test_case_300_pods_that_nothing_ties_are_flexible(cluster):
    assert zones_of(cluster, *cluster.pods(2)) == {"flexible": 2}


def test_case_300_pods_that_select_a_zone(cluster):
    pods = cluster.pods(3, node_selector={ZONE: "z2"})
    assert zones_of(cluster, *pods) == {"z2": 3}


def test_case_300_pods_of_different_zones(cluster):
    pods = [cluster.pod(node_selector={ZONE: zone}) for zone in ("z1", "z2")]
    assert zones_of(cluster, *pods) == {"z1": 1, "z2": 1}


def test_case_300_a_preferred_zone_ties_no_pod(cluster):
    wish = preferred_node_term(1, (ZONE, "In", "z1"))
    assert zones_of(cluster, cluster.pod(preferred=[wish])) == {"flexible": 1}


def test_case_301_affinity_to_a_pod_in_a_zone(cluster):
    in_zones(cluster, "z1")
    assert zones_of(cluster, cluster.pod(near=[term(APP, ZONE)])) == {"z1": 1}


@pytest.mark.parametrize(
    ("taken", "expected"), [(("z1", "z2"), {"z3": 1}), (("z1", "z2", "z3"), {"none": 1})]
)
def test_case_301_anti_affinity_to_pods_in_zones(cluster, taken, expected):
    in_zones(cluster, *taken)
    assert zones_of(cluster, cluster.pod(away=[term(APP, ZONE)])) == expected


def test_case_301_spread_over_zones_of_which_two_are_used(cluster):
    in_zones(cluster, "z1", "z2")
    pod = cluster.pod(labels=APP, spread=[spread(ZONE, of=APP)])
    assert zones_of(cluster, pod) == {"z3": 1}


def test_case_301_too_few_domains_to_spread_over(cluster):
    in_zones(cluster, "z1", "z1", "z2", "z2", "z3", "z3")
    pod = cluster.pod(spread=[spread(ZONE, of=APP, min_domains=4)])
    assert zones_of(cluster, pod) == {"none": 1}


def test_case_301_affinity_to_no_pod(cluster):
    pod = cluster.pod(near=[term({"nonexistent": "label"}, ZONE)])
    assert zones_of(cluster, pod) == {"none": 1}


@pytest.mark.parametrize(
    ("zones", "selected", "expected"),
    [
        (("z1", "z2"), None, {"flexible": 1}),
        (("z1",), None, {"z1": 1}),
        (("z2",), "z1", {"none": 1}),
    ],
)
def test_case_302_zones_of_volumes(cluster, zones, selected, expected):
    cluster.apply(storage_class("zonal", {ZONE: zones}), volume_claim("claim", of="zonal"))
    selector = {ZONE: selected} if selected else {}
    pod = cluster.pod(volumes=[claimed("data", "claim")], node_selector=selector)
    assert zones_of(cluster, pod) == expected


def test_case_303_a_nomination_lasts_twice_the_longest_batch(cluster):
    cluster.provision(cluster.pod())
    (node,) = cluster.nodes
    cluster.provision(cluster.pod(), bind=False)
    nominated = []
    for seconds in (0, 10, 11):
        cluster.advance(seconds=seconds)
        result = cluster.snapshot.state_nodes_by_node[node.name]
        nominated.append(result.is_nominated(cluster.now))
    assert nominated == [True, True, False]


def requests_on(cluster, node):
    return cluster.snapshot.state_nodes_by_node[node.name].requests.get("cpu", 0)


def test_case_305_usage_follows_pods_through_missed_events(cluster):
    cluster.apply(cluster.node("one"), cluster.node("two"))
    one, two = cluster.nodes
    pod = cluster.pod(cpu="1")
    cluster.apply(pod)
    assert requests_on(cluster, one) == 0
    cluster.bind(pod, one)
    assert requests_on(cluster, one) == 1000
    cluster.bind(pod, two)
    assert (requests_on(cluster, one), requests_on(cluster, two)) == (0, 1000)
    cluster.change(pod, phase="Succeeded")
    assert requests_on(cluster, two) == 0
    cluster.change(pod, phase="Running")
    cluster.evict(pod)
    assert requests_on(cluster, two) == 0


def test_case_306_ports_and_volumes_survive_an_update_of_the_claim(cluster):
    """After any change of the node, a second pod of the port goes elsewhere."""
    cluster.apply(storage_class("fast"), volume_claim("a", of="fast"), volume_claim("b", of="fast"))
    first = cluster.pod(host_ports=[80], volumes=[claimed("data", "a")])
    cluster.provision(first)
    (node,), (claim,) = cluster.nodes, cluster.claims
    cluster.apply(csi_node(node.name, fake__csi__provider=1))
    cluster.apply(claim.model_copy(update={"metadata": claim.metadata.model_copy()}))
    cluster.change(first, ready=True)
    port, volume, neither = (
        cluster.pod(host_ports=[80]),
        cluster.pod(volumes=[claimed("data", "b")]),
        cluster.pod(host_ports=[81], volumes=[claimed("data", "a")]),
    )
    for pod in (port, volume, neither):
        cluster.provision(pod)
        assert cluster.is_scheduled(pod)
    assert cluster.node_of(port).name != node.name
    assert cluster.node_of(volume).name != node.name
    assert cluster.node_of(neither).name == node.name


@pytest.mark.parametrize("order", ["node first", "pod first"])
def test_case_307_running_pods_with_anti_affinity_count_until_deleted(cluster, order):
    """In whatever order the Node and the pod were seen."""
    bare = cluster.node("bare", labels={ZONE: "z1"})
    (averse,) = cluster.pods(1, away=[term(APP, HOSTNAME)], node_name="bare")
    cluster.apply(*((bare, averse) if order == "node first" else (averse, bare)))
    target = cluster.pod(labels=APP)
    cluster.provision(target)
    assert cluster.node_of(target).name != "bare"
    cluster.evict(averse)
    other = cluster.pod(labels=APP, node_selector={ZONE: "z1"}, cpu="5")
    cluster.provision(other)
    assert cluster.node_of(other).name == "bare"


def test_case_307_preferred_anti_affinity_of_running_pods_blocks_no_pod(cluster):
    from tests.scheduling.acceptance.workloads import wish

    cluster.apply(cluster.node("bare"))
    cluster.apply(*cluster.pods(1, wish_away=[wish(1, term(APP, HOSTNAME))], node_name="bare"))
    target = cluster.pod(labels=APP)
    cluster.provision(target)
    assert cluster.node_of(target).name == "bare"


def daemon_request(cluster):
    """Return what the one DaemonSet is said to need, in a pass."""
    cluster.apply(cluster.pod())
    (result,) = cluster.plan().asked.problem.daemons
    return result.shape.requests.get("cpu", 0)


def test_case_308_the_newest_pod_of_a_daemon_set_gives_its_requests(cluster):
    def daemon_pod(cpu, **own):
        shape = template(owner_kind="DaemonSet", cpu=cpu)
        return cluster.pods(1, shape=shape, owner_name="ds", owner_uid="uid-owner-ds", **own)[0]

    old, foreign = daemon_pod("1", created=cluster.now), cluster.pod(cpu="3")
    cluster.advance(minutes=1)
    new = daemon_pod("2", created=cluster.now)
    daemon_set = cluster.daemon_set("ds", cpu="5")
    cluster.apply(daemon_set, new, old, foreign)
    assert daemon_request(cluster) == 2000
    cluster.evict(new)
    assert daemon_request(cluster) == 1000
    cluster.delete(daemon_set)
    assert cluster.plan().asked.problem.daemons == ()


@pytest.mark.parametrize(
    "text",
    [
        "node.kubernetes.io/not-ready:NoSchedule",
        "node.kubernetes.io/unreachable:NoSchedule",
        "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        "readiness.k8s.io/network:NoExecute",
        "startup.example.com/taint:NoSchedule",
    ],
)
@pytest.mark.parametrize("stage", ["booting", "initialised", "unmanaged"])
def test_case_309_startup_taints_are_hidden_on_booting_nodes_only(cluster, text, stage):
    cluster.use(default_pool(startup_taints=["startup.example.com/taint:NoSchedule"]))
    if stage == "unmanaged":
        cluster.apply(cluster.node("unmanaged"))
        (node,) = cluster.nodes
    else:
        made = cluster.pod(cpu="1")
        cluster.provision(made)
        (node,) = cluster.nodes
        if stage == "initialised":
            cluster.initialize(node)
    cluster.change(node, taints=(taint(text),))
    pod = cluster.pod()
    cluster.provision(pod)
    assert (cluster.node_of(pod).name == node.name) is (stage == "booting")


def test_case_310_usage_of_pools_follows_their_nodes(cluster):
    cluster.use(default_pool("first"), default_pool("second"))
    cluster.apply(*node_and_claim("a", pool="first"), *node_and_claim("b", pool="first"))
    cluster.apply(*node_and_claim("c", pool="second"))

    def cores():
        usage = pool_usage(cluster.snapshot)
        return {name: amounts["cpu"] // 1000 for name, amounts in usage.items()}

    assert cores() == {"first": 8, "second": 4}
    node, claim = cluster.snapshot.nodes["a"], cluster.snapshot.node_claims["a"]
    cluster.change(node, labels={**node.labels, NODE_POOL: "second"})
    assert cores() == {"first": 8, "second": 4}, "a kubelet moves its node to no other NodePool"
    labels = {**claim.metadata.labels, NODE_POOL: "second"}
    metadata = claim.metadata.model_copy(update={"labels": labels})
    cluster.apply(claim.model_copy(update={"metadata": metadata}))
    assert cores() == {"first": 4, "second": 8}
    cluster.terminate(cluster.snapshot.nodes["c"])
    assert cores() == {"first": 4, "second": 4}
