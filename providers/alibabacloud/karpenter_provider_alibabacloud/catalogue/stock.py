"""Reads which types each zone has in stock, on demand and as spot.

Stock changes by the minute, and one answer covers all types in all zones. There is one call for
on-demand and one for spot; where a region has no spot, or a call is not answered, the other one is
not affected.

A zone that listed a type once keeps it, in stock or not: the type of a node that runs there must
not vanish from the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.cached_response import CachedResponse, Fetched, decode_as
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_alibabacloud.catalogue.instance_type_info import list_at
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "DEFAULT_SPOT_HOURS",
    "REFRESH_PERIOD",
    "SPOT_STRATEGY",
    "CapacityErrorCounter",
    "RegionStock",
    "StockListing",
    "StockReader",
    "ZonesByType",
    "available_zones",
    "read_listing",
]

REFRESH_PERIOD: Final = timedelta(minutes=5)
INSTEAD_OF_WAITING: Final = timedelta(hours=1)
"""Largest age of stock that a starting process plans with; launches correct it."""
DISK_LIFE: Final = timedelta(days=30)
DEFAULT_SPOT_HOURS: Final = 1
"""Hours for which ECS protects a spot instance, unless asked otherwise."""
SPOT_STRATEGY: Final = "SpotAsPriceGo"

_IN_STOCK: Final = frozenset({"WithStock", "ClosedWithStock"})
"""`StatusCategory` of what can be had; the others are `WithoutStock` and `ClosedWithoutStock`."""
_DISK_VERSION: Final = "1"

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)

ZonesByType: TypeAlias = Mapping[str, tuple[str, ...]]
"""Zones by name of the type, both sorted."""


class StockListing(NamedTuple):
    """One answer of DescribeAvailableResource."""

    in_stock: ZonesByType
    listed: ZonesByType
    """In stock or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionStock:
    """The stock of a region at one moment."""

    on_demand: ZonesByType
    spot: Mapping[str, ZonesByType] = field(default_factory=dict[str, ZonesByType])
    """By the hours that an instance is let live at least, as text."""
    on_demand_listed: ZonesByType = field(default_factory=dict[str, tuple[str, ...]])
    """Zones that ever listed each type, in stock or not."""
    spot_listed: ZonesByType = field(default_factory=dict[str, tuple[str, ...]])

    def spot_zones(self, instance_type: str, hours: int = DEFAULT_SPOT_HOURS) -> tuple[str, ...]:
        """Return where a type is in stock as spot; what ECS was not asked yet is as by default."""
        zones = self.spot.get(str(hours))
        if zones is None:
            zones = self.spot.get(str(DEFAULT_SPOT_HOURS), {})
        return zones.get(instance_type, ())


def available_zones(
    body: Mapping[str, object], kind: str
) -> Iterator[tuple[str, Mapping[str, object], bool]]:
    """Yield each zone, each resource of a kind in it, and whether it can be had.

    `kind` is the `Type` that resources have (`InstanceType`, `SystemDisk`).
    """
    for zone in list_at(body, "AvailableZones.AvailableZone"):
        is_open = zone.get("StatusCategory") in _IN_STOCK
        for group in list_at(zone, "AvailableResources.AvailableResource"):
            if group.get("Type", kind) != kind:
                continue
            for resource in list_at(group, "SupportedResources.SupportedResource"):
                can_be_had = is_open and resource.get("StatusCategory") in _IN_STOCK
                yield str(zone.get("ZoneId", "")), resource, can_be_had


def read_listing(body: Mapping[str, object]) -> StockListing:
    """Read an answer of DescribeAvailableResource about instance types."""
    in_stock: dict[str, set[str]] = {}
    listed: dict[str, set[str]] = {}
    for zone, resource, can_be_had in available_zones(body, "InstanceType"):
        name = str(resource.get("Value", ""))
        if zone and name:
            listed.setdefault(name, set()).add(zone)
            if can_be_had:
                in_stock.setdefault(name, set()).add(zone)
    return StockListing(_sorted(in_stock), _sorted(listed))


@final
class StockReader:
    """The stock as last read; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock, cache_folder: Path) -> None:
        self._clients: Final = clients
        self._lock: Final = Lock()
        self._spot_hours: Final = {DEFAULT_SPOT_HOURS}
        self._answer: Final = CachedResponse[RegionStock](
            clock,
            DiskCache(cache_folder, f"alibabacloud-stock-{clients.region}", version=_DISK_VERSION),
            fetch=lambda last_stock: Fetched(self._fetch(last_stock)),
            decode=decode_as(
                RegionStock, is_usable=lambda it: it.on_demand_listed or it.spot_listed
            ),
            life=DISK_LIFE,
            instead_of_waiting=INSTEAD_OF_WAITING,
        )

    def current(self) -> tuple[RegionStock, int]:
        """Return the stock and a number that grows when it is another one.

        Raises:
            CloudProviderError: nothing is known yet, and ECS refused or did not answer.
        """
        return self._answer.current()

    def refresh(self, *, at_once: bool = False) -> bool:
        """Ask ECS again, unless it was asked lately; True if the stock is another one.

        With `at_once` it is asked in any case: launches say that what is known is wrong.

        Raises:
            CloudProviderError: it refused or did not answer; what was known stays.
        """
        return self._answer.refresh(unless_within=timedelta() if at_once else REFRESH_PERIOD / 2)

    def watch_spot(self, hours: int) -> bool:
        """Ask for spot with that protected time too, from the next refresh on; True if that is new."""
        with self._lock:
            is_new = hours not in self._spot_hours
            self._spot_hours.add(hours)
        return is_new

    def _fetch(self, last_stock: RegionStock | None) -> RegionStock:
        with self._lock:
            hours = sorted(self._spot_hours)
        last_stock = last_stock or RegionStock(on_demand={})
        with ThreadPoolExecutor(1 + len(hours), thread_name_prefix="alibabacloud-stock") as pool:
            futures = {each: pool.submit(self._listing, each) for each in (None, *hours)}
            errors = {each: error for each, it in futures.items() if (error := it.exception())}
        for error in errors.values():
            if not isinstance(error, CloudProviderError):
                raise error
        if len(errors) == len(futures):
            raise errors[None]
        answers = {each: it.result() for each, it in futures.items() if each not in errors}
        for each, error in errors.items():
            way = "on-demand" if each is None else f"spot of {each} hours"
            _log.warning("stock of instance types could not be read", way=way, error=str(error))
        return _combined(last_stock, answers)

    def _listing(self, spot_hours: int | None) -> StockListing:
        spot = {"SpotStrategy": SPOT_STRATEGY, "SpotDuration": spot_hours}
        with core_errors_of():
            body = self._clients.ecs.call(
                "DescribeAvailableResource",
                {
                    "RegionId": self._clients.region,
                    "DestinationResource": "InstanceType",
                    "InstanceChargeType": "PostPaid",
                    **({} if spot_hours is None else spot),
                },
            )
        listing = read_listing(body)
        if spot_hours is None and not listing.listed:
            # A region may sell no spot, but it sells something.
            raise CloudProviderError(
                "ecs:DescribeAvailableResource: no instance types found in region "
                f"{self._clients.region}"
            )
        return listing


def _combined(last_stock: RegionStock, answers: Mapping[int | None, StockListing]) -> RegionStock:
    """Put what was answered in place of what was known of it."""
    on_demand = answers.get(None)
    spot = {hours: it for hours, it in answers.items() if hours is not None}
    return RegionStock(
        on_demand=last_stock.on_demand if on_demand is None else on_demand.in_stock,
        spot={
            **last_stock.spot,
            **{str(hours): it.in_stock for hours, it in sorted(spot.items())},
        },
        on_demand_listed=_union(
            last_stock.on_demand_listed, *([] if on_demand is None else [on_demand.listed])
        ),
        spot_listed=_union(last_stock.spot_listed, *(it.listed for it in spot.values())),
    )


def _union(*maps: ZonesByType) -> dict[str, tuple[str, ...]]:
    zones: dict[str, set[str]] = {}
    for each in maps:
        for name, of in each.items():
            zones.setdefault(name, set()).update(of)
    return _sorted(zones)


def _sorted(zones: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(zones[name])) for name in sorted(zones)}


@final
class CapacityErrorCounter:
    """Detects wrong stock by the refusals of launches; callable from any thread."""

    def __init__(self, most: int = 3) -> None:
        self._most: Final = most
        self._lock: Final = Lock()
        self._in_a_row = 0

    def note(self, *, sold_out: bool) -> bool:
        """Count the outcome of a launch; True at each third one in a row that found nothing."""
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if sold_out else 0
            if self._in_a_row < self._most:
                return False
            self._in_a_row = 0
            return True
