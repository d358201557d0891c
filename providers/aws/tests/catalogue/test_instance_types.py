"""Lists of instance types: acceptance cases 46 and 62, the contract's rules, and what is kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.api.labels import CAPACITY_TYPES, INSTANCE_TYPE
from karpenter_core.errors import BadInputError, CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.catalogue import Offering, Price, Requirement
from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws.catalogue.instance_types import CatalogueInputs
from karpenter_provider_aws.kubelet.expressions import evaluate
from providers.aws.tests.catalogue.recorded_region import (
    MIB,
    NOW,
    World,
    bought,
    node_class,
    region,
    resolve,
    small_region,
    subnets,
)

if TYPE_CHECKING:
    from karpenter_provider_aws.catalogue.offerings import MarketState, PurchasableType

KIB = 1024


def test_every_type_of_the_region_keeps_the_contract():
    """Rules PC-020 to PC-024, with the defaults of a NodeClass."""
    found = World().list()

    assert list(found) == sorted(region().types)
    for name, it in found.items():
        assert it.requirements.single_value(INSTANCE_TYPE) == name
        allocatable = it.allocatable()
        for resource in ("cpu", "memory", "pods", "ephemeral-storage"):
            assert 0 < allocatable[resource] <= it.capacity[resource], f"{name}: {resource}"
        for offering in it.offerings:
            assert offering.zone
            assert offering.capacity_type in CAPACITY_TYPES
            assert offering.price.amount >= 0
            assert offering.price.currency == "USD"


def test_most_types_of_the_region_have_offerings():
    found = World().list().values()

    available = [it for it in found if any(offering.available for offering in it.offerings)]
    assert len(available) > 0.9 * len(region().types)


def test_learned_capacity_replaces_the_estimate_at_once():
    """Case 46."""
    world = World("m5.large", "m5.xlarge")
    before = world.list()
    world.learned.observe(
        "m5.large", image_set(["ami-1"]), 7_600_000 * KIB, sold_bytes=8_388_608 * KIB, now=NOW
    )
    after = world.list()

    assert before["m5.large"].capacity["memory"] == 7577 * MIB
    assert after["m5.large"].capacity["memory"] == 7_600_000 * KIB
    assert after["m5.xlarge"] is before["m5.xlarge"]
    assert list(after) == list(before)


ARM = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
AMD = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


@pytest.mark.parametrize(
    ("image", "expected"), [("ami-new", True), ("ami-old", False), ("ami-arm", False)]
)
def test_only_a_node_with_the_image_of_today_teaches(image: str, expected: bool):
    """Case 46."""
    world = World("m5.large")
    of = node_class(
        amis=[
            {"id": "ami-arm", "requirements": [ARM]},
            {"id": "ami-new", "requirements": [AMD]},
            {"id": "ami-old", "requirements": [AMD]},
        ]
    )
    learned = world.catalogue.learn_memory(
        of,
        CatalogueInputs(now=NOW),
        instance_type="m5.large",
        image_id=image,
        memory_bytes=7_600_000 * KIB,
    )

    assert learned == expected
    assert (world.list(of)["m5.large"].capacity["memory"] == 7_600_000 * KIB) == expected


def test_learned_capacity_of_other_images_does_not_count():
    """Case 46."""
    world = World("m5.large")
    world.learned.observe(
        "m5.large", image_set(["ami-1"]), 7_600_000 * KIB, sold_bytes=8_388_608 * KIB, now=NOW
    )

    found = world.list(node_class(amis=[{"id": "ami-2", "requirements": []}]))

    assert found["m5.large"].capacity["memory"] == 7577 * MIB


def test_learned_capacity_is_forgotten_after_60_days():
    """Case 46."""
    world = World("m5.large")
    world.learned.observe(
        "m5.large", image_set(["ami-1"]), 7_600_000 * KIB, sold_bytes=8_388_608 * KIB, now=NOW
    )
    world.list()

    found = world.list(now=NOW + timedelta(days=60))

    assert found["m5.large"].capacity["memory"] == 7577 * MIB


def test_a_node_class_without_subnets_has_no_list():
    """Case 62."""
    with pytest.raises(NodeClassNotReadyError, match='EC2NodeClass "web": no subnets found'):
        World("m5.large").list(node_class(name="web", zones=[]))


def test_an_unreadable_kubelet_fails_the_list_until_it_is_corrected():
    """Case 62."""
    world = World("m5.large")
    broken = node_class({"kubelet": {"podsPerCore": "many"}})

    with pytest.raises(BadInputError, match="podsPerCore"):
        world.list(broken)
    with pytest.raises(BadInputError, match="podsPerCore"):
        world.catalogue.sizing(broken, CatalogueInputs(now=NOW))
    assert world.list(node_class({"kubelet": {"podsPerCore": 1}}))["m5.large"].capacity["pods"] == 2


def test_an_expression_that_fails_for_one_type_fails_the_whole_list():
    """Case 69: a list with holes would be kept as if it were whole."""
    world = World("m5.large", "m5.4xlarge", evaluate=evaluate)
    of = node_class({"kubelet": {"maxPods": "10 - vcpus"}})

    for _ in range(2):
        with pytest.raises(BadInputError, match=r"maxPods.*m5\.4xlarge"):
            world.list(of)


def test_numbers_and_capacity_agree():
    world = World("m5.large", "m6g.large", evaluate=evaluate)
    kubelet = {"maxPods": "vcpus * 30", "kubeReserved": {"memory": "max_pods * 11"}}
    of = node_class({"kubelet": kubelet})
    sizing = world.catalogue.sizing(of, CatalogueInputs(now=NOW))("m6g.large")
    it = world.list(of)["m6g.large"]

    assert (sizing.max_pods, sizing.pods) == (60, 60)
    assert sizing.kube_reserved == {"memory": "672Mi"}
    assert it.capacity["pods"] == 60
    assert it.overhead.kube_reserved["memory"] == 672 * MIB


def test_a_type_outside_the_region_has_no_numbers():
    sizing = World("m6g.large").catalogue.sizing(node_class(), CatalogueInputs(now=NOW))

    with pytest.raises(CloudProviderError, match=r'"m5\.large" is not sold in region us-east-1'):
        sizing("m5.large")


def test_an_unchanged_world_answers_the_very_same():
    """Rule PC-026."""
    world = World("m5.large", "m6g.large")
    of = node_class()

    assert world.catalogue.instance_types(of, CatalogueInputs(now=NOW)) is (
        world.catalogue.instance_types(of, CatalogueInputs(now=NOW + timedelta(minutes=30)))
    )


def test_the_order_of_subnets_changes_nothing():
    """Discovery orders them by free addresses, which every launch changes."""
    world = World("m5.large")
    there = node_class()
    back = node_class(subnets=subnets(*sorted({s.zone for s in there.status.subnets}))[::-1])

    assert world.list(back)["m5.large"] is world.list(there)["m5.large"]


def test_node_classes_with_equal_type_inputs_share_their_types():
    world = World("m5.large")
    web = node_class({"userData": "echo", "tags": {"team": "web"}}, name="web")

    assert world.list(web)["m5.large"] is world.list(node_class(name="db"))["m5.large"]


@pytest.mark.parametrize(
    "spec",
    [
        {"kubelet": {"maxPods": 10}},
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "50Gi"}}]},
        {"instanceStorePolicy": "RAID0"},
        {
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
            ]
        },
        {"connectionTracking": {"udpTimeout": 30}},
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        {"enclaveOptions": {"enabled": True}},
        {"amiFamily": "Windows2022"},
    ],
)
def test_changed_inputs_of_types_take_effect_at_once(spec: dict[str, Any]):
    world = World("c4.large", "m8i.large", "p4d.24xlarge", "t3.large")
    before = world.list(node_class())
    after = world.list(node_class(spec))

    assert [_written(it) for it in before.values()] != [_written(it) for it in after.values()]


def _written(it: Any) -> Any:
    offered = [(o.zone, o.capacity_type, o.price, o.available) for o in it.offerings]
    return it.name, it.requirements, it.capacity, it.overhead, offered


def test_a_price_changes_offerings_and_nothing_else():
    world = World("m5.large")
    before = world.list()["m5.large"]
    world.prices.update_on_demand({"m5.large": 0.2}, now=NOW)
    after = world.list()["m5.large"]

    assert bought(after)["us-east-1a", "on-demand"].price == Price(0.2)
    assert after.requirements is before.requirements
    assert after.capacity is before.capacity


def test_a_shortage_that_ends_is_seen_at_once():
    world = World("m5.large")
    world.unavailable_offerings.mark(UnavailableOffering("m5.large", "us-east-1a", "spot"), now=NOW)
    during = bought(world.list()["m5.large"])
    after = bought(world.list(now=NOW + timedelta(minutes=3))["m5.large"])

    assert not during["us-east-1a", "spot"].available
    assert after["us-east-1a", "spot"].available


def test_a_type_that_is_new_in_the_region_is_listed():
    world = World("m5.large")
    before = world.list()
    world.region, world.revision = small_region("m5.large", "m5.xlarge"), 2
    after = world.list()

    assert list(before) == ["m5.large"]
    assert list(after) == ["m5.large", "m5.xlarge"]


def test_a_type_of_which_the_region_tells_something_else_has_other_labels():
    """As when EC2 corrects a fact: nothing of the older revision is kept."""
    world = World("m5.large")
    world.list()
    region_types = small_region("m5.large")
    slow = replace(region_types.types["m5.large"], ebs_mbps=123)
    world.region, world.revision = replace(region_types, types={"m5.large": slow}), 2

    requirements = world.list()["m5.large"].requirements

    key = "karpenter.k8s.aws/instance-ebs-bandwidth"
    assert requirements.single_value(key) == "123"


def test_an_extension_adds_offerings_to_those_of_the_chain():
    def half_price(
        sold: PurchasableType, offerings: tuple[Offering, ...], market: MarketState
    ) -> tuple[Offering, ...]:
        price = market.prices.on_demand(sold.name)
        assert price is not None
        cheaper = Price(price.amount / 2)
        return (*offerings, Offering(requirements=offerings[0].requirements, price=cheaper))

    found = World("m5.large", extensions=[half_price]).list()["m5.large"]

    assert len(found.offerings) == 9
    assert found.offerings[-1].price == Price(0.048)


def test_types_share_equal_requirements():
    one, other = resolve("m5.large"), resolve("m5.large")

    assert one.requirements is not other.requirements
    assert all(
        other.requirements.get(key) is requirement for key, requirement in one.requirements.items()
    )
    assert one.requirements.get("kubernetes.io/os") == Requirement.of(
        "kubernetes.io/os", "In", ("linux",)
    )


def test_unused_catalogues_are_forgotten():
    world = World("m5.large")
    of = [node_class({"kubelet": {"maxPods": pods}}) for pods in range(1, 34)]
    first, *_, last = [world.list(each)["m5.large"] for each in of]

    assert world.list(of[-1])["m5.large"] is last
    assert world.list(of[0])["m5.large"] is not first
    world.list(of[0], now=NOW + timedelta(minutes=16))
    assert world.list(of[-1], now=NOW + timedelta(minutes=16))["m5.large"] is not last


def test_many_threads_get_the_same_list():
    world = World("m5.large", "m6g.large", "p4d.24xlarge")
    of = [node_class({"kubelet": {"maxPods": pods}}) for pods in (10, 20)] * 8

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(world.list, of))

    assert [it["m5.large"].capacity["pods"] for it in found] == [10, 20] * 8
    assert all(it.offerings for listed in found for it in listed.values())
