"""Takes every claim from its creation to an initialised node and to its end.

One reconcile does all that is possible on one copy of the claim, and then writes it once: launch,
registration, initialisation, liveness, expiry, pod events and the other conditions share their
patches, because the number of API calls limits the speed of a scale-up.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.nodeclaim.admission import NodeAdmission
from karpenter_core.controllers.nodeclaim.claim_deleter import ClaimDeleter
from karpenter_core.controllers.nodeclaim.claim_wakeups import ClaimWakeups
from karpenter_core.controllers.nodeclaim.fresh_time import FreshTime
from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
from karpenter_core.controllers.nodeclaim.label_restorer import LabelRestorer
from karpenter_core.controllers.nodeclaim.lost_nodes import LostNodes
from karpenter_core.controllers.nodeclaim.registration_gates import (
    UNGATED,
    gate_nodes,
    is_ready_to_register,
    without_refused,
)
from karpenter_core.controllers.nodeclaim.termination import ClaimTerminator
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.controllers.reconciling.refusal_reports import reporting_refusals
from karpenter_core.errors import ApiError, ConflictError
from karpenter_core.lifecycle.changes import LifecycleStep, merge_steps, soonest
from karpenter_core.lifecycle.claim_status import with_initial_conditions
from karpenter_core.lifecycle.nodeclaim.consistency import consistency_step
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_step, quiet_since
from karpenter_core.lifecycle.nodeclaim.expiration import expiration_step
from karpenter_core.lifecycle.nodeclaim.initialization import published_slices
from karpenter_core.lifecycle.nodeclaim.launch import (
    LaunchAction,
    finalizer_step,
    launch_advice,
    launched_step,
)
from karpenter_core.lifecycle.nodeclaim.liveness import (
    INITIALIZATION_TIMED_OUT,
    LAUNCH_TIMED_OUT,
    NODE_REMOVED,
    REGISTRATION_TIMED_OUT,
    initialization_timeout_step,
    liveness_step,
    node_removed_step,
)
from karpenter_core.lifecycle.nodeclaim.lost_nodes import NODE_LOST
from karpenter_core.lifecycle.nodeclaim.nomination import planned_pods
from karpenter_core.lifecycle.nodeclaim.pod_event_time import pod_event_step
from karpenter_core.lifecycle.nodeclaim.progress import progress_step
from karpenter_core.lifecycle.nodeclaim.refused_nodes import refused_nodes, refused_notices
from karpenter_core.lifecycle.nodeclaim.registration import awaits_registration
from karpenter_core.state.disruption_pause import replacement_pause_reason
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.live_reader import LiveReader
    from karpenter_core.controllers.nodeclaim.registration_gates import GatedNodes
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.changes import NodePatch
    from karpenter_core.lifecycle.nodeclaim.refused_nodes import RefusedNode
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["REGISTRATION_HOLD", "NodeClaimLifecycleController"]

CONCURRENCY: Final = (1000, 5000)  # upstream's bounds
REGISTRATION_HOLD: Final = timedelta(seconds=2)
"""The time for which the registration of a node that is not Ready is delayed.

No pod can run on it anyway, and most nodes become Ready in that time: registration and initialisation
then share one patch of the Node and one of the claim.
"""

_WITHOUT_NODE: Final = frozenset(
    {
        LAUNCH_TIMED_OUT,
        REGISTRATION_TIMED_OUT,
        INITIALIZATION_TIMED_OUT,
        NODE_REMOVED,
        NODE_LOST,
    }
)
"""Reasons that rest on the absence of a Node or condition: a stale state does not prove it."""
CONFLICT_PAUSES: Final = (0.05, 0.2)
"""The waits, in seconds, for the watch to show another writer's change of a Node."""


@final
class NodeClaimLifecycleController:
    """The controller `nodeclaim.lifecycle`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        nodes: LiveReader,
        well_known: frozenset[str],
        registration_hold: timedelta = REGISTRATION_HOLD,
        ignores_devices: bool,
        launch_timeout: timedelta,
        registration_timeout: timedelta,
        initialization_timeout: timedelta,
        paused: bool,
        static_capacity: bool,
    ) -> None:
        """`paused` is the setting that pauses all disruption; claims do not expire meanwhile.

        A claim that is not initialised in time is deleted, unless `initialization_timeout` is 0.
        `static_capacity` is the feature gate `StaticCapacity`.
        """
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._runtime = runtime
        self._hold = registration_hold
        self._ignores_devices = ignores_devices
        self._launch_timeout = launch_timeout
        self._registration_timeout = registration_timeout
        self._initialization_timeout = initialization_timeout
        self._paused = paused
        self._static_capacity = static_capacity
        self._launcher = InstanceLauncher(
            cluster_state=writer.cluster_state,
            providers=providers,
            runtime=runtime,
            well_known=well_known,
        )
        self._admission = NodeAdmission(
            kube_writer=writer.kube_writer, cluster_state=writer.cluster_state, runtime=runtime
        )
        self._labels = LabelRestorer(runtime.clock)
        self._freshness = freshness
        self._fresh = FreshTime(runtime.clock, freshness, FreshnessConsumer.LIVENESS)
        self._terminator = self._make_terminator(nodes)
        self._node_seen: dict[str, datetime] = {}
        """By the UID of a claim that awaits registration, since when it has a Node."""
        self._refused: dict[str, frozenset[str]] = {}
        """By the UID of a claim, the names of the Nodes that show its provider ID without right."""
        self._pod_events: set[str] = set()
        self._steady = SteadyClock(runtime.clock)
        self._lost_nodes = LostNodes(
            cluster_state=writer.cluster_state,
            nodes=nodes,
            steady=self._steady,
            grace=registration_timeout,
        )
        self._quiet: dict[str, tuple[datetime | None, datetime]] = {}
        """By claim: the start of its quiet time, and when the steady clock first saw it."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler = self._make_reconciler()
        self._wakeups = ClaimWakeups(
            writer.cluster_state, wake=self._wake, note_pod_event=self._pod_events.add
        )
        self._deleter = ClaimDeleter(writer=writer, runtime=runtime)
        writer.cluster_state.subscribe(ObjectKind.NODE_CLAIM, self._reconciler.wake)

    def _make_terminator(self, nodes: LiveReader) -> ClaimTerminator:
        return ClaimTerminator(
            writer=self._writer,
            providers=self._providers,
            launcher=self._launcher,
            runtime=self._runtime,
            freshness=self._freshness,
            nodes=nodes,
            wake=self._wake,
        )

    def _make_reconciler(self) -> Reconciler[str]:
        return Reconciler(
            self.name,
            reporting_refusals(
                self.reconcile,
                objects=lambda: self._cluster_state.snapshot().node_claims,
                publish=self._writer.publish,
            ),
            runtime=self._runtime,
            backoff=ExponentialBackoff(base_seconds=1.0),
            concurrency=self._runtime.workers(*CONCURRENCY),
            log_field="NodeClaim",
        )

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.lifecycle"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        self._fresh.restart()
        self._launcher.begin()
        for name in self._cluster_state.snapshot().node_claims:
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wakeups.run())
            group.create_task(self._admission.run())
            group.create_task(self._reconciler.run())

    def _wake(self, name: str) -> None:
        self._reconciler.wake(name)

    async def reconcile(self, name: str) -> ReconcileResult:
        """Advance one claim as far as possible."""
        snapshot = self._cluster_state.snapshot()
        claim = snapshot.node_claims.get(name)
        if claim is None:
            self._pod_events.discard(name)
            self._quiet.pop(name, None)
            return DONE
        if not snapshot.manages(claim.spec.node_class_ref):
            return DONE
        if claim.is_deleting:
            self._node_seen.pop(claim.uid, None)
            self._refused.pop(claim.uid, None)
            self._labels.forget(claim.uid)
            self._lost_nodes.forget(claim.uid)
            return await self._terminator.terminate(claim)
        if (step := finalizer_step(claim)) is not None:
            await self._writer.write_claim(claim, step.claim)
            return ReconcileResult(requeue_after=0.0)
        step = await self._claim_after_launch(claim)
        if step is None:
            # The launch took time: start again with the claim as it is now.
            return await self.reconcile(name)
        if not step.delete:  # liveness and expiry apply to unlaunched claims too
            step = await self._with_progress(step)
        return await self._write(claim, step)

    async def _claim_after_launch(self, claim: NodeClaim) -> LifecycleStep | None:
        """Return the step for the claim's launch; None if the launch has just ended."""
        advice = launch_advice(claim, self._cluster_state.snapshot().ledger)
        now = self._runtime.clock.now()
        fresh = with_initial_conditions(claim, now=now)
        match advice.action:
            case LaunchAction.ADOPT if advice.result is not None:
                return launched_step(fresh, advice.result, now)
            case LaunchAction.CALL:
                return await self._launcher.launch(fresh)
            case LaunchAction.NONE:
                self._launcher.forget(claim.uid)
            case _:
                pass
        return LifecycleStep(claim=fresh)

    async def _with_progress(self, step: LifecycleStep) -> LifecycleStep:
        """Add the steps from the claim's registration to its expiry."""
        now = self._runtime.clock.now()
        snapshot = self._cluster_state.snapshot()
        claim = step.claim
        refused = refused_nodes(claim, snapshot)
        nodes = without_refused(snapshot.nodes_of(claim), refused)
        gated = UNGATED
        held: timedelta | None = None
        if nodes and awaits_registration(claim):
            held = self._remaining_hold(claim, nodes, now)
            if held is None:
                gated = await self._gate(claim, nodes)
                # Most nodes become Ready during gates and admission, and some are removed.
                now, snapshot = self._runtime.clock.now(), self._cluster_state.snapshot()
                refused = (*refused_nodes(claim, snapshot), *gated.refused)
                nodes = without_refused(snapshot.nodes_of(claim), refused)
                if any(node.name not in gated.admitted for node in nodes):
                    held = timedelta()  # a Node came meanwhile
        if held is not None:
            nodes = ()
        self._note_refused(claim, refused)
        if self._is_node_removed(claim, snapshot):
            return merge_steps(step, node_removed_step(claim))
        if (losing := await self._lost_nodes.step(claim)).delete:
            return merge_steps(step, losing)
        notices = refused_notices(claim, refused)
        step = merge_steps(step, replace(losing, notices=notices))
        names = tuple(node.name for node in nodes) or ("",)
        step = merge_steps(
            step,
            progress_step(
                claim,
                nodes,
                now=now,
                refused=() if held is not None else refused,
                pending=gated.pending,
                gate_error=gated.error,
                launch_timeout=self._launch_timeout,
                registration_timeout=self._registration_timeout,
                shown_for=self._fresh.elapsed(),
                slices=None if self._ignores_devices else published_slices(claim, nodes, snapshot),
                planned=chain.from_iterable(
                    planned_pods(snapshot, claim=claim.name, node=name) for name in names
                ),
            ),
        )
        pool = snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, ""))
        if claim.name in self._pod_events:
            step = merge_steps(step, pod_event_step(step.claim, pool, now=now))
        watched = self._observed_quiet_time(step.claim)
        step = merge_steps(
            step, consolidatable_step(step.claim, pool, now=now, observed_quiet_time=watched)
        )
        step = merge_steps(step, consistency_step(step.claim, nodes, now=now))
        labelled = nodes if step.node is None else tuple(map(step.node.applied_to, nodes))
        step = merge_steps(step, self._labels.step(step.claim, labelled))
        step = self._with_expiration(step, nodes, pool, snapshot)
        return merge_steps(step, LifecycleStep(claim=step.claim, requeue_after=held))

    def _with_expiration(
        self,
        step: LifecycleStep,
        nodes: Sequence[NodeView],
        pool: NodePool | None,
        snapshot: Snapshot,
    ) -> LifecycleStep:
        """Add the claim's time limits that pauses hold up, unless it is given up already."""
        if step.delete:
            return step
        now = self._runtime.clock.now()
        pods = (pod for node in nodes for pod in snapshot.pods_by_node.get(node.name, ()))
        paused = bool(
            replacement_pause_reason(
                pool, is_paused_globally=self._paused, static_capacity=self._static_capacity
            )
        )
        step = merge_steps(
            step,
            initialization_timeout_step(
                step.claim,
                nodes,
                now=now,
                timeout=self._initialization_timeout,
                paused=paused,
                shown_for=self._fresh.elapsed(),
            ),
        )
        if step.delete:
            return step
        expiring = expiration_step(step.claim, pods, now=now, paused=paused)
        if expiring.delete and self._is_state_stale(FreshnessConsumer.EXPIRATION, step.claim):
            expiring = expiration_step(step.claim, (), now=now, paused=True)
        return merge_steps(step, expiring)

    def _observed_quiet_time(self, claim: NodeClaim) -> timedelta:
        """Return how long this process has seen the same start of quiet time and no pod event."""
        now, start = self._steady.now(), quiet_since(claim)
        before, since = self._quiet.get(claim.name, (None, now))
        if before != start or claim.name in self._pod_events:
            since = now
        self._quiet[claim.name] = (start, since)
        return now - since

    def _is_state_stale(self, consumer: FreshnessConsumer, claim: NodeClaim) -> bool:
        """Tell whether the deletion of a claim waits for fresh kinds."""
        return bool(
            self._freshness.stale_or_wake(consumer, claim.name, partial(self._wake, claim.name))
        )

    async def _gate(self, claim: NodeClaim, nodes: Sequence[NodeView]) -> GatedNodes:
        """Ask the provider about the Nodes of a claim, and admit the one that may register now."""
        gated = await gate_nodes(self._providers, claim, nodes)
        if gated.is_open:
            await self._admission.admit(
                claim, next(node for node in nodes if node.name in gated.admitted)
            )
        return gated

    def _note_refused(self, claim: NodeClaim, refused: Sequence[RefusedNode]) -> None:
        """Remember the refused Nodes: none of them is written, and none was the claim's."""
        names = frozenset(node.name for node in refused)
        if not names:
            self._refused.pop(claim.uid, None)
            return
        self._refused[claim.uid] = names
        if all(node.name in names for node in self._cluster_state.snapshot().nodes_of(claim)):
            self._node_seen.pop(claim.uid, None)

    def _is_node_removed(self, claim: NodeClaim, snapshot: Snapshot) -> bool:
        """Tell whether a claim that awaits registration had a Node and has none any more.

        Without our finalizer the Node is gone at once. If the claim were registered all the same, it
        would keep an instance without a Node for ever.
        """
        had_node = awaits_registration(claim) and claim.uid in self._node_seen
        return had_node and not snapshot.nodes_of(claim)

    def _remaining_hold(
        self, claim: NodeClaim, nodes: Sequence[NodeView], now: datetime
    ) -> timedelta | None:
        """Return how much longer the registration of a node that is not ready is delayed."""
        seen = self._node_seen.setdefault(claim.uid, now)
        if len(nodes) > 1 or is_ready_to_register(claim, nodes[0]):
            return None
        left = seen + self._hold - now
        return left if left > timedelta() else None

    async def _write(self, claim: NodeClaim, step: LifecycleStep) -> ReconcileResult:
        """Apply a step that covers the pod events until now; later ones wait for the next step."""
        had_events = claim.name in self._pod_events
        self._pod_events.discard(claim.name)
        try:
            return await self._apply_step(claim, step)
        except BaseException:
            if had_events:
                self._pod_events.add(claim.name)
            raise

    async def _apply_step(self, claim: NodeClaim, step: LifecycleStep) -> ReconcileResult:
        provider = self._providers.provider_of(claim.spec.node_class_ref)
        if step.delete in _WITHOUT_NODE and self._is_state_stale(FreshnessConsumer.LIVENESS, claim):
            return DONE
        if step.delete:
            await self._deleter.delete(claim, step, provider)
            return DONE
        registers = awaits_registration(claim)
        if step.node is not None:
            try:
                for node in self._own_nodes(step.claim):
                    await self._write_node(node, step.node)
            except ApiError:
                # The step counts the node as registered. It is not, and if a webhook rejects every
                # write of it, the claim must not wait for ever.
                given_up = liveness_step(
                    claim,
                    now=self._runtime.clock.now(),
                    launch_timeout=self._launch_timeout,
                    registration_timeout=self._registration_timeout,
                    shown_for=self._fresh.elapsed(),
                )
                if given_up.delete and not self._is_state_stale(FreshnessConsumer.LIVENESS, claim):
                    await self._deleter.delete(claim, given_up, provider)
                    return DONE
                raise
        await self._writer.write_claim(claim, step.claim)
        self._writer.record_exhausted(step, provider)
        self._writer.record_effects(step)
        if registers and step.claim.status.node_name:
            self._node_seen.pop(claim.uid, None)
            self._log.info("registered nodeclaim", Node={"name": step.claim.status.node_name})
        if is_true(step.claim.status.conditions, INITIALIZED) and not is_true(
            claim.status.conditions, INITIALIZED
        ):
            self._log.info("initialized nodeclaim", Node={"name": step.claim.status.node_name})
        if step.error is not None:
            raise step.error
        wait = soonest(step.requeue_after)
        seconds = None if wait is None else max(wait.total_seconds(), 0.0)
        return ReconcileResult(requeue_after=seconds)

    def _own_nodes(self, claim: NodeClaim) -> tuple[NodeView, ...]:
        refused = self._refused.get(claim.uid, frozenset())
        nodes = self._cluster_state.snapshot().nodes_of(claim)
        return tuple(node for node in nodes if node.name not in refused)

    async def _write_node(self, node: NodeView, node_patch: NodePatch) -> None:
        """Write a Node; after a conflict with another writer, retry soon.

        Half a dozen controllers write to a new Node, and its pods are nominated already: if it is not
        open a second later, the scheduler binds them elsewhere.
        """
        for pause in CONFLICT_PAUSES:
            try:
                await self._writer.write_node(node, node_patch)
            except ConflictError:
                await self._runtime.clock.sleep(pause)
                newer = self._cluster_state.snapshot().nodes.get(node.name)
                node = newer if newer is not None and newer.uid == node.uid else node
            else:
                return
        await self._writer.write_node(node, node_patch)
