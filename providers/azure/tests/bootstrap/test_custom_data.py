"""The script of variables that a node boots with."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure.bootstrap.custom_data import (
    custom_data,
    script_network_plugin,
    script_variables,
    shell_script,
)
from providers.azure.tests.bootstrap import boots
from providers.azure.tests.bootstrap.boots import (
    SUBNET,
    TOKEN,
    boot,
    cluster,
    gpu_vm_size,
    node_claim,
    node_class,
    vm_size,
)

BASH = shutil.which("bash")
MIRROR = "https://acs-mirror.azureedge.net"


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def of_class(version: str = "1.33.4", **spec):
    return script_variables(boot(of=node_class(version=version, **spec)))


def test_a_script_sets_the_variables_and_starts_the_provisioning():
    script = decoded(custom_data(boot()))
    lines = script.splitlines()
    assignments = [line for line in lines if '="' in line]

    assert lines[0] == "#!/bin/bash"
    assert lines[-1].endswith("/opt/azure/containers/provision_start.sh")
    assert assignments == sorted(assignments)
    assert lines.index("set -o allexport") < lines.index(assignments[0])
    assert f'TLS_BOOTSTRAP_TOKEN="{TOKEN}"' in assignments
    assert 'KUBERNETES_VERSION="1.33.4"' in assignments


def test_the_same_node_boots_with_the_same_bytes():
    """Launches that are alike must be told apart by their names alone."""
    first = node_claim(node_labels={"b": "2", "a": "1"})
    second = node_claim(node_labels={"a": "1", "b": "2"})

    assert custom_data(boot(claim=first)) == custom_data(boot(claim=second))


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_shell_reads_every_value_as_it_is(value):
    script = shell_script({"VALUE": value}).split("mkdir", maxsplit=1)[0]

    done = subprocess.run(
        [str(BASH), "-c", f'{script}\nprintf "%s." "$VALUE"'], capture_output=True, check=True
    )

    assert done.stdout.decode() == f"{value}."


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_a_shell_can_read_the_whole_script(tmp_path: Path):
    path = tmp_path / "script"
    path.write_text(decoded(custom_data(boot())))

    subprocess.run([str(BASH), "-n", str(path)], check=True)


def test_a_script_that_is_too_large_for_azure_is_refused():
    claim = node_claim(node_labels={f"example.com/{n:04}": "x" * 63 for n in range(1000)})

    with pytest.raises(NodeClassNotReadyError, match=r'NodeClaim "web-abcde".*65,535 at most'):
        custom_data(boot(claim=claim))


def test_secrets_are_not_in_representations():
    found = boot()

    assert TOKEN not in repr(found)
    assert "CERTIFICATE" not in repr(found)


@pytest.mark.parametrize(
    ("version", "provider"),
    [
        ("1.29.9", ""),
        ("1.30.4", "1.30.12"),
        ("1.31.1", "1.31.6"),
        ("1.32.0", "1.32.5"),
        ("1.33.4", "1.33.0"),
        ("1.36.0", "1.33.0"),
    ],
)
def test_the_credential_provider_follows_the_version(version, provider):
    # case 88
    url = of_class(version)["CREDENTIAL_PROVIDER_DOWNLOAD_URL"]

    assert url == (
        provider
        and f"{MIRROR}/cloud-provider-azure/v{provider}/binaries/"
        f"azure-acr-credential-provider-linux-amd64-v{provider}.tar.gz"
    )


def test_kubelets_are_downloaded_before_1_34_only():
    assert of_class("1.33.4")["KUBE_BINARY_URL"] == (
        f"{MIRROR}/kubernetes/v1.33.4/binaries/kubernetes-node-linux-amd64.tar.gz"
    )
    assert of_class("1.34.0")["KUBE_BINARY_URL"] == ""


def test_a_version_with_long_term_support_is_downloaded_under_its_whole_name():
    found = of_class("1.30.101-akslts")

    assert found["KUBERNETES_VERSION"] == "1.30.101-akslts"
    assert found["KUBE_BINARY_URL"] == (
        f"{MIRROR}/kubernetes/v1.30.101-akslts/binaries/kubernetes-node-linux-amd64.tar.gz"
    )
    assert "/v1.30.12/" in found["CREDENTIAL_PROVIDER_DOWNLOAD_URL"]


def test_urls_have_the_architecture():
    arm = script_variables(boot(size=vm_size("Standard_D2ps_v5", arch="arm64")))

    assert "kubernetes-node-linux-arm64.tar.gz" in arm["KUBE_BINARY_URL"]
    assert "cni-plugins-linux-arm64-v1.1.1.tgz" in arm["CNI_PLUGINS_URL"]
    assert "azure-vnet-cni-linux-arm64-v1.4.32.tgz" in arm["VNET_CNI_PLUGINS_URL"]


@pytest.mark.parametrize(
    ("plugin", "mode", "dataplane", "installed"),
    [
        ("azure", "overlay", "cilium", "none"),
        ("azure", "overlay", "azure", "none"),
        ("azure", "", "cilium", "none"),
        ("azure", "", "azure", "azure"),
        ("azure", "", "", "azure"),
        ("none", "", "", "none"),
    ],
)
def test_scripts_install_the_network_plugin_for_node_subnets_only(
    plugin, mode, dataplane, installed
):
    settings = boots.settings(
        network_plugin=plugin, network_plugin_mode=mode, network_dataplane=dataplane
    )

    assert script_network_plugin(settings) == installed


def test_names_of_the_network_are_those_of_the_nodes_subnet():
    own = SUBNET.replace("aks-vnet-12345678", "shop").replace("aks-subnet", "nodes")
    found = of_class(vnetSubnetID=own.replace("MC_shop_shop_westus2", "network"))

    assert (found["SUBNET"], found["VIRTUAL_NETWORK"]) == ("nodes", "shop")
    assert found["VIRTUAL_NETWORK_RESOURCE_GROUP"] == "network"
    assert found["NETWORK_SECURITY_GROUP"] == "aks-agentpool-12345678-nsg"
    assert found["ROUTE_TABLE"] == "aks-agentpool-12345678-routetable"


def test_a_cluster_without_a_security_group_of_aks_has_no_such_names():
    found = script_variables(boot(of_cluster=cluster(security_group=None)))

    assert (found["NETWORK_SECURITY_GROUP"], found["ROUTE_TABLE"]) == ("", "")


def test_nodes_are_single_machines_with_a_managed_identity():
    found = of_class()

    assert found["VM_TYPE"] == "standard"
    assert found["LOAD_BALANCER_SKU"] == "Standard"
    assert found["USE_MANAGED_IDENTITY_EXTENSION"] == "true"
    assert found["ENABLE_TLS_BOOTSTRAPPING"] == "true"
    assert found["API_SERVER_NAME"] == "shop-abc.hcp.westus2.azmk8s.io"
    assert decoded(found["KUBE_CA_CRT"]).startswith("-----BEGIN CERTIFICATE-----")


GPU_CASES = [
    ("Standard_NC24ads_A100_v4", "cuda-lts", "580.159.04", "20260629214430", "false"),
    ("Standard_ND96isr_H100_v5", "cuda-lts", "580.159.04", "20260629214430", "true"),
    ("Standard_NV36ads_A10_v5", "grid", "570.211.01", "20260522192315", "false"),
    ("Standard_NC8ads_A10_v4", "grid", "570.211.01", "20260522192315", "false"),
    (
        "Standard_NC128lds_xl_RTXPRO6000BSE_v6",
        "grid-v20",
        "595.58.03",
        "20260609172331",
        "false",
    ),
    ("Standard_NC24r", "cuda", "470.82.01", "20260629214430", "false"),
]


@pytest.mark.parametrize(("size", "kind", "version", "suffix", "fabric"), GPU_CASES)
def test_the_driver_follows_the_size(size, kind, version, suffix, fabric):
    found = script_variables(boot(size=gpu_vm_size(size)))

    assert (found["GPU_NODE"], found["CONFIG_GPU_DRIVER_IF_NEEDED"]) == ("true", "true")
    assert found["GPU_DRIVER_TYPE"] == kind
    assert found["GPU_DRIVER_VERSION"] == version
    assert found["GPU_IMAGE_SHA"] == suffix
    assert found["GPU_NEEDS_FABRIC_MANAGER"] == fabric
    assert "nvidia-container-runtime" in decoded(found["CONTAINERD_CONFIG_CONTENT"])


@pytest.mark.parametrize(
    ("size", "spec"),
    [
        ("Standard_NC24ads_A100_v4", {"gpu": {"mode": "None"}}),
        ("Standard_ND96isr_MI300X_v5", {}),
    ],
)
def test_without_a_driver_the_node_is_no_gpu_node(size, spec):
    found = script_variables(boot(size=gpu_vm_size(size), of=node_class(**spec)))

    assert (found["GPU_NODE"], found["CONFIG_GPU_DRIVER_IF_NEEDED"]) == ("false", "false")
    assert "GPU_DRIVER_TYPE" not in found
    assert "nvidia" not in decoded(found["CONTAINERD_CONFIG_CONTENT"])


def test_settings_of_the_operating_system_are_applied():
    # case 7
    found = of_class(
        kubelet={"failSwapOn": False},
        linuxOSConfig={
            "swapFileSize": "1500Mi",
            "transparentHugePageEnabled": "madvise",
            "transparentHugePageDefrag": "defer",
            "sysctls": {"vmMaxMapCount": 262144, "netCoreSomaxconn": 4096},
        },
    )
    sysctls = decoded(found["SYSCTL_CONTENT"]).splitlines()

    assert (found["SHOULD_CONFIG_SWAP_FILE"], found["SWAP_FILE_SIZE_MB"]) == ("true", "1500")
    assert found["SHOULD_CONFIG_TRANSPARENT_HUGE_PAGE"] == "true"
    assert (found["THP_ENABLED"], found["THP_DEFRAG"]) == ("madvise", "defer")
    assert "vm.max_map_count=262144" in sysctls
    assert "net.core.somaxconn=4096" in sysctls


@pytest.mark.parametrize("field", ["transparentHugePageEnabled", "transparentHugePageDefrag"])
def test_either_field_of_huge_pages_is_enough(field):
    assert of_class(linuxOSConfig={field: "never"})["SHOULD_CONFIG_TRANSPARENT_HUGE_PAGE"] == "true"


def test_the_kernel_is_as_the_kubelet_needs_it():
    """With `--protect-kernel-defaults` it does not start otherwise."""
    assert {
        "kernel.keys.root_maxbytes=25000000",
        "kernel.keys.root_maxkeys=1000000",
        "kernel.panic=10",
        "kernel.panic_on_oops=1",
        "vm.overcommit_memory=1",
        "vm.panic_on_oom=0",
    } <= set(decoded(of_class()["SYSCTL_CONTENT"]).splitlines())


def test_without_settings_of_the_operating_system_nothing_is_configured():
    found = of_class()

    assert found["SHOULD_CONFIG_SWAP_FILE"] == "false"
    assert found["SHOULD_CONFIG_TRANSPARENT_HUGE_PAGE"] == "false"
