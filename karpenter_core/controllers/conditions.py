"""Watch the status conditions of claims, pools and nodes: what changed becomes Events and metrics.

What is told is the difference between two looks at an object, so a condition that flips twice in
between is missed; and of what is seen for the first time nobody can say since when it was
otherwise. Conditions are observed, not intercepted where they are set: what counts is what others
can read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN
from karpenter_core.api.labels import GROUP
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.api.records import NodeView
from karpenter_core.controllers.condition_metrics import object_labels
from karpenter_core.controllers.feed import Inbox
from karpenter_core.lifecycle.node_termination import node_ref
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.controllers.condition_metrics import ConditionFamily
    from karpenter_core.controllers.feed import Feed
    from karpenter_core.controllers.object_series import Row
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ConditionObserver"]

EVENT_BUCKET: Final = "conditions"
"""Rate limit that these Events share: a scale-up must not crowd out what people wait for."""
AT_ONCE: Final = 200
"""How many objects are looked at before others have a turn."""

Observed: TypeAlias = NodeClaim | NodePool | NodeView

_KINDS: Final = {Kind.NODE_CLAIM: "NodeClaim", Kind.NODE_POOL: "NodePool", Kind.NODE: "Node"}


class _Standing(NamedTuple):
    """The status of one condition, and since when."""

    status: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class _Sight:
    """An object as it was last looked at."""

    seen: Observed
    ref: ObjectRef
    labels: tuple[str, ...]
    """Values of the labels that its metrics have."""
    conditions: Mapping[str, _Standing]
    finalizers: tuple[str, ...]
    deleted: datetime | None


@final
class ConditionObserver:
    """The controller `status`."""

    def __init__(self, *, feed: Feed, publish: Callable[[Notice], None], runtime: Runtime) -> None:
        self._feed = feed
        self._publish = publish
        self._clock = runtime.clock
        self._metrics = runtime.metrics.conditions
        self._sights: dict[str, dict[str, _Sight]] = {kind: {} for kind in _KINDS.values()}
        self._labels = {
            kind: object_labels(kind, self._metrics.node_class_labels) for kind in _KINDS.values()
        }
        self._inbox = Inbox(feed, *_KINDS)
        for kind, family in self._metrics.by_kind.items():
            _show(self, family, (kind,), deprecated=False)
        _show(self, self._metrics.deprecated, ("NodeClaim", "NodePool"), deprecated=True)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "status"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        snapshot = self._feed.snapshot()
        for kind, name in _KINDS.items():
            await self._look_at(name, tuple(_table(snapshot, kind)), snapshot, kind)
        while True:
            changes = await self._inbox.take()
            snapshot = self._feed.snapshot()
            for kind, names in changes.items():
                await self._look_at(_KINDS[kind], names, snapshot, kind)

    async def _look_at(
        self, what: str, names: tuple[str, ...], snapshot: Snapshot, kind: Kind
    ) -> None:
        table = _table(snapshot, kind)
        for start in range(0, len(names), AT_ONCE):
            for name in names[start : start + AT_ONCE]:
                self._look(what, name, table.get(name))
            await asyncio.sleep(0)

    def _look(self, kind: str, name: str, found: Observed | None) -> None:
        sights = self._sights[kind]
        before = sights.get(name)
        if before is not None and found is before.seen:
            return
        if before is not None and (found is None or found.uid != before.seen.uid):
            del sights[name]
            self._gone(kind, before)
            before = None
        if found is None:
            return
        sight = sights[name] = self._sight(kind, found)
        if before is not None:
            self._tell_finalized(before, sight.finalizers)
        self._compare(kind, before, sight)

    def _sight(self, kind: str, found: Observed) -> _Sight:
        labels = found.labels if isinstance(found, NodeView) else found.metadata.labels
        values = tuple(labels.get(key, "") for key in self._labels[kind])
        if isinstance(found, NodeView):
            return _Sight(
                seen=found,
                ref=node_ref(found),
                labels=values,
                conditions={
                    item.type: _Standing(item.status, item.reason, "", item.last_transition_time)
                    for item in found.conditions
                },
                finalizers=found.finalizers,
                deleted=found.deletion_timestamp,
            )
        return _Sight(
            seen=found,
            ref=found.ref,
            labels=values,
            conditions={
                item.type: _Standing(
                    item.status, item.reason, item.message, item.last_transition_time
                )
                for item in found.status.conditions
            },
            finalizers=found.metadata.finalizers,
            deleted=found.metadata.deletion_timestamp,
        )

    def _compare(self, kind: str, before: _Sight | None, after: _Sight) -> None:
        """Count and tell what changed.

        A condition that was not there before has no past to tell of; only that one of ours is False is
        told all the same, since somebody has to mend it. A Node that falls silent has all of its
        conditions turn Unknown, and back: of that its Ready tells enough.
        """
        known: Mapping[str, _Standing] = {} if before is None else before.conditions
        for name, now in after.conditions.items():
            was = known.get(name)
            if was is not None and was.status == now.status:
                continue
            for family, labels in self._families(kind, after):
                family.transitions.labels(name, now.status, now.reason, *labels).inc()
            if was is None:
                if before is not None and now.status == FALSE and kind != "Node":
                    self._publish(_transition(after.ref, name, UNKNOWN, now))
                continue
            if was.since is not None and now.since is not None:
                seconds = (now.since - was.since).total_seconds()
                for family, labels in self._families(kind, after):
                    family.transition_duration.labels(name, was.status, *labels).observe(seconds)
            if kind != "Node" or name == READY or TRUE in {was.status, now.status}:
                self._publish(_transition(after.ref, name, was.status, now))

    def _gone(self, kind: str, last: _Sight) -> None:
        self._tell_finalized(last, ())
        if last.deleted is None:
            return
        seconds = (self._clock.now() - last.deleted).total_seconds()
        for family, labels in self._families(kind, last):
            metric = family.termination_duration
            (metric.labels(*labels) if labels else metric).observe(seconds)

    def _tell_finalized(self, before: _Sight, left: tuple[str, ...]) -> None:
        for finalizer in before.finalizers:
            if finalizer not in left:
                self._publish(_finalized(before.ref, finalizer))

    def _families(
        self, kind: str, sight: _Sight
    ) -> tuple[tuple[ConditionFamily, tuple[str, ...]], ...]:
        own = self._metrics.by_kind[kind], sight.labels
        if kind == "Node":
            return (own,)
        return (own, (self._metrics.deprecated, (GROUP, kind)))

    # What is read when the metrics are scraped, in another thread: from copies of the tables.

    def counts(self, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[Row]:
        """Yield 1 for every condition of every object."""
        for sight, labels in self._shown(kinds, deprecated=deprecated):
            for name, now in sight.conditions.items():
                yield ("", sight.ref.name, name, now.status, now.reason, *labels), 1.0

    def ages(self, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[Row]:
        """Yield for every condition how long it has had its status."""
        moment = self._clock.now()
        for sight, labels in self._shown(kinds, deprecated=deprecated):
            for name, now in sight.conditions.items():
                if now.since is not None:
                    values = ("", sight.ref.name, name, now.status, now.reason, *labels)
                    yield values, (moment - now.since).total_seconds()

    def terminating(self, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[Row]:
        """Yield for every deleted object how long it has been so."""
        moment = self._clock.now()
        for sight, labels in self._shown(kinds, deprecated=deprecated):
            if sight.deleted is not None:
                seconds = (moment - sight.deleted).total_seconds()
                yield ("", sight.ref.name, *labels), seconds

    def _shown(
        self, kinds: tuple[str, ...], *, deprecated: bool
    ) -> Iterator[tuple[_Sight, tuple[str, ...]]]:
        for kind in kinds:
            for sight in tuple(self._sights[kind].values()):
                yield sight, (GROUP, kind) if deprecated else sight.labels


def _show(
    observer: ConditionObserver,
    family: ConditionFamily,
    kinds: tuple[str, ...],
    *,
    deprecated: bool,
) -> None:
    family.count.follow(lambda: observer.counts(kinds, deprecated=deprecated))
    family.current.follow(lambda: observer.ages(kinds, deprecated=deprecated))
    family.terminating.follow(lambda: observer.terminating(kinds, deprecated=deprecated))


def _table(snapshot: Snapshot, kind: Kind) -> Mapping[str, Observed]:
    match kind:
        case Kind.NODE_CLAIM:
            return snapshot.node_claims
        case Kind.NODE_POOL:
            return snapshot.node_pools
        case _:
            return snapshot.nodes


def _transition(ref: ObjectRef, name: str, was: str, now: _Standing) -> Notice:
    message = (
        f"Status condition transitioned, Type: {name}, Status: {was} -> {now.status}, "
        f"Reason: {now.reason}"
    )
    if now.message:
        message += f", Message: {now.message}"
    return Notice(regarding=ref, type="Normal", reason=name, message=message, bucket=EVENT_BUCKET)


def _finalized(ref: ObjectRef, finalizer: str) -> Notice:
    return Notice(
        regarding=ref,
        type="Normal",
        reason="Finalized",
        message=f"Finalized {finalizer}",
        bucket=EVENT_BUCKET,
    )
