"""Reads the region's quotas, and reserves vCPUs for launches not yet counted.

A virtual machine counts against the quota of its family and the region's quota (`cores`), or as spot
against the region's quota for spot alone (`lowPriorityCores`). An unknown quota restricts
nothing: Azure refuses the launch if need be. That also holds once readings have failed for 15 minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard, final

import structlog

from karpenter_core.api.labels import SPOT
from karpenter_provider_azure.json_values import object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.clock import Clock
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = [
    "CHECK_PERIOD",
    "QUOTA_LIFE",
    "QUOTA_PERIOD",
    "ExhaustedQuota",
    "Quota",
    "QuotaSnapshot",
    "RegionQuotas",
    "counts_vcpus",
    "exhausted_quotas",
    "parse_usages",
    "quota_remark",
]

QUOTA_PERIOD: Final = timedelta(minutes=10)
CHECK_PERIOD: Final = timedelta(minutes=1)
"""Least time between two readings."""
_FREED_WITHIN: Final = timedelta(minutes=2)
"""Azure counts a virtual machine until it is gone, which takes up to this long."""
QUOTA_LIFE: Final = timedelta(minutes=15)
"""Longest validity of a reading when later ones fail."""
RESERVATION_LIFE: Final = timedelta(minutes=10)
"""Time for which an unfinished launch is counted."""

_SHOWN: Final = 5
"""Names of families in a text."""
REGIONAL_QUOTA: Final = "cores"
SPOT_QUOTA: Final = "lowprioritycores"
_FAMILY: Final = "family"
"""Names of quotas of families end so."""

_log: Final[FilteringBoundLogger] = structlog.get_logger(__name__)


class Quota(NamedTuple):
    """A limit of vCPUs, and how many of them are in use."""

    limit: int
    used: int


def parse_usages(items: Iterable[JsonMapping]) -> dict[str, Quota]:
    """Return quotas by name in lower case; entries without a usable limit or usage are left out.

    A negative limit is none: other services of Azure write "unlimited" so.
    """
    quotas: dict[str, Quota] = {}
    for item in items:
        name, limit = object_of(item.get("name")).get("value"), item.get("limit")
        used = item.get("currentValue")
        if isinstance(name, str) and name and _is_count(limit) and _is_count(used):
            quotas[name.lower()] = Quota(limit, used)
    return {name: quotas[name] for name in sorted(quotas)}


def counts_vcpus(name: str) -> bool:
    """Whether a quota limits vCPUs: of a family of VM sizes, or of the region."""
    name = name.lower()
    return name.endswith(_FAMILY) or name in {REGIONAL_QUOTA, SPOT_QUOTA}


def quota_names(size: VmSize, capacity_type: str) -> tuple[str, ...]:
    """Return the quotas that a virtual machine counts against, in lower case."""
    if capacity_type == SPOT:
        return (SPOT_QUOTA,)
    return (REGIONAL_QUOTA, size.quota_group) if size.family else (REGIONAL_QUOTA,)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSnapshot:
    """The quotas at one moment; two with the same `revision` are equal."""

    revision: int = 0
    quotas: Mapping[str, Quota] = field(default_factory=dict[str, Quota])
    """By name in lower case."""
    reserved: Mapping[str, int] = field(default_factory=dict[str, int])
    """vCPUs of launches that `quotas` does not count yet, by name."""

    def remaining(self, name: str) -> int | None:
        """Return the vCPUs left of a quota; None if it is unknown."""
        quota = self.quotas.get(name.lower())
        if quota is None:
            return None
        return quota.limit - quota.used - self.reserved.get(name.lower(), 0)

    def has_room(self, size: VmSize, capacity_type: str) -> bool:
        """Whether the known quotas allow one more virtual machine."""
        return not self.short_quota(size, capacity_type)

    def short_quota(self, size: VmSize, capacity_type: str) -> str:
        """Return the first quota that is too small for one more; empty if there is room."""
        for name in quota_names(size, capacity_type):
            left = self.remaining(name)
            if left is not None and left < size.cpus:
                return name
        return ""


@dataclass(slots=True, kw_only=True)
class _Reservation:
    """The vCPUs of one launch."""

    names: tuple[str, ...]
    cpus: int
    expires_at: float
    answered_at: float | None = None
    """Time of Azure's answer, which counts from then on; None while the launch is open."""


@final
class RegionQuotas:
    """The quotas as last read; callable from any thread."""

    def __init__(self, clock: Clock, *, fetch: Callable[[], Sequence[JsonMapping]]) -> None:
        """`fetch` returns the usages of the region and raises CloudProviderError."""
        self._clock: Final = clock
        self._fetch: Final = fetch
        self._lock: Final = Lock()
        self._snapshot = QuotaSnapshot()
        self._read_at: float | None = None
        self._deleted_at: float | None = None
        """Time of the last deletion that a later reading may not show yet."""
        self._reservations: Final[dict[str, _Reservation]] = {}

    def view(self) -> QuotaSnapshot:
        """Return the quotas; empty ones if none was read within `QUOTA_LIFE`."""
        with self._lock:
            return self._current(self._clock.monotonic())

    def is_due(self) -> bool:
        """Whether to read the quotas now: the last reading is old, or deletions have freed quota since."""
        with self._lock:
            if self._read_at is None or self._deleted_at is not None:
                return True
            return self._clock.monotonic() - self._read_at >= QUOTA_PERIOD.total_seconds()

    def note_deleted(self) -> None:
        """Read the quotas every minute until they cannot count a virtual machine any more."""
        with self._lock:
            self._deleted_at = self._clock.monotonic()

    def refresh(self) -> bool:
        """Read the quotas; return True if they are different.

        Raises:
            CloudProviderError: Azure refused or did not answer; the last reading stays for a while.
        """
        started_at = self._clock.monotonic()
        quotas = parse_usages(self._fetch())
        with self._lock:
            before = self._snapshot.revision
            self._read_at = started_at
            deleted_at = self._deleted_at
            if deleted_at is not None and started_at - deleted_at > _FREED_WITHIN.total_seconds():
                self._deleted_at = None
            for key in [
                key for key, it in self._reservations.items() if _is_counted(it, started_at)
            ]:
                del self._reservations[key]
            self._replace(quotas=quotas)
            return self._snapshot.revision != before

    def reserve(self, key: str, size: VmSize, capacity_type: str) -> str:
        """Count the vCPUs of a launch if the known quotas allow it; return the first that does not.

        Check and count are one step, so that launches at the same time stay within the quotas
        together. The key is one of the launch, and counts once.
        """
        with self._lock:
            now = self._clock.monotonic()
            before = self._reservations.pop(key, None)
            self._replace()
            short = self._current(now).short_quota(size, capacity_type)
            if not short:
                self._reservations[key] = _Reservation(
                    names=quota_names(size, capacity_type),
                    cpus=size.cpus,
                    expires_at=now + RESERVATION_LIFE.total_seconds(),
                )
            elif before is not None:
                self._reservations[key] = before
            self._replace()
            return short

    def note_launched(self, key: str) -> None:
        """Count a launch that Azure has accepted until a later reading counts it."""
        with self._lock:
            reservation = self._reservations.get(key)
            if reservation is not None:
                reservation.answered_at = self._clock.monotonic()

    def release(self, key: str) -> None:
        """Stop counting a launch: Azure has refused it, or the virtual machine is gone."""
        with self._lock:
            if self._reservations.pop(key, None) is not None:
                self._replace()

    def _current(self, now: float) -> QuotaSnapshot:
        """Return the quotas without what is out of date; call under the lock."""
        if self._read_at is not None and now - self._read_at > QUOTA_LIFE.total_seconds():
            _log.warning("quotas are out of date and restrict no launches", age=str(QUOTA_LIFE))
            self._read_at = None
            self._replace(quotas={})
        self._drop_expired(now)
        return self._snapshot

    def _drop_expired(self, now: float) -> None:
        expired = [key for key, it in self._reservations.items() if it.expires_at <= now]
        for key in expired:
            del self._reservations[key]
        if expired:
            self._replace()

    def _replace(self, *, quotas: Mapping[str, Quota] | None = None) -> None:
        """Replace the snapshot if it changes; call under the lock."""
        reserved: dict[str, int] = {}
        for name, cpus in self._reserved():
            reserved[name] = reserved.get(name, 0) + cpus
        snapshot = self._snapshot
        changed = replace(
            snapshot, quotas=snapshot.quotas if quotas is None else quotas, reserved=reserved
        )
        if changed != snapshot:
            self._snapshot = replace(changed, revision=snapshot.revision + 1)

    def _reserved(self) -> Iterator[tuple[str, int]]:
        for reservation in self._reservations.values():
            for name in reservation.names:
                yield name, reservation.cpus


def _is_counted(reservation: _Reservation, read_at: float) -> bool:
    """Whether a reading that began then counts the launch."""
    return reservation.answered_at is not None and reservation.answered_at <= read_at


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedQuota:
    """A quota without room, or several families' quotas; texts do not change with the usage."""

    text: str
    """The quota, its limit, and the instances that cannot be launched."""
    is_total: bool = False
    """Whether no on-demand instance can be launched."""


def exhausted_quotas(quotas: Mapping[str, Quota]) -> tuple[ExhaustedQuota, ...]:
    """Return the quotas that are used up; `quotas` are by name in lower case, unknown ones missing.

    A family whose limit is 0 was never asked for, and counts only if no other family has room.
    """
    found: list[ExhaustedQuota] = []
    regional, spot = quotas.get(REGIONAL_QUOTA), quotas.get(SPOT_QUOTA)
    if regional is not None and regional.used >= regional.limit:
        text = f'regional vCPUs ("cores", limit {regional.limit}): no on-demand instances'
        found.append(ExhaustedQuota(text=text, is_total=True))
    if spot is not None and spot.used >= spot.limit:
        text = f'spot vCPUs ("lowPriorityCores", limit {spot.limit}): no spot instances'
        found.append(ExhaustedQuota(text=text))
    families = {name: it for name, it in sorted(quotas.items()) if name.endswith(_FAMILY)}
    if families and all(it.used >= it.limit for it in families.values()):
        text = "vCPUs of every VM family: no on-demand instances"
        found.append(ExhaustedQuota(text=text, is_total=True))
    elif used_up := [name for name, it in families.items() if 0 < it.limit <= it.used]:
        more = f" and {len(used_up) - _SHOWN} others" if len(used_up) > _SHOWN else ""
        names = ", ".join(used_up[:_SHOWN])
        text = f"vCPUs of {names}{more}: no on-demand instances of these families"
        found.append(ExhaustedQuota(text=text))
    return tuple(found)


def quota_remark(quotas: Mapping[str, Quota], *, location: str) -> str:
    """Return the message of a condition about quotas that are used up; empty if none is."""
    found = "; ".join(it.text for it in exhausted_quotas(quotas))
    return f"no quota is left in {location} for {found}" if found else ""
