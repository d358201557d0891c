"""Pods with ResourceClaims get nodes with devices, and these nodes wait for their drivers."""

from __future__ import annotations

import json

from karpenter_core.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.device_manifests import API, CLASS, DEVICE, DRIVER, claim


def catalogue(folder):
    """Write a catalogue of a cheap type without devices, one with a device and one with two."""
    offerings = [
        {
            "Price": 0.1,
            "Available": True,
            "Requirements": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
        }
    ]
    plain = {
        "name": "plain",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4", "memory": "16Gi"},
        "offerings": offerings,
    }
    with_device = {
        **plain,
        "name": "with-device",
        "offerings": [{**offerings[0], "Price": 1.0}],
        "resourceSliceTemplates": [{"driver": DRIVER, "pool": "node", "devices": [DEVICE]}],
    }
    second = {**DEVICE, "name": "gpu-1"}
    with_two = {
        **with_device,
        "name": "with-two-devices",
        "offerings": [{**offerings[0], "Price": 2.0}],
        "resourceSliceTemplates": [{"driver": DRIVER, "pool": "node", "devices": [DEVICE, second]}],
    }
    path = folder / "types.json"
    path.write_text(json.dumps([plain, with_device, with_two]), encoding="utf-8")
    return f"--instance-types-file={path}"


def published(node):
    """The ResourceSlice that a driver publishes on a node."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [DEVICE],
        },
    }


def allocation(node):
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}
    return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}


def gpu_pods(name="train"):
    return deployment(name, 1, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])


def condition(nodeclaim, kind):
    return next(one for one in nodeclaim["status"]["conditions"] if one["type"] == kind)


def test_a_node_with_the_device_is_launched_and_initialised_when_its_driver_has_published(tmp_path):
    async def story(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), CLASS, gpu_pods()])
        running = scene.start()

        def count(state):
            labels = f'driver="{DRIVER}",nodepool="general",state="{state}"'
            return running.metric(f"karpenter_devices{{{labels}}}")

        await scene.settle(
            lambda: any("not found" in one["message"] for one in scene.events("FailedScheduling"))
        )
        assert scene.claims() == []

        scene.cluster.apply([claim("gpu")])
        await scene.settle(lambda: bool(scene.nodes()))
        (made,) = scene.claims()
        assert made["metadata"]["annotations"]["karpenter.sh/requested-dra-drivers"] == DRIVER
        assert made["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "with-device"
        await scene.settle(
            lambda: (
                condition(scene.claims()[0], "Initialized")["reason"]
                == "DRADriverPoolsNotPublished"
            )
        )

        (node,) = (one["metadata"]["name"] for one in scene.nodes())
        half = published(node)
        half["spec"]["pool"]["resourceSliceCount"] = 2
        scene.cluster.apply([half])
        await scene.settle(lambda: bool(scene.cluster.list(RESOURCE_SLICES)))
        assert condition(scene.claims()[0], "Initialized")["status"] == "Unknown"
        await scene.settle(lambda: count("unusable") == 1)
        scene.cluster.apply([published(node)])
        await scene.settle(lambda: condition(scene.claims()[0], "Initialized")["status"] == "True")

        await scene.settle(lambda: (count("free"), count("unusable")) == (1, 0))
        (uid,) = (one["metadata"]["uid"] for one in scene.pods())
        (pod_name,) = (one["metadata"]["name"] for one in scene.pods())
        consumer = {"resource": "pods", "name": pod_name, "uid": uid}
        status = {"allocation": allocation(node), "reservedFor": [consumer]}
        scene.cluster.server.registry.patch(
            RESOURCE_CLAIMS, {"status": status}, "gpu", "default", part="status"
        )
        await scene.settle(lambda: bool(scene.pods("Running")))
        assert len(scene.claims()) == 1
        await scene.settle(lambda: (count("allocated"), count("free")) == (1, 0))

    run_controller(tmp_path, story, arguments=["--ignore-dra-requests=false", catalogue(tmp_path)])


def daemon_set():
    """A DaemonSet whose pods have a generated claim, and the template."""
    spec = claim("gpu")["spec"]
    template = {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "agent-gpu", "namespace": "default"},
        "spec": {"spec": spec},
    }
    asked = [{"name": "gpu", "resourceClaimTemplateName": "agent-gpu"}]
    like = deployment("agent", 1, cpu="10m", memory="10Mi", resourceClaims=asked)
    del like["spec"]["replicas"]
    return template, {**like, "kind": "DaemonSet"}


def test_a_node_has_devices_for_its_daemons_and_for_the_pod_it_is_launched_for(tmp_path):
    async def story(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), CLASS, *daemon_set()])
        scene.cluster.apply([claim("gpu"), gpu_pods()])
        scene.start()
        await scene.settle(lambda: bool(scene.nodes()))
        await scene.cluster.clock.sleep(60)
        (made,) = scene.claims()
        labels = made["metadata"]["labels"]
        assert labels["node.kubernetes.io/instance-type"] == "with-two-devices"

    run_controller(tmp_path, story, arguments=["--ignore-dra-requests=false", catalogue(tmp_path)])


def test_pods_with_claims_wait_while_devices_are_ignored(tmp_path):
    async def story(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), CLASS, claim("gpu"), gpu_pods()])
        scene.cluster.apply([deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: bool(scene.pods("Running")))
        await scene.settle(
            lambda: any("not yet supported" in one["message"] for one in scene.events())
        )
        (made,) = scene.claims()
        assert "karpenter.sh/requested-dra-drivers" not in made["metadata"]["annotations"]

    run_controller(tmp_path, story, arguments=[catalogue(tmp_path)])
