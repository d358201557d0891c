"""Claims without an instance, and instances without a claim.

Deleting on the word of a listing is the most dangerous thing an autoscaler does, so each direction
needs two witnesses. A claim goes when the cloud does not list its instance *and* its node does not
report Ready. An instance goes when no claim has been known for it for a while, the listing and the
cluster's state were complete each time, the others do not all look the same, and the API server
itself, asked for its claims at the end, shows none for it: a watch may be silent for minutes.

Many instances without claims look like a mistake: another cluster under the same name, or claims that were
lost. They are held back, except those that are provably the surplus of our own launches: a launch may have
been carried out twice. Surplus ends after a long grace, a few instances at each look.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.nodeclaim.disrupted import disrupted_facts
from karpenter_core.state.pod_rules import waiting_pods

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.lifecycle.changes import Fact
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "DRAIN_LIMIT",
    "GARBAGE_COLLECTED",
    "ORPHAN_FLOOR",
    "ORPHAN_GRACE",
    "ORPHAN_SHARE",
    "PERIOD",
    "SURPLUS_AT_ONCE",
    "SURPLUS_GRACE",
    "CloudInstance",
    "OrphanReport",
    "VanishedClaim",
    "keeping_pods",
    "orphaned_instances",
    "surplus_instances",
    "surplus_notice",
    "vanished_claims",
    "was_let_in",
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
DRAIN_LIMIT: Final = timedelta(hours=1)
"""How long pods may keep an instance without a claim: there is no grace period of a claim to end it."""
SURPLUS_GRACE: Final = timedelta(minutes=15)
"""How long surplus of our own launches must have been without a claim, where many are."""
SURPLUS_AT_ONCE: Final = 5
"""So many of it end at one look."""


class CloudInstance(Protocol):
    """An instance as a provider lists it."""

    @property
    def provider_id(self) -> str: ...  # noqa: D102 - as in the provider contract
    @property
    def node_claim(self) -> str: ...  # noqa: D102
    @property
    def token(self) -> str: ...  # noqa: D102
    @property
    def launched_for(self) -> tuple[str, ...]: ...  # noqa: D102
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
    users = {claim.uid: claim.status.provider_id for claim in snapshot.node_claims.values()}
    ids = set(snapshot.claims_by_provider_id) | {
        claim.status.provider_id for claim in snapshot.node_claims.values()
    }
    unclaimed = [
        item
        for item in instances
        if not item.terminating
        and item.provider_id not in ids
        and (item.token not in uids if item.token else item.node_claim not in snapshot.node_claims)
        and (not item.launched_for or _is_unused(item, users))
    ]
    since = {item.provider_id: missing_since.get(item.provider_id, now) for item in unclaimed}
    condemned = tuple(sorted(name for name, first in since.items() if now - first >= grace))
    if len(condemned) > max(floor, share * len(instances)):
        return OrphanReport(missing_since=since, held_back=len(condemned))
    return OrphanReport(terminate=condemned, missing_since=since)


def surplus_instances(
    snapshot: Snapshot,
    instances: Iterable[CloudInstance],
    *,
    known_uids: Container[str],
    now: datetime,
    missing_since: Mapping[str, datetime],
    grace: timedelta = SURPLUS_GRACE,
    at_once: int = SURPLUS_AT_ONCE,
) -> tuple[str, ...]:
    """Return the first few instances that are surplus of launches of this cluster.

    `missing_since` is that of `orphaned_instances`, for the same complete listing; `known_uids` are UIDs
    of claims that this process has seen in this cluster. An instance is surplus when it was launched
    for claims of this cluster, each of them is gone or uses another instance, and no node of the
    instance was ever let in.
    """
    users = {claim.uid: claim.status.provider_id for claim in snapshot.node_claims.values()}
    found = sorted(
        item.provider_id
        for item in instances
        if item.provider_id in missing_since
        and now - missing_since[item.provider_id] >= grace
        and any(uid in users or uid in known_uids for uid in _claims_of(item))
        and not any(uid in snapshot.ledger.open_launches for uid in _claims_of(item))
        and _is_unused(item, users)
        and not any(
            snapshot.nodes[name].labels.get(REGISTERED_LABEL) == "true"
            for name in snapshot.nodes_by_provider_id.get(item.provider_id, ())
        )
    )
    return tuple(found[:at_once])


def surplus_notice(
    provider_id: str, instances: Iterable[CloudInstance], snapshot: Snapshot
) -> Notice | None:
    """Say of a NodeClaim that an instance ends that was launched for it beside its own.

    A call for several claims does not tell for which of them; one of them is told.
    """
    item = next((each for each in instances if each.provider_id == provider_id), None)
    uids: frozenset[str] = frozenset() if item is None else _claims_of(item)
    claims = [each for each in snapshot.node_claims.values() if each.uid in uids]
    if not claims:
        return None
    claim = min(claims, key=lambda each: each.name)
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason="SurplusInstanceTerminated",
        message=(
            f"Instance {provider_id} was launched beside {claim.status.provider_id}, which this "
            "NodeClaim uses: no NodeClaim uses it, and it is terminated"
        ),
        dedupe=(claim.uid, provider_id),
    )


def was_let_in(node: NodeView) -> bool:
    """Whether a Node was ever registered, so that pods may have been placed on it.

    On others there are only pods that tolerate the taint of an unregistered Node. Nobody drains them.
    """
    return TERMINATION_FINALIZER in node.finalizers or node.labels.get(REGISTERED_LABEL) == "true"


def keeping_pods(pods: Iterable[PodView], now: datetime) -> tuple[PodView, ...]:
    """Return the pods that have to leave before an instance without a claim ends.

    Those are what a drain waits for but for daemons, which serve the others and end with the machine.
    """
    return tuple(pod for pod in waiting_pods(pods, now) if not pod.is_daemon)


def _claims_of(item: CloudInstance) -> frozenset[str]:
    """Return the UIDs of the claims that an instance was launched for."""
    return frozenset(item.launched_for or ((item.token,) if item.token else ()))


def _is_unused(item: CloudInstance, users: Mapping[str, str]) -> bool:
    """Whether each claim of a launch is gone or names another instance; `users` are ids by UID."""
    named = [users[uid] for uid in _claims_of(item) if uid in users]
    return all(provider_id not in {"", item.provider_id} for provider_id in named)


def without_claimed(
    condemned: Iterable[str],
    instances: Iterable[CloudInstance],
    claims: Iterable[NodeClaim],
    *,
    unreadable: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Return the condemned instances for which none of these claims stands after all.

    `claims` are all that the API server has, `unreadable` UIDs and names of those among them that
    cannot be read; they count as claims too. An instance of a call for several claims is spared while
    one of them names no instance yet.
    """
    present = tuple(claims)
    users = {claim.uid: claim.status.provider_id for claim in present} | dict.fromkeys(
        unreadable, ""
    )
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
        and (not item.launched_for or _is_unused(item, users))
    )
