"""Reads the user's price file.

Its format is `{region: {type: {"onDemand": x, "spot": {zone: y}}}}`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from karpenter_core.errors import SettingsError
from karpenter_provider_alibabacloud.price_queries import positive
from karpenter_provider_alibabacloud.prices import UserPrices

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_price_file"]


def read_price_file(path: Path, region: str) -> UserPrices:
    """Read the user's prices of a region.

    Raises:
        SettingsError: the file cannot be read, or a value in it; names file, field and value.
    """
    name = f'--price-file "{path}"'
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{name}: {error}") from error
    on_demand: dict[str, float] = {}
    spot: dict[str, dict[str, float]] = {}
    types = _mapping(_mapping(document, name).get(region, {}), f"{name}: {region}")
    for instance_type, value in types.items():
        field = f"{name}: {region}.{instance_type}"
        prices = _mapping(value, field)
        if "onDemand" in prices:
            on_demand[instance_type] = _amount(prices["onDemand"], f"{field}.onDemand")
        zones = _mapping(prices.get("spot", {}), f"{field}.spot")
        spot[instance_type] = {z: _amount(it, f"{field}.spot.{z}") for z, it in zones.items()}
    return UserPrices(on_demand=on_demand, spot=spot)


def _mapping(value: object, field: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise SettingsError(f"{field}: must be a mapping, not {value!r}")
    return cast("dict[str, object]", value)


def _amount(value: object, field: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    amount = positive(value) if is_number else None
    if amount is None:
        raise SettingsError(f"{field}: must be a number above zero, not {value!r}")
    return amount
