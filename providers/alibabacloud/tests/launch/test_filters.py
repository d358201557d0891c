"""Tests the filters of types, zones and vSwitches (cases 48, 49, 51 to 55)."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, WELL_KNOWN, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.provider.catalogue import Offering, Price, Requirements
from karpenter_core.provider.kit.launch_candidates import (
    compatible_types,
    fitting_candidates,
    is_inflexible,
)
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.discovery.vswitches import ZonalVSwitch
from karpenter_provider_alibabacloud.launch.filters import (
    MAX_INSTANCE_TYPES,
    _for_variety,
    filter_candidates,
)
from karpenter_provider_alibabacloud.launch.targets import (
    best_of,
    in_first_zone,
    ranked,
    spread,
    targets_of,
    zones_of,
)

ZONES = ("a", "b", "c")
VSWITCHES = {zone: ZonalVSwitch(f"vsw-{zone}", zone) for zone in ZONES}
NO_DISKS = {}


def wish(*specs, least=None):
    return Requirements.from_specs(
        RequirementSpec(key=key, operator="In", values=tuple(values), min_values=least)
        for key, *values in specs
    )


ANY = wish()


def named(name, *offerings, resources=None, category="g"):
    family = name.rpartition(".")[0]
    return instance_type(
        name,
        offerings=offerings,
        resources=resources,
        labels={labels.INSTANCE_FAMILY: family, labels.INSTANCE_CATEGORY: category},
    )


def spot(zone, price):
    return offering(zone, "spot", price)


def on_demand(zone, price):
    return offering(zone, "on-demand", price)


def candidates(types, requirements=ANY):
    found = compatible_types(
        types,
        requirements,
        is_open=lambda *_: True,
        well_known=WELL_KNOWN | labels.WELL_KNOWN,
    )
    return fitting_candidates(found, {})


def chosen(types, requirements=ANY, **options):
    return filter_candidates(candidates(types, requirements), requirements, **options)


def names(kept):
    return [candidate.instance_type.name for candidate in kept]


def targets(kept, *, free=None, vswitches=VSWITCHES):
    return targets_of(kept, vswitches, free=free or {}, image_of=lambda _: "image")


def placed(found):
    return [(target.instance_type.name, target.vswitch.id) for target in found]


def test_the_filter_keeps_the_twenty_cheapest_types_in_price_order():
    """Case 52."""
    types = [named(f"ecs.g{number}.large", on_demand("a", 100 - number)) for number in range(25)]

    kept = chosen(types)

    assert names(kept) == [f"ecs.g{number}.large" for number in range(24, 4, -1)]
    assert [target.price for target in best_of(targets(kept), needs_variety=False)] == [
        float(76 + n) for n in range(20)
    ]


def test_min_values_keep_their_types_and_turn_the_filter_off():
    """Case 53: three families at least, of which two have dear types alone."""
    types = [named(f"ecs.g7.{number}", on_demand("a", number)) for number in range(1, 31)]
    types += [
        named("ecs.c7.large", on_demand("a", 90.0)),
        named("ecs.gn7.large", on_demand("a", 99.0), resources={"nvidia.com/gpu": "1"}),
    ]
    families = ("ecs.g7", "ecs.c7", "ecs.gn7")
    wanted = wish((labels.INSTANCE_FAMILY, *families), least=3)

    kept = chosen(types, wanted)

    assert len(kept) == MAX_INSTANCE_TYPES
    assert names(kept)[-2:] == ["ecs.c7.large", "ecs.gn7.large"]
    prices = [candidate.price for candidate in kept]
    assert prices == sorted(prices)
    variety = {target.instance_type.name for target in best_of(targets(kept), needs_variety=True)}
    assert variety == set(names(kept))


def test_expensive_spot_is_kept_with_min_values():
    """Case 53: without, it would be left out for the on-demand instance that costs less."""
    types = [
        named("ecs.g7.large", spot("a", 0.4), on_demand("a", 1.0)),
        named("ecs.c7.large", spot("a", 1.1), on_demand("a", 2.0)),
    ]
    wanted = wish((labels.INSTANCE_FAMILY, "ecs.g7", "ecs.c7"), least=2)

    assert names(chosen(types, wanted)) == ["ecs.g7.large", "ecs.c7.large"]
    assert names(chosen(types)) == ["ecs.g7.large"]


def test_too_little_variety_is_a_lack_of_capacity():
    """It names what is missing."""
    wanted = wish((labels.INSTANCE_FAMILY, "ecs.g7", "ecs.c7"), least=2)

    with pytest.raises(InsufficientCapacityError, match=r"instance-family \(1 of 2\)"):
        chosen([named("ecs.g7.large", on_demand("a", 1.0))], wanted)


@pytest.mark.parametrize(
    "exotic",
    [
        named("ecs.gn7i.large", on_demand("a", 0.5), resources={"nvidia.com/gpu": "1"}),
        named("ecs.ebmg7.32xlarge", on_demand("a", 0.5), category="ebmg"),
        named("ecs.sccg7.32xlarge", on_demand("a", 0.5), category="sccg"),
    ],
    ids=["gpu", "bare metal", "super computing"],
)
def test_gpus_and_bare_metal_are_used_as_a_last_choice(exotic):
    """Case 54."""
    plain = named("ecs.g7.large", on_demand("a", 1.0))

    assert names(chosen([exotic, plain])) == ["ecs.g7.large"]
    assert names(chosen([exotic])) == [exotic.name]


def test_spot_more_expensive_than_the_cheapest_on_demand_is_left_out():
    """Case 55."""
    cheap = named("ecs.g7.large", spot("a", 0.4), on_demand("a", 1.0))
    dear = named("ecs.g8.large", spot("a", 1.1), on_demand("a", 2.0))

    kept = chosen([cheap, dear])

    assert [(c.instance_type.name, o.capacity_type) for c in kept for o in c.offerings] == [
        ("ecs.g7.large", "spot")
    ]


def test_on_demand_is_launched_where_spot_is_unavailable():
    """With few types that is reported."""
    wanted = wish((CAPACITY_TYPE, "spot", "on-demand"))
    kept = chosen([named("ecs.g7.large", on_demand("a", 1.0))], wanted)

    assert is_inflexible(kept, "on-demand", wanted)
    assert not is_inflexible(kept, "on-demand", wish((CAPACITY_TYPE, "on-demand")))


def reserved(zone, pool, left):
    return Offering(
        requirements=Requirements.from_labels(
            {ZONE: zone, CAPACITY_TYPE: RESERVED, labels.CAPACITY_RESERVATION_ID: pool}
        ),
        price=Price(0.0),
        reservation_capacity=left,
    )


def test_the_fullest_private_pool_of_a_zone_is_used_before_public_capacity():
    """A result names type and zone: by these the pool is known."""
    of = named("ecs.g7.large", reserved("a", "crp-1", 1), reserved("a", "crp-2", 5))

    kept = chosen([of, named("ecs.g8.large", spot("a", 0.1))])

    assert names(kept) == ["ecs.g7.large"]
    assert [target.reservation_id for target in targets(kept)] == ["crp-2"]


def test_disks_of_types_are_queried_until_there_are_enough():
    """In the order of their prices, and zone by zone."""
    types = [
        named(f"ecs.g{n:02}.large", on_demand("a", n), on_demand("b", n)) for n in range(1, 61)
    ]
    asked: list[str] = []

    def disks(some):
        asked.extend(some)
        return {name: {"b": frozenset({"cloud_essd"})} for name in some}

    kept = chosen(types, disks=disks, categories=("cloud_essd", "cloud_auto"))

    assert len(kept) == MAX_INSTANCE_TYPES
    assert asked == [f"ecs.g{n:02}.large" for n in range(1, 21)]
    assert {target.zone for target in targets(kept)} == {"b"}


def test_no_type_with_a_disk_of_the_categories_is_a_lack_of_capacity():
    """The categories are named."""
    types = [named("ecs.g7.large", on_demand("a", 1.0))]

    with pytest.raises(InsufficientCapacityError, match="cloud_ssd"):
        chosen(types, disks=lambda some: dict.fromkeys(some, NO_DISKS), categories=("cloud_ssd",))


@pytest.mark.parametrize("capacity_type", ["spot", "on-demand"])
def test_no_vswitch_of_another_zone_is_requested(capacity_type):
    """Case 48: a thousand catalogues, a claim that allows zone b alone."""
    wanted = wish((ZONE, "b"), (CAPACITY_TYPE, capacity_type))
    for seed in range(1000):
        draw = Random(seed)
        types = [
            named(
                f"ecs.g{number}.large",
                *(offering(zone, capacity_type, draw.random()) for zone in ZONES),
            )
            for number in range(3)
        ]
        free = {zone: draw.randrange(1000) for zone in ZONES}

        found = targets(chosen(types, wanted), free=free)

        assert {target.vswitch.id for target in found} == {"vsw-b"}


def test_the_cheapest_zone_comes_first():
    """Case 49."""
    found = targets(chosen([named("ecs.g7.large", spot("a", 0.10), spot("b", 0.08))]))

    assert placed(found) == [("ecs.g7.large", "vsw-b"), ("ecs.g7.large", "vsw-a")]


def test_of_equal_prices_the_zone_with_most_addresses_comes_first():
    """Then the first by id."""
    of = named("ecs.g7.large", *(on_demand(zone, 1.0) for zone in ZONES))

    found = targets(chosen([of]), free={"a": 5, "b": 5, "c": 9})

    assert [target.zone for target in found] == ["c", "a", "b"]


def test_zones_without_vswitch_and_types_without_image_are_in_no_pair():
    """They could not be launched."""
    kept = chosen([named("ecs.g7.large", on_demand("a", 1.0), on_demand("z", 0.5))])

    assert placed(targets(kept)) == [("ecs.g7.large", "vsw-a")]
    assert targets_of(kept, VSWITCHES, free={}, image_of=lambda _: "") == ()


def test_balanced_takes_the_zone_with_fewest_nodes():
    """Case 51."""
    nodes = {"a": 3, "b": 1, "c": 2}

    assert ranked(ZONES, nodes=nodes, free={}) == ("b", "c", "a")
    assert spread(["claim"], ZONES, nodes=nodes, free={}) == {"b": ["claim"]}


def test_balanced_levels_the_zones_with_many_claims():
    """Each claim counts for the next; of equal zones addresses decide."""
    members_by_zone = spread(range(6), ZONES, nodes={"a": 3, "b": 1, "c": 2}, free={"c": 9, "b": 1})

    assert {zone: len(members) for zone, members in members_by_zone.items()} == {
        "a": 1,
        "b": 3,
        "c": 2,
    }


def test_a_zone_without_a_remaining_type_is_followed_by_the_next():
    """As ranked."""
    kept = chosen([named("ecs.g7.large", on_demand("a", 1.0), on_demand("c", 1.0))])

    assert zones_of(kept) == ("a", "c")
    assert placed(in_first_zone(targets(kept), ("b", "c", "a"))) == [("ecs.g7.large", "vsw-c")]
    assert in_first_zone(targets(kept), ("b",)) == ()
    assert INSTANCE_TYPE in kept[0].instance_type.requirements


def test_variety_takes_no_more_types_than_its_values_need():
    """The cheapest that bring a new value, until there are as many as `minValues` asks for."""
    candidates = [
        SimpleNamespace(instance_type=named(name, spot("a", 1.0)))
        for name in ("f1.x", "f1.y", "f2.x", "f3.x", "f4.x")
    ]
    asked = Requirements.from_specs(
        [RequirementSpec(key=labels.INSTANCE_FAMILY, operator="Exists", min_values=2)]
    )
    chosen = _for_variety(candidates, asked)
    assert [each.instance_type.name for each in chosen] == ["f1.x", "f2.x"]
