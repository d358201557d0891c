"""The door through which nodes are let in: together, and with their pods told where to go.

As soon as the first node of a plan is open, the scheduler fills it with whatever fits, and what was
planned for the nodes after it may not fit any more. Two things keep a plan in shape: the nodes of
one plan that come up together are let in together, and before that the pods that are meant for each
carry its name in `status.nominatedNodeName`.

It is help, no promise: nodes are not held up for long, nominations have a budget, and a pod that
could not be told goes where the scheduler finds room. `docs/design/binding.md` has the reasons.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import is_unknown
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.controllers.provisioning.claims import DECISION
from karpenter_core.errors import ApiError
from karpenter_core.kube.limits import TokenBucket
from karpenter_core.kube.resources import PODS
from karpenter_core.lifecycle.nodeclaim.nomination import (
    deal_places,
    looks_around,
    meant_pods,
    pods_compete,
)
from karpenter_core.state.events import PodsDecided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Door"]

IDLE_SECONDS: Final = 3.0
"""How long a node waits for the next node of its plan."""
MAXIMUM_SECONDS: Final = 10.0
"""How long it waits for all of them."""
LOOK_SECONDS: Final = 0.1
RENEWAL_SECONDS: Final = 10.0
"""How long pods of an open node are told again: the scheduler's longest back-off."""
ROUNDS: Final = 2
RENEWAL_SECONDS_A_POD: Final = 0.0002
"""How seldom a large group is looked at: a twentieth of the loop's time is enough."""
TELLINGS: Final = 8
"""How often one pod is told in all."""
MOST_PODS: Final = 1000
"""With more pods waiting nobody is told: it would help few of them and keep the loop busy."""
BUDGET_PER_SECOND: Final = 50.0
BUDGET_AT_ONCE: Final = 500
"""A quarter of our requests by default, and what a plan of usual size needs."""


@dataclass(slots=True, eq=False)
class _Guest:
    """A claim whose node stands at the door."""

    claim: NodeClaim
    node: str
    came: float
    admitted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class _Group:
    """Nodes that were let in together, and the pods they were planned for."""

    opened: float
    claims: Mapping[str, str]
    """By node."""
    meant: tuple[tuple[PodView, str], ...]
    renewed: float = 0.0

    def waits(self, snapshot: Snapshot) -> bool:
        """Tell whether some of the pods have no node yet."""
        return any(
            pod.uid in snapshot.pending_pods or pod.uid in snapshot.nominated_pods
            for pod, _ in self.meant
        )


@final
class Door:
    """Lets nodes in; `run` has to be running."""

    def __init__(self, *, hands: Hands, runtime: Runtime) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._clock = runtime.clock
        self._budget = TokenBucket(runtime.clock, rate=BUDGET_PER_SECOND, burst=BUDGET_AT_ONCE)
        self._outside: dict[str, _Guest] = {}
        self._groups: list[_Group] = []
        self._tellings: Counter[str] = Counter()
        self._renewed = -1
        self._knocked = asyncio.Event()
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def admit(self, claim: NodeClaim, node: NodeView) -> None:
        """Return when the node may be let in.

        Raises:
            FencedError: this process does not lead any more.
        """
        if not self._outside and not pods_compete(self._feed.snapshot()):
            return
        guest = _Guest(claim, node.name, self._clock.monotonic())
        self._outside[claim.name] = guest
        self._knocked.set()
        await guest.admitted

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._knocked.wait()
            self._knocked.clear()
            while self._outside or self._groups:
                if self._outside and self._is_group_complete():
                    await self._let_in()
                await self._renew()
                await self._clock.sleep(LOOK_SECONDS)
            self._tellings.clear()

    def _is_group_complete(self) -> bool:
        """Tell whether every node of the same plans is here, or has been waited for long enough.

        Nobody waits for pods that do not care where others are, and nobody when there are more
        pods than can be told.
        """
        now = self._clock.monotonic()
        came = [guest.came for guest in self._outside.values()]
        if now >= min(max(came) + IDLE_SECONDS, min(came) + MAXIMUM_SECONDS):
            return True
        snapshot = self._feed.snapshot()
        if len(snapshot.pending_pods) > BUDGET_AT_ONCE or not any(
            looks_around(pod)
            for guest in self._outside.values()
            for pod in meant_pods(snapshot, claim=guest.claim.name, node=guest.node)
        ):
            return True
        plans = {_decision(guest.claim) for guest in self._outside.values()}
        return not any(
            _is_expected(claim) and claim.name not in self._outside and _decision(claim) in plans
            for claim in snapshot.node_claims.values()
        )

    async def _let_in(self) -> None:
        """Tell the pods of those outside and open; once more those who were refused meanwhile."""
        guests, self._outside = tuple(self._outside.values()), {}
        snapshot = self._feed.snapshot()
        group = _Group(
            opened=self._clock.monotonic(),
            claims={guest.node: guest.claim.name for guest in guests},
            meant=tuple(
                (pod, guest.node)
                for guest in guests
                for pod in meant_pods(snapshot, claim=guest.claim.name, node=guest.node)
            ),
        )
        try:
            for _ in range(ROUNDS):
                await self._nominate(group)
        except Exception as error:
            for guest in guests:
                if not guest.admitted.done():
                    guest.admitted.set_exception(error)
            return
        for guest in guests:
            if not guest.admitted.done():
                guest.admitted.set_result(None)
        self._groups.append(group)

    async def _renew(self) -> None:
        """Tell those whose turn it is now, and those again whom the scheduler has refused."""
        snapshot = self._feed.snapshot()
        if snapshot.version == self._renewed:
            return
        now = self._clock.monotonic()
        self._groups = [
            group
            for group in self._groups
            if now < group.opened + RENEWAL_SECONDS and group.waits(snapshot)
        ]
        for group in self._groups:
            if now >= group.renewed + len(group.meant) * RENEWAL_SECONDS_A_POD:
                group.renewed = now
                await self._nominate(group)
        self._renewed = snapshot.version

    async def _nominate(self, group: _Group) -> int:
        """Tell the pods that are meant for these nodes; return how many were told."""
        snapshot = self._feed.snapshot()
        if len(snapshot.pending_pods) > MOST_PODS or not pods_compete(snapshot):
            return 0
        told = [
            (pod, node)
            for pod, node in deal_places(snapshot, group.meant)
            if self._tellings[pod.uid] < TELLINGS and self._budget.try_take()
        ]
        if not told:
            return 0
        self._tellings.update(pod.uid for pod, _ in told)
        placed = {pod.uid: group.claims[node] for pod, node in told}
        self._feed.fold(PodsDecided(placed=placed, at=self._clock.now()))
        await asyncio.gather(*(self._tell(pod, node) for pod, node in told))
        return len(told)

    async def _tell(self, pod: PodView, node: str) -> None:
        """Write the node into a pod's status; the pod may be bound or another one meanwhile."""
        try:
            await self._hands.writer.patch(
                PODS,
                pod.name,
                {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}},
                namespace=pod.namespace,
                subresource="status",
            )
        except ApiError as error:
            self._log.debug("could not nominate pod", Pod={"name": pod.key}, error=str(error))


def _is_expected(claim: NodeClaim) -> bool:
    """Tell whether the claim's node may still come to the door."""
    return is_unknown(claim.status.conditions, REGISTERED) and not claim.is_deleting


def _decision(claim: NodeClaim) -> str:
    """Return the id of the plan that a claim is of; its own name when nobody noted one."""
    return claim.metadata.annotations.get(DECISION, claim.name)
