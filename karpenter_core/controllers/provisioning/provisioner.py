"""The provisioning loop: gather pods, plan, create claims, say what was decided.

One pass at a time; pods that arrive meanwhile are gathered for the next. What a pass decides is
`scheduling.solve`; what is asked of it `state.problem`. Here is only when and with what effect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import DISRUPTED_TAINT
from karpenter_core.controllers.feed import Inbox
from karpenter_core.controllers.provisioning.batcher import Batcher
from karpenter_core.controllers.provisioning.claims import Decided
from karpenter_core.controllers.provisioning.outcome import (
    PassRecorder,
    waits_for_reservation,
    with_held_pools,
)
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.scheduling.journal import plan_decision
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.objects import Kind
from karpenter_core.state.problem import Framing, scheduling_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.creation import ClaimCreator
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.problem import ProvisioningInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Provisioner", "ProvisioningOptions"]

RETRY_SECONDS: Final = 10.0  # upstream default: how often pods without a place are tried again
FIRST_LISTING_SECONDS: Final = 5.0
"""How long the first pass waits for pools whose instance types are being listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningOptions:
    """How passes are begun and computed."""

    batch_idle: timedelta = timedelta(seconds=1)
    batch_maximum: timedelta = timedelta(seconds=10)
    solve: SolveOptions = field(default_factory=SolveOptions)
    framing: Framing = field(default_factory=Framing)


@final
class Provisioner:
    """Turns pending pods into claims."""

    def __init__(
        self,
        *,
        hands: Hands,
        planner: Planner,
        creator: ClaimCreator,
        runtime: Runtime,
        options: ProvisioningOptions,
        unevaluated_pools: Callable[[], tuple[str, ...]],
    ) -> None:
        self._feed = hands.feed
        self._planner = planner
        self._runtime = runtime
        self._options = options
        self._unevaluated_pools = unevaluated_pools
        self._batcher = Batcher(
            runtime.clock, idle=options.batch_idle, maximum=options.batch_maximum
        )
        self._creator = creator
        self._recorder = PassRecorder(
            hands=hands, runtime=runtime, nomination_window=options.framing.nomination_window
        )
        self._inbox = Inbox(
            hands.feed, Kind.POD, Kind.NODE, Kind.NODE_CLAIM, Kind.NODE_POOL, Kind.CATALOGUE
        )
        self._passes = Loop(self.name, self._pass, runtime=runtime)
        self._last_version = -1
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "provisioner"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._planner.warm()
        await self._feed.wait_synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sort())
            group.create_task(self._retry())
            group.create_task(self._passes.run())

    async def _sort(self) -> None:
        """Trigger a pass for what changed in a way that a pass could answer."""
        while True:
            changes = await self._inbox.take()
            for element in _askers(self._feed.snapshot(), changes):
                self._batcher.trigger(element)

    async def _retry(self) -> None:
        """Try pods without a place again now and then, if anything at all has changed."""
        while True:
            await self._runtime.clock.sleep(RETRY_SECONDS)
            snapshot = self._feed.snapshot()
            if snapshot.version == self._last_version:
                continue
            if (
                snapshot.pending_pods
                or snapshot.nominated_pods
                or any(machine.marked_for_deletion for machine in snapshot.state_nodes)
            ):
                self._batcher.trigger("retry")
            else:
                self._recorder.ignore((), snapshot)
                self._recorder.nothing_to_place()

    async def _pass(self) -> float:
        triggers = await self._batcher.window()
        await self._feed.until(
            lambda _: not self._unevaluated_pools(), seconds=FIRST_LISTING_SECONDS
        )
        self._feed.tick()
        snapshot = self._feed.snapshot()
        asked = await self._planner.prepare(
            partial(
                scheduling_problem,
                snapshot,
                now=self._runtime.clock.now(),
                framing=self._options.framing,
            )
        )
        self._recorder.ignore(asked.ignored, snapshot)
        if asked.problem.pods:
            self._recorder.hold(asked.held)
        is_settled = not asked.waiting  # places run out with time, which changes no object
        if asked.problem.pods:
            is_settled &= await self._solve(asked, snapshot, triggers)
        else:
            self._recorder.set_aside(asked.set_aside)
            self._recorder.nothing_to_place()
        self._last_version = self._feed.snapshot().version if is_settled else -1
        return 0.0

    async def _solve(
        self, asked: ProvisioningInput, snapshot: Snapshot, triggers: tuple[str, ...]
    ) -> bool:
        """Plan and carry out; say whether a pass over the same state would bring nothing new."""
        pods = len(asked.problem.pods)
        decided = Decided(id=self._runtime.new_id(), cause=f"{pods} pod(s) without a place")
        structlog.contextvars.bind_contextvars(decision=decided.id)
        started = self._runtime.clock.monotonic()
        with self._recorder.measured(decided, pods=pods):
            plan = await self._planner.plan(asked.problem, self._options.solve)
        if plan.partial:
            self._log.warning("scheduling pass took too long and was given up", pods=pods)
        plan = replace(plan, set_aside=(*asked.set_aside, *plan.set_aside))
        plan = with_held_pools(plan, asked.held)
        self._recorder.place_existing(plan, snapshot)
        created = await self._creator.create(plan.claims, decided=decided, reason="provisioned")
        names = created.names
        self._recorder.record(
            plan,
            names,
            snapshot,
            quiet=bool(self._unevaluated_pools()),
            refused=created.refused,
        )
        made = partial(
            plan_decision,
            plan,
            asked.problem,
            options=self._options.solve,
            id=decided.id,
            cause=decided.cause,
            at=self._runtime.clock.now(),
            names=names,
            refused=created.refused,
        )
        await self._runtime.journal.record(await self._planner.prepare(made))
        self._log.info(
            "computed a plan",
            cause=decided.cause,
            triggers=len(triggers),
            nodeclaims=len(plan.claims),
            existing_nodes=len(plan.existing),
            unschedulable=len(plan.unschedulable),
            price_per_hour=round(plan.cost.hourly, 4),
            seconds=round(self._runtime.clock.monotonic() - started, 3),
        )
        return (
            not plan.partial
            and not plan.existing
            and None not in names
            and not asked.held  # pauses end with time, which changes no object
            and not any(map(waits_for_reservation, plan.unschedulable.values()))
        )


def _askers(snapshot: Snapshot, changes: Mapping[Kind, tuple[str, ...]]) -> Iterator[str]:
    """Yield who asks for a pass, out of what has changed."""
    for uid in changes.get(Kind.POD, ()):
        if uid in snapshot.pending_pods and uid not in snapshot.ledger.placements:
            yield uid
    for name in changes.get(Kind.NODE, ()):
        if _leaves_pods(snapshot, name):
            yield f"node/{name}"
    for name in changes.get(Kind.NODE_CLAIM, ()):
        claim = snapshot.node_claims.get(name)
        if claim is None or claim.is_deleting:
            yield from _left_by_claim(snapshot, name)
    if not snapshot.pending_pods:
        return
    for name in (*changes.get(Kind.NODE_POOL, ()), *changes.get(Kind.CATALOGUE, ())):
        if name in snapshot.node_pools and name in snapshot.catalogues:
            yield f"nodepool/{name}"


def _left_by_claim(snapshot: Snapshot, name: str) -> Iterator[str]:
    """Yield who asks for a pass when a claim is going or gone: pods that wait, pods it has.

    Its node is tainted in a moment, but those whose machine is taken from them have none to lose.
    """
    if snapshot.pending_pods:
        yield f"nodeclaim/{name}"
        return
    machine = snapshot.state_nodes_by_claim.get(name)
    if machine is None or machine.node is None or _is_tainted(machine.node):
        return
    if any(pod.is_reschedulable for pod in machine.pods):
        yield f"node/{machine.node.name}"


def _is_tainted(node: NodeView) -> bool:
    return any(taint.key == DISRUPTED_TAINT for taint in node.taints)


def _leaves_pods(snapshot: Snapshot, name: str) -> bool:
    """Tell whether a node is going, or has gone while pods were on their way to it."""
    node = snapshot.nodes.get(name)
    if node is not None:
        return _is_tainted(node)
    return any(pod.nominated_node_name == name for pod in snapshot.nominated_pods.values())
