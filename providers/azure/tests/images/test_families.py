"""Image families resolve to releases and to definitions of AKS's galleries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.api.os_config import ImageFamily
from karpenter_provider_azure.images.families import (
    EffectiveFamily,
    ImageVariant,
    effective_family,
    image_definitions,
)

PLAIN = ImageVariant(fips=False, trusted_launch=False)
FIPS = ImageVariant(fips=True, trusted_launch=False)
TRUSTED = ImageVariant(trusted_launch=True, fips=False)
FIPS_TRUSTED = ImageVariant(fips=True, trusted_launch=True)


def names(family, variant=PLAIN):
    return [definition.name for definition in image_definitions(family, variant)]


@pytest.mark.parametrize(  # case 58
    ("image_family", "version", "release"),
    [
        ("Ubuntu", "1.33.9", "Ubuntu2204"),
        ("Ubuntu", "1.34.0", "Ubuntu2404"),
        ("", "1.34.0", "Ubuntu2404"),
        ("AzureLinux", "1.31.9", "AzureLinux2"),
        ("AzureLinux", "1.32.0", "AzureLinux3"),
        ("AzureLinux", "new", "AzureLinux2"),
        ("Ubuntu2204", "1.40.0", "Ubuntu2204"),
        ("Ubuntu2404", "1.20.0", "Ubuntu2404"),
    ],
)
def test_a_family_means_a_release_for_each_version_of_kubernetes(image_family, version, release):
    assert effective_family(image_family, version, PLAIN) == release


@pytest.mark.parametrize(
    ("variant", "release"),
    [(FIPS_TRUSTED, "Ubuntu2204"), (FIPS, "Ubuntu"), (TRUSTED, "Ubuntu2204")],
)
def test_fips_and_trusted_launch_decide_before_the_version(variant, release):
    assert effective_family("Ubuntu", "1.34.0", variant) == release


def test_an_unknown_family_means_no_release():
    assert effective_family("AzureLinux4", "1.34.0", PLAIN) is None


@pytest.mark.parametrize(
    ("family", "variant", "expected"),
    [
        (
            EffectiveFamily.UBUNTU_2204,
            PLAIN,
            ["2204gen2containerd", "2204containerd", "2204gen2arm64containerd"],
        ),
        (EffectiveFamily.UBUNTU_2204, TRUSTED, ["2204gen2TLcontainerd"]),
        (EffectiveFamily.UBUNTU_2204, FIPS_TRUSTED, ["2204gen2fipsTLcontainerd"]),  # case 59
        (EffectiveFamily.UBUNTU_2204, FIPS, []),
        (
            EffectiveFamily.UBUNTU_2404,
            PLAIN,
            ["2404gen2containerd", "2404containerd", "2404gen2arm64containerd"],
        ),
        (EffectiveFamily.UBUNTU_2404, TRUSTED, ["2404gen2TLcontainerd"]),
        (EffectiveFamily.UBUNTU_2404, FIPS, []),
        (
            EffectiveFamily.UBUNTU_2004,  # case 59
            FIPS,
            ["2004gen2fipscontainerd", "2004fipscontainerd"],
        ),
        (EffectiveFamily.UBUNTU_2004, PLAIN, []),
        (EffectiveFamily.AZURE_LINUX_2, PLAIN, ["V2gen2", "V2", "V2gen2arm64"]),
        (EffectiveFamily.AZURE_LINUX_2, TRUSTED, ["V2gen2TL"]),
        (EffectiveFamily.AZURE_LINUX_2, FIPS, ["V2gen2fips", "V2fips"]),
        (EffectiveFamily.AZURE_LINUX_3, PLAIN, ["V3gen2", "V3", "V3gen2arm64"]),
        (EffectiveFamily.AZURE_LINUX_3, TRUSTED, ["V3gen2TL"]),
        (EffectiveFamily.AZURE_LINUX_3, FIPS, ["V3gen2fips", "V3fips", "V3gen2arm64fips"]),
        (EffectiveFamily.AZURE_LINUX_3, FIPS_TRUSTED, []),
    ],
)
def test_definitions_are_in_the_order_of_preference(family, variant, expected):
    assert names(family, variant) == expected


def test_definitions_name_generation_architecture_distribution_and_gallery():
    gen2, gen1, arm = image_definitions(EffectiveFamily.UBUNTU_2404, PLAIN)

    assert [(it.architecture, it.hyperv_generation) for it in (gen2, gen1, arm)] == [
        ("amd64", "2"),
        ("amd64", "1"),
        ("arm64", "2"),
    ]
    assert gen2.distribution == "aks-ubuntu-containerd-24.04-gen2"
    assert arm.distribution == "aks-ubuntu-arm64-containerd-24.04-gen2"
    assert gen2.gallery.shared_name == "AKSUbuntu"
    linux = image_definitions(EffectiveFamily.AZURE_LINUX_3, FIPS)
    assert linux[2].distribution == "aks-azurelinux-v3-arm64-gen2-fips"
    assert linux[0].gallery.shared_name == "AKSAzureLinux"


@given(
    image_family=st.sampled_from(["", *ImageFamily]),
    minor=st.integers(25, 45),
    fips=st.booleans(),
    trusted=st.booleans(),
)
def test_every_family_has_a_release_and_a_newer_version_never_means_an_older_one(
    image_family, minor, fips, trusted
):
    variant = ImageVariant(fips=fips, trusted_launch=trusted)
    releases = [
        effective_family(image_family, f"1.{number}.0", variant) for number in (minor, minor + 1)
    ]

    assert None not in releases
    order = [*EffectiveFamily]
    assert order.index(releases[0]) <= order.index(releases[1])
    for release in releases:
        found = image_definitions(release, variant)
        assert len({it.name for it in found}) == len(found)
        assert all(it.architecture == "amd64" or it.hyperv_generation == "2" for it in found)
