"""The controller follows VerticalPodAutoscalers, once their kind is installed."""

from __future__ import annotations

from karpenter_core.kube.resources import VERTICAL_POD_AUTOSCALERS
from tests.controllers.test_every_write import names, whole
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

ON = ("--disable-leader-election", "--vpa-predictions=true")
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "verticalpodautoscalers.autoscaling.k8s.io"},
    "spec": {
        "group": "autoscaling.k8s.io",
        "names": {
            "kind": "VerticalPodAutoscaler",
            "listKind": "VerticalPodAutoscalerList",
            "plural": "verticalpodautoscalers",
            "singular": "verticalpodautoscaler",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
SCALER = {
    "apiVersion": "autoscaling.k8s.io/v1",
    "kind": "VerticalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    "status": {
        "recommendation": {
            "containerRecommendations": [{"containerName": "web", "target": {"cpu": "3"}}]
        }
    },
}
SIZES = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2", "4"]},
    ]
}
PATIENT = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "60s",
    "budgets": [{"nodes": "100%"}],
}


def test_a_node_is_kept_for_the_requests_that_its_pod_will_have(tmp_path):
    """Its pod asks for less than a core by now, but would be created again with three."""

    async def scenario(scene):
        scene.cluster.apply([DEFINITION])
        pool = node_pool(template=SIZES, disruption=PATIENT)
        scene.cluster.apply([NODE_CLASS, pool, SCALER])
        scene.cluster.apply([deployment("big", 1, cpu="3"), deployment("web", 1, cpu="500m")])
        running = scene.start(*ON)
        await scene.settle(lambda: whole(scene, tmp_path, 2), seconds=400)
        (first,) = names(scene.claims())
        scene.cluster.apply([deployment("big", 0, cpu="3")])
        await scene.cluster.clock.sleep(600)
        assert names(scene.claims()) == {first}, "the pod would not fit on a smaller node"
        change = 'karpenter_pods_predicted_requests_change{resource_type="cpu"}'
        assert running.metric("karpenter_pods_with_predicted_requests") == 1
        assert running.metric(change) == 2.5
        scene.cluster.delete(VERTICAL_POD_AUTOSCALERS, "web", namespace="default")
        await scene.settle(
            lambda: first not in names(scene.claims()) and whole(scene, tmp_path, 1), seconds=900
        )
        await scene.cluster.clock.sleep(20)
        assert running.metric("karpenter_pods_with_predicted_requests") == 0
        assert running.metric(change) == 0

    run_controller(tmp_path, scenario)


def test_pods_get_nodes_where_the_kind_is_not_installed(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(template=SIZES), deployment("web", 1)])
        scene.start(*ON)
        await scene.settle(lambda: whole(scene, tmp_path, 1), seconds=400)

    run_controller(tmp_path, scenario)


SMALL = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"]},
    ]
}
EAGER = {**PATIENT, "consolidateAfter": "0s"}


def test_requests_that_are_never_lowered_do_not_move_pods_over_and_over(tmp_path):
    """No admission controller sets what is recommended: each pod comes back as large as it was."""

    async def scenario(scene):
        low = {"containerName": "web", "target": {"cpu": "100m", "memory": "64Mi"}}
        status = {"recommendation": {"containerRecommendations": [low]}}
        pool = node_pool(template=SMALL, disruption=EAGER)
        scene.cluster.apply([DEFINITION, NODE_CLASS, pool, {**SCALER, "status": status}])
        scene.cluster.apply([deployment("web", 3, cpu="1200m")])
        scene.start(*ON)
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=400)
        await scene.cluster.clock.sleep(3600)
        assert len(cloud(scene, tmp_path)["launches"]) == 3

    run_controller(tmp_path, scenario)
