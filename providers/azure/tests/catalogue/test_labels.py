"""Tests the labels of instance types."""

from __future__ import annotations

from typing import Any

import pytest

from karpenter_core.api.labels import NODE_POOL, WELL_KNOWN
from karpenter_provider_azure import labels
from providers.azure.tests.catalogue.sku_items import World, sku_item

D4 = "Standard_D4pls_v6"


def label_values(
    name: str, spec: dict[str, Any] | None = None, **fields: Any
) -> dict[str, list[str]]:
    """Return the values of each label of a type."""
    it = World(sku_item(name, **fields)).type(name, spec)
    return {key: sorted(it.requirements.get(key).values) for key in it.requirements}


def test_a_type_defines_every_well_known_label() -> None:
    found = label_values(D4)

    assert (WELL_KNOWN | labels.WELL_KNOWN) - {NODE_POOL} <= found.keys()
    assert labels.SKU_HYPERV_GENERATION in found


def test_labels_follow_from_the_size() -> None:
    found = label_values(D4, cpus=4, memory_gib=16, CpuArchitectureType="Arm64", PremiumIO="False")

    assert found["node.kubernetes.io/instance-type"] == [D4]
    assert found["kubernetes.io/arch"] == ["arm64"]  # case 23
    assert found["kubernetes.io/os"] == ["linux"]
    assert found["topology.kubernetes.io/region"] == ["westus2"]
    assert found[labels.SKU_NAME] == [D4]
    assert found[labels.SKU_FAMILY] == ["D"]  # case 23
    assert found[labels.SKU_SERIES] == ["Dpls_v6"]  # case 23
    assert found[labels.SKU_VERSION] == ["6"]
    assert found[labels.SKU_CPU] == found[labels.AKS_SKU_CPU] == ["4"]
    assert found[labels.SKU_MEMORY] == found[labels.AKS_SKU_MEMORY] == ["16384"]  # case 21
    assert found[labels.SKU_NETWORKING_ACCELERATED] == ["true"]
    assert found[labels.SKU_STORAGE_PREMIUM_CAPABLE] == ["false"]
    assert found[labels.SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE] == []  # case 35
    assert found[labels.SKU_GPU_COUNT] == ["0"]
    assert found[labels.SKU_GPU_NAME] == found[labels.SKU_GPU_MANUFACTURER] == []
    assert found[labels.SKU_HYPERV_GENERATION] == ["1", "2"]


def test_labels_of_gpus_are_those_of_the_accelerator() -> None:
    found = label_values("Standard_NC24ads_A100_v4", GPUs=1)  # case 24

    assert found[labels.SKU_GPU_NAME] == ["A100"]
    assert found[labels.SKU_GPU_MANUFACTURER] == ["nvidia"]
    assert found[labels.SKU_GPU_COUNT] == ["1"]


def test_series_without_an_accelerator_in_their_name_have_one_too() -> None:
    assert label_values("Standard_NC6s_v3", GPUs=1)[labels.SKU_GPU_NAME] == ["V100"]  # case 25


def test_the_largest_ephemeral_disk_is_a_label() -> None:
    found = label_values(
        "Standard_B20ms", EphemeralOSDiskSupported="True", CachedDiskBytes=32212254720
    )

    assert found[labels.SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE] == ["32"]  # case 35


@pytest.mark.parametrize(
    ("spec", "os_sku", "fips"),
    [
        ({}, "Ubuntu", []),
        ({"imageFamily": "Ubuntu2404"}, "Ubuntu", []),
        ({"imageFamily": "AzureLinux"}, "AzureLinux", []),
        ({"fipsMode": "FIPS"}, "Ubuntu", ["true"]),
        ({"fipsMode": "Disabled"}, "Ubuntu", []),
    ],
)
def test_labels_follow_from_the_node_class(
    spec: dict[str, Any], os_sku: str, fips: list[str]
) -> None:
    found = label_values(D4, spec)

    assert found[labels.AKS_OS_SKU] == [os_sku]
    assert found[labels.AKS_FIPS_ENABLED] == fips
    assert found[labels.AKS_MODE] == ["system", "user"]
    assert found[labels.AKS_CLUSTER] == ["mc_group"]


def test_labels_allow_all_offerings() -> None:
    """Rule PC-022: also of those that are unavailable at the moment."""
    found = label_values(D4, LowPriorityCapable="False")

    assert found["topology.kubernetes.io/zone"] == ["0", "westus2-1", "westus2-2", "westus2-3"]
    assert found["karpenter.sh/capacity-type"] == ["on-demand", "spot"]
    assert found[labels.PLACEMENT_SCOPE] == ["regional", "zonal"]
    assert found[labels.AKS_PRIORITY] == found[labels.AKS_SCALE_SET_PRIORITY] == ["regular", "spot"]
