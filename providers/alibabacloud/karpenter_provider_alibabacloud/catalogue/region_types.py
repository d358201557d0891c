"""Reads the instance types of a region from ECS, with a cache on disk.

ECS describes a hundred types a call, so a region takes a dozen calls one after the other. A new
process reads the cache of an earlier one, whatever its age, and refreshes it in the background.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.provider.kit.cached_response import (
    CachedResponse,
    Fetched,
    decode_as,
    fetched_items,
)
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_alibabacloud.catalogue.instance_type_info import (
    InstanceTypeInfo,
    read_instance_type,
    type_name,
)
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "REFRESH_PERIOD",
    "RegionTypeReader",
    "TypesByName",
    "fetch_region_types",
    "refresh_period",
]

REFRESH_PERIOD: Final = timedelta(hours=12)
DISK_LIFE: Final = timedelta(days=30)
"""Largest age of facts that a start uses instead of waiting for ECS: types are added, and none changes."""

_CALL: Final = "ecs:DescribeInstanceTypes"
_SPREAD: Final = 0.1
_DISK_VERSION: Final = "1"
_PAGE: Final = 100
"""The documentation says 1600; accounts are held to a hundred."""

TypesByName: TypeAlias = Mapping[str, InstanceTypeInfo]
"""Facts by name of the type, sorted."""


def refresh_period(draw: float) -> timedelta:
    """Return how long to wait between two refreshes, by a number from 0 to 1 that is drawn once.

    It is the usual period, a tenth more or less, so that the controllers of many clusters that started
    together do not go on calling together.
    """
    return REFRESH_PERIOD * (1 + _SPREAD * (2 * draw - 1))


def fetch_region_types(
    clients: CloudClients, last: TypesByName | None = None
) -> Fetched[TypesByName]:
    """Ask ECS for all types; of one that cannot be read, what `last` has stays.

    Raises:
        CloudProviderError: it refused, did not answer, or knows no types.
    """
    with core_errors_of():
        items = clients.ecs.pages(
            "DescribeInstanceTypes", {"MaxResults": _PAGE}, items="InstanceTypes.InstanceType"
        )
        types: dict[str, InstanceTypeInfo] = {}
        unreadable: dict[str, str] = {}
        for item in items:
            try:
                info = read_instance_type(item)
            except ValueError as error:
                unreadable[type_name(item)] = str(error)
            else:
                types[info.name] = info
    none_found = f"no instance types found in region {clients.region}"
    return fetched_items(_CALL, types, unreadable=unreadable, last=last, none_found=none_found)


@final
class RegionTypeReader:
    """The types as last read; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock, cache_folder: Path) -> None:
        self._answer: Final = CachedResponse[TypesByName](
            clock,
            DiskCache(cache_folder, f"alibabacloud-types-{clients.region}", version=_DISK_VERSION),
            fetch=lambda last: fetch_region_types(clients, last),
            decode=decode_as(dict[str, InstanceTypeInfo], is_usable=bool),
            life=DISK_LIFE,
        )

    def current(self) -> tuple[TypesByName, int]:
        """Return the types and a number that grows when there are others.

        Raises:
            CloudProviderError: nothing is known yet, and ECS refused or did not answer.
        """
        return self._answer.current()

    def refresh(self, *, at_once: bool = False) -> bool:
        """Ask ECS again, unless it was asked lately; True if there are other types now.

        With `at_once` it is asked in any case: launches say that what is known is wrong.

        Raises:
            CloudProviderError: it refused or did not answer, and what was known stays; or a type cannot
                be read.
        """
        return self._answer.refresh(unless_within=timedelta() if at_once else REFRESH_PERIOD / 2)
