"""What a step of a life cycle asks for: new objects, patches, Events, numbers, another look.

A step is a function of objects and the time to a `Step`. It does nothing; whoever called it turns
the difference into as few writes as it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.api.records import OwnerView

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.notices import Notice
    from karpenter_core.api.records import NodeView, Taint
    from karpenter_core.errors import OfferingKey
    from karpenter_core.state.events import Event

__all__ = [
    "Fact",
    "Json",
    "MergePatch",
    "NodePatch",
    "Step",
    "followed_by",
    "metadata_patch",
    "soonest",
    "status_patch",
]

Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | bool | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A number for a metric, named as `Metrics` names it; counters add it, histograms take it."""

    metric: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    value: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePatch:
    """A JSON merge patch; with a resource version when it replaces a list others write to too."""

    body: Mapping[str, Json]
    resource_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePatch:
    """What a Node is to gain and to lose; taints are known by key and effect."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    remove_labels: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[Taint, ...] = ()
    add_finalizers: tuple[str, ...] = ()
    remove_finalizers: tuple[str, ...] = ()
    owner: OwnerView | None = None

    def merged(self, later: NodePatch | None) -> NodePatch:
        """Return one patch for two, the later of which wins."""
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
                *(t for t in self.add_taints if not _among(t, later.remove_taints)),
                *later.add_taints,
            ),
            remove_taints=(
                *(t for t in self.remove_taints if not _among(t, later.add_taints)),
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
        """Return the node as it will be; the same object when it is so already."""
        taints = tuple(t for t in node.taints if not _among(t, self.remove_taints))
        for taint in self.add_taints:
            if not _among(taint, taints):  # the API server refuses a Node that has one twice
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

    def merge_patch(self, node: NodeView) -> MergePatch | None:
        """Return what to send so that the node becomes so; None when it is so already."""
        patched = self.applied_to(node)
        if patched is node:
            return None
        metadata: dict[str, Json] = {}
        spec: dict[str, Json] = {}
        if changed := _changed(node.labels, patched.labels):
            metadata["labels"] = changed
        if changed := _changed(node.annotations, patched.annotations):
            metadata["annotations"] = changed
        if node.finalizers != patched.finalizers:
            metadata["finalizers"] = list(patched.finalizers) or None
        if node.owners != patched.owners:
            metadata["ownerReferences"] = [_owner_json(owner) for owner in patched.owners]
        if node.taints != patched.taints:
            spec["taints"] = [_taint_json(taint) for taint in patched.taints] or None
        locked = bool(spec) or "finalizers" in metadata or "ownerReferences" in metadata
        body: dict[str, Json] = {}
        if metadata:
            body["metadata"] = metadata
        if spec:
            body["spec"] = spec
        return MergePatch(
            body=body, resource_version=str(node.resource_version) if locked else None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What came of one step.

    `claim` is the claim as it should be (the very object given in when nothing changes). With
    `delete` set the claim is to be deleted, for that reason. `error` is to be retried with
    back-off; the rest of the step holds all the same.
    """

    claim: NodeClaim
    node: NodePatch | None = None
    notices: tuple[Notice, ...] = ()
    facts: tuple[Fact, ...] = ()
    events: tuple[Event, ...] = ()
    """To be folded into the state."""
    exhausted: tuple[OfferingKey, ...] = ()
    """Offerings that turned out to be out of stock."""
    exhausted_for: str = ""
    """The NodeClass from which alone `exhausted` cannot be had; empty for all."""
    delete: str = ""
    requeue_after: timedelta | None = None
    error: Exception | None = None


def followed_by(first: Step, later: Step) -> Step:
    """Return two steps as one; `later` was computed from the claim that `first` left."""
    return Step(
        claim=later.claim,
        node=first.node.merged(later.node) if first.node is not None else later.node,
        notices=(*first.notices, *later.notices),
        facts=(*first.facts, *later.facts),
        events=(*first.events, *later.events),
        exhausted=(*first.exhausted, *later.exhausted),
        exhausted_for=first.exhausted_for or later.exhausted_for,
        delete=first.delete or later.delete,
        requeue_after=soonest(first.requeue_after, later.requeue_after),
        error=first.error or later.error,
    )


def soonest(*delays: timedelta | None) -> timedelta | None:
    """Return the shortest of some delays."""
    return min((delay for delay in delays if delay is not None), default=None)


def metadata_patch(old: NodeClaim, new: NodeClaim) -> MergePatch | None:
    """Return what to send so that labels, annotations and finalizers become the new ones."""
    if new.metadata is old.metadata:
        return None
    metadata: dict[str, Json] = {}
    if changed := _changed(old.metadata.labels, new.metadata.labels):
        metadata["labels"] = changed
    if changed := _changed(old.metadata.annotations, new.metadata.annotations):
        metadata["annotations"] = changed
    # Whoever writes a deadline first is right: repair sets a much tighter one than we would.
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
    """Return what to send so that the status becomes the new one.

    `resource_version` is that of the claim as last written, when its metadata was patched first.
    """
    if new.status is old.status:  # a draining node asks once a second
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


def _difference(old: Json, new: Json) -> Json:
    """Return what turns one value into the other; of a map, what is gone is said too."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {
        key: _difference(old.get(key), new.get(key))
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    }


def _among(taint: Taint, taints: tuple[Taint, ...]) -> bool:
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
