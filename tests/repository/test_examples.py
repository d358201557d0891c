"""Manifests of the guides parse, are admitted, and grant what is needed.

`tests/e2e/test_examples.py` applies them to a real API server, which judges the rest of them.
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
from karpenter_core.cli.doctor_cluster import needed_permissions
from karpenter_core.kube.resources import custom_kind
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.operator.settings import OPTIONS
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.settings import SETTINGS as OF_ALIBABA_CLOUD
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.settings import SETTINGS as OF_AWS
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.plugin import AzureProvider
from karpenter_provider_azure.setting_specs import SETTINGS as OF_AZURE
from tests.sim.api_client import DEFINITIONS, Api

ROOT = Path(__file__).parents[2]
NODE_CLASSES = {"alibabacloud": ECSNodeClass, "aws": EC2NodeClass, "azure": AKSNodeClass}
SETTINGS = {"alibabacloud": OF_ALIBABA_CLOUD, "aws": OF_AWS, "azure": OF_AZURE}
READS = {"azure": AzureProvider.info.reads}
"""Objects that providers read by name, or list."""
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
    "IMAGE": "registry.example.com/karpenter:0.1.0",
    "KUBELET_IDENTITY": "/subscriptions/s/resourceGroups/g/providers"
    "/Microsoft.ManagedIdentity/userAssignedIdentities/kubelet",
    "KUBELET_IDENTITY_CLIENT_ID": "00000000-0000-0000-0000-000000000004",
    "LOCATION": "westus2",
    "NODE_ROLE": "KarpenterNodeRole-my-cluster",
    "REGION_ID": "cn-hangzhou",
    "RESOURCE_GROUP": "shop",
    "SSH_PUBLIC_KEY": "ssh-ed25519 AAAA nodes",
    "VNET_SUBNET_ID": "/subscriptions/s/resourceGroups/g/providers"
    "/Microsoft.Network/virtualNetworks/v/subnets/nodes",
}
OF_THE_SDK = {
    "alibabacloud": ROOT / "providers/alibabacloud/karpenter_provider_alibabacloud/credentials.py",
}
"""Module of each provider that names the SDK's variables."""
OF_THE_PROCESS = {"SYSTEM_NAMESPACE"}
"""Variables that the pod sets, and that are no settings."""
BESIDES = {
    ("networking.k8s.io", "servicecidrs", "get"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "get"),
    ("", "services", "get"),
}
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


def controller() -> dict[str, Any]:
    return of_kind("deploy/controller", "Deployment")["spec"]["template"]


def container() -> dict[str, Any]:
    (result,) = controller()["spec"]["containers"]
    return result


def granted(cloud: str) -> set[tuple[str, str, str]]:
    """Return what the service account may do, by group, resource with subresource, and verb."""
    return {
        (group, resource, verb)
        for name in ("deploy/controller", f"{cloud}/settings")
        for document in documents(name)
        if document["kind"] in {"Role", "ClusterRole"}
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    "name", ["deploy/controller", *(f"{c}/{n}" for c in CLOUDS for n in ("settings", "nodes"))]
)
def test_a_manifest_has_no_name_that_is_not_filled_in(name):
    guides = [
        (ROOT / "docs" / f"{cloud}.md").read_text()
        for cloud in CLOUDS
        if name.startswith((cloud, "deploy"))
    ]
    raw = (ROOT / "examples" / f"{name}.yaml").read_text()

    assert "$" not in text_of(name)
    for used in set(re.findall(r"\$\{(\w+)\}", raw)):
        assert all(re.search(rf"^export .*\b{used}=", guide, re.MULTILINE) for guide in guides)
    assert all(f"examples/{name}.yaml" in guide for guide in guides)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_manifests_grant_exactly_what_the_doctor_requires(cloud):
    model = NODE_CLASSES[cloud]
    kinds = Codecs([model], with_selectors=True).kinds
    needed = {
        (it.kind.group, "/".join(filter(None, (it.kind.plural, it.subresource))), it.verb)
        for it in needed_permissions(
            kinds, [model], lease_namespace="kube-system", reads=READS.get(cloud, ())
        )
    }

    assert granted(cloud) == needed | BESIDES


def test_doctor_reference_lists_the_granted_permissions():
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()
    table = page.split("| resource | verbs |", 1)[1].split("\n\n", 1)[0]
    listed = set(re.findall(r"`([a-z/]+)`", table)) - {"status"}
    besides = {resource for _, resource, _ in BESIDES} - {"services"}
    everywhere = {
        resource
        for document in documents("deploy/controller")
        if document["kind"] in {"Role", "ClusterRole"}
        for rule in document["rules"]
        for resource in rule["resources"]
    }

    assert listed == everywhere - besides
    assert all(f"`{resource}`" in page for resource in besides)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_role_is_bound_to_the_account_that_the_pods_run_under(cloud):
    (account,) = (d for d in documents(f"{cloud}/settings") if d["kind"] == "ServiceAccount")
    everything = [*documents("deploy/controller"), *documents(f"{cloud}/settings")]
    roles = {(d["kind"], d["metadata"]["name"]) for d in everything if d["kind"].endswith("Role")}
    bindings = [d for d in everything if d["kind"].endswith("Binding")]
    subject = {
        "kind": "ServiceAccount",
        **{k: account["metadata"][k] for k in ("name", "namespace")},
    }

    assert {(d["roleRef"]["kind"], d["roleRef"]["name"]) for d in bindings} == roles
    assert all(d["subjects"] == [subject] for d in bindings)
    assert controller()["spec"]["serviceAccountName"] == account["metadata"]["name"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_variable_is_one_that_is_read(cloud):
    data = of_kind(f"{cloud}/settings", "ConfigMap")["data"]
    known = {it.env for it in (*OPTIONS, *SETTINGS[cloud])} | OF_THE_PROCESS
    if cloud in OF_THE_SDK:
        known |= set(re.findall(r'"(ALIBABA_CLOUD_\w+)"', OF_THE_SDK[cloud].read_text()))

    assert data.keys() | {each["name"] for each in container()["env"]} <= known
    assert all(isinstance(value, str) for value in data.values())


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_settings_can_be_read(cloud):
    data = of_kind(f"{cloud}/settings", "ConfigMap")["data"]

    settings = load_settings([], data, plugin_options=SETTINGS[cloud])

    assert settings.providers == (cloud,)


def test_the_pods_are_those_that_service_and_budget_and_deployment_mean():
    labels = controller()["metadata"]["labels"].items()
    deployment = of_kind("deploy/controller", "Deployment")["spec"]
    service = of_kind("deploy/controller", "Service")["spec"]
    budget = of_kind("deploy/controller", "PodDisruptionBudget")["spec"]

    assert deployment["selector"]["matchLabels"].items() <= labels
    assert service["selector"].items() <= labels
    assert budget["selector"]["matchLabels"].items() <= labels
    assert 0 < budget["minAvailable"] < deployment["replicas"] == 2


def test_probes_and_metrics_are_asked_where_they_are_served():
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    options = {option.flag: option.default for option in OPTIONS}
    (metrics,) = of_kind("deploy/controller", "Service")["spec"]["ports"]

    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = container()[probe]["httpGet"]
        assert (asked["path"], ports[asked["port"]]) == (path, options["health-probe-port"])
    assert ports[metrics["targetPort"]] == options["metrics-port"]


def test_the_controller_writes_into_its_volumes_alone():
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    environment = {each["name"]: each.get("value") for each in container()["env"]}

    assert container()["securityContext"]["readOnlyRootFilesystem"]
    assert environment["CACHE_FOLDER"] in mounts.values()
    assert {volume["name"] for volume in controller()["spec"]["volumes"]} == mounts.keys()


def test_the_controller_is_not_put_on_nodes_of_its_own():
    affinity = controller()["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert term["matchExpressions"] == [
        {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}
    ]


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
    programs = ("aliyun", "aws", "az", "docker", "envsubst", "karpenter", "kubectl", "pip")
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
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert {"docker", "envsubst", "karpenter", "kubectl", "pip"} <= set(
        call_log.read_text().split()
    )
