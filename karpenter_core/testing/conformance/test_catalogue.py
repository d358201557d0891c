"""Rules of the catalogue: labels, amounts, offerings and prices of types."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import pytest

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    INSTANCE_TYPE,
    NODE_POOL,
    RESERVED,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.errors import OfferingKey
from karpenter_core.testing.conformance import rule_steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_020_instance_types_have_unique_names",
    "test_pc_021_instance_types_define_every_well_known_label",
    "test_pc_022_offerings_have_one_zone_and_one_capacity_type",
    "test_pc_023_prices_are_not_negative",
    "test_pc_024_instance_types_hold_pods",
    "test_pc_025_what_is_sold_out_is_not_available",
    "test_pc_026_the_catalogue_is_the_same_each_time",
    "test_pc_027_reservations_say_what_is_left",
]


_STRONG_CURRENCIES: Final = frozenset({"USD", "EUR", "GBP", "CHF"})
_HIGH_PRICE_PER_VCPU: Final = 1.0


def test_pc_020_instance_types_have_unique_names(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: every instance type is listed under a unique name."""

    async def scenario(world: ProviderWorld) -> None:
        names = [it.name for it in await rule_steps.catalogue(world, subject, "PC-020")]
        assert names, "karpenter_list_instance_types lists nothing for the subject's NodeClass"
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"several instance types have the same name: {twice}"

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_021_instance_types_define_every_well_known_label(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: each type's requirements define every well-known label."""

    async def scenario(world: ProviderWorld) -> None:
        well_known = (WELL_KNOWN | world.providers.label_classes().well_known) - {NODE_POOL}
        for it in await world.catalogue(subject.node_class):
            undefined = sorted(well_known - set(it.requirements.keys()))
            assert not undefined, (
                f"{it.name} does not define {', '.join(undefined)}; "
                "say DoesNotExist for what its nodes do not carry"
            )
            named = it.requirements.single_value(INSTANCE_TYPE)
            assert named == it.name, f"{it.name} has the {INSTANCE_TYPE} {named!r}"

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_022_offerings_have_one_zone_and_one_capacity_type(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: each offering has one zone and one capacity type, which the type allows."""

    async def scenario(world: ProviderWorld) -> None:
        for it in await rule_steps.catalogue(world, subject, "PC-022"):
            for offering in it.offerings:
                where = f"{it.name} {offering.capacity_type} in {offering.zone}"
                assert offering.zone and it.requirements.get(ZONE).has(offering.zone), (  # noqa: PT018
                    f"{where}: the type's requirements do not allow the zone"
                )
                assert it.requirements.get(CAPACITY_TYPE).has(offering.capacity_type), (
                    f"{where}: the type's requirements do not allow the capacity type"
                )
                assert offering.capacity_type in CAPACITY_TYPES, (
                    f"{where}: capacity types are {', '.join(CAPACITY_TYPES)}"
                )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_023_prices_are_not_negative(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: each offering has a price per hour, not negative, with its currency."""

    async def scenario(world: ProviderWorld) -> None:
        for it in await rule_steps.catalogue(world, subject, "PC-023"):
            for offering in it.offerings:
                price = offering.price
                where = f"{it.name} {offering.capacity_type} in {offering.zone}"
                assert 0 <= price.amount < float("inf"), f"{where} costs {price.amount}"
                assert len(price.currency) == 3 and price.currency.isupper(), (  # noqa: PLR2004, PT018
                    f"{where} is priced in {price.currency!r}, not in an ISO 4217 code"
                )
        _expect_hourly(await world.catalogue(subject.node_class))

    rule_steps.run_rule(subject, tmp_path, scenario)


def _expect_hourly(types: Sequence[InstanceType]) -> None:
    """Expect prices that are usual for an hour; the cheapest clouds ask twice the bound for a month."""
    prices = [
        offering.price.amount * 1000 / it.capacity["cpu"]
        for it in types
        for offering in it.offerings
        if offering.price.currency in _STRONG_CURRENCIES
    ]
    if prices and (usual := median(prices)) > _HIGH_PRICE_PER_VCPU:
        pytest.fail(
            f"half of the offerings cost more than {usual:.2f} per vCPU: prices are per hour, these seem to be "
            "per month"
        )


def test_pc_024_instance_types_hold_pods(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: capacity has cpu, memory and pods, and more than zero is left after overhead."""

    async def scenario(world: ProviderWorld) -> None:
        for it in await world.catalogue(subject.node_class):
            allocatable = it.allocatable()
            for resource in ("cpu", "memory", "pods"):
                assert resource in it.capacity, f"{it.name} has no {resource}"
                left, whole = allocatable[resource], it.capacity[resource]
                assert 0 < left <= whole, (
                    f"{it.name}: of {whole} {resource}, {left} are left for pods after overhead"
                )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_025_what_is_sold_out_is_not_available(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """SHOULD: an offering that the cloud reports as sold out is listed, and not available."""
    if subject.sell_out is None:
        pytest.skip(
            "not shown: the subject cannot simulate a stock-out (ConformanceSubject.sell_out)"
        )

    async def scenario(world: ProviderWorld) -> None:
        assert subject.sell_out is not None
        before = await _availability(world, subject)
        sold = next((key for key, available in before.items() if available), None)
        assert sold is not None, "nothing in the catalogue is available"
        subject.sell_out(world.plugins[subject.name], sold)
        await rule_steps.run_tasks(world)
        after = await _availability(world, subject)
        where = f"{sold.instance_type} {sold.capacity_type} in {sold.zone}"
        assert sold in after, (
            f"{where} is sold out, and is not listed any more: list it as unavailable"
        )
        assert not after[sold], f"{where} is sold out, and the catalogue says that it is available"
        assert any(after.values()), f"only {where} is sold out, and no other offering is available"

    rule_steps.run_rule(subject, tmp_path, scenario)


async def _availability(
    world: ProviderWorld, subject: ConformanceSubject
) -> dict[OfferingKey, bool]:
    return {
        OfferingKey(
            instance_type=it.name, zone=offering.zone, capacity_type=offering.capacity_type
        ): offering.available
        for it in await world.catalogue(subject.node_class)
        for offering in it.offerings
    }


def test_pc_026_the_catalogue_is_the_same_each_time(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: listing an unchanged cloud returns equal types in the same order."""

    async def scenario(world: ProviderWorld) -> None:
        first = [_written(it) for it in await world.catalogue(subject.node_class)]
        second = [_written(it) for it in await world.catalogue(subject.node_class)]
        different = [a[0] for a, b in zip(first, second, strict=False) if a != b]
        assert first == second, f"listed twice, these came out differently: {different[:5]}"

    rule_steps.run_rule(subject, tmp_path, scenario)


def _written(it: InstanceType) -> tuple[object, ...]:
    offerings = [(o.zone, o.capacity_type, o.price, o.available) for o in it.offerings]
    requirements = sorted(str(requirement) for requirement in it.requirements.values())
    return it.name, requirements, offerings, dict(it.capacity), it.allocatable()


def test_pc_027_reservations_say_what_is_left(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: a reserved offering has the number of instances left; others have no reservation."""

    async def scenario(world: ProviderWorld) -> None:
        for it in await world.catalogue(subject.node_class):
            for offering in it.offerings:
                left = offering.reservation_capacity
                where = f"{it.name} {offering.capacity_type} in {offering.zone}"
                if offering.capacity_type != RESERVED:
                    assert left == 0, f"{where} is not reserved, and {left} are left of it"
                else:
                    assert left > 0 or not offering.available, (
                        f"{where} is available, and nothing is left of the reservation"
                    )

    rule_steps.run_rule(subject, tmp_path, scenario)
