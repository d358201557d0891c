"""The host checks catalogues: a bad value is refused by name, before its use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.prices import Price
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.host import catalogue_check
from karpenter_core.provider.host.catalogue_check import CatalogueValidator, check_catalogue
from karpenter_core.provider.host.executor import InlineExecutor
from karpenter_core.provider.markers import hookimpl
from karpenter_core.scheduling.instance_types import Offering, Overhead
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.builders import instance_type, offering
from karpenter_core.testing.provider_world import ProviderWorld
from tests.provider.fakes import DataNodeClass, FakeProvider, node_class

ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "karpenter.sh/capacity-type"


def check(*types):
    check_catalogue(types, plugin="web")


def sold(**changes):
    """A type with one offering that has these fields."""
    return instance_type("small", offerings=[replace(offering(), **changes)])


def holding(**amounts):
    """A type with these amounts."""
    made = instance_type("small")
    return replace(made, capacity={**made.capacity, **amounts})


def in_zone(*zones, capacity_types=("on-demand",)):
    """A type with one offering in these zones."""
    requirements = Requirements(
        [
            Requirement.of(ZONE, "In", zones),
            Requirement.of(CAPACITY_TYPE, "In", capacity_types),
        ]
    )
    made = instance_type("small")
    free = made.requirements.replace(Requirement.of(ZONE, "Exists"))
    return replace(
        made,
        requirements=free,
        offerings=(Offering(requirements=requirements, price=Price(1.0)),),
    )


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (sold(price=Price(-0.01)), "price.amount must not be negative, not -0.01"),
        (sold(price=Price("0.0060")), "price.amount must be a number, not the text '0.0060'"),
        (sold(price=Price(float("nan"))), "price.amount must be a finite number, not nan"),
        (sold(price=Price(float("inf"))), "price.amount must be a finite number, not inf"),
        (sold(price=Price(True)), "price.amount must be a number, not True"),
        (sold(price=Price(None)), "price.amount must be a number, not None"),
        (sold(price=0.5), "price must be a Price, not 0.5"),
        (sold(price=Price(1.0, "")), "price.currency must be three capital letters, not ''"),
        (sold(price=Price(1.0, "usd")), "price.currency must be three capital letters, not 'usd'"),
        (sold(available="False"), "available must be True or False, not the text 'False'"),
        (sold(reservation_capacity=-1), "reservation_capacity must not be negative, not -1"),
        (sold(interruption_risk=float("nan")), "interruption_risk must be from 0 to 1, not nan"),
        (sold(capacity_override={"cpu": "8"}), "capacity_override.cpu must be a whole number"),
        (sold(overhead_override={"cpu": -1}), "overhead_override.cpu must not be negative, not -1"),
    ],
)
def test_a_bad_offering_is_refused_by_type_offering_field_and_value(bad, words):
    with pytest.raises(CloudProviderError) as refused:
        check(instance_type("large"), bad)

    start = (
        'plug-in "web": karpenter_list_instance_types: instance type "small": '
        "offering on-demand in zone-a: "
    )
    assert str(refused.value).startswith(start + words)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (holding(memory="16Gi"), "capacity.memory must be a whole number of bytes, not the text"),
        (holding(cpu=float("nan")), "capacity.cpu must be a whole number of milli-cores, not nan"),
        (holding(cpu=4000.5), "capacity.cpu must be a whole number of milli-cores, not 4000.5"),
        (holding(pods=-110), "capacity.pods must not be negative, not -110"),
        (holding(cpu=2**61), "capacity.cpu must be at most 1152921504606846976, not"),
        (holding(memory=16384), "capacity.memory must be in bytes: 16384 is too small"),
        (holding(cpu=4), "capacity.cpu must be in milli-cores: 4 is too small"),
        (holding(memory_mib=16384), 'capacity names the unknown resource "memory_mib"'),
        (holding(**{"": 1}), 'capacity names the unknown resource ""'),
        (
            replace(instance_type("small"), overhead=Overhead(kube_reserved={"memory": "255Mi"})),
            "overhead.kube_reserved.memory must be a whole number of bytes, not the text",
        ),
        (
            replace(instance_type("small"), overhead=Overhead(eviction_threshold={"memory": -1})),
            "overhead.eviction_threshold.memory must not be negative, not -1",
        ),
        (
            replace(instance_type("small"), overhead=Overhead(system_reserved={"mem": 1})),
            'overhead.system_reserved names the unknown resource "mem"',
        ),
        (replace(instance_type("small"), overhead={"cpu": 1}), "overhead must be an Overhead"),
        (replace(instance_type("small"), capacity=None), "capacity must be a mapping, not None"),
        (replace(instance_type("small"), offerings=None), "offerings must be a tuple, not None"),
        (replace(instance_type("small"), offerings=(1,)), "offerings must hold Offerings, not 1"),
        (replace(instance_type("small"), requirements={}), "requirements must be Requirements"),
        (
            replace(
                instance_type("small"),
                requirements=instance_type("small").requirements.add(
                    Requirement.of("example.com/cpus", "In", [4])
                ),
            ),
            "requirements: example.com/cpus must have strings as values, not 4",
        ),
    ],
)
def test_a_bad_amount_is_refused_by_type_field_and_value(bad, words):
    with pytest.raises(CloudProviderError) as refused:
        check(bad)

    start = 'plug-in "web": karpenter_list_instance_types: instance type "small": '
    assert str(refused.value).startswith(start + words)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (in_zone(), "must have one value of topology.kubernetes.io/zone, not none"),
        (in_zone("a", "b"), "must have one value of topology.kubernetes.io/zone, not 'a', 'b'"),
        (in_zone(""), "topology.kubernetes.io/zone must be a label value, not ''"),
        (in_zone("zone a"), "topology.kubernetes.io/zone must be a label value, not 'zone a'"),
        (in_zone(1), "topology.kubernetes.io/zone must be a label value, not 1"),
        (
            in_zone("a", capacity_types=("on-demand", "spot")),
            "must have one value of karpenter.sh/capacity-type, not 'on-demand', 'spot'",
        ),
        (
            in_zone("a", capacity_types=("preemptible",)),
            "karpenter.sh/capacity-type must be reserved, spot or on-demand, not 'preemptible'",
        ),
        (
            replace(instance_type("small", zones=["zone-a"]), offerings=(offering("zone-b"),)),
            "topology.kubernetes.io/zone 'zone-b' is excluded by the requirements of the type",
        ),
    ],
)
def test_an_invalid_zone_or_capacity_type_is_refused(bad, words):
    with pytest.raises(CloudProviderError) as refused:
        check(bad)

    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_type_without_a_name_is_refused_by_its_place(name):
    with pytest.raises(CloudProviderError, match="the 2nd instance type has the name"):
        check(instance_type("large"), replace(instance_type("small"), name=name))


def test_a_sound_catalogue_passes():
    check(
        instance_type("small", price=0.0),
        instance_type(
            "gpu",
            resources={"nvidia.com/gpu": "8", "hugepages-2Mi": "0", "ephemeral-storage": "20Gi"},
        ),
        replace(instance_type("unsold"), offerings=()),
    )


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (Price("0.5"), "price.amount must be a number, not the text '0.5'"),
        (Price(-1.0), "price.amount must not be negative, not -1.0"),
    ],
)
def test_a_bad_price_of_a_price_plug_in_names_that_plug_in(tmp_path, price, words):
    class Pricing:
        @hookimpl
        def karpenter_adjust_prices(self, offerings):
            return [price for _ in offerings]

    async def scenario():
        async with world(tmp_path, web=FakeProvider(), pricing=Pricing()) as opened:
            with pytest.raises(CloudProviderError) as refused:
                await opened.catalogue(node_class())
            assert 'plug-in "pricing": karpenter_adjust_prices' in str(refused.value)
            assert words in str(refused.value)

    run_virtual(scenario())


def test_one_provider_s_bad_catalogue_leaves_the_other_s_alone(tmp_path):
    class Wrong(FakeProvider):
        @hookimpl
        def karpenter_list_instance_types(self):
            return [sold(price=Price("0.0060"))]

    async def scenario():
        data = FakeProvider("data", DataNodeClass)
        async with world(tmp_path, web=Wrong(), data=data) as opened:
            with pytest.raises(CloudProviderError, match=r'plug-in "web".*small.*0\.0060'):
                await opened.catalogue(node_class())
            names = [it.name for it in await opened.catalogue(node_class(DataNodeClass, "other"))]
            assert names == ["small", "large"]

    run_virtual(scenario())


def world(folder, **plugins):
    return ProviderWorld(
        plugins=plugins, cache_folder=folder, clock=LoopClock(), executor=InlineExecutor()
    )


def test_the_very_same_objects_are_not_checked_again(monkeypatch):
    """Reading thousands of types and their offerings takes a while."""
    checked = []

    def note(types, *, plugin):
        checked.append(types)

    monkeypatch.setattr("karpenter_core.provider.host.catalogue_check.check_catalogue", note)
    first, second = instance_type("small"), instance_type("large")
    catalogues = CatalogueValidator()
    for listed in [(first,), [first], (first, second), (first,), (second, first)]:
        catalogues.check(tuple(listed), plugin="web")
    assert checked == [(first,), (first, second), (second, first)]
    catalogues.check((replace(first),), plugin="web")
    assert len(checked) == 4


def test_objects_that_another_start_has_checked_are_not_checked_again(monkeypatch):
    """A provider that starts again in the same process lists the objects that it kept."""
    types = [instance_type("small"), instance_type("large")]
    CatalogueValidator().check(types, plugin="web")
    types.append(holding(cpu=-1))
    with pytest.raises(CloudProviderError, match="small"):
        CatalogueValidator().check(types, plugin="web")
    del types[2]
    monkeypatch.setattr(catalogue_check, "check_catalogue", None)
    CatalogueValidator().check(list(types), plugin="web")


def test_a_catalogue_that_was_refused_is_refused_again():
    catalogues, bad = CatalogueValidator(), sold(price=Price(-0.01))
    for _ in range(2):
        with pytest.raises(CloudProviderError, match="must not be negative"):
            catalogues.check((bad,), plugin="web")
