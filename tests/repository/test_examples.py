"""Manifests and values of the guides parse, are admitted, and are what the guides say.

`tests/charts` renders the values, and `tests/e2e/test_examples.py` applies what comes of them to a real API
server.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from karpenter_core.api.nodepool import NodePool
from karpenter_core.kube.resources import custom_kind
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from tests.sim.api_client import DEFINITIONS, Api

ROOT = Path(__file__).parents[2]
NODE_CLASSES = {"alibabacloud": ECSNodeClass, "aws": EC2NodeClass, "azure": AKSNodeClass}
CLOUDS = sorted(NODE_CLASSES)
FILLED_IN = {
    "AZURE_NODE_RESOURCE_GROUP": "MC_shop_my-cluster_westus2",
    "AZURE_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000001",
    "AZURE_TENANT_ID": "00000000-0000-0000-0000-000000000002",
    "CLUSTER_ENDPOINT": "https://my-cluster.hcp.westus2.azmk8s.io:443",
    "CLUSTER_ID": "c0123456789abcdef0123456789abcdef",
    "CLUSTER_NAME": "my-cluster",
    "CONTROLLER_CLIENT_ID": "00000000-0000-0000-0000-000000000003",
    "CONTROLLER_ROLE": "karpenter",
    "KUBELET_IDENTITY": "/subscriptions/s/resourceGroups/g/providers"
    "/Microsoft.ManagedIdentity/userAssignedIdentities/kubelet",
    "KUBELET_IDENTITY_CLIENT_ID": "00000000-0000-0000-0000-000000000004",
    "LOCATION": "westus2",
    "NODE_ROLE": "KarpenterNodeRole-my-cluster",
    "REGION_ID": "cn-hangzhou",
    "REGISTRY": "registry.example.com/team",
    "RESOURCE_GROUP": "shop",
    "SSH_PUBLIC_KEY": "ssh-ed25519 AAAA nodes",
    "VNET_SUBNET_ID": "/subscriptions/s/resourceGroups/g/providers"
    "/Microsoft.Network/virtualNetworks/v/subnets/nodes",
}
BESIDES = {"servicecidrs", "customresourcedefinitions"}
"""Rights without which it works too: the network settings of instances, and the doctor in a pod."""


def text_of(name: str) -> str:
    """Return a file as envsubst fills it in; a name that no guide exports is left as it is."""
    text = (ROOT / "examples" / f"{name}.yaml").read_text()
    return re.sub(r"\$\{(\w+)\}", lambda m: FILLED_IN.get(m[1], m[0]), text)


@cache
def documents(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load_all(text_of(name)))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (result,) = (each for each in documents(name) if each["kind"] == kind)
    return result


@pytest.mark.parametrize("name", [f"{c}/{n}" for c in CLOUDS for n in ("values", "nodes")])
def test_a_manifest_has_no_name_that_is_not_filled_in(name):
    guide = (ROOT / "docs" / f"{name.partition('/')[0]}.md").read_text()
    raw = (ROOT / "examples" / f"{name}.yaml").read_text()

    assert "$" not in text_of(name)
    for used in set(re.findall(r"\$\{(\w+)\}", raw)):
        assert re.search(rf"^export .*\b{used}=", guide, re.MULTILINE)
    assert f"examples/{name}.yaml" in guide


def test_doctor_reference_lists_the_granted_permissions():
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()
    table = page.split("| resource | verbs |", 1)[1].split("\n\n", 1)[0]
    listed = set(re.findall(r"`([a-z/]+)`", table)) - {"status"}
    granted = yaml.safe_load((ROOT / "charts/karpenter/files/rbac/core.yaml").read_text())
    everywhere = {
        resource for rules in granted.values() for rule in rules for resource in rule["resources"]
    }

    assert listed == everywhere - BESIDES
    assert all(f"`{resource}`" in page for resource in BESIDES)


@pytest_asyncio.fixture
async def api():
    async with EmbeddedCluster() as cluster:
        result = Api(cluster.transport())
        for path in sorted((ROOT / "crds").glob("*.yaml")):
            await result.create(DEFINITIONS, yaml.safe_load(path.read_text()))
        yield result


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.asyncio
async def test_node_class_and_node_pool_are_admitted_and_read(cloud, api):
    for document in documents(f"{cloud}/nodes"):
        model = NodePool if document["kind"] == "NodePool" else NODE_CLASSES[cloud]
        resource = custom_kind(model.resource)

        stored = await api.create(f"/apis/{resource.api_version}/{resource.plural}", document)

        assert model.model_validate(stored).metadata.name == "default"
    of_pool = of_kind(f"{cloud}/nodes", "NodePool")["spec"]["template"]["spec"]["nodeClassRef"]
    resource = NODE_CLASSES[cloud].resource
    assert of_pool == {"group": resource.group, "kind": resource.kind, "name": "default"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_guide_shows_the_same_node_class_and_node_pool(cloud):
    guide = (ROOT / "docs" / f"{cloud}.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    shown = [each for block in blocks for each in yaml.safe_load_all(block)]

    assert [each for each in documents(f"{cloud}/nodes") if each not in shown] == []


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_guides_commands_run_one_after_the_other_with_every_name_set(cloud, tmp_path):
    """In one shell, as it says; the programs themselves only record their calls."""
    guide = (ROOT / "docs" / f"{cloud}.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    script = "\n".join(block for block in blocks if not block.startswith("#!"))
    call_log = tmp_path / "told"
    programs = ("aliyun", "aws", "az", "docker", "envsubst", "helm", "karpenter", "kubectl", "pip")
    stubs = "\n".join(
        f"{name}() {{ echo {name} >> {call_log}; [ -t 0 ] || cat > /dev/null; }}"
        for name in programs
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{stubs}\n{script.replace('/tmp/', f'{tmp_path}/')}"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "OLD_NAMESPACE": "karpenter-system"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert {"docker", "envsubst", "helm", "kubectl", "pip"} <= set(call_log.read_text().split())
