"""Detects drift of a claim from its pool, the catalogue and its NodeClass.

There are five checks, and the first that finds drift gives the reason: the pool's template changed
(`NodePoolDrifted`), the pool's requirements exclude the claim (`RequirementsDrifted`), the catalogue no
longer has an offering like the claim's (`InstanceTypeNotFound`), the NodeClass changed
(`NodeClassDrift`), or the provider reports drift of the instance. The first four are made here; the
drift controller asks the provider for many claims in one call.

If drift cannot be determined now, the condition stays as it is: during an outage of the cloud nodes
are neither replaced nor forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import (
    ALIASES,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL_HASH,
    NODE_POOL_HASH_VERSION,
    ON_DEMAND,
    RESERVED,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.api.nodeclaim import (
    DRIFTED,
    INSTANCE_TYPE_NOT_FOUND,
    LAUNCHED,
    NODE_POOL_DRIFTED,
    REQUIREMENTS_DRIFTED,
)
from karpenter_core.lifecycle.claim_status import with_condition, without_condition
from karpenter_core.lifecycle.nodeclass.hashing import node_class_drift
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import StateNode

__all__ = [
    "TYPE_CHECK_AGE",
    "TYPE_CHECK_PERIOD",
    "DriftRules",
    "LocalDrift",
    "is_type_check_due",
    "local_drift",
    "with_drift",
]

TYPE_CHECK_AGE: Final = timedelta(hours=1)
"""Younger claims are not looked up in the catalogue that they were made from (upstream)."""
TYPE_CHECK_PERIOD: Final = timedelta(minutes=30)
"""The time for which a claim that was found in the catalogue is not looked up again (upstream)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRules:
    """The well-known labels, and aliases of label keys, of the core and the loaded providers."""

    well_known: frozenset[str] = WELL_KNOWN
    aliases: Mapping[str, str] = field(default_factory=lambda: dict(ALIASES))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDrift:
    """The result of the checks that need no call to the provider."""

    reason: str = ""
    is_decided: bool = False
    """Whether the provider need not be called."""
    is_type_found: bool = False
    """Whether the claim was looked up in the catalogue and found there."""
    is_type_unknown: bool = False
    """Whether a look-up was due, but there was no catalogue."""


def is_type_check_due(claim: NodeClaim, found_at: datetime | None, *, now: datetime) -> bool:
    """Tell whether a claim, last found at `found_at`, is due to be looked up in the catalogue."""
    created = claim.metadata.creation_timestamp
    if created is None or now - created <= TYPE_CHECK_AGE:
        return False
    return found_at is None or now - found_at >= TYPE_CHECK_PERIOD


def local_drift(
    claim: NodeClaim,
    pool: NodePool,
    instance_types: Mapping[str, InstanceType] | None,
    *,
    now: datetime,
    state_node: StateNode | None = None,
    node_class: NodeClass | None = None,
    found_at: datetime | None = None,
    rules: DriftRules | None = None,
) -> LocalDrift:
    """Compare a claim with its pool, its NodeClass and, when that is due, the catalogue.

    `instance_types` are those of the pool's catalogue by name, None while there is no catalogue; at
    `found_at` the claim was last found there. `state_node` is the one of the claim.
    """
    rules = rules or DriftRules()
    if not is_true(claim.status.conditions, LAUNCHED):
        return LocalDrift(is_decided=True)
    labels = _current_labels(claim, state_node)
    reason = _static_drift(claim, pool) or _requirements_drift(labels, pool, rules)
    if reason:
        return LocalDrift(reason=reason, is_decided=True)
    is_due = is_type_check_due(claim, found_at, now=now)
    if is_due and instance_types is not None and not _is_sold(claim, instance_types, rules):
        return LocalDrift(reason=INSTANCE_TYPE_NOT_FOUND, is_decided=True)
    reason = "" if node_class is None else node_class_drift(claim, node_class)
    return LocalDrift(
        reason=reason,
        is_decided=bool(reason),
        is_type_found=is_due and instance_types is not None,
        is_type_unknown=is_due and instance_types is None,
    )


def with_drift(
    claim: NodeClaim, local: LocalDrift, provider_reason: str | None, *, now: datetime
) -> NodeClaim:
    """Return the claim with the condition set, cleared or left; the same object when nothing changed.

    `provider_reason` is empty if the provider sees no drift, None if it could not determine it.
    """
    reason = local.reason if local.is_decided else provider_reason
    if reason:
        return with_condition(claim, DRIFTED, now=now, reason=reason, message=reason)
    if reason is None or local.is_type_unknown:
        return claim
    return without_condition(claim, DRIFTED)


def _static_drift(claim: NodeClaim, pool: NodePool) -> str:
    """Compare the hashes of pool and claim, if both exist and have the same version."""
    ours, theirs = claim.metadata.annotations, pool.metadata.annotations
    version = ours.get(NODE_POOL_HASH_VERSION)
    hashed = ours.get(NODE_POOL_HASH)
    current = theirs.get(NODE_POOL_HASH)
    if version is None or hashed is None or current is None:
        return ""
    if version != theirs.get(NODE_POOL_HASH_VERSION) or hashed == current:
        return ""
    return NODE_POOL_DRIFTED


def _current_labels(claim: NodeClaim, state_node: StateNode | None) -> Mapping[str, str]:
    """Return the labels of a claim, without its reservation if that has ended.

    The provider then labels the Node alone on-demand, and takes the reservation's labels from it.
    """
    labels = claim.metadata.labels
    node_labels = labels if state_node is None else state_node.labels
    if labels.get(CAPACITY_TYPE) != RESERVED or node_labels.get(CAPACITY_TYPE) != ON_DEMAND:
        return labels
    kept = {key: value for key, value in labels.items() if key in node_labels}
    return {**kept, CAPACITY_TYPE: ON_DEMAND}


def _requirements_drift(labels_now: Mapping[str, str], pool: NodePool, rules: DriftRules) -> str:
    """Compare the pool's requirements with a claim's labels; a missing label has no value."""
    labels = Requirements.from_labels(labels_now, aliases=rules.aliases)
    required = Requirements.from_specs(pool.spec.template.spec.requirements, aliases=rules.aliases)
    return "" if labels.compatible(required) else REQUIREMENTS_DRIFTED


def _is_sold(claim: NodeClaim, types: Mapping[str, InstanceType], rules: DriftRules) -> bool:
    """Tell whether an offering, available or not, matches the claim's labels."""
    labels = Requirements.from_labels(claim.metadata.labels, aliases=rules.aliases)
    instance_type = types.get(labels.single_value(INSTANCE_TYPE))
    if instance_type is None:
        return False
    undefined = rules.well_known
    if labels.single_value(CAPACITY_TYPE) == RESERVED:
        # An instance whose reservation has ended goes on as on-demand. The provider compares
        # reservations.
        reservation = _reservation_labels(instance_type)
        undefined |= reservation
        labels = labels.without(reservation).replace(
            Requirement.of(CAPACITY_TYPE, "In", (RESERVED, ON_DEMAND))
        )
    return any(
        labels.compatible(offering.requirements, allow_undefined=undefined)
        for offering in instance_type.offerings
    )


def _reservation_labels(instance_type: InstanceType) -> frozenset[str]:
    """Return the labels that only reserved offerings have; they name the reservation."""
    reserved: set[str] = set()
    common = {ZONE, CAPACITY_TYPE}
    for offering in instance_type.offerings:
        keys = offering.requirements.keys()
        (reserved if offering.capacity_type == RESERVED else common).update(keys)
    return frozenset(reserved - common)
