"""Taking over a cluster from Karpenter's provider for Alibaba Cloud, and handing it back.

A node is launched, and its objects and tags are then rewritten to what that provider leaves: its hash and its
version, its marks of tagged instances, and no tag of this project.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import custom_kind
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.hashing import HASH_VERSION
from karpenter_simulated_alibabacloud.types import realistic_types
from providers.alibabacloud.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster

GROUP = "karpenter.k8s.alibabacloud"
LARGE = "ecs.g7.large"
HASH, HASH_VERSION_KEY = f"{GROUP}/ecsnodeclass-hash", f"{GROUP}/ecsnodeclass-hash-version"
THEIRS = {HASH: "4029871113742938273", HASH_VERSION_KEY: "v3"}
TAGGED = {
    f"{GROUP}/tagged": "true",
    "compatibility.karpenter.k8s.alibabacloud/cluster-name-tagged": "true",
}
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
ENDINGS = ("CreateAutoProvisioningGroup", "RunInstances", "DeleteInstance", "DeleteInstances")


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    opened = CloudStage([it for it in realistic_types() if it.name == LARGE])
    with opened.open():
        yield opened


async def serve(cloud_stage: CloudStage, stage: ProviderCluster) -> None:
    """Have a node launched that runs a pod and has all its tags."""
    stage.apply(
        cloud_stage.node_class(),
        node_pool_manifest(
            ECSNodeClass,
            requirements={"node.kubernetes.io/instance-type": [LARGE]},
            disruption=NEVER,
        ),
    )
    await stage.until_ready("True")
    stage.apply(pod_manifest("web"))
    await stage.harness.settle(lambda: len(stage.harness.pods("Running")) == 1, seconds=300)
    await stage.harness.settle(lambda: "Name" in only_tags(cloud_stage), seconds=300)


def only_tags(cloud_stage: CloudStage) -> dict[str, str]:
    (instance,) = cloud_stage.cloud.living()
    return dict(instance.tags)


def write_as_the_reference(cloud_stage: CloudStage, stage: ProviderCluster) -> None:
    cluster = stage.harness.cluster
    for claim in stage.harness.claims():
        name = claim["metadata"]["name"]
        cluster.patch(NODE_CLAIMS, name, {"metadata": {"annotations": {**THEIRS, **TAGGED}}})
    kind = custom_kind(ECSNodeClass.resource)
    cluster.patch(kind, "default", {"metadata": {"annotations": THEIRS}})
    (instance,) = cloud_stage.cloud.living()
    ours = [key for key in instance.tags if key.startswith(f"{GROUP}/nodeclaims")]
    cloud_stage.cloud.tag(instance.id, dict.fromkeys(ours))


def test_a_node_of_the_reference_stays_as_it_is(cloud_stage, tmp_path):
    cloud_stage.cloud.reset()

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud_stage.cloud, stage):
            await serve(cloud_stage, stage)
            await stage.running.stop()
            write_as_the_reference(cloud_stage, stage)
            (before,) = copy.deepcopy(stage.harness.claims())
            cloud_stage.cloud.calls.clear()

            stage.running = stage.harness.start()
            await stage.advance_minutes(70)

            (claim,) = stage.harness.claims()
            assert claim["metadata"]["uid"] == before["metadata"]["uid"]
            assert claim["status"]["providerID"] == before["status"]["providerID"]
            assert "Drifted" not in conditions(claim)
            assert conditions(before).items() <= conditions(claim).items()
            assert changes(cloud_stage) == []
            assert len(cloud_stage.cloud.living()) == 1
            annotations = claim["metadata"]["annotations"]
            assert annotations[HASH_VERSION_KEY] == HASH_VERSION
            assert annotations[HASH] != THEIRS[HASH]

    cloud_stage.play(tmp_path, scenario)


def changes(cloud_stage: CloudStage) -> list[str]:
    """Return the calls that launched or ended instances; dry runs are none."""
    return [
        action
        for action in ENDINGS
        for call in cloud_stage.cloud.calls.of(action)
        if str(call.parameters.get("DryRun", "")).lower() != "true"
    ]


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found["status"]["conditions"]}


def test_everything_that_the_reference_reads_is_there(cloud_stage, tmp_path):
    """Tags by which it lists instances, and what it compares for drift."""
    cloud_stage.cloud.reset()

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud_stage.cloud, stage):
            await serve(cloud_stage, stage)
            (claim,) = stage.harness.claims()
            cluster = cloud_stage.cloud.world.cluster
            wanted = {
                f"kubernetes.io/cluster/{cluster}": "owned",
                "ecs:ecs-cluster-id": cluster,
                "karpenter.sh/nodepool": "general",
                f"{GROUP}/ecsnodeclass": "default",
                "karpenter.sh/nodeclaim": claim["metadata"]["name"],
                "Name": claim["status"]["nodeName"],
            }
            assert wanted.items() <= only_tags(cloud_stage).items()
            (instance,) = cloud_stage.cloud.living()
            assert claim["status"]["providerID"] == f"cn-hangzhou.{instance.id}"
            assert claim["metadata"]["finalizers"] == ["karpenter.sh/termination"]
            (node,) = stage.harness.nodes()
            assert "karpenter.sh/termination" in node["metadata"]["finalizers"]
            ours = claim["metadata"]["annotations"]
            node_class = stage.harness.cluster.find(custom_kind(ECSNodeClass.resource), "default")
            assert node_class is not None
            theirs = node_class["metadata"]["annotations"]
            assert {k: ours[k] for k in THEIRS} == {k: theirs[k] for k in THEIRS}
            assert ours[HASH_VERSION_KEY] != "v3"
            assert node_class["metadata"]["finalizers"] == [f"{GROUP}/termination"]
            assert ours["karpenter.sh/nodepool-hash-version"] == "v3"

    cloud_stage.play(tmp_path, scenario)


def claim_as_of_the_reference(served: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a NodeClaim whose launch the reference has begun, with the spec of one that is served."""
    metadata = served["metadata"]
    return {
        "apiVersion": served["apiVersion"],
        "kind": served["kind"],
        "metadata": {
            "name": name,
            "labels": {"karpenter.sh/nodepool": "general", f"{GROUP}/ecsnodeclass": "default"},
            "finalizers": ["karpenter.sh/termination"],
            "annotations": {**metadata["annotations"], **THEIRS},
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": served["spec"],
    }


@pytest.mark.parametrize("pool", ["general", "another"])
def test_a_launch_in_progress_is_not_repeated(cloud_stage, tmp_path, pool):
    """ECS had answered; no NodeClaim was written, and no tag names one. Another NodePool's stays out."""
    cloud_stage.cloud.reset()
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud_stage.cloud, stage):
            await serve(cloud_stage, stage)
            await stage.running.stop()
            (served,) = stage.harness.claims()
            stage.apply(claim_as_of_the_reference(served, "general-abcde"))
            await stage.harness.cluster.clock.sleep(120)
            bought = cloud.launch_foreign(cluster=cloud.world.cluster)
            cloud.tag(bought.rpartition(".")[2], {"karpenter.sh/nodepool": pool})
            cloud.calls.clear()

            stage.running = stage.harness.start()
            await stage.advance_minutes(5)

            found = {o["metadata"]["name"]: o["status"] for o in stage.harness.claims()}
            used = found["general-abcde"]["providerID"]
            assert (used == bought) == (pool == "general")
            launches = [each for each in changes(cloud_stage) if not each.startswith("Delete")]
            assert len(launches) == (0 if pool == "general" else 1)

    cloud_stage.play(tmp_path, scenario)
