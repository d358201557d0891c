"""Reads the VM sizes of a region, with a cache on disk.

The answer has several megabytes. A new process uses the cache of an earlier one and reads again in the
background; without a cache its first reading must succeed before any controller starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.provider.kit.cached_response import (
    CachedResponse,
    Fetched,
    decode_as,
    fetched_items,
)
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_azure.catalogue.class_traits import general_exclusion
from karpenter_provider_azure.catalogue.vm_sizes import VmSize, parse_skus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.arm.client import ArmClient

__all__ = [
    "REFRESH_PERIOD",
    "RegionSizeReader",
    "SizesByName",
    "list_skus",
    "list_usages",
    "refresh_period",
]

_ACTION: Final = "skus:list"
SKUS_API_VERSION: Final = "2021-07-01"
USAGES_API_VERSION: Final = "2024-07-01"


def list_skus(arm: ArmClient) -> list[JsonObject]:
    """Return the items of Microsoft.Compute/skus for the region.

    Raises:
        CloudProviderError: Azure refused or did not answer.
    """
    return arm.list_all(
        f"/subscriptions/{arm.subscription_id}/providers/Microsoft.Compute/skus",
        api_version=SKUS_API_VERSION,
        action=_ACTION,
        query={"$filter": f"location eq '{arm.location}'"},
    )


def list_usages(arm: ArmClient) -> list[JsonObject]:
    """Return the items of Microsoft.Compute/locations/usages for the region.

    Raises:
        CloudProviderError: Azure refused or did not answer.
    """
    return arm.list_all(
        f"/subscriptions/{arm.subscription_id}/providers/Microsoft.Compute/locations"
        f"/{arm.location}/usages",
        api_version=USAGES_API_VERSION,
        action="usages:list",
    )


REFRESH_PERIOD: Final = timedelta(hours=12)
DISK_LIFE: Final = timedelta(days=7)
"""Maximum age of stored sizes that are better than waiting: restrictions change."""

_SPREAD: Final = 0.1
_DISK_VERSION: Final = "3"

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)

SizesByName: TypeAlias = Mapping[str, VmSize]
"""VM sizes that nodes can use, by name, sorted."""


def refresh_period(draw: float) -> timedelta:
    """Return the time between two readings, by a number from 0 to 1 that is drawn once.

    Processes that start together read up to a tenth earlier or later, so that they do not go on
    calling together.
    """
    return REFRESH_PERIOD * (1 + _SPREAD * (2 * draw - 1))


@final
class RegionSizeReader:
    """The sizes as last read; callable from any thread."""

    def __init__(
        self,
        location: str,
        clock: Clock,
        cache_folder: Path,
        *,
        fetch: Callable[[], Sequence[JsonMapping]],
        cache_key: str,
    ) -> None:
        """`fetch` returns the items of Microsoft.Compute/skus and raises CloudProviderError.

        `cache_key` distinguishes stored answers besides the region: the subscription.
        """
        self._location: Final = location
        self._fetch: Final = fetch
        self._reported: Final[set[str]] = set()
        name = "-".join(part for part in ("azure-sizes", location.lower(), cache_key) if part)
        self._answer: Final = CachedResponse[SizesByName](
            clock,
            DiskCache(cache_folder, name, version=_DISK_VERSION),
            fetch=self._read,
            decode=decode_as(dict[str, VmSize], is_usable=bool),
            life=DISK_LIFE,
        )

    def current(self) -> tuple[SizesByName, int]:
        """Return the sizes and a number that grows when they change.

        Raises:
            CloudProviderError: nothing is known yet, and Azure refused or did not answer.
        """
        return self._answer.current()

    def refresh(self) -> bool:
        """Read again, unless the last reading is recent; return True if the sizes have changed.

        Raises:
            CloudProviderError: Azure refused, did not answer, or knows no sizes, and the old ones stay; or
                a size cannot be read.
        """
        return self._answer.refresh(unless_within=REFRESH_PERIOD / 2)

    def _read(self, last: SizesByName | None) -> Fetched[SizesByName]:
        parsed = parse_skus(self._fetch(), self._location)
        sizes = {name: it for name, it in parsed.sizes.items() if not general_exclusion(it)}
        unreported = {n: why for n, why in parsed.skipped.items() if n not in self._reported}
        if unreported:
            self._reported.update(unreported)
            _log.warning("VM sizes are left out", reasons=unreported)
        return fetched_items(
            _ACTION,
            sizes,
            unreadable=parsed.unreadable,
            last=last,
            none_found=f"no VM sizes found in region {self._location}",
        )
