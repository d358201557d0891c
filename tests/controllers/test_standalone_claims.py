"""NodeClaims that a user writes, without a NodePool or a plan."""

from __future__ import annotations

import pytest

from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from tests.controllers.whole_controller import GROUP, NODE_CLASS, run_controller


def claim(*, name: str = "mine", requests: dict[str, str] | None = None, **metadata):
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, **metadata},
        "spec": {
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
            ],
            "resources": {"requests": requests or {}},
            "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
        },
    }


def conditions(scene):
    return {
        condition["type"]: condition["status"]
        for claim in scene.claims()
        for condition in claim.get("status", {}).get("conditions", ())
    }


def test_a_claim_of_no_pool_becomes_a_node_of_its_requirements(tmp_path):
    """Its labels and annotations are the node's."""

    async def scenario(scene):
        labels, annotations = {"team": "search"}, {"ticket": "17"}
        scene.cluster.apply([NODE_CLASS, claim(labels=labels, annotations=annotations)])
        scene.start()
        await scene.settle(lambda: conditions(scene).get("Ready") == "True", seconds=60)
        (node,) = scene.nodes()
        assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
        assert node["metadata"]["labels"]["karpenter.sh/capacity-type"] == "on-demand"
        assert labels.items() <= node["metadata"]["labels"].items()
        assert annotations.items() <= node["metadata"]["annotations"].items()

        scene.cluster.delete(NODE_CLAIMS, "mine")
        await scene.settle(lambda: not scene.claims() and not scene.nodes(), seconds=60)

    run_controller(tmp_path, scenario)


def test_a_claim_of_no_pool_gets_the_cheapest_type_that_holds_its_requests(tmp_path):
    """More is asked for than the cheapest type has."""

    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                claim(name="small"),
                claim(name="large", requests={"cpu": "3", "memory": "11Gi"}),
            ]
        )
        scene.start()
        await scene.settle(lambda: len(scene.nodes()) == 2, seconds=60)
        by_name = {node["metadata"]["name"]: node for node in scene.nodes()}
        small, large = (by_name[name]["status"]["allocatable"] for name in ("small", "large"))
        assert cores(large["cpu"]) >= 3 > cores(small["cpu"])

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    "objects",
    [
        [NODE_CLASS, claim(requests={"cpu": "100000"})],
        [claim()],
    ],
    ids=["no type is large enough", "its NodeClass does not exist"],
)
def test_a_failed_claim_without_a_pool_is_deleted(tmp_path, objects):
    """As a planned one would."""

    async def scenario(scene):
        scene.cluster.apply(objects)
        scene.start()
        await scene.settle(lambda: not scene.claims(), seconds=60)
        assert scene.nodes() == []

    run_controller(tmp_path, scenario)


def cores(quantity):
    text = str(quantity)
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
