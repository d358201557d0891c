"""NodeOverlays decide what is launched, what it counts as, what it costs, and when it is replaced."""

from __future__ import annotations

from karpenter_core.kube.wire.codecs import NODE_OVERLAYS, NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.test_observation import recorded_requests
from tests.controllers.whole_controller import (
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)

ARGUMENTS = ("--disable-leader-election", "--feature-gates=NodeOverlay=true")
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
FUSE = "smarter-devices/fuse"
NEVER = {
    "consolidationPolicy": "WhenEmpty",
    "consolidateAfter": "Never",
    "budgets": [{"nodes": "100%"}],
}
UNDERUTILIZED = {
    **NEVER,
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
}


def overlay(name, *requirements, annotations=None, **spec):
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"requirements": list(requirements), **spec},
    }


def one_of(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def conditions(scene, name):
    found = scene.cluster.find(NODE_OVERLAYS, name)
    return {c["type"]: c for c in (found or {}).get("status", {}).get("conditions", ())}


def verdict(scene, name):
    found = conditions(scene, name).get("ValidationSucceeded", {})
    return found.get("status"), found.get("reason")


def types(scene):
    return sorted(node["metadata"]["labels"][TYPE] for node in scene.nodes())


async def running(scene, count):
    await scene.settle(lambda: len(scene.pods("Running")) == count)


def test_an_adjusted_price_changes_the_launched_type(tmp_path):
    async def scenario(scene):
        favourite = overlay("favourite", one_of(TYPE, "disk1.2xlarge"), price="0.001", weight=10)
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=NEVER), favourite])
        scene.cluster.apply([deployment("web", 1)])
        process = scene.start(*ARGUMENTS)
        await running(scene, 1)

        assert types(scene) == ["disk1.2xlarge"]
        assert verdict(scene, "favourite") == ("True", "ValidationSucceeded")
        assert conditions(scene, "favourite")["Ready"]["status"] == "True"
        (claim,) = scene.claims()
        annotations = claim["metadata"]["annotations"]
        assert annotations["karpenter.sh/price-overlay-applied"] == "true"
        assert "karpenter.sh/capacity-overlay-applied" not in annotations
        await scene.cluster.clock.sleep(60)
        assert process.metric('karpenter_nodepools_cost_total{nodepool="general"}') == 0.001
        decisions = process.process.runtime.journal.latest(kind="provision")
        (launch,) = (each for decision in decisions for each in decision.launches)
        assert launch.price_per_hour.amount == 0.001
        assert launch.list_price_per_hour.amount > 0.1
        assert launch.price_source == 'NodeOverlay "favourite"'

    run_controller(tmp_path, scenario)


def test_with_the_gate_off_overlays_are_not_even_read(tmp_path):
    async def scenario(scene):
        favourite = overlay("favourite", one_of(TYPE, "disk1.2xlarge"), price="0.001")
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=NEVER), favourite])
        scene.cluster.apply([deployment("web", 1)])
        requests = recorded_requests(scene.start("--disable-leader-election"))
        await running(scene, 1)

        assert types(scene) != ["disk1.2xlarge"]
        assert conditions(scene, "favourite") == {}
        assert any("nodepools" in path for _, path in requests)
        assert not any("nodeoverlays" in path for _, path in requests)

    run_controller(tmp_path, scenario)


def test_a_pod_gets_a_node_with_a_resource_that_only_an_overlay_knows(tmp_path):
    async def scenario(scene):
        fuse = overlay("fuse", one_of(ZONE, "test-zone-a"), capacity={FUSE: "1"})
        web = deployment("web", 2)
        (container,) = web["spec"]["template"]["spec"]["containers"]
        container["resources"] = {
            "requests": {"cpu": "1", FUSE: "1"},
            "limits": {FUSE: "1"},
        }
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=NEVER), fuse, web])
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: len(scene.claims()) == 2)
        await scene.cluster.clock.sleep(120)

        assert len(scene.claims()) == 2, "one for each pod, and nodes in flight count"
        for claim in scene.claims():
            assert claim["status"]["capacity"][FUSE] == "1"
            assert (
                claim["metadata"]["annotations"]["karpenter.sh/capacity-overlay-applied"] == "true"
            )
        assert len(scene.pods("Running")) == 2

    run_controller(tmp_path, scenario)


def test_conflicts_and_errors_are_conditions_and_end_with_their_cause(tmp_path):
    async def scenario(scene):
        bad = overlay("bad", {"key": f"a/{'b' * 70}", "operator": "Exists"}, price="1")
        first, second = overlay("b", price="1"), overlay("a", price="1")
        scene.cluster.apply([NODE_CLASS, node_pool(), bad, first, second])
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: verdict(scene, "a") == ("False", "Conflict"))

        assert verdict(scene, "b") == ("True", "ValidationSucceeded")
        assert verdict(scene, "bad") == ("False", "RuntimeValidation")
        assert conditions(scene, "bad")["Ready"]["status"] == "False"
        found = conditions(scene, "a")["ValidationSucceeded"]
        assert found["message"] == "conflict with another overlay"
        said = {
            event["involvedObject"]["name"]: event["message"]
            for event in scene.events("NodeOverlayNotApplied")
        }
        assert set(said) == {"a", "bad"}
        assert 'conflict: "b" changes the price of' in said["a"]
        assert "requirements[0]" in said["bad"]
        scene.cluster.delete(NODE_OVERLAYS, "b")
        await scene.settle(lambda: verdict(scene, "a") == ("True", "ValidationSucceeded"))

    run_controller(tmp_path, scenario)


def test_a_refused_condition_delays_no_other_and_is_written_later(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), overlay("a", price="1"), overlay("b")])
        refused = matching("PATCH", "nodeoverlays/a")
        fault = RequestFault(matches=refused, status=500, times=None)
        scene.cluster.frontend.faults.add(fault)
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: verdict(scene, "b") == ("True", "ValidationSucceeded"))
        await scene.cluster.clock.sleep(60)  # no change wakes the controller any more
        assert conditions(scene, "a") == {}

        scene.cluster.frontend.faults.remove(fault)
        await scene.settle(
            lambda: verdict(scene, "a") == ("True", "ValidationSucceeded"), seconds=300
        )

    run_controller(tmp_path, scenario)


def test_a_new_price_triggers_a_replacement_and_a_rewritten_one_does_not(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=UNDERUTILIZED), deployment("web", 1)])
        scene.start(*ARGUMENTS)
        await running(scene, 1)
        (before,) = types(scene)
        await scene.cluster.clock.sleep(600)
        assert types(scene) == [before]
        elsewhere = overlay("elsewhere", one_of("karpenter.sh/nodepool", "other"), price="0.0001")
        scene.cluster.apply([elsewhere])
        await scene.cluster.clock.sleep(600)
        assert types(scene) == [before]

        dear = overlay("dear", one_of(TYPE, before), priceAdjustment="+900%")
        scene.cluster.apply([dear])
        await scene.settle(lambda: types(scene) not in ([before], []), seconds=900)
        assert len(scene.pods("Running")) == 1

    run_controller(tmp_path, scenario)


def test_overlays_of_the_reference_are_taken_over_as_they_are(tmp_path):
    """Its conditions stay as they are to the byte, and no node is replaced."""

    async def scenario(scene):
        plain = overlay("plain", one_of(ZONE, "test-zone-a"), priceAdjustment="-10%", weight=5)
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=UNDERUTILIZED), plain])
        scene.cluster.apply([deployment("web", 3)])
        theirs = {
            "status": "True",
            "lastTransitionTime": "2025-01-01T00:00:00Z",
            "message": "",
            "observedGeneration": 1,
        }
        status = [
            {"type": kind, "reason": kind, **theirs} for kind in ("ValidationSucceeded", "Ready")
        ]
        patch = {"status": {"conditions": status}}
        scene.cluster.server.registry.patch(NODE_OVERLAYS, patch, "plain", part="status")
        process = scene.start(*ARGUMENTS)
        await running(scene, 3)
        version = scene.cluster.find(NODE_OVERLAYS, "plain")["metadata"]["resourceVersion"]
        nodes = {node["metadata"]["uid"] for node in scene.nodes()}
        await process.kill()
        scene.start(*ARGUMENTS)
        await scene.cluster.clock.sleep(900)

        assert {node["metadata"]["uid"] for node in scene.nodes()} == nodes
        after = scene.cluster.find(NODE_OVERLAYS, "plain")
        assert after["metadata"]["resourceVersion"] == version
        assert after["status"]["conditions"] == status

    run_controller(tmp_path, scenario)


def test_a_pool_that_cannot_be_listed_does_not_hold_up_the_others(tmp_path):
    async def scenario(scene):
        lost = node_pool("lost")
        lost["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "missing"
        favourite = overlay("favourite", one_of(TYPE, "disk1.2xlarge"), price="0.001")
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=NEVER), lost, favourite])
        scene.cluster.apply([deployment("web", 1)])
        scene.start(*ARGUMENTS)
        await running(scene, 1)
        assert types(scene) == ["disk1.2xlarge"]

        missing = {**NODE_CLASS, "metadata": {"name": "missing"}}
        scene.cluster.apply([missing])
        scene.cluster.delete(NODE_POOLS, "general")
        scene.cluster.apply([deployment("more", 1)])
        await running(scene, 2)
        assert types(scene)[-1] == "disk1.2xlarge"

    run_controller(tmp_path, scenario)


def test_an_observer_evaluates_and_writes_nothing(tmp_path):
    async def scenario(scene):
        favourite = overlay("favourite", one_of(TYPE, "disk1.2xlarge"), price="0.001")
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=NEVER), favourite])
        version = scene.cluster.find(NODE_OVERLAYS, "favourite")["metadata"]["resourceVersion"]
        process = scene.start("--observe", "--feature-gates=NodeOverlay=true")
        await scene.settle(
            lambda: any(
                offering.is_overlaid
                for catalogue in process.process.cluster_state.snapshot().catalogues.values()
                for it in catalogue.instance_types
                for offering in it.offerings
            )
        )
        await scene.cluster.clock.sleep(60)
        after = scene.cluster.find(NODE_OVERLAYS, "favourite")
        assert after["metadata"]["resourceVersion"] == version

    run_controller(tmp_path, scenario)
