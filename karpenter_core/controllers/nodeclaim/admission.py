"""Admits the nodes of a plan together, after nominating their pods.

As soon as the first node of a plan is admitted (its unregistered taint is removed), the scheduler fills
it with any pods that fit, and the pods planned for the later nodes may not fit there any more. So the
nodes of one plan that come up together are admitted together, and before that their names are written
into `status.nominatedNodeName` of the pods planned for them.

This guarantees nothing: nodes wait only for seconds, nominations are rate-limited, and the scheduler
binds a pod without a nomination wherever it fits. `docs/design/binding.md` has the reasons.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import is_unknown
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.controllers.provisioning.new_claims import DECISION
from karpenter_core.errors import ApiError
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.rate_limits import AsyncTokenBucket
from karpenter_core.kube.resources import PODS
from karpenter_core.lifecycle.nodeclaim.nomination import (
    choose_nominations,
    depends_on_other_pods,
    planned_pods,
    pods_compete,
    pods_of_scarce_nodes,
)
from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_core.scheduling.problem import MOST_NOMINATED_PODS
from karpenter_core.state.events import PodsDecided

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.kube.writer import KubeWriter
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodeAdmission"]

IDLE_SECONDS: Final = 3.0
"""The longest time that a node waits for the next node of its plan."""
MAXIMUM_SECONDS: Final = 10.0
"""The longest time that a node waits for all nodes of its plan."""
POLL_SECONDS: Final = 0.1
CONCURRENCY: Final = 32
"""Nominations that are sent at once; each needs a connection."""
RENEWAL_SECONDS: Final = 10.0
"""The time for which nominations are renewed after an admission, and after each pod that left the queue
since: the scheduler's longest back-off. A busy scheduler needs longer than that for all pods of a plan."""
NOMINATION_ROUNDS: Final = 2
NOMINATION_SECONDS: Final = 10.0
"""The longest time that the nominations of an admission, or of a renewal, are waited for."""
RENEWAL_SECONDS_PER_POD: Final = 0.0002
"""Renewal interval per pod of a group, so that large groups take a small part of the time."""
MAX_NOMINATIONS_PER_POD: Final = 8
"""The most times that one pod is nominated."""
MAX_WAITING_PODS: Final = 10_000
"""With more pending pods no node waits: their plans are looked through ten times a second."""
NOMINATIONS_PER_SECOND: Final = 50.0
NOMINATION_BURST: Final = 500
"""Rate and burst: a quarter of the default API requests, and enough for a usual plan."""


@dataclass(slots=True, eq=False)
class _WaitingNode:
    """A claim whose node waits for its admission."""

    claim: NodeClaim
    node: str
    arrived_at: float
    admitted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class _AdmittedGroup:
    """Nodes that were admitted together, and the pods planned for them."""

    claims: Mapping[str, str]
    """By node."""
    planned_pods: tuple[tuple[PodView, str], ...]
    pending_count: int
    """Pods that had no node when they were last counted."""
    progressed_at: float = 0.0
    """The time of the admission, or of the last decrease of the count of pending pods."""
    renewed_at: float = 0.0

    def awaits_bindings(self, snapshot: Snapshot, now: float) -> bool:
        """Count the pods without a node; tell whether the scheduler is still expected to bind them."""
        pending_count = sum(
            pod.uid in snapshot.pending_pods or pod.uid in snapshot.nominated_pods
            for pod, _ in self.planned_pods
        )
        if pending_count < self.pending_count:
            self.progressed_at = now
        self.pending_count = pending_count
        return pending_count > 0 and now < self.progressed_at + RENEWAL_SECONDS


@final
class NodeAdmission:
    """Admits nodes in groups; `run` must be running."""

    def __init__(
        self, *, kube_writer: KubeWriter, cluster_state: ClusterState, runtime: ControllerRuntime
    ) -> None:
        self._kube_writer = kube_writer
        self._cluster_state = cluster_state
        self._clock = runtime.clock
        self._rate_limit = AsyncTokenBucket(
            runtime.clock, rate=NOMINATIONS_PER_SECOND, burst=NOMINATION_BURST
        )
        self._waiting: dict[str, _WaitingNode] = {}
        self._groups: list[_AdmittedGroup] = []
        self._nomination_counts: Counter[str] = Counter()
        self._renewed_version = -1
        self._arrived = asyncio.Event()
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def admit(self, claim: NodeClaim, node: NodeView) -> None:
        """Wait until the node may be registered.

        Raises:
            FencedError: this process is no longer the leader.
        """
        if not self._waiting and not pods_compete(self._cluster_state.snapshot()):
            return
        waiting_node = _WaitingNode(claim, node.name, self._clock.monotonic())
        self._waiting[claim.name] = waiting_node
        self._arrived.set()
        await waiting_node.admitted

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting or self._groups:
                if self._waiting and self._is_group_complete():
                    await self._admit_waiting()
                await self._renew()
                await self._clock.sleep(POLL_SECONDS)
            self._nomination_counts.clear()

    def _is_group_complete(self) -> bool:
        """Tell whether every node of the same plans waits here, or the waiting time is over.

        Nodes do not wait if no pod of their plans depends on the placement of other pods, or if too many
        pods wait. A node whose own pods do not depend on others waits all the same: each node that is
        admitted wakes every pod, and those planned for the nodes that are not admitted yet are refused
        once more, lose their nomination, and have to wait out a longer back-off.
        """
        now = self._clock.monotonic()
        arrivals = [waiting_node.arrived_at for waiting_node in self._waiting.values()]
        if now >= min(max(arrivals) + IDLE_SECONDS, min(arrivals) + MAXIMUM_SECONDS):
            return True
        snapshot = self._cluster_state.snapshot()
        if snapshot.waiting_count > MAX_WAITING_PODS:
            return True
        nodes = {name: waiting_node.node for name, waiting_node in self._waiting.items()}
        plans = {_plan_id(waiting_node.claim) for waiting_node in self._waiting.values()}
        expected = [
            claim.name
            for claim in snapshot.node_claims.values()
            if _is_expected(claim) and claim.name not in nodes and _plan_id(claim) in plans
        ]
        return not expected or not any(
            depends_on_other_pods(pod)
            for claim in (*nodes, *expected)
            for pod in planned_pods(snapshot, claim=claim, node=nodes.get(claim, claim))
        )

    async def _admit_waiting(self) -> None:
        """Nominate pods for the waiting nodes, twice because of refusals, then admit the nodes."""
        snapshot = self._cluster_state.snapshot()
        pods = {
            name: tuple(planned_pods(snapshot, claim=name, node=waiting_node.node))
            for name, waiting_node in self._waiting.items()
        }
        waiting_nodes = _by_priority(self._waiting.values(), pods)
        self._waiting = {}
        planned = tuple(
            (pod, waiting_node.node)
            for waiting_node in waiting_nodes
            for pod in pods[waiting_node.claim.name]
        )
        group = _AdmittedGroup(
            claims={waiting_node.node: waiting_node.claim.name for waiting_node in waiting_nodes},
            planned_pods=planned,
            pending_count=len(planned),
        )
        try:
            await self._nominate_in_time(group, rounds=NOMINATION_ROUNDS)
        except Exception as error:
            for waiting_node in waiting_nodes:
                if not waiting_node.admitted.done():
                    waiting_node.admitted.set_exception(error)
            return
        for waiting_node in waiting_nodes:
            if not waiting_node.admitted.done():
                waiting_node.admitted.set_result(None)
        group.progressed_at = self._clock.monotonic()
        self._groups.append(group)

    async def _renew(self) -> None:
        """Nominate pods whose turn it is now, and again those that the scheduler has refused."""
        snapshot = self._cluster_state.snapshot()
        if snapshot.version == self._renewed_version:
            return
        now = self._clock.monotonic()
        self._groups = [group for group in self._groups if group.awaits_bindings(snapshot, now)]
        for group in self._groups:
            if now >= group.renewed_at + len(group.planned_pods) * RENEWAL_SECONDS_PER_POD:
                group.renewed_at = now
                await self._nominate_in_time(group, rounds=1)
        self._renewed_version = snapshot.version

    async def _nominate_in_time(self, group: _AdmittedGroup, *, rounds: int) -> None:
        """Nominate pods for some seconds at most: other nodes wait for their admission meanwhile."""
        try:
            async with time_limit(self._clock, NOMINATION_SECONDS):
                for _ in range(rounds):
                    await self._nominate_pods(group)
        except TimeoutError:
            self._log.warning(
                "nominations of pods take too long, their nodes are admitted without",
                nodes=len(group.claims),
                seconds=NOMINATION_SECONDS,
            )

    async def _nominate_pods(self, group: _AdmittedGroup) -> int:
        """Nominate pods for the nodes of a group; return how many were nominated."""
        snapshot = self._cluster_state.snapshot()
        if not pods_compete(snapshot):
            return 0
        planned: Sequence[tuple[PodView, str]] = group.planned_pods
        if snapshot.waiting_count > MOST_NOMINATED_PODS:
            planned = pods_of_scarce_nodes(snapshot, planned)
        nominations = [
            (pod, node)
            for pod, node in choose_nominations(snapshot, planned)
            if self._nomination_counts[pod.uid] < MAX_NOMINATIONS_PER_POD
            and self._rate_limit.try_take()
        ]
        if not nominations:
            return 0
        self._nomination_counts.update(pod.uid for pod, _ in nominations)
        placed = {pod.uid: group.claims[node] for pod, node in nominations}
        self._cluster_state.fold(PodsDecided(placed=placed, at=self._clock.now()))

        async def nominate(nomination: tuple[PodView, str]) -> None:
            pod, node = nomination
            if self._is_unbound(pod):
                await self._nominate_pod(pod, node)

        await gather_bounded(nominate, nominations, at_once=CONCURRENCY)
        return len(nominations)

    def _is_unbound(self, pod: PodView) -> bool:
        """Tell whether a pod is still there, without a node; hundreds may have had their turn."""
        current = self._cluster_state.snapshot().pods.get(pod.uid)
        return current is not None and not current.node_name

    async def _nominate_pod(self, pod: PodView, node: str) -> None:
        """Write the node into a pod's status; a pod that is bound or gone is no error."""
        try:
            await self._kube_writer.patch(
                PODS,
                pod.name,
                {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}},
                namespace=pod.namespace,
                subresource="status",
            )
        except ApiError as error:
            self._log.debug("could not nominate pod", Pod={"name": pod.key}, error=str(error))


def _by_priority(
    waiting_nodes: Iterable[_WaitingNode], pods: Mapping[str, Iterable[PodView]]
) -> tuple[_WaitingNode, ...]:
    """Return nodes in the order in which to open them: those of pods with the highest priority first.

    `pods` are the pods planned for each claim, by its name.

    The scheduler reserves no capacity for nominated pods against pods of higher priority. While the
    node of such a pod is closed, it takes any open one.
    """

    def rank(each: _WaitingNode) -> int:
        return -max((pod.shape.priority for pod in pods[each.claim.name]), default=0)

    return tuple(sorted(waiting_nodes, key=rank))


def _is_expected(claim: NodeClaim) -> bool:
    """Tell whether the claim's node may still come up and wait for admission."""
    return is_unknown(claim.status.conditions, REGISTERED) and not claim.is_deleting


def _plan_id(claim: NodeClaim) -> str:
    """Return the id of the plan that created a claim; its own name if there is none."""
    return claim.metadata.annotations.get(DECISION, claim.name)
