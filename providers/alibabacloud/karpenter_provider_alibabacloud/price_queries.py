"""Queries prices from ECS, and parses the answers."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_alibabacloud.catalogue.instance_type_info import list_at
from karpenter_provider_alibabacloud.discovery.call_errors import is_refusal
from karpenter_provider_alibabacloud.prices import SpotAdvice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_provider_alibabacloud.api_answers import ApiAnswer

__all__ = [
    "ADVICE_SIZE",
    "Call",
    "SpotHistory",
    "fetch_price",
    "fetch_spot_advice",
    "fetch_spot_history",
    "is_about_one_type",
    "positive",
    "read_price",
    "read_spot_advice",
    "read_spot_history",
]

ADVICE_SIZE: Final = 10
"""Types in one call of DescribeSpotAdvice, as documented."""

_DISK: Final = {"Category": "cloud_essd", "PerformanceLevel": "PL0", "Size": 20}
"""System disk of priced instances; newer types take no other."""
_MOST_PAGES: Final = 20
_MACHINE: Final = "instancetype"
"""`Resource` of the instance's part of a price."""

Call: TypeAlias = "Callable[[str, Mapping[str, object]], ApiAnswer]"
"""Asks ECS: action and parameters (without the region) to the answer; raises CloudProviderError."""


class SpotHistory(NamedTuple):
    """The current spot price of a type, and its on-demand price."""

    by_zone: dict[str, float]
    on_demand: float | None
    """The list price; what the account pays may be less."""
    currency: str


def is_about_one_type(error: CloudProviderError) -> bool:
    """Whether ECS refused for a reason that another type need not share."""
    return is_refusal(error) and not isinstance(error, AuthError)


def fetch_price(call: Call, instance_type: str) -> tuple[float, str] | None:
    """Return the on-demand price per hour of a type and its currency; None when there is none.

    Raises:
        CloudProviderError: ECS did not answer, or refused for a reason that is none of the type's.
    """
    parameters: dict[str, object] = {
        "ResourceType": "instance",
        "InstanceType": instance_type,
        "PriceUnit": "Hour",
        "Period": 1,
    }
    # Types of old generations do not take that disk; they are priced with ECS's default.
    for disk in ({"SystemDisk": _DISK}, {}):
        try:
            return read_price(call("DescribePrice", {**parameters, **disk}))
        except CloudProviderError as error:
            if not is_about_one_type(error):
                raise
    return None


def read_price(body: ApiAnswer) -> tuple[float, str] | None:
    """Return price per hour and currency of an answer of DescribePrice; None when it names none.

    The price is that of the instance, without the disk that the question had to name.
    """
    info: ApiAnswer = body.get("PriceInfo") or {}
    price: ApiAnswer = info.get("Price") or {}
    parts = list_at(price, "DetailInfos.DetailInfo")
    instance_parts = [part for part in parts if str(part.get("Resource")).lower() == _MACHINE]
    amount = positive(
        instance_parts[0].get("TradePrice") if instance_parts else price.get("TradePrice")
    )
    return None if amount is None else (amount, str(price.get("Currency") or ""))


def fetch_spot_history(call: Call, instance_type: str, hours: int) -> SpotHistory | None:
    """Return what a type costs as spot, safe for so many hours; None when it is not sold so.

    Raises:
        CloudProviderError: as of `fetch_price`.
    """
    parameters: dict[str, object] = {
        "InstanceType": instance_type,
        "NetworkType": "vpc",
        "OSType": "linux",
        "SpotDuration": hours,
    }
    items: list[ApiAnswer] = []
    currency, offset = "", 0
    for _ in range(_MOST_PAGES):
        try:
            body = call("DescribeSpotPriceHistory", {**parameters, "Offset": offset})
        except CloudProviderError as error:
            if not is_about_one_type(error):
                raise
            return None
        page = list_at(body, "SpotPrices.SpotPriceType")
        items += page
        currency = str(body.get("Currency") or currency)
        following = int(body.get("NextOffset") or 0)
        if not page or following <= offset:
            break
        offset = following
    history = read_spot_history(items, currency=currency)
    return history if history.by_zone else None


def read_spot_history(items: Iterable[ApiAnswer], *, currency: str = "") -> SpotHistory:
    """Return the latest price of each zone, from items of DescribeSpotPriceHistory of one type."""
    latest: dict[str, tuple[str, float]] = {}
    listed: tuple[str, float] | None = None
    for item in items:
        zone, at = str(item.get("ZoneId") or ""), str(item.get("Timestamp") or "")
        amount, origin = positive(item.get("SpotPrice")), positive(item.get("OriginPrice"))
        # Instants are all written alike, so texts are ordered as they are.
        if zone and amount is not None and (at, amount) > latest.get(zone, ("", 0.0)):
            latest[zone] = (at, amount)
        if origin is not None and (listed is None or (at, origin) > listed):
            listed = (at, origin)
    return SpotHistory(
        by_zone={zone: latest[zone][1] for zone in sorted(latest)},
        on_demand=None if listed is None else listed[1],
        currency=currency,
    )


def fetch_spot_advice(
    call: Call, instance_types: Sequence[str]
) -> dict[str, dict[str, SpotAdvice]]:
    """Return what is said of types as spot, as of `read_spot_advice`; `ADVICE_SIZE` types at most.

    Raises:
        CloudProviderError: ECS refused or did not answer.
    """
    return read_spot_advice(call("DescribeSpotAdvice", {"InstanceTypes": list(instance_types)}))


def read_spot_advice(body: ApiAnswer) -> dict[str, dict[str, SpotAdvice]]:
    """Return, by type and zone, what DescribeSpotAdvice says of spot over the last 30 days."""
    advice_by_type: dict[str, dict[str, SpotAdvice]] = {}
    for zone in list_at(body, "AvailableSpotZones.AvailableSpotZone"):
        for item in list_at(zone, "AvailableSpotResources.AvailableSpotResource"):
            discount = positive(item.get("AverageSpotDiscount"))
            name, zone_id = str(item.get("InstanceType") or ""), str(zone.get("ZoneId") or "")
            if discount is not None and name and zone_id:
                advice = SpotAdvice(discount, _percent(item.get("InterruptionRate")))
                advice_by_type.setdefault(name, {})[zone_id] = advice
    return advice_by_type


def positive(value: object) -> float | None:
    """Read a price; what is not above zero is not known."""
    amount = _percent(value)
    return amount or None


def _percent(value: object) -> float | None:
    try:
        amount = float(cast("str | float", value))
    except (TypeError, ValueError):
        return None
    return amount if isfinite(amount) and amount >= 0 else None
