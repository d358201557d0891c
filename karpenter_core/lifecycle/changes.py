"""Defines the result of a lifecycle step: objects, patches, Events, metrics.

A step is a pure function of objects and the time that returns a `LifecycleStep`. The caller turns the
difference between the old and the new objects into as few writes as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.api.records import OwnerView

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.api.base import Model
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.notices import Notice
    from karpenter_core.api.records import NodeView, Taint
    from karpenter_core.errors import OfferingMask
    from karpenter_core.state.events import StateEvent

__all__ = [
    "Json",
    "LifecycleMetric",
    "LifecycleStep",
    "MergePatch",
    "MetricUpdate",
    "NodePatch",
    "changed_fields",
    "merge_steps",
    "metadata_patch",
    "soonest",
    "status_patch",
]

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"


class LifecycleMetric(StrEnum):
    """A metric that a step may change, by the attribute of `Metrics` that holds it."""

    NODECLAIMS_CREATED = "nodeclaims_created"
    NODECLAIMS_TERMINATED = "nodeclaims_terminated"
    NODECLAIMS_DISRUPTED = "nodeclaims_disrupted"
    NODECLAIMS_HELD_BACK = "nodeclaims_held_back"
    NODECLAIMS_UNHEALTHY_DISRUPTED = "nodeclaims_unhealthy_disrupted"
    NODECLAIMS_INSTANCE_TERMINATION_DURATION = "nodeclaims_instance_termination_duration"
    NODECLAIMS_TERMINATION_DURATION = "nodeclaims_termination_duration"
    NODES_CREATED = "nodes_created"
    NODES_DRAINED = "nodes_drained"
    NODES_TERMINATED = "nodes_terminated"
    NODES_TERMINATION_DURATION = "nodes_termination_duration"
    NODES_LIFETIME_DURATION = "nodes_lifetime_duration"
    PODS_DRAINED = "pods_drained"
    PODS_SURGE_MOVES = "pods_surge_moves"
    PODS_DISRUPTION_INITIATED = "pods_disruption_initiated"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricUpdate:
    """A number for a metric; counters add it, histograms and summaries observe it."""

    metric: LifecycleMetric
    labels: Mapping[str, str]
    value: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePatch:
    """A JSON merge patch; with a resource version if it replaces a list that has other writers."""

    body: Mapping[str, Json]
    resource_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePatch:
    """Additions to and removals from a Node; taints are identified by key and effect."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    remove_labels: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()
    add_finalizers: tuple[str, ...] = ()
    remove_finalizers: tuple[str, ...] = ()
    owner: OwnerView | None = None

    def merged(self, later: NodePatch | None) -> NodePatch:
        """Return both patches as one; where they conflict, the later one wins."""
        if later is None:
            return self
        return NodePatch(
            labels={
                **{key: v for key, v in self.labels.items() if key not in later.remove_labels},
                **later.labels,
            },
            remove_labels=(
                *(key for key in self.remove_labels if key not in later.labels),
                *later.remove_labels,
            ),
            annotations={**self.annotations, **later.annotations},
            add_taints=(
                *(t for t in self.add_taints if not _has_taint(t, later.remove_taints)),
                *later.add_taints,
            ),
            remove_taints=(
                *(t for t in self.remove_taints if not _has_taint(t, later.add_taints)),
                *later.remove_taints,
            ),
            add_finalizers=(
                *(f for f in self.add_finalizers if f not in later.remove_finalizers),
                *later.add_finalizers,
            ),
            remove_finalizers=(
                *(f for f in self.remove_finalizers if f not in later.add_finalizers),
                *later.remove_finalizers,
            ),
            owner=later.owner or self.owner,
        )

    def applied_to(self, node: NodeView) -> NodeView:
        """Return the node with the patch applied; the same object when nothing changes."""
        taints = tuple(t for t in node.taints if not _has_taint(t, self.remove_taints))
        for taint in self.add_taints:
            if not _has_taint(taint, taints):  # the API server refuses a Node that has one twice
                taints += (taint,)
        finalizers = tuple(f for f in node.finalizers if f not in self.remove_finalizers)
        finalizers = tuple(dict.fromkeys((*finalizers, *self.add_finalizers)))
        owners = node.owners
        if self.owner is not None and all(o.uid != self.owner.uid for o in owners):
            owners = (*owners, self.owner)
        patched = msgspec.structs.replace(
            node,
            labels={
                **{key: v for key, v in node.labels.items() if key not in self.remove_labels},
                **self.labels,
            },
            annotations={**node.annotations, **self.annotations},
            taints=taints,
            finalizers=finalizers,
            owners=owners,
        )
        return node if _same(node, patched) else patched

    def operations_for(self, node: NodeView) -> list[Mapping[str, Json]]:
        """Return the JSON patch to send for the node; empty when nothing changes.

        Its tests fail where another writer has changed the same list, and where the Node was
        replaced. A lock on the version would fail after every write of others, and a new Node has
        many: its kubelet, and the controllers that taint, label and annotate it.
        """
        patched = self.applied_to(node)
        if patched is node:
            return []
        operations = [
            _test("/metadata/uid", node.uid),
            *_map_operations("/metadata/labels", node.labels, patched.labels),
            *_map_operations("/metadata/annotations", node.annotations, patched.annotations),
        ]
        if node.finalizers != patched.finalizers:
            path = "/metadata/finalizers"
            operations.append(_test(path, list(node.finalizers) or None))
            operations.append(
                _add(path, list(patched.finalizers)) if patched.finalizers else _removed(path)
            )
        owners = [_owner_json(owner) for owner in patched.owners[len(node.owners) :]]
        operations += _appended("/metadata/ownerReferences", owners, is_there=bool(node.owners))
        return [*operations, *self._taint_operations(node, patched)]

    def _taint_operations(self, node: NodeView, patched: NodeView) -> list[Mapping[str, Json]]:
        """Remove and append taints one by one: others write the same list."""
        operations: list[Mapping[str, Json]] = []
        for index, taint in reversed(list(enumerate(node.taints))):
            if _has_taint(taint, self.remove_taints):
                place = f"/spec/taints/{index}"
                operations += [
                    _test(f"{place}/key", taint.key),
                    _test(f"{place}/effect", taint.effect),
                    _removed(place),
                ]
        added = [_taint_json(t) for t in patched.taints if not _has_taint(t, node.taints)]
        return operations + _appended("/spec/taints", added, is_there=bool(node.taints))


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleStep:
    """The result of one step: the claim as it should be, and what follows from it.

    `claim` is the object passed in when nothing changes. With `delete` set, the claim is to be
    deleted for that reason. `error` is retried with back-off; the rest of the step is applied all
    the same.
    """

    claim: NodeClaim
    node: NodePatch | None = None
    notices: tuple[Notice, ...] = ()
    metric_updates: tuple[MetricUpdate, ...] = ()
    events: tuple[StateEvent, ...] = ()
    """Events for the cluster state."""
    exhausted: tuple[OfferingMask, ...] = ()
    """Offerings that the cloud reported as unavailable."""
    exhausted_for: str = ""
    """The only NodeClass for which `exhausted` is unavailable; empty for all NodeClasses."""
    delete: str = ""
    requeue_after: timedelta | None = None
    error: Exception | None = None


def merge_steps(first: LifecycleStep, later: LifecycleStep) -> LifecycleStep:
    """Return two steps as one; `later` was computed from the claim of `first`."""
    return LifecycleStep(
        claim=later.claim,
        node=first.node.merged(later.node) if first.node is not None else later.node,
        notices=(*first.notices, *later.notices),
        metric_updates=(*first.metric_updates, *later.metric_updates),
        events=(*first.events, *later.events),
        exhausted=(*first.exhausted, *later.exhausted),
        exhausted_for=first.exhausted_for or later.exhausted_for,
        delete=first.delete or later.delete,
        requeue_after=soonest(first.requeue_after, later.requeue_after),
        error=first.error or later.error,
    )


def soonest(*delays: timedelta | None) -> timedelta | None:
    """Return the shortest delay; None when there is none."""
    return min((delay for delay in delays if delay is not None), default=None)


def metadata_patch(old: NodeClaim, new: NodeClaim) -> MergePatch | None:
    """Return the patch of labels, annotations and finalizers; None when nothing changed."""
    if new.metadata is old.metadata:
        return None
    metadata: dict[str, Json] = {}
    if changed := _changed(old.metadata.labels, new.metadata.labels):
        metadata["labels"] = changed
    if changed := _changed(old.metadata.annotations, new.metadata.annotations):
        metadata["annotations"] = changed
    # The first writer of a deadline wins: repair sets a much earlier one than termination would.
    locked = TERMINATION_TIMESTAMP in changed
    if old.metadata.finalizers != new.metadata.finalizers:
        metadata["finalizers"] = list(new.metadata.finalizers) or None
        locked = True
    if not metadata:
        return None
    return MergePatch(
        body={"metadata": metadata},
        resource_version=old.metadata.resource_version if locked else None,
    )


def status_patch(
    old: NodeClaim, new: NodeClaim, *, resource_version: str | None = None
) -> MergePatch | None:
    """Return the patch of a claim's status; None when nothing changed.

    `resource_version` is the one that a patch of the metadata, sent before, has returned.
    """
    if new.status is old.status:  # cheap: a draining node comes here once a second
        return None
    before = old.status.model_dump(mode="json", exclude_defaults=True)
    after = new.status.model_dump(mode="json", exclude_defaults=True)
    status: dict[str, Json] = {
        key: _difference(before.get(key), after.get(key))
        for key in before | after
        if before.get(key) != after.get(key)
    }
    if not status:
        return None
    locked = "conditions" in status
    version = resource_version or old.metadata.resource_version
    return MergePatch(body={"status": status}, resource_version=version if locked else None)


def changed_fields(old: Model, new: Model) -> dict[str, Json]:
    """Return the JSON of the top-level fields that differ; None for one that is gone."""
    before = old.model_dump(mode="json", exclude_none=True)
    after = new.model_dump(mode="json", exclude_none=True)
    return {name: after.get(name) for name in before | after if before.get(name) != after.get(name)}


def _difference(old: Json, new: Json) -> Json:
    """Return the merge patch from one value to the other; keys that are gone become null."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {
        key: _difference(old.get(key), new.get(key))
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    }


def _has_taint(taint: Taint, taints: tuple[Taint, ...]) -> bool:
    return any(t.key == taint.key and t.effect == taint.effect for t in taints)


def _same(old: NodeView, new: NodeView) -> bool:
    return (
        old.labels == new.labels
        and old.annotations == new.annotations
        and old.taints == new.taints
        and old.finalizers == new.finalizers
        and old.owners == new.owners
    )


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, Json]:
    changed: dict[str, Json] = {key: v for key, v in new.items() if old.get(key) != v}
    changed.update(dict.fromkeys(key for key in old if key not in new))
    return changed


def _test(path: str, value: Json) -> Mapping[str, Json]:
    """Return the operation that refuses the patch if the value is another; None is a missing one."""
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Json) -> Mapping[str, Json]:
    """Return the operation that sets a member, or inserts an item."""
    return {"op": "add", "path": path, "value": value}


def _removed(path: str) -> Mapping[str, Json]:
    return {"op": "remove", "path": path}


def _map_operations(
    path: str, old: Mapping[str, str], new: Mapping[str, str]
) -> list[Mapping[str, Json]]:
    changed = _changed(old, new)
    if not old and changed:
        return [_test(path, None), _add(path, changed)]
    operations: list[Mapping[str, Json]] = []
    for key, value in changed.items():
        place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        operations.append(_removed(place) if value is None else _add(place, value))
    return operations


def _appended(
    path: str, items: Sequence[Mapping[str, Json]], *, is_there: bool
) -> list[Mapping[str, Json]]:
    """Append to a list; `is_there` tells whether the object has it."""
    if items and not is_there:
        return [_test(path, None), _add(path, list(items))]
    return [_add(f"{path}/-", item) for item in items]


def _taint_json(taint: Taint) -> dict[str, Json]:
    rest: dict[str, Json] = {"value": taint.value} if taint.value else {}
    if taint.time_added:
        rest["timeAdded"] = taint.time_added
    return {"key": taint.key, "effect": taint.effect, **rest}


def _owner_json(owner: OwnerView) -> dict[str, Json]:
    flags: dict[str, Json] = {"controller": True} if owner.controller else {}
    if owner.block_owner_deletion:
        flags["blockOwnerDeletion"] = True
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        **flags,
    }
