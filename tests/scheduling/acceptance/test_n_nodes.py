"""Cases 195 to 214: nodes that boot, nodes that are there, and pools that can make none."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, HOSTNAME, INSTANCE_TYPE, ZONE
from karpenter_core.testing.builders import requirement_spec, taint
from karpenter_core.testing.state_builders import node_and_claim, node_claim
from tests.scheduling.acceptance.catalogues import VENDOR_A, default_pool, fake_type
from tests.scheduling.acceptance.workloads import spread, template, term

LITTLE = {"cpu": "10m"}


def place(cluster, **options):
    """Provision one pod and return the node that it was bound to."""
    pod = cluster.pod(**options)
    cluster.provision(pod)
    return cluster.node_of(pod)


def empty_node(cluster, **options):
    """Provision a node and remove the pod that it was made for."""
    pod = cluster.pod(**options)
    cluster.provision(pod)
    node = cluster.node_of(pod)
    cluster.evict(pod)
    return node


def test_case_195_a_booting_node_takes_a_second_pod(cluster):
    assert place(cluster, limits=LITTLE).name == place(cluster, limits=LITTLE).name


def test_case_196_a_booting_node_has_the_zone_it_got(cluster):
    first = place(cluster, limits=LITTLE, where=[(ZONE, "In", "z2")])
    second = place(cluster, limits=LITTLE, where=[(ZONE, "In", "z1", "z2")])
    third = place(cluster, limits=LITTLE, where=[(ZONE, "In", "z1", "z3")])
    assert first.name == second.name
    assert third.name != first.name


def test_case_197_pods_that_do_not_fit_together(cluster):
    first = place(cluster, limits={"cpu": "1001m"})
    second = place(cluster, limits={"cpu": "1"})
    assert first.labels[INSTANCE_TYPE] == "small-instance-type"
    assert first.name != second.name


def test_case_198_a_booting_node_of_another_architecture(cluster):
    first = place(cluster, limits=LITTLE)
    second = place(cluster, node_selector={ARCH: "arm64"})
    assert first.name != second.name


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "going"])
def test_case_198_a_node_that_terminates_is_not_used(cluster, gone):
    first = place(cluster, limits=LITTLE)
    if gone:
        cluster.delete(*cluster.nodes, *cluster.claims)
    else:
        cluster.terminate(first)
    assert place(cluster, limits=LITTLE).name != first.name


FOO = {"foo": "bar"}


def test_case_199_pods_are_spread_over_zones_with_booting_nodes(cluster):
    rule = spread(ZONE, of=FOO)
    cluster.provision(*cluster.pods(4, labels=FOO, spread=[rule]))
    assert cluster.skew(ZONE, FOO) == [1, 1, 2]
    before = len(cluster.nodes)
    cluster.provision(*cluster.pods(5, labels=FOO, spread=[rule]))
    assert cluster.skew(ZONE, FOO) == [3, 3, 3]
    assert len(cluster.nodes) == before


def test_case_200_pods_are_spread_over_hostnames_with_booting_nodes(cluster):
    rule = spread(HOSTNAME, of=FOO)
    cluster.provision(*cluster.pods(4, labels=FOO, spread=[rule]))
    assert cluster.skew(HOSTNAME, FOO) == [1] * 4
    cluster.provision(*cluster.pods(5, labels=FOO, spread=[rule]))
    assert cluster.skew(HOSTNAME, FOO) == [1] * 9


EIGHT = {"limits": {"cpu": "8"}}


def test_case_201_an_empty_node_without_taints_is_used(cluster):
    node = empty_node(cluster, **EIGHT)
    cluster.change(node, taints=())
    assert place(cluster).name == node.name


@pytest.mark.parametrize("initialized", [True, False])
def test_case_201_a_custom_taint_keeps_pods_away(cluster, initialized):
    node = empty_node(cluster, **EIGHT)
    if initialized:
        cluster.initialize(node)
    cluster.change(node, taints=(taint("foo.com/taint=tainted:NoSchedule"),))
    assert place(cluster).name != node.name


def test_case_202_not_ready_does_not_count_before_initialisation(cluster):
    node = empty_node(cluster)
    not_ready = (taint("node.kubernetes.io/not-ready:NoExecute"),)
    cluster.change(node, taints=not_ready)
    second = cluster.pod()
    cluster.provision(second)
    assert cluster.node_of(second).name == node.name
    cluster.evict(second)
    cluster.initialize(node)
    cluster.change(node, taints=not_ready)
    assert place(cluster).name != node.name


STARTUP = "ignore-me=nothing-to-see-here:NoSchedule"


def test_case_203_a_startup_taint_does_not_count_before_initialisation(cluster):
    cluster.use(default_pool(startup_taints=[STARTUP]))
    node = empty_node(cluster, **EIGHT)
    not_ready = taint("node.kubernetes.io/not-ready:NoSchedule")
    assert set(cluster.snapshot.nodes[node.name].taints) == {taint(STARTUP), not_ready}
    assert place(cluster).name == node.name


def test_case_203_a_startup_taint_that_comes_back_counts(cluster):
    cluster.use(default_pool(startup_taints=[STARTUP]))
    node = empty_node(cluster)
    cluster.initialize(node)
    cluster.change(node, taints=(taint(STARTUP),))
    assert place(cluster).name != node.name


def test_case_204_a_node_with_every_taint_of_booting_is_used(cluster):
    first = place(cluster, **LITTLE)
    cluster.change(
        first,
        taints=(
            taint("node.kubernetes.io/not-ready:NoSchedule"),
            taint("node.kubernetes.io/unreachable:NoSchedule"),
            taint("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"),
        ),
    )
    assert place(cluster, **LITTLE).name == first.name


def daemon_pod(cluster, name, **options):
    shape = template(owner_kind="DaemonSet", **options)
    return cluster.pods(1, name=name, shape=shape, owner_name=name, owner_uid=f"uid-owner-{name}")[
        0
    ]


def room(cluster, node):
    result = cluster.snapshot.state_nodes_by_node[node.name]
    return result.allocatable["cpu"] - result.requests.get("cpu", 0), result.daemon_requests.get(
        "cpu", 0
    )


def test_case_205_a_running_daemon_needs_no_further_resources(cluster):
    cluster.apply(cluster.daemon_set("ds", cpu="1", memory="1Gi"))
    node = empty_node(cluster, **EIGHT)
    assert room(cluster, node) == (15_900, 0)
    cluster.bind(daemon_pod(cluster, "ds", cpu="1", memory="2Gi"), node)
    assert room(cluster, node) == (14_900, 1000)
    assert place(cluster, limits={"cpu": "14900m"}).name == node.name


def test_case_206_an_unexpected_daemon_pod_frees_no_resources(cluster):
    labelled = {"my-node-label": "value"}
    cluster.apply(
        cluster.daemon_set("ds-1", cpu="1", memory="1Gi", node_selector=labelled),
        cluster.daemon_set("ds-2", cpu="1m"),
    )
    node = empty_node(cluster, **EIGHT)
    cluster.change(node, labels={**cluster.snapshot.nodes[node.name].labels, **labelled})
    cluster.bind(daemon_pod(cluster, "ds-1", cpu="1", memory="2Gi", node_selector=labelled), node)
    assert room(cluster, node) == (14_900, 1000)
    assert place(cluster, limits={"cpu": "15500m"}).name != node.name


@pytest.mark.parametrize("others", ["booting", "launched"])
@pytest.mark.parametrize("chosen", [0, 37, 99])
def test_case_207_an_initialised_node_comes_first(cluster, others, chosen):
    """Among a hundred, wherever its name puts it; the others are Nodes that boot, or only claims."""
    for number in range(100):
        name = f"node-{number:02}"
        if number == chosen:
            cluster.apply(*node_and_claim(name, stage="Initialized"))
        elif others == "booting":
            cluster.apply(*node_and_claim(name, stage="Registered"))
        else:
            cluster.apply(node_claim(name, stage="Launched"))
    assert place(cluster).name == f"node-{chosen:02}"


@pytest.mark.parametrize("number", [1, 100])
def test_case_208_an_unmanaged_node_takes_pods(cluster, number):
    cluster.apply(cluster.node("unmanaged"))
    pods = cluster.pods(number, limits=LITTLE)
    cluster.provision(*pods)
    assert {cluster.node_of(pod).name for pod in pods} == {"unmanaged"}
    assert not cluster.claims


def test_case_209_a_node_without_the_label_is_no_node_of_that_zone(cluster):
    cluster.use()
    cluster.apply(cluster.node("unmanaged"))
    pod = cluster.pod(where=[(ZONE, "In", "z1")])
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)
    cluster.use(default_pool("late"))
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z1"


def test_case_210_a_daemon_of_another_zone_takes_nothing_of_a_node_without_zone(cluster):
    cluster.apply(
        cluster.node("unmanaged", allocatable={"cpu": "1", "memory": "1Gi"}),
        cluster.daemon_set("ds", cpu="100", memory="100Gi", where=[(ZONE, "In", "z1")]),
    )
    first, second = cluster.pods(2, cpu="1", memory="1Gi")
    cluster.provision(first)
    assert cluster.node_of(first).name == "unmanaged"
    cluster.provision(second)
    assert cluster.is_unscheduled(second)


def test_case_211_the_provisioner_binds_nothing_and_orders_nothing_twice(cluster):
    pod = cluster.pod(limits=LITTLE)
    cluster.provision(pod, bind=False)
    assert cluster.is_unscheduled(pod)
    assert len(cluster.nodes) == 1
    cluster.provision(pod, bind=False)
    assert len(cluster.nodes) == 1
    cluster.provision(cluster.pod(limits=LITTLE), bind=False)
    assert len(cluster.nodes) == 1


def test_case_212_devices_that_the_kubelet_does_not_show_yet_are_there(cluster):
    asked = {"cpu": "10m", VENDOR_A: "1"}
    cluster.provision(cluster.pod(limits=asked), bind=False)
    (node,) = cluster.nodes
    cluster.change(node, capacity={VENDOR_A: 0}, allocatable={VENDOR_A: 0})
    cluster.provision(cluster.pod(limits=asked), bind=False)
    assert len(cluster.nodes) == 1


def test_case_213_a_second_pod_with_self_affinity_uses_the_zone_of_the_booting_node(cluster):
    labels = {"security": "s2"}
    first, second = cluster.pods(2, labels=labels, near=[term(labels, ZONE)])
    cluster.provision(first, bind=False)
    cluster.provision(second, bind=False)
    assert len(cluster.nodes) == 1


@pytest.mark.parametrize(
    "requirements",
    [
        [requirement_spec(INSTANCE_TYPE, "In", "non-existent-instance-type")],
        [requirement_spec(ARCH, "In", "non-existent-arch")],
        [requirement_spec(ARCH, "In", "amd64"), requirement_spec(ARCH, "In", "arm64")],
        [requirement_spec(ZONE, "In", "non-existent-zone-1", "non-existent-zone-2")],
    ],
    ids=["type", "arch", "conflict", "zone"],
)
def test_case_214_a_pool_whose_requirements_leave_no_type_says_so(cluster, requirements):
    cluster.use(default_pool(requirements=requirements))
    pods = cluster.pods(3, cpu="32", memory="256Gi")
    made = cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)
    text = "nodepool requirements filtered out all available instance types"
    assert all(text in made.reason(pod) for pod in pods)


def test_case_214_pods_still_go_to_the_nodes_of_such_a_pool(cluster):
    first = place(cluster, **LITTLE)
    cluster.use(default_pool(requirements=[requirement_spec(ARCH, "In", "non-existent-arch")]))
    assert place(cluster, **LITTLE).name == first.name


def test_case_195_booting_nodes_with_free_resources_are_filled_in_one_batch(cluster):
    """Several pods of one batch share what is left on one booting node and open one new one."""
    cluster.use(default_pool(), types=[fake_type("only", "4", "4Gi", "5")])
    first = place(cluster, limits={"cpu": "1"})
    pods = cluster.pods(5, limits={"cpu": "1"})
    cluster.provision(*pods)
    assert (
        sorted(cluster.node_of(pod).name == first.name for pod in pods) == [False] * 3 + [True] * 2
    )
    assert len(cluster.nodes) == 2
