"""Manifests that guides to Karpenter print, as v1: each launches instances on the simulated AWS.

They were written for Provisioner and AWSNodeTemplate; here they are NodePool and EC2NodeClass, field by
field. Each is admitted by an API server with our CRDs, becomes Ready, and a pod that suits it gets an
instance that is as the manifest asks; `karpenter plan --offline` says the same of the files.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from karpenter_core.api.quantities import parse_amount
from karpenter_core.cli.main import build_app
from karpenter_core.kube.resources import custom_kind
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import CloudClients
from karpenter_simulated_aws.cloud import SimulatedAws
from karpenter_simulated_aws.testing import simulated_environment
from karpenter_simulated_aws.world import WorldPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from karpenter_provider_aws.sdk import SharedClients

EC2_NODE_CLASSES = custom_kind(EC2NodeClass.resource)
CLUSTER = "demo"
REGION = "us-west-2"
MIB, GIB = 2**20, 2**30
EXCLUDED = ("m6g.16xlarge", "m6gd.16xlarge", "r6g.16xlarge", "r6gd.16xlarge", "c6g.16xlarge")
TYPES = frozenset(
    {
        *EXCLUDED,
        *("c4.xlarge", "c5.xlarge", "c5d.xlarge", "c6i.xlarge", "c5.4xlarge", "c6g.xlarge"),
        *("m4.xlarge", "m5.large", "m5.xlarge", "m5d.xlarge", "m5.2xlarge", "m6g.xlarge"),
        *("r4.xlarge", "r5.large", "r5.xlarge", "r6i.large", "r6g.xlarge"),
        *("t3.medium", "t3a.large", "g4dn.xlarge", "m5.metal", "x1e.xlarge"),
    }
)
DISCOVERY = {"tags": {"karpenter.sh/discovery": CLUSTER}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """Result of a manifest."""

    name: str
    """Instance type."""
    zone: str
    capacity_type: str
    claim: dict[str, Any]
    user_data: str
    image: str
    """Its name."""

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]

    def allocatable(self, resource: str) -> int:
        """In millicores, bytes or pieces."""
        return parse_amount(resource, self.claim["status"]["allocatable"][resource])


@dataclass(frozen=True, kw_only=True)
class Example:
    """A manifest, a pod that suits it, and what must be true of the instance."""

    name: str
    requirements: tuple[dict[str, Any], ...] = ()
    node_class: dict[str, Any] = field(default_factory=dict)
    pool: dict[str, Any] = field(default_factory=dict)
    """Of the NodePool's spec."""
    template: dict[str, Any] = field(default_factory=dict)
    """Of its template's spec."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of its template."""
    pod: dict[str, Any] = field(default_factory=dict)
    """Of the pod's spec."""
    holds: Callable[[Launched], bool] = lambda _: True


def wants(key: str, *values: str, operator: str = "In", **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values), **more}


CAPACITY_TYPE, ARCH, ZONE = (
    "karpenter.sh/capacity-type",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
)
OF_INSTANCE = "karpenter.k8s.aws/instance-"
SPOT = wants(CAPACITY_TYPE, "spot")
SPECIAL = {"key": "example.com/special-taint", "effect": "NoSchedule"}
ANOTHER = {"key": "example.com/another-taint", "effect": "NoSchedule"}
LIMITS = {"cpu": "1000", "memory": "1000Gi"}
SSH_KEYS = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
mkdir -p ~ec2-user/.ssh/
echo "ssh-ed25519 AAAA" >> ~ec2-user/.ssh/authorized_keys

--BOUNDARY--
"""
KUBELET = {
    "clusterDNS": ["10.0.1.100"],
    "systemReserved": {"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "1Gi"},
    "kubeReserved": {"cpu": "200m", "memory": "100Mi", "ephemeral-storage": "3Gi"},
    "evictionHard": {
        "memory.available": "5%",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "10%",
    },
    "evictionSoft": {
        "memory.available": "500Mi",
        "nodefs.available": "15%",
        "nodefs.inodesFree": "15%",
    },
    "evictionSoftGracePeriod": {
        "memory.available": "1m",
        "nodefs.available": "1m30s",
        "nodefs.inodesFree": "2m",
    },
    "evictionMaxPodGracePeriod": 180,
    "podsPerCore": 2,
    "maxPods": 20,
}


def has_kubelets_arithmetic(found: Launched) -> bool:
    """Four cores and 15,155 MiB, less the configured kubelet reservations."""
    assert found.name == "m5.xlarge"
    memory = 15155 * MIB
    expected = {
        "cpu": 4000 - 100 - 200,
        "memory": memory - 200 * MIB - -(-memory * 5 // 100),
        "ephemeral-storage": 20 * GIB - 4 * GIB - 2 * GIB,
        "pods": 2 * 4,
    }
    return {name: found.allocatable(name) for name in expected} == expected


EXAMPLES = (
    Example(
        name="a Provisioner with taints, labels, limits and both TTLs",
        requirements=(SPOT,),
        pool={
            "weight": 10,
            "limits": LIMITS,
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "0s",
            },
        },
        template={"taints": [SPECIAL], "startupTaints": [ANOTHER], "expireAfter": "720h"},
        labels={"billing-team": "my-team"},
        pod={
            "tolerations": [{"key": SPECIAL["key"], "operator": "Exists"}],
            "nodeSelector": {"billing-team": "my-team"},
        },
        holds=lambda found: (
            found.claim["spec"]["expireAfter"] == "720h"
            and found.claim["metadata"]["labels"]["billing-team"] == "my-team"
            and all(
                each in found.user_data
                for each in (SPECIAL["key"], ANOTHER["key"], "karpenter.sh/unregistered")
            )
        ),
    ),
    Example(
        name="requirements of every kind",
        requirements=(
            wants(f"{OF_INSTANCE}category", "c", "m", "r"),
            wants(f"{OF_INSTANCE}cpu", "4", "8", "16", "32"),
            wants(f"{OF_INSTANCE}hypervisor", "nitro"),
            wants(ZONE, f"{REGION}a", f"{REGION}b"),
            wants(ARCH, "arm64", "amd64"),
            wants(CAPACITY_TYPE, "spot", "on-demand"),
        ),
        holds=lambda found: (
            found.family[0] in "cmr"
            and found.zone in {f"{REGION}a", f"{REGION}b"}
            and found.capacity_type == "spot"
            and found.family not in {"c4", "m4", "r4"}
            and found.name not in {"m5.large", "r5.large", "m5.metal"}
        ),
    ),
    Example(
        name="a kubelet configured in full",
        requirements=(wants("node.kubernetes.io/instance-type", "m5.xlarge"), SPOT),
        node_class={"kubelet": KUBELET},
        holds=has_kubelets_arithmetic,
    ),
    Example(
        name="user data of one's own for AL2, with an instance profile",
        requirements=(SPOT,),
        node_class={
            "amiSelectorTerms": [{"alias": "al2@latest"}],
            "amiFamily": "AL2",
            "role": None,
            "instanceProfile": "KarpenterNodeInstanceProfile",
            "userData": SSH_KEYS,
        },
        holds=lambda found: (
            0
            < found.user_data.index("authorized_keys")
            < found.user_data.index("/etc/eks/bootstrap.sh")
        ),
    ),
    Example(
        name="types that are excluded",
        requirements=(
            wants("node.kubernetes.io/instance-type", *EXCLUDED, operator="NotIn"),
            wants(ARCH, "arm64"),
            SPOT,
        ),
        holds=lambda found: found.name not in EXCLUDED and "g" in found.family,
    ),
    Example(
        name="two bounds on one key",
        requirements=(
            wants(f"{OF_INSTANCE}memory", "4096", operator="Gt"),
            wants(f"{OF_INSTANCE}memory", "65536", operator="Lt"),
            wants(f"{OF_INSTANCE}cpu", "2", operator="Gt"),
            wants(f"{OF_INSTANCE}cpu", "32", operator="Lt"),
            wants(f"{OF_INSTANCE}family", "c4", "c5", "c6", "r5", "r6i"),
            wants(ARCH, "amd64"),
            SPOT,
        ),
        holds=lambda found: found.name in {"c4.xlarge", "c5.xlarge", "c5.4xlarge", "r5.xlarge"},
    ),
    Example(
        name="rates of pulls and calls",
        requirements=(SPOT,),
        node_class={
            "kubelet": {
                "registryPullQPS": 500,
                "registryBurst": 100,
                "kubeAPIQPS": 200,
                "kubeAPIBurst": 100,
            }
        },
        holds=lambda found: all(
            each in found.user_data
            for each in (
                "registryPullQPS: 500",
                "registryBurst: 100",
                "kubeAPIQPS: 200",
                "kubeAPIBurst: 100",
            )
        ),
    ),
    Example(
        name="a v1 NodePool with all that there is",
        requirements=(
            wants(f"{OF_INSTANCE}category", "c", "m", "r", minValues=2),
            wants(f"{OF_INSTANCE}family", "m5", "m5d", "c5", "c5d", "c4", "r4", minValues=5),
            wants(f"{OF_INSTANCE}cpu", "4", "8", "16", "32"),
            wants(f"{OF_INSTANCE}hypervisor", "nitro", "xen"),
            wants(f"{OF_INSTANCE}generation", "2", operator="Gt"),
            wants(ZONE, f"{REGION}a", f"{REGION}b"),
            wants(ARCH, "arm64", "amd64"),
            wants(CAPACITY_TYPE, "spot", "on-demand"),
        ),
        pool={
            "weight": 10,
            "limits": LIMITS,
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "1m",
                "budgets": [
                    {"nodes": "10%"},
                    {"schedule": "0 9 * * mon-fri", "duration": "8h", "nodes": "0"},
                ],
            },
        },
        template={
            "taints": [SPECIAL],
            "startupTaints": [ANOTHER],
            "expireAfter": "720h",
            "terminationGracePeriod": "48h",
        },
        labels={"billing-team": "my-team"},
        pod={"tolerations": [{"key": SPECIAL["key"], "operator": "Exists"}]},
        holds=lambda found: (
            found.family in {"m5", "m5d", "c5", "c5d", "c4", "r4"}
            and found.claim["spec"]["terminationGracePeriod"] == "48h"
            and _families(found) >= 5
        ),
    ),
    Example(
        name="budgets by reason and time",
        requirements=(SPOT,),
        pool={
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "600s",
                "budgets": [
                    {
                        "nodes": "0",
                        "reasons": ["Underutilized"],
                        "schedule": "0 15 * * mon-fri",
                        "duration": "9h",
                    },
                    {"nodes": "1", "reasons": ["Empty", "Drifted"]},
                ],
            }
        },
        template={"expireAfter": "Never"},
    ),
    Example(
        name="the least that works",
        requirements=(SPOT,),
        pool={
            "limits": {"cpu": "1000"},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"},
        },
        holds=lambda found: found.capacity_type == "spot",
    ),
    Example(
        name="Bottlerocket",
        requirements=(SPOT,),
        node_class={"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
        holds=lambda found: (
            found.image.startswith("bottlerocket-") and "[settings.kubernetes]" in found.user_data
        ),
    ),
    Example(
        name="both architectures, and a pod that runs on one",
        requirements=(
            wants(ARCH, "arm64", "amd64"),
            wants(CAPACITY_TYPE, "on-demand"),
            wants(ZONE, f"{REGION}c"),
        ),
        pod={"nodeSelector": {ARCH: "arm64"}},
        holds=lambda found: (
            found.family in {"m6g", "c6g", "r6g", "m6gd", "r6gd"}
            and (found.zone, found.capacity_type) == (f"{REGION}c", "on-demand")
        ),
    ),
)


def _families(found: Launched) -> int:
    (types,) = (
        each["values"]
        for each in found.claim["spec"]["requirements"]
        if each["key"] == "node.kubernetes.io/instance-type"
    )
    return len({name.partition(".")[0] for name in types})


@pytest.fixture(scope="module")
def west() -> Iterator[SimulatedAws]:
    """A cloud for all examples: in their region, of the Kubernetes that AL2 has images for."""
    plan = WorldPlan(cluster=CLUSTER, kubernetes="1.32")
    with (
        SimulatedAws(region=REGION, plan=plan, instance_types=TYPES) as aws,
        simulated_environment(aws),
    ):
        yield aws


@cache
def owners_clients(aws: SimulatedAws) -> CloudClients:
    return CloudClients(region=aws.account.region)


@cache
def shared_clients(_endpoint: str) -> SharedClients:
    """Return the clients of all providers on one simulated AWS."""
    return {}


def plugins() -> dict[str, object]:
    return {"aws": AwsProvider(shared=shared_clients(os.environ["AWS_ENDPOINT_URL"]))}


def manifests(aws: SimulatedAws, example: Example) -> list[dict[str, Any]]:
    """Return NodeClass, NodePool and pod."""
    spec = {
        "role": aws.world.role,
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [DISCOVERY],
        "securityGroupSelectorTerms": [DISCOVERY],
        **example.node_class,
    }
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    node_pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "metadata": {
                    "labels": example.labels,
                    "annotations": {"example.com/owner": "my-team"},
                },
                "spec": {
                    "nodeClassRef": reference,
                    "requirements": list(example.requirements),
                    **example.template,
                },
            },
            **example.pool,
        },
    }
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "web", "image": "nginx", "resources": {"requests": requests}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [container], **example.pod},
    }
    return [node_class, node_pool, pod]


def launched(aws: SimulatedAws, harness: ControllerHarness) -> Launched:
    """Return the only instance, and whether its claim says so too."""
    (instance,) = aws.instances.living
    (claim,) = harness.claims()
    labels = claim["metadata"]["labels"]
    assert claim["status"]["providerID"] == instance.provider_id
    assert labels["node.kubernetes.io/instance-type"] == instance.instance_type
    template = aws.calls.of("CreateLaunchTemplate")[-1].parameters["LaunchTemplateData"]
    return Launched(
        name=instance.instance_type,
        zone=labels[ZONE],
        capacity_type=labels[CAPACITY_TYPE],
        claim=claim,
        user_data=b64decode(template.get("UserData", "")).decode(),
        image=aws.images.get(instance.image_id).name,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_launches_its_requested_instance(west, tmp_path, monkeypatch, example):
    """Admitted, Ready, launched; and planned alike from files."""
    west.reset()

    found, resolved, pod = played(west, example, tmp_path)

    assert example.holds(found)
    for each in resolved:
        conditions = {c["type"]: c["status"] for c in each["status"]["conditions"]}
        assert conditions["Ready"] == "True"
    (node,) = planned([*resolved, pod], tmp_path, monkeypatch)
    assert (node["nodePool"], node["pods"]) == ("default", ["default/web"])
    assert found.name in node["instanceTypes"]


def test_the_minimal_example_launches_an_instance_in_china(tmp_path):
    """Another partition, whose prices are in yuan."""
    profile = "KarpenterNodeInstanceProfile"
    example = Example(
        name="China", requirements=(SPOT,), node_class={"role": None, "instanceProfile": profile}
    )
    cloud = SimulatedAws(
        region="cn-north-1",
        plan=WorldPlan(cluster=CLUSTER, kubernetes="1.32", zones=("a", "b")),
        instance_types={"t3a.large", "m5.large"},
    )
    with cloud as aws, simulated_environment(aws):
        found, (node_class, _), _ = played(aws, example, tmp_path)

    assert found.zone.startswith("cn-north-1")
    assert found.capacity_type == "spot"
    assert node_class["status"]["instanceProfile"] == profile


def played(
    aws: SimulatedAws, example: Example, folder: Path
) -> tuple[Launched, list[dict[str, Any]], dict[str, Any]]:
    """Return the instance, NodeClass and NodePool as they came to be, and the pod."""
    if "instanceProfile" in example.node_class:
        name = example.node_class["instanceProfile"]
        owners_clients(aws).iam.create_instance_profile(InstanceProfileName=name)
    written = manifests(aws, example)
    came: list[tuple[Launched, list[dict[str, Any]]]] = []

    async def scenario() -> None:
        arguments = (f"--cluster-name={CLUSTER}", "--eks-control-plane")
        async with ControllerHarness(plugins, folder=folder, arguments=arguments) as harness:
            harness.start()
            harness.cluster.apply(written)
            await harness.settle(lambda: len(aws.instances.living) == 1)
            await harness.settle(lambda: "providerID" in harness.claims()[0].get("status", {}))
            node_class = harness.cluster.find(EC2_NODE_CLASSES, "default")
            assert node_class is not None
            came.append((launched(aws, harness), [node_class, harness.pool("default")]))

    run_virtual(scenario())
    (found, resolved), *_ = came
    return found, resolved, written[2]


def planned(
    objects: list[dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """Return the instances that `karpenter plan` would launch for these objects."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    monkeypatch.setenv("CLUSTER_NAME", CLUSTER)

    done = CliRunner().invoke(build_app(), ["plan", "--offline", str(file), "--output", "json"])

    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["nodeClaims"]
