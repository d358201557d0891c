"""Take every claim from its creation to an initialised node, and to its end.

One look does all that is possible at once on one copy of the claim, and then writes it once:
launch, registration, initialisation, liveness, expiry, pod events and the conditions beside them
share their patches. The API server sets the pace of a scale-up, so calls are what is saved here.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.feed import Inbox
from karpenter_core.controllers.forced import record_forced
from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.nodeclaim.door import Door
from karpenter_core.controllers.nodeclaim.launching import Launcher
from karpenter_core.controllers.nodeclaim.termination import Terminator
from karpenter_core.controllers.reconciler import DONE, Backoff, Outcome, Reconciler
from karpenter_core.errors import ApiError, CloudProviderError, ConflictError
from karpenter_core.lifecycle.changes import Step, followed_by, soonest
from karpenter_core.lifecycle.claim_status import initialise
from karpenter_core.lifecycle.nodeclaim.consistency import consistency_step
from karpenter_core.lifecycle.nodeclaim.consolidatable import consolidatable_step, quiet_since
from karpenter_core.lifecycle.nodeclaim.expiration import EXPIRED, expiration_step
from karpenter_core.lifecycle.nodeclaim.hydration import hydration_step
from karpenter_core.lifecycle.nodeclaim.launch import (
    INSUFFICIENT_CAPACITY,
    NODE_CLASS_NOT_READY,
    LaunchAction,
    finalizer_step,
    launch_advice,
    launched_step,
)
from karpenter_core.lifecycle.nodeclaim.liveness import (
    LAUNCH_TIMED_OUT,
    LAUNCH_TIMEOUT,
    REGISTRATION_TIMED_OUT,
    REGISTRATION_TIMEOUT,
    liveness_step,
)
from karpenter_core.lifecycle.nodeclaim.pod_events import pod_event_step
from karpenter_core.lifecycle.nodeclaim.progress import progress_step
from karpenter_core.lifecycle.nodeclaim.registration import (
    UNREGISTERED,
    awaits_registration,
    node_to_register,
    synced_node,
)
from karpenter_core.state.objects import Kind
from karpenter_core.state.pause import why_kept
from karpenter_core.state.taints import has_taint, is_ephemeral

if TYPE_CHECKING:
    from collections.abc import Iterator

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.live import LiveReader
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.changes import NodePatch
    from karpenter_core.provider.contract import RegistrationGate
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["REGISTRATION_HOLD", "NodeClaimLifecycle"]

CONCURRENCY: Final = (1000, 5000)  # upstream's bounds
REGISTRATION_HOLD: Final = timedelta(seconds=2)
"""How long a node that is not Ready may wait before it is let in.

Nothing can run on it anyway, and most nodes become Ready in that time: registration and
initialisation then share one patch of the Node and one of the claim.
"""

_ENDS: Final = {
    EXPIRED: ("expiration", "Expired", "it has lived as long as it may"),
    LAUNCH_TIMED_OUT: ("liveness", "LaunchTimeout", "it was not launched in time"),
    REGISTRATION_TIMED_OUT: ("liveness", "RegistrationTimeout", "it did not register in time"),
    INSUFFICIENT_CAPACITY: ("launch", "InsufficientCapacity", "its offerings are out of stock"),
    NODE_CLASS_NOT_READY: ("launch", "NodeClassNotReady", "its NodeClass is not usable"),
}
"""What the journal says of a claim that is deleted, by the step's reason: method, reason, cause."""
_TIMED_OUT: Final = frozenset({LAUNCH_TIMED_OUT, REGISTRATION_TIMED_OUT})
CONFLICT_PAUSES: Final = (0.05, 0.2)
"""How long the watch is given to show what somebody else wrote to a Node."""


@final
class NodeClaimLifecycle:
    """The controller `nodeclaim.lifecycle`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        runtime: Runtime,
        freshness: Freshness,
        nodes: LiveReader,
        well_known: frozenset[str],
        registration_hold: timedelta = REGISTRATION_HOLD,
        launch_timeout: timedelta = LAUNCH_TIMEOUT,
        registration_timeout: timedelta = REGISTRATION_TIMEOUT,
        paused: bool = False,
    ) -> None:
        """`paused` is the setting that pauses all disruption; claims do not expire meanwhile."""
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._hold = registration_hold
        self._launch_timeout = launch_timeout
        self._registration_timeout = registration_timeout
        self._paused = paused
        self._launcher = Launcher(
            hands=hands, providers=providers, runtime=runtime, well_known=well_known
        )
        self._door = Door(hands=hands, runtime=runtime)
        self._freshness = freshness
        self._terminator = Terminator(
            hands=hands,
            providers=providers,
            launcher=self._launcher,
            runtime=runtime,
            freshness=freshness,
            nodes=nodes,
            wake=self._wake,
        )
        self._node_seen: dict[str, datetime] = {}
        self._pod_events: set[str] = set()
        self._steady = SteadyClock(runtime.clock)
        self._quiet: dict[str, tuple[datetime | None, datetime]] = {}
        """By claim: the start of its quiet, and when the steady clock first saw it there."""
        self._generations: dict[str, int] = {}
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=Backoff(base_seconds=1.0, maximum_seconds=60.0),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="NodeClaim",
        )
        self._inbox = Inbox(
            hands.feed, Kind.POD_EVENT, Kind.NODE_POOL, Kind.CATALOGUE, Kind.NODE_CLASS
        )
        hands.feed.subscribe(Kind.NODE_CLAIM, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.lifecycle"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        for name in self._feed.snapshot().node_claims:
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sort())
            group.create_task(self._door.run())
            group.create_task(self._reconciler.run())

    def _wake(self, name: str) -> None:
        self._reconciler.wake(name)

    async def reconcile(self, name: str) -> Outcome:
        """Take one claim as far as it goes now."""
        snapshot = self._feed.snapshot()
        claim = snapshot.node_claims.get(name)
        if claim is None:
            self._pod_events.discard(name)
            self._quiet.pop(name, None)
            return DONE
        if not snapshot.manages(claim.spec.node_class_ref):
            return DONE
        if claim.is_deleting:
            self._node_seen.pop(claim.uid, None)
            return await self._terminator.terminate(claim)
        if (step := finalizer_step(claim)) is not None:
            await self._hands.write_claim(claim, step.claim)
            return Outcome(requeue_after=0.0)
        step = await self._launched(claim)
        if step is None:
            # The launch took its time: begin again with what the claim is now.
            return await self.reconcile(name)
        if not step.delete:  # a claim that fails to launch grows old too
            step = await self._progressed(step)
        return await self._write(claim, step)

    async def _launched(self, claim: NodeClaim) -> Step | None:
        """Return the claim with what its launch brought; None when that has just changed."""
        advice = launch_advice(claim, self._feed.snapshot().ledger)
        now = self._runtime.clock.now()
        fresh = initialise(claim, now=now)
        match advice.action:
            case LaunchAction.ADOPT if advice.result is not None:
                return launched_step(fresh, advice.result, now)
            case LaunchAction.CALL:
                return await self._launcher.launch(fresh)
            case LaunchAction.NONE:
                self._launcher.forget(claim.uid)
                return Step(claim=fresh)
            case _:
                return Step(claim=fresh)

    async def _progressed(self, step: Step) -> Step:
        """Add what else there is to say of a claim, from its registration to its expiry."""
        now = self._runtime.clock.now()
        snapshot = self._feed.snapshot()
        claim = step.claim
        nodes = snapshot.nodes_of(claim)
        pending: tuple[RegistrationGate, ...] = ()
        gate_error: Exception | None = None
        held: timedelta | None = None
        if awaits_registration(claim) and (node := node_to_register(nodes)) is not None:
            held = self._held(claim, node, now)
            if held is not None:
                nodes = ()
            else:
                pending, gate_error = await self._ask_gates(claim, synced_node(claim, node))
                if not pending and gate_error is None:
                    await self._door.admit(claim, node)
                # Gates and door take their time, in which most nodes become Ready. One that vanishes
                # there was registered: garbage collection then finds its claim without a Node.
                now, snapshot = self._runtime.clock.now(), self._feed.snapshot()
                nodes = snapshot.nodes_of(claim) or nodes
        step = followed_by(
            step,
            progress_step(
                claim,
                nodes,
                now=now,
                pending=pending,
                gate_error=gate_error,
                launch_timeout=self._launch_timeout,
                registration_timeout=self._registration_timeout,
            ),
        )
        pool = snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, ""))
        if claim.name in self._pod_events:
            step = followed_by(step, pod_event_step(step.claim, pool, now=now))
        watched = self._watched(step.claim)
        step = followed_by(step, consolidatable_step(step.claim, pool, now=now, watched=watched))
        step = followed_by(step, consistency_step(step.claim, nodes, now=now))
        step = followed_by(step, hydration_step(step.claim, nodes))
        pods = (pod for node in nodes for pod in snapshot.pods_by_node.get(node.name, ()))
        paused = bool(why_kept(pool, everywhere=self._paused))
        expiring = expiration_step(step.claim, pods, now=now, paused=paused)
        if expiring.delete and self._is_held(Consumer.EXPIRATION, claim):
            expiring = expiration_step(step.claim, (), now=now, paused=True)
        step = followed_by(step, expiring)
        if held is None:
            return step
        return followed_by(step, Step(claim=step.claim, requeue_after=held))

    def _watched(self, claim: NodeClaim) -> timedelta:
        """Return for how long this process has seen the same start of quiet, and no pod event."""
        now, start = self._steady.now(), quiet_since(claim)
        known, since = self._quiet.get(claim.name, (None, now))
        if known != start or claim.name in self._pod_events:
            since = now
        self._quiet[claim.name] = (start, since)
        return now - since

    def _is_held(self, consumer: Consumer, claim: NodeClaim) -> bool:
        """Tell whether the end of a claim waits for fresh kinds."""
        return bool(self._freshness.hold(consumer, claim.name, partial(self._wake, claim.name)))

    async def _ask_gates(
        self, claim: NodeClaim, node: NodeView
    ) -> tuple[tuple[RegistrationGate, ...], Exception | None]:
        try:
            gate = await self._providers.gate_registration(claim, node)
        except CloudProviderError as error:
            return (), error
        return (() if gate is None else (gate,)), None

    def _held(self, claim: NodeClaim, node: NodeView, now: datetime) -> timedelta | None:
        """Return how much longer a node is given to become whole before it is let in."""
        if _is_whole(claim, node):
            return None
        since = self._node_seen.setdefault(claim.uid, now)
        left = since + self._hold - now
        return left if left > timedelta() else None

    async def _write(self, claim: NodeClaim, step: Step) -> Outcome:
        """Write a step that has the pod events up to now; later ones are for the next one."""
        had_events = claim.name in self._pod_events
        self._pod_events.discard(claim.name)
        try:
            return await self._carry_out(claim, step)
        except BaseException:
            if had_events:
                self._pod_events.add(claim.name)
            raise

    async def _carry_out(self, claim: NodeClaim, step: Step) -> Outcome:
        provider = self._providers.provider_of(claim.spec.node_class_ref)
        if step.delete in _TIMED_OUT and self._is_held(Consumer.LIVENESS, claim):
            return DONE
        if step.delete:
            return await self._delete(claim, step, provider)
        registers = awaits_registration(claim)
        if step.node is not None:
            try:
                for node in self._feed.snapshot().nodes_of(step.claim):
                    await self._write_node(node, step.node)
            except ApiError:
                # The step counts the node as let in. It is not, and if it never can be (somebody's
                # webhook forbids it) the claim must not wait for ever.
                given_up = liveness_step(
                    claim,
                    now=self._runtime.clock.now(),
                    launch_timeout=self._launch_timeout,
                    registration_timeout=self._registration_timeout,
                )
                if given_up.delete and not self._is_held(Consumer.LIVENESS, claim):
                    return await self._delete(claim, given_up, provider)
                raise
        await self._hands.write_claim(claim, step.claim)
        self._hands.settle(step, provider=provider)
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
        return DONE if wait is None else Outcome(requeue_after=max(wait.total_seconds(), 0.0))

    async def _write_node(self, node: NodeView, wanted: NodePatch) -> None:
        """Write a Node, and soon again where somebody else wrote first.

        Half a dozen others write to a Node that comes up, and the pods that are meant for it have
        been told: those that find it closed a second later go elsewhere.
        """
        for pause in CONFLICT_PAUSES:
            try:
                await self._hands.write_node(node, wanted)
            except ConflictError:
                await self._runtime.clock.sleep(pause)
                newer = self._feed.snapshot().nodes.get(node.name)
                node = newer if newer is not None and newer.uid == node.uid else node
            else:
                return
        await self._hands.write_node(node, wanted)

    async def _delete(self, claim: NodeClaim, step: Step, provider: str) -> Outcome:
        """Delete a claim that has come to its end.

        What is out of stock is so whether or not the deletion succeeds; the rest is counted when it
        has, or each attempt would count as a failed registration.
        """
        snapshot = self._feed.snapshot()
        self._hands.settle(replace(step, facts=(), events=()), provider=provider)
        if await self._hands.delete_claim(claim):
            self._hands.settle(replace(step, notices=(), exhausted=()))
            self._log.info("deleting nodeclaim", reason=step.delete)
            method, reason, cause = _ENDS[step.delete]
            await record_forced(
                self._runtime,
                snapshot,
                claim,
                method=method,
                reason=reason,
                cause=cause,
            )
        return DONE

    async def _sort(self) -> None:
        """Wake the claims that changes of other objects are about."""
        while True:
            changes = await self._inbox.take()
            snapshot = self._feed.snapshot()
            for node in changes.get(Kind.POD_EVENT, ()):
                machine = snapshot.state_nodes_by_node.get(node)
                if machine is not None and machine.claim is not None:
                    self._pod_events.add(machine.claim.name)
                    self._reconciler.wake(machine.claim.name)
            edited = self._edited(snapshot, changes.get(Kind.NODE_POOL, ()))
            listed = set(changes.get(Kind.CATALOGUE, ()))
            classes = set(changes.get(Kind.NODE_CLASS, ()))
            if edited or listed or classes:
                for name in _concerned(snapshot, edited, listed, classes):
                    self._reconciler.wake(name)

    def _edited(self, snapshot: Snapshot, pools: tuple[str, ...]) -> set[str]:
        """Return the pools whose specification changed; their status does so all the time."""
        edited: set[str] = set()
        for name in pools:
            pool = snapshot.node_pools.get(name)
            generation = -1 if pool is None else pool.metadata.generation
            if self._generations.get(name) != generation:
                self._generations[name] = generation
                edited.add(name)
        return edited


def _is_whole(claim: NodeClaim, node: NodeView) -> bool:
    """Tell whether nothing but the registration itself keeps a node from being used."""
    startup = {(taint.key, taint.effect) for taint in claim.spec.startup_taints}
    return node.ready == "True" and not any(
        (is_ephemeral(taint) and not has_taint((UNREGISTERED,), taint))
        or (taint.key, taint.effect) in startup
        for taint in node.taints
    )


def _concerned(
    snapshot: Snapshot, edited: set[str], listed: set[str], classes: set[str]
) -> Iterator[str]:
    """Yield the claims of edited pools, and those without an instance that may now get one."""
    for name, claim in snapshot.node_claims.items():
        pool = claim.metadata.labels.get(NODE_POOL, "")
        if pool in edited or (
            not claim.status.provider_id
            and (pool in listed or claim.spec.node_class_ref.name in classes)
        ):
            yield name
