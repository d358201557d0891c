"""Look for drift: all claims of a NodeClass in one question to its provider.

Every claim is looked at every five minutes, and at once when something changes that it could be
judged by: the claim itself, its pool's template, its NodeClass, or what is sold. What it means
is decided in `lifecycle.nodeclaim.drift`; here is who is looked at, and when.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.api.conditions import find, is_true
from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import NODE_POOL, NODE_POOL_HASH, NODE_POOL_HASH_VERSION
from karpenter_core.api.nodeclaim import DRIFTED, LAUNCHED
from karpenter_core.controllers.feed import Inbox
from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.nodeclass.content import content_of
from karpenter_core.controllers.reconciler import DONE, Outcome, Reconciler
from karpenter_core.controllers.throttling import retry_after_seconds
from karpenter_core.errors import ApiError, ConflictError, NodeClaimNotFoundError, NotFoundError
from karpenter_core.lifecycle.nodeclaim.drift import (
    DriftRules,
    is_type_check_due,
    local_drift,
    with_drift,
)
from karpenter_core.provider.contract import DriftFinding
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.nodeclaim.drift import LocalDrift
    from karpenter_core.provider.contract import DriftOutcome
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["DriftController"]

PERIOD_SECONDS: Final = 300.0  # upstream default
GATHER_SECONDS: Final = 0.5
"""How long changes are gathered: the claims of a scale-up make one question, not hundreds."""
RETRY_SECONDS: Final = 30.0
"""When claims are looked at again of which the provider could not tell."""
WRITE_RETRY_SECONDS: Final = 5.0
CONFLICT_RETRY_SECONDS: Final = 0.05
PUNCTUAL_SECONDS: Final = 0.001
"""How much too early a look may come: more than timers and rounding make of it."""
PARALLEL: Final = 32

ClassKey: TypeAlias = "tuple[str, str, str]"


@dataclass(slots=True)
class _Agenda:
    """Whose turn it is among the claims of a NodeClass."""

    due: dict[str, float] = field(default_factory=dict[str, float])
    """Claims by name, and when each may be looked at."""
    swept: float | None = None
    """When all of them were last looked at."""

    def take(self, now: float) -> dict[str, float]:
        """Take out the claims whose turn it is."""
        taken = {name: at for name, at in self.due.items() if at <= now}
        self.due = {name: at for name, at in self.due.items() if at > now}
        return taken


@final
class DriftController:
    """The controller `nodeclaim.disruption`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        runtime: Runtime,
        freshness: Freshness,
        rules: DriftRules | None = None,
    ) -> None:
        self._freshness = freshness
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._clock = runtime.clock
        self._rules = rules or DriftRules()
        self._agendas: dict[ClassKey, _Agenda] = {}
        self._judged: dict[str, Hashable] = {}
        self._found: dict[str, datetime] = {}
        self._pools: dict[str, Hashable] = {}
        self._classes: dict[ClassKey, str] = {}
        self._types: dict[str, tuple[str, dict[str, InstanceType]]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[ClassKey] = Reconciler(
            self.name, self.reconcile, runtime=runtime, log_field="NodeClass"
        )
        self._inbox = Inbox(
            hands.feed, Kind.NODE_CLAIM, Kind.NODE_POOL, Kind.NODE_CLASS, Kind.CATALOGUE
        )

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.disruption"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        snapshot = self._feed.snapshot()
        for claim in snapshot.node_claims.values():
            self._note(claim, snapshot)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sort())
            group.create_task(self._reconciler.run())

    async def reconcile(self, key: ClassKey) -> Outcome:
        """Look at the claims of one NodeClass whose turn it is."""
        agenda = self._agendas.get(key)
        if agenda is None:
            return DONE
        if self._freshness.hold(Consumer.DRIFT, key, partial(self._reconciler.wake, key)):
            return DONE
        snapshot, now = self._feed.snapshot(), self._clock.monotonic() + PUNCTUAL_SECONDS
        due, swept = agenda.take(now), agenda.swept
        if swept is None or now - swept >= PERIOD_SECONDS:
            due, swept = {claim.name: now for claim in _claims_of(snapshot, key)}, now
            if not due:
                del self._agendas[key]
                return DONE
        try:
            await self._look(tuple(due), snapshot.node_classes.get(key))
        except BaseException:
            agenda.due = {**due, **agenda.due}
            raise
        agenda.swept = swept
        next_look = min((swept + PERIOD_SECONDS, *agenda.due.values()))
        return Outcome(requeue_after=max(next_look - self._clock.monotonic(), 0.0))

    async def _look(self, names: Sequence[str], node_class: NodeClass | None) -> None:
        """Judge claims and write what changed."""
        verdicts = await self._judge(names)
        asked = [claim for claim, local in verdicts if not local.is_settled]
        outcomes: Mapping[str, DriftOutcome] = {}
        if asked and node_class is not None:
            found = await self._providers.detect_drift(asked, node_class)
            outcomes = {claim.name: outcome for claim, outcome in zip(asked, found, strict=True)}
        for start in range(0, len(verdicts), PARALLEL):
            part = verdicts[start : start + PARALLEL]
            waits = await asyncio.gather(
                *(self._settle(claim, local, outcomes.get(claim.name)) for claim, local in part)
            )
            for (claim, _), wait in zip(part, waits, strict=True):
                if wait is not None:
                    self._put_due(claim, self._clock.monotonic() + wait)

    async def _judge(self, names: Sequence[str]) -> list[tuple[NodeClaim, LocalDrift]]:
        """Compare claims with their pools and with what is sold; others have a turn in between."""
        verdicts: list[tuple[NodeClaim, LocalDrift]] = []
        failed = FailedJudgements()
        for start in range(0, len(names), PARALLEL):
            snapshot, now = self._feed.snapshot(), self._clock.now()
            for name in names[start : start + PARALLEL]:
                claim = snapshot.node_claims.get(name)
                pool = None if claim is None else _pool(snapshot, claim)
                if claim is not None and pool is not None:
                    with failed.judging(claim.ref, "drift"):
                        verdicts.append((claim, self._local(claim, pool, snapshot, now)))
            await asyncio.sleep(0)
        if failed.found:
            self._hands.set_aside(failed.found, controller=self.name)
        return verdicts

    def _local(
        self, claim: NodeClaim, pool: NodePool, snapshot: Snapshot, now: datetime
    ) -> LocalDrift:
        local = local_drift(
            claim,
            pool,
            self._types_of(pool.name, snapshot),
            now=now,
            node_class=snapshot.node_classes.get(_key(claim)),
            found_at=self._found.get(claim.uid),
            rules=self._rules,
        )
        if local.is_type_found:
            self._found[claim.uid] = now
        return local

    async def _settle(
        self, judged: NodeClaim, local: LocalDrift, outcome: DriftOutcome
    ) -> float | None:
        """Write what is known of one claim now; return in how many seconds it is due again."""
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
                    "could not look for drift", NodeClaim={"name": judged.name}, error=str(error)
                )
        claim = self._feed.snapshot().node_claims.get(judged.name)
        if claim is None or claim.uid != judged.uid or claim.is_deleting:
            return None
        if _fingerprint(claim) != _fingerprint(judged):
            return GATHER_SECONDS  # it is another one than the one that was judged
        drifted = with_drift(claim, local, reason, now=self._clock.now())
        self._judged[claim.name] = _fingerprint(drifted)
        if drifted is claim:
            return wait
        try:
            await self._hands.write_claim(claim, drifted)
        except NotFoundError:
            return None
        except ConflictError:
            self._judged.pop(claim.name, None)
            return CONFLICT_RETRY_SECONDS
        except ApiError as error:
            self._judged.pop(claim.name, None)
            self._log.warning(
                "could not write drift", NodeClaim={"name": claim.name}, error=str(error)
            )
            return max(WRITE_RETRY_SECONDS, retry_after_seconds(error))
        self._report(claim, drifted)
        return wait

    def _report(self, before: NodeClaim, after: NodeClaim) -> None:
        was = find(before.status.conditions, DRIFTED)
        drifted = find(after.status.conditions, DRIFTED)
        name = {"name": after.name}
        if drifted is None:
            self._log.info("nodeclaim has not drifted any more", NodeClaim=name)
        elif was is None:
            self._log.info("nodeclaim has drifted", NodeClaim=name, reason=drifted.reason)

    def _types_of(self, pool: str, snapshot: Snapshot) -> Mapping[str, InstanceType] | None:
        catalogue = snapshot.catalogues.get(pool)
        if catalogue is None:
            self._types.pop(pool, None)
            return None
        known = self._types.get(pool)
        if known is None or known[0] != catalogue.version:
            known = catalogue.version, {item.name: item for item in catalogue.instance_types}
            self._types[pool] = known
        return known[1]

    async def _sort(self) -> None:
        """Put the claims on the agenda that changes are about."""
        while True:
            changes = await self._inbox.take()
            snapshot = self._feed.snapshot()
            for name in changes.get(Kind.NODE_CLAIM, ()):
                claim = snapshot.node_claims.get(name)
                if claim is None:
                    self._judged.pop(name, None)
                else:
                    self._note(claim, snapshot)
            pools = {n for n in changes.get(Kind.NODE_POOL, ()) if self._is_edited(n, snapshot)}
            classes = set(changes.get(Kind.NODE_CLASS, ()))
            edited = {k for k in self._agendas if k[2] in classes and self._is_new(k, snapshot)}
            listed = set(changes.get(Kind.CATALOGUE, ()))
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
                        and is_type_check_due(claim, self._found.get(claim.uid), now=now)
                    )
                ):
                    self._judged.pop(claim.name, None)
                    self._note(claim, snapshot)
            self._forget(snapshot)

    def _note(self, claim: NodeClaim, snapshot: Snapshot) -> None:
        """Put a claim on the agenda, unless it is what it was when it was judged."""
        if claim.is_deleting or not snapshot.manages(claim.spec.node_class_ref):
            return
        if self._judged.get(claim.name) != _fingerprint(claim):
            self._put_due(claim, self._clock.monotonic())
            self._reconciler.wake_after(_key(claim), GATHER_SECONDS)

    def _put_due(self, claim: NodeClaim, at: float) -> None:
        self._agendas.setdefault(_key(claim), _Agenda()).due.setdefault(claim.name, at)

    def _is_edited(self, name: str, snapshot: Snapshot) -> bool:
        """Tell whether a pool's template changed; its status does so all the time."""
        pool = snapshot.node_pools.get(name)
        known = self._pools.get(name)
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
        return self._pools[name] != known

    def _is_new(self, key: ClassKey, snapshot: Snapshot) -> bool:
        """Tell whether a NodeClass says something else than before, conditions apart."""
        node_class = snapshot.node_classes.get(key)
        known = self._classes.get(key)
        if node_class is None:
            self._classes.pop(key, None)
            return known is not None
        stamps = {k: v for k, v in node_class.metadata.annotations.items() if "-hash" in k}
        self._classes[key] = f"{content_of(node_class)}{stamps}"
        return self._classes[key] != known

    def _forget(self, snapshot: Snapshot) -> None:
        """Drop what is remembered of claims and pools that are gone."""
        if len(self._found) > 2 * len(snapshot.node_claims):
            alive = {claim.uid for claim in snapshot.node_claims.values()}
            self._found = {uid: at for uid, at in self._found.items() if uid in alive}
        for gone in [name for name in self._types if name not in snapshot.node_pools]:
            del self._types[gone]


def _key(claim: NodeClaim) -> ClassKey:
    ref = claim.spec.node_class_ref
    return ref.group, ref.kind, ref.name


def _claims_of(snapshot: Snapshot, key: ClassKey) -> Iterable[NodeClaim]:
    return (claim for claim in snapshot.node_claims.values() if _key(claim) == key)


def _pool(snapshot: Snapshot, claim: NodeClaim) -> NodePool | None:
    """Return the pool to judge a claim by; None for one that is not judged."""
    if claim.is_deleting or not snapshot.manages(claim.spec.node_class_ref):
        return None
    return snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, ""))


def _fingerprint(claim: NodeClaim) -> tuple[object, ...]:
    """Return what a claim is judged by, and what the judgement was."""
    drifted = find(claim.status.conditions, DRIFTED)
    return (
        claim.uid,
        claim.metadata.labels,
        claim.metadata.annotations,
        claim.status.provider_id,
        claim.status.image_id,
        is_true(claim.status.conditions, LAUNCHED),
        None if drifted is None else (drifted.status, drifted.reason),
    )
