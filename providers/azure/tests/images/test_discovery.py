"""Images are found in community and shared galleries, and cached."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.images.discovery import (
    CommunityGalleries,
    ImageReader,
    SharedGalleries,
)
from karpenter_provider_azure.images.families import (
    EffectiveFamily,
    ImageVariant,
    image_definitions,
)
from providers.azure.tests.arm.values import SUBSCRIPTION
from providers.azure.tests.fake_arm import FakeArm, HandClock, unanswered

DEFINITIONS = image_definitions(
    EffectiveFamily.UBUNTU_2204, ImageVariant(fips=False, trusted_launch=False)
)
COMMUNITY = (
    f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/westus2"
    "/communityGalleries/AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2/images"
)
SHARED = (
    f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.ContainerService/locations/westus2"
    "/nodeImageVersions"
)
LISTING = "communityGalleries/images/versions:list"


@pytest.fixture
def arm():
    return FakeArm()


@pytest.fixture
def clock():
    return HandClock()


def publish(arm, name, version):
    versions = [{"name": version, "properties": {"publishedDate": "2025-01-01T00:00:00Z"}}]
    arm.put(f"{COMMUNITY}/{name}/versions", versions)


def ids(images):
    return [image.id.rsplit("/images/")[1] for image in images]


def test_definitions_that_a_region_does_not_have_are_skipped(arm, clock):
    publish(arm, "2204gen2containerd", "2.0.0")
    publish(arm, "2204gen2arm64containerd", "3.0.0")

    images = ImageReader(clock, CommunityGalleries(arm)).newest(DEFINITIONS, "1.33.0")

    assert ids(images) == [
        "2204gen2containerd/versions/2.0.0",
        "2204gen2arm64containerd/versions/3.0.0",
    ]


def test_images_are_cached_for_three_days_and_a_version_of_kubernetes(arm, clock):
    for definition in DEFINITIONS:
        publish(arm, definition.name, "1.0.0")
    reader = ImageReader(clock, CommunityGalleries(arm))
    reader.newest(DEFINITIONS, "1.33.0")
    publish(arm, "2204gen2containerd", "2.0.0")

    clock.forward(days=2)
    assert ids(reader.newest(DEFINITIONS, "1.33.0"))[0].endswith("1.0.0")
    assert ids(reader.newest(DEFINITIONS, "1.33.1"))[0].endswith("2.0.0")
    clock.forward(days=2)
    assert ids(reader.newest(DEFINITIONS, "1.33.0"))[0].endswith("2.0.0")


def test_an_answer_that_lacks_a_definition_is_read_again_after_an_hour(arm, clock):
    publish(arm, "2204gen2containerd", "1.0.0")
    reader = ImageReader(clock, CommunityGalleries(arm))
    reader.newest(DEFINITIONS, "1.33.0")
    publish(arm, "2204containerd", "1.0.0")

    clock.forward(minutes=59)
    assert len(reader.newest(DEFINITIONS, "1.33.0")) == 1
    clock.forward(minutes=2)
    assert len(reader.newest(DEFINITIONS, "1.33.0")) == 2


def test_an_answer_without_images_is_not_cached(arm, clock):
    reader = ImageReader(clock, CommunityGalleries(arm))

    assert reader.newest(DEFINITIONS, "1.33.0") == ()
    publish(arm, "2204containerd", "1.0.0")
    assert ids(reader.newest(DEFINITIONS, "1.33.0")) == ["2204containerd/versions/1.0.0"]


def test_an_unanswered_call_is_not_an_image_that_is_missing(arm, clock):
    publish(arm, "2204gen2containerd", "1.0.0")
    arm.put(f"{COMMUNITY}/2204containerd/versions", unanswered())

    with pytest.raises(CloudProviderError, match="500"):
        ImageReader(clock, CommunityGalleries(arm)).newest(DEFINITIONS, "1.33.0")


def test_shared_galleries_are_read_by_one_call(arm, clock):  # case 62
    arm.put(
        SHARED,
        [
            {"os": "AKSUbuntu", "sku": "2204gen2containerd", "version": "202409.30.2"},
            {"os": "AKSUbuntu", "sku": "2204gen2containerd", "version": "202410.15.0"},
            {"os": "AKSWindows", "sku": "2204containerd", "version": "202411.1.0"},
        ],
    )
    source = SharedGalleries(arm, gallery_subscription_id="of-aks")

    images = ImageReader(clock, source).newest(DEFINITIONS, "1.33.0")

    (image,) = images
    assert image.id == (
        "/subscriptions/of-aks/resourceGroups/AKS-Ubuntu/providers/Microsoft.Compute/galleries"
        "/AKSUbuntu/images/2204gen2containerd/versions/202410.15.0"
    )
    assert arm.calls == ["nodeImageVersions:list"]
