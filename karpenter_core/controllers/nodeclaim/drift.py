"""Checks claims for drift: one provider call for all claims of a NodeClass.

Every claim is checked every five minutes, and at once when something changes that drift depends on:
the claim itself, its pool's template, its NodeClass or the catalogue. `lifecycle.nodeclaim.drift`
detects drift; this module schedules the checks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import NODE_POOL, NODE_POOL_HASH, NODE_POOL_HASH_VERSION
from karpenter_core.api.nodeclaim import DRIFTED, LAUNCHED, NodeClassRef
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.nodeclass.hashes import NodeClassHashes
from karpenter_core.controllers.nodeclass.node_class_text import spec_and_status_text
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import DONE, Reconciler, ReconcileResult
from karpenter_core.controllers.reconciling.throttling import retry_after_seconds
from karpenter_core.errors import ApiError, ConflictError, NodeClaimNotFoundError, NotFoundError
from karpenter_core.lifecycle.nodeclaim.drift import (
    DriftRules,
    is_type_check_due,
    local_drift,
    with_drift,
)
from karpenter_core.lifecycle.nodeclass.hashing import has_hash, is_hash_current
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, with_hash
from karpenter_core.provider.contract import DriftFinding
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.nodeclaim.drift import LocalDrift
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["DriftController"]

BATCH_SECONDS: Final = 0.5
"""The time for which changes are gathered, so that the claims of a scale-up need one call."""
RETRY_SECONDS: Final = 30.0
"""The time after which claims are checked again for which the provider failed."""
WRITE_RETRY_SECONDS: Final = 5.0
CONFLICT_RETRY_SECONDS: Final = 0.05
TIMER_TOLERANCE_SECONDS: Final = 0.001
"""The most that a check may run too early: more than the error of timers and rounding."""
BATCH_SIZE: Final = 32

NodeClassKey: TypeAlias = "tuple[str, str, str]"


@dataclass(slots=True)
class _DriftSchedule:
    """The times at which claims of a NodeClass are due for a check."""

    due_at: dict[str, float] = field(default_factory=dict[str, float])
    """Times at which claims are due, by name (monotonic seconds)."""
    all_checked_at: float | None = None
    """Time of the last check of all claims."""

    def take_due(self, now: float) -> dict[str, float]:
        """Remove and return the claims that are due."""
        taken = {name: at for name, at in self.due_at.items() if at <= now}
        self.due_at = {name: at for name, at in self.due_at.items() if at > now}
        return taken


@final
class DriftController:
    """The controller `nodeclaim.disruption`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        rules: DriftRules | None,
    ) -> None:
        self._freshness = freshness
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._hashes = NodeClassHashes(providers)
        self._clock = runtime.clock
        self._rules = rules or DriftRules()
        self._schedules: dict[NodeClassKey, _DriftSchedule] = {}
        self._checked_fingerprints: dict[str, Hashable] = {}
        self._type_found_at: dict[str, datetime] = {}
        self._pools: dict[str, Hashable] = {}
        self._classes: dict[NodeClassKey, str] = {}
        self._types: dict[str, tuple[str, dict[str, InstanceType]]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[NodeClassKey] = Reconciler(
            self.name, self.reconcile, runtime=runtime, log_field="NodeClass"
        )
        self._change_queue = ChangedNames(
            writer.cluster_state,
            ObjectKind.NODE_CLAIM,
            ObjectKind.NODE_POOL,
            ObjectKind.NODE_CLASS,
            ObjectKind.CATALOGUE,
        )

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.disruption"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        snapshot = self._cluster_state.snapshot()
        for claim in snapshot.node_claims.values():
            self._schedule_if_changed(claim, snapshot)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._reconciler.run())

    async def reconcile(self, key: NodeClassKey) -> ReconcileResult:
        """Check the claims of one NodeClass that are due."""
        schedule = self._schedules.get(key)
        if schedule is None:
            return DONE
        if self._freshness.stale_or_wake(
            FreshnessConsumer.DRIFT, key, partial(self._reconciler.wake, key)
        ):
            return DONE
        snapshot, now = (
            self._cluster_state.snapshot(),
            self._clock.monotonic() + TIMER_TOLERANCE_SECONDS,
        )
        due, swept = schedule.take_due(now), schedule.all_checked_at
        period_seconds = self._period_seconds(key)
        if swept is None or now - swept >= period_seconds:
            due, swept = {claim.name: now for claim in _claims_of(snapshot, key)}, now
            if not due:
                del self._schedules[key]
                return DONE
        try:
            await self._check_claims(tuple(due), snapshot.node_classes.get(key))
        except BaseException:
            schedule.due_at = {**due, **schedule.due_at}
            raise
        schedule.all_checked_at = swept
        next_check = min((swept + period_seconds, *schedule.due_at.values()))
        return ReconcileResult(requeue_after=max(next_check - self._clock.monotonic(), 0.0))

    def _period_seconds(self, key: NodeClassKey) -> float:
        """Return how often all claims of a NodeClass are checked."""
        group, kind, name = key
        provider = self._providers.provider_of(NodeClassRef(group=group, kind=kind, name=name))
        return self._providers.polling_periods(provider).drift.total_seconds()

    async def _check_claims(self, names: Sequence[str], node_class: NodeClass | None) -> None:
        """Check claims for drift and write the conditions that changed."""
        verdicts = await self._compare_claims(names, await self._with_current_hash(node_class))
        undecided = [claim for claim, local in verdicts if not local.is_decided]
        outcomes: Mapping[str, DriftOutcome] = {}
        if undecided and node_class is not None:
            detected = await self._providers.detect_drift(undecided, node_class)
            outcomes = {
                claim.name: outcome for claim, outcome in zip(undecided, detected, strict=True)
            }
        for start in range(0, len(verdicts), BATCH_SIZE):
            part = verdicts[start : start + BATCH_SIZE]
            waits = await asyncio.gather(
                *(
                    self._write_drift(claim, local, outcomes.get(claim.name))
                    for claim, local in part
                )
            )
            for (claim, _), wait in zip(part, waits, strict=True):
                if wait is not None:
                    self._put_due(claim, self._clock.monotonic() + wait)

    async def _with_current_hash(self, node_class: NodeClass | None) -> NodeClass | None:
        """Return a NodeClass with the hash of its spec, as claims get it.

        Its own annotation may be older, if a policy lets nobody write it: each claim launched since
        would be replaced at once, without end.
        """
        if node_class is None or not has_hash(node_class):
            return node_class
        current = await self._hashes.annotations_of(node_class)
        if not current or not is_hash_current(node_class, current):
            return node_class
        annotations = {**node_class.metadata.annotations, **current}
        return node_class.model_copy(
            update={"metadata": node_class.metadata.model_copy(update={"annotations": annotations})}
        )

    async def _compare_claims(
        self, names: Sequence[str], node_class: NodeClass | None
    ) -> list[tuple[NodeClaim, LocalDrift]]:
        """Compare claims with pools and catalogues, in batches that let other tasks run."""
        verdicts: list[tuple[NodeClaim, LocalDrift]] = []
        failed = FailedJudgements()
        hashed: dict[tuple[str, str], NodePool] = {}
        for start in range(0, len(names), BATCH_SIZE):
            snapshot, now = self._cluster_state.snapshot(), self._clock.now()
            for name in names[start : start + BATCH_SIZE]:
                claim = snapshot.node_claims.get(name)
                pool = None if claim is None else _pool(snapshot, claim)
                if claim is not None and pool is not None:
                    with failed.judging(claim.ref, "drift"):
                        version = pool.name, pool.metadata.resource_version
                        if version not in hashed:
                            hashed[version] = _with_current_hash(pool)
                        pool = hashed[version]
                        types = self._types_of(pool.name, snapshot)
                        state_node = snapshot.state_nodes_by_claim.get(name)
                        local = self._local_drift(claim, state_node, pool, types, node_class, now)
                        verdicts.append((claim, local))
            await asyncio.sleep(0)
        if failed.found:
            self._writer.report_failed_judgements(failed.found, controller=self.name)
        return verdicts

    def _local_drift(
        self,
        claim: NodeClaim,
        state_node: StateNode | None,
        pool: NodePool,
        types: Mapping[str, InstanceType] | None,
        node_class: NodeClass | None,
        now: datetime,
    ) -> LocalDrift:
        local = local_drift(
            claim,
            pool,
            types,
            now=now,
            state_node=state_node,
            node_class=node_class,
            found_at=self._type_found_at.get(claim.uid),
            rules=self._rules,
        )
        if local.is_type_found:
            self._type_found_at[claim.uid] = now
        return local

    async def _write_drift(
        self, checked: NodeClaim, local: LocalDrift, outcome: DriftOutcome
    ) -> float | None:
        """Write the drift of one claim; return the seconds until it must be checked again."""
        reason: str | None = ""
        wait: float | None = None
        match outcome:
            case DriftFinding():
                reason = outcome.reason
            case NodeClaimNotFoundError():
                reason = None  # garbage collection sees to it
            case None:
                pass
            case error:
                reason, wait = None, max(RETRY_SECONDS, retry_after_seconds(error))
                self._log.warning(
                    "could not check for drift", NodeClaim={"name": checked.name}, error=str(error)
                )
        claim = self._cluster_state.snapshot().node_claims.get(checked.name)
        if claim is None or claim.uid != checked.uid or claim.is_deleting:
            return None
        if _fingerprint(claim) != _fingerprint(checked):
            return BATCH_SECONDS  # it has changed since the check
        drifted = with_drift(claim, local, reason, now=self._clock.now())
        self._checked_fingerprints[claim.name] = _fingerprint(drifted)
        if drifted is claim:
            return wait
        try:
            await self._writer.write_claim(claim, drifted)
        except NotFoundError:
            return None
        except ConflictError:
            self._checked_fingerprints.pop(claim.name, None)
            return CONFLICT_RETRY_SECONDS
        except ApiError as error:
            self._checked_fingerprints.pop(claim.name, None)
            self._log.warning(
                "could not write drift", NodeClaim={"name": claim.name}, error=str(error)
            )
            return max(WRITE_RETRY_SECONDS, retry_after_seconds(error))
        self._log_change(claim, drifted)
        return wait

    def _log_change(self, before: NodeClaim, after: NodeClaim) -> None:
        was = find_condition(before.status.conditions, DRIFTED)
        drifted = find_condition(after.status.conditions, DRIFTED)
        name = {"name": after.name}
        if drifted is None:
            self._log.info("nodeclaim is no longer drifted", NodeClaim=name)
        elif was is None:
            self._log.info("nodeclaim has drifted", NodeClaim=name, reason=drifted.reason)

    def _types_of(self, pool: str, snapshot: Snapshot) -> Mapping[str, InstanceType] | None:
        catalogue = snapshot.catalogues.get(pool)
        if catalogue is None:
            self._types.pop(pool, None)
            return None
        cached = self._types.get(pool)
        if cached is None or cached[0] != catalogue.version:
            cached = catalogue.version, {item.name: item for item in catalogue.instance_types}
            self._types[pool] = cached
        return cached[1]

    async def _dispatch_changes(self) -> None:
        """Schedule checks of the claims that changes affect."""
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            for name in changes.get(ObjectKind.NODE_CLAIM, ()):
                claim = snapshot.node_claims.get(name)
                if claim is None:
                    self._checked_fingerprints.pop(name, None)
                else:
                    self._schedule_if_changed(claim, snapshot)
            pools = {
                n
                for n in changes.get(ObjectKind.NODE_POOL, ())
                if self._is_pool_edited(n, snapshot)
            }
            classes = set(changes.get(ObjectKind.NODE_CLASS, ()))
            edited = {
                k
                for k in self._schedules
                if k[2] in classes and self._is_node_class_edited(k, snapshot)
            }
            listed = set(changes.get(ObjectKind.CATALOGUE, ()))
            if not pools and not edited and not listed:
                continue
            now = self._clock.now()
            for claim in snapshot.node_claims.values():
                pool = claim.metadata.labels.get(NODE_POOL, "")
                if (
                    pool in pools
                    or _key(claim) in edited
                    or (
                        pool in listed
                        and is_type_check_due(claim, self._type_found_at.get(claim.uid), now=now)
                    )
                ):
                    self._checked_fingerprints.pop(claim.name, None)
                    self._schedule_if_changed(claim, snapshot)
            self._forget(snapshot)

    def _schedule_if_changed(self, claim: NodeClaim, snapshot: Snapshot) -> None:
        """Schedule a check of a claim, unless it is unchanged since the last check."""
        if claim.is_deleting or not snapshot.manages(claim.spec.node_class_ref):
            return
        if self._checked_fingerprints.get(claim.name) != _fingerprint(claim):
            self._put_due(claim, self._clock.monotonic())
            self._reconciler.wake_after(_key(claim), BATCH_SECONDS)

    def _put_due(self, claim: NodeClaim, at: float) -> None:
        self._schedules.setdefault(_key(claim), _DriftSchedule()).due_at.setdefault(claim.name, at)

    def _is_pool_edited(self, name: str, snapshot: Snapshot) -> bool:
        """Tell whether a pool's generation or hash changed; its status changes all the time."""
        pool = snapshot.node_pools.get(name)
        before = self._pools.get(name)
        if pool is None:
            self._pools.pop(name, None)
            return False
        metadata = pool.metadata
        self._pools[name] = (
            pool.uid,
            metadata.generation,
            metadata.annotations.get(NODE_POOL_HASH),
            metadata.annotations.get(NODE_POOL_HASH_VERSION),
        )
        return self._pools[name] != before

    def _is_node_class_edited(self, key: NodeClassKey, snapshot: Snapshot) -> bool:
        """Tell whether a NodeClass changed, apart from its conditions."""
        node_class = snapshot.node_classes.get(key)
        before = self._classes.get(key)
        if node_class is None:
            self._classes.pop(key, None)
            return before is not None
        hashes = {k: v for k, v in node_class.metadata.annotations.items() if "-hash" in k}
        self._classes[key] = f"{spec_and_status_text(node_class)}{hashes}"
        return self._classes[key] != before

    def _forget(self, snapshot: Snapshot) -> None:
        """Drop cached data of claims and pools that are gone."""
        if len(self._type_found_at) > 2 * len(snapshot.node_claims):
            alive = {claim.uid for claim in snapshot.node_claims.values()}
            self._type_found_at = {
                uid: at for uid, at in self._type_found_at.items() if uid in alive
            }
        for gone in [name for name in self._types if name not in snapshot.node_pools]:
            del self._types[gone]


def _with_current_hash(pool: NodePool) -> NodePool:
    """Return a pool with the hash of its template, also if its own annotation is older."""
    version = pool.metadata.annotations.get(NODE_POOL_HASH_VERSION)
    return with_hash(pool) if version == HASH_VERSION else pool


def _key(claim: NodeClaim) -> NodeClassKey:
    ref = claim.spec.node_class_ref
    return ref.group, ref.kind, ref.name


def _claims_of(snapshot: Snapshot, key: NodeClassKey) -> Iterable[NodeClaim]:
    return (claim for claim in snapshot.node_claims.values() if _key(claim) == key)


def _pool(snapshot: Snapshot, claim: NodeClaim) -> NodePool | None:
    """Return the pool to compare a claim with; None for a claim that is not checked."""
    if claim.is_deleting or not snapshot.manages(claim.spec.node_class_ref):
        return None
    return snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, ""))


def _fingerprint(claim: NodeClaim) -> tuple[object, ...]:
    """Return the fields of a claim that drift depends on, and its drift condition."""
    drifted = find_condition(claim.status.conditions, DRIFTED)
    return (
        claim.uid,
        claim.metadata.labels,
        claim.metadata.annotations,
        claim.status.provider_id,
        claim.status.image_id,
        is_true(claim.status.conditions, LAUNCHED),
        None if drifted is None else (drifted.status, drifted.reason),
    )
