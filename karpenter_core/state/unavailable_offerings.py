"""Masks unavailable offerings in the published catalogues.

A stock-out takes effect in the next pass, not with the next refresh of the catalogue: the mask is
applied to the provider's catalogue, and the version of the result changes exactly when the mask
does, so that compiled columns are reused as long as they are valid.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.api.labels import SPOT
from karpenter_core.errors import OfferingKey, QuotaGroup
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.ledger import UNAVAILABLE_TTL
from karpenter_core.state.overlaid_catalogues import OverlaidCatalogues
from karpenter_core.state.tables import SnapshotTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.errors import OfferingMask
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.overlays import OverlayStore
    from karpenter_core.scheduling.requirements import Requirements
    from karpenter_core.state.ledger_view import LedgerView, OfferingShortage

__all__ = [
    "MAX_SPOT_UNAVAILABILITY",
    "AvailableCatalogues",
    "contain_offerings",
    "without_unavailable",
]

MAX_SPOT_UNAVAILABILITY: Final = UNAVAILABLE_TTL
"""While a spot offering is masked, on-demand is launched instead, at two to four times the price
for as long as the node lives. One failed launch every three minutes costs less."""


@final
class AvailableCatalogues:
    """The published catalogue of each pool, and the masked one."""

    __slots__ = (
        "_changes_at",
        "_classes",
        "_filtered_by_pool",
        "_masked",
        "_overlaid",
        "_providers",
        "_refs",
        "_stale",
    )

    def __init__(self, providers: Mapping[tuple[str, str], str], *, overlays: bool) -> None:
        """With `overlays`, a pool has no catalogue until its overlays are evaluated."""
        self._providers = providers
        self._refs: dict[str, tuple[str, str]] = {}
        self._classes: dict[str, str] = {}
        """Names of the pools' NodeClasses."""
        self._overlaid: OverlaidCatalogues = OverlaidCatalogues(overlays=overlays)
        self._masked: SnapshotTable[str, Catalogue] = SnapshotTable()
        self._filtered_by_pool: dict[str, _FilteredCatalogue] = {}
        """The sources of the catalogues in `_masked`."""
        self._stale: set[str] = set()
        self._changes_at: dict[str, datetime] = {}

    def put_pool(self, new: NodePool | None, old: NodePool | None) -> None:
        """Follow which provider a pool belongs to; a pool that is gone has no catalogue."""
        if new is not None:
            ref = new.spec.template.spec.node_class_ref
            filed_refs = (*self._refs.get(new.name, ()), self._classes.get(new.name))
            if filed_refs != (ref.group, ref.kind, ref.name):
                self._refs[new.name] = (ref.group, ref.kind)
                self._classes[new.name] = ref.name
                self._stale.add(new.name)
        elif old is not None:
            self._refs.pop(old.name, None)
            self._classes.pop(old.name, None)
            self.publish(old.name, None)

    def publish(self, pool: str, catalogue: Catalogue | None) -> None:
        """Set or remove a pool's catalogue."""
        self._stale.add(pool)
        self._overlaid.publish(pool, catalogue)

    def overlay(self, store: OverlayStore) -> tuple[str, ...]:
        """Take the changes of overlays; return the pools whose catalogues change."""
        pools = self._overlaid.overlay(store)
        self._stale.update(pools)
        return pools

    def listed(self) -> Mapping[str, Catalogue]:
        """Return the catalogues as they were published, by pool."""
        return self._overlaid.listed()

    def touch_provider(self, provider: str) -> tuple[str, ...]:
        """Note that the mask of a provider changed; return its pools."""
        pools = tuple(
            sorted(
                pool
                for pool, ref in self._refs.items()
                if self._providers.get(ref) == provider and pool in self._overlaid
            )
        )
        self._stale.update(pools)
        return pools

    def touch_expired(self, now: datetime) -> tuple[str, ...]:
        """Note the pools whose mask has expired; return them."""
        pools = tuple(sorted(pool for pool, at in self._changes_at.items() if at <= now))
        for pool in pools:
            del self._changes_at[pool]
        self._stale.update(pools)
        return pools

    def touch_unavailable(self) -> tuple[str, ...]:
        """Note that the expiry of every mask may have moved; return the pools with a mask."""
        pools = tuple(sorted(self._changes_at))
        self._stale.update(pools)
        return pools

    def freeze(self, ledger: LedgerView, now: datetime) -> Mapping[str, Catalogue]:
        """Return every pool's catalogue as it is now.

        A catalogue is masked again only when it or its mask changed, and once for all pools that
        share both: the shortage of a quota names thousands of offerings, and each failed claim
        reports it again.
        """
        if self._stale:
            shared = {
                (id(each.published), each.out): each for each in self._filtered_by_pool.values()
            }
            masks: dict[tuple[str, str], _UnavailableSet] = {}
            for pool in self._stale:
                self._renew(pool, ledger, now, masks, shared)
            self._stale.clear()
        return self._masked.freeze()

    def _renew(
        self,
        pool: str,
        ledger: LedgerView,
        now: datetime,
        masks: dict[tuple[str, str], _UnavailableSet],
        shared: dict[tuple[int, frozenset[OfferingMask]], _FilteredCatalogue],
    ) -> None:
        """Mask one pool's catalogue; `masks` and `shared` are results to reuse."""
        self._changes_at.pop(pool, None)
        catalogue = self._overlaid.get(pool)
        if catalogue is None:
            self._filtered_by_pool.pop(pool, None)
            self._masked.drop(pool)
            return
        provider = self._providers.get(self._refs.get(pool, ("", "")), "")
        source = provider, self._classes.get(pool, "")
        mask = masks.get(source)
        if mask is None:
            mask = masks[source] = _unavailable_set(ledger, *source, now=now)
        if mask.changes_at is not None:
            self._changes_at[pool] = mask.changes_at
        key = id(catalogue), mask.out
        made = shared.get(key)
        if made is None:
            made = shared[key] = _FilteredCatalogue(
                catalogue, mask.out, without_unavailable(catalogue, mask.out)
            )
        self._filtered_by_pool[pool] = made
        if self._masked.get(pool) is not made.result:
            self._masked.put(pool, made.result)


class _UnavailableSet(NamedTuple):
    """The offerings of a provider that are masked for pools of a NodeClass."""

    out: frozenset[OfferingMask]
    changes_at: datetime | None
    """The time when the first of them is tried again; None without any."""


class _FilteredCatalogue(NamedTuple):
    """A published catalogue, its mask and the two as one."""

    published: Catalogue
    out: frozenset[OfferingMask]
    result: Catalogue


def _unavailable_set(
    ledger: LedgerView, provider: str, node_class: str, *, now: datetime
) -> _UnavailableSet:
    ends: dict[OfferingMask, datetime] = {}
    for key, entry in ledger.unavailable_offerings.items():
        if key.provider == provider and key.node_class in {"", node_class}:
            end = _available_again_at(key.offering, entry)
            ends[key.offering] = max(ends.get(key.offering, end), end)
    out = {offering: end for offering, end in ends.items() if now < end}
    return _UnavailableSet(frozenset(out), min(out.values(), default=None))


def _available_again_at(offering: OfferingMask, entry: OfferingShortage) -> datetime:
    """Return when an offering is tried again: spot soon, however often it was found empty."""
    longest = MAX_SPOT_UNAVAILABILITY if offering.capacity_type == SPOT else entry.ttl
    return entry.until - entry.ttl + min(entry.ttl, longest)


def without_unavailable(catalogue: Catalogue, exhausted: frozenset[OfferingMask]) -> Catalogue:
    """Return the catalogue with these offerings unavailable; itself when none of them is in it."""
    groups = _QuotaGroups(key for key in exhausted if isinstance(key, QuotaGroup))
    names = {key.instance_type for key in exhausted if isinstance(key, OfferingKey)}
    hidden: list[str] = []
    types: list[InstanceType] = []
    for instance_type in catalogue.instance_types:
        if groups or instance_type.name in names:
            types.append(_without_unavailable(instance_type, exhausted, groups, hidden))
        else:
            types.append(instance_type)
    if not hidden:
        return catalogue
    digest = blake2b("\n".join(sorted(hidden)).encode(), digest_size=8).hexdigest()
    return Catalogue(version=f"{catalogue.version}~{digest}", instance_types=tuple(types))


def _without_unavailable(
    instance_type: InstanceType,
    exhausted: frozenset[OfferingMask],
    groups: _QuotaGroups,
    hidden: list[str],
) -> InstanceType:
    of_type = groups.of_type(instance_type)
    out: dict[int, Offering] = {}
    for index, offering in enumerate(instance_type.offerings):
        key = OfferingKey(
            instance_type=instance_type.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
        )
        if offering.available and (
            key in exhausted
            or _is_offered_in(offering, (*of_type, *groups.of_offering(instance_type, offering)))
        ):
            out[index] = replace(offering, available=False)
            hidden.append(f"{key.instance_type}/{key.zone}/{key.capacity_type}")
    if not out:
        return instance_type
    offerings = (out.get(index, each) for index, each in enumerate(instance_type.offerings))
    return replace(instance_type, offerings=tuple(offerings))


@final
class _QuotaGroups:
    """Quota groups by label and value: a quota of many families is a group for each of them."""

    __slots__ = ("_by_label", "_everywhere")

    def __init__(self, groups: Iterable[QuotaGroup]) -> None:
        self._everywhere: list[QuotaGroup] = []
        self._by_label: dict[str, dict[str, list[QuotaGroup]]] = {}
        for group in groups:
            if group.label:
                by_value = self._by_label.setdefault(group.label, {})
                by_value.setdefault(group.value, []).append(group)
            else:
                self._everywhere.append(group)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._everywhere or self._by_label)

    def of_type(self, instance_type: InstanceType) -> tuple[QuotaGroup, ...]:
        """Return the groups that an instance type is in by its size and its own labels."""
        found = (*self._everywhere, *self._of(instance_type.requirements))
        return tuple(each for each in found if _cpu_milli(instance_type) >= each.least_cpu_milli)

    def of_offering(
        self, instance_type: InstanceType, offering: Offering
    ) -> tuple[QuotaGroup, ...]:
        """Return the groups that an offering is in by the type's size and its own labels."""
        found = self._of(offering.requirements)
        return tuple(each for each in found if _cpu_milli(instance_type) >= each.least_cpu_milli)

    def _of(self, requirements: Requirements) -> Iterator[QuotaGroup]:
        for label, by_value in self._by_label.items():
            if label not in requirements:
                continue
            requirement = requirements.get(label)
            for value in by_value if requirement.complement else requirement.values:
                if requirement.has(value):
                    yield from by_value.get(value, ())


def _cpu_milli(instance_type: InstanceType) -> int:
    return instance_type.capacity.get("cpu", 0)


def contain_offerings(groups: Iterable[QuotaGroup], instance_types: Iterable[InstanceType]) -> bool:
    """Tell whether an offering of these instance types, available or not, is in one of the groups."""
    found = _QuotaGroups(groups)
    return any(
        _is_offered_in(offering, (*of_type, *found.of_offering(instance_type, offering)))
        for instance_type in instance_types
        for of_type in (found.of_type(instance_type),)
        for offering in instance_type.offerings
    )


def _is_offered_in(offering: Offering, groups: Iterable[QuotaGroup]) -> bool:
    """Tell whether one of the groups has the offering's zone and capacity type."""
    return any(
        each.zone in {"", offering.zone} and each.capacity_type in {"", offering.capacity_type}
        for each in groups
    )
