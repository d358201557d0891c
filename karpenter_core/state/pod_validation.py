"""Pods that no NodePool may be asked to serve, and why.

Such a pod is left out of scheduling altogether: it selects on something we must not promise
(a hostname, a label of our own) or stands on a volume that cannot be mounted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    ALIASES,
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    NODE_POOL,
    RESTRICTED_DOMAIN,
    WELL_KNOWN,
)
from karpenter_core.scheduling.requirements import is_restricted_label, parse_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.records import (
        NodeSelectorRequirement,
        PersistentVolumeClaimView,
        PodShape,
        PodView,
        VolumeView,
    )
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["opts_out", "selector_error", "volume_error"]

_LOST: Final = "Lost"
_IMMEDIATE: Final = "Immediate"
_COMPARISONS: Final = frozenset({"Gt", "Lt", "Gte", "Lte"})


def opts_out(shape: PodShape, *, aliases: Mapping[str, str] = ALIASES) -> bool:
    """Tell whether pods of a shape want a node of no pool: `karpenter.sh/nodepool DoesNotExist`.

    Read like placement does: the first required term and the heaviest preferred one.
    """
    preferred = max(shape.preferred_node_terms, key=lambda item: item.weight, default=None)
    terms = [*shape.required_node_terms[:1], *([preferred.term] if preferred else [])]
    return any(
        aliases.get(item.key, item.key) == NODE_POOL and item.operator == "DoesNotExist"
        for term in terms
        for item in term.match_expressions
    )


def selector_error(
    shape: PodShape,
    *,
    well_known: AbstractSet[str] = frozenset(),
    aliases: Mapping[str, str] = ALIASES,
) -> str:
    """Say what is wrong with a shape's node selector and required affinity; empty when nothing."""
    if any(term.match_fields for term in shape.required_node_terms):
        return "node selector term with matchFields is not supported"
    known = WELL_KNOWN | well_known
    for key, operator, values in _expressions(shape, aliases):
        error = _label_error(key, known) or _value_error(key, operator, values)
        if error:
            return error
    return ""


def _expressions(
    shape: PodShape, aliases: Mapping[str, str]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for key, value in shape.node_selector.items():
        yield aliases.get(key, key), "In", (value,)
    for term in shape.required_node_terms:
        yield from _of_term(term.match_expressions, aliases)


def _of_term(
    expressions: Iterable[NodeSelectorRequirement], aliases: Mapping[str, str]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for item in expressions:
        yield aliases.get(item.key, item.key), item.operator, item.values


def _label_error(key: str, known: AbstractSet[str]) -> str:
    if key in known or not is_restricted_label(key):
        return ""
    return (
        f"using label {key} is not allowed as it might interfere with the internal provisioning "
        f"logic; specify a well known label: [{' '.join(sorted(known))}], or a custom label that "
        f"does not use a restricted domain: [{RESTRICTED_DOMAIN}]"
    )


def _value_error(key: str, operator: str, values: tuple[str, ...]) -> str:
    if operator == "In" and not values:
        return f"key {key} with operator In must have a value defined"
    if operator in _COMPARISONS:
        number = parse_integer(values[0]) if len(values) == 1 else None
        if number is None or number < 0:
            return f"key {key} with operator {operator} must have a single positive integer value"
    if key == CAPACITY_TYPE and operator == "In" and not set(values) & set(CAPACITY_TYPES):
        return f"invalid values {sorted(values)} for key {key}, must be one of {CAPACITY_TYPES}"
    return ""


def volume_error(pod: PodView, snapshot: Snapshot) -> str:
    """Say why a volume of a pod cannot be used on any node; empty when all can."""
    for volume in pod.shape.volumes:
        error = _volume_error(pod, volume, snapshot)
        if error:
            return error
    return ""


def _volume_error(pod: PodView, volume: VolumeView, snapshot: Snapshot) -> str:
    name = f"{pod.name}-{volume.name}" if volume.ephemeral else volume.claim_name
    key = f"{pod.namespace}/{name}"
    claim = snapshot.volume_claims.get(key)
    if claim is None:
        return f'persistentvolumeclaim "{key}" not found'
    if claim.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{key}" is being deleted'
    if claim.phase == _LOST:
        return f'persistentvolumeclaim "{key}" is bound to a non-existent persistentvolume'
    if claim.volume_name:
        return _bound_error(claim, key, snapshot)
    return _unbound_error(claim, key, snapshot)


def _bound_error(claim: PersistentVolumeClaimView, key: str, snapshot: Snapshot) -> str:
    if not claim.bind_completed:
        return f'persistentvolumeclaim "{key}" is not bound yet'
    volume = snapshot.volumes.get(claim.volume_name)
    if volume is None:
        return f'persistentvolume "{claim.volume_name}" of "{key}" not found'
    if volume.deletion_timestamp is not None:
        return f'persistentvolume "{claim.volume_name}" of "{key}" is being deleted'
    return ""


def _unbound_error(claim: PersistentVolumeClaimView, key: str, snapshot: Snapshot) -> str:
    if not claim.storage_class:
        return f'unbound persistentvolumeclaim "{key}" must define a storage class'
    storage_class = snapshot.storage_classes.get(claim.storage_class)
    if storage_class is None:
        return f'storageclass "{claim.storage_class}" of "{key}" not found'
    if storage_class.volume_binding_mode == _IMMEDIATE:
        return f'persistentvolumeclaim "{key}" is to be bound before a node is chosen'
    return ""
