"""Publishes changes of status conditions as Events and metrics.

It compares two observations of an object, so a condition that flips twice in between is missed, and a
condition that is seen for the first time has no known duration before. Conditions are observed, not
intercepted where they are set: only what others can read counts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, Condition
from karpenter_core.api.labels import GROUP, TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import NODE_CLAIM_CONDITIONS, NodeClaim
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.nodepool import NODE_POOL_CONDITIONS, NodePool
from karpenter_core.api.notices import Notice, ObjectRef, node_ref
from karpenter_core.api.records import NodeConditionView, NodeView
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.metrics.condition_metrics import object_labels
from karpenter_core.provider.kit.series_text import escape_label_value, labels_text
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.metrics.condition_metrics import ConditionFamily
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ConditionObserver"]

EVENT_BUCKET: Final = "conditions"
"""Rate limit that these Events share, so that a scale-up does not displace other Events."""
BATCH_SIZE: Final = 200
"""The number of objects that are observed before other tasks run."""

ObservedObject: TypeAlias = NodeClaim | NodePool | NodeView | CapacityBuffer | NodeOverlay

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_STAGES: Final = frozenset((*NODE_CLAIM_CONDITIONS.dependents, *NODE_POOL_CONDITIONS.dependents))
"""The conditions that make up `Ready`."""
_KINDS: Final = {
    ObjectKind.NODE_CLAIM: "NodeClaim",
    ObjectKind.NODE_POOL: "NodePool",
    ObjectKind.NODE: "Node",
    ObjectKind.CAPACITY_BUFFER: "CapacityBuffer",
    ObjectKind.NODE_OVERLAY: "NodeOverlay",
}
_GROUPS: Final = {
    "NodeClaim": GROUP,
    "NodePool": GROUP,
    "CapacityBuffer": CapacityBuffer.resource.group,
    "NodeOverlay": GROUP,
}
"""API groups of the kinds that the metrics without a kind in their names count too."""


@dataclass(frozen=True, slots=True)
class _LastObserved:
    """An object as last observed, with the values of its metric labels."""

    kube_object: ObservedObject
    labels: tuple[str, ...]
    since: tuple[int, ...]
    """Times of the last transitions, in microseconds, of the conditions that have one."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """Written series by metric: they change when the object does."""

    @property
    def ref(self) -> ObjectRef:
        """The reference for Events."""
        return (
            node_ref(self.kube_object)
            if isinstance(self.kube_object, NodeView)
            else self.kube_object.ref
        )

    @property
    def namespace(self) -> str:
        """The namespace; empty for most kinds."""
        kube_object = self.kube_object
        return kube_object.namespace if isinstance(kube_object, CapacityBuffer) else ""

    @property
    def conditions(self) -> Sequence[Condition | NodeConditionView]:
        """The status conditions."""
        return (
            self.kube_object.conditions
            if isinstance(self.kube_object, NodeView)
            else self.kube_object.status.conditions
        )

    @property
    def finalizers(self) -> tuple[str, ...]:
        """The finalizers."""
        kube_object = self.kube_object
        return (
            kube_object.finalizers
            if isinstance(kube_object, NodeView)
            else kube_object.metadata.finalizers
        )

    @property
    def deleted_at(self) -> datetime | None:
        """The deletion timestamp."""
        kube_object = self.kube_object
        return (
            kube_object.deletion_timestamp
            if isinstance(kube_object, NodeView)
            else kube_object.metadata.deletion_timestamp
        )


@final
class ConditionObserver:
    """The controller `status`."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        publish: Callable[[Notice], None],
        runtime: ControllerRuntime,
    ) -> None:
        self._cluster_state = cluster_state
        self._publish = publish
        self._clock = runtime.clock
        self._metrics = runtime.metrics.conditions
        self._last_observed: dict[str, dict[str, _LastObserved]] = {
            kind: {} for kind in _KINDS.values()
        }
        self._labels = {
            kind: object_labels(kind, self._metrics.node_class_labels) for kind in _KINDS.values()
        }
        self._change_queue = ChangedNames(cluster_state, *_KINDS)
        for kind, family in self._metrics.by_kind.items():
            _connect_series(self, family, (kind,), deprecated=False)
        _connect_series(self, self._metrics.deprecated, tuple(_GROUPS), deprecated=True)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "status"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        snapshot = self._cluster_state.snapshot()
        for kind, name in _KINDS.items():
            await self._observe_all(name, tuple(_table(snapshot, kind)), snapshot, kind)
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            for kind, names in changes.items():
                await self._observe_all(_KINDS[kind], names, snapshot, kind)

    async def _observe_all(
        self, kind_name: str, names: tuple[str, ...], snapshot: Snapshot, kind: ObjectKind
    ) -> None:
        table = _table(snapshot, kind)
        for start in range(0, len(names), BATCH_SIZE):
            for name in names[start : start + BATCH_SIZE]:
                self._observe(kind_name, name, table.get(name))
            await asyncio.sleep(0)

    def _observe(self, kind: str, name: str, current: ObservedObject | None) -> None:
        last_observed = self._last_observed[kind]
        before = last_observed.get(name)
        if before is not None and current is before.kube_object:
            return
        if before is not None and (current is None or current.uid != before.kube_object.uid):
            del last_observed[name]
            self._record_removal(kind, before)
            before = None
        if current is None:
            return
        observed = last_observed[name] = self._with_labels(kind, current)
        if before is not None:
            self._publish_finalized(before, observed.finalizers)
        self._record_changes(kind, before, observed)

    def _with_labels(self, kind: str, current: ObservedObject) -> _LastObserved:
        labels = current.labels if isinstance(current, NodeView) else current.metadata.labels
        conditions = (
            current.conditions if isinstance(current, NodeView) else current.status.conditions
        )
        return _LastObserved(
            current,
            tuple(labels.get(key, "") for key in self._labels[kind]),
            tuple(
                (now.last_transition_time - _ZERO) // _MICROSECOND
                for now in conditions
                if now.last_transition_time is not None
            ),
        )

    def _record_changes(
        self, kind: str, before: _LastObserved | None, after: _LastObserved
    ) -> None:
        """Count changed conditions and publish their Events.

        A new condition has no earlier status and gets no Event, unless it is a False condition of a
        NodeClaim or NodePool, which users must correct. Changes that `Ready` implies get no Event:
        stages that turn True together with it, and the conditions of a Node that falls silent, which
        all turn Unknown, and back.
        """
        earlier = {} if before is None else {item.type: item for item in before.conditions}
        changed: list[tuple[str, Condition | NodeConditionView]] = []
        for now in after.conditions:
            was = earlier.get(now.type)
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
            if _adds_to_ready(kind, status, now, becomes_ready=becomes_ready):
                self._publish(_transition_notice(after.ref, status, now))

    def _record_removal(self, kind: str, last: _LastObserved) -> None:
        self._publish_finalized(last, ())
        if last.deleted_at is None:
            return
        seconds = (self._clock.now() - last.deleted_at).total_seconds()
        for family, labels in self._families(kind, last):
            metric = family.termination_duration
            (metric.labels(*labels) if labels else metric).observe(seconds)

    def _publish_finalized(self, before: _LastObserved, remaining: tuple[str, ...]) -> None:
        """Publish removed finalizers, except our own on Nodes, which the claim's Event covers."""
        is_of_claim = isinstance(before.kube_object, NodeView) and any(
            owner.kind == "NodeClaim" for owner in before.kube_object.owners
        )
        for finalizer in before.finalizers:
            if finalizer not in remaining and not (
                is_of_claim and finalizer == TERMINATION_FINALIZER
            ):
                self._publish(_finalized_notice(before.ref, finalizer))

    def _families(
        self, kind: str, observed: _LastObserved
    ) -> tuple[tuple[ConditionFamily, tuple[str, ...]], ...]:
        own = self._metrics.by_kind[kind], observed.labels
        if kind not in _GROUPS:
            return (own,)
        return (own, (self._metrics.deprecated, (_GROUPS[kind], kind)))

    # Called when the metrics are scraped, in another thread: they read copies of the tables.

    def count_lines(self, name: str, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[str]:
        """Yield the series with value 1 for every condition of every object."""
        for kind, observed in self._objects(kinds):
            text = observed.texts.get(name)
            if text is None:
                labels = self._labels_of(kind, observed, deprecated=deprecated)
                text = observed.texts[name] = "".join(
                    f"{name}{{{labels},{_condition_text(now.type, now.status, now.reason)}}} 1.0\n"
                    for now in observed.conditions
                )
            yield text

    def age_lines(self, name: str, kinds: tuple[str, ...], *, deprecated: bool) -> Iterator[str]:
        """Yield for every condition the age of its status, to the second."""
        moment = (self._clock.now().replace(microsecond=0) - _ZERO) // _MICROSECOND
        for kind, observed in self._objects(kinds):
            form = observed.texts.get(name)
            if form is None:
                labels = self._labels_of(kind, observed, deprecated=deprecated)
                form = observed.texts[name] = _age_form(name, labels, observed)
            yield form % tuple([(moment - since) / 1_000_000 for since in observed.since])

    def terminating_lines(
        self, name: str, kinds: tuple[str, ...], *, deprecated: bool
    ) -> Iterator[str]:
        """Yield for every deleted object the time since its deletion."""
        moment = self._clock.now()
        for kind, observed in self._objects(kinds):
            if observed.deleted_at is not None:
                labels = self._labels_of(kind, observed, deprecated=deprecated)
                yield f"{name}{{{labels}}} {(moment - observed.deleted_at).total_seconds()!r}\n"

    def _objects(self, kinds: tuple[str, ...]) -> Iterator[tuple[str, _LastObserved]]:
        for kind in kinds:
            for observed in tuple(self._last_observed[kind].values()):
                yield kind, observed

    def _labels_of(self, kind: str, observed: _LastObserved, *, deprecated: bool) -> str:
        """Return the labels that identify an object, as text."""
        names = ("group", "kind") if deprecated else self._metrics.label_names[kind]
        values = (_GROUPS[kind], kind) if deprecated else observed.labels
        where = f'name="{observed.kube_object.name}",namespace="{observed.namespace}"'
        return f"{_labels_text(names, values)}{where}"


def _age_form(name: str, labels: str, observed: _LastObserved) -> str:
    """Return the lines of an object's conditions with a place for each age."""
    texts = (
        _condition_text(now.type, now.status, now.reason)
        for now in observed.conditions
        if now.last_transition_time is not None
    )
    return "".join(f"{name}{{{labels},{text}}}".replace("%", "%%") + " %r\n" for text in texts)


def _connect_series(
    observer: ConditionObserver,
    family: ConditionFamily,
    kinds: tuple[str, ...],
    *,
    deprecated: bool,
) -> None:
    for series, lines in (
        (family.count, observer.count_lines),
        (family.current, observer.age_lines),
        (family.terminating, observer.terminating_lines),
    ):
        series.set_source(partial(lines, kinds=kinds, deprecated=deprecated))


@lru_cache(maxsize=4096)
def _condition_text(type_: str, status: str, reason: str) -> str:
    return labels_text({"reason": reason, "status": status, "type": type_})


@lru_cache(maxsize=4096)
def _labels_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return labels as text that ends with a comma, so that others can follow."""
    return "".join(
        f'{name}="{escape_label_value(value)}",' for name, value in zip(names, values, strict=True)
    )


def _table(snapshot: Snapshot, kind: ObjectKind) -> Mapping[str, ObservedObject]:
    match kind:
        case ObjectKind.NODE_CLAIM:
            return snapshot.node_claims
        case ObjectKind.NODE_POOL:
            return snapshot.node_pools
        case ObjectKind.CAPACITY_BUFFER:
            return snapshot.capacity_buffers
        case ObjectKind.NODE_OVERLAY:
            return snapshot.node_overlays
        case _:
            return snapshot.nodes


def _adds_to_ready(
    kind: str, was: str, now: Condition | NodeConditionView, *, becomes_ready: bool
) -> bool:
    """Tell whether a change adds information to that of `Ready`."""
    if now.type == READY:
        return True
    if kind == "Node":
        return TRUE in {was, now.status}
    is_stage = now.type in _STAGES and (was, now.status) == (UNKNOWN, TRUE)
    return not (is_stage and becomes_ready)


def _transition_notice(ref: ObjectRef, was: str, now: Condition | NodeConditionView) -> Notice:
    message = (
        f"Status condition transitioned, Type: {now.type}, Status: {was} -> {now.status}, "
        f"Reason: {now.reason}"
    )
    if isinstance(now, Condition) and now.message:
        message += f", Message: {now.message}"
    return Notice(
        regarding=ref, type="Normal", reason=now.type, message=message, bucket=EVENT_BUCKET
    )


def _finalized_notice(ref: ObjectRef, finalizer: str) -> Notice:
    return Notice(
        regarding=ref,
        type="Normal",
        reason="Finalized",
        message=f"Finalized {finalizer}",
        bucket=EVENT_BUCKET,
    )
