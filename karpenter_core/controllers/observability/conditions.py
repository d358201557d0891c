"""Watch the status conditions of claims, pools and nodes: what changed becomes Events and metrics.

What is told is the difference between two looks at an object, so a condition that flips twice in
between is missed; and of what is seen for the first time nobody can say since when it was
otherwise. Conditions are observed, not intercepted where they are set: what counts is what others
can read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, Condition
from karpenter_core.api.labels import GROUP, TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import NODE_CLAIM_CONDITIONS, NodeClaim
from karpenter_core.api.nodepool import NODE_POOL_CONDITIONS, NodePool
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.api.records import NodeConditionView, NodeView
from karpenter_core.controllers.condition_metrics import object_labels
from karpenter_core.controllers.feed import Inbox
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.provider.kit.series_text import escaped, labels_text
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.controllers.condition_metrics import ConditionFamily
    from karpenter_core.controllers.feed import Feed
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ConditionObserver"]

EVENT_BUCKET: Final = "conditions"
"""Rate limit that these Events share: a scale-up must not crowd out what people wait for."""
AT_ONCE: Final = 200
"""How many objects are looked at before others have a turn."""

Observed: TypeAlias = NodeClaim | NodePool | NodeView

_STAGES: Final = frozenset((*NODE_CLAIM_CONDITIONS.dependents, *NODE_POOL_CONDITIONS.dependents))
"""What `Ready` is made of."""
_KINDS: Final = {Kind.NODE_CLAIM: "NodeClaim", Kind.NODE_POOL: "NodePool", Kind.NODE: "Node"}


@dataclass(frozen=True, slots=True)
class _Sight:
    """An object as it was last looked at, and the values of the labels that its metrics have."""

    seen: Observed
    labels: tuple[str, ...]

    @property
    def ref(self) -> ObjectRef:
        """What Events are about."""
        return node_ref(self.seen) if isinstance(self.seen, NodeView) else self.seen.ref

    @property
    def conditions(self) -> Sequence[Condition | NodeConditionView]:
        """The status conditions."""
        return (
            self.seen.conditions if isinstance(self.seen, NodeView) else self.seen.status.conditions
        )

    @property
    def finalizers(self) -> tuple[str, ...]:
        """What holds the object when it is deleted."""
        seen = self.seen
        return seen.finalizers if isinstance(seen, NodeView) else seen.metadata.finalizers

    @property
    def deleted(self) -> datetime | None:
        """When somebody deleted the object."""
        seen = self.seen
        return (
            seen.deletion_timestamp
            if isinstance(seen, NodeView)
            else seen.metadata.deletion_timestamp
        )


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
        return _Sight(found, tuple(labels.get(key, "") for key in self._labels[kind]))

    def _compare(self, kind: str, before: _Sight | None, after: _Sight) -> None:
        """Count and tell what changed.

        A condition that was not there before has no past to tell of; only that one of ours is False is
        told all the same, since somebody has to mend it. What `Ready` says by itself is not told
        beside it: the stages of an object of ours that turn True with it, and all conditions of a
        Node that falls silent, which turn Unknown, and back.
        """
        known = {} if before is None else {item.type: item for item in before.conditions}
        changed: list[tuple[str, Condition | NodeConditionView]] = []
        for now in after.conditions:
            was = known.get(now.type)
            if was is not None and was.status == now.status:
                continue
            for family, labels in self._families(kind, after):
                family.transitions.labels(now.type, now.status, now.reason, *labels).inc()
            if was is None:
                if before is not None and now.status == FALSE and kind != "Node":
                    changed.append((UNKNOWN, now))
                continue
            began, ended = was.last_transition_time, now.last_transition_time
            if began is not None and ended is not None:
                seconds = (ended - began).total_seconds()
                for family, labels in self._families(kind, after):
                    family.transition_duration.labels(was.type, was.status, *labels).observe(
                        seconds
                    )
            changed.append((was.status, now))
        becomes_ready = any(now.type == READY and now.status == TRUE for _, now in changed)
        for status, now in changed:
            if _says_more(kind, status, now, becomes_ready=becomes_ready):
                self._publish(_transition(after.ref, status, now))

    def _gone(self, kind: str, last: _Sight) -> None:
        self._tell_finalized(last, ())
        if last.deleted is None:
            return
        seconds = (self._clock.now() - last.deleted).total_seconds()
        for family, labels in self._families(kind, last):
            metric = family.termination_duration
            (metric.labels(*labels) if labels else metric).observe(seconds)

    def _tell_finalized(self, before: _Sight, left: tuple[str, ...]) -> None:
        """Tell of finalizers that have gone; a Node's end at our hands is told of its claim."""
        is_of_claim = isinstance(before.seen, NodeView) and any(
            owner.kind == "NodeClaim" for owner in before.seen.owners
        )
        for finalizer in before.finalizers:
            if finalizer not in left and not (is_of_claim and finalizer == TERMINATION_FINALIZER):
                self._publish(_finalized(before.ref, finalizer))

    def _families(
        self, kind: str, sight: _Sight
    ) -> tuple[tuple[ConditionFamily, tuple[str, ...]], ...]:
        own = self._metrics.by_kind[kind], sight.labels
        if kind == "Node":
            return (own,)
        return (own, (self._metrics.deprecated, (GROUP, kind)))

    # What is written when the metrics are scraped, in another thread: from copies of the tables.

    def counts(self, name: str, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[str]:
        """Write 1 for every condition of every object."""
        for sight, labels in self._shown(kinds, deprecated=deprecated):
            yield "".join(
                f"{name}{{{labels},{_condition_text(now.type, now.status, now.reason)}}} 1.0\n"
                for now in sight.conditions
            )

    def ages(self, name: str, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[str]:
        """Write for every condition how long it has had its status, to the second."""
        moment = self._clock.now().replace(microsecond=0)
        for sight, labels in self._shown(kinds, deprecated=deprecated):
            yield "".join(
                f"{name}{{{labels},{_condition_text(now.type, now.status, now.reason)}}} "
                f"{(moment - since).total_seconds()!r}\n"
                for now in sight.conditions
                if (since := now.last_transition_time) is not None
            )

    def terminating(self, name: str, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[str]:
        """Write for every deleted object how long it has been so."""
        moment = self._clock.now()
        for sight, labels in self._shown(kinds, deprecated=deprecated):
            if sight.deleted is not None:
                yield f"{name}{{{labels}}} {(moment - sight.deleted).total_seconds()!r}\n"

    def _shown(self, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[tuple[_Sight, str]]:
        """Yield the objects with the labels that tell them apart, as text."""
        for kind in kinds:
            names = ("group", "kind") if deprecated else self._metrics.label_names[kind]
            for sight in tuple(self._sights[kind].values()):
                text = _labels_text(names, (GROUP, kind) if deprecated else sight.labels)
                yield sight, f'{text}name="{sight.seen.name}",namespace=""'


def _show(
    observer: ConditionObserver,
    family: ConditionFamily,
    kinds: tuple[str, ...],
    *,
    deprecated: bool,
) -> None:
    for series, lines in (
        (family.count, observer.counts),
        (family.current, observer.ages),
        (family.terminating, observer.terminating),
    ):
        series.follow(partial(lines, kinds=kinds, deprecated=deprecated))


@lru_cache(maxsize=4096)
def _condition_text(type_: str, status: str, reason: str) -> str:
    return labels_text({"reason": reason, "status": status, "type": type_})


@lru_cache(maxsize=4096)
def _labels_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return labels as text with a comma behind, for others to follow."""
    return "".join(f'{name}="{escaped(value)}",' for name, value in zip(names, values, strict=True))


def _table(snapshot: Snapshot, kind: Kind) -> Mapping[str, Observed]:
    match kind:
        case Kind.NODE_CLAIM:
            return snapshot.node_claims
        case Kind.NODE_POOL:
            return snapshot.node_pools
        case _:
            return snapshot.nodes


def _says_more(
    kind: str, was: str, now: Condition | NodeConditionView, *, becomes_ready: bool
) -> bool:
    """Tell whether a change says something that `Ready` does not say by itself."""
    if now.type == READY:
        return True
    if kind == "Node":
        return TRUE in {was, now.status}
    is_stage = now.type in _STAGES and (was, now.status) == (UNKNOWN, TRUE)
    return not (is_stage and becomes_ready)


def _transition(ref: ObjectRef, was: str, now: Condition | NodeConditionView) -> Notice:
    message = (
        f"Status condition transitioned, Type: {now.type}, Status: {was} -> {now.status}, "
        f"Reason: {now.reason}"
    )
    if isinstance(now, Condition) and now.message:
        message += f", Message: {now.message}"
    return Notice(
        regarding=ref, type="Normal", reason=now.type, message=message, bucket=EVENT_BUCKET
    )


def _finalized(ref: ObjectRef, finalizer: str) -> Notice:
    return Notice(
        regarding=ref,
        type="Normal",
        reason="Finalized",
        message=f"Finalized {finalizer}",
        bucket=EVENT_BUCKET,
    )
