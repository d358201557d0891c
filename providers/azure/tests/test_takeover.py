"""Taking over a cluster from Karpenter's provider for Azure, and handing it back.

A node is launched, and its objects and tags are then rewritten to what that provider leaves: its hash and its
version, its hash of updates in place, and no tag of this project.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import custom_kind
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.hashing import HASH_VERSION
from karpenter_provider_azure.resource_ids import vm_name
from providers.azure.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster

GROUP = "karpenter.azure.com"
SIZE = "Standard_D2s_v5"
HASH, HASH_VERSION_KEY = f"{GROUP}/aksnodeclass-hash", f"{GROUP}/aksnodeclass-hash-version"
THEIRS = {HASH: "7281940028374651102", HASH_VERSION_KEY: "v3"}
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
CHANGES = ("virtualMachines:put", "virtualMachines:delete")
THEIR_TAGS = {f"{GROUP}_cluster", "karpenter.sh_nodepool", "compute.aks.billing"}


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    opened = CloudStage({SIZE})
    with opened.open():
        yield opened


async def serve(cloud_stage: CloudStage, stage: ProviderCluster) -> None:
    """Have a node launched that runs a pod."""
    stage.apply(
        cloud_stage.node_class(),
        node_pool_manifest(
            AKSNodeClass,
            requirements={
                "node.kubernetes.io/instance-type": [SIZE],
                "karpenter.sh/capacity-type": ["on-demand"],
            },
            disruption=NEVER,
        ),
    )
    await stage.until_ready("True")
    stage.apply(pod_manifest("web", cpu="500m"))
    await stage.harness.settle(lambda: len(stage.harness.pods("Running")) == 1, seconds=300)


def write_as_the_reference(cloud_stage: CloudStage, stage: ProviderCluster) -> None:
    cluster = stage.harness.cluster
    annotations = {**THEIRS, f"{GROUP}/in-place-update-hash": "3712880112"}
    for claim in stage.harness.claims():
        name = claim["metadata"]["name"]
        cluster.patch(NODE_CLAIMS, name, {"metadata": {"annotations": annotations}})
    kind = custom_kind(AKSNodeClass.resource)
    cluster.patch(kind, "default", {"metadata": {"annotations": THEIRS}})
    for resource in (*cloud_stage.cloud.living(), *cloud_stage.cloud.interfaces.all):
        resource.tags = {k: v for k, v in resource.tags.items() if k in THEIR_TAGS}


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found["status"]["conditions"]}


def test_a_node_of_the_reference_stays_as_it_is(cloud_stage, tmp_path):
    cloud_stage.cloud.reset()
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud, stage):
            await serve(cloud_stage, stage)
            await stage.running.stop()
            write_as_the_reference(cloud_stage, stage)
            (before,), living = copy.deepcopy(stage.harness.claims()), cloud.living()
            cloud.calls.clear()

            stage.running = stage.harness.start()
            await stage.advance_minutes(70)

            (claim,) = stage.harness.claims()
            assert claim["metadata"]["uid"] == before["metadata"]["uid"]
            assert claim["status"]["providerID"] == before["status"]["providerID"]
            assert "Drifted" not in conditions(claim)
            assert conditions(before).items() <= conditions(claim).items()
            assert {action: cloud.calls.count(action) for action in CHANGES} == dict.fromkeys(
                CHANGES, 0
            )
            assert cloud.living() == living
            annotations = claim["metadata"]["annotations"]
            assert annotations[HASH_VERSION_KEY] == HASH_VERSION
            assert annotations[HASH] != THEIRS[HASH]

    cloud_stage.play(tmp_path, scenario)


def test_everything_that_the_reference_reads_is_there(cloud_stage, tmp_path):
    """Names and tags by which it finds machines and interfaces, and what it compares for drift."""
    cloud_stage.cloud.reset()
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud, stage):
            await serve(cloud_stage, stage)
            (claim,), (machine,), (interface,) = (
                stage.harness.claims(),
                cloud.living(),
                cloud.interfaces.all,
            )
            wanted = {
                f"{GROUP}_cluster": cloud.world.cluster_name,
                "karpenter.sh_nodepool": "general",
                "compute.aks.billing": "linux",
            }
            assert wanted.items() <= machine.tags.items()
            assert wanted.items() <= interface.tags.items()
            assert machine.name == vm_name(claim["metadata"]["name"])
            assert claim["status"]["providerID"].startswith("azure:///subscriptions/")
            assert claim["status"]["providerID"].endswith(f"/virtualMachines/{machine.name}")
            assert claim["metadata"]["finalizers"] == ["karpenter.sh/termination"]
            ours = claim["metadata"]["annotations"]
            node_class = stage.harness.cluster.find(custom_kind(AKSNodeClass.resource), "default")
            assert node_class is not None
            theirs = node_class["metadata"]["annotations"]
            assert {k: ours[k] for k in THEIRS} == {k: theirs[k] for k in THEIRS}
            assert ours[HASH_VERSION_KEY] != "v3"
            assert node_class["metadata"]["finalizers"] == [f"{GROUP}/termination"]
            assert ours["karpenter.sh/nodepool-hash-version"] == "v3"

    cloud_stage.play(tmp_path, scenario)


def test_a_launch_in_progress_is_not_repeated(cloud_stage, tmp_path):
    """Its machine has the name of the NodeClaim, and the tag of the cluster."""
    cloud_stage.cloud.reset()
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud, stage):
            await serve(cloud_stage, stage)
            await stage.running.stop()
            (served,) = stage.harness.claims()
            name = "general-abcde"
            metadata = {
                "name": name,
                "labels": {
                    k: v for k, v in served["metadata"]["labels"].items() if "azure.com" in k
                }
                | {"karpenter.sh/nodepool": "general"},
                "finalizers": ["karpenter.sh/termination"],
                "annotations": {**served["metadata"]["annotations"], **THEIRS},
                "ownerReferences": served["metadata"]["ownerReferences"],
            }
            kinds = {k: served[k] for k in ("apiVersion", "kind")}
            stage.apply({**kinds, "metadata": metadata, "spec": served["spec"]})
            (first,) = cloud.living()
            tags = {k: v for k, v in first.tags.items() if k in THEIR_TAGS}
            cloud.create_vm(vm_name(name), tags=tags, size=SIZE, image_id=first.image_id)
            assert len(cloud.living()) == 2
            cloud.calls.clear()

            stage.running = stage.harness.start()
            await stage.advance_minutes(5)

            found = {o["metadata"]["name"]: o["status"] for o in stage.harness.claims()}
            assert found[name]["providerID"].endswith(f"/virtualMachines/{vm_name(name)}")
            # The one request to make it was refused, as one of this name exists.
            assert cloud.calls.count("virtualMachines:put") == 1
            assert len(cloud.living()) == 2

    cloud_stage.play(tmp_path, scenario)
