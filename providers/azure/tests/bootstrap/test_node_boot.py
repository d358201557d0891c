"""Boot data of nodes: what the cluster says, and who writes it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.errors import NodeClassNotReadyError
from karpenter_core.provider.contract import ClusterFacts
from karpenter_provider_azure.bootstrap.boot_configuration import BootConfiguration
from karpenter_provider_azure.bootstrap.custom_data import custom_data
from karpenter_provider_azure.bootstrap.node_boot import (
    ClusterBootReader,
    NodeBoot,
)
from karpenter_provider_azure.launch.boot_data import BootData, BootTarget
from karpenter_simulated_azure.custom_data import read_kubelet_settings
from providers.azure.tests.bootstrap.boots import (
    TOKEN,
    boot,
    cluster,
    gpu_vm_size,
    node_claim,
    node_class,
    settings,
    type_requirements,
    vm_size,
)


def reader(*, token_file="", **facts):
    of_cluster = cluster()
    known = {
        "ca_bundle": of_cluster.ca_pem,
        "dns_ip": "10.2.0.10",
        "endpoint": "https://10.0.0.1",
        **facts,
    }
    return ClusterBootReader(
        settings(kubelet_bootstrap_token_file=str(token_file)),
        ClusterFacts(name="shop", **known),
        guid=SimpleNamespace(current=lambda: of_cluster.vnet_guid),
        security_groups=SimpleNamespace(current=lambda: of_cluster.security_group),
    )


def target(version: str = "1.33.4") -> BootTarget:
    size = vm_size()
    return BootTarget(
        node_claim=node_claim(),
        node_class=node_class(version=version),
        size=size,
        requirements=type_requirements(size),
        capacity_type=ON_DEMAND,
        zone="westus2-1",
        image_id="/images/one",
    )


def test_the_provider_writes_the_custom_data_of_the_chosen_offering():
    found = NodeBoot(reader(), None).boot_data(target())

    assert found.custom_data == custom_data(boot(of_cluster=reader().current()))
    assert found.custom_script == ""


def test_the_clusters_dns_is_that_of_its_service():
    found = read_kubelet_settings(NodeBoot(reader(), None).boot_data(target()).custom_data)

    assert found.flags["cluster-dns"] == "10.2.0.10"


def test_the_service_gets_the_node_and_its_image():
    asked = []

    def boot_data(configuration, image_id):
        asked.append((configuration, image_id))
        return BootData(custom_data="data", custom_script="script")

    service = SimpleNamespace(boot_data=boot_data)
    found = NodeBoot(reader(), service).boot_data(target())

    assert (found.custom_data, found.custom_script) == ("data", "script")
    ((configuration, image_id),) = asked
    assert image_id == "/images/one"
    assert configuration.cluster == reader().current()
    assert configuration.target == target()


def test_nodes_wait_for_the_certificates_of_the_cluster():
    facts = reader(ca_bundle="", endpoint="https://shop.example.com")

    with pytest.raises(NodeClassNotReadyError, match="certificates of the API server"):
        NodeBoot(facts, None).boot_data(target())


@pytest.mark.parametrize("version", ["", "latest"])
def test_no_node_boots_before_its_version_is_known(version):
    with pytest.raises(NodeClassNotReadyError, match=f'kubernetesVersion "{version}" is not a'):
        _ = BootConfiguration(cluster=cluster(), target=target(version)).kubernetes_version


def test_an_api_server_without_tls_needs_no_certificates():
    found = NodeBoot(reader(ca_bundle="", endpoint="http://127.0.0.1"), None).boot_data(target())

    assert read_kubelet_settings(found.custom_data).variables["KUBE_CA_CRT"] == ""


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"kubelet": {}, "maxPods": 50},
        {"imageFamily": "AzureLinux", "security": {"trustedLaunch": {"vtpm": True}}},
        {"gpu": {"mode": "None"}},
        {
            "kubelet": {"failSwapOn": False, "allowedUnsafeSysctls": ["kernel.msg*"]},
            "linuxOSConfig": {"swapFileSize": "2Gi", "sysctls": {"vmSwappiness": 10}},
        },
    ],
    ids=str,
)
@pytest.mark.parametrize("version", ["1.29.9", "1.30.101-akslts", "1.33.4", "1.36.0"])
@pytest.mark.parametrize("size", [vm_size(), gpu_vm_size()], ids=lambda size: size.name)
def test_a_simulated_node_boots_with_every_node_class(spec, version, size):
    """The simulated first boot reads the script as a node image does, independently of its writer."""
    claim = node_claim(
        node_labels={"node-restriction.kubernetes.io/x": "x", "team": "web"},
        startup_taints=[
            {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"}
        ],
    )
    found = read_kubelet_settings(
        custom_data(boot(of=node_class(version=version, **spec), size=size, claim=claim))
    )

    assert found.labels["team"] == "web"
    assert found.labels["karpenter.sh/do-not-sync-taints"] == "true"
    assert found.max_pods == spec.get("maxPods", 250)
    assert found.kubernetes_version == version
    assert found.variables["TLS_BOOTSTRAP_TOKEN"] == TOKEN
    assert found.amounts("kube-reserved").keys() == {"cpu", "memory"}
    assert found.eviction_thresholds == {
        "memory.available": "750Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
    }
    assert {(taint.key, taint.effect) for taint in found.taints} == {
        ("karpenter.sh/unregistered", "NoExecute"),
        ("node.cilium.io/agent-not-ready", "NoExecute"),
    }


def test_a_token_that_is_replaced_is_used_without_a_restart(tmp_path):
    file = tmp_path / "token"
    file.write_text("abcdef.0123456789abcdef\n")
    boots = reader(token_file=file)
    assert boots.current().bootstrap_token == "abcdef.0123456789abcdef"
    file.write_text("ghijkl.0123456789abcdef\n")
    assert boots.current().bootstrap_token == "ghijkl.0123456789abcdef"
    (tmp_path / "token-id").write_text("mnopqr")
    (tmp_path / "token-secret").write_text("fedcba9876543210")
    assert reader(token_file=tmp_path).current().bootstrap_token == "mnopqr.fedcba9876543210"


@pytest.mark.parametrize("content", [None, "", "hunter2-secret", "ABCDEF.0123456789abcdef"])
def test_no_node_is_booted_with_a_token_that_cannot_be_read(tmp_path, content):
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(NodeClassNotReadyError, match="--kubelet-bootstrap-token-file") as raised:
        reader(token_file=file).current()
    assert str(file) in str(raised.value)
    assert "hunter2" not in str(raised.value)
