"""Tests what lists of instance types keep, and when they change."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from providers.azure.tests.catalogue.sku_items import (
    GIB,
    NOW,
    World,
    node_class,
    sku_item,
    usage,
)

D4, D8 = "Standard_D4s_v5", "Standard_D8s_v5"
GEN1 = "Standard_D2_v3"
IMAGE = "/CommunityGalleries/AKSUbuntu/images/2204gen2containerd/versions/202601.01.0"
STATUS = {
    "images": [
        {
            "id": IMAGE,
            "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {
                    "key": "karpenter.azure.com/sku-hyperv-generation",
                    "operator": "In",
                    "values": ["2"],
                },
            ],
        }
    ]
}


@pytest.fixture
def world() -> World:
    return World(sku_item(D8, family="f"), sku_item(D4, family="f"))


def test_types_are_sorted_by_name(world: World) -> None:
    assert world.names() == [D4, D8]


def test_an_unchanged_list_is_the_same_object(world: World) -> None:
    assert world.list() is world.list()


def test_returned_lists_cannot_be_reordered(world: World) -> None:
    assert isinstance(world.list(), tuple)  # case 38


def test_node_classes_with_equal_traits_share_their_types(world: World) -> None:
    first = world.catalogue.instance_types(node_class(name="first"))
    second = world.catalogue.instance_types(node_class({"tags": {"a": "b"}}, name="second"))

    assert first is second


def test_a_changed_type_alone_is_made_anew(world: World) -> None:
    before = {it.name: it for it in world.list()}
    world.unavailable.mark(UnavailableOffering(D4, "0", "spot"), now=NOW)

    after = {it.name: it for it in world.list()}

    assert after[D4] is not before[D4]
    assert after[D8] is before[D8]


def test_a_changed_price_is_listed(world: World) -> None:
    world.list()
    world.set_prices({D4: 0.5})

    assert world.offering(D4, "0", "on-demand").price.amount == 0.5


def test_changed_quotas_are_listed_and_equal_ones_are_not() -> None:
    world = World(sku_item(D4, cpus=4, family="f"), usages=[usage("f", limit=10, used=0)])
    before = world.list()  # case 57
    world.quotas.refresh()
    assert world.list() is before

    world.usages = [usage("f", limit=10, used=8)]
    world.quotas.refresh()

    assert not world.offering(D4, "0", "on-demand").available


def test_a_type_without_available_offerings_is_listed(world: World) -> None:
    for capacity_type in ("on-demand", "spot"):
        world.unavailable.mark_capacity_type(capacity_type, now=NOW)

    assert not any(it.available for t in world.list() for it in t.offerings)
    assert world.names() == [D4, D8]


def test_new_sizes_are_listed(world: World) -> None:
    world.list()
    world.items.append(sku_item("Standard_D16s_v5"))
    world.revision += 1

    assert world.names() == ["Standard_D16s_v5", D4, D8]


def test_offerings_without_an_image_that_fits_are_unavailable() -> None:
    world = World(sku_item(D4), sku_item(GEN1, HyperVGenerations="V1"))

    listed = {it.name: it for it in world.list(status=STATUS)}

    assert all(it.available for it in listed[D4].offerings)
    assert not any(it.available for it in listed[GEN1].offerings)


def test_without_images_offerings_are_available() -> None:
    assert all(it.available for it in World(sku_item(D4)).type(D4).offerings)


def test_the_memory_of_registered_nodes_replaces_the_estimate(world: World) -> None:
    of = node_class(status=STATUS)
    estimated = world.catalogue.instance_types(of)[0].capacity["memory"]

    learned = world.catalogue.learn_memory(
        of, instance_type=D4, image_id=IMAGE.lower(), memory_bytes=7 * GIB + 1
    )

    memory = {it.name: it.capacity["memory"] for it in world.catalogue.instance_types(of)}
    assert learned
    assert memory == {D4: 7 * GIB + 1, D8: estimated}


@pytest.mark.parametrize(("name", "image"), [(D4, "another"), (D4, ""), ("Standard_gone", IMAGE)])
def test_nodes_of_other_images_and_sizes_teach_nothing(world: World, name: str, image: str) -> None:
    of = node_class(status=STATUS)

    assert not world.catalogue.learn_memory(
        of, instance_type=name, image_id=image, memory_bytes=GIB
    )


def test_types_that_were_not_listed_for_a_time_are_forgotten(world: World) -> None:
    before = world.list()
    world.clock.advance(seconds=timedelta(minutes=16).total_seconds())
    world.list({"maxPods": 50})

    assert world.list() is not before
