"""Writes instance types as JSON and reads them again, without loss.

A catalogue in a snapshot is what a provider listed: offerings that are sold out, prices, devices. What
the provider did not say is not there, and stays unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from karpenter_core.api.devices import InstanceDevices
from karpenter_core.api.prices import Price
from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_core.scheduling.instance_types import InstanceType, Offering, Overhead
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["instance_types_from", "instance_types_to_json"]


class _Wire(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    pass


class _Requirement(_Wire):
    key: str
    complement: bool = False
    values: list[str] = []
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None


class _Price(_Wire):
    amount: float
    currency: str


class _Offering(_Wire):
    requirements: list[_Requirement]
    price: _Price
    available: bool = True
    reservation_capacity: int = 0
    interruption_risk: float = 0.0
    capacity_override: dict[str, int] | None = None
    overhead_override: dict[str, int] | None = None
    uncommitted_price: _Price | None = None
    list_price: _Price | None = None
    price_source: str = ""


class _InstanceType(_Wire):
    name: str
    requirements: list[_Requirement]
    offerings: list[_Offering]
    capacity: dict[str, int]
    kube_reserved: dict[str, int] = {}
    system_reserved: dict[str, int] = {}
    eviction_threshold: dict[str, int] = {}
    overlaid_resources: list[str] = []
    devices: InstanceDevices | None = None


def instance_types_to_json(types: Iterable[InstanceType]) -> list[object]:
    """Return instance types as JSON values; the units of amounts are those of `api.quantities`."""
    return cast("list[object]", msgspec.to_builtins([_written(each) for each in types]))


def instance_types_from(value: object, where: str) -> tuple[InstanceType, ...]:
    """Read instance types that `instance_types_to_json` wrote.

    Raises:
        BadInputError: a field is missing, unknown or of another type, or no provider may list it.
    """
    from karpenter_core.provider.host.catalogue_check import check_catalogue

    try:
        types = tuple(map(_read, msgspec.convert(value, list[_InstanceType])))
        check_catalogue(types, plugin="snapshot")
    except (msgspec.ValidationError, CloudProviderError) as error:
        raise BadInputError(f"{where}: {error}") from error
    return types


def _written(each: InstanceType) -> _InstanceType:
    return _InstanceType(
        name=each.name,
        requirements=_requirements(each.requirements),
        offerings=[_offering(offering) for offering in each.offerings],
        capacity=dict(each.capacity),
        kube_reserved=dict(each.overhead.kube_reserved),
        system_reserved=dict(each.overhead.system_reserved),
        eviction_threshold=dict(each.overhead.eviction_threshold),
        overlaid_resources=sorted(each.overlaid_resources),
        devices=each.devices,
    )


def _offering(offering: Offering) -> _Offering:
    return _Offering(
        requirements=_requirements(offering.requirements),
        price=_price(offering.price),
        available=offering.available,
        reservation_capacity=offering.reservation_capacity,
        interruption_risk=offering.interruption_risk,
        capacity_override=_copy(offering.capacity_override),
        overhead_override=_copy(offering.overhead_override),
        uncommitted_price=_optional_price(offering.uncommitted_price),
        list_price=_optional_price(offering.list_price),
        price_source=offering.price_source,
    )


def _copy(amounts: object) -> dict[str, int] | None:
    return None if amounts is None else dict(cast("dict[str, int]", amounts))


def _requirements(requirements: Requirements) -> list[_Requirement]:
    return [
        _Requirement(
            key=each.key,
            complement=each.complement,
            values=sorted(each.values),
            gte=each.gte,
            lte=each.lte,
            min_values=each.min_values,
        )
        for each in (requirements.get(key) for key in sorted(requirements))
    ]


def _price(price: Price) -> _Price:
    return _Price(amount=price.amount, currency=price.currency)


def _optional_price(price: Price | None) -> _Price | None:
    return None if price is None else _price(price)


def _read(each: _InstanceType) -> InstanceType:
    return InstanceType(
        name=each.name,
        requirements=_read_requirements(each.requirements),
        offerings=tuple(_read_offering(offering) for offering in each.offerings),
        capacity=each.capacity,
        overhead=Overhead(
            kube_reserved=each.kube_reserved,
            system_reserved=each.system_reserved,
            eviction_threshold=each.eviction_threshold,
        ),
        overlaid_resources=frozenset(each.overlaid_resources),
        devices=each.devices,
    )


def _read_offering(offering: _Offering) -> Offering:
    return Offering(
        requirements=_read_requirements(offering.requirements),
        price=_read_price(offering.price),
        available=offering.available,
        reservation_capacity=offering.reservation_capacity,
        interruption_risk=offering.interruption_risk,
        capacity_override=offering.capacity_override,
        overhead_override=offering.overhead_override,
        uncommitted_price=_read_optional_price(offering.uncommitted_price),
        list_price=_read_optional_price(offering.list_price),
        price_source=offering.price_source,
    )


def _read_requirements(requirements: list[_Requirement]) -> Requirements:
    return Requirements(
        Requirement(
            key=each.key,
            complement=each.complement,
            values=frozenset(each.values),
            gte=each.gte,
            lte=each.lte,
            min_values=each.min_values,
        )
        for each in requirements
    )


def _read_price(price: _Price) -> Price:
    return Price(price.amount, price.currency)


def _read_optional_price(price: _Price | None) -> Price | None:
    return None if price is None else _read_price(price)
