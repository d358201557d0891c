"""Hashes a NodePool's template, to find claims made from an older one.

The value equals Karpenter's, bit for bit (a structural FNV-1 hash, version `v3`), so that a cluster
can move between the controllers without drift. It covers the fields that only a new node can change:
labels, annotations, taints, NodeClass, expiry and grace period. It leaves out requirements, which are
compared with each node instead, and everything outside the template.

How values are hashed: a text by its bytes; a whole number by eight bytes; a struct by its name and
its fields that are not empty, in order; a map and a list regardless of order. Names are those of the
Go structs, as they go into the hash.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import NODE_POOL_HASH, NODE_POOL_HASH_VERSION
from karpenter_core.api.nodeclaim import DRIFTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim, NodeClassRef, TaintSpec
    from karpenter_core.api.nodepool import (
        NodeClaimTemplate,
        NodePool,
        TemplateMetadata,
        TemplateSpec,
    )

__all__ = ["HASH_VERSION", "node_pool_hash", "with_current_hash", "with_hash"]

HASH_VERSION: Final = "v3"
"""Version of the hash function, as upstream counts it."""

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1
_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)


def node_pool_hash(pool: NodePool) -> str:
    """Return the hash of the pool's template, as in its annotation."""
    return str(_template(pool.spec.template))


def with_hash(pool: NodePool) -> NodePool:
    """Return the pool with its hash annotations up to date; the same object when they are."""
    current = {NODE_POOL_HASH: node_pool_hash(pool), NODE_POOL_HASH_VERSION: HASH_VERSION}
    annotations = {**pool.metadata.annotations, **current}
    if annotations == pool.metadata.annotations:
        return pool
    metadata = pool.metadata.model_copy(update={"annotations": annotations})
    return pool.model_copy(update={"metadata": metadata})


def with_current_hash(claim: NodeClaim, pool: NodePool) -> NodeClaim:
    """Return a claim of the pool with a hash of the current version.

    Only claims with a hash of another version change, and a drifted claim keeps its old hash, so that
    it stays drifted. Call this only when the pool's hash has another version too.
    """
    annotations = dict(claim.metadata.annotations)
    if annotations.get(NODE_POOL_HASH_VERSION) == HASH_VERSION:
        return claim
    annotations[NODE_POOL_HASH_VERSION] = HASH_VERSION
    if find_condition(claim.status.conditions, DRIFTED) is None:
        annotations[NODE_POOL_HASH] = node_pool_hash(pool)
    metadata = claim.metadata.model_copy(update={"annotations": annotations})
    return claim.model_copy(update={"metadata": metadata})


def _template(template: NodeClaimTemplate) -> int:
    return _struct(
        "NodeClaimTemplate",
        ObjectMeta=_metadata(template.metadata),
        Spec=_spec(template.spec),
    )


def _metadata(metadata: TemplateMetadata) -> int | None:
    given = metadata.model_fields_set
    labels = _map(metadata.labels, is_given="labels" in given)
    annotations = _map(metadata.annotations, is_given="annotations" in given)
    return _struct_or_none("ObjectMeta", Labels=labels, Annotations=annotations)


def _spec(spec: TemplateSpec) -> int | None:
    expiry = spec.expire_after.nanoseconds
    grace = spec.termination_grace_period
    return _struct_or_none(
        "NodeClaimTemplateSpec",
        Taints=_taints(spec.taints, is_given="taints" in spec.model_fields_set),
        StartupTaints=_taints(
            spec.startup_taints, is_given="startup_taints" in spec.model_fields_set
        ),
        NodeClassRef=_node_class_ref(spec.node_class_ref),
        TerminationGracePeriod=(
            None if grace is None else _struct("Duration", Duration=_number(grace.nanoseconds))
        ),
        ExpireAfter=(
            None if expiry is None else _struct("NillableDuration", Duration=_integer(expiry))
        ),
    )


def _node_class_ref(ref: NodeClassRef) -> int | None:
    """Hash a reference; an empty one, which the API server refuses, counts as none."""
    return _struct_or_none(
        "NodeClassReference",
        Kind=_text(ref.kind),
        Name=_text(ref.name),
        Group=_text(ref.group),
    )


def _taints(taints: Iterable[TaintSpec], *, is_given: bool) -> int | None:
    """Hash taints as a set; an explicit empty list differs from an absent one."""
    return _unordered(_taint(taint) for taint in taints) if is_given else None


def _taint(taint: TaintSpec) -> int:
    added = taint.time_added
    return _struct(
        "Taint",
        Key=_text(taint.key),
        Value=_text(taint.value),
        Effect=_text(taint.effect),
        TimeAdded=None if added is None else _struct("Time", Time=_instant(added)),
    )


def _struct(name: str, **fields: int | None) -> int:
    value = _string(name)
    for field, hashed in fields.items():
        if hashed is not None:
            value = _finish(value ^ _pair(_string(field), hashed))
    return value


def _struct_or_none(name: str, **fields: int | None) -> int | None:
    """Hash a struct; None when all its fields are absent."""
    if all(hashed is None for hashed in fields.values()):
        return None
    return _struct(name, **fields)


def _map(items: Mapping[str, str], *, is_given: bool) -> int | None:
    if not is_given:
        return None
    return _finish(_unordered(_pair(_string(key), _string(items[key])) for key in items))


def _unordered(hashes: Iterable[int]) -> int:
    value = 0
    for hashed in hashes:
        value ^= hashed
    return value


def _pair(first: int, second: int) -> int:
    return _fnv(first.to_bytes(8, "little") + second.to_bytes(8, "little"))


def _finish(value: int) -> int:
    """Harden a combination, so that equal parts elsewhere do not cancel it out."""
    return _fnv(value.to_bytes(8, "little"))


def _text(text: str) -> int | None:
    return _string(text) if text else None


def _number(number: int) -> int | None:
    return _integer(number) if number else None


def _integer(number: int) -> int:
    """Hash a number; none in a template is negative."""
    return _fnv(number.to_bytes(8, "little"))


def _instant(moment: datetime) -> int:
    """Hash an instant as Go's binary form of it: seconds since year 1, nanoseconds, offset 0."""
    since = moment.astimezone(UTC) - _YEAR_ONE
    seconds = since.days * 86400 + since.seconds
    nanoseconds = since.microseconds * 1000
    return _fnv(b"\x01" + seconds.to_bytes(8, "big") + nanoseconds.to_bytes(4, "big") + bytes(2))


@lru_cache(maxsize=4096)
def _string(text: str) -> int:
    return _fnv(text.encode())


def _fnv(data: bytes) -> int:
    """FNV-1, 64 bits (multiply first)."""
    value = _OFFSET
    for byte in data:
        value = (value * _PRIME & _MASK) ^ byte
    return value
