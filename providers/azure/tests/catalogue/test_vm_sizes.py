"""Tests the parsing of VM sizes."""

from __future__ import annotations

import pytest

from karpenter_provider_azure.catalogue.vm_sizes import parse_skus
from providers.azure.tests.catalogue.sku_items import LOCATION, restriction, sku_item, vm_size

D4 = "Standard_D4s_v5"


def test_a_size_has_its_capabilities_in_typed_fields() -> None:
    size = vm_size(
        "Standard_D4ps_v6",
        cpus=4,
        memory_gib=15.5,
        family="standardDpsv6Family",
        CpuArchitectureType="Arm64",
        HyperVGenerations="V2",
        EncryptionAtHostSupported="true",
        AcceleratedNetworkingEnabled="False",
    )

    assert (size.cpus, size.memory_mib, size.arch) == (4, 15872, "arm64")  # case 23
    assert size.quota_group == "standarddpsv6family"
    assert size.hyperv_generations == ("2",)
    assert size.encryption_at_host
    assert not size.accelerated_networking


@pytest.mark.parametrize(
    ("name", "capabilities", "expected"),
    [
        # case 35
        ("Standard_B20ms", {"CachedDiskBytes": 32212254720}, (32, "CacheDisk")),
        (
            "Standard_D128ds_v6",
            {
                "NvmeDiskSizeInMiB": 7208960,
                "SupportedEphemeralOSDiskPlacements": "NvmeDisk,ResourceDisk",
                "CachedDiskBytes": 99 * 10**9,
            },
            (7559, "NvmeDisk"),
        ),
        ("Standard_D64s_v3", {"CachedDiskBytes": 1717986918400}, (1717, "CacheDisk")),
        ("Standard_D8ds_v4", {"MaxResourceVolumeMB": 307200}, (322, "ResourceDisk")),
        ("Standard_D2as_v6", {"EphemeralOSDiskSupported": "False"}, (0,)),
        ("Standard_D2as_v6", {"EphemeralOSDiskSupported": None}, (0,)),
        ("Standard_D4s_v5", {"MaxResourceVolumeMB": 0}, (0,)),
        # case 36
        (
            "Standard_L8s_v3",
            {"NvmeDiskSizeInMiB": 1831420, "CachedDiskBytes": 50 * 10**9},
            (50, "CacheDisk"),
        ),
        # cases 36 and 37
        (
            "Standard_D8ds_v5",
            {"CachedDiskBytes": 50 * 10**9, "MaxResourceVolumeMB": 307200},
            (322, "CacheDisk", "ResourceDisk"),
        ),
        (
            "Standard_D8ds_v5",
            {
                "CachedDiskBytes": 50 * 10**9,
                "MaxResourceVolumeMB": 307200,
                "SupportedEphemeralOSDiskPlacements": "ResourceDisk,CacheDisk",
            },
            (322, "CacheDisk", "ResourceDisk"),
        ),
        (
            "Standard_D8ds_v5",
            {
                "CachedDiskBytes": 500 * 10**9,
                "MaxResourceVolumeMB": 307200,
                "SupportedEphemeralOSDiskPlacements": "ResourceDisk",
            },
            (322, "ResourceDisk"),
        ),
    ],
)
def test_the_local_disks_are_places_of_an_ephemeral_os_disk_in_the_order_of_aks(
    name: str, capabilities: dict[str, object], expected: tuple[object, ...]
) -> None:
    size = vm_size(name, **{"EphemeralOSDiskSupported": "True", **capabilities})

    places = (disk.placement for disk in size.ephemeral_os_disks)
    assert (size.max_ephemeral_os_disk_gb, *places) == expected


def test_a_restricted_zone_is_left_out() -> None:
    size = vm_size(D4, restrictions=[restriction("Zone", zones=["2"])])  # case 43

    assert size.zones == ("1", "3")


def test_a_size_restricted_in_the_region_is_left_out() -> None:
    sizes = [sku_item(D4, restrictions=[restriction("Location")])]  # case 43

    assert parse_skus(sizes, LOCATION) == ({}, {}, {})


def test_restrictions_of_other_regions_do_not_count() -> None:
    size = vm_size(D4, restrictions=[restriction("Location", location="eastus")])

    assert size.zones == ("1", "2", "3")


def test_sizes_of_other_regions_and_other_resources_are_left_out() -> None:
    disk = {**sku_item("Premium_LRS"), "resourceType": "disks"}

    assert parse_skus([sku_item(D4, location="eastus"), disk], LOCATION) == ({}, {}, {})


def test_the_region_is_compared_without_case() -> None:
    assert list(parse_skus([sku_item(D4, location="WestUS2")], LOCATION).sizes) == [D4]


@pytest.mark.parametrize(
    ("capabilities", "named"),
    [
        ({"CpuArchitectureType": None}, "CpuArchitectureType"),
        ({"CpuArchitectureType": "RiscV"}, '"RiscV"'),
        ({"cpus": "four"}, 'vCPUs has no usable value: "four"'),
        ({"cpus": None}, "vCPUs"),
        ({"memory_gib": "nan"}, "MemoryGB"),
        ({"memory_gib": None}, "MemoryGB"),
        ({"GPUs": "some"}, "GPUs"),
        ({"GPUs": "9" * 5000}, "GPUs"),
        ({"PremiumIO": "x"}, "PremiumIO"),
    ],
)
def test_a_size_with_an_unreadable_capability_is_unreadable_for_that_reason(
    capabilities: dict[str, object], named: str
) -> None:
    parsed = parse_skus([sku_item(D4, **capabilities)], LOCATION)  # pyright: ignore[reportArgumentType] - fields by name

    assert parsed.sizes == {}
    assert named in parsed.unreadable[D4]
    assert D4 in parsed.unreadable[D4]


@pytest.mark.parametrize("odd", [True, 10**30, {}, [None], ["x"], [[]]])
@pytest.mark.parametrize("field", ["locationInfo", "capabilities", "restrictions", "family"])
def test_a_size_with_a_damaged_field_is_unreadable(field: str, odd: object) -> None:
    parsed = parse_skus([sku_item(D4) | {field: odd}], LOCATION)

    assert parsed.sizes == {}
    assert field in parsed.unreadable[D4]


@pytest.mark.parametrize("zones", ["1", ["x"], [None], [["1"]], {}])
def test_a_size_with_damaged_zones_is_unreadable(zones: object) -> None:
    """Without a zone it would be a regional size."""
    item = sku_item(D4)
    item["locationInfo"][0]["zones"] = zones

    assert "zones" in parse_skus([item], LOCATION).unreadable[D4]


@pytest.mark.parametrize(("digits", "is_readable"), [(18, True), (19, False)])
def test_a_number_has_eighteen_digits_at_most(digits: int, is_readable: bool) -> None:
    parsed = parse_skus([sku_item(D4, GPUs="1" * digits)], LOCATION)

    assert (list(parsed.sizes) == [D4]) == is_readable


@pytest.mark.parametrize("text", ["True", "false", ""])
def test_a_capability_may_be_true_false_or_empty(text: str) -> None:
    assert vm_size(D4, PremiumIO=text).premium_io == (text == "True")


def test_an_odd_name_that_the_subscription_cannot_use_is_no_problem() -> None:
    hidden = sku_item("experimental_boost32", restrictions=[restriction("Location")])

    assert parse_skus([hidden], LOCATION) == ({}, {}, {})


@pytest.mark.parametrize("name", [None, 3, "", "x"])
def test_an_item_without_the_name_of_a_size_is_unreadable(name: object) -> None:
    assert list(parse_skus([sku_item(D4) | {"name": name}], LOCATION).unreadable) == [""]


def test_a_size_with_a_strange_name_is_skipped_with_the_reason() -> None:
    parsed = parse_skus([sku_item("Standard_strange"), sku_item(D4)], LOCATION)

    assert list(parsed.sizes) == [D4]
    assert "naming convention" in parsed.skipped["Standard_strange"]


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({}, True),
        ({"HyperVGenerations": "V1"}, False),
        ({"TrustedLaunchDisabled": "True"}, False),
        ({"TrustedLaunchDisabled": "False"}, True),
    ],
)
def test_trusted_launch_needs_generation_2(capabilities: dict[str, object], expected: bool) -> None:
    assert vm_size(D4, **capabilities).trusted_launch is expected


def test_ultra_disks_are_listed_by_zone_and_for_the_region() -> None:
    size = vm_size(D4, ultra_ssd_zones=["1", "2"], UltraSSDAvailable="True")

    assert size.ultra_ssd_zones == ("1", "2")
    assert size.regional_ultra_ssd
