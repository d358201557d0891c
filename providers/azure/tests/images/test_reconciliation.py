"""Images of a NodeClass are kept or moved, and one is chosen for each instance type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import ARCH
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import LaunchFailedError
from karpenter_core.provider.catalogue import InstanceType, Requirements
from karpenter_provider_azure.images.discovery import node_image
from karpenter_provider_azure.images.families import (
    EffectiveFamily,
    ImageVariant,
    community_image_id,
    definition_id,
    image_definitions,
    is_community_image,
    shared_image_id,
)
from karpenter_provider_azure.images.versions import image_for, reconciled_images
from karpenter_provider_azure.labels import SKU_HYPERV_GENERATION

DEFINITIONS = image_definitions(
    EffectiveFamily.UBUNTU_2204, ImageVariant(fips=False, trusted_launch=False)
)
GEN2, GEN1, ARM = DEFINITIONS


def image(definition, version="1.0.0"):
    return node_image(definition, community_image_id(definition.gallery, definition.name, version))


def images(version="1.0.0", definitions=DEFINITIONS):
    return tuple(image(definition, version) for definition in definitions)


def instance_type(arch, *generations):
    return InstanceType(
        name="Standard_D4s_v5",
        requirements=Requirements.from_specs(
            [
                RequirementSpec(key=ARCH, operator="In", values=(arch,)),
                RequirementSpec(key=SKU_HYPERV_GENERATION, operator="In", values=generations),
            ]
        ),
        offerings=(),
        capacity={},
    )


def test_a_definition_keeps_its_version_outside_an_update():  # case 63
    assert reconciled_images(images("1.0.0"), images("2.0.0"), is_update=False) == images("1.0.0")


def test_every_definition_moves_in_an_update():  # case 63
    assert reconciled_images(images("1.0.0"), images("2.0.0"), is_update=True) == images("2.0.0")


def test_new_definitions_begin_with_the_newest_and_others_go_outside_an_update():  # case 65
    newer = image_definitions(
        EffectiveFamily.UBUNTU_2404, ImageVariant(fips=False, trusted_launch=False)
    )

    found = reconciled_images(images("1.0.0"), images("2.0.0", newer), is_update=False)

    assert found == images("2.0.0", newer)


def test_the_case_of_an_id_does_not_count():
    held = images("1.0.0")[0]
    upper = held.model_copy(update={"id": held.id.upper().replace("/VERSIONS/", "/versions/")})

    found = reconciled_images([upper], images("2.0.0"), is_update=False)

    assert found[0].id == upper.id


@given(
    held=st.lists(st.sampled_from(DEFINITIONS), unique=True),
    found=st.lists(st.sampled_from(DEFINITIONS), unique=True),
    is_update=st.booleans(),
)
def test_definitions_keep_their_order_and_appear_once(held, found, is_update):
    current, newest = images("1.0.0", held), images("2.0.0", found)

    after = reconciled_images(current, newest, is_update=is_update)

    assert [definition_id(it.id) for it in after] == [definition_id(it.id) for it in newest]
    assert [it.requirements for it in after] == [it.requirements for it in newest]
    for it, definition in zip(after, found, strict=True):
        is_kept = definition in held and not is_update
        assert it.id.endswith("/1.0.0" if is_kept else "/2.0.0")
    assert reconciled_images(after, newest, is_update=is_update) == after


@pytest.mark.parametrize(  # case 60
    ("chosen", "arch", "generations"),
    [
        (GEN2, "amd64", ("1", "2")),
        (GEN2, "amd64", ("2",)),
        (GEN1, "amd64", ("1",)),
        (ARM, "arm64", ("2",)),
    ],
)
def test_an_instance_type_boots_the_first_image_for_it(chosen, arch, generations):
    assert image_for(images(), instance_type(arch, *generations)) == image(chosen)


def test_an_instance_type_that_boots_no_image_is_not_launched():
    with pytest.raises(LaunchFailedError, match=r"Standard_D4s_v5.*2204gen2containerd") as raised:
        image_for(images(definitions=(GEN2,)), instance_type("amd64", "1"))
    assert raised.value.reason == "ImageSelectionFailed"
    with pytest.raises(LaunchFailedError, match=r": none$"):
        image_for((), instance_type("amd64", "1"))


def test_requirements_of_an_image_are_sorted_by_length_and_key():
    assert [it.key for it in image(GEN2).requirements] == [ARCH, SKU_HYPERV_GENERATION]


def test_ids_of_shared_and_community_images():
    shared = shared_image_id(GEN2.gallery, GEN2.name, "1.0.0", subscription_id="s")

    assert shared == (
        "/subscriptions/s/resourceGroups/AKS-Ubuntu/providers/Microsoft.Compute/galleries"
        "/AKSUbuntu/images/2204gen2containerd/versions/1.0.0"
    )
    assert not is_community_image(shared)
    assert definition_id(shared) == shared.removesuffix("/versions/1.0.0")
    assert definition_id("of no gallery") == "of no gallery"
    assert image(GEN2).id == (
        "/CommunityGalleries/AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2"
        "/images/2204gen2containerd/versions/1.0.0"
    )
    assert is_community_image(image(GEN2).id)
