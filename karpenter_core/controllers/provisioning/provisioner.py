"""Runs the provisioning loop: gather pods, plan, create claims, record.

Passes run one at a time; pods that arrive meanwhile belong to the next one. `state.provisioning_input`
builds the input of a pass and `scheduling.solve` computes the plan; this module runs passes and
applies plans.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import DISRUPTED_TAINT
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.provisioning.new_claims import DecisionRef
from karpenter_core.controllers.provisioning.pass_recorder import (
    PassRecorder,
    waits_for_reservation,
    with_closed_pools,
    with_held_pools,
    with_unready_pools,
)
from karpenter_core.controllers.provisioning.plan_journal import record_plan
from karpenter_core.controllers.provisioning.trigger_batcher import TriggerBatcher
from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.controllers.reconciling.wake_signal import WakeSignal
from karpenter_core.scheduling.problem import SchedulingPlan, SolveOptions
from karpenter_core.scheduling.virtual_pods import without_virtual_pods
from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.placements import is_placement_refused, planned_state_node
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.state.untried_pods import list_foreseen_pods
from karpenter_core.state.unusable_pools import unready_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.provisioning_input import ProvisioningInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Provisioner", "ProvisioningOptions"]

RETRY_SECONDS: Final = 10.0  # upstream default: how often pods without a node are planned again
REST_SECONDS: Final = 2.0
"""The time without a binding after which pods may have lost their places to others."""
FIRST_LISTING_SECONDS: Final = 5.0
"""The longest time that the first pass waits for lists of instance types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningOptions:
    """Options for the start and the computation of passes."""

    batch_idle: timedelta = timedelta(seconds=1)
    batch_maximum: timedelta = timedelta(seconds=10)
    solve: SolveOptions = field(default_factory=SolveOptions)
    problem_settings: ProblemSettings = field(default_factory=ProblemSettings)


@final
class Provisioner:
    """Turns pending pods into claims."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        planner: Planner,
        creator: ClaimCreator,
        runtime: ControllerRuntime,
        options: ProvisioningOptions,
        unevaluated_pools: Callable[[], tuple[str, ...]],
        planning_turn: asyncio.Lock,
    ) -> None:
        """`planning_turn` is held by a pass, so that no other plan uses the same room meanwhile."""
        self._cluster_state = writer.cluster_state
        self._planner = planner
        self._runtime = runtime
        self._options = options
        self._unevaluated_pools = unevaluated_pools
        self._planning_turn = planning_turn
        self._batcher = TriggerBatcher(
            runtime.clock, idle=options.batch_idle, maximum=options.batch_maximum
        )
        self._creator = creator
        self._recorder = PassRecorder(
            writer=writer,
            runtime=runtime,
            nomination_window=options.problem_settings.nomination_window,
        )
        self._change_queue = ChangedNames(
            writer.cluster_state,
            ObjectKind.POD,
            ObjectKind.NODE,
            ObjectKind.NODE_CLAIM,
            ObjectKind.NODE_POOL,
            ObjectKind.CATALOGUE,
            ObjectKind.RESOURCE_CLAIM,
            ObjectKind.RESOURCE_CLAIM_TEMPLATE,
            ObjectKind.RESOURCE_SLICE,
            ObjectKind.DEVICE_CLASS,
            ObjectKind.VIRTUAL_PODS,
        )
        self._passes = PeriodicLoop(self.name, self._run_pass, runtime=runtime)
        self._last_version = -1
        self._bound_elsewhere = WakeSignal()
        self._last_bound = -REST_SECONDS
        """The time on the monotonic clock when a pod with a place was last seen bound."""
        self._memory = NodeMemory()
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "provisioner"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._planner.warm()
        await self._cluster_state.wait_synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._review())
            group.create_task(self._retry())
            group.create_task(self._passes.run())

    async def _dispatch_changes(self) -> None:
        """Trigger a pass for changes that may need or allow new claims."""
        previous = self._cluster_state.snapshot()
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            for element in _triggers(snapshot, changes):
                self._batcher.trigger(element)
            bound = _newly_bound(previous, snapshot, changes.get(ObjectKind.POD, ()))
            if bound:
                self._last_bound = self._runtime.clock.monotonic()
            if any(_is_bound_elsewhere(snapshot, pod, target) for pod, target in bound):
                self._bound_elsewhere.set()
            previous = snapshot

    async def _review(self) -> None:
        """Trigger a pass when pods were bound to other nodes than planned, and the scheduler rests.

        Some may have taken the room or the topology spread of others, which wait for places now that
        they cannot have. While the scheduler is still at work, most of these find room by themselves.
        """
        while True:
            await self._bound_elsewhere.wait()
            while (wait := self._last_bound + REST_SECONDS - self._runtime.clock.monotonic()) > 0:
                await self._runtime.clock.sleep(wait)
            self._bound_elsewhere.clear()
            snapshot = self._cluster_state.snapshot()
            if snapshot.pending_pods or snapshot.nominated_pods:
                self._batcher.trigger("review")

    async def _retry(self) -> None:
        """Trigger a pass for pods without a node every RETRY_SECONDS, if anything changed."""
        while True:
            await self._runtime.clock.sleep(RETRY_SECONDS)
            snapshot = self._cluster_state.snapshot()
            if snapshot.version == self._last_version:
                continue
            if _may_need_claims(snapshot):
                self._batcher.trigger("retry")
            else:
                self._recorder.report_ignored((), snapshot)
                self._recorder.clear_unplaced()

    async def _run_pass(self) -> float:
        triggers = await self._batcher.next_batch()
        await self._cluster_state.wait_until(
            lambda _: not self._unevaluated_pools(), seconds=FIRST_LISTING_SECONDS
        )
        with self._runtime.tracer.span("provisioning.pass", triggers=len(triggers)):
            async with self._planning_turn:
                await self._plan_pods(triggers)
        snapshot = self._cluster_state.snapshot()
        self._batcher.discard(partial(_is_settled, snapshot))
        return 0.0

    async def _plan_pods(self, triggers: tuple[str, ...]) -> None:
        self._cluster_state.tick()
        with self._runtime.tracer.span("provisioning.snapshot") as span:
            snapshot = self._cluster_state.snapshot()
            provisioning_input = await self._planner.compute(
                partial(
                    build_provisioning_input,
                    snapshot,
                    now=self._runtime.clock.now(),
                    problem_settings=self._options.problem_settings,
                    memory=self._memory,
                )
            )
            span.note(nodes=len(snapshot.state_nodes), pods=len(provisioning_input.problem.pods))
        self._recorder.report_ignored(provisioning_input.ignored, snapshot)
        if provisioning_input.problem.pods:
            self._recorder.count_held_pools(provisioning_input.refused_pools)
        # Placements and pauses end with time, without a change of an object.
        is_settled = not (provisioning_input.placed_pods or provisioning_input.has_paused_pods)
        if provisioning_input.problem.pods:
            is_settled &= await self._solve(provisioning_input, snapshot, triggers)
        else:
            self._recorder.report_failed_judgements(provisioning_input.set_aside)
            self._recorder.clear_unplaced()
            self._recorder.record_virtual_pods(SchedulingPlan(), snapshot)
        self._last_version = self._cluster_state.snapshot().version if is_settled else -1

    async def _solve(
        self, provisioning_input: ProvisioningInput, snapshot: Snapshot, triggers: tuple[str, ...]
    ) -> bool:
        """Plan and create claims; tell whether a pass over the same state would change nothing."""
        virtual_uids = {pod.uid for pods in snapshot.virtual_pods.values() for pod in pods}
        pods = len(provisioning_input.problem.pods) - len(virtual_uids)
        cause = f"{pods} pod(s) without a placement"
        if virtual_uids:
            cause += f", {len(virtual_uids)} virtual pod(s)"
        decision_ref = DecisionRef(id=self._runtime.new_id(), cause=cause)
        structlog.contextvars.bind_contextvars(decision=decision_ref.id)
        started = self._runtime.clock.monotonic()
        tracer = self._runtime.tracer
        with (
            self._recorder.measure_pass(decision_ref, pods=pods),
            tracer.span("provisioning.solve", decision=decision_ref.id, pods=pods) as span,
        ):
            plan = await self._planner.plan(provisioning_input.problem, self._options.solve)
            span.note(claims=len(plan.claims), unschedulable=len(plan.unschedulable))
        if plan.partial:
            self._log.warning("scheduling pass took too long and was stopped", pods=pods)
        plan = replace(plan, set_aside=(*provisioning_input.set_aside, *plan.set_aside))
        plan = with_closed_pools(plan, provisioning_input.closed_pools)
        plan = with_held_pools(plan, provisioning_input.refused_pools)
        plan = with_unready_pools(plan, unready_pools(snapshot))
        real_plan = without_virtual_pods(plan, virtual_uids)
        self._recorder.nominate_existing_nodes(real_plan, snapshot)
        with tracer.span("provisioning.create_claims", claims=len(plan.claims)):
            created = await self._creator.create(
                plan.claims,
                pools={pool.name: pool for pool in provisioning_input.problem.pools},
                decision_ref=decision_ref,
                reason="provisioned",
            )
        names = created.names
        self._recorder.record_virtual_pods(plan, snapshot, names)
        self._recorder.record_plan(
            real_plan,
            names,
            snapshot,
            quiet=bool(self._unevaluated_pools()),
            refused=created.obstacles,
        )
        if pods or plan.claims:
            await record_plan(
                plan,
                provisioning_input.problem,
                created,
                options=self._options.solve,
                decision_ref=decision_ref,
                planner=self._planner,
                runtime=self._runtime,
            )
        self._log.debug(
            "pass ended",
            triggers=len(triggers),
            nodeclaims=len(plan.claims),
            existing_nodes=len(plan.existing),
            unschedulable=len(plan.unschedulable),
            price_per_hour=round(plan.cost.hourly, 4),
            seconds=round(self._runtime.clock.monotonic() - started, 3),
        )
        return (
            not plan.partial
            and not real_plan.existing
            and None not in names
            and not provisioning_input.refused_pools  # pauses end without a change
            and not any(map(waits_for_reservation, plan.unschedulable.values()))
        )


def _may_need_claims(snapshot: Snapshot) -> bool:
    """Tell whether a pass could find a pod without a place; nominations may have become void.

    Or whether places of virtual pods stay noted that are gone: the pass that was to forget them failed.
    """
    return bool(
        snapshot.pending_pods
        or snapshot.nominated_pods
        or snapshot.has_virtual_pods
        or snapshot.virtual_pod_counts
        or any(state_node.marked_for_deletion for state_node in snapshot.state_nodes)
    )


def _triggers(snapshot: Snapshot, changes: Mapping[ObjectKind, tuple[str, ...]]) -> Iterator[str]:
    """Yield the pods and objects whose changes trigger a pass."""
    yield from _waiting_pods(snapshot, changes.get(ObjectKind.POD, ()))
    for name in changes.get(ObjectKind.NODE, ()):
        if _is_lost_with_pods(snapshot, name):
            yield f"node/{name}"
    for name in changes.get(ObjectKind.NODE_CLAIM, ()):
        claim = snapshot.node_claims.get(name)
        if claim is None or claim.is_deleting:
            yield from _triggers_of_lost_claim(snapshot, name)
    yield from changes.get(ObjectKind.VIRTUAL_PODS, ())
    if not snapshot.pending_pods and not snapshot.has_virtual_pods:
        return
    yield from _device_triggers(snapshot, changes)
    names = (*changes.get(ObjectKind.NODE_POOL, ()), *changes.get(ObjectKind.CATALOGUE, ()))
    pools = [name for name in names if name in snapshot.node_pools and name in snapshot.catalogues]
    if pools and _has_pods_without_place(snapshot):
        yield from (f"nodepool/{name}" for name in pools)


def _waiting_pods(snapshot: Snapshot, changed: tuple[str, ...]) -> Iterator[str]:
    """Yield changed pods that have no place, or are refused the one that they have."""
    foreseen = list_foreseen_pods(snapshot, changed)
    for uid in changed:
        pod = snapshot.pending_pods.get(uid) or snapshot.nominated_pods.get(uid)
        if uid in snapshot.ledger.placements:
            if pod is not None and is_placement_refused(snapshot, pod):
                yield uid
        elif uid in snapshot.pending_pods or uid in foreseen:
            yield uid


def _newly_bound(
    before: Snapshot, after: Snapshot, changed: tuple[str, ...]
) -> list[tuple[PodView, str]]:
    """Return the changed pods that had a place and are bound now, with the names of their places."""
    placements = before.ledger.placements
    return [
        (pod, placements[uid].target)
        for uid in changed
        if uid in placements and (pod := after.pods.get(uid)) is not None and pod.node_name
    ]


def _is_bound_elsewhere(snapshot: Snapshot, pod: PodView, target: str) -> bool:
    """Tell whether a bound pod is on another node than that of its place."""
    state_node = snapshot.state_node(target)
    return state_node is None or state_node.node is None or state_node.node.name != pod.node_name


def _is_settled(snapshot: Snapshot, element: str) -> bool:
    """Tell whether a pod that triggered a pass has got a node or a place meanwhile."""
    pod = snapshot.pods.get(element)
    if pod is None:
        return False
    return bool(pod.node_name) or (
        planned_state_node(snapshot, element) is not None
        and not is_placement_refused(snapshot, pod)
    )


def _has_pods_without_place(snapshot: Snapshot) -> bool:
    """Tell whether any pod waits for room; takes a time in proportion to the pending pods."""
    return snapshot.has_virtual_pods or any(
        planned_state_node(snapshot, uid) is None for uid in snapshot.pending_pods
    )


def _device_triggers(
    snapshot: Snapshot, changes: Mapping[ObjectKind, tuple[str, ...]]
) -> Iterator[str]:
    """Yield changed objects that devices are allocated from, if a pod waits that asks for some."""
    changed = [
        f"{kind.value.lower()}/{name}"
        for kind in (
            ObjectKind.RESOURCE_CLAIM,
            ObjectKind.RESOURCE_CLAIM_TEMPLATE,
            ObjectKind.RESOURCE_SLICE,
            ObjectKind.DEVICE_CLASS,
        )
        for name in changes.get(kind, ())
    ]
    if changed and any(
        pod.shape.resource_claims and pod.uid not in snapshot.ledger.placements
        for pod in snapshot.pending_pods.values()
    ):
        yield from changed


def _triggers_of_lost_claim(snapshot: Snapshot, name: str) -> Iterator[str]:
    """Yield the triggers of a deleted claim: it, if pods wait, or its node with pods.

    The taint on its node would trigger a pass too, but pods of an interrupted node have no time to
    lose.
    """
    if snapshot.pending_pods or snapshot.has_virtual_pods:
        yield f"nodeclaim/{name}"
        return
    state_node = snapshot.state_nodes_by_claim.get(name)
    if state_node is None or state_node.node is None or _is_tainted(state_node.node):
        return
    if any(pod.is_reschedulable for pod in state_node.pods):
        yield f"node/{state_node.node.name}"


def _is_tainted(node: NodeView) -> bool:
    return any(taint.key == DISRUPTED_TAINT for taint in node.taints)


def _is_lost_with_pods(snapshot: Snapshot, name: str) -> bool:
    """Tell whether a node is being disrupted, or is gone while pods are nominated for it."""
    node = snapshot.nodes.get(name)
    if node is not None:
        return _is_tainted(node)
    return any(pod.nominated_node_name == name for pod in snapshot.nominated_pods.values())
