"""Holds facts that no Kubernetes object states, each with its expiry.

Expected pods, nodes that are being removed, open launches: no Kubernetes object states these, or
not soon enough. Each kind of fact is one table here, with its expiry and the way a new leader
recovers it, because a new leader starts with an empty ledger. `ledger_rules` states both, and
`docs/design/state.md` documents it.

Only `apply_event` changes the ledger. It takes the time from `TimePassed`, which therefore comes
first in a batch of events. Its instants measure how long ago something was, so they move with `now`
when that is set (`ClockSet`): three minutes are three minutes of real time, and all instants can be
compared with the present `now`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.records import PodView
from karpenter_core.state.events import (
    ClockSet,
    DeletionMarked,
    DeletionUnmarked,
    LaunchCallFinished,
    LaunchCallStarted,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    ObjectWritten,
    OfferingsUnavailable,
    PodReplacementEnded,
    PodReplacementStarted,
    PodsDecided,
    RegistrationHealthReset,
    RegistrationSettled,
    TimePassed,
)
from karpenter_core.state.instants import shift_entries, shift_time
from karpenter_core.state.launch_pauses import PAUSE_MEMORY, LaunchPause, next_pause
from karpenter_core.state.ledger_view import (
    DeletionMark,
    LaunchResult,
    LedgerView,
    OfferingShortage,
    PlacementState,
    PodDecision,
    PodDeletion,
    PodNomination,
    PodPlacement,
    RecentClaim,
    UnavailableOfferingKey,
    UnseenClaim,
)
from karpenter_core.state.paused_pods import is_pause_of, pause_key
from karpenter_core.state.pod_rules import grace_period
from karpenter_core.state.tables import SnapshotTable, drop_entries, drop_everywhere

if TYPE_CHECKING:
    from karpenter_core.state.events import StateEvent

__all__ = [
    "LAUNCH_RATE_PERIOD",
    "LAUNCH_RESULT_TTL",
    "REGISTRATION_RESULTS",
    "UNAVAILABLE_TTL",
    "UNAVAILABLE_TTL_CAP",
    "Ledger",
]

LAUNCH_RESULT_TTL: Final = timedelta(hours=1)  # upstream default
UNAVAILABLE_TTL: Final = timedelta(minutes=3)  # upstream default of the larger providers
UNAVAILABLE_TTL_CAP: Final = timedelta(minutes=12)  # two doublings
REGISTRATION_RESULTS: Final = 4  # upstream default
LAUNCH_RATE_PERIOD: Final = timedelta(minutes=1)

_SWEEP_PERIOD: Final = timedelta(seconds=1)


@final
class Ledger:
    """The tables of the ledger; only `apply_event` changes them."""

    __slots__ = (
        "_decisions", "_deletion_marks", "_demand_pauses", "_expected", "_first_seen", "_launch_pauses",
        "_launches", "_nominations", "_now", "_open_launches", "_placements", "_pod_deletions",
        "_pod_nominations",
        "_recent_claims", "_registration_failures", "_registration_health", "_replaced_pods",
        "_swept", "_unavailable_offerings", "_unseen_claims", "_view",
    )  # fmt: skip

    def __init__(self) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._swept = self._now
        self._view: LedgerView | None = None
        self._nominations: SnapshotTable[str, datetime] = SnapshotTable()
        self._deletion_marks: SnapshotTable[str, DeletionMark] = SnapshotTable()
        self._placements: SnapshotTable[str, PodPlacement] = SnapshotTable()
        self._expected: SnapshotTable[str, tuple[str, ...]] = SnapshotTable()
        self._unseen_claims: SnapshotTable[str, UnseenClaim] = SnapshotTable()
        self._launches: SnapshotTable[str, LaunchResult] = SnapshotTable()
        self._open_launches: SnapshotTable[str, datetime] = SnapshotTable()
        self._first_seen: SnapshotTable[str, datetime] = SnapshotTable()
        self._decisions: SnapshotTable[str, PodDecision] = SnapshotTable()
        self._pod_deletions: SnapshotTable[str, PodDeletion] = SnapshotTable()
        self._pod_nominations: SnapshotTable[str, PodNomination] = SnapshotTable()
        self._replaced_pods: SnapshotTable[str, datetime] = SnapshotTable()
        self._registration_health: SnapshotTable[str, tuple[bool, ...]] = SnapshotTable()
        self._registration_failures: SnapshotTable[str, tuple[str, str]] = SnapshotTable()
        self._launch_pauses: SnapshotTable[str, LaunchPause] = SnapshotTable()
        self._demand_pauses: SnapshotTable[str, LaunchPause] = SnapshotTable()
        self._recent_claims: SnapshotTable[str, RecentClaim] = SnapshotTable()
        self._unavailable_offerings: SnapshotTable[UnavailableOfferingKey, OfferingShortage] = (
            SnapshotTable()
        )

    @property
    def now(self) -> datetime:
        """The time of the last tick."""
        return self._now

    def view(self) -> LedgerView:
        """Return the ledger as it is now."""
        if self._view is None:
            self._view = LedgerView(
                **{
                    item.name: getattr(self, f"_{item.name}").freeze()
                    for item in fields(LedgerView)
                }
            )
        return self._view

    def apply_event(self, event: StateEvent) -> bool:
        """Apply an event; tell whether the ledger changed.

        Object events must be new: the builder drops stale ones before.
        """
        changed = self._apply(event)
        if changed:
            self._view = None
        return changed

    def _apply(self, event: StateEvent) -> bool:
        match event:
            case ObjectObserved() | ObjectWritten() | ObjectRemoved():
                return self._apply_object(event)
            case TimePassed():
                return self._tick(event.now)
            case ClockSet():
                return self._move(event.by)
            case PodsDecided():
                return self._apply_decision(event)
            case PodReplacementStarted() | PodReplacementEnded():
                return self._apply_replacement(event)
            case LaunchCallStarted() | LaunchCallFinished():
                return self._apply_call(event)
            case OfferingsUnavailable():
                return self._mark_unavailable(event)
            case RegistrationSettled() | RegistrationHealthReset():
                return self._apply_registration(event)
            case NodesNominated() | DeletionMarked() | DeletionUnmarked():
                return self._apply_names(event)
            case _:
                return False

    def _apply_object(self, event: ObjectObserved | ObjectWritten | ObjectRemoved) -> bool:
        match event:
            case ObjectObserved(PodView() as pod) | ObjectWritten(PodView() as pod):
                return (
                    self._apply_pod_deletion(pod)
                    | self._apply_nomination(pod)
                    | self._apply_pod(pod)
                )
            case ObjectObserved(NodeClaim() as claim):
                return self._note_recent(claim, claim.metadata.creation_timestamp) | (
                    self._unseen_claims.drop(claim.uid) is not None
                )
            case ObjectWritten(NodeClaim() as claim):
                return self._apply_claim(claim)
            case ObjectRemoved(PodView() as pod):
                return (
                    self._remove_placement(pod.uid)
                    | self._renew_nominations(pod.node_name)
                    | drop_everywhere(
                        pod.uid,
                        self._first_seen,
                        self._decisions,
                        self._pod_deletions,
                        self._pod_nominations,
                        self._replaced_pods,
                    )
                )
            case ObjectRemoved(NodeClaim() as claim):
                by_uid = drop_everywhere(claim.uid, self._unseen_claims, self._launches)
                return (
                    drop_everywhere(claim.name, self._nominations, self._deletion_marks) or by_uid
                )
            case ObjectRemoved(NodePool() as pool):
                return drop_everywhere(
                    pool.uid,
                    self._registration_failures,
                    self._registration_health,
                    self._launch_pauses,
                )
            case _:
                return False

    def _apply_names(self, event: NodesNominated | DeletionMarked | DeletionUnmarked) -> bool:
        changed = False
        for name in event.names:
            match event:
                case NodesNominated(until=until):
                    old = self._nominations.get(name)
                    if old is None or old < until:
                        self._nominations.put(name, until)
                        changed = True
                case DeletionMarked(cause=cause):
                    self._deletion_marks.put(name, DeletionMark(cause))
                    changed = True
                case DeletionUnmarked():
                    changed |= self._deletion_marks.drop(name) is not None
        return changed

    def _apply_call(self, event: LaunchCallStarted | LaunchCallFinished) -> bool:
        if isinstance(event, LaunchCallStarted):
            self._open_launches.put(event.claim_uid, event.at)
            return True
        changed = self._open_launches.drop(event.claim_uid) is not None
        if event.launched is not None:
            self._launches.put(event.claim_uid, LaunchResult(event.launched, event.at))
            changed = True
        return changed

    def _apply_registration(self, event: RegistrationSettled | RegistrationHealthReset) -> bool:
        if isinstance(event, RegistrationHealthReset):
            if not event.results:  # its template or NodeClass has changed
                for key in [key for key, _ in self._demand_pauses.items()]:
                    if is_pause_of(event.pool_uid, key):
                        self._demand_pauses.drop(key)
            self._registration_failures.drop(event.pool_uid)
            self._launch_pauses.drop(event.pool_uid)
            self._note_results(event.pool_uid, event.results)
            return True
        keys = [pause_key(event.pool_uid, demand) for demand in event.demands]
        is_trial = bool(keys) and all(map(self._is_paused, keys))
        for key in keys:
            self._update_pause(self._demand_pauses, key, (event.succeeded,))
        if event.succeeded:
            self._registration_failures.drop(event.pool_uid)
        else:
            self._registration_failures.put(event.pool_uid, (event.reason, event.message))
        results = (*(self._registration_health.get(event.pool_uid) or ()), event.succeeded)
        self._note_results(event.pool_uid, results, pauses=event.succeeded or not is_trial)
        return True

    def _note_results(
        self, pool_uid: str, results: tuple[bool, ...], *, pauses: bool = True
    ) -> None:
        self._registration_health.put(pool_uid, results[-REGISTRATION_RESULTS:])
        if pauses:
            self._update_pause(self._launch_pauses, pool_uid, results)

    def _is_paused(self, key: str) -> bool:
        pause = self._demand_pauses.get(key)
        return pause is not None and pause.is_on_trial

    def _update_pause(
        self, pauses: SnapshotTable[str, LaunchPause], key: str, results: tuple[bool, ...]
    ) -> None:
        pause = next_pause(pauses.get(key), results, now=self._now)
        if pause is None:
            pauses.drop(key)
        else:
            pauses.put(key, pause)

    def _note_recent(self, claim: NodeClaim, created: datetime | None) -> bool:
        if created is None or created + LAUNCH_RATE_PERIOD <= self._now:
            return False
        if claim.uid in self._recent_claims:
            return False
        pool = claim.metadata.labels.get(NODE_POOL, "")
        self._recent_claims.put(claim.uid, RecentClaim(pool, created))
        return True

    def _apply_pod(self, pod: PodView) -> bool:
        if pod.is_provisionable:
            if pod.uid in self._first_seen:
                return False
            self._first_seen.put(pod.uid, self._now)
            return True
        if pod.node_name or not pod.is_active:
            # A pod that leaves a node keeps its new placement until it is gone from the old node.
            waits = bool(pod.node_name) and pod.is_reschedulable and pod.uid not in self._first_seen
            if waits:
                return False
            return self._remove_placement(pod.uid) | drop_everywhere(pod.uid, self._first_seen)
        return False

    def _apply_nomination(self, pod: PodView) -> bool:
        old = self._pod_nominations.get(pod.uid)
        if not pod.is_nominated:
            return self._pod_nominations.drop(pod.uid) is not None
        if old is not None and old.node == pod.nominated_node_name:
            return False
        self._pod_nominations.put(pod.uid, PodNomination(pod.nominated_node_name, self._now))
        return True

    def _renew_nominations(self, node: str) -> bool:
        """Give the scheduler time from now on for the pods that wait for a pod to leave a node."""
        waiting = [uid for uid, each in self._pod_nominations.items() if node and each.node == node]
        for uid in waiting:
            self._pod_nominations.put(uid, PodNomination(node, self._now))
        return bool(waiting)

    def _apply_pod_deletion(self, pod: PodView) -> bool:
        """Note when the grace period ends by our clock: the timestamp is by the API server's."""
        timestamp, grace = pod.deletion_timestamp, pod.deletion_grace_period_seconds
        if timestamp is None or grace is None:
            return False
        old = self._pod_deletions.get(pod.uid)
        if old is not None and old.timestamp == timestamp:
            return False
        ends_at = shift_time(self._now, grace_period(grace))
        self._pod_deletions.put(pod.uid, PodDeletion(timestamp, ends_at))
        return True

    def _apply_claim(self, claim: NodeClaim) -> bool:
        first_write = claim.metadata.generation <= 1 and not claim.status.conditions
        if not first_write or claim.uid in self._unseen_claims:
            return False
        created = claim.metadata.creation_timestamp or self._now
        self._unseen_claims.put(claim.uid, UnseenClaim(claim.name, created))
        self._note_recent(claim, self._now)  # the server's clock may be wrong
        # A claim of a static pool may have the name of one that was marked and is gone.
        self._deletion_marks.drop(claim.name)
        return True

    def _apply_decision(self, event: PodsDecided) -> bool:
        arrived: dict[str, list[str]] = {}
        for uid, target in event.placed.items():
            old = self._placements.get(uid)
            self._remove_placement(uid)
            repeated = (
                old is not None
                and old.target == target
                and old.state is not PlacementState.STANDING
            )
            state = PlacementState.REPEATED if repeated else PlacementState.STANDING
            self._placements.put(uid, PodPlacement(target, event.at, state))
            arrived.setdefault(target, []).append(uid)
            self._note_decision(uid, event.at, placed=True)
        for target, uids in arrived.items():
            self._expected.put(target, (*(self._expected.get(target) or ()), *uids))
        for uid in event.failed:
            self._remove_placement(uid)
            self._note_decision(uid, event.at, placed=False)
        return bool(event.placed or event.failed)

    def _apply_replacement(self, event: PodReplacementStarted | PodReplacementEnded) -> bool:
        """Note whether another pod takes the place of this one, which then needs none itself."""
        uid = event.uid
        if isinstance(event, PodReplacementEnded):
            return self._replaced_pods.drop(uid) is not None
        if uid in self._replaced_pods:
            return False
        self._replaced_pods.put(uid, self._now)
        self._remove_placement(uid)
        return True

    def placement_target(self, uid: str) -> str:
        """Return the claim or node that a pod is placed on; empty if there is none."""
        placement = self._placements.get(uid)
        return "" if placement is None else placement.target

    def note_refusal(self, uid: str) -> None:
        """Note that the scheduler has refused a pod since it was placed."""
        placement = self._placements.get(uid)
        if placement is not None and placement.state is PlacementState.STANDING:
            self._placements.put(uid, replace(placement, state=PlacementState.REFUSED))
            self._view = None

    def _remove_placement(self, uid: str) -> bool:
        """Remove the placement of a pod, if it has one."""
        placement = self._placements.drop(uid)
        if placement is None:
            return False
        remaining_uids = tuple(
            item for item in self._expected.get(placement.target) or () if item != uid
        )
        if remaining_uids:
            self._expected.put(placement.target, remaining_uids)
        else:
            self._expected.drop(placement.target)
        return True

    def _note_decision(self, uid: str, at: datetime, *, placed: bool) -> None:
        old = self._decisions.get(uid)
        if old is None or old.placed != placed:
            first_at = at if old is None else old.first_at
            self._decisions.put(uid, PodDecision(first_at, placed, at if placed else None))

    def _mark_unavailable(self, event: OfferingsUnavailable) -> bool:
        for offering in event.offerings:
            key = UnavailableOfferingKey(event.provider, offering, event.node_class)
            old = self._unavailable_offerings.get(key)
            if old is None or event.at >= old.forget_at:
                ttl = UNAVAILABLE_TTL
            elif event.at < old.until:
                ttl = old.ttl  # several launches of one batch reported the same shortage
            else:
                ttl = min(old.ttl * 2, UNAVAILABLE_TTL_CAP)
            until = event.at + ttl
            self._unavailable_offerings.put(key, OfferingShortage(until, ttl, until + ttl))
        return bool(event.offerings)

    def _tick(self, now: datetime) -> bool:
        self._now = max(self._now, now)
        if self._now - self._swept < _SWEEP_PERIOD:
            return False
        self._swept = self._now
        return (
            drop_entries(self._nominations, lambda until: until <= self._now)
            | drop_entries(
                self._launches, lambda launch: launch.at + LAUNCH_RESULT_TTL <= self._now
            )
            | drop_entries(
                self._recent_claims, lambda claim: claim.created + LAUNCH_RATE_PERIOD <= self._now
            )
            | drop_entries(
                self._unavailable_offerings, lambda shortage: shortage.forget_at <= self._now
            )
            | drop_entries(
                self._demand_pauses, lambda pause: pause.until + PAUSE_MEMORY <= self._now
            )
        )

    def _move(self, by: timedelta) -> bool:
        """Move every instant with `now`."""
        self._now, self._swept = shift_time(self._now, by), shift_time(self._swept, by)
        for instants in (
            self._nominations,
            self._open_launches,
            self._first_seen,
            self._replaced_pods,
        ):
            for key, at in tuple(instants.items()):
                instants.put(key, shift_time(at, by))
        shift_entries(self._placements, by)
        shift_entries(self._pod_nominations, by)
        shift_entries(self._decisions, by)
        shift_entries(self._pod_deletions, by)
        shift_entries(self._launches, by)
        shift_entries(self._unseen_claims, by)
        shift_entries(self._recent_claims, by)
        shift_entries(self._launch_pauses, by)
        shift_entries(self._demand_pauses, by)
        shift_entries(self._unavailable_offerings, by)
        return True
