"""Keeps a region's prices: on-demand ones, spot ones, estimates.

On-demand prices come from the cloud or from the user, and are estimated where neither has one. A
price is a call for each type, so prices come in bit by bit, for types that NodePools may launch
first. A type whose price is unknown can be launched all the same, and is estimated: by the prices
of its family, else by what its cores, memory and GPUs cost in types of the region whose price is
known. A price that is not above zero counts as unknown.

Accounts of the Chinese site pay in CNY and others in USD, whatever the region, so the currency is
the one of the prices read. Prices are compared within one region only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import isfinite
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgspec

from karpenter_core.provider.catalogue import Price
from karpenter_provider_alibabacloud.catalogue.stock import DEFAULT_SPOT_HOURS
from karpenter_provider_alibabacloud.data import shipped_prices, shipped_rates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.kit.disk_cache import DiskCache
    from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo

__all__ = [
    "DISK_VERSION",
    "OnDemandQuote",
    "RegionPrices",
    "SpotAdvice",
    "SpotQuote",
    "UserPrices",
    "quote_of",
]

DISK_VERSION: Final = "1"
"""Of the disk cache that is given to `restore` and `save`."""
ON_DEMAND_LIFE: Final = timedelta(days=7)
"""Largest age of an on-demand price that is used instead of an estimate."""
SPOT_LIFE: Final = timedelta(days=1)


class OnDemandQuote(NamedTuple):
    """An on-demand price per hour, and what it is worth for estimates."""

    amount: float
    family: str
    cpu_cores: int
    by_rates: float
    """Price of the type by shipped rates."""
    read_at: datetime


class SpotQuote(NamedTuple):
    """Spot prices per hour of a type, by zone."""

    by_zone: dict[str, float]
    read_at: datetime


class SpotAdvice(NamedTuple):
    """ECS's advice on a type as spot in a zone, over the last 30 days."""

    percent: float
    """Of the on-demand price, on average: 30 is 70 percent off."""
    interruption_percent: float | None = None
    """Share of reclaimed instances; None when unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPrices:
    """Prices that the user gives for a region; they go before all others."""

    on_demand: Mapping[str, float] = field(default_factory=dict[str, float])
    spot: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, "Mapping[str, float]"]
    )
    """By type and zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PriceTables:
    """Everything that was read; replaced as a whole, and never changed."""

    currency: str
    on_demand: Mapping[str, OnDemandQuote] = field(default_factory=dict[str, OnDemandQuote])
    spot: Mapping[str, Mapping[str, SpotQuote]] = field(
        default_factory=dict[str, "Mapping[str, SpotQuote]"]
    )
    """By hours that an instance is safe for, as text, and type."""


class _EstimateFactors(NamedTuple):
    """Estimates from on-demand prices for types whose price is unknown."""

    per_core: Mapping[str, float]
    """By family: median price of a core."""
    scale: float
    """Median of price to price by shipped rates."""


def quote_of(info: InstanceTypeInfo, amount: float, *, now: datetime) -> OnDemandQuote:
    """Return the quote for an on-demand price of a type."""
    return OnDemandQuote(amount, info.family, info.cpu_cores, shipped_rates().price_of(info), now)


@final
class RegionPrices:
    """The prices of one region; callable from any thread."""

    def __init__(self, region: str) -> None:
        self._shipped: Final = shipped_prices(region)
        self._lock: Final = Lock()
        self._revision = 0
        self._user_prices = UserPrices()
        self._tables = _PriceTables(currency=self._shipped.currency)
        self._estimates = _estimates({})
        self._advice: Mapping[str, Mapping[str, SpotAdvice]] = {}
        self._spot_hours: Final = {DEFAULT_SPOT_HOURS}

    @property
    def revision(self) -> int:
        """A number that grows whenever a price changes."""
        return self._revision

    @property
    def currency(self) -> str:
        """Of all prices."""
        return self._tables.currency

    @property
    def spot_hours(self) -> tuple[int, ...]:
        """The protected times that spot prices are read for."""
        with self._lock:
            return tuple(sorted(self._spot_hours))

    def watch_spot(self, hours: int) -> bool:
        """Read spot prices for that protected time too; True if that is new."""
        with self._lock:
            is_new = hours not in self._spot_hours
            self._spot_hours.add(hours)
        return is_new

    def on_demand(self, info: InstanceTypeInfo) -> Price:
        """Return the on-demand price, if need be an estimate."""
        tables = self._tables
        amount = self._known_on_demand(info.name, tables)
        if amount is None:
            amount = _estimate(info, self._estimates)
        return Price(amount, tables.currency)

    def spot(self, info: InstanceTypeInfo, zone: str, *, hours: int = DEFAULT_SPOT_HOURS) -> Price:
        """Return the spot price in a zone, if need be an estimate.

        That is by the discount of the last 30 days there, else the highest price of other zones, else
        the on-demand price.
        """
        tables = self._tables
        amount = self._known_spot(info.name, zone, hours, tables)
        if amount is not None:
            return Price(amount, tables.currency)
        advice = self._advice.get(info.name, {}).get(zone)
        if advice is not None:
            on_demand = self.on_demand(info)
            return Price(on_demand.amount * advice.percent / 100, on_demand.currency)
        elsewhere = _quote(tables, info.name, hours)
        if elsewhere is not None:
            return Price(max(elsewhere.by_zone.values()), tables.currency)
        return self.on_demand(info)

    def is_estimated(
        self, instance_type: str, *, zone: str = "", hours: int = DEFAULT_SPOT_HOURS
    ) -> bool:
        """Whether the price is not known: the on-demand one, or with a zone the spot price there."""
        tables = self._tables
        if zone:
            return self._known_spot(instance_type, zone, hours, tables) is None
        return self._known_on_demand(instance_type, tables) is None

    def interruption_percent(self, instance_type: str, zone: str) -> float | None:
        """Return the share of spot instances reclaimed within 30 days; None when unknown."""
        advice = self._advice.get(instance_type, {}).get(zone)
        return None if advice is None else advice.interruption_percent

    def on_demand_read_at(self, instance_type: str) -> datetime | None:
        """Return when the on-demand price was read."""
        quote = self._tables.on_demand.get(instance_type)
        return None if quote is None else quote.read_at

    def spot_read_at(self, instance_type: str, hours: int) -> datetime | None:
        """Return when the spot prices were read."""
        quote = self._tables.spot.get(str(hours), {}).get(instance_type)
        return None if quote is None else quote.read_at

    # -- taking in -----------------------------------------------------------------------------

    def set_user_prices(self, given: UserPrices) -> None:
        """Take the user's prices in place of those given before."""
        with self._lock:
            if given != self._user_prices:
                self._user_prices = given
                self._revision += 1

    def update_on_demand(self, quotes: Mapping[str, OnDemandQuote], *, currency: str) -> None:
        """Take in on-demand prices that were read, by type."""
        usable = {name: quote for name, quote in quotes.items() if _is_price(quote.amount)}
        if not usable:
            return
        with self._lock:
            tables = self._in_currency(currency)
            prices_before = tables.on_demand
            self._tables = replace(tables, on_demand={**prices_before, **usable})
            if any(_amount(prices_before.get(name)) != it.amount for name, it in usable.items()):
                self._estimates = _estimates(self._tables.on_demand)
                self._revision += 1

    def update_spot(
        self, quotes: Mapping[str, SpotQuote], *, currency: str, hours: int = DEFAULT_SPOT_HOURS
    ) -> None:
        """Take in spot prices that were read, by type; zones that are not named have none any more."""
        usable = {
            name: SpotQuote(by_zone, quote.read_at)
            for name, quote in quotes.items()
            if (by_zone := {z: a for z, a in sorted(quote.by_zone.items()) if _is_price(a)})
        }
        if not usable:
            return
        with self._lock:
            tables = self._in_currency(currency)
            quotes_before = tables.spot.get(str(hours), {})
            self._tables = replace(
                tables, spot={**tables.spot, str(hours): {**quotes_before, **usable}}
            )
            before = {name: it.by_zone for name, it in quotes_before.items()}
            if any(before.get(name) != it.by_zone for name, it in usable.items()):
                self._revision += 1

    def update_advice(self, advice: Mapping[str, Mapping[str, SpotAdvice]]) -> None:
        """Take in what ECS says of types as spot, by type and zone."""
        usable = {
            name: {zone: it for zone, it in of.items() if _is_price(it.percent)}
            for name, of in advice.items()
        }
        with self._lock:
            changed = any(
                _percents(self._advice.get(name, {})) != _percents(of)
                for name, of in usable.items()
            )
            self._advice = {**self._advice, **usable}
            self._revision += changed

    def _in_currency(self, currency: str) -> _PriceTables:
        """Begin anew when the cloud tells prices in another currency; call under the lock."""
        if currency and currency != self._tables.currency:
            self._tables = _PriceTables(currency=currency)
            self._estimates = _estimates({})
        return self._tables

    # -- between two lives of the process --------------------------------------------------------

    def restore(self, disk: DiskCache, *, now: datetime) -> None:
        """Begin with what an earlier process read; what is damaged is as if it were not there."""
        value: object = disk.read(now=now, max_age=ON_DEMAND_LIFE)
        try:
            kept = msgspec.convert(value, _PriceTables)
        except (msgspec.ValidationError, TypeError):
            return
        self.update_on_demand(
            {name: it for name, it in kept.on_demand.items() if now - it.read_at < ON_DEMAND_LIFE},
            currency=kept.currency,
        )
        for hours, quotes in sorted(kept.spot.items()):
            if hours.isdecimal():
                self.update_spot(
                    {name: it for name, it in quotes.items() if now - it.read_at < SPOT_LIFE},
                    currency=kept.currency,
                    hours=int(hours),
                )

    def save(self, disk: DiskCache, *, now: datetime) -> None:
        """Replace what is on disk by what was read."""
        disk.write(msgspec.to_builtins(self._tables), now=now)

    # -- looking up ------------------------------------------------------------------------------

    def _known_on_demand(self, name: str, tables: _PriceTables) -> float | None:
        given = self._user_prices.on_demand.get(name)
        if given is not None:
            return given
        quote = tables.on_demand.get(name)
        if quote is not None:
            return quote.amount
        shipped = self._shipped
        return shipped.prices.get(name) if shipped.currency == tables.currency else None

    def _known_spot(self, name: str, zone: str, hours: int, tables: _PriceTables) -> float | None:
        given = self._user_prices.spot.get(name, {}).get(zone)
        if given is not None:
            return given
        quote = _quote(tables, name, hours)
        return None if quote is None else quote.by_zone.get(zone)


def _quote(tables: _PriceTables, name: str, hours: int) -> SpotQuote | None:
    """Return the spot prices for a protected time, else those for the usual one."""
    by_hours = (tables.spot.get(str(each), {}) for each in (hours, DEFAULT_SPOT_HOURS))
    return next((quotes[name] for quotes in by_hours if name in quotes), None)


def _estimates(quotes: Mapping[str, OnDemandQuote]) -> _EstimateFactors:
    per_core: dict[str, list[float]] = {}
    for quote in quotes.values():
        if quote.family and quote.cpu_cores:
            per_core.setdefault(quote.family, []).append(quote.amount / quote.cpu_cores)
    return _EstimateFactors(
        {family: median(amounts) for family, amounts in per_core.items()},
        _median(it.amount / it.by_rates for it in quotes.values() if it.by_rates > 0),
    )


def _estimate(info: InstanceTypeInfo, estimates: _EstimateFactors) -> float:
    per_core = estimates.per_core.get(info.family)
    if per_core is not None:
        return per_core * info.cpu_cores
    # A core of an instance with GPUs is no measure for one without, nor memory for cores.
    return estimates.scale * shipped_rates().price_of(info)


def _median(values: Iterable[float]) -> float:
    samples = list(values)
    return median(samples) if samples else 1.0


def _amount(quote: OnDemandQuote | None) -> float | None:
    return None if quote is None else quote.amount


def _percents(advice: Mapping[str, SpotAdvice]) -> dict[str, float]:
    return {zone: it.percent for zone, it in advice.items()}


def _is_price(amount: float) -> bool:
    return isfinite(amount) and amount > 0
