"""Serves ProvisioningRequests: the controller `provisioningrequest`.

A pass takes the next step of every request, then plans capacity for the oldest requests that wait. It
plans one request at a time, and never while pending pods are planned: both plans would use the same
free capacity. `lifecycle.provisioning_request` decides; this module reads, writes and creates.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

import structlog

from karpenter_core.api.conditions import READY, is_unknown
from karpenter_core.api.provisioning_request import ATOMIC_SCALE_UP, GANG_ATTEMPT
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.provisioning.new_claims import DecisionRef
from karpenter_core.controllers.provisioning.plan_journal import record_plan
from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.controllers.reconciling.refusal_reports import RefusedObjects
from karpenter_core.errors import ConflictError, NotFoundError
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, PROVISIONING_REQUESTS
from karpenter_core.lifecycle.provisioning_request.gang_plan import (
    attempt_annotations,
    judge_plan,
    partial_plan_steps,
)
from karpenter_core.lifecycle.provisioning_request.next_step import next_step, orphaned_claims
from karpenter_core.lifecycle.provisioning_request.notices import notices_of_change, request_state
from karpenter_core.lifecycle.provisioning_request.outcome import with_no_capacity
from karpenter_core.lifecycle.provisioning_request.parameters import (
    PartialCheck,
    is_ours,
    parse_parameters,
)
from karpenter_core.lifecycle.provisioning_request.status import (
    status_patch,
    with_attempt_ended,
    with_attempt_started,
    with_partial_capacity,
    with_provisioned,
)
from karpenter_core.state.bookings import bookings, request_pods, starting_claims
from karpenter_core.state.gang_places import claims_by_request
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.provisioning_input import build_provisioning_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
    from karpenter_core.controllers.provisioning.provisioner import ProvisioningOptions
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.provisioning_request.gang_plan import GangPlan, PodSetsPlan
    from karpenter_core.lifecycle.provisioning_request.next_step import RequestStep
    from karpenter_core.scheduling.problem import SchedulingPlan
    from karpenter_core.state.provisioning_input import ProvisioningInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ProvisioningRequestController"]

BATCH: Final = 10
"""Requests for which one pass looks for capacity (upstream default)."""
IDLE_SECONDS: Final = 3600.0
BEHIND_SECONDS: Final = 1.0
COLLECT_SECONDS: Final = 0.1
"""Time for which changes are collected: a gang of a thousand nodes changes thousands of times."""
POOLS_SECONDS: Final = 5.0
"""The longest time that a pass waits for NodePools that were just created, or for a start."""
REASON: Final = "provisioning_request"
"""The reason for which NodeClaims are created, in metrics and `karpenter.sh/created-for`."""


@final
class ProvisioningRequestController:
    """The controller `provisioningrequest`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        planner: Planner,
        creator: ClaimCreator,
        runtime: ControllerRuntime,
        options: ProvisioningOptions,
        planning_turn: asyncio.Lock,
        is_served: Callable[[], bool],
        unevaluated_pools: Callable[[], tuple[str, ...]],
    ) -> None:
        """`planning_turn` is held while room is looked for; the provisioner holds it too.

        `is_served` tells whether the API server has the kind: if not, requests are unknown.
        """
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._planner = planner
        self._creator = creator
        self._runtime = runtime
        self._options = options
        self._planning_turn = planning_turn
        self._is_served = is_served
        self._unevaluated_pools = unevaluated_pools
        self._change_queue = ChangedNames(
            writer.cluster_state,
            ObjectKind.PROVISIONING_REQUEST,
            ObjectKind.POD_TEMPLATE,
            ObjectKind.NODE_CLAIM,
            ObjectKind.NODE,
        )
        self._passes = PeriodicLoop(self.name, self._run_pass, runtime=runtime)
        self._refused = RefusedObjects(self.name, runtime=runtime, publish=writer.publish)
        self._is_behind = False
        self._shown: set[tuple[str, str]] = set()
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "provisioningrequest"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._planner.warm()
        await self._cluster_state.wait_synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._passes.run())

    async def _dispatch_changes(self) -> None:
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            if (
                snapshot.provisioning_requests
                or changes.keys() & {ObjectKind.PROVISIONING_REQUEST, ObjectKind.POD_TEMPLATE}
                or any(map(_is_of_attempt, snapshot.node_claims.values()))
            ):
                self._passes.wake()
            await self._runtime.clock.sleep(COLLECT_SECONDS)

    async def _run_pass(self) -> float:
        """Take the next step of every request; return the seconds until the next one is known."""
        if not self._is_served():
            return IDLE_SECONDS
        self._is_behind = False
        self._cluster_state.tick()
        snapshot = self._cluster_state.snapshot()
        claims = claims_by_request(snapshot)
        await self._delete_orphans(orphaned_claims(snapshot, claims))
        due: list[ProvisioningRequest] = []
        wakes: list[datetime] = []
        booked = {booking.request.uid: booking for booking in bookings(snapshot)}
        for request in sorted(snapshot.provisioning_requests.values(), key=_order):
            step = next_step(
                snapshot,
                request,
                claims.get(request.uid, ()),
                booked.get(request.uid),
                now=self._runtime.clock.now(),
            )
            stored = await self._refused.attempt(request.ref, partial(self._take, request, step))
            if stored is None:
                continue
            if step.is_due:
                due.append(stored)
            elif step.wake_at is not None:
                wakes.append(step.wake_at)
        if due:
            await self._cluster_state.wait_until(self._are_pools_judged, seconds=POOLS_SECONDS)
        for request in due[:BATCH]:
            await self._refused.attempt(request.ref, partial(self._provide, request))
        self._count(self._cluster_state.snapshot())
        if self._is_behind:
            return BEHIND_SECONDS
        if due:
            return 0.0  # the outcome of each is the next step
        now = self._runtime.clock.now()
        waits = [(at - now).total_seconds() for at in wakes]
        return max(0.0, min(IDLE_SECONDS, self._refused.seconds_left(), *waits))

    async def _delete_orphans(self, claims: Iterable[NodeClaim]) -> None:
        for claim in claims:
            delete = partial(self._delete, claim, "its ProvisioningRequest is gone")
            await self._refused.attempt(claim.ref, delete)

    def _are_pools_judged(self, snapshot: Snapshot) -> bool:
        """Tell whether it is known of every NodePool what it can launch, so that no plan lacks one."""
        return not self._unevaluated_pools() and not any(
            is_unknown(pool.status.conditions, READY) for pool in snapshot.node_pools.values()
        )

    async def _take(
        self, request: ProvisioningRequest, step: RequestStep
    ) -> ProvisioningRequest | None:
        """Carry out a step; return the request as stored, None if another writer was faster."""
        stored = await self._write(request, step.request)
        if stored is None:
            return None
        for claim in step.delete:
            await self._delete(claim, "not all capacity of its ProvisioningRequest is there")
        for claim in step.release:
            await self._release(claim)
        return stored

    async def _provide(self, request: ProvisioningRequest) -> None:
        """Look for the capacity of a request, and book or launch it."""
        async with self._planning_turn:
            self._cluster_state.tick()
            snapshot = self._cluster_state.snapshot()
            gang = request_pods(snapshot, request)
            if gang is None:  # a template was deleted: the next pass says so
                return
            provisioning_input, plan, verdict = await self._plan(snapshot, request, gang)
            problem = verdict.problem or self._creator.refusal(
                plan.claims, pools=_pools_of(provisioning_input)
            )
            now = self._runtime.clock.now()
            if problem:
                some = await self._with_some(snapshot, request, gang)
                await self._write(request, some or with_no_capacity(request, problem, now=now))
                return
            starting: tuple[str, ...] = ()
            if request.spec.provisioning_class_name == ATOMIC_SCALE_UP:
                starting = starting_claims(snapshot, request, verdict.places)
            if not plan.claims and not starting:
                found = with_provisioned(request, verdict.places, launched=0, now=now)
                await self._write(request, found)
                return
            started = with_attempt_started(
                request, verdict.places, claims=len(plan.claims), starting=starting, now=now
            )
            stored = await self._write(request, started)
            if stored is not None and plan.claims:
                await self._launch(stored, provisioning_input, plan)

    async def _plan(
        self, snapshot: Snapshot, request: ProvisioningRequest, gang: tuple[PodView, ...]
    ) -> tuple[ProvisioningInput, SchedulingPlan, GangPlan]:
        provisioning_input = await self._planner.compute(
            partial(self._problem, snapshot, request, gang)
        )
        plan = await self._planner.plan(provisioning_input.problem, self._options.solve)
        return provisioning_input, plan, judge_plan(gang, provisioning_input, plan)

    async def _with_some(
        self, snapshot: Snapshot, request: ProvisioningRequest, gang: tuple[PodView, ...]
    ) -> ProvisioningRequest | None:
        """Return the request with the pod sets that fit; None if none does, or none is asked for."""
        parameters = parse_parameters(request)
        if isinstance(parameters, str) or parameters.partial_check is None:
            return None
        steps = partial_plan_steps(gang)
        pods = next(steps)
        while True:
            _, _, verdict = await self._plan(snapshot, request, pods)
            try:
                pods = steps.send(verdict)
            except StopIteration as end:
                found: PodSetsPlan = end.value
                break
        if not found.pod_sets:
            return None
        return with_partial_capacity(
            request,
            found.pod_sets,
            found.places,
            is_booked=parameters.partial_check is PartialCheck.BOOK,
            now=self._runtime.clock.now(),
        )

    def _problem(
        self, snapshot: Snapshot, request: ProvisioningRequest, gang: tuple[PodView, ...]
    ) -> ProvisioningInput:
        """Return the problem to place a gang, on existing capacity only for a capacity check."""
        provisioning_input = build_provisioning_input(
            snapshot,
            now=self._runtime.clock.now(),
            problem_settings=self._options.problem_settings,
            gang=gang,
            joins_attempts=request.spec.provisioning_class_name == ATOMIC_SCALE_UP,
        )
        if request.spec.provisioning_class_name == ATOMIC_SCALE_UP:
            return provisioning_input
        return replace(
            provisioning_input,
            problem=replace(provisioning_input.problem, pools=(), catalogues={}),
        )

    async def _launch(
        self,
        request: ProvisioningRequest,
        provisioning_input: ProvisioningInput,
        plan: SchedulingPlan,
    ) -> None:
        """Create the NodeClaims of an attempt that the status of its request announces."""
        decision_ref = DecisionRef(
            id=self._runtime.new_id(), cause=f"ProvisioningRequest {request.key}"
        )
        created = await self._creator.create(
            plan.claims,
            pools=_pools_of(provisioning_input),
            decision_ref=decision_ref,
            reason=REASON,
            annotations=attempt_annotations(request, plan.claims),
        )
        await record_plan(
            plan,
            provisioning_input.problem,
            created,
            options=self._options.solve,
            decision_ref=decision_ref,
            planner=self._planner,
            runtime=self._runtime,
        )
        if created.refused:  # a limit was reached since the plan was judged; nothing was created
            why = next(iter(created.refused.values()))
            now = self._runtime.clock.now()
            await self._write(request, with_attempt_ended(request, why, now=now))

    async def _write(
        self, old: ProvisioningRequest, new: ProvisioningRequest
    ) -> ProvisioningRequest | None:
        """Write the status; return the request as stored, None if another writer was faster."""
        patch = status_patch(old, new)
        if patch is None:
            return new
        try:
            written = await self._writer.kube_writer.patch(
                PROVISIONING_REQUESTS,
                old.name,
                patch,
                namespace=old.metadata.namespace or "",
                subresource="status",
                resource_version=old.metadata.resource_version,
            )
        except (ConflictError, NotFoundError):  # the watch is about to show the change
            self._is_behind = True
            return None
        stored = cast("ProvisioningRequest", written)
        for notice in notices_of_change(old, stored):
            self._writer.publish(notice)
            self._log.info(
                notice.message,
                reason=notice.reason,
                ProvisioningRequest={"namespace": old.metadata.namespace, "name": old.name},
            )
            self._runtime.metrics.provisioning_request_changes.labels(
                provisioning_class=old.spec.provisioning_class_name, reason=notice.reason
            ).inc()
        return stored

    async def _delete(self, claim: NodeClaim, why: str) -> None:
        if await self._writer.delete_claim(claim):
            self._log.info("nodeclaim deleted", NodeClaim={"name": claim.name}, why=why)

    async def _release(self, claim: NodeClaim) -> None:
        """Make the claim of a provisioned request one like others."""
        body = {"metadata": {"annotations": {GANG_ATTEMPT: None}}}
        try:
            await self._writer.kube_writer.patch(NODE_CLAIMS, claim.name, body)
        except NotFoundError:
            return

    def _count(self, snapshot: Snapshot) -> None:
        """Export how many requests are in each state."""
        counts = Counter(
            (request.spec.provisioning_class_name, request_state(request))
            for request in snapshot.provisioning_requests.values()
            if is_ours(request)
        )
        gauge = self._runtime.metrics.provisioning_requests
        for labels in self._shown - counts.keys():
            gauge.remove(*labels)
        for labels, count in counts.items():
            gauge.labels(*labels).set(count)
        self._shown = set(counts)


def _is_of_attempt(claim: NodeClaim) -> bool:
    return GANG_ATTEMPT in claim.metadata.annotations


def _order(request: ProvisioningRequest) -> tuple[str, str]:
    created = request.metadata.creation_timestamp
    return ("" if created is None else created.isoformat(), request.key)


def _pools_of(provisioning_input: ProvisioningInput) -> dict[str, NodePool]:
    """Return the NodePools with which claims are planned, by name."""
    return {pool.name: pool for pool in provisioning_input.problem.pools}
