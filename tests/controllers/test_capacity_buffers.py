"""CapacityBuffers: room for pods that do not exist yet, kept through all that happens to nodes."""

from __future__ import annotations

import pytest

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.crd import render_crd
from karpenter_core.controllers.provisioning import provisioner
from karpenter_core.kube.resources import DEPLOYMENTS, POD_TEMPLATES
from karpenter_core.kube.wire.codecs import CAPACITY_BUFFERS, NODE_CLAIMS, NODE_POOLS
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

ARGUMENTS = ("--disable-leader-election", "--feature-gates=CapacityBuffer=true")
CONSOLIDATING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}
WHEN_EMPTY = {**CONSOLIDATING, "consolidationPolicy": "WhenEmpty"}
SMALL_NODES = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]},
]


def buffer(name="headroom", **spec):
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec or {"podTemplateRef": {"name": "chunk"}, "replicas": 2},
    }


def pod_template(name="chunk", *, cpu="1"):
    requests = {"cpu": cpu, "memory": "512Mi"}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "web", "image": "nginx", "resources": {"requests": requests}}
                ]
            },
        },
    }


def stored(scene, name="headroom"):
    return scene.workload.find(CAPACITY_BUFFERS, name, namespace="default")


def condition(scene, kind, name="headroom"):
    found = stored(scene, name).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"]) for c in found if c["type"] == kind), None)


def is_provided(scene, name="headroom"):
    return condition(scene, "Provisioning", name) == ("True", "FitsExistingCapacity")


def ready_nodes(scene):
    return [
        claim["metadata"]["name"]
        for claim in scene.claims()
        if any(
            c["type"] == "Initialized" and c["status"] == "True"
            for c in claim.get("status", {}).get("conditions", [])
        )
    ]


async def started(scene, *objects, disruption=CONSOLIDATING, **pool):
    template = {"requirements": SMALL_NODES, **pool.pop("template", {})}
    scene.cluster.apply(
        [NODE_CLASS, node_pool(disruption=disruption, template=template, **pool), *objects]
    )
    scene.start(*ARGUMENTS)


async def restarted(scene):
    """Kill the process, and start another one."""
    (running,) = [one for one in scene._processes if one.is_alive]
    await running.kill()
    scene.start(*ARGUMENTS)


async def with_room(scene, *objects, **pool):
    await started(scene, pod_template(), buffer(), *objects, **pool)
    await scene.settle(lambda: is_provided(scene) and len(ready_nodes(scene)) >= 2)


def test_room_for_the_pods_of_a_buffer_is_made_and_kept(tmp_path):
    """Emptiness deletes nodes at once, but not these; without the buffer they go."""

    async def scenario(scene):
        await with_room(scene)
        status = stored(scene)["status"]
        assert (status["replicas"], status["podTemplateGeneration"]) == (2, 1)
        assert status["podTemplateRef"] == {"name": "chunk"}
        assert status["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"
        before = sorted(ready_nodes(scene))

        await scene.cluster.clock.sleep(300)

        assert sorted(ready_nodes(scene)) == before
        (told,) = scene.events("Provisioning")[-1:]
        assert "False -> True, Reason: FitsExistingCapacity" in told["message"]
        assert not scene.events("Nominated")
        assert not scene.events("FailedScheduling")
        scene.cluster.delete(CAPACITY_BUFFERS, "headroom", namespace="default")
        await scene.settle(lambda: not scene.claims(), seconds=300)

    run_controller(tmp_path, scenario)


def test_a_pass_that_fails_keeps_no_node_of_a_deleted_buffer(tmp_path, monkeypatch):
    """The first pass without the buffer is to forget the places of its pods."""
    build, failures = provisioner.build_provisioning_input, []

    def failing_once(snapshot, **options):
        if not snapshot.has_virtual_pods and snapshot.virtual_pod_counts and not failures:
            failures.append(snapshot.version)
            raise ValueError("planned to fail")
        return build(snapshot, **options)

    monkeypatch.setattr(provisioner, "build_provisioning_input", failing_once)

    async def scenario(scene):
        await with_room(scene, disruption=WHEN_EMPTY)
        scene.cluster.delete(CAPACITY_BUFFERS, "headroom", namespace="default")
        await scene.settle(lambda: not scene.claims(), seconds=120)
        assert failures

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("disruption", [CONSOLIDATING, WHEN_EMPTY], ids=["both", "empty"])
def test_nodes_of_a_deleted_buffer_go_whenever_the_disruption_pass_comes(tmp_path, disruption):
    """Here it comes between the deletion and the provisioning pass that forgets the places."""

    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(disruption=disruption, template={"requirements": SMALL_NODES}),
                pod_template(),
                buffer(),
            ]
        )
        scene.start(*ARGUMENTS, "--batch-idle-duration=15s", "--batch-max-duration=30s")
        await scene.settle(lambda: is_provided(scene) and len(ready_nodes(scene)) >= 2)
        scene.cluster.delete(CAPACITY_BUFFERS, "headroom", namespace="default")
        await scene.settle(lambda: not scene.claims(), seconds=120)

    run_controller(tmp_path, scenario)


def test_a_pod_takes_the_room_at_once_and_the_buffer_is_refilled(tmp_path):
    async def scenario(scene):
        await with_room(scene)
        before = set(ready_nodes(scene))

        scene.cluster.apply([deployment("web", 1, memory="512Mi")])
        await scene.settle(lambda: len(scene.pods("Running")) == 1)
        assert {node["metadata"]["name"] for node in scene.nodes()} == before
        await scene.settle(lambda: len(ready_nodes(scene)) == 3 and is_provided(scene))

    run_controller(tmp_path, scenario)


def test_nodes_of_a_buffer_are_replaced_for_drift(tmp_path):
    """One by one: the room never gets less."""

    async def scenario(scene):
        await with_room(scene)
        before = set(ready_nodes(scene))
        drifted = {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}}
        scene.cluster.server.registry.patch(NODE_POOLS, drifted, "general", "")
        fewest = []

        def is_replaced():
            fewest.append(len(ready_nodes(scene)))
            return before.isdisjoint(claim["metadata"]["name"] for claim in scene.claims())

        await scene.settle(is_replaced, seconds=900)
        assert min(fewest) >= 2
        await scene.settle(lambda: is_provided(scene) and len(scene.claims()) == 2, seconds=300)

    run_controller(tmp_path, scenario)


def test_a_limit_of_the_pool_holds_while_claims_are_not_launched(tmp_path):
    """Room for ten pods is asked for, and for two nodes there is a limit."""

    async def scenario(scene):
        spec = {"podTemplateRef": {"name": "chunk"}, "replicas": 10}
        await started(scene, pod_template(), buffer(**spec), limits={"cpu": "4"})
        most = []

        def is_ready():
            most.append(len(scene.claims()))
            return len(ready_nodes(scene)) == 2

        await scene.settle(is_ready)
        for _ in range(60):
            await scene.cluster.clock.sleep(1)
            most.append(len(scene.claims()))
        assert max(most) == 2
        assert condition(scene, "Provisioning") == ("False", "RequiresNewCapacity")

    run_controller(tmp_path, scenario)


def test_a_buffer_follows_its_workload(tmp_path):
    """It waits for the workload, and takes a share of its replicas."""

    async def scenario(scene):
        ref = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
        await started(scene, buffer(scalableRef=ref, percentage=20))
        await scene.settle(
            lambda: condition(scene, "ReadyForProvisioning") == ("False", "ScalableRefNotFound")
        )
        assert condition(scene, "Provisioning") == ("False", "NotReadyForProvisioning")

        scene.cluster.apply([deployment("web", 5, cpu="500m")])
        await scene.settle(lambda: stored(scene)["status"].get("replicas") == 1)
        scale = {"spec": {"replicas": 20}}
        scene.cluster.server.registry.patch(DEPLOYMENTS, scale, "web", "default")
        await scene.settle(lambda: stored(scene)["status"]["replicas"] == 4)
        await scene.settle(lambda: is_provided(scene), seconds=300)

    run_controller(tmp_path, scenario)


def test_a_buffer_follows_its_pod_template(tmp_path):
    async def scenario(scene):
        await with_room(scene)
        scene.cluster.apply([pod_template(cpu="500m")])
        await scene.settle(lambda: stored(scene)["status"]["podTemplateGeneration"] == 2)
        scene.cluster.delete(POD_TEMPLATES, "chunk", namespace="default")
        await scene.settle(
            lambda: condition(scene, "ReadyForProvisioning") == ("False", "PodTemplateNotFound")
        )
        await scene.settle(lambda: not scene.claims(), seconds=300)

    run_controller(tmp_path, scenario)


def test_a_buffer_whose_workload_vanishes_gives_up_its_room_and_takes_it_again(tmp_path):
    """Also when the Deployment was gone before the controller started."""

    async def scenario(scene):
        reference = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
        await started(scene, deployment("web", 0), buffer(scalableRef=reference, replicas=2))
        await scene.settle(lambda: is_provided(scene) and len(ready_nodes(scene)) >= 1)
        scene.cluster.delete(DEPLOYMENTS, "web", namespace="default")
        await scene.settle(
            lambda: condition(scene, "ReadyForProvisioning") == ("False", "ScalableRefNotFound")
        )
        await scene.settle(lambda: not scene.claims(), seconds=300)
        await restarted(scene)
        await scene.cluster.clock.sleep(120)
        assert not scene.claims()
        scene.cluster.apply([deployment("web", 0)])
        await scene.settle(lambda: is_provided(scene) and len(ready_nodes(scene)) >= 1, seconds=300)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(("cpu", "running"), [("1", 2), ("3", 0)], ids=["fitting", "large"])
def test_expendable_pods_do_not_move_a_buffer_from_node_to_node(tmp_path, cpu, running):
    """They would take its room if their nodes were removed, unless they are larger than that."""

    async def scenario(scene):
        sizes = {**SMALL_NODES[1], "values": ["2", "4"]}
        template = {"requirements": [SMALL_NODES[0], sizes]}
        pool = node_pool(disruption=CONSOLIDATING, template=template)
        low = deployment("low", 2, cpu=cpu, memory="512Mi", priority=-1)
        web = deployment("web", 2, cpu="3")
        scene.cluster.apply([NODE_CLASS, pool, pod_template(), buffer(), web])
        scene.start(*ARGUMENTS, "--priority-cutoff=0")
        await scene.settle(lambda: is_provided(scene) and len(scene.pods("Running")) == 2)
        scene.cluster.delete(DEPLOYMENTS, "web", namespace="default")
        await scene.settle(lambda: not scene.pods())
        scene.cluster.apply([low])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=5)
        await scene.cluster.clock.sleep(600)
        launched = len(cloud(scene, tmp_path)["launches"])
        await scene.cluster.clock.sleep(1800)

        assert is_provided(scene)
        assert len(scene.pods("Running")) == running
        assert len(cloud(scene, tmp_path)["launches"]) == launched

    run_controller(tmp_path, scenario)


async def with_a_node_too_many(scene):
    """Have three nodes of four cores beside a buffer, on which the pods of two and the buffer fit."""
    template = {"requirements": [SMALL_NODES[0], {**SMALL_NODES[1], "values": ["4"]}]}
    pool = node_pool(disruption=CONSOLIDATING, template=template)
    scene.cluster.apply([NODE_CLASS, pool, pod_template(cpu="3")])
    scene.cluster.apply([deployment("web", 2), deployment("short", 1, cpu="1800m")])
    scene.start(*ARGUMENTS)
    await scene.settle(lambda: len(scene.pods("Running")) == 3)
    scene.cluster.apply([deployment("single", 1)])
    await scene.settle(lambda: len(scene.pods("Running")) == 4)
    scene.cluster.apply([buffer(podTemplateRef={"name": "chunk"}, replicas=1)])
    await scene.settle(lambda: is_provided(scene) and len(ready_nodes(scene)) == 3)
    scene.cluster.delete(DEPLOYMENTS, "short", namespace="default")


def test_pods_that_move_do_not_take_the_room_of_a_buffer_over_and_over(tmp_path):
    """Their node is one too many, but they would be bound where most is free, which is that room."""

    async def scenario(scene):
        await with_a_node_too_many(scene)
        await scene.cluster.clock.sleep(1800)

        assert is_provided(scene)
        assert len(cloud(scene, tmp_path)["launches"]) == 3
        scene.cluster.delete(CAPACITY_BUFFERS, "headroom", namespace="default")
        await scene.settle(lambda: len(scene.claims()) == 1, seconds=600)

    run_controller(tmp_path, scenario)


def test_a_buffer_buys_no_nodes_for_expendable_pods_that_take_its_room(tmp_path):
    """They give it back by preemption; when the buffer has gone, nothing keeps their nodes."""

    async def scenario(scene):
        await with_room(scene, disruption=CONSOLIDATING)
        before = sorted(ready_nodes(scene))
        filler = deployment("filler", 20, cpu="900m", memory="100Mi", priority=-1)
        annotations = {"karpenter.sh/expendable": "true"}
        filler["spec"]["template"]["metadata"]["annotations"] = annotations
        scene.cluster.apply([filler])
        await scene.cluster.clock.sleep(1800)

        assert sorted(ready_nodes(scene)) == before
        assert is_provided(scene)
        assert len(scene.pods("Running")) == 4, "their nodes are full"
        scene.cluster.delete(CAPACITY_BUFFERS, "headroom", namespace="default")
        await scene.settle(lambda: not scene.claims(), seconds=600)

    run_controller(tmp_path, scenario)


def test_a_restart_disrupts_no_node_of_a_buffer(tmp_path):
    """A new process knows the virtual pods before it judges nodes."""

    async def scenario(scene):
        await with_room(scene)
        before = sorted(ready_nodes(scene))
        for _ in range(3):
            await restarted(scene)
            await scene.cluster.clock.sleep(45)
            assert sorted(ready_nodes(scene)) == before

    run_controller(tmp_path, scenario)


def test_a_buffer_grows_with_the_bursts_that_it_has_seen(tmp_path):
    """Up to its limits; a new process still knows them."""

    async def scenario(scene):
        sized = buffer(podTemplateRef={"name": "chunk"}, limits={"cpu": "3"})
        sized["metadata"]["annotations"] = {"karpenter.sh/size-from-bursts": "true"}
        await started(scene, pod_template(), sized)
        await scene.settle(lambda: stored(scene).get("status", {}).get("replicas") == 0)
        assert condition(scene, "Provisioning") == ("False", "BufferEmpty")

        other = deployment("web", 2)
        other["metadata"]["namespace"] = "other"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        scene.cluster.apply([namespace, other])
        await scene.cluster.clock.sleep(300)
        assert stored(scene)["status"]["replicas"] == 0, "pods of another namespace are no burst"

        scene.cluster.apply([deployment("web", 2)])
        await scene.settle(lambda: stored(scene)["status"]["replicas"] == 2, seconds=300)
        messages = [each["message"] for each in stored(scene)["status"]["conditions"]]
        assert any("sized for bursts of 2 pods" in message for message in messages)
        for name in ("default", "other"):
            scene.cluster.delete(DEPLOYMENTS, "web", namespace=name)
        await scene.settle(lambda: not scene.pods())
        await restarted(scene)
        await scene.cluster.clock.sleep(600)
        assert stored(scene)["status"]["replicas"] == 2
        await scene.settle(lambda: is_provided(scene))

        scene.cluster.apply([deployment("web", 9)])
        await scene.settle(lambda: stored(scene)["status"]["replicas"] == 3, seconds=300)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({"karpenter.sh/size-from-bursts": "many"}, {"cpu": "3"}),
        ({"karpenter.sh/size-from-bursts": "true"}, None),
        (
            {"karpenter.sh/size-from-bursts": "true", "karpenter.sh/observed-bursts": "{"},
            {"cpu": "3"},
        ),
    ],
    ids=["setting", "no-limits", "record"],
)
def test_a_size_that_cannot_be_automatic_is_reported(tmp_path, annotations, limits):
    """The buffer has its own size."""

    async def scenario(scene):
        spec = {"podTemplateRef": {"name": "chunk"}, "replicas": 1}
        sized = buffer(**spec, **({"limits": limits} if limits else {}))
        sized["metadata"]["annotations"] = annotations
        await started(scene, pod_template(), sized)
        await scene.settle(lambda: is_provided(scene))
        assert stored(scene)["status"]["replicas"] == 1
        assert stored(scene)["metadata"]["annotations"] == annotations
        (event,) = scene.events("InvalidBufferSizing")
        assert event["involvedObject"]["kind"] == "CapacityBuffer"

    run_controller(tmp_path, scenario)


def test_buffers_are_in_the_cluster_of_the_pods(tmp_path):
    """For a buffer whose NodeClaims are in another one."""

    async def scenario(scene):
        scene.workload.apply([render_crd(CapacityBuffer)])
        scene.workload.apply([pod_template(), buffer()])
        await started(scene)
        await scene.settle(lambda: is_provided(scene) and len(ready_nodes(scene)) >= 2)
        assert len(scene.claims()) == 2

    run_controller(tmp_path, scenario, split=True)


@pytest.mark.parametrize("gate", ["false", ""])
def test_without_the_gate_no_buffer_is_read(tmp_path, gate):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), pod_template(), buffer()])
        arguments = [f"--feature-gates=CapacityBuffer={gate}"] if gate else []
        running = scene.start("--disable-leader-election", *arguments)
        await scene.cluster.clock.sleep(60)
        assert not scene.claims()
        assert "status" not in stored(scene)
        assert CAPACITY_BUFFERS not in running.process.informers.ages

    run_controller(tmp_path, scenario)


def test_an_observer_counts_the_room_of_a_buffer_on_both_sides(tmp_path):
    """A fresh plan pays for the room as well: the nodes that keep it free are no waste."""

    async def scenario(scene):
        await with_room(scene, disruption={"consolidationPolicy": "WhenEmpty"})
        observer = scene.start("--observe", ARGUMENTS[1])
        await scene.cluster.clock.sleep(200)

        def price(side):
            return observer.metric(f'karpenter_observed_{side}_per_hour{{currency="USD"}}')

        assert price("price") > 0
        assert price("planned_price") == pytest.approx(price("price"))

        scene.cluster.delete(CAPACITY_BUFFERS, "headroom", namespace="default")
        await scene.cluster.clock.sleep(61)
        assert observer.process.cluster_state.snapshot().virtual_pods == {}

    run_controller(tmp_path, scenario)


DRIFTED = {"template": {"metadata": {"labels": {"team": "web"}}}}
EXPIRED = {"template": {"spec": {"expireAfter": "20m"}}}


@pytest.mark.parametrize("change", [DRIFTED, EXPIRED, None], ids=["drift", "expiry", "deletion"])
def test_a_removed_node_costs_a_buffer_its_room_once_at_most(tmp_path, change):
    """Its pods are bound to that room, which gets a new node: one more for each node, and no others."""

    async def scenario(scene):
        await with_a_node_too_many(scene)
        await scene.cluster.clock.sleep(600)
        if change is None:
            for name in ready_nodes(scene):
                scene.cluster.delete(NODE_CLAIMS, name)
                await scene.cluster.clock.sleep(300)
        else:
            scene.cluster.server.registry.patch(NODE_POOLS, {"spec": change}, "general", "")
            await scene.cluster.clock.sleep(900)
        launched = len(cloud(scene, tmp_path)["launches"])
        assert launched <= 3 + 2 * 3
        assert is_provided(scene)

        if change is EXPIRED:
            lasting = {"template": {"spec": {"expireAfter": "Never"}}}
            scene.cluster.server.registry.patch(NODE_POOLS, {"spec": lasting}, "general", "")
            await scene.cluster.clock.sleep(900)
            launched = len(cloud(scene, tmp_path)["launches"])
        await scene.cluster.clock.sleep(1800)
        assert is_provided(scene)
        assert len(cloud(scene, tmp_path)["launches"]) == launched
        assert len(scene.claims()) <= 3

    run_controller(tmp_path, scenario)
