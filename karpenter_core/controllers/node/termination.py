"""Terminates deleted Nodes: taint, drain, detach volumes, end the instance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog

from karpenter_core.api.labels import TERMINATION_FINALIZER, node_class_label
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.api.notices import node_ref
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer, stale_wait_notice
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.controllers.reconciling.refusal_reports import reporting_refusals
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
    failed_draining_notice,
    node_termination,
)
from karpenter_core.lifecycle.nodeclaim.termination import (
    INSTANCE_POLL,
    termination_refused_notices,
)
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.state_nodes import is_instance_terminating

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.live_reader import LiveReader
    from karpenter_core.controllers.node.eviction import EvictionQueue
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.kube.contact import StaleKind
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodeTerminationController"]

CONCURRENCY: Final = (100, 5000)  # upstream's bounds


class _FetchedState(NamedTuple):
    """The state of an instance, and when it was fetched, by the monotonic clock."""

    state: InstanceState
    at: float


@final
class NodeTerminationController:
    """The controller `node.termination`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        evictions: EvictionQueue,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        pods: LiveReader,
        out_of_service: bool,
    ) -> None:
        """With `out_of_service`, dead nodes get the out-of-service taint, so that volumes move."""
        self._freshness = freshness
        self._pods = pods
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._evictions = evictions
        self._runtime = runtime
        self._out_of_service = out_of_service
        self._fetched: dict[str, _FetchedState] = {}
        """The states of the instances of silent nodes that are being terminated, by node."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            reporting_refusals(
                self.reconcile,
                objects=lambda: self._cluster_state.snapshot().nodes,
                publish=writer.publish,
            ),
            runtime=runtime,
            backoff=ExponentialBackoff(base_seconds=0.1, maximum_seconds=10.0),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="Node",
        )
        writer.cluster_state.subscribe(ObjectKind.NODE, self._reconciler.wake)
        writer.cluster_state.subscribe(ObjectKind.NODE_PODS, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "node.termination"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for name in self._cluster_state.snapshot().nodes:
            self._reconciler.wake(name)
        await self._reconciler.run()

    async def reconcile(self, name: str) -> ReconcileResult:
        """Advance the termination of one deleted Node as far as possible."""
        try:
            return await self._advance(name)
        except BadInputError as error:
            node = self._cluster_state.snapshot().nodes.get(name)
            if node is not None:
                self._writer.publish(failed_draining_notice(node, str(error)))
            raise

    async def _advance(self, name: str) -> ReconcileResult:
        instance = InstanceState.UNKNOWN
        is_confirmed = False
        while True:
            snapshot = self._cluster_state.snapshot()
            node = snapshot.nodes.get(name)
            ref = None if node is None or not node.is_deleting else _node_class_of(snapshot, node)
            if node is None or ref is None:
                self._fetched.pop(name, None)
                return DONE
            if stale := self._freshness.stale_or_wake(
                FreshnessConsumer.DRAIN, name, partial(self._reconciler.wake, name)
            ):
                return await self._taint_and_wait(node, stale)
            termination = node_termination(
                snapshot,
                node,
                now=self._runtime.clock.now(),
                instance=instance,
                out_of_service=self._out_of_service,
            )
            if termination.delete_claim and termination.claim is not None:
                await self._writer.delete_claim(termination.claim)
            match termination.action:
                case NodeTerminationAction.FETCH_INSTANCE:
                    instance = await self._fetch(ref, node)
                case NodeTerminationAction.TERMINATE_INSTANCE if (
                    is_confirmed or is_instance_terminating(termination.claim)
                ):
                    instance = await self._terminate(ref, node, snapshot)
                case NodeTerminationAction.TERMINATE_INSTANCE:
                    await self._confirm_pods(node)
                    is_confirmed = True
                case _:
                    result = await self._act(snapshot, node, termination)
                    is_ending = instance is InstanceState.TERMINATING
                    return self._paced(ref, result) if is_ending else result

    def _paced(self, ref: NodeClassRef, result: ReconcileResult) -> ReconcileResult:
        """Return a result that calls the provider again no sooner than it permits.

        Only for nodes that wait for nothing else: others have deadlines to keep.
        """
        seconds = self._rare_poll_seconds(ref)
        if not seconds or result.requeue_after is None:
            return result
        return ReconcileResult(requeue_after=max(result.requeue_after, seconds))

    def _rare_poll_seconds(self, ref: NodeClassRef) -> float:
        """Return how often the provider permits a call for an instance; 0 if it is often enough."""
        period = self._providers.polling_periods(self._providers.provider_of(ref)).termination
        return 0.0 if period <= INSTANCE_POLL else period.total_seconds()

    async def _taint_and_wait(
        self, node: NodeView, stale: tuple[StaleKind, ...]
    ) -> ReconcileResult:
        """Taint a node whose termination waits for fresh kinds, and publish the reason."""
        if TERMINATION_FINALIZER in node.finalizers:
            self._writer.publish_all((stale_wait_notice(node_ref(node), stale),))
            await self._writer.write_node(node, disrupted_patch(node))
        return DONE

    async def _confirm_pods(self, node: NodeView) -> None:
        """List a node's pods from the API server before its instance is terminated.

        Pods that the watch has not shown are in the state afterwards.

        Raises:
            ApiError: there is no answer, which does not mean that there are no pods.
            BadInputError: a pod of the node cannot be parsed.
        """
        _, unreadable = await self._pods.read_now(f"spec.nodeName={node.name}")
        if unreadable:
            message = f"node {node.name} is not terminated, it has a pod that cannot be parsed: "
            raise BadInputError(message + str(unreadable[0]))

    async def _act(
        self, snapshot: Snapshot, node: NodeView, termination: NodeTermination
    ) -> ReconcileResult:
        match termination.action:
            case NodeTerminationAction.WAIT:
                return await self._wait(snapshot, node, termination)
            case NodeTerminationAction.FINISH:
                return await self._finish(node, termination)
            case _:
                return DONE

    async def _wait(
        self, snapshot: Snapshot, node: NodeView, termination: NodeTermination
    ) -> ReconcileResult:
        if termination.node is not None:
            await self._writer.write_node(node, termination.node)
        # The taint is written, so evictions need not wait for the claim.
        self._evictions.add(termination.evictions)
        claims = snapshot.claims_of(node)
        if termination.claim is not None and len(claims) == 1:
            # Read again: deleting the claim has given it another version.
            stored = self._cluster_state.snapshot().node_claims.get(
                termination.claim.name, claims[0]
            )
            status = termination.claim.status
            await self._writer.write_claim(stored, stored.model_copy(update={"status": status}))
        self._writer.publish_all(termination.notices)
        self._writer.record_metrics(termination.metric_updates)
        wait = termination.requeue_after
        return DONE if wait is None else ReconcileResult(requeue_after=wait.total_seconds())

    async def _finish(self, node: NodeView, termination: NodeTermination) -> ReconcileResult:
        if termination.finish is not None:
            try:
                await self._writer.write_node(node, termination.finish)
            except NotFoundError:
                return DONE
        self._writer.publish_all(termination.notices)
        self._writer.record_metrics(termination.metric_updates)
        self._log.info("deleted node", Node={"name": node.name})
        return DONE

    async def _fetch(self, ref: NodeClassRef, node: NodeView) -> InstanceState:
        """Fetch the state of a silent node's instance, or return what was fetched just now.

        The node's pods and volumes are looked after meanwhile, however rarely the provider permits a
        call.
        """
        now = self._runtime.clock.monotonic()
        earlier = self._fetched.get(node.name)
        if earlier is not None and now - earlier.at < self._rare_poll_seconds(ref):
            return earlier.state
        outcome = await self._providers.fetch(ref, node.provider_id)
        match outcome:
            case NodeClaimNotFoundError():
                state = InstanceState.GONE
            case CloudProviderError():
                raise outcome
            case _:
                state = InstanceState.ENDING if outcome.terminating else InstanceState.PRESENT
        self._fetched[node.name] = _FetchedState(state, now)
        return state

    async def _terminate(
        self, ref: NodeClassRef, node: NodeView, snapshot: Snapshot
    ) -> InstanceState:
        outcome = await self._providers.terminate(ref, node.provider_id)
        match outcome:
            case TerminationStatus.GONE | NodeClaimNotFoundError():
                return InstanceState.GONE
            case TerminationStatus.STARTED:
                return InstanceState.TERMINATING
            case _:
                refs = (node_ref(node), *(claim.ref for claim in snapshot.claims_of(node)))
                self._writer.publish_all(
                    termination_refused_notices(outcome, node.provider_id, refs=refs)
                )
                raise outcome


def _node_class_of(snapshot: Snapshot, node: NodeView) -> NodeClassRef | None:
    """Return the NodeClass of a managed node; None for any other node.

    It is in the node's label, or else in its claim, so that a removed label does not keep the node for
    ever.
    """
    for group, kind in sorted(snapshot.managed_kinds):
        name = node.labels.get(node_class_label(group, kind))
        if name is not None:
            return NodeClassRef(group=group, kind=kind, name=name)
    claims = snapshot.claims_of(node)
    return claims[0].spec.node_class_ref if len(claims) == 1 else None
