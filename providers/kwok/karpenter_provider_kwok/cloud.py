"""The simulated cloud: launches, lists and terminates instances.

It keeps the promises that a real cloud makes, and only those. A launch with a used token returns
the instance of that token, even after the caller, or the whole process, is gone. An instance exists
until it is terminated. Its state follows from time: it is pending, then running, then (after a
termination) shutting down, then terminated; no timer is needed for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODE_POOL, WELL_KNOWN
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClaimNotFoundError,
    OfferingKey,
    TerminationRefusedError,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.contract import (
    InstanceListing,
    Interruption,
    InterruptionKind,
    LaunchedInstance,
    TerminationStatus,
)
from karpenter_provider_kwok.active_faults import ActiveFaults
from karpenter_provider_kwok.faults import KwokFaultKind
from karpenter_provider_kwok.instance_rows import (
    adopt_node,
    announce_reclaim,
    fail_launch,
    insert_instance,
    live_row,
    read_instance,
    read_interruption,
    repeated_outcome,
)
from karpenter_provider_kwok.instance_store import InstanceStore, record_call
from karpenter_provider_kwok.labels import INSTANCE_LABELS, PROVIDER_ID_PREFIX
from karpenter_provider_kwok.nodes import (
    decided_labels,
    node_manifest,
    provider_id_of,
    without_kubelet,
    without_resources,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import (
        FetchOutcome,
        LaunchOutcome,
        LaunchRequest,
        TerminateOutcome,
    )
    from karpenter_provider_kwok.faults import KwokFault

__all__ = ["KwokCloud"]


@dataclass(frozen=True, slots=True)
class _Choice:
    """The offering of a new instance, and what was out of stock before it."""

    instance_type: InstanceType
    offering: Offering
    shortages: tuple[InsufficientCapacityError, ...] = ()


@final
class KwokCloud:
    """Instances by token, in a store that other processes may share; callable from any thread."""

    def __init__(
        self,
        store: InstanceStore,
        *,
        now: Callable[[], datetime],
        registration_delay: Callable[[LaunchRequest], timedelta],
        termination_delay: timedelta = timedelta(),
        extra_labels: frozenset[str] = frozenset(),
    ) -> None:
        self.disturbances: Final = ActiveFaults(store)
        self._store: Final = store
        self._now: Final = now
        self._registration_delay: Final = registration_delay
        self._termination_delay: Final = termination_delay
        self._well_known: Final = WELL_KNOWN | INSTANCE_LABELS | extra_labels

    # -- launch ----------------------------------------------------------------------------------

    def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        """Launch an instance for each request, all in one transaction."""
        with self._store.transaction() as db:
            return [self._launch(db, request) for request in requests]

    def _launch(self, db: sqlite3.Connection, request: LaunchRequest) -> LaunchOutcome:
        now = self._timestamp()
        launched_row = db.execute(
            "SELECT * FROM instances WHERE token = ?", (request.token,)
        ).fetchone()
        if launched_row is None:
            outcome = self._launch_new(db, request, now)
        else:
            outcome = self._in_progress(db, request) or repeated_outcome(launched_row, request, now)
        if isinstance(outcome, LaunchedInstance):
            result = "launched" if launched_row is None else "repeated"
        else:
            result = type(outcome).__name__
        record_call(db, at=now, operation="launch", subject=request.token, result=result)
        return outcome

    def _in_progress(
        self, db: sqlite3.Connection, request: LaunchRequest
    ) -> CloudProviderError | None:
        """Refuse a token whose first request a fault keeps at work; neither done nor refused."""
        for fault_id, fault in self.disturbances.active(db, KwokFaultKind.TOKEN_IN_PROGRESS):
            if fault.matches_claim(request.node_claim.name):
                self.disturbances.use_up(db, fault_id)
                return CloudProviderError(
                    f"the request with token {request.token} is still in progress"
                )
        return None

    def _launch_new(
        self, db: sqlite3.Connection, request: LaunchRequest, now: float
    ) -> LaunchOutcome:
        claim = request.node_claim
        provider_id = provider_id_of(claim.name)
        twin = live_row(db, provider_id, now)
        if twin is not None:
            return LaunchFailedError(
                f"{provider_id} already is an instance of another NodeClaim with UID "
                f"{twin['token']}",
                reason="InstanceNameTaken",
            )
        choice = self._choose(db, request)
        if isinstance(choice, InsufficientCapacityError):
            return choice
        instance_type, offering = choice.instance_type, choice.offering
        labels = decided_labels(instance_type, offering)
        launched = LaunchedInstance(
            provider_id=provider_id,
            instance_type=instance_type.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            capacity=dict(instance_type.capacity),
            allocatable=instance_type.allocatable(),
            labels=labels,
            shortages=choice.shortages,
        )
        node = node_manifest(
            claim, labels, capacity=launched.capacity, allocatable=launched.allocatable
        )
        late, fails_after = timedelta(), None
        for fault in self._node_faults(db, claim.name, launched):
            if fault.kind is KwokFaultKind.UNREADY_NODE:
                node = without_kubelet(node)
            elif fault.kind is KwokFaultKind.MISSING_RESOURCE:
                node = without_resources(node, fault.matches_resource)
            elif fault.kind is KwokFaultKind.LATE_FAILURE:
                fails_after = fault.delay
            else:
                late += fault.delay
        running_at = now + (self._registration_delay(request) + late).total_seconds()
        insert_instance(
            db, launched, request.token, offering, now=now, running_at=running_at, node=node
        )
        if fails_after is not None:
            fail_launch(db, launched, request.token, at=now + fails_after.total_seconds())
        return launched

    def _node_faults(
        self, db: sqlite3.Connection, node_claim: str, launched: LaunchedInstance
    ) -> list[KwokFault]:
        """Count and return the faults that the Node of a new instance has from its first moment."""
        offering = (launched.instance_type, launched.zone, launched.capacity_type)
        return [
            fault
            for kind in (
                KwokFaultKind.UNREADY_NODE,
                KwokFaultKind.MISSING_RESOURCE,
                KwokFaultKind.SLOW_NODE,
                KwokFaultKind.LATE_FAILURE,
            )
            for fault_id, fault in self.disturbances.active(db, kind)
            if fault.matches_claim(node_claim)
            and fault.matches_offering(*offering)
            and self.disturbances.use_up(db, fault_id)
        ]

    def _choose(
        self, db: sqlite3.Connection, request: LaunchRequest
    ) -> _Choice | InsufficientCapacityError:
        """Choose the cheapest offering that the claim allows and that is in stock."""
        requirements = Requirements.from_specs(request.node_claim.spec.requirements)
        available = sorted(
            (
                (it, offering)
                for it in request.instance_types
                for offering in it.offerings
                if offering.available
            ),
            key=lambda o: (o[1].price.amount, o[0].name, o[1].zone, o[1].capacity_type),
        )
        # Sorting is cheaper than comparing requirements: mostly the first few are compared.
        offers = (
            (it, offering)
            for it, offering in available
            if requirements.compatible(offering.requirements, allow_undefined=self._well_known)
        )
        stock_outs = self.disturbances.active(db, KwokFaultKind.STOCK_OUT)
        quotas = self.disturbances.active(db, KwokFaultKind.QUOTA)
        short = {fault_id for fault_id, _ in quotas}
        hit: set[str] = set()
        exhausted: list[OfferingKey] = []
        chosen: _Choice | None = None
        for it, offering in offers:
            key = (it.name, offering.zone, offering.capacity_type)
            struck = [
                fault_id for fault_id, f in (*stock_outs, *quotas) if f.matches_offering(*key)
            ]
            if not struck:
                chosen = _Choice(it, offering)
                break
            hit.update(struck)
            exhausted.append(OfferingKey(instance_type=key[0], zone=key[1], capacity_type=key[2]))
        for fault_id in sorted(hit):  # each strikes once a launch, however many offerings it hits
            self.disturbances.use_up(db, fault_id)
        if not exhausted:
            return chosen or InsufficientCapacityError("no offering can be had")
        what = ", ".join(f"{k.instance_type} {k.capacity_type} in {k.zone}" for k in exhausted[:3])
        more = f" and {len(exhausted) - 3} more" if len(exhausted) > 3 else ""  # noqa: PLR2004
        scope = ExhaustedScope.FAMILY_QUOTA if hit & short else ExhaustedScope.OFFERING
        shortage = InsufficientCapacityError(
            f"no capacity for {what}{more}", offerings=exhausted, scope=scope
        )
        return shortage if chosen is None else replace(chosen, shortages=(shortage,))

    # -- what exists -------------------------------------------------------------------------------

    def fetch(self, provider_ids: Sequence[str]) -> list[FetchOutcome]:
        """Fetch instances by provider ID."""
        now = self._timestamp()
        with self._store.reading() as db:
            rows = [(live_row(db, provider_id, now), provider_id) for provider_id in provider_ids]
        return [
            NodeClaimNotFoundError(f"no instance {provider_id}")
            if row is None
            else read_instance(row)
            for row, provider_id in rows
        ]

    def list(self) -> InstanceListing:
        """List every instance that is not gone."""
        with self._store.transaction() as db:
            lag = max(
                (f.delay for _, f in self.disturbances.active(db, KwokFaultKind.LAGGING_LISTING)),
                default=None,
            )
            shown_at = self._now() - (lag or timedelta())
            rows = db.execute(
                "SELECT * FROM instances WHERE (gone_at IS NULL OR gone_at > ?) "
                "AND launched_at <= ? ORDER BY launched_at, token",
                (shown_at.timestamp(), shown_at.timestamp()),
            ).fetchall()
            partial = self.disturbances.active(db, KwokFaultKind.PARTIAL_LISTING)
            for fault_id, _ in partial:
                self.disturbances.use_up(db, fault_id)
        shown = [
            read_instance(row)
            for row in rows
            if not any(fault.matches_claim(row["node_claim"]) for _, fault in partial)
        ]
        if partial:
            problem = "a page of the listing could not be read"
            return InstanceListing(instances=tuple(shown), complete=False, problem=problem)
        return InstanceListing(instances=tuple(shown), as_of=None if lag is None else shown_at)

    def knows_all(self, provider_ids: Iterable[str]) -> bool:
        """Whether every one of these ids is, or was, an instance of this cloud."""
        with self._store.reading() as db:
            return all(
                db.execute(
                    "SELECT 1 FROM instances WHERE provider_id = ?", (provider_id,)
                ).fetchone()
                for provider_id in provider_ids
            )

    def adopt(self, nodes: Iterable[NodeView]) -> int:
        """Take in Nodes that are ours but that the store has never heard of; returns how many.

        They come from another controller's time, or the state file was lost. Without this they
        would be instances that no call can terminate.
        """
        ours = [
            node
            for node in nodes
            if node.provider_id.startswith(PROVIDER_ID_PREFIX)
            and NODE_POOL in node.labels
            and not node.is_deleting
        ]
        with self._store.reading() as db:
            stored_ids = {row[0] for row in db.execute("SELECT provider_id FROM instances")}
        strangers = [node for node in ours if node.provider_id not in stored_ids]
        if not strangers:
            return 0
        now = self._timestamp()
        with self._store.transaction() as db:
            for node in strangers:
                adopt_node(db, node, now)
        return len(strangers)

    # -- the end -----------------------------------------------------------------------------------

    def terminate(self, provider_ids: Sequence[str]) -> list[TerminateOutcome]:
        """Ask instances to go; without a termination delay they are gone at once."""
        with self._store.transaction() as db:
            protections = self.disturbances.active(db, KwokFaultKind.PROTECTED)
            return [self._terminate(db, each, protections) for each in provider_ids]

    def _terminate(
        self, db: sqlite3.Connection, provider_id: str, protections: Sequence[tuple[str, KwokFault]]
    ) -> TerminateOutcome:
        now = self._timestamp()
        row = live_row(db, provider_id, now)
        if row is not None and any(
            fault.matches_claim(row["node_claim"]) and self.disturbances.use_up(db, fault_id)
            for fault_id, fault in protections
        ):
            record_call(db, at=now, operation="terminate", subject=provider_id, result="refused")
            return TerminationRefusedError(f"instance {provider_id} is protected from termination")
        outcome = TerminationStatus.GONE
        if row is not None:
            gone_at = now + self._termination_delay.total_seconds()
            if row["terminating_at"] is not None:
                gone_at = row["gone_at"]
            elif row["gone_at"] is not None:  # the cloud takes it away sooner
                gone_at = min(gone_at, row["gone_at"])
            db.execute(
                "UPDATE instances SET terminating_at = coalesce(terminating_at, ?), gone_at = ? "
                "WHERE token = ?",
                (now, gone_at, row["token"]),
            )
            outcome = TerminationStatus.GONE if gone_at <= now else TerminationStatus.STARTED
        record_call(db, at=now, operation="terminate", subject=provider_id, result=outcome.value)
        return outcome

    def poll_interruptions(self) -> tuple[Interruption, ...]:
        """Announce the reclaims that faults ask for, and repeat those not acknowledged."""
        with self._store.reading() as db:
            is_reclaiming = bool(self.disturbances.active(db, KwokFaultKind.RECLAIM))
        if is_reclaiming:
            self._reclaim()
        with self._store.reading() as db:
            rows = db.execute(
                "SELECT interruptions.*, instance_type, zone, capacity_type FROM interruptions "
                "LEFT JOIN instances ON id = 'launch-failed-' || token WHERE NOT acknowledged AND "
                "(interruptions.kind != ? OR deadline <= ?) ORDER BY id",
                (InterruptionKind.LAUNCH_FAILED.value, self._timestamp()),
            ).fetchall()
        return tuple(read_interruption(row) for row in rows)

    def _reclaim(self) -> None:
        now = self._timestamp()
        with self._store.transaction() as db:
            for fault_id, fault in self.disturbances.active(db, KwokFaultKind.RECLAIM):
                rows = db.execute(
                    "SELECT * FROM instances WHERE gone_at IS NULL AND running_at <= ? "
                    "ORDER BY launched_at, token",
                    (now,),
                ).fetchall()
                for row in rows:
                    matches = fault.matches_claim(row["node_claim"]) and fault.matches_offering(
                        row["instance_type"], row["zone"], row["capacity_type"]
                    )
                    if matches and self.disturbances.use_up(db, fault_id):
                        announce_reclaim(db, row, now + fault.notice.total_seconds())

    def acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Forget announcements."""
        with self._store.transaction() as db:
            db.executemany(
                "UPDATE interruptions SET acknowledged = 1 WHERE id = ?", [(i,) for i in ids]
            )

    def _timestamp(self) -> float:
        return self._now().timestamp()
