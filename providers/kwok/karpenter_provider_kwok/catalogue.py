"""Reads a catalogue file of the simulated cloud.

The format is the one that users of upstream's kwok provider have: a list of

    {"name": …, "architecture": …, "operatingSystems": […], "resources": {"cpu": …, "memory": …},
     "offerings": [{"Price": …, "Available": …, "Requirements": [{"key", "operator", "values"}]}]}

with field names in any case. Some optional fields are ours: `overhead` (a resource list),
`resourceSliceTemplates` and `attributeBindings` (devices for ResourceClaims) of an entry, and
`Currency` of an offering. Offerings may have requirements on any label beside zone and capacity
type. A mistake stops the start, and the message says where it is: file, entry, field, value.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    CPU,
    INSTANCE_TYPE,
    MEMORY,
    NODE_POOL,
    OS,
    PODS,
    REGION,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.quantities import format_amount, parse_amount, parse_quantity
from karpenter_core.errors import BadInputError
from karpenter_core.provider.catalogue import (
    DEFAULT_CURRENCY,
    InstanceType,
    Offering,
    Overhead,
    Price,
    Requirement,
    Requirements,
)
from karpenter_core.provider.kit.device_templates import read_instance_devices
from karpenter_provider_kwok.labels import (
    INSTANCE_CPU,
    INSTANCE_FAMILY,
    INSTANCE_MEMORY,
    INSTANCE_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from karpenter_core.api.devices import InstanceDevices

__all__ = ["extra_labels", "load_catalogue", "read_catalogue"]

DEFAULT_PODS: Final = 110  # Kubernetes' default for a kubelet
DEFAULT_OVERHEAD: Final = {CPU: 100, MEMORY: 10 * 2**20}  # upstream's kwok: 100m, 10Mi

_ENTRY_FIELDS: Final = {
    "name", "offerings", "architecture", "operatingsystems", "resources", "overhead",
    "resourceslicetemplates", "attributebindings",
}  # fmt: skip
_OFFERING_FIELDS: Final = {
    "price", "available", "requirements", "currency", "reservationcapacity",
}  # fmt: skip
_SIZED_NAME: Final = re.compile(r"\w+\.(nano|micro|small|medium|large|\d*xlarge|metal)")
_DECIMAL_SUFFIXES: Final = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9),
                            ("M", 10**6), ("k", 10**3))  # fmt: skip
_DEFINED_BY_CORE: Final = frozenset({ZONE, CAPACITY_TYPE, INSTANCE_TYPE, ARCH, OS, NODE_POOL})


def read_catalogue(path: Path) -> tuple[InstanceType, ...]:
    """Read a catalogue file.

    Raises:
        BadInputError: it cannot be read or used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise BadInputError(f"instance types file {path} cannot be read: {reason}") from error
    return load_catalogue(text, file=str(path))


def load_catalogue(text: str, *, file: str) -> tuple[InstanceType, ...]:
    """Read the text of a catalogue file.

    Raises:
        BadInputError: it cannot be used; names file, entry, field and value.
    """
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInputError(
            f"instance types file {file} is not JSON: "
            f"{error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInputError(f"instance types file {file} is not JSON: {problem}") from error
    entries = cast("list[object]", document) if isinstance(document, list) else []
    if not entries:
        raise BadInputError(f"instance types file {file}: must be a list of instance types")
    reader = _OfferingReader()
    types = [
        _instance_type(entry, file=file, index=index, reader=reader)
        for index, entry in enumerate(entries)
    ]
    _check_names(types, file)
    return _define_extra_labels(types)


def extra_labels(types: Iterable[InstanceType]) -> frozenset[str]:
    """Return the labels that offerings set beyond zone and capacity type."""
    keys = {key for it in types for offering in it.offerings for key in offering.requirements}
    return frozenset(keys - {ZONE, CAPACITY_TYPE})


@final
@dataclass(frozen=True, slots=True)
class _FilePosition:
    """A place in the file, for messages."""

    entry: str
    field: str = ""

    def at(self, field: str) -> _FilePosition:
        return _FilePosition(self.entry, f"{self.field}.{field}" if self.field else field)

    def error(self, value: object, wanted: str) -> BadInputError:
        shown = json.dumps(value)
        return BadInputError(f"{self.entry}: {self.field}: {wanted}, not {shown}")

    def mapping(self, value: object) -> dict[str, object]:
        if isinstance(value, dict):
            return cast("dict[str, object]", value)
        raise self.error(value, "must be an object")

    def fields(self, value: object, known: set[str]) -> dict[str, object]:
        """Return an object's fields by lower-case name; upstream's reader ignores the case."""
        result: dict[str, object] = {}
        for name, field in self.mapping(value).items():
            if name.lower() not in known:
                raise self.error(name, f"unknown field (known: {', '.join(sorted(known))})")
            result[name.lower()] = field
        return result

    def items(self, value: object) -> list[object]:
        if isinstance(value, list) and value:
            return cast("list[object]", value)
        raise self.error(cast("object", value), "must be a list with at least one item")

    def text(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise self.error(value, "must be a text")
        return value

    def texts(self, value: object) -> tuple[str, ...]:
        items = self.items(value)
        return tuple(self.at(str(index)).text(item) for index, item in enumerate(items))


def _instance_type(
    value: object, *, file: str, index: int, reader: _OfferingReader
) -> InstanceType:
    name = cast("dict[str, object]", value).get("name") if isinstance(value, dict) else None
    named = f' "{name}"' if isinstance(name, str) else ""
    place = _FilePosition(f"instance types file {file}: entry {index}{named}")
    fields = place.fields(cast("object", value), _ENTRY_FIELDS)
    type_name = place.at("name").text(fields.get("name"))
    amounts = place.at("resources").mapping(fields.get("resources"))
    capacity = {PODS: DEFAULT_PODS, **_resources(place.at("resources"), amounts)}
    for resource in (CPU, MEMORY):
        if capacity.get(resource, 0) <= 0:
            raise (
                place.at("resources")
                .at(resource)
                .error(amounts.get(resource), "must be a quantity above zero")
            )
    overhead = dict(DEFAULT_OVERHEAD)
    if "overhead" in fields:
        given = place.at("overhead").mapping(fields["overhead"])
        overhead = _resources(place.at("overhead"), given)
    offerings = reader.read_all(place.at("offerings"), fields.get("offerings"))
    cpu = _canonical(CPU, amounts[CPU])
    labels = {
        INSTANCE_TYPE: (type_name,),
        ARCH: (place.at("architecture").text(fields.get("architecture")),),
        OS: place.at("operatingSystems").texts(fields.get("operatingsystems")),
        ZONE: tuple(offering.zone for offering in offerings),
        CAPACITY_TYPE: tuple(offering.capacity_type for offering in offerings),
        INSTANCE_SIZE: (_size(type_name, cpu),),
        INSTANCE_FAMILY: (_family(type_name),),
        INSTANCE_CPU: (cpu,),
        INSTANCE_MEMORY: (_canonical(MEMORY, amounts[MEMORY]),),
    }
    return InstanceType(
        name=type_name,
        requirements=Requirements(Requirement.of(key, "In", v) for key, v in labels.items()),
        offerings=offerings,
        capacity=capacity,
        overhead=Overhead(kube_reserved=overhead),
        devices=_devices(place, fields),
    )


def _devices(place: _FilePosition, fields: Mapping[str, object]) -> InstanceDevices | None:
    try:
        return read_instance_devices(
            fields.get("resourceslicetemplates"), fields.get("attributebindings")
        )
    except BadInputError as error:
        raise BadInputError(f"{place.entry}: {error}") from error


def _resources(place: _FilePosition, amounts: Mapping[str, object]) -> dict[str, int]:
    result: dict[str, int] = {}
    for name, value in amounts.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise place.at(name).error(value, "must be a quantity")
        try:
            result[name] = parse_amount(name, value)
        except ValueError:
            raise place.at(name).error(value, "must be a quantity") from None
        if result[name] < 0:
            raise place.at(name).error(value, "must be a quantity of at least zero")
    return result


@final
class _OfferingReader:
    """Reads offerings; equal requirements of a file are read once, and become one object.

    To compare an object with itself takes no time.
    """

    def __init__(self) -> None:
        self._sold: Final = dict[str, tuple[Requirements, ...]]()
        """Requirements of the offerings that an entry is sold as, by what the file holds."""

    def read_all(self, place: _FilePosition, value: object) -> tuple[Offering, ...]:
        """Read the offerings of an entry."""
        return tuple(
            offering
            for index, item in enumerate(place.items(value))
            for offering in self._read(place, index, item)
        )

    def _read(self, above: _FilePosition, index: int, item: object) -> Iterable[Offering]:
        """Read an offering; one that names several zones is sold in each of them."""
        place = above.at(str(index))
        fields = place.fields(item, _OFFERING_FIELDS)
        price = fields.get("price")
        if isinstance(price, bool) or not isinstance(price, int | float) or not _is_price(price):
            raise place.at("Price").error(price, "must be a number of at least zero")
        available = fields.get("available", True)
        if not isinstance(available, bool):
            raise place.at("Available").error(available, "must be true or false")
        reserved = fields.get("reservationcapacity", 0)
        if isinstance(reserved, bool) or not isinstance(reserved, int) or reserved < 0:
            raise place.at("ReservationCapacity").error(reserved, "must be a count")
        currency = fields.get("currency", DEFAULT_CURRENCY)
        if currency is not DEFAULT_CURRENCY:
            currency = place.at("Currency").text(currency)
        amount = Price(float(price), currency)
        return [
            Offering(
                requirements=requirements,
                price=amount,
                available=available,
                reservation_capacity=reserved,
            )
            for requirements in self._requirements(place, fields.get("requirements"))
        ]

    def _requirements(self, place: _FilePosition, value: object) -> tuple[Requirements, ...]:
        written = repr(value)
        sold = self._sold.get(written)
        if sold is None:
            requirements = _requirements(place.at("Requirements"), value)
            rest = requirements.without({ZONE, CAPACITY_TYPE})
            zones = sorted(requirements.get(ZONE).values)
            capacity_types = sorted(requirements.get(CAPACITY_TYPE).values)
            sold = self._sold[written] = tuple(
                _shared(
                    rest.add(
                        Requirement.of(ZONE, "In", (zone,)),
                        Requirement.of(CAPACITY_TYPE, "In", (capacity_type,)),
                    )
                )
                for zone, capacity_type in product(zones, capacity_types)
            )
        return sold


@lru_cache(maxsize=1024)
def _shared(requirements: Requirements) -> Requirements:
    """Return the one object of equal requirements, also of different files."""
    return requirements


def _is_price(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _requirements(place: _FilePosition, value: object) -> Requirements:
    requirement_list: list[Requirement] = []
    for index, item in enumerate(place.items(value)):
        at = place.at(str(index))
        fields = at.fields(item, {"key", "operator", "values"})
        key = at.at("key").text(fields.get("key"))
        operator = at.at("operator").text(fields.get("operator", "In"))
        values = fields.get("values", [])
        texts = at.at("values").texts(values) if values else ()
        try:
            requirement_list.append(Requirement.of(key, operator, texts))
        except BadInputError as error:
            raise BadInputError(f"{at.entry}: {at.field}: {error}") from error
    requirements = Requirements(requirement_list)
    for key in (ZONE, CAPACITY_TYPE):
        if requirements.get(key).operator != "In":
            raise place.error(value, f"must name values of {key} (operator In)")
    for capacity_type in sorted(requirements.get(CAPACITY_TYPE).values):
        if capacity_type not in CAPACITY_TYPES:
            problem = f"{CAPACITY_TYPE} must be one of {', '.join(CAPACITY_TYPES)}"
            raise place.error(capacity_type, problem)
    return requirements


def _check_names(types: Sequence[InstanceType], file: str) -> None:
    seen: dict[str, int] = {}
    for index, it in enumerate(types):
        first = seen.setdefault(it.name, index)
        if first != index:
            raise BadInputError(
                f'instance types file {file}: entry {index}: name: "{it.name}" '
                f"is the name of entry {first} already"
            )


def _define_extra_labels(types: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
    """Let every type say something of every label that any offering or cloud may set.

    Labels a type's offerings never set do not exist on its nodes; so too the region, unless the
    file gives one, and the Windows build of anything but Windows.
    """
    keys = (extra_labels(types) | {REGION, WINDOWS_BUILD}) - _DEFINED_BY_CORE
    result: list[InstanceType] = []
    for it in types:
        added: list[Requirement] = []
        for key in sorted(keys):
            if key == WINDOWS_BUILD and it.requirements.get(OS).has("windows"):
                continue
            values = {
                value
                for offering in it.offerings
                if key in offering.requirements
                for value in offering.requirements.get(key).values
            }
            added.append(Requirement.of(key, "In" if values else "DoesNotExist", values))
        result.append(replace(it, requirements=it.requirements.add(*added)))
    return tuple(result)


def _size(name: str, cpu: str) -> str:
    """Return the size that a name of the form `family.size` tells, else the CPU count."""
    match = _SIZED_NAME.fullmatch(name)
    return match[1] if match else cpu


def _family(name: str) -> str:
    """Return what stands before the first `.` or `-`, else the first letter."""
    head, *tail = re.split(r"[.-]", name)
    return head if tail else name[:1]


def _canonical(resource: str, value: object) -> str:
    """Write an amount as Kubernetes would print it, keeping powers of ten or of two."""
    text = str(value)
    amount = parse_amount(resource, text)
    if resource == CPU or text.endswith("i"):
        return format_amount(resource, amount)
    exact = int(parse_quantity(text))
    for suffix, unit in _DECIMAL_SUFFIXES:
        if exact and exact % unit == 0:
            return f"{exact // unit}{suffix}"
    return str(exact)
