"""Labels that the kubelet of a node registers it with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import SPOT
from karpenter_core.api.names import label_value_error
from karpenter_core.errors import NodeClassNotReadyError
from karpenter_provider_azure import labels
from karpenter_provider_azure.bootstrap.node_labels import node_labels
from karpenter_provider_azure.labels import cluster_label_value
from providers.azure.tests.bootstrap.boots import (
    SUBNET,
    boot,
    cluster,
    node_claim,
    node_class,
    vm_size,
)


def test_a_node_of_an_overlay_cluster_has_the_labels_of_aks():
    assert node_labels(boot()) == {
        "karpenter.azure.com/placement-scope": "zonal",
        "karpenter.azure.com/sku-cpu": "2",
        "karpenter.azure.com/sku-storage-ultra-ssd": "false",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/do-not-sync-taints": "true",
        "karpenter.sh/nodepool": "web",
        "kubernetes.azure.com/azure-cni-overlay": "true",
        "kubernetes.azure.com/cluster": "MC_shop_shop_westus2",
        "kubernetes.azure.com/ebpf-dataplane": "cilium",
        "kubernetes.azure.com/kubelet-identity-client-id": "00000000-0000-0000-0000-00000000000c",
        "kubernetes.azure.com/localdns-state": "disabled",
        "kubernetes.azure.com/mode": "user",
        "kubernetes.azure.com/network-stateless-cni": "false",
        "kubernetes.azure.com/network-subnet": "aks-subnet",
        "kubernetes.azure.com/nodenetwork-vnetguid": "00000000-0000-0000-0000-00000000000d",
        "kubernetes.azure.com/os-sku": "Ubuntu",
        "kubernetes.azure.com/os-sku-effective": "Ubuntu2204",
        "kubernetes.azure.com/os-sku-requested": "Ubuntu",
        "kubernetes.azure.com/podnetwork-type": "overlay",
        "kubernetes.azure.com/priority": "regular",
        "kubernetes.azure.com/role": "agent",
        "kubernetes.azure.com/scalesetpriority": "regular",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "Standard_D2s_v5",
    }


def test_labels_are_sorted():
    found = node_labels(boot())

    assert list(found) == sorted(found)


def test_a_spot_node_without_a_zone_says_so():
    found = node_labels(boot(capacity_type=SPOT, zone="0"))

    assert found[labels.AKS_PRIORITY] == found[labels.AKS_SCALE_SET_PRIORITY] == "spot"
    assert found[labels.PLACEMENT_SCOPE] == "regional"


def test_the_offering_decides_on_ultra_disks():
    assert node_labels(boot(uses_ultra_ssd=True))[labels.SKU_STORAGE_ULTRA_SSD] == "true"


def test_a_claim_for_a_system_node_overrides_the_mode():
    claim = node_claim(requirements=[(labels.AKS_MODE, ["system"])])

    assert node_labels(boot(claim=claim))[labels.AKS_MODE] == "system"


def test_requirements_of_several_values_label_nothing():
    claim = node_claim(requirements=[(labels.SKU_FAMILY, ["D", "E"]), ("team", ["web"])])
    found = node_labels(boot(claim=claim))

    assert labels.SKU_FAMILY not in found
    assert found["team"] == "web"


def test_later_sources_win():
    """Base labels < labels of the claim < its requirements < the instance type < the offering."""
    claim = node_claim(
        node_labels={
            labels.AKS_ROLE: "mine",
            "team": "label",
            labels.SKU_CPU: "label",
            labels.PLACEMENT_SCOPE: "label",
        },
        requirements=[("team", ["requirement"]), (labels.SKU_CPU, ["9"])],
    )
    found = node_labels(boot(claim=claim))

    assert found[labels.AKS_ROLE] == "mine"
    assert found["team"] == "requirement"
    assert found[labels.SKU_CPU] == "2"
    assert found[labels.PLACEMENT_SCOPE] == "zonal"


@pytest.mark.parametrize(
    ("label", "is_set"),
    [
        ("node-restriction.kubernetes.io/x", False),
        ("node.kubernetes.io/x", True),
        ("kubelet.kubernetes.io/x", True),
        ("a.node.kubernetes.io/x", True),
        ("kubernetes.io/x", False),
        ("x.k8s.io/y", False),
        ("example.com/x", True),
        ("topology.kubernetes.io/zone", True),
    ],
)
def test_labels_that_a_kubelet_may_not_set_are_left_to_the_core(label, is_set):
    # case 89
    claim = node_claim(node_labels={label: "x"})

    assert (node_labels(boot(claim=claim)).get(label) == "x") is is_set


def test_the_generation_of_the_hypervisor_is_never_a_label():
    assert labels.SKU_HYPERV_GENERATION not in node_labels(boot())


def test_fips_and_local_dns_and_streaming_show():
    of = node_class(
        fipsMode="FIPS",
        artifactStreaming={"enabled": True},
        status={"localDNSState": "Enabled"},
    )
    found = node_labels(boot(of=of))

    assert found[labels.AKS_FIPS_ENABLED] == "true"
    assert found[labels.AKS_LOCAL_DNS_STATE] == "enabled"
    assert found[labels.AKS_ARTIFACT_STREAMING_ENABLED] == "true"
    assert found[labels.AKS_OS_SKU_EFFECTIVE] == "Ubuntu"


def test_nothing_is_streamed_on_arm64():
    of = node_class(artifactStreaming={"enabled": True})
    arm = vm_size("Standard_D2ps_v5", arch="arm64")

    assert labels.AKS_ARTIFACT_STREAMING_ENABLED not in node_labels(boot(of=of, size=arm))


@pytest.mark.parametrize(
    ("version", "family", "effective"),
    [
        ("1.33.4", "Ubuntu", "Ubuntu2204"),
        ("1.34.0", "Ubuntu", "Ubuntu2404"),
        ("1.31.9", "AzureLinux", "AzureLinux2"),
        ("1.32.0", "AzureLinux", "AzureLinux3"),
        ("1.33.4", "Ubuntu2404", "Ubuntu2404"),
    ],
)
def test_the_release_follows_family_and_version(version, family, effective):
    found = node_labels(boot(of=node_class(version=version, imageFamily=family)))

    assert found[labels.AKS_OS_SKU_EFFECTIVE] == effective
    assert found[labels.AKS_OS_SKU_REQUESTED] == family


def test_the_cni_is_stateless_from_1_34_on():
    found = node_labels(boot(of=node_class(version="1.34.0")))

    assert found[labels.AKS_NETWORK_STATELESS_CNI] == "true"


def test_a_cluster_without_overlay_and_cilium_has_no_network_labels():
    found = node_labels(
        boot(of_cluster=cluster(network_plugin_mode="", network_dataplane="azure", vnet_guid=""))
    )

    assert (
        not {
            labels.AKS_NETWORK_SUBNET,
            labels.AKS_AZURE_CNI_OVERLAY,
            labels.AKS_EBPF_DATAPLANE,
            labels.AKS_NODE_NETWORK_VNET_GUID,
        }
        & found.keys()
    )


def test_a_long_name_of_a_subnet_is_cut_to_a_label_value():
    """The kubelet would not start; names of subnets have up to 80 characters."""
    subnet = SUBNET.replace("aks-subnet", "s" * 62 + "_nodes")
    found = node_labels(boot(of=node_class(vnetSubnetID=subnet)))

    assert found[labels.AKS_NETWORK_SUBNET] == "s" * 62


def test_a_version_that_cannot_be_read_is_named():
    with pytest.raises(
        NodeClassNotReadyError, match=r'AKSNodeClass "web": status.kubernetesVersion ""'
    ):
        node_labels(boot(of=node_class(version="")))


def test_a_subnet_that_cannot_be_read_is_named():
    with pytest.raises(
        NodeClassNotReadyError, match=r'AKSNodeClass "web": spec\.vnetSubnetID: "x"'
    ):
        node_labels(boot(of=node_class(vnetSubnetID="x")))


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("MC_shop_shop_westus2", "MC_shop_shop_westus2"),
        ("a(b)c", "a-b-c"),
        ("a(b)", "a-b-z"),
        ("a_", "a_z"),
        ("a.", "a.z"),
        ("g" * 70, "g" * 63),
        ("g" * 62 + "-x", "g" * 62 + "z"),
        ("g" * 61 + "-x", "g" * 61 + "-x"),
        ("g" * 61 + "_", "g" * 61 + "_z"),
    ],
)
def test_the_clusters_label_is_its_resource_group(group, value):
    assert cluster_label_value(group) == value


@given(group=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.()-]{0,88}[A-Za-z0-9_()-]", fullmatch=True))
def test_any_resource_group_gives_a_label_value(group):
    assert not label_value_error(cluster_label_value(group))
