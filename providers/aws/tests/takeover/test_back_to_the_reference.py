"""A node of this controller has everything that Karpenter's own controller for AWS reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import NODES
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits
from karpenter_simulated_aws.testing import attempts, few_types, simulated_environment
from providers.aws.tests.takeover.reference_state import CLUSTER, node_class_kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from karpenter_simulated_aws.cloud import SimulatedAws

LIMITS = ClientLimits(connect_seconds=1, read_seconds=5, retries=attempts(2))
ARGUMENTS = (f"--cluster-name={CLUSTER}", "--eks-control-plane")
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
AWS = "karpenter.k8s.aws"

READ_BY_THE_REFERENCE = [
    ("claim", "metadata.labels", "karpenter.sh/nodepool", "web"),
    ("claim", "metadata.labels", f"{AWS}/ec2nodeclass", "default"),
    ("claim", "metadata.labels", "karpenter.sh/capacity-type", "on-demand|spot"),
    ("claim", "metadata.labels", "node.kubernetes.io/instance-type", r"\w+\.\w+"),
    ("claim", "metadata.labels", "topology.kubernetes.io/zone", "us-east-1[abc]"),
    ("claim", "metadata.labels", "topology.k8s.aws/zone-id", r"use1-az\d"),
    ("claim", "metadata.annotations", "karpenter.sh/nodepool-hash", r"\d+"),
    ("claim", "metadata.annotations", "karpenter.sh/nodepool-hash-version", "v3"),
    ("claim", "metadata.annotations", f"{AWS}/ec2nodeclass-hash", ".+"),
    # Another version than the reference's: it writes its own hash on class and claims at its start.
    ("claim", "metadata.annotations", f"{AWS}/ec2nodeclass-hash-version", r"(?!v\d).+"),
    ("claim", "metadata.annotations", f"{AWS}/instance-profile-name", "test_.+"),
    ("claim", "finalizers", "karpenter.sh/termination", ""),
    ("claim", "owner", "NodePool", "web"),
    ("claim", "status", "providerID", "aws:///us-east-1[abc]/i-[0-9a-f]+"),
    ("claim", "status", "imageID", "ami-.+"),
    ("claim", "status", "nodeName", ".+"),
    ("claim", "conditions", "Launched", "True"),
    ("claim", "conditions", "Registered", "True"),
    ("claim", "conditions", "Initialized", "True"),
    ("claim", "conditions", "Ready", "True"),
    ("node", "metadata.labels", "karpenter.sh/registered", "true"),
    ("node", "metadata.labels", "karpenter.sh/initialized", "true"),
    ("node", "metadata.labels", "karpenter.sh/nodepool", "web"),
    ("node", "metadata.labels", f"{AWS}/ec2nodeclass", "default"),
    ("node", "finalizers", "karpenter.sh/termination", ""),
    ("node", "owner", "NodeClaim", "web-.+"),
    ("class", "finalizers", f"{AWS}/termination", ""),
    ("class", "metadata.annotations", f"{AWS}/ec2nodeclass-hash", ".+"),
    ("class", "metadata.annotations", f"{AWS}/ec2nodeclass-hash-version", r"(?!v\d).+"),
    ("class", "status", "instanceProfile", "test_.+"),
    ("class", "conditions", "Ready", "True"),
    ("pool", "metadata.annotations", "karpenter.sh/nodepool-hash", r"\d+"),
    ("pool", "metadata.annotations", "karpenter.sh/nodepool-hash-version", "v3"),
    ("pool", "conditions", "Ready", "True"),
    ("instance", "tags", "karpenter.sh/nodepool", "web"),
    ("instance", "tags", f"{AWS}/ec2nodeclass", "default"),
    ("instance", "tags", "eks:eks-cluster-name", CLUSTER),
    ("instance", "tags", f"kubernetes.io/cluster/{CLUSTER}", "owned"),
    ("instance", "tags", "karpenter.sh/nodeclaim", "web-.+"),
    ("instance", "tags", "Name", ".+"),
    ("template", "tags", f"{AWS}/ec2nodeclass", "default"),
    ("template", "tags", "eks:eks-cluster-name", CLUSTER),
    ("template", "tags", f"kubernetes.io/cluster/{CLUSTER}", "owned"),
]
"""Object, place, key, and the pattern of the value."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """State that a node in service leaves."""
    with few_types() as aws, simulated_environment(aws):
        yield served(aws, tmp_path_factory.mktemp("left"))


def served(aws: SimulatedAws, folder: Path) -> dict[str, Any]:
    """Have a node launched, register and be tagged; return the objects as the controller leaves them."""
    discovery = {"tags": {"karpenter.sh/discovery": CLUSTER}}
    node_class = {
        "apiVersion": f"{AWS}/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "role": aws.world.role,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [discovery],
            "securityGroupSelectorTerms": [discovery],
        },
    }
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"nodeClassRef": REFERENCE, "requirements": []}}},
    }
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    left: dict[str, Any] = {}

    async def scenario() -> None:
        harness = ControllerHarness(
            lambda: {"aws": AwsProvider(limits=LIMITS)}, folder=folder, arguments=ARGUMENTS
        )
        async with harness:
            running = harness.start()
            harness.cluster.apply([node_class, pool, pod])
            await harness.settle(
                lambda: any("providerID" in o.get("status", {}) for o in harness.claims()),
                seconds=300,
            )
            aws.time.advance(120)
            (instance,) = aws.instances.living
            template = next(iter(aws.templates.all)).tags
            node = aws.node(instance.provider_id)
            assert node is not None
            harness.cluster.apply([{"apiVersion": "v1", "kind": "Node", **node}])
            name = harness.nodes()[0]["metadata"]["name"]
            harness.cluster.server.registry.patch(
                NODES, {"status": node["status"], "spec": {"taints": None}}, name, "", part="status"
            )
            await harness.settle(
                lambda: (
                    "karpenter.sh/nodeclaim" in instance.tags
                    and any(
                        c["type"] == "Initialized" and c["status"] == "True"
                        for c in harness.claims()[0]["status"]["conditions"]
                    )
                ),
                seconds=300,
            )
            await running.stop()
            left.update(
                claim=harness.claims()[0],
                node=harness.nodes()[0],
                pool=harness.pool("web"),
                instance={"tags": dict(instance.tags)},
                template={"tags": dict(template)},
            )
            left["class"] = harness.cluster.list(node_class_kind())[0]

    run_virtual(scenario(), epoch=aws.time())
    return left


def values(found: Any, place: str) -> dict[str, str]:
    if place == "tags":
        return found["tags"]
    if place == "finalizers":
        return dict.fromkeys(found["metadata"].get("finalizers", ()), "")
    if place == "owner":
        return {o["kind"]: o["name"] for o in found["metadata"].get("ownerReferences", ())}
    if place == "conditions":
        return {c["type"]: c["status"] for c in found["status"]["conditions"]}
    for part in place.split("."):
        found = found.get(part, {})
    return found


@pytest.mark.parametrize(
    ("kind", "place", "key", "pattern"),
    READ_BY_THE_REFERENCE,
    ids=lambda it: str(it) if len(str(it)) < 60 else "",
)
def test_everything_that_the_reference_reads_is_there(left, kind, place, key, pattern):
    there = values(left[kind], place)

    assert key in there
    assert re.fullmatch(pattern, there[key])


def test_claim_and_class_have_the_same_hash_and_version(left):
    """Else a difference of hashes would be drift to whoever comes next."""
    for key in (f"{AWS}/ec2nodeclass-hash", f"{AWS}/ec2nodeclass-hash-version"):
        assert (
            values(left["claim"], "metadata.annotations")[key]
            == (values(left["class"], "metadata.annotations")[key])
        )
    key = "karpenter.sh/nodepool-hash"
    assert (
        values(left["claim"], "metadata.annotations")[key]
        == (values(left["pool"], "metadata.annotations")[key])
    )
