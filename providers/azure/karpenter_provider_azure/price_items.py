"""Chooses the prices of VM sizes among the items of Azure's retail price list.

Several items have the same size: other products with its hardware, other operating systems, other
meters. Azure returns them in no order, so the choice depends on the items alone.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["ListedPrices", "read_price_items"]

_UNIT: Final = "1 hour"
_KIND: Final = "consumption"
_CURRENCY: Final = "USD"
_PRODUCT: Final = "virtual machines"
_WINDOWS: Final = " windows"
_LOW_PRIORITY: Final = " low priority"
_SPOT: Final = " spot"


class ListedPrices(NamedTuple):
    """Prices in USD per hour, by VM size."""

    on_demand: dict[str, float]
    spot: dict[str, float]


class _Choice(NamedTuple):
    """An item in the order of preference: the largest is chosen."""

    is_virtual_machine: bool
    """The product is named `Virtual Machines …`; others are cloud services or hosts."""
    effective_from: str
    negative_tier: float
    negative_price: float
    """Of items that differ in nothing else the cheapest is chosen."""


def read_price_items(items: Iterable[JsonMapping]) -> ListedPrices:
    """Return the prices of Linux virtual machines; a price that is not above zero is left out."""
    best: dict[tuple[str, bool], _Choice] = {}
    for item in items:
        name, choice = _text(item, "armSkuName"), _choice(item)
        if not name or choice is None:
            continue
        key = (name, _text(item, "skuName").lower().endswith(_SPOT))
        if key not in best or choice > best[key]:
            best[key] = choice
    return ListedPrices(
        *(
            {
                name: -best[name, is_spot].negative_price
                for name, of in sorted(best)
                if of is is_spot
            }
            for is_spot in (False, True)
        )
    )


def _choice(item: JsonMapping) -> _Choice | None:
    product, meter = _text(item, "productName").lower(), _text(item, "meterName").lower()
    price = _number(item, "retailPrice")
    if (
        price is None
        or price <= 0
        or product.endswith(_WINDOWS)
        or meter.endswith(_LOW_PRIORITY)
        or _text(item, "unitOfMeasure").lower() not in {"", _UNIT}
        or _text(item, "type").lower() not in {"", _KIND}
        or _text(item, "currencyCode") not in {"", _CURRENCY}
    ):
        return None
    return _Choice(
        product.startswith(_PRODUCT),
        # Instants are all written alike, so texts are ordered as they are.
        _text(item, "effectiveStartDate"),
        -(_number(item, "tierMinimumUnits") or 0.0),
        -price,
    )


def _text(item: JsonMapping, field: str) -> str:
    value = item.get(field)
    return value.strip() if isinstance(value, str) else ""


def _number(item: JsonMapping, field: str) -> float | None:
    value = item.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
