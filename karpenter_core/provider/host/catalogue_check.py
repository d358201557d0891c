"""Checks the values of a catalogue: prices, amounts, units, zones, names.

Plug-ins read them from the answers of a cloud, in which a price may be text and an amount may be
missing. One such value would fail a whole scheduling pass, for every NodePool and every provider,
or lose pods silently (NaN is neither more nor less than anything). So a catalogue is checked once,
when it is listed, and refused as a whole with plug-in, instance type, field and value. Most
providers return the same objects until something changes; those are not checked again.

The check is one pass over the catalogue; it tests for exact types first, which nearly every value
has.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from math import inf, isfinite
from operator import is_
from typing import TYPE_CHECKING, ClassVar, Final, cast, final

from karpenter_core.api.devices import InstanceDevices
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    ZONE,
)
from karpenter_core.api.prices import DEFAULT_CURRENCY, Price
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.value_text import raw_value, value_text
from karpenter_core.scheduling.instance_types import InstanceType, Offering, Overhead
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CatalogueValidator", "amounts_problem", "check_catalogue", "price_problem"]

_LISTING: Final = "karpenter_list_instance_types"
_UNITS: Final = {CPU: "milli-cores", MEMORY: "bytes", EPHEMERAL_STORAGE: "bytes"}
_LEAST: Final = {CPU: 10, MEMORY: 16 * 2**20}
"""Less than any kubelet starts with: the amount is in another unit (cores, MiB)."""
_PLAIN_RESOURCES: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})
_QUALIFIED_NAME: Final = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_TEXT: Final = frozenset({str})
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_REMEMBERED: Final = 8
"""Number of valid catalogues that are remembered: one per NodeClass of a usual cluster."""


@final
class CatalogueValidator:
    """Checks catalogues, except objects that were found valid before.

    Validators share what they remember: a provider may start several times in one process.
    """

    _sound: ClassVar[deque[tuple[InstanceType, ...]]] = deque(maxlen=_REMEMBERED)

    def check(self, instance_types: Sequence[InstanceType], *, plugin: str) -> None:
        """Refuse a catalogue with a value that cannot be used.

        Raises:
            CloudProviderError: names plug-in, instance type, field and value.
        """
        if any(_are_same(checked_types, instance_types) for checked_types in tuple(self._sound)):
            return
        check_catalogue(instance_types, plugin=plugin)
        self._sound.append(tuple(instance_types))


def _are_same(checked_types: Sequence[InstanceType], listed: Sequence[InstanceType]) -> bool:
    return len(checked_types) == len(listed) and all(map(is_, checked_types, listed))


class _InvalidValue(Exception):  # noqa: N818 - becomes a CloudProviderError, with what it is about
    """An invalid value: the field, the expected and the actual value."""


def check_catalogue(instance_types: Sequence[InstanceType], *, plugin: str) -> None:
    """Refuse a catalogue with a value that cannot be used.

    Raises:
        CloudProviderError: names plug-in, instance type, field and value.
    """
    check = _CatalogueRun()
    seen: set[str] = set()
    for number, it in enumerate(instance_types, start=1):
        name = it.name
        if not isinstance(raw_value(name), str) or not name:
            raise CloudProviderError(
                f'plug-in "{plugin}": {_LISTING}: the {_ordinal(number)} instance type has the '
                f"name {name!r}; it must be a string that is not empty"
            )
        if name in seen:
            raise CloudProviderError(f'plug-in "{plugin}": {_LISTING} lists {name} twice')
        seen.add(name)
        try:
            check.instance_type(it)
        except _InvalidValue as problem:
            raise CloudProviderError(
                f'plug-in "{plugin}": {_LISTING}: instance type "{name}": {problem}'
            ) from problem


def price_problem(price: Price) -> str:
    """Return the error of a price; empty if it is valid."""
    try:
        _check_price(price)
    except _InvalidValue as problem:
        return str(problem)
    return ""


def amounts_problem(amounts: object, field: str) -> str:
    """Return the error of a mapping of resources to amounts; empty if it is valid."""
    try:
        _check_amounts(amounts, field)
    except _InvalidValue as problem:
        return str(problem)
    return ""


@final
class _CatalogueRun:
    """Checks one catalogue; remembers the values that many of its offerings share."""

    def __init__(self) -> None:
        self._places: Final = dict[int, tuple[str, str]]()
        """Zone and capacity type by the identity of requirements that were checked."""

    def instance_type(self, it: InstanceType) -> None:
        """Check one type, its amounts first."""
        if not isinstance(raw_value(it.requirements), Requirements):
            raise _InvalidValue(
                f"requirements must be Requirements, not {_value_text(it.requirements)}"
            )
        _check_labels(it.requirements)
        _check_node_amounts(it)
        devices = raw_value(it.devices)
        if devices is not None and not isinstance(devices, InstanceDevices):
            raise _InvalidValue(f"devices must be InstanceDevices, not {_value_text(it.devices)}")
        if not isinstance(raw_value(it.offerings), tuple):
            raise _InvalidValue(f"offerings must be a tuple, not {_value_text(it.offerings)}")
        allowed: set[tuple[str, str]] = set()
        for offering in it.offerings:
            if not isinstance(raw_value(offering), Offering):
                raise _InvalidValue(f"offerings must hold Offerings, not {_value_text(offering)}")
            place = self._checked(offering)
            if place not in allowed:
                _check_allowed(it, offering, place)
                allowed.add(place)

    def _checked(self, offering: Offering) -> tuple[str, str]:
        """Return the zone and capacity type of an offering after checking all of it."""
        place = self._places.get(id(offering.requirements))
        if place is not None and _is_usual(offering):
            return place
        try:
            place = self._places[id(offering.requirements)] = _zone_and_capacity_type(offering)
            _check_price(offering.price)
            _check_rest(offering)
        except _InvalidValue as problem:
            raise _InvalidValue(f"{_offering_text(offering)}: {problem}") from problem
        return place


def _check_labels(requirements: Requirements) -> None:
    for requirement in requirements.values():
        if not _TEXT.issuperset(map(type, requirement.values)):
            odd = next(v for v in requirement.values if not isinstance(raw_value(v), str))
            raise _InvalidValue(
                f"requirements: {requirement.key} must have strings as values, not {odd!r}"
            )


def _check_node_amounts(it: InstanceType) -> None:
    """Check the capacity of a type, and the overhead of its nodes."""
    _check_amounts(it.capacity, "capacity")
    for resource, least in _LEAST.items():
        amount = it.capacity.get(resource, 0)
        if 0 < amount < least:
            raise _InvalidValue(
                f"capacity.{resource} must be in {_UNITS[resource]}: {amount} is too small "
                "for any instance"
            )
    overhead = it.overhead
    if not isinstance(raw_value(overhead), Overhead):
        raise _InvalidValue(f"overhead must be an Overhead, not {_value_text(overhead)}")
    _check_amounts(overhead.kube_reserved, "overhead.kube_reserved")
    _check_amounts(overhead.system_reserved, "overhead.system_reserved")
    _check_amounts(overhead.eviction_threshold, "overhead.eviction_threshold")


def _check_allowed(it: InstanceType, offering: Offering, place: tuple[str, str]) -> None:
    for key, value in zip((ZONE, CAPACITY_TYPE), place, strict=True):
        if not it.requirements.get(key).has(value):
            raise _InvalidValue(
                f"{_offering_text(offering)}: {key} {value!r} is excluded by the requirements of the type"
            )


def _is_usual(offering: Offering) -> bool:
    """Return whether an offering passes the fast check; most of them do."""
    price = offering.price
    return (
        type(price) is Price
        and type(price.amount) is float
        and 0.0 <= price.amount < inf
        and price.currency == DEFAULT_CURRENCY
        and (offering.available is True or offering.available is False)
        and type(offering.reservation_capacity) is int
        and 0 <= offering.reservation_capacity <= LARGEST_AMOUNT
        and offering.interruption_risk == 0.0
        and offering.capacity_override is None
        and offering.overhead_override is None
    )


def _check_price(price: object) -> None:
    if not isinstance(price, Price):
        raise _InvalidValue(f"price must be a Price, not {_value_text(price)}")
    amount = price.amount
    if not _is_number(amount):
        raise _InvalidValue(f"price.amount must be a number, not {_value_text(amount)}")
    if not isfinite(amount):
        raise _InvalidValue(f"price.amount must be a finite number, not {amount!r}")
    if amount < 0:
        raise _InvalidValue(f"price.amount must not be negative, not {amount!r}")
    currency = raw_value(price.currency)
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise _InvalidValue(f"price.currency must be three capital letters, not {currency!r}")


def _check_rest(offering: Offering) -> None:
    if offering.available is not True and offering.available is not False:
        raise _InvalidValue(
            f"available must be True or False, not {_value_text(offering.available)}"
        )
    _check_amount(offering.reservation_capacity, "reservation_capacity", "instances")
    risk = offering.interruption_risk
    if not _is_number(risk) or not 0 <= risk <= 1:
        raise _InvalidValue(f"interruption_risk must be from 0 to 1, not {_value_text(risk)}")
    if offering.capacity_override is not None:
        _check_amounts(offering.capacity_override, "capacity_override")
    if offering.overhead_override is not None:
        _check_amounts(offering.overhead_override, "overhead_override")


def _check_amounts(amounts: object, field: str) -> None:
    if not isinstance(amounts, Mapping):
        raise _InvalidValue(f"{field} must be a mapping, not {_value_text(amounts)}")
    for resource, amount in cast("Mapping[object, object]", amounts).items():
        if resource not in _PLAIN_RESOURCES and not _is_resource(resource):
            raise _InvalidValue(
                f'{field} names the unknown resource "{resource}"; known are cpu (milli-cores), '
                "memory and ephemeral-storage (bytes), pods, hugepages-SIZE (bytes), and names "
                "with a domain such as nvidia.com/gpu"
            )
        if type(amount) is not int or not 0 <= amount <= LARGEST_AMOUNT:
            _check_amount(amount, f"{field}.{resource}", _UNITS.get(str(resource), "pieces"))


def _check_amount(amount: object, field: str, unit: str) -> None:
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise _InvalidValue(f"{field} must be a whole number of {unit}, not {_value_text(amount)}")
    if amount < 0:
        raise _InvalidValue(f"{field} must not be negative, not {amount}")
    if amount > LARGEST_AMOUNT:
        raise _InvalidValue(f"{field} must be at most {LARGEST_AMOUNT}, not {amount}")


def _zone_and_capacity_type(offering: Offering) -> tuple[str, str]:
    """Return the zone and capacity type of an offering after checking them."""
    requirements = offering.requirements
    if not isinstance(raw_value(requirements), Requirements):
        raise _InvalidValue(f"requirements must be Requirements, not {_value_text(requirements)}")
    zone, kind = _one_value(requirements, ZONE), _one_value(requirements, CAPACITY_TYPE)
    if len(requirements) > len((ZONE, CAPACITY_TYPE)):
        _check_labels(requirements)
    if kind not in CAPACITY_TYPES:
        raise _InvalidValue(f"{CAPACITY_TYPE} must be reserved, spot or on-demand, not {kind!r}")
    return zone, kind


def _one_value(requirements: Requirements, key: str) -> str:
    requirement = requirements.get(key)
    values = cast(
        "frozenset[object]", frozenset() if requirement.complement else requirement.values
    )
    if len(values) != 1:
        listed = ", ".join(sorted(map(repr, values))) or "none"
        raise _InvalidValue(f"requirements must have one value of {key}, not {listed}")
    (value,) = values
    if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
        raise _InvalidValue(f"requirements: {key} must be a label value, not {value!r}")
    return value


def _is_resource(name: object) -> bool:
    return isinstance(name, str) and (
        name.startswith("hugepages-") or _QUALIFIED_NAME.fullmatch(name) is not None
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value_text(value: object) -> str:
    """Return a value for a message; strings are marked, since "0.5" could be a number."""
    return f"the text {value_text(value)}" if isinstance(value, str) else value_text(value)


def _offering_text(offering: Offering) -> str:
    """Name an offering, as far as its values permit."""
    requirements = offering.requirements
    if not isinstance(raw_value(requirements), Requirements):
        return "an offering"
    kind, zone = (_any(requirements, key) for key in (CAPACITY_TYPE, ZONE))
    return f"offering {kind} in {zone}"


def _any(requirements: Requirements, key: str) -> str:
    values: Iterable[object] = requirements.get(key).values
    return " or ".join(sorted(map(str, values))) or "no value"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{suffix or 'th'}"
