"""Terminates deleted claims: their nodes, their instance, their finalizer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import structlog

from karpenter_core.controllers.nodeclaim.lookup import InstanceLookup
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer, stale_wait_notice
from karpenter_core.controllers.reconciling.reconciler import DONE, ReconcileResult
from karpenter_core.errors import BadInputError, NodeClaimNotFoundError, NotFoundError
from karpenter_core.lifecycle.nodeclaim.termination import (
    TerminationAction,
    claim_termination,
    finished_step,
    instance_terminating_step,
    termination_refused_notices,
    with_instance,
    with_late_launch,
)
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.state.state_nodes import is_instance_terminating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.live_reader import LiveReader
    from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.changes import LifecycleStep
    from karpenter_core.lifecycle.nodeclaim.termination import ClaimTermination
    from karpenter_core.provider.host.facade import Providers

__all__ = ["ClaimTerminator"]


@final
class ClaimTerminator:
    """Terminates deleted claims, one step per reconcile."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        launcher: InstanceLauncher,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        nodes: LiveReader,
        wake: Callable[[str], None],
    ) -> None:
        """`wake` has a claim reconciled again."""
        self._freshness = freshness
        self._nodes = nodes
        self._wake = wake
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._launcher = launcher
        self._lookup = InstanceLookup(providers)
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def terminate(self, claim: NodeClaim) -> ReconcileResult:
        """Run the next step; removed nodes and finished calls wake the claim again."""
        termination, nodes = self._run_next_step(claim)
        if termination.action is TerminationAction.TERMINATE_INSTANCE:
            if self._is_state_stale(claim):
                return DONE
            if claim.status.node_name and not nodes and not is_instance_terminating(claim):
                await self._confirm_node(claim)
                termination, nodes = self._run_next_step(claim)
        match termination.action:
            case TerminationAction.NONE | TerminationAction.AWAIT_LAUNCH:
                return DONE
            case TerminationAction.FINISH:
                return await self._finish_without_instance(claim)
            case TerminationAction.AWAIT_NODES:
                await self._write(claim, termination.step)
                for node in nodes:
                    if node.name in termination.delete_nodes:
                        await self._writer.delete_node(node)
                return DONE
            case TerminationAction.TERMINATE_INSTANCE:
                stored = await self._write(claim, termination.step)
                return await self._end_instance(stored, kept_nodes=termination.kept_nodes)

    def _run_next_step(self, claim: NodeClaim) -> tuple[ClaimTermination, Sequence[NodeView]]:
        snapshot = self._cluster_state.snapshot()
        now = self._runtime.clock.now()
        nodes = snapshot.nodes_of(with_late_launch(claim, snapshot.ledger, now))
        return claim_termination(claim, nodes, snapshot.ledger, now=now), nodes

    def _is_state_stale(self, claim: NodeClaim) -> bool:
        """Tell whether the termination waits for fresh kinds; publish an Event if it does."""
        stale = self._freshness.stale_or_wake(
            FreshnessConsumer.INSTANCE_TERMINATION, claim.name, partial(self._wake, claim.name)
        )
        if stale:
            self._writer.publish_all((stale_wait_notice(claim.ref, stale),))
        return bool(stale)

    async def _confirm_node(self, claim: NodeClaim) -> None:
        """List the Node of a claim from the API server before its instance is terminated.

        A Node that the watch has not shown is in the state afterwards.

        Raises:
            ApiError: there is no answer, which does not mean that there is no Node.
            BadInputError: the Node cannot be parsed.
        """
        _, unreadable = await self._nodes.read_now(f"metadata.name={claim.status.node_name}")
        if unreadable:
            message = f"NodeClaim {claim.name} is not terminated, its Node cannot be parsed: "
            raise BadInputError(message + str(unreadable[0]))

    async def _write(self, claim: NodeClaim, step: LifecycleStep) -> NodeClaim:
        """Write the deadline and a late launch before anything is terminated."""
        stored = await self._writer.write_claim(claim, step.claim)
        self._writer.record_effects(step)
        return stored

    async def _end_instance(
        self, claim: NodeClaim, *, kept_nodes: Sequence[str]
    ) -> ReconcileResult:
        outcome = await self._providers.terminate(
            claim.spec.node_class_ref, claim.status.provider_id
        )
        match outcome:
            case TerminationStatus.GONE | NodeClaimNotFoundError():
                if kept_nodes:
                    now = self._runtime.clock.now()
                    step = instance_terminating_step(claim, now=now, period=None)
                    await self._writer.write_claim(claim, step.claim)
                else:
                    await self._finish(claim)
                return DONE
            case TerminationStatus.STARTED:
                provider = self._providers.provider_of(claim.spec.node_class_ref)
                step = instance_terminating_step(
                    claim,
                    now=self._runtime.clock.now(),
                    period=self._providers.polling_periods(provider).termination,
                )
                await self._writer.write_claim(claim, step.claim)
                self._writer.record_effects(step)
                wait = step.requeue_after
                return ReconcileResult(requeue_after=None if wait is None else wait.total_seconds())
            case _:
                self._writer.publish_all(
                    termination_refused_notices(
                        outcome, claim.status.provider_id, refs=(claim.ref,)
                    )
                )
                raise outcome

    async def _finish_without_instance(self, claim: NodeClaim) -> ReconcileResult:
        """Finish a claim that names no instance, or terminate the instance launched for it.

        That instance may have a Node with pods: a launch whose result could not be written goes on.
        """
        if not self._launcher.is_without_instance(claim.uid):
            provider_id = await self._lookup.provider_id(claim)
            if provider_id:
                if self._is_state_stale(claim):
                    return DONE
                completed = with_instance(claim, provider_id)
                return await self.terminate(await self._writer.write_claim(claim, completed))
        await self._finish(claim)
        return DONE

    async def _finish(self, claim: NodeClaim) -> None:
        """Remove the finalizer; other changes of a finished claim are not written."""
        self._launcher.forget(claim.uid)
        step = finished_step(claim, now=self._runtime.clock.now())
        try:
            await self._writer.write_claim(claim, step.claim)
        except NotFoundError:
            return
        self._writer.record_effects(step)
        self._log.info(
            "deleted nodeclaim",
            NodeClaim={"name": claim.name},
            **{"provider-id": claim.status.provider_id},
        )
