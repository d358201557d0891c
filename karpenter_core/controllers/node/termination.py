"""Take deleted Nodes to their end: taint, drain, detach, end the instance, let go."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import TERMINATION_FINALIZER, node_class_label
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.controllers.freshness import Consumer, waiting_notice
from karpenter_core.controllers.reconciler import DONE, Backoff, Outcome, Reconciler
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    NodeClaimNotFoundError,
    NotFoundError,
)
from karpenter_core.lifecycle.node.termination import (
    InstanceState,
    NodeTermination,
    NodeTerminationAction,
    disrupted_patch,
    node_ref,
    node_termination,
)
from karpenter_core.lifecycle.nodeclaim.termination import termination_refused_notices
from karpenter_core.provider.contract import Termination
from karpenter_core.state.machines import is_instance_terminating
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.live import LiveReader
    from karpenter_core.controllers.node.eviction import EvictionQueue
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.kube.contact import StaleKind
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodeTerminationController"]

CONCURRENCY: Final = (100, 5000)  # upstream's bounds


@final
class NodeTerminationController:
    """The controller `node.termination`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        evictions: EvictionQueue,
        runtime: Runtime,
        freshness: Freshness,
        pods: LiveReader,
        out_of_service: bool = False,
    ) -> None:
        """With `out_of_service`, nodes that are dead for good are marked so that volumes move."""
        self._freshness = freshness
        self._pods = pods
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._evictions = evictions
        self._runtime = runtime
        self._out_of_service = out_of_service
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=Backoff(base_seconds=0.1, maximum_seconds=10.0),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="Node",
        )
        hands.feed.subscribe(Kind.NODE, self._reconciler.wake)
        hands.feed.subscribe(Kind.NODE_PODS, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "node.termination"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        for name in self._feed.snapshot().nodes:
            self._reconciler.wake(name)
        await self._reconciler.run()

    async def reconcile(self, name: str) -> Outcome:
        """Do for one deleted Node what can be done now."""
        instance = InstanceState.UNKNOWN
        is_confirmed = False
        while True:
            snapshot = self._feed.snapshot()
            node = snapshot.nodes.get(name)
            ref = None if node is None or not node.is_deleting else _class_of(snapshot, node)
            if node is None or ref is None:
                return DONE
            if stale := self._freshness.hold(
                Consumer.DRAIN, name, partial(self._reconciler.wake, name)
            ):
                return await self._hold(node, stale)
            found = node_termination(
                snapshot,
                node,
                now=self._runtime.clock.now(),
                instance=instance,
                out_of_service=self._out_of_service,
            )
            if found.delete_claim and found.claim is not None:
                await self._hands.delete_claim(found.claim)
            match found.action:
                case NodeTerminationAction.FETCH_INSTANCE:
                    instance = await self._fetch(ref, node)
                case NodeTerminationAction.TERMINATE_INSTANCE if (
                    is_confirmed or is_instance_terminating(found.claim)
                ):
                    instance = await self._terminate(ref, node, snapshot)
                case NodeTerminationAction.TERMINATE_INSTANCE:
                    await self._confirm_pods(node)
                    is_confirmed = True
                case _:
                    return await self._act(snapshot, node, found)

    async def _hold(self, node: NodeView, stale: tuple[StaleKind, ...]) -> Outcome:
        """Keep pods off a node whose end waits, and say what it waits for."""
        if TERMINATION_FINALIZER in node.finalizers:
            self._hands.tell((waiting_notice(node_ref(node), stale),))
            await self._hands.write_node(node, disrupted_patch(node))
        return DONE

    async def _confirm_pods(self, node: NodeView) -> None:
        """Have the API server itself list the pods of a node whose instance is to end.

        What the watch has not shown is in the state afterwards.

        Raises:
            ApiError: there is no answer, which is not the answer "none".
            BadInputError: a pod of the node cannot be read.
        """
        _, unreadable = await self._pods.read_now(f"spec.nodeName={node.name}")
        if unreadable:
            message = f"node {node.name} is not ended, it has a pod that cannot be read: "
            raise BadInputError(message + str(unreadable[0]))

    async def _act(self, snapshot: Snapshot, node: NodeView, found: NodeTermination) -> Outcome:
        match found.action:
            case NodeTerminationAction.WAIT:
                return await self._wait(snapshot, node, found)
            case NodeTerminationAction.FINISH:
                return await self._finish(node, found)
            case _:
                return DONE

    async def _wait(self, snapshot: Snapshot, node: NodeView, found: NodeTermination) -> Outcome:
        if found.node is not None:
            await self._hands.write_node(node, found.node)
        self._evictions.add(found.evictions)  # the taint is on: nobody need wait for the claim
        claims = snapshot.claims_of(node)
        if found.claim is not None and len(claims) == 1:
            # Read again: deleting the claim has given it another version.
            stored = self._feed.snapshot().node_claims.get(found.claim.name, claims[0])
            status = found.claim.status
            await self._hands.write_claim(stored, stored.model_copy(update={"status": status}))
        self._hands.tell(found.notices)
        self._hands.count(found.facts)
        wait = found.requeue_after
        return DONE if wait is None else Outcome(requeue_after=wait.total_seconds())

    async def _finish(self, node: NodeView, found: NodeTermination) -> Outcome:
        if found.finish is not None:
            try:
                await self._hands.write_node(node, found.finish)
            except NotFoundError:
                return DONE
        self._hands.tell(found.notices)
        self._hands.count(found.facts)
        self._log.info("deleted node", Node={"name": node.name})
        return DONE

    async def _fetch(self, ref: NodeClassRef, node: NodeView) -> InstanceState:
        """Ask whether the instance of a silent node is there."""
        outcome = await self._providers.fetch(ref, node.provider_id)
        match outcome:
            case NodeClaimNotFoundError():
                return InstanceState.GONE
            case CloudProviderError():
                raise outcome
            case _:
                return InstanceState.ENDING if outcome.terminating else InstanceState.PRESENT

    async def _terminate(
        self, ref: NodeClassRef, node: NodeView, snapshot: Snapshot
    ) -> InstanceState:
        outcome = await self._providers.terminate(ref, node.provider_id)
        match outcome:
            case Termination.GONE | NodeClaimNotFoundError():
                return InstanceState.GONE
            case Termination.STARTED:
                return InstanceState.TERMINATING
            case _:
                refs = (node_ref(node), *(claim.ref for claim in snapshot.claims_of(node)))
                self._hands.tell(termination_refused_notices(outcome, node.provider_id, refs=refs))
                raise outcome


def _class_of(snapshot: Snapshot, node: NodeView) -> NodeClassRef | None:
    """Return the NodeClass of a node that some provider serves; None for any other node.

    The node's label says so, or else its claim: a label that somebody took off must not leave the
    node behind for ever.
    """
    for group, kind in sorted(snapshot.managed_kinds):
        name = node.labels.get(node_class_label(group, kind))
        if name is not None:
            return NodeClassRef(group=group, kind=kind, name=name)
    claims = snapshot.claims_of(node)
    return claims[0].spec.node_class_ref if len(claims) == 1 else None
