"""Reads the system disk categories of each type, zone by zone.

ECS refuses a launch with a category that the zone does not have for the type, so types are filtered
by the categories that the NodeClass allows. Each type is a call; answers are cached for half an
hour, and those of types in use are refreshed in the background before they expire.

An unanswered call keeps nothing from being launched: ECS refuses the launch if the category is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_core.provider.kit.unavailable_offerings import UNAVAILABLE_TTL
from karpenter_provider_alibabacloud.api_answers import objects_at
from karpenter_provider_alibabacloud.catalogue.instance_type_info import list_at
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "REFRESH_PERIOD",
    "DiskShortage",
    "DisksByZone",
    "SystemDiskReader",
    "read_system_disks",
    "usable_categories",
]

TTL: Final = timedelta(minutes=30)
REFRESH_PERIOD: Final = timedelta(minutes=5)
"""Period of checks for answers that are about to expire."""
RETRY: Final = timedelta(minutes=1)
"""Pause before ECS is asked again about a type that it did not answer about."""
IN_USE_LIFE: Final = timedelta(hours=2)
"""Time after the last launch of a type for which its answer is renewed in advance."""

_RENEWED_BEFORE_END: Final = 2 * REFRESH_PERIOD
_THREADS: Final = 8
_ACTION: Final = "ecs:DescribeAvailableResource"
_AVAILABLE: Final = "Available"
_WITH_STOCK: Final = "WithStock"

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)

DisksByZone: TypeAlias = Mapping[str, frozenset[str]]
"""Categories of system disks by zone; a zone that is not named has none for the type."""


class DiskShortage(NamedTuple):
    """A kind of disk that a launch of a type found a zone to be without; of no type, for all types."""

    instance_type: str
    zone: str
    category: str


class _DiskAnswer(NamedTuple):
    disks: DisksByZone | None
    """None when ECS did not say."""
    asked_at: datetime


def read_system_disks(body: Mapping[str, object]) -> dict[str, frozenset[str]]:
    """Read an answer of DescribeAvailableResource about system disks of one type.

    Raises:
        CloudProviderError: it has no list of zones.
    """
    categories_by_zone: dict[str, set[str]] = {}
    for zone in objects_at(body, "AvailableZones.AvailableZone", action=_ACTION):
        if not _is_available(zone):
            continue
        for group in list_at(zone, "AvailableResources.AvailableResource"):
            for resource in list_at(group, "SupportedResources.SupportedResource"):
                if group.get("Type", "SystemDisk") == "SystemDisk" and _is_available(resource):
                    categories_by_zone.setdefault(str(zone.get("ZoneId", "")), set()).add(
                        str(resource.get("Value", ""))
                    )
    return {zone: frozenset(categories_by_zone[zone]) for zone in sorted(categories_by_zone)}


def _is_available(item: Mapping[str, object]) -> bool:
    """Whether a zone, or a kind of disk in it, can be had; what is not said is no hindrance."""
    return (
        item.get("Status", _AVAILABLE) == _AVAILABLE
        and item.get("StatusCategory", _WITH_STOCK) == _WITH_STOCK
    )


def usable_categories(
    disks: DisksByZone | None, zone: str, wanted: Sequence[str]
) -> tuple[str, ...]:
    """Return those of the wanted kinds that a zone has, in their order; all, if nothing is known."""
    if disks is None:
        return tuple(wanted)
    there = disks.get(zone, frozenset())
    return tuple(category for category in wanted if category in there)


@final
class SystemDiskReader:
    """Reads and caches the system disks of requested types; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._answers: Final[TtlCache[str, _DiskAnswer]] = TtlCache(clock, TTL)
        self._shortages: Final[TtlCache[DiskShortage, bool]] = TtlCache(clock, UNAVAILABLE_TTL)
        self._lock: Final = Lock()
        self._used_at: Final[dict[str, datetime]] = {}

    def of(self, instance_types: Iterable[str]) -> dict[str, DisksByZone | None]:
        """Return what is known of types, by name; what is not known yet is asked, all at once.

        None stands for a type that ECS does not say anything of.
        """
        names = sorted(set(instance_types))
        now = self._clock.now()
        with self._lock:
            self._used_at.update(dict.fromkeys(names, now))
        disks_by_type = {name: self._answers.get(name) for name in names}
        self._ask([name for name, answer in disks_by_type.items() if answer is None])
        short = self._shortages.items()
        return {name: self._without_shortages(name, short) for name in names}

    def mark(self, *shortages: DiskShortage) -> None:
        """Note that launches found zones to be without kinds of disk; it holds for some minutes."""
        for shortage in shortages:
            self._shortages.put(shortage, value=True)

    def refresh(self) -> int:
        """Renew the answers about types in use that are about to end; how many there were."""
        now = self._clock.now()
        with self._lock:
            for name in [n for n, at in self._used_at.items() if now - at > IN_USE_LIFE]:
                del self._used_at[name]
            used = sorted(self._used_at)
        answers = self._answers.items()
        due = [
            name
            for name in used
            if name not in answers or now - answers[name].asked_at > TTL - _RENEWED_BEFORE_END
        ]
        self._ask(due)
        return len(due)

    def _without_shortages(
        self, name: str, short: Mapping[DiskShortage, bool]
    ) -> DisksByZone | None:
        answer = self._answers.get(name)
        if answer is None or answer.disks is None:
            return None
        return {
            zone: frozenset(
                it
                for it in there
                if DiskShortage(name, zone, it) not in short
                and DiskShortage("", zone, it) not in short
            )
            for zone, there in answer.disks.items()
        }

    def _ask(self, names: Sequence[str]) -> None:
        if not names:
            return
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="alibabacloud-disks") as pool:
            for name, disks in zip(names, pool.map(self._fetch, names), strict=True):
                answer = _DiskAnswer(disks, self._clock.now())
                if disks is not None:
                    self._answers.put(name, answer)
                elif self._answers.get(name) is None:
                    self._answers.put(name, answer, ttl=RETRY)

    def _fetch(self, name: str) -> DisksByZone | None:
        try:
            with core_errors_of():
                body = self._clients.ecs.call(
                    "DescribeAvailableResource",
                    {
                        "RegionId": self._clients.region,
                        "DestinationResource": "SystemDisk",
                        "InstanceType": name,
                    },
                )
            return read_system_disks(body)
        except CloudProviderError as error:
            _log.warning("system disks could not be read", instance_type=name, error=str(error))
            return None
