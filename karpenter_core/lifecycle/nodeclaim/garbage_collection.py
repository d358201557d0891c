"""Finds claims without an instance and instances without a claim.

A deletion because of a listing is the most dangerous action of an autoscaler, so each direction needs
two conditions. A claim is deleted if the cloud does not list its instance, or the cloud controller
manager reports it as stopped, *and* its node is not Ready.
An instance is terminated if it has had no claim for a while, the listing and the cluster's state were
complete each time, not too many instances are without a claim, and a list of the claims from the API
server, made last, has none for it either: a watch may be silent for minutes.

Many instances without claims look like a mistake: another cluster under the same name, or claims that
were lost. They are held back, except the provable surplus of our own launches: a launch call may have
been carried out twice. Surplus is terminated after a longer grace period, a few instances per pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import LAUNCHED, REGISTERED
from karpenter_core.api.notices import Notice, node_ref
from karpenter_core.lifecycle.claim_status import condition_of
from karpenter_core.lifecycle.nodeclaim.disruption_metrics import disrupted_metrics
from karpenter_core.state.pod_rules import undrained_pods

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.lifecycle.changes import MetricUpdate
    from karpenter_core.state.ledger_view import LedgerView
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "DRAIN_LIMIT",
    "ENDING_ORPHAN_GRACE",
    "GARBAGE_COLLECTED",
    "ORPHAN_FLOOR",
    "ORPHAN_GRACE",
    "ORPHAN_SHARE",
    "SHUTDOWN_TAINT",
    "STOPPED_GRACE",
    "SURPLUS_GRACE",
    "SURPLUS_PER_PASS",
    "ClaimWithoutInstance",
    "ListedInstance",
    "OrphanReport",
    "blocking_pods",
    "claims_with_stopped_instance",
    "claims_without_instance",
    "exclude_claimed",
    "orphaned_instances",
    "surplus_instances",
    "surplus_notice",
    "was_registered",
]

GARBAGE_COLLECTED: Final = "garbage_collected"

SHUTDOWN_TAINT: Final = "node.cloudprovider.kubernetes.io/shutdown"
"""The key of the taint that cloud controller managers put on Nodes whose instance has stopped."""
STOPPED_GRACE: Final = timedelta(minutes=5)
"""The time for which an instance must have been stopped: a user may be restarting it."""
ORPHAN_GRACE: Final = timedelta(minutes=1)
"""The time for which an orphan must have been without a claim; a launch is recorded far sooner."""
ENDING_ORPHAN_GRACE: Final = timedelta(minutes=10)
"""The same for an instance that is reported as terminating: some clouds cannot tell it from one that a
user has stopped, which does not end by itself and is paid for."""
ORPHAN_SHARE: Final = 0.5
"""The share of the listed instances above which orphans are taken for a mistake."""
ORPHAN_FLOOR: Final = 10
"""Up to this number, orphans are never taken for a mistake."""
DRAIN_LIMIT: Final = timedelta(hours=1)
"""The longest time that pods keep an instance without a claim, for which no grace period is set."""
SURPLUS_GRACE: Final = timedelta(minutes=15)
"""The time for which surplus must have been without a claim while other orphans are held back."""
SURPLUS_PER_PASS: Final = 5
"""The number of surplus instances terminated in one pass."""


class ListedInstance(Protocol):
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
class ClaimWithoutInstance:
    """A claim whose instance is gone, to be deleted, with the metrics of its deletion.

    `stopped` tells that its instance is listed, and has stopped; `notices` report that.
    """

    claim: NodeClaim
    metric_updates: tuple[MetricUpdate, ...]
    stopped: bool
    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport:
    """Instances to terminate, and since when instances have had no claim, for the next pass.

    `held_back` counts the instances that were spared because they were suspiciously many.
    """

    terminate: tuple[str, ...] = ()
    missing_since: Mapping[str, datetime]
    held_back: int = 0


def claims_without_instance(
    snapshot: Snapshot,
    instances: Iterable[ListedInstance],
    *,
    complete: bool,
    served_kinds: Container[tuple[str, str]],
    as_of: datetime | None,
    stopped: Container[str] = (),
) -> tuple[ClaimWithoutInstance, ...]:
    """Return the registered claims whose instance is gone or has stopped.

    `stopped` are the UIDs of claims whose instance has been stopped for STOPPED_GRACE
    (`claims_with_stopped_instance`). `served_kinds` are the NodeClass kinds of the
    provider that listed. Claims that never registered are left to liveness; claims with a Ready node
    are kept, and so are claims launched after `as_of`, the time that the listing shows, if it may be behind.
    """
    if not complete or not snapshot.synced:
        return ()
    listed = {item.provider_id for item in instances if not item.terminating}
    gone: list[ClaimWithoutInstance] = []
    for _, claim in sorted(snapshot.node_claims.items()):
        ref = claim.spec.node_class_ref
        if (
            (ref.group, ref.kind) not in served_kinds
            or claim.is_deleting
            or not claim.status.provider_id
            or not is_true(claim.status.conditions, REGISTERED)
        ):
            continue
        nodes = snapshot.nodes_of(claim)
        is_listed = claim.status.provider_id in listed
        if (
            any(node.ready == "True" for node in nodes)
            or (is_listed and claim.uid not in stopped)
            or (as_of is not None and not _was_launched_before(claim, as_of))
        ):
            continue
        metric_updates = disrupted_metrics(snapshot, claim, GARBAGE_COLLECTED)
        gone.append(
            ClaimWithoutInstance(
                claim=claim,
                metric_updates=metric_updates,
                stopped=is_listed,
                notices=_stopped_notices(claim, nodes) if is_listed else (),
            )
        )
    return tuple(gone)


def claims_with_stopped_instance(snapshot: Snapshot) -> frozenset[str]:
    """Return the UIDs of claims whose instance has stopped, as cloud controller managers report it.

    Such an instance is paid for in part, and neither starts by itself nor leaves the listing. The taint is
    removed when the node is Ready again.
    """
    return frozenset(
        claim.uid
        for node in snapshot.nodes.values()
        if node.ready != "True" and any(taint.key == SHUTDOWN_TAINT for taint in node.taints)
        for claim in snapshot.claims_of(node)
    )


def _stopped_notices(claim: NodeClaim, nodes: Iterable[NodeView]) -> tuple[Notice, ...]:
    return tuple(
        Notice(
            regarding=regarding,
            type="Warning",
            reason="InstanceStopping",
            message=f"The instance has stopped (taint {SHUTDOWN_TAINT}): its node is replaced",
            dedupe=(regarding.uid,),
        )
        for regarding in (claim.ref, *map(node_ref, nodes))
    )


def _was_launched_before(claim: NodeClaim, at: datetime) -> bool:
    launched = condition_of(claim, LAUNCHED)
    return launched is not None and (
        launched.last_transition_time is not None and launched.last_transition_time < at
    )


def orphaned_instances(
    snapshot: Snapshot,
    instances: Sequence[ListedInstance],
    *,
    complete: bool,
    now: datetime,
    missing_since: Mapping[str, datetime],
    grace: timedelta = ORPHAN_GRACE,
    share: float = ORPHAN_SHARE,
    floor: int = ORPHAN_FLOOR,
) -> OrphanReport:
    """Return the instances to terminate because no claim uses them.

    An instance without a claim is first remembered, and terminated if it still has none after the
    grace period, which is longer while it is terminating. An incomplete listing changes nothing. `now`
    is the time that the listing shows.
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
        if item.provider_id not in ids
        and (item.token not in uids if item.token else item.node_claim not in snapshot.node_claims)
        and _is_unused(item, users)
    ]
    since = {item.provider_id: missing_since.get(item.provider_id, now) for item in unclaimed}
    ending = {item.provider_id for item in unclaimed if item.terminating}
    to_terminate = tuple(
        sorted(
            name
            for name, first in since.items()
            if now - first >= (max(grace, ENDING_ORPHAN_GRACE) if name in ending else grace)
        )
    )
    if len(to_terminate) > max(floor, share * len(instances)):
        return OrphanReport(missing_since=since, held_back=len(to_terminate))
    return OrphanReport(terminate=to_terminate, missing_since=since)


def surplus_instances(
    snapshot: Snapshot,
    instances: Iterable[ListedInstance],
    *,
    known_uids: Container[str],
    now: datetime,
    missing_since: Mapping[str, datetime],
    grace: timedelta = SURPLUS_GRACE,
    at_once: int = SURPLUS_PER_PASS,
) -> tuple[str, ...]:
    """Return the first few instances that are surplus of this cluster's launches.

    `missing_since` is that of `orphaned_instances` for the same complete listing; `known_uids` are the
    UIDs of the claims that this process has seen in this cluster. An instance is surplus if it was
    launched for claims of this cluster, each of them is gone or uses another instance, and no node of
    the instance was ever registered.
    """
    users = {claim.uid: claim.status.provider_id for claim in snapshot.node_claims.values()}
    surplus = sorted(
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
    return tuple(surplus[:at_once])


def surplus_notice(
    provider_id: str, instances: Iterable[ListedInstance], snapshot: Snapshot
) -> Notice | None:
    """Return the Event on a NodeClaim that a second instance launched for it is terminated.

    A launch call for several claims does not say which instance is whose; the first claim gets it.
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
            f"Instance {provider_id} is terminated: it is a surplus of the launch of "
            f"{claim.status.provider_id}, which this NodeClaim uses, and belongs to no NodeClaim"
        ),
        dedupe=(claim.uid, provider_id),
    )


def was_registered(node: NodeView) -> bool:
    """Tell whether a Node was ever registered, so that pods may have been placed on it.

    Other Nodes only have pods that tolerate the taint of an unregistered Node; they are not drained.
    """
    return TERMINATION_FINALIZER in node.finalizers or node.labels.get(REGISTERED_LABEL) == "true"


def blocking_pods(
    pods: Iterable[PodView], now: datetime, ledger: LedgerView
) -> tuple[PodView, ...]:
    """Return the pods that must leave before an instance without a claim is terminated.

    A drain waits for these pods, except daemons, which serve the others and end with the instance.
    """
    return tuple(pod for pod in undrained_pods(pods, now, ledger) if not pod.is_daemon)


def _claims_of(item: ListedInstance) -> frozenset[str]:
    """Return the UIDs of the claims that an instance was launched for."""
    return frozenset(item.launched_for or ((item.token,) if item.token else ()))


def _is_unused(item: ListedInstance, users: Mapping[str, str]) -> bool:
    """Tell whether each claim of a launch is gone or uses another instance; `users` is by UID."""
    named = [users[uid] for uid in _claims_of(item) if uid in users]
    return all(provider_id not in {"", item.provider_id} for provider_id in named)


def exclude_claimed(
    to_terminate: Iterable[str],
    instances: Iterable[ListedInstance],
    claims: Iterable[NodeClaim],
    *,
    unreadable: frozenset[str],
) -> tuple[str, ...]:
    """Return the instances to terminate that none of these claims uses.

    `claims` are all that the API server has; `unreadable` are the UIDs and names of claims that cannot
    be parsed, which count as claims too. An instance of a launch call for several claims is kept while
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
        for provider_id in to_terminate
        if provider_id not in ids
        and (item := by_id[provider_id])
        and (item.token not in uids if item.token else item.node_claim not in names)
        and _is_unused(item, users)
    )
