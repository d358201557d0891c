"""Nothing is ended while the state may be old."""

from __future__ import annotations

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES, POD_DISRUPTION_BUDGETS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.faults import RequestFault
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.support.run_selection import others_as_cluster_runs

OUTAGE_SECONDS = 15 * 60


def pods_of_the_cluster(request):
    """Requests for all pods: the list and the watch of the informer."""
    return request.method == "GET" and request.path == "/api/v1/pods"


def pod_watches(request):
    return pods_of_the_cluster(request) and "watch" in request.query


def everything(request):
    return request.method == "GET" and "/leases" not in request.path


TROUBLES = {
    "list and watch of pods are forbidden": RequestFault(
        matches=pods_of_the_cluster, status=403, times=None
    ),
    "the stream of pods is open and silent": RequestFault(
        matches=pod_watches, is_silent=True, times=None
    ),
    "the headers of the watch of pods never come": RequestFault(
        matches=pod_watches, is_unanswered=True, times=None
    ),
    "no read is answered any more": RequestFault(
        matches=everything, is_unanswered=True, times=None
    ),
}


def disruption(after):
    return {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": after,
        "budgets": [{"nodes": "100%"}],
    }


async def two_nodes(scene, pool):
    """Start with a node for each of two pods."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    scene.cluster.apply([NODE_CLASS, pool, deployment("web", 2, affinity=apart)])
    running = scene.start()
    await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
    assert len(scene.nodes()) == 2
    return running


async def two_empty_nodes(scene, pool):
    """Start with two nodes whose pods are gone."""
    running = await two_nodes(scene, pool)
    scene.cluster.scale(DEPLOYMENTS, "web", 0)
    await scene.settle(lambda: not scene.pods(), seconds=60)
    return running


async def bind_pods(scene):
    """Bind a pod to each of the two nodes."""
    scene.cluster.scale(DEPLOYMENTS, "web", 2)
    await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=20)


def begin(scene, fault):
    """Cut what is open, unless it is to stay open in silence; then nothing gets better."""
    if not fault.is_silent:
        scene.cluster.frontend.stop()
        scene.cluster.frontend.start()
    scene.cluster.frontend.faults.add(fault)


def uids(objects):
    return {each["metadata"]["uid"] for each in objects}


@pytest.mark.parametrize("trouble", others_as_cluster_runs(TROUBLES, first=2))
def test_a_node_with_unlisted_pods_is_not_removed_as_empty(tmp_path, trouble):
    """They were empty when pods were last heard of; pods have been bound to them since."""
    fault = TROUBLES[trouble]

    async def scenario(scene):
        running = await two_empty_nodes(scene, node_pool(disruption=disruption("3m")))
        begin(scene, fault)
        await bind_pods(scene)
        bound, before = uids(scene.pods()), uids(scene.nodes())

        await scene.cluster.clock.sleep(OUTAGE_SECONDS)

        assert uids(scene.nodes()) == before
        assert uids(scene.pods("Running")) == bound
        assert len(cloud(scene, tmp_path)["instances"]) == 2
        assert "pods" in running.process.servers.failures()["freshness"]
        assert running.metric('karpenter_core_informer_age_seconds{kind="Pod"}') > 800
        assert running.metric('karpenter_core_waiting_for_freshness{consumer="disruption"}') == 1

        scene.cluster.frontend.faults.clear()
        await scene.settle(lambda: not running.process.servers.failures(), seconds=120)
        await scene.cluster.clock.sleep(600)
        assert len(scene.pods("Running")) == 2
        assert running.metric('karpenter_core_waiting_for_freshness{consumer="disruption"}') == 0

        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=400)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("trouble", others_as_cluster_runs(TROUBLES))
def test_nodes_do_not_expire_while_their_pods_are_not_shown(tmp_path, trouble):
    """Their time is over in the middle of it; afterwards they are drained like any other."""
    fault = TROUBLES[trouble]

    async def scenario(scene):
        pool = node_pool(disruption=disruption("Never"), template={"expireAfter": "8m"})
        running = await two_empty_nodes(scene, pool)
        begin(scene, fault)
        await bind_pods(scene)
        bound, before = uids(scene.pods()), uids(scene.nodes())

        await scene.cluster.clock.sleep(OUTAGE_SECONDS)

        assert uids(scene.nodes()) == before
        assert uids(scene.pods("Running")) == bound

        scene.cluster.frontend.faults.clear()
        await scene.settle(
            lambda: len(scene.pods("Running")) == 2 and not uids(scene.nodes()) & before,
            seconds=300,
        )
        assert scene.events("Evicted")
        assert running.metric('karpenter_core_waiting_for_freshness{consumer="expiration"}') == 0

    run_controller(tmp_path, scenario)


def test_a_node_that_drains_while_its_pods_are_not_shown_waits(tmp_path):
    """It is deleted by hand: the taint goes on, and its Event says what it waits for."""
    fault = TROUBLES["list and watch of pods are forbidden"]

    async def scenario(scene):
        running = await two_empty_nodes(scene, node_pool(disruption=disruption("Never")))
        begin(scene, fault)
        await bind_pods(scene)
        await scene.cluster.clock.sleep(100)
        name = scene.nodes()[0]["metadata"]["name"]
        scene.cluster.delete(NODES, name)
        await scene.cluster.clock.sleep(OUTAGE_SECONDS)

        (node,) = [each for each in scene.nodes() if each["metadata"]["name"] == name]
        assert "karpenter.sh/disrupted" in {each["key"] for each in node["spec"]["taints"]}
        assert len(scene.pods("Running")) == 2
        (waiting_event, *_) = scene.events("WaitingForFreshState")
        assert waiting_event["involvedObject"]["name"] == name
        assert "pods" in waiting_event["message"]

        scene.cluster.frontend.faults.clear()
        await scene.settle(
            lambda: name not in {each["metadata"]["name"] for each in scene.nodes()}, seconds=180
        )
        assert scene.events("Evicted")
        assert not running.process.servers.failures()

    run_controller(tmp_path, scenario)


def test_pods_that_only_a_live_list_shows_are_drained(tmp_path):
    """The watch is a few seconds behind; the node was empty when its end was decided."""
    fault = RequestFault(matches=pod_watches, is_silent=True, times=None)

    async def scenario(scene):
        await two_empty_nodes(scene, node_pool(disruption=disruption("10s")))
        begin(scene, fault)
        await bind_pods(scene)
        scene.cluster.frontend.faults.clear()  # the open stream stays silent, the next one is not
        bound, before = uids(scene.pods()), uids(scene.nodes())
        evicted = set()

        def observe():
            evicted.update(event["involvedObject"]["uid"] for event in scene.events("Evicted"))
            return not uids(scene.nodes()) & before

        await scene.settle(observe, seconds=150)
        assert bound <= evicted

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    "trouble", ["list and watch of pods are forbidden", "no read is answered any more"]
)
def test_a_node_that_was_to_end_when_its_pods_were_shown_no_more_is_drained_later(
    tmp_path, trouble
):
    """Its termination began while the last contact still counted."""
    fault = TROUBLES[trouble]

    async def scenario(scene):
        await two_empty_nodes(scene, node_pool(disruption=disruption("30s")))
        begin(scene, fault)
        await bind_pods(scene)
        bound, before = uids(scene.pods()), uids(scene.nodes())

        await scene.cluster.clock.sleep(OUTAGE_SECONDS)

        assert uids(scene.nodes()) == before
        assert uids(scene.pods("Running")) == bound
        assert len(cloud(scene, tmp_path)["instances"]) == 2

        scene.cluster.frontend.faults.clear()
        evicted = set()

        def observe():
            evicted.update(event["involvedObject"]["uid"] for event in scene.events("Evicted"))
            return not uids(scene.nodes()) & before and len(scene.pods("Running")) == 2

        await scene.settle(observe, seconds=300)
        assert bound <= evicted

    run_controller(tmp_path, scenario)


def test_no_instance_ends_when_the_live_list_is_refused(tmp_path):
    """An unanswered question is not the answer "none"."""
    refused = RequestFault(
        matches=lambda request: "spec.nodeName" in request.query.get("fieldSelector", ""),
        status=503,
        times=None,
    )

    async def scenario(scene):
        await two_nodes(scene, node_pool(disruption=disruption("10s")))
        scene.cluster.frontend.faults.add(refused)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.cluster.clock.sleep(300)
        assert len(cloud(scene, tmp_path)["instances"]) == 2

        scene.cluster.frontend.faults.clear()
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=60)

    run_controller(tmp_path, scenario)


def test_one_live_list_is_sufficient_for_a_node(tmp_path):
    """Not one for each check of an instance that ends slowly."""

    def lists(request):
        return "spec.nodeName" in request.query.get("fieldSelector", "")

    async def scenario(scene):
        await two_nodes(scene, node_pool(disruption=disruption("10s")))
        scene.cluster.frontend.faults.add(RequestFault(matches=lists, times=None))
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=120)
        assert scene.cluster.frontend.faults.hits == 2

    run_controller(tmp_path, scenario)


def test_no_replica_leads_with_a_stale_state(tmp_path):
    """The lease stays free; it is taken when the watches have caught up."""
    fault = TROUBLES["list and watch of pods are forbidden"]

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.cluster.frontend.faults.add(fault)
        running = scene.start()
        await scene.cluster.clock.sleep(200)
        assert not running.process.is_leading
        assert running.metric('karpenter_core_waiting_for_freshness{consumer="leadership"}') == 1

        scene.cluster.frontend.faults.clear()
        await scene.settle(lambda: running.process.is_leading, seconds=60)

    run_controller(tmp_path, scenario)


def test_a_leader_keeps_its_lease_while_it_waits(tmp_path):
    """Another one would see no more than it does."""
    fault = TROUBLES["list and watch of pods are forbidden"]

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        running = scene.start()
        await scene.settle(lambda: running.process.is_leading, seconds=30)
        begin(scene, fault)
        for _ in range(60):
            await scene.cluster.clock.sleep(10)
            assert running.process.is_leading

    run_controller(tmp_path, scenario)


def test_pods_get_nodes_while_other_kinds_are_stale(tmp_path):
    """Provisioning, launching and registration go on with what there is."""
    fault = RequestFault(
        matches=lambda request: request.path.endswith("/poddisruptionbudgets"),
        status=403,
        times=None,
    )

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        running = scene.start()
        await scene.settle(lambda: running.process.is_leading, seconds=30)
        begin(scene, fault)
        await scene.cluster.clock.sleep(200)
        assert "poddisruptionbudgets" in running.process.servers.failures()["freshness"]
        scene.cluster.apply([deployment("web", 3)])
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)

    run_controller(tmp_path, scenario)


def test_an_instance_without_a_claim_is_not_ended_under_the_pods_of_its_node(tmp_path):
    """The claim was removed by force; a budget keeps the pods where they are for now."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }

    async def scenario(scene):
        await two_nodes(scene, node_pool(disruption=disruption("Never")))
        scene.cluster.apply([budget])
        claim = scene.claims()[0]
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        scene.cluster.delete(NODE_CLAIMS, name)
        scene.cluster.patch(NODE_CLAIMS, name, {"metadata": {"finalizers": []}})
        assert len(scene.claims()) == 1
        await scene.cluster.clock.sleep(600)

        assert len(cloud(scene, tmp_path)["instances"]) == 2
        assert {pod["spec"]["nodeName"] for pod in scene.pods("Running")} >= {node}

        scene.cluster.delete(POD_DISRUPTION_BUDGETS, "web", namespace="default")
        await scene.settle(
            lambda: node not in {each["metadata"]["name"] for each in scene.nodes()}, seconds=300
        )
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        await scene.settle(lambda: len(cloud(scene, tmp_path)["instances"]) == 2, seconds=300)
        assert scene.events("Evicted")

    run_controller(tmp_path, scenario)


def test_a_command_is_not_started_when_its_kinds_grow_stale_while_it_is_validated(tmp_path):
    """It was planned on a state that was fresh; the wait before validation made it old."""
    fault = TROUBLES["list and watch of pods are forbidden"]

    async def scenario(scene):
        running = await two_empty_nodes(scene, node_pool(disruption=disruption("82s")))
        begin(scene, fault)
        await scene.cluster.clock.sleep(200)

        given_up = [each.rejection for each in running.process.runtime.journal.latest()]
        assert "stale" in given_up
        assert len(scene.nodes()) == 2
        assert not [each for each in scene.claims() if "deletionTimestamp" in each["metadata"]]

    run_controller(tmp_path, scenario)


def test_a_deleted_node_is_tainted_and_waits_while_its_pods_are_not_shown(tmp_path):
    """It was empty when pods were last heard of; one has been bound to it since."""
    fault = TROUBLES["list and watch of pods are forbidden"]
    waiting = 'karpenter_core_waiting_for_freshness{consumer="drain"}'

    async def scenario(scene):
        running = await two_empty_nodes(scene, node_pool(disruption=disruption("Never")))
        begin(scene, fault)
        await bind_pods(scene)
        await scene.cluster.clock.sleep(100)
        name = scene.pods()[0]["spec"]["nodeName"]
        scene.cluster.delete(NODES, name)
        await scene.cluster.clock.sleep(300)

        (node,) = (each for each in scene.nodes() if each["metadata"]["name"] == name)
        assert "karpenter.sh/disrupted" in {each["key"] for each in node["spec"]["taints"]}
        assert len(scene.pods("Running")) == 2
        assert len(cloud(scene, tmp_path)["instances"]) == 2
        assert running.metric(waiting) >= 1

        scene.cluster.frontend.faults.clear()
        await scene.settle(
            lambda: name not in {each["metadata"]["name"] for each in scene.nodes()}, seconds=400
        )
        assert scene.events("Evicted")
        assert running.metric(waiting) == 0

    run_controller(tmp_path, scenario)


def test_no_instance_is_collected_while_pods_are_not_shown(tmp_path):
    """Its claim was removed by force in the meantime."""
    fault = TROUBLES["list and watch of pods are forbidden"]
    waiting = 'karpenter_core_waiting_for_freshness{consumer="garbage-collection"}'

    async def scenario(scene):
        running = await two_empty_nodes(scene, node_pool(disruption=disruption("Never")))
        begin(scene, fault)
        await scene.cluster.clock.sleep(100)
        name = scene.claims()[0]["metadata"]["name"]
        scene.cluster.delete(NODE_CLAIMS, name)
        scene.cluster.patch(NODE_CLAIMS, name, {"metadata": {"finalizers": []}})
        await scene.cluster.clock.sleep(600)
        assert len(cloud(scene, tmp_path)["instances"]) == 2
        assert running.metric(waiting) == 1

        scene.cluster.frontend.faults.clear()
        await scene.settle(lambda: len(cloud(scene, tmp_path)["instances"]) == 1, seconds=400)
        assert running.metric(waiting) == 0

    run_controller(tmp_path, scenario)
