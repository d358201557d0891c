"""Tests which VM sizes nodes can use, in general and for one NodeClass."""

from __future__ import annotations

from typing import Any

import pytest

from karpenter_provider_azure.catalogue.class_traits import (
    ClassTraits,
    class_exclusion,
    general_exclusion,
)
from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size
from karpenter_provider_azure.labels import OS_SKU_UBUNTU
from providers.azure.tests.catalogue.sku_items import World, sku_item, vm_size

PLAIN: dict[str, Any] = {
    "os_sku": OS_SKU_UBUNTU,
    "os_disk_size_gb": 128,
    "max_pods": 110,
    "encryption_at_host": False,
    "trusted_launch": False,
    "gpu_drivers": True,
    "artifact_streaming": False,
    "fips": False,
    "local_dns": False,
    "images": (),
}
"""The traits of a NodeClass that asks for nothing."""

D2, D4 = "Standard_D2s_v5", "Standard_D4s_v5"
T4, A10, MI300 = "Standard_NC4as_T4_v3", "Standard_NV6ads_A10_v5", "Standard_ND96isr_MI300X_v5"


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        (D4, {}, ""),
        ("Standard_M8ms", {"cpus": 8}, ""),  # case 27
        (D4, {"cpus": 1}, "fewer than 2 vCPUs"),  # case 26
        (D4, {"memory_gib": 3.4}, "less than 3.5 GiB"),  # case 26
        (D4, {"memory_gib": 3.5}, ""),
        ("Standard_B1ms", {"cpus": 2}, "AKS does not support"),  # case 26
        ("Basic_A4", {"cpus": 8}, "AKS does not support"),  # case 26
        ("Standard_E64i_v3", {"cpus": 64}, "AKS does not support"),  # case 26
        ("Standard_M8-2ms", {"cpus": 8}, "constrained"),  # case 27
        ("Standard_DC8s_v3", {"cpus": 8}, "confidential"),  # case 27
        ("Standard_NC99s_T9_v9", {"GPUs": 1}, "GPUs that AKS does not support"),  # case 28
        ("Standard_NC99s_T9_v9", {}, ""),
        (T4, {"GPUs": 1}, ""),
        ("Standard_NC6_Promo", {"GPUs": 1}, ""),
    ],
)
def test_a_size_is_excluded_for_a_reason(name: str, fields: dict[str, Any], reason: str) -> None:
    found = general_exclusion(vm_size(name, **fields))

    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize(
    ("name", "fields", "traits", "field"),
    [
        (D4, {}, {}, ""),
        (MI300, {"GPUs": 8}, {"gpu_drivers": True}, "gpu.mode"),  # case 28
        (MI300, {"GPUs": 8}, {"gpu_drivers": False}, ""),  # case 28
        (T4, {"GPUs": 1}, {"gpu_drivers": True}, ""),
        (T4, {"GPUs": 1}, {"os_sku": "AzureLinux"}, ""),
        (A10, {"GPUs": 1}, {"os_sku": "AzureLinux"}, "imageFamily"),
        (D4, {}, {"os_sku": "AzureLinux"}, ""),
        (D4, {}, {"encryption_at_host": True}, "security.encryptionAtHost"),  # case 29
        (D4, {"EncryptionAtHostSupported": "True"}, {"encryption_at_host": True}, ""),  # case 29
        (D4, {"HyperVGenerations": "V1"}, {"trusted_launch": True}, "security.trustedLaunch"),
        (D4, {"TrustedLaunchDisabled": "True"}, {"trusted_launch": True}, "security.trustedLaunch"),
        (D4, {}, {"trusted_launch": True}, ""),  # case 30
        (D2, {"cpus": 2}, {"local_dns": True}, "localDNS"),  # case 31
        (D4, {"cpus": 4}, {"local_dns": True}, ""),  # case 31
        (D2, {"cpus": 2}, {"local_dns": False}, ""),  # case 31
        (D4, {"CpuArchitectureType": "Arm64"}, {"artifact_streaming": True}, "artifactStreaming"),
        (D4, {"CpuArchitectureType": "Arm64"}, {}, ""),  # case 32
    ],
)
def test_a_node_class_excludes_sizes_by_a_field(
    name: str, fields: dict[str, Any], traits: dict[str, Any], field: str
) -> None:
    found = class_exclusion(vm_size(name, **fields), ClassTraits(**(PLAIN | traits)))

    assert found.partition(":")[0] == field


@pytest.mark.parametrize("spec", [{}, {"artifactStreaming": {"enabled": False}}])
def test_arm64_stays_without_artifact_streaming(spec: dict[str, Any]) -> None:
    arm = sku_item("Standard_D4ps_v6", CpuArchitectureType="Arm64")  # case 32

    assert World(arm).names(spec) == ["Standard_D4ps_v6"]
    assert World(arm).names({"artifactStreaming": {"enabled": True}}) == []


@pytest.mark.parametrize(
    ("spec", "is_listed"),
    [
        ({}, True),
        ({"security": {"encryptionAtHost": False}}, True),
        ({"security": {"encryptionAtHost": True}}, False),  # case 29
    ],
)
def test_encryption_at_host_excludes_types_only_if_requested(
    spec: dict[str, Any], is_listed: bool
) -> None:
    assert bool(World(sku_item(D4)).names(spec)) is is_listed


def test_switching_local_dns_changes_the_list_at_once() -> None:
    world = World(sku_item(D2, cpus=2), sku_item(D4, cpus=4))  # case 31

    assert world.names(status={"localDNSState": "Enabled"}) == [D4]
    assert world.names(status={"localDNSState": "Disabled"}) == [D2, D4]
    assert world.names(status={"localDNSState": "Enabled"}) == [D4]


def test_the_gpu_table_names_vendor_and_operating_systems() -> None:
    t4, a10, mi300 = gpu_size(T4), gpu_size(A10), gpu_size(MI300)

    assert t4 is not None
    assert a10 is not None
    assert mi300 is not None
    assert (t4.manufacturer, sorted(t4.operating_systems)) == ("nvidia", ["AzureLinux", "Ubuntu"])
    assert (a10.manufacturer, sorted(a10.operating_systems)) == ("nvidia", ["Ubuntu"])
    assert (mi300.manufacturer, mi300.has_managed_driver) == ("amd", False)
    assert gpu_size(T4.upper()) == t4
    assert gpu_size(D4) is None
