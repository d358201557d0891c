"""Claims without an instance, and instances without a claim.

Deleting on the word of a listing is the most dangerous thing an autoscaler does, so each direction
needs two witnesses. A claim goes when the cloud does not list its instance *and* its node does not
report Ready. An instance goes when no claim has been known for it for a while, the listing and the
cluster's state were complete each time, the others do not all look the same, and the API server
itself, asked for its claims at the end, shows none for it: a watch may be silent for minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.lifecycle.disrupted import disrupted_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.lifecycle.changes import Fact
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "GARBAGE_COLLECTED",
    "ORPHAN_FLOOR",
    "ORPHAN_GRACE",
    "ORPHAN_SHARE",
    "PERIOD",
    "CloudInstance",
    "OrphanReport",
    "VanishedClaim",
    "orphaned_instances",
    "vanished_claims",
    "without_claimed",
]

PERIOD: Final = timedelta(minutes=2)  # upstream default
GARBAGE_COLLECTED: Final = "garbage_collected"

ORPHAN_GRACE: Final = timedelta(minutes=1)
"""How long an instance must have been without a claim; a launch is written down far sooner."""
ORPHAN_SHARE: Final = 0.5
"""Of all instances listed, the share that may be orphans before it is taken for a mistake."""
ORPHAN_FLOOR: Final = 10
"""So many orphans are never taken for a mistake."""


class CloudInstance(Protocol):
    """An instance as a provider lists it."""

    @property
    def provider_id(self) -> str: ...  # noqa: D102 - as in the provider contract
    @property
    def node_claim(self) -> str: ...  # noqa: D102
    @property
    def token(self) -> str: ...  # noqa: D102
    @property
    def created(self) -> datetime | None: ...  # noqa: D102
    @property
    def terminating(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishedClaim:
    """A claim whose instance is gone; it is to be deleted."""

    claim: NodeClaim
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport:
    """Instances to terminate, and what to remember for the next look.

    `held_back` counts the ones that were spared because they were suspiciously many.
    """

    terminate: tuple[str, ...] = ()
    missing_since: Mapping[str, datetime] = field(default_factory=dict[str, "datetime"])
    held_back: int = 0


def vanished_claims(
    snapshot: Snapshot,
    instances: Iterable[CloudInstance],
    *,
    complete: bool,
    served: frozenset[tuple[str, str]] | None = None,
) -> tuple[VanishedClaim, ...]:
    """Return the registered claims behind which there is no instance any more.

    `served` are the NodeClass kinds of the provider that was asked; None means all managed ones.
    Claims that never registered are left to liveness, nodes that still report Ready to themselves.
    """
    if not complete or not snapshot.synced:
        return ()
    there = {item.provider_id for item in instances if not item.terminating}
    kinds = snapshot.managed_kinds if served is None else served
    gone: list[VanishedClaim] = []
    for _, claim in sorted(snapshot.node_claims.items()):
        ref = claim.spec.node_class_ref
        if (
            (ref.group, ref.kind) not in kinds
            or claim.is_deleting
            or not claim.status.provider_id
            or claim.status.provider_id in there
            or not is_true(claim.status.conditions, REGISTERED)
            or any(node.ready == "True" for node in snapshot.nodes_of(claim))
        ):
            continue
        facts = disrupted_facts(snapshot, claim, GARBAGE_COLLECTED)
        gone.append(VanishedClaim(claim=claim, facts=facts))
    return tuple(gone)


def orphaned_instances(
    snapshot: Snapshot,
    instances: Sequence[CloudInstance],
    *,
    complete: bool,
    now: datetime,
    missing_since: Mapping[str, datetime],
    grace: timedelta = ORPHAN_GRACE,
    share: float = ORPHAN_SHARE,
    floor: int = ORPHAN_FLOOR,
) -> OrphanReport:
    """Return the instances that no claim stands for.

    One look never condemns: what is missing a claim now is remembered, and goes when it still
    misses it after the grace time. An incomplete look tells nothing and remembers what was known.
    """
    if not complete or not snapshot.synced:
        return OrphanReport(missing_since=dict(missing_since))
    uids = {claim.uid for claim in snapshot.node_claims.values()} | set(
        snapshot.ledger.open_launches
    )
    ids = set(snapshot.claims_by_provider_id) | {
        claim.status.provider_id for claim in snapshot.node_claims.values()
    }
    unclaimed = [
        item
        for item in instances
        if not item.terminating
        and item.provider_id not in ids
        and (item.token not in uids if item.token else item.node_claim not in snapshot.node_claims)
    ]
    since = {item.provider_id: missing_since.get(item.provider_id, now) for item in unclaimed}
    condemned = tuple(sorted(name for name, first in since.items() if now - first >= grace))
    if len(condemned) > max(floor, share * len(instances)):
        return OrphanReport(missing_since=since, held_back=len(condemned))
    return OrphanReport(terminate=condemned, missing_since=since)


def without_claimed(
    condemned: Iterable[str],
    instances: Iterable[CloudInstance],
    claims: Iterable[NodeClaim],
    *,
    unreadable: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Return the condemned instances for which none of these claims stands after all.

    `claims` are all that the API server has, `unreadable` UIDs and names of those among them that
    cannot be read; they count as claims too.
    """
    present = tuple(claims)
    uids = {claim.uid for claim in present} | unreadable
    names = {claim.name for claim in present} | unreadable
    ids = {claim.status.provider_id for claim in present}
    by_id = {item.provider_id: item for item in instances}
    return tuple(
        provider_id
        for provider_id in condemned
        if provider_id not in ids
        and (item := by_id[provider_id])
        and (item.token not in uids if item.token else item.node_claim not in names)
    )
