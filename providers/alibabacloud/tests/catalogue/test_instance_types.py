"""Lists of instance types: acceptance cases 44, 45 and 47, the contract's rules, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.api.labels import CAPACITY_TYPES, INSTANCE_TYPE
from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.catalogue.instance_types import CatalogueInputs
from karpenter_provider_alibabacloud.discovery.cluster import CUSTOM_CLUSTER
from karpenter_provider_alibabacloud.prices import SpotQuote, quote_of
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    FLANNEL,
    MIB,
    NOW,
    SIZES,
    TERWAY,
    A,
    B,
    World,
    available,
    bought,
    images,
    info,
    node_class,
    vswitches,
)

LARGE, XLARGE = "ecs.g7.large", "ecs.g7.xlarge"
HERE = CatalogueInputs(now=NOW, cluster=TERWAY)


def test_every_type_keeps_the_contract():
    """Rules PC-020 to PC-024, with the defaults of a NodeClass."""
    found = World(*SIZES).list(cluster=FLANNEL)

    assert list(found) == sorted(SIZES)
    for name, it in found.items():
        assert it.requirements.single_value(INSTANCE_TYPE) == name
        allocatable = it.allocatable()
        for resource in ("cpu", "memory", "pods", "ephemeral-storage"):
            assert 0 < allocatable[resource] <= it.capacity[resource], f"{name}: {resource}"
        for offering in it.offerings:
            assert offering.zone
            assert offering.capacity_type in CAPACITY_TYPES
            assert offering.price.amount > 0
            assert offering.price.currency == "CNY"


def test_a_node_class_without_vswitches_has_no_list():
    with pytest.raises(NodeClassNotReadyError, match='ECSNodeClass "web": no vSwitches found'):
        World(LARGE).list(node_class(name="web", zones=[]))


def test_an_unchanged_world_gives_the_same_answer():
    world = World(LARGE, XLARGE)
    first = world.catalogue.instance_types(node_class(), HERE)

    assert world.catalogue.instance_types(node_class(), HERE) is first
    reordered = node_class(vSwitches=vswitches(B, A))
    assert world.catalogue.instance_types(reordered, HERE) is first


def test_a_refresh_changes_only_prices_in_the_next_list():
    """Case 44."""
    world = World(LARGE, "ecs.c7.large")
    before = world.list()
    world.prices.update_on_demand({LARGE: quote_of(info(LARGE), 9.0, now=NOW)}, currency="CNY")
    world.prices.update_on_demand(
        {"ecs.c7.large": quote_of(info("ecs.c7.large"), 0.4, now=NOW)}, currency="CNY"
    )
    priced = world.list()
    world.prices.update_on_demand({LARGE: quote_of(info(LARGE), 8.0, now=NOW)}, currency="CNY")
    after = world.list()

    assert bought(priced[LARGE])[A, "on-demand"].price.amount == 9.0
    assert bought(after[LARGE])[A, "on-demand"].price.amount == 8.0
    assert after["ecs.c7.large"] is priced["ecs.c7.large"]
    assert before[LARGE] is not priced[LARGE]


@pytest.mark.parametrize("amount", [0.0, -1.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_estimated(amount: float):
    """Case 45."""
    world = World(LARGE, XLARGE)
    world.prices.update_on_demand({XLARGE: quote_of(info(XLARGE), 1.2, now=NOW)}, currency="CNY")
    world.prices.update_on_demand({LARGE: quote_of(info(LARGE), amount, now=NOW)}, currency="CNY")
    world.prices.update_spot({LARGE: SpotQuote({A: amount}, NOW)}, currency="CNY")
    it = world.list()[LARGE]

    assert bought(it)[A, "on-demand"].price.amount == pytest.approx(0.6)
    assert bought(it)[A, "spot"].price.amount == pytest.approx(0.6)
    assert available(it) == set(bought(it))
    assert world.prices.is_estimated(LARGE)
    assert not world.prices.is_estimated(XLARGE)


def test_learned_capacity_of_an_image_replaces_the_estimate_at_once():
    """Case 47."""
    world = World(LARGE, XLARGE)
    before = world.list()
    learned = world.catalogue.learn_memory(
        node_class(), HERE, instance_type=LARGE, image_id="img-amd", memory_bytes=7700 * MIB
    )
    after = world.list()

    assert learned
    assert before[LARGE].capacity["memory"] == 7659 * MIB
    assert after[LARGE].capacity["memory"] == 7700 * MIB
    assert after[XLARGE] is before[XLARGE]


@pytest.mark.parametrize("image", ["img-old", "img-arm", ""])
def test_only_a_node_with_the_image_of_today_teaches(image: str):
    """Case 47."""
    world = World(LARGE)

    assert not world.catalogue.learn_memory(
        node_class(), HERE, instance_type=LARGE, image_id=image, memory_bytes=7700 * MIB
    )
    assert world.list()[LARGE].capacity["memory"] == 7659 * MIB


def test_learned_capacity_holds_for_its_image_alone_and_for_60_days():
    """Case 47."""
    world = World(LARGE)
    world.learned.observe(LARGE, image_set(["img-amd"]), 7700 * MIB, sold_bytes=8192 * MIB, now=NOW)

    assert world.list()[LARGE].capacity["memory"] == 7700 * MIB
    other = world.list(node_class(images=images("img-new")))
    assert other[LARGE].capacity["memory"] == 7659 * MIB
    later = world.list(now=NOW + timedelta(days=60))
    assert later[LARGE].capacity["memory"] == 7659 * MIB


def test_the_image_of_a_type_is_the_first_that_fits():
    of = node_class(images=[*images("img-1", "img-2"), *images("img-arm", arch="arm64")])
    image_for = World(LARGE, "ecs.g8y.large").catalogue.image_for(of, HERE)

    assert image_for(LARGE) == "img-1"
    assert image_for("ecs.g8y.large") == "img-arm"
    with pytest.raises(CloudProviderError, match=r'"ecs\.g9\.large" is not sold in region'):
        image_for("ecs.g9.large")


def test_stock_that_changed_elsewhere_changes_no_object():
    world = World(LARGE, XLARGE)
    before = world.list()
    sold_out = {**world.stock.on_demand, LARGE: (B,)}
    world.restock(replace(world.stock, on_demand=sold_out))
    after = world.list()

    assert after[XLARGE] is before[XLARGE]
    assert after[LARGE] is not before[LARGE]
    assert (A, "on-demand") not in available(after[LARGE])

    first = world.catalogue.instance_types(node_class(), HERE)
    world.restock(replace(world.stock))
    assert world.catalogue.instance_types(node_class(), HERE) is first


def test_a_shortage_changes_the_types_it_is_about():
    world = World(LARGE, XLARGE)
    before = world.list()
    world.unavailable_offerings.mark(UnavailableOffering(LARGE, A, "spot"), now=NOW)
    during = world.list()
    after = world.list(now=NOW + timedelta(minutes=3))

    assert during[XLARGE] is before[XLARGE]
    assert during[LARGE] is not before[LARGE]
    assert available(after[LARGE]) == available(before[LARGE])


def test_a_type_that_is_added_leaves_the_others_as_they_are():
    world = World(LARGE)
    before = world.list()
    world.types = {LARGE: info(LARGE), XLARGE: info(XLARGE)}
    world.types_revision += 1
    listed = {**world.stock.on_demand_listed, XLARGE: (A,)}
    world.restock(replace(world.stock, on_demand_listed=listed))
    after = world.list()

    assert list(after) == [LARGE, XLARGE]
    assert after[LARGE] is before[LARGE]


def test_a_node_class_that_changed_keeps_the_types_that_did_not():
    world = World(LARGE, "ecs.g8y.large")
    before = world.list()
    after = world.list(node_class(images=[*images("img-new"), *images("img-arm", arch="arm64")]))
    larger = world.list(node_class({"systemDisk": {"volumeSize": "40Gi"}}))

    assert after[LARGE] is before[LARGE]
    assert larger[LARGE] is not before[LARGE]


def test_clusters_with_other_networks_have_catalogues_of_their_own():
    world = World(LARGE)
    of = node_class({"kubeletConfiguration": {"podsPerCore": 2}})

    pods = [
        world.list(of, cluster=cluster)[LARGE].capacity["pods"]
        for cluster in (TERWAY, CUSTOM_CLUSTER, replace(CUSTOM_CLUSTER, kubernetes_version="1.32"))
    ]

    assert pods == [4, 110, 4]


def test_unused_node_classes_are_forgotten():
    world = World(LARGE)
    of = [
        node_class({"systemDisk": {"size": 20 + number}}, name=f"class-{number}")
        for number in range(33)
    ]
    first, *_, last = [world.list(each)[LARGE] for each in of]

    assert world.list(of[-1])[LARGE] is last
    assert world.list(of[0])[LARGE] is not first
    world.list(of[0], now=NOW + timedelta(minutes=15))
    assert world.list(of[-1], now=NOW + timedelta(minutes=15))[LARGE] is not last
