"""The newest version of an image is found in two kinds of galleries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.images.versions import (
    is_newer,
    newest_community_version,
    newest_node_image_versions,
)
from karpenter_provider_azure.kubernetes_versions import parse_version

SYSTEMS = ("AKSUbuntu", "AKSAzureLinux")
VERSIONS = st.lists(st.integers(0, 999999), min_size=1, max_size=4).map(
    lambda numbers: ".".join(map(str, numbers))
)


def community(name, published):
    return {"name": name, "properties": {"publishedDate": published}}


def entry(version, *, sku="2204gen2containerd", system="AKSUbuntu"):
    return {"os": system, "sku": sku, "version": version, "fullName": f"{system}-{sku}-{version}"}


def test_the_community_version_that_was_published_last_is_the_newest():  # case 61
    versions = [
        community("202505.1.0", "2025-05-02T00:00:00+00:00"),
        community("202409.30.0", "2025-06-01T10:00:00.1234567Z"),
        community("202506.1.0", "2025-05-30T00:00:00Z"),
    ]

    assert newest_community_version(versions) == "202409.30.0"


def test_a_version_without_a_date_is_not_published():
    versions = [{"name": "2.0.0"}, community("3.0.0", "soon"), community("1.0.0", "2025-01-01")]

    assert newest_community_version(versions) == "1.0.0"
    assert newest_community_version(versions[:2]) == ""


def test_a_version_that_its_publisher_withdrew_is_not_the_newest():
    withdrawn = community("2.0.0", "2025-06-01")
    withdrawn["properties"]["excludeFromLatest"] = True

    assert newest_community_version([withdrawn, community("1.0.0", "2025-01-01")]) == "1.0.0"
    assert newest_community_version([withdrawn]) == ""


def test_node_image_versions_compare_as_numbers():  # case 62
    listed = [entry("202409.30.2"), entry("202410.15.0"), entry("202410.9.0")]

    assert newest_node_image_versions(listed, systems=SYSTEMS) == {
        ("AKSUbuntu", "2204gen2containerd"): "202410.15.0"
    }


def test_other_operating_systems_and_unreadable_versions_are_left_out():  # case 62
    listed = [
        entry("2025.1.1", sku="windows-2022", system="AKSWindows"),
        entry("202410.x.0", sku="V3gen2", system="AKSAzureLinux"),
        entry("", sku="V3", system="AKSAzureLinux"),
    ]

    assert newest_node_image_versions(listed, systems=SYSTEMS) == {}


def test_one_sku_of_two_systems_has_two_versions():
    listed = [entry("2.0.0", sku="V3"), entry("1.0.0", sku="V3", system="AKSAzureLinux")]

    assert newest_node_image_versions(listed, systems=SYSTEMS)["AKSAzureLinux", "V3"] == "1.0.0"


@pytest.mark.parametrize(
    ("version", "other", "expected"),
    [
        ("202410.09.0", "24.10.09", True),
        ("1.2.0", "1.2", True),
        ("1.2", "1.2.0", False),
        ("1.10", "1.9", True),
        ("1.2", "1.2", False),
        ("1.2", "", True),
        ("1.2", "unreadable", True),
        ("unreadable", "1.2", False),
        ("1.²", "", False),
    ],
)
def test_a_longer_version_is_newer_than_its_beginning(version, other, expected):
    assert is_newer(version, other) is expected


@given(one=VERSIONS, other=VERSIONS)
def test_of_two_different_versions_one_is_newer(one, other):
    same = [int(it) for it in one.split(".")] == [int(it) for it in other.split(".")]
    assert is_newer(one, other) + is_newer(other, one) == (0 if same else 1)


@given(st.permutations([entry(f"20241{i}.{j}.0") for i in range(3) for j in range(3)]))
def test_the_order_of_the_answer_does_not_count(listed):
    assert [*newest_node_image_versions(listed, systems=SYSTEMS).values()] == ["202412.2.0"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1.32.1", (1, 32, 1)),
        ("v1.32.1", (1, 32, 1)),
        ("1.34", (1, 34, 0)),
        ("1.33.0-alpha.1+x", (1, 33, 0)),
        ("", None),
        ("1", None),
        ("one.two", None),
    ],
)
def test_versions_of_kubernetes_are_read(text, numbers):
    assert parse_version(text) == numbers
