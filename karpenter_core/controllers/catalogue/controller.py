"""Lists instance types when a NodeClass changes, and every few minutes.

One listing serves every pool of a NodeClass. When a listing fails, the last one stays in use for a
while: an outage of the cloud for minutes must not stop scheduling. After that the pool has no
catalogue, and its nodes are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from operator import is_
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.nodeclass.node_class_text import spec_and_status_text
from karpenter_core.controllers.reconciling.reconciler import (
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.errors import KarpenterError
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.events import CataloguePublished
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.devices import InstanceDevices
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["STALE_AFTER", "CatalogueController", "catalogue_version"]

STALE_AFTER: Final = timedelta(minutes=30)
"""The time for which the last listing stays in use while refreshes fail."""

NodeClassKey: TypeAlias = "tuple[str, str, str]"


@dataclass(slots=True, kw_only=True)
class _NodeClassListing:
    """The last listing for a NodeClass, and the error of the last refresh."""

    fingerprint: str = ""
    catalogue: Catalogue | None = None
    currencies: frozenset[str] = frozenset()
    """The currencies of its prices."""
    refreshed: datetime | None = None
    """Time of its creation, by the steady clock."""
    refreshed_at: float = 0.0
    """The same as a Unix time, by the clock that people read."""
    problem: str = ""


@final
class CatalogueController:
    """Publishes a Catalogue for every pool whose NodeClass can be listed."""

    def __init__(
        self, *, cluster_state: ClusterState, providers: Providers, runtime: ControllerRuntime
    ) -> None:
        self._cluster_state = cluster_state
        self._providers = providers
        self._runtime = runtime
        self._steady = SteadyClock(runtime.clock)
        self._listings: dict[NodeClassKey, _NodeClassListing] = {}
        self._published: dict[str, Catalogue] = {}
        self._classes: dict[str, NodeClassKey] = {}
        self._dated: set[str] = set()
        """Pools that have a series of the last refresh."""
        self._problem_listeners: list[Callable[[str], None]] = []
        self._log: FilteringBoundLogger = structlog.get_logger("catalogue")
        self._reconciler: Reconciler[NodeClassKey] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=ExponentialBackoff(base_seconds=1.0),
            log_field="NodeClass",
        )
        cluster_state.subscribe(ObjectKind.NODE_POOL, self._on_pool)
        cluster_state.subscribe(ObjectKind.NODE_CLASS, self._on_class)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "catalogue"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for name in self._cluster_state.snapshot().node_pools:
            self._on_pool(name)
        await self._reconciler.run()

    def unlisted_pools(self) -> tuple[str, ...]:
        """Return the pools whose first listing is not finished."""
        snapshot = self._cluster_state.snapshot()
        return tuple(
            name
            for name, pool in snapshot.node_pools.items()
            if name not in snapshot.catalogues
            and snapshot.manages(pool.spec.template.spec.node_class_ref)
            and (key := _class_key(pool)) in snapshot.node_classes
            and not (key in self._listings and self._listings[key].problem)
        )

    def problem_of(self, pool: NodePool) -> str:
        """Return why a pool's catalogue could not be refreshed; empty if it could."""
        listing = self._listings.get(_class_key(pool))
        return "" if listing is None else listing.problem

    def currencies_of(self, pool: NodePool) -> frozenset[str]:
        """Return the currencies of a pool's prices; empty before they are listed."""
        listing = self._listings.get(_class_key(pool))
        return frozenset() if listing is None else listing.currencies

    def subscribe_problems(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of a pool whose listing starts to fail or works again."""
        self._problem_listeners.append(listener)

    async def reconcile(self, key: NodeClassKey) -> ReconcileResult:
        """List the instance types of one NodeClass and publish them to its pools."""
        snapshot = self._cluster_state.snapshot()
        pools = [
            pool
            for _, pool in sorted(snapshot.node_pools.items())
            if _class_key(pool) == key and snapshot.manages(pool.spec.template.spec.node_class_ref)
        ]
        node_class = snapshot.node_classes.get(key)
        if not pools or node_class is None:
            self._publish(pools, _NodeClassListing())
            self._listings.pop(key, None)
            return ReconcileResult()
        listing = self._listings.setdefault(key, _NodeClassListing())
        fingerprint = spec_and_status_text(node_class)
        try:
            types = await self._providers.list_instance_types(pools[0], node_class)
        except KarpenterError as error:
            self._store_failure(listing, pools, error)
            raise
        if listing.problem:
            self._announce(listing, pools, "")
        self._store_listing(listing, types)
        listing.fingerprint = fingerprint
        self._publish(pools, listing)
        provider = self._providers.provider_of(pools[0].spec.template.spec.node_class_ref)
        period = self._providers.polling_periods(provider).catalogue
        return ReconcileResult(requeue_after=period.total_seconds())

    def _store_listing(self, listing: _NodeClassListing, types: tuple[InstanceType, ...]) -> None:
        listing.refreshed = self._steady.now()
        listing.refreshed_at = self._runtime.clock.now().timestamp()
        before = listing.catalogue
        if before is not None and _are_identical(before.instance_types, types):
            return
        version = catalogue_version(types)
        if before is None or before.version != version:
            listing.catalogue = Catalogue(version=version, instance_types=types)
            listing.currencies = frozenset(o.price.currency for it in types for o in it.offerings)
            self._log.info("listed instance types", count=len(types), version=version)

    def _announce(
        self, listing: _NodeClassListing, pools: Iterable[NodePool], problem: str
    ) -> None:
        listing.problem = problem
        for pool in pools:
            for listener in self._problem_listeners:
                listener(pool.name)

    def _store_failure(
        self, listing: _NodeClassListing, pools: Iterable[NodePool], error: KarpenterError
    ) -> None:
        self._announce(listing, pools, str(error))
        for pool in pools:
            self._runtime.metrics.catalogue_refresh_errors.labels(nodepool=pool.name).inc()
        now = self._steady.now()
        if listing.refreshed is not None and now - listing.refreshed >= STALE_AFTER:
            listing.catalogue = None
        self._publish(pools, listing)

    def _publish(self, pools: Iterable[NodePool], listing: _NodeClassListing) -> None:
        catalogue, refresh_time = listing.catalogue, self._runtime.metrics.catalogue_refresh_time
        snapshot = self._cluster_state.snapshot()
        pools_now, listed = snapshot.node_pools, snapshot.listed_catalogues
        for gone in [name for name in self._published if name not in pools_now]:
            del self._published[gone]
            self._classes.pop(gone, None)
        for gone in self._dated.difference(pools_now):
            refresh_time.remove(gone)
        self._dated.intersection_update(pools_now)
        for pool in pools:
            before = self._published.get(pool.name)
            # A catalogue is removed with its pool, even if a new pool has the same name.
            is_lost = catalogue is not None and pool.name not in listed
            if catalogue is not before or is_lost:
                self._cluster_state.fold(CataloguePublished(pool.name, catalogue))
            if listing.refreshed is None:
                refresh_time.remove(pool.name)
            else:
                refresh_time.labels(nodepool=pool.name).set(listing.refreshed_at)
                self._dated.add(pool.name)
            if catalogue is None:
                self._published.pop(pool.name, None)
                continue
            self._published[pool.name] = catalogue

    def _on_pool(self, name: str) -> None:
        snapshot = self._cluster_state.snapshot()
        pool = snapshot.node_pools.get(name)
        if not snapshot.synced or pool is None:
            return
        key = _class_key(pool)
        listing = self._listings.get(key)
        # A failing listing is retried by its back-off, not because of the conditions we write.
        is_missing = name not in snapshot.listed_catalogues and not (listing and listing.problem)
        if is_missing or self._classes.get(name) != key:
            self._classes[name] = key
            self._reconciler.wake(key)

    def _on_class(self, name: str) -> None:
        """Refresh when a NodeClass' spec or status changed, but not for its conditions alone."""
        snapshot = self._cluster_state.snapshot()
        if not snapshot.synced:
            return
        keys = {key for key in (*snapshot.node_classes, *self._listings) if key[2] == name}
        for key in sorted(keys):
            node_class = snapshot.node_classes.get(key)
            listing = self._listings.get(key)
            if (
                node_class is None
                or listing is None
                or listing.fingerprint != spec_and_status_text(node_class)
            ):
                self._reconciler.wake(key)


def _are_identical(listed: Sequence[InstanceType], types: Sequence[InstanceType]) -> bool:
    """Tell whether both lists hold the same objects: most providers keep unchanged ones.

    Instance types are immutable, and comparing thousands of them by value takes long.
    """
    return len(listed) == len(types) and all(map(is_, listed, types))


def catalogue_version(instance_types: Iterable[InstanceType]) -> str:
    """Return a digest of a catalogue's types, prices and availability as its version."""
    digest = blake2b(digest_size=12)
    for item in sorted(instance_types, key=lambda instance_type: instance_type.name):
        parts = (
            item.name,
            _requirements_digest(item.requirements),
            _amounts(item.capacity),
            _amounts(item.overhead.total()),
            *(() if item.devices is None else (_devices_text(item.devices),)),
            *(_offering_text(offering) for offering in item.offerings),
        )
        digest.update("\x1f".join(parts).encode())
        digest.update(b"\x1e")
    return digest.hexdigest()


def _devices_text(devices: InstanceDevices) -> str:
    bindings = [(one.attribute, sorted(one.devices)) for one in devices.bindings]
    return f"{devices.templates!r} {bindings!r}"


def _offering_text(offering: Offering) -> str:
    return "|".join(
        (
            _requirements_digest(offering.requirements),
            f"{offering.price.amount!r} {offering.price.currency}",
            str(offering.available),
            str(offering.reservation_capacity),
            _amounts(offering.capacity_override or {}),
            _amounts(offering.overhead_override or {}),
            repr(offering.interruption_risk),
        )
    )


@lru_cache(maxsize=4096)  # many offerings have the same requirements, in each refresh
def _requirements_digest(requirements: Requirements) -> str:
    """Return a digest: the texts of a thousand instance types would take 3 MiB of memory."""
    text = ";".join(
        f"{r.key}={r.complement}:{','.join(sorted(r.values))}:{r.gte}:{r.lte}"
        for _, r in sorted(requirements.items())
    )
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _amounts(resources: Mapping[str, int]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(resources.items()))


def _class_key(pool: NodePool) -> NodeClassKey:
    ref = pool.spec.template.spec.node_class_ref
    return ref.group, ref.kind, ref.name
