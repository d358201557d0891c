"""Unhealthy nodes are repaired by a whole controller."""

from __future__ import annotations

from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.lifecycle.node.repair import summarise_node_health
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

WITHOUT_ELECTION = "--disable-leader-election"
REPAIR = "--feature-gates=NodeRepair=true"
PROTECTED = {
    "consolidationPolicy": "WhenEmpty",
    "consolidateAfter": "Never",
    "budgets": [{"nodes": "0"}],
}
ON_ITS_OWN = {
    "labels": {"app": "web"},
    "annotations": {"karpenter.sh/do-not-disrupt": "true"},
}


def protected(name: str, replicas: int, **pod):
    """A Deployment of protected pods, one to a node."""
    made = deployment(name, replicas, **pod)
    made["spec"]["template"]["metadata"] = ON_ITS_OWN
    made["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    return made


async def grown(scene, nodes: int, *arguments: str):
    scene.cluster.apply([NODE_CLASS, node_pool(disruption=PROTECTED), protected("web", nodes)])
    running = scene.start(WITHOUT_ELECTION, *arguments)
    await scene.settle(lambda: len(scene.pods("Running")) == nodes, seconds=60)
    await scene.settle(lambda: all(_is_initialised(claim) for claim in scene.claims()))
    return running, sorted(node["metadata"]["name"] for node in scene.nodes())


def _is_initialised(claim) -> bool:
    conditions = claim.get("status", {}).get("conditions", [])
    return any(c["type"] == "Initialized" and c["status"] == "True" for c in conditions)


def names(objects):
    return {each["metadata"]["name"] for each in objects}


def test_a_dead_node_is_replaced_after_ten_minutes_despite_protection(tmp_path):
    """Cases 114, 117 and 120: budgets and annotations do not keep an unhealthy node."""

    async def scenario(scene):
        running, (first, *_) = await grown(scene, 1, REPAIR)
        scene.cluster.kubelets.fail(first)
        await scene.cluster.clock.sleep(9 * 60)
        assert names(scene.nodes()) == {first}

        await scene.settle(lambda: first not in names(scene.nodes()), seconds=240)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        disrupted = (
            'karpenter_nodeclaims_unhealthy_disrupted_total{capacity_type="on-demand",'
            'condition="ready",image_id="",nodepool="general"}'
        )
        assert running.metric(disrupted) == 1
        (entry,) = running.process.runtime.journal.latest(kind="disrupt")
        assert (entry.method, entry.reason) == ("repair", "Unhealthy")
        assert [item.node for item in entry.candidates] == [first]

    run_controller(tmp_path, scenario)


def test_a_dead_node_is_kept_while_the_state_is_stale_and_replaced_as_soon_as_it_is_fresh(tmp_path):
    """It may have recovered, and its pods may have gone, unseen."""
    refused = RequestFault(
        matches=lambda request: request.path.endswith("/nodepools"),
        status=403,
        times=None,
    )
    waiting = 'karpenter_core_waiting_for_freshness{consumer="repair"}'
    failed = 'karpenter_reconcile_errors_total{controller="node.health"}'

    async def scenario(scene):
        running, (first, *_) = await grown(scene, 1, REPAIR)
        scene.cluster.kubelets.fail(first)
        await scene.cluster.clock.sleep(4 * 60)
        scene.cluster.frontend.stop()
        scene.cluster.frontend.start()
        scene.cluster.frontend.faults.add(refused)

        await scene.cluster.clock.sleep(10 * 60)

        assert names(scene.nodes()) == {first}
        assert (running.metric(waiting), running.metric(failed)) == (1, 0)

        scene.cluster.frontend.faults.clear()
        await scene.settle(lambda: first not in names(scene.nodes()), seconds=120)

    run_controller(tmp_path, scenario)


def test_a_dead_node_says_that_its_repair_is_refused(tmp_path):
    """A webhook or policy protects the NodeClaim."""

    async def scenario(scene):
        _, (first,) = await grown(scene, 1, REPAIR)
        (claim,) = names(scene.claims())
        deletion = matching("DELETE", f"nodeclaims/{claim}")
        refusal = RequestFault(matches=deletion, times=None, status=403)
        scene.cluster.frontend.faults.add(refusal)
        scene.cluster.kubelets.fail(first)
        await scene.cluster.clock.sleep(15 * 60)
        events = scene.events("WriteRefused")
        assert {event["involvedObject"]["name"] for event in events} == {first}

        scene.cluster.frontend.faults.remove(refusal)
        await scene.settle(lambda: first not in names(scene.nodes()), seconds=240)

    run_controller(tmp_path, scenario)


def test_a_node_that_recovers_from_a_refused_repair_keeps_no_deadline(tmp_path):
    """A later deletion would bypass PodDisruptionBudgets and grace periods."""

    async def scenario(scene):
        _, (first,) = await grown(scene, 1, REPAIR)
        (claim,) = names(scene.claims())
        deletion = matching("DELETE", f"nodeclaims/{claim}")
        refusal = RequestFault(matches=deletion, times=None, status=403)
        scene.cluster.frontend.faults.add(refusal)
        scene.cluster.kubelets.fail(first)
        await scene.settle(lambda: has_deadline(scene), seconds=15 * 60)
        scene.cluster.kubelets.heal(first)
        await scene.settle(lambda: not has_deadline(scene), seconds=15 * 60)
        scene.cluster.frontend.faults.remove(refusal)
        assert names(scene.nodes()) == {first}

    run_controller(tmp_path, scenario)


def has_deadline(scene):
    (claim,) = scene.claims()
    return TERMINATION_TIMESTAMP in claim["metadata"].get("annotations", {})


def test_a_claim_that_is_gone_before_its_repair_needs_none(tmp_path):
    """The watch is about to show it: that is no failure."""
    failed = 'karpenter_reconcile_errors_total{controller="node.health"}'

    async def scenario(scene):
        running, (first, *_) = await grown(scene, 1, REPAIR)
        gone = RequestFault(matches=matching("PATCH", "nodeclaims/"), status=404, times=None)
        scene.cluster.kubelets.fail(first)
        await scene.cluster.clock.sleep(9 * 60)
        scene.cluster.frontend.faults.add(gone)
        hits = scene.cluster.frontend.faults.hits
        await scene.cluster.clock.sleep(4 * 60)
        assert scene.cluster.frontend.faults.hits > hits
        assert running.metric(failed) == 0
        assert names(scene.nodes()) == {first}

        scene.cluster.frontend.faults.clear()
        scene.cluster.patch(NODES, first, {"metadata": {"labels": {"touched": "yes"}}})
        await scene.settle(lambda: first not in names(scene.nodes()), seconds=120)

    run_controller(tmp_path, scenario)


def test_without_the_gate_nothing_is_repaired(tmp_path):
    """As in the reference, it is off unless asked for."""

    async def scenario(scene):
        _, (first, *_) = await grown(scene, 1)
        scene.cluster.kubelets.fail(first)
        await scene.cluster.clock.sleep(1800)

        assert first in names(scene.claims())

    run_controller(tmp_path, scenario)


def test_users_set_repair_conditions_and_their_tolerated_time(tmp_path):
    """A detector of their own, a shorter patience, and a condition they can live with."""
    rules = "--repair-conditions=GPUFault=True:3m,Ready=Unknown:2m,Ready=False:never"

    async def scenario(scene):
        _, (sick, dead, unready) = await grown(scene, 3, REPAIR, rules)
        stored = scene.cluster.find(NODES, sick)
        fault = {
            "type": "GPUFault",
            "status": "True",
            "reason": "XidError",
            "lastTransitionTime": scene.cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        status = {"conditions": [*stored["status"]["conditions"], fault]}
        scene.cluster.server.registry.patch(NODES, {"status": status}, sick, part="status")
        await scene.cluster.clock.sleep(2 * 60)
        assert sick in names(scene.claims())
        await scene.settle(lambda: sick not in names(scene.claims()), seconds=240)

        scene.cluster.kubelets.fail(dead)
        await scene.settle(lambda: dead not in names(scene.claims()), seconds=240)

        scene.cluster.kubelets.fail(unready, ready="False")
        await scene.cluster.clock.sleep(60 * 60)
        assert unready in names(scene.claims())

    run_controller(tmp_path, scenario)


def test_many_broken_nodes_are_ignored_and_say_so(tmp_path):
    """Case 118: three of ten; the Events are on Nodes, claims and the pool."""

    async def scenario(scene):
        _, nodes = await grown(scene, 10, REPAIR)
        for name in nodes[:3]:
            scene.cluster.kubelets.fail(name)
        await scene.cluster.clock.sleep(1200)

        assert set(nodes) <= names(scene.claims())
        told = {event["involvedObject"]["kind"] for event in scene.events("NodeRepairBlocked")}
        assert told == {"Node", "NodeClaim", "NodePool"}

        scene.cluster.kubelets.heal(nodes[0])
        await scene.settle(lambda: not names(scene.claims()) & set(nodes[1:3]), seconds=900)
        assert nodes[0] in names(scene.claims())

    run_controller(tmp_path, scenario)


def test_a_small_mostly_unhealthy_pool_is_repaired(tmp_path):
    """One node after the other: never are two of them on their way out."""

    async def scenario(scene):
        _, nodes = await grown(scene, 3, REPAIR)
        for name in nodes[:2]:
            scene.cluster.kubelets.fail(name)
        going = 0
        for _ in range(60):
            await scene.cluster.clock.sleep(30)
            deleting = [c for c in scene.claims() if "deletionTimestamp" in c["metadata"]]
            going = max(going, len(deleting))

        assert not names(scene.nodes()) & set(nodes[:2])
        assert len(scene.pods("Running")) == 3
        assert going <= 1

    run_controller(tmp_path, scenario)


def test_a_small_pool_that_is_all_dead_is_ignored_and_says_so(tmp_path):
    """Until one of its nodes is healthy again: what broke all of them would break stand-ins."""

    async def scenario(scene):
        _, nodes = await grown(scene, 3, REPAIR)
        for name in nodes:
            scene.cluster.kubelets.fail(name)
        await scene.cluster.clock.sleep(1800)

        assert set(nodes) == names(scene.claims())
        assert "no node of the nodepool is healthy" in {
            event["message"] for event in scene.events("NodeRepairBlocked")
        }

        scene.cluster.kubelets.heal(nodes[0])
        await scene.settle(lambda: not names(scene.nodes()) & set(nodes[1:]), seconds=1800)
        assert nodes[0] in names(scene.claims())

    run_controller(tmp_path, scenario)


def test_a_paused_pool_is_repaired_when_the_pause_ends(tmp_path):
    """The annotation is read at once, without a restart."""

    async def scenario(scene):
        _, (first, *_) = await grown(scene, 1, REPAIR)
        pause = {"metadata": {"annotations": {"karpenter.sh/pause-disruption": "true"}}}
        scene.cluster.server.registry.patch(NODE_POOLS, pause, "general", "")
        scene.cluster.kubelets.fail(first)
        await scene.cluster.clock.sleep(1800)
        assert scene.cluster.find(NODE_CLAIMS, first) is not None

        pause = {"metadata": {"annotations": {"karpenter.sh/pause-disruption": None}}}
        scene.cluster.server.registry.patch(NODE_POOLS, pause, "general", "")
        await scene.settle(lambda: first not in names(scene.nodes()), seconds=300)

    run_controller(tmp_path, scenario)


def test_the_health_of_a_pool_is_summed_up_once_for_each_state_of_the_cluster(
    tmp_path, monkeypatch
):
    """Every node asks for it at the same moment when a network fails."""
    versions = []

    def counted(snapshot, pool, policies):
        versions.append(snapshot.version)
        return summarise_node_health(snapshot, pool, policies)

    for module in ("controllers.node.health", "lifecycle.node.repair"):
        monkeypatch.setattr(f"karpenter_core.{module}.summarise_node_health", counted)

    async def scenario(scene):
        _, nodes = await grown(scene, 4, REPAIR)
        for name in nodes:
            scene.cluster.kubelets.fail(name)
        await scene.cluster.clock.sleep(700)
        assert versions
        assert len(versions) == len(set(versions))

    run_controller(tmp_path, scenario)
