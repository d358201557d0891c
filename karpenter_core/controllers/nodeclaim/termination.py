"""The end of a deleted claim: its nodes, its instance, its finalizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from karpenter_core.controllers.nodeclaim.lookup import InstanceLookup
from karpenter_core.controllers.reconciler import DONE, Outcome
from karpenter_core.errors import NodeClaimNotFoundError, NotFoundError
from karpenter_core.lifecycle.termination import (
    TerminationAction,
    claim_termination,
    finished_step,
    instance_terminating_step,
    with_instance,
)
from karpenter_core.provider.contract import Termination

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.nodeclaim.launching import Launcher
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.changes import Step
    from karpenter_core.provider.facade import Providers

__all__ = ["Terminator"]


@final
class Terminator:
    """Takes deleted claims to their end, one step a look."""

    def __init__(
        self, *, hands: Hands, providers: Providers, launcher: Launcher, runtime: Runtime
    ) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._launcher = launcher
        self._lookup = InstanceLookup(providers)
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def terminate(self, claim: NodeClaim) -> Outcome:
        """Do what comes next; woken again by nodes that go and by calls that end."""
        snapshot = self._feed.snapshot()
        nodes = snapshot.nodes_of(claim)
        found = claim_termination(claim, nodes, snapshot.ledger, now=self._runtime.clock.now())
        match found.action:
            case TerminationAction.NONE | TerminationAction.AWAIT_LAUNCH:
                return DONE
            case TerminationAction.FINISH:
                return await self._finish_without_instance(claim)
            case TerminationAction.AWAIT_NODES:
                await self._write(claim, found.step)
                for node in nodes:
                    if node.name in found.delete_nodes:
                        await self._hands.delete_node(node)
                return DONE
            case TerminationAction.TERMINATE_INSTANCE:
                return await self._end_instance(await self._write(claim, found.step))

    async def _write(self, claim: NodeClaim, step: Step) -> NodeClaim:
        """Write what is to be known before anything ends: the deadline, a late launch."""
        stored = await self._hands.write_claim(claim, step.claim)
        self._hands.settle(step)
        return stored

    async def _end_instance(self, claim: NodeClaim) -> Outcome:
        outcome = await self._providers.terminate(
            claim.spec.node_class_ref, claim.status.provider_id
        )
        match outcome:
            case Termination.GONE | NodeClaimNotFoundError():
                await self._finish(claim)
                return DONE
            case Termination.STARTED:
                step = instance_terminating_step(claim, now=self._runtime.clock.now())
                await self._hands.write_claim(claim, step.claim)
                self._hands.settle(step)
                wait = step.requeue_after
                return Outcome(requeue_after=None if wait is None else wait.total_seconds())
            case _:
                raise outcome

    async def _finish_without_instance(self, claim: NodeClaim) -> Outcome:
        """End a claim that names no instance, unless one was launched for it all the same."""
        if not self._launcher.brought_nothing(claim.uid):
            provider_id = await self._lookup.provider_id(claim)
            if provider_id:
                found = with_instance(claim, provider_id)
                return await self._end_instance(await self._hands.write_claim(claim, found))
        await self._finish(claim)
        return DONE

    async def _finish(self, claim: NodeClaim) -> None:
        """Take the finalizer off; nothing else of a claim that ends is worth a write."""
        self._launcher.forget(claim.uid)
        step = finished_step(claim, now=self._runtime.clock.now())
        try:
            await self._hands.write_claim(claim, step.claim)
        except NotFoundError:
            return
        self._hands.settle(step)
        self._log.info(
            "deleted nodeclaim",
            NodeClaim={"name": claim.name},
            **{"provider-id": claim.status.provider_id},
        )
