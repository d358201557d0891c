"""The end of a deleted claim: its nodes, its instance, its finalizer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import structlog

from karpenter_core.controllers.freshness import Consumer, waiting_notice
from karpenter_core.controllers.nodeclaim.lookup import InstanceLookup
from karpenter_core.controllers.reconciler import DONE, Outcome
from karpenter_core.errors import BadInputError, NodeClaimNotFoundError, NotFoundError
from karpenter_core.lifecycle.nodeclaim.termination import (
    TerminationAction,
    claim_termination,
    finished_step,
    instance_terminating_step,
    termination_refused_notices,
    with_instance,
)
from karpenter_core.provider.contract import Termination
from karpenter_core.state.machines import is_instance_terminating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.live import LiveReader
    from karpenter_core.controllers.nodeclaim.launching import Launcher
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.changes import Step
    from karpenter_core.lifecycle.nodeclaim.termination import ClaimTermination
    from karpenter_core.provider.host.facade import Providers

__all__ = ["Terminator"]


@final
class Terminator:
    """Takes deleted claims to their end, one step a look."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        launcher: Launcher,
        runtime: Runtime,
        freshness: Freshness,
        nodes: LiveReader,
        wake: Callable[[str], None],
    ) -> None:
        """`wake` has a claim looked at again."""
        self._freshness = freshness
        self._nodes = nodes
        self._wake = wake
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._launcher = launcher
        self._lookup = InstanceLookup(providers)
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def terminate(self, claim: NodeClaim) -> Outcome:
        """Do what comes next; woken again by nodes that go and by calls that end."""
        found, nodes = self._look(claim)
        if found.action is TerminationAction.TERMINATE_INSTANCE:
            if self._is_held(claim):
                return DONE
            if claim.status.node_name and not nodes and not is_instance_terminating(claim):
                await self._confirm_node(claim)
                found, nodes = self._look(claim)
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

    def _look(self, claim: NodeClaim) -> tuple[ClaimTermination, Sequence[NodeView]]:
        snapshot = self._feed.snapshot()
        nodes = snapshot.nodes_of(claim)
        now = self._runtime.clock.now()
        return claim_termination(claim, nodes, snapshot.ledger, now=now), nodes

    def _is_held(self, claim: NodeClaim) -> bool:
        """Tell whether the end of an instance waits for fresh kinds, and say so on the claim."""
        stale = self._freshness.hold(
            Consumer.INSTANCE_TERMINATION, claim.name, partial(self._wake, claim.name)
        )
        if stale:
            self._hands.tell((waiting_notice(claim.ref, stale),))
        return bool(stale)

    async def _confirm_node(self, claim: NodeClaim) -> None:
        """Have the API server itself say whether the Node of a claim is there.

        What the watch has not shown is in the state afterwards.

        Raises:
            ApiError: there is no answer, which is not the answer "none".
            BadInputError: the Node cannot be read.
        """
        _, unreadable = await self._nodes.read_now(f"metadata.name={claim.status.node_name}")
        if unreadable:
            message = f"instance of NodeClaim {claim.name} is not ended, its Node cannot be read: "
            raise BadInputError(message + str(unreadable[0]))

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
                self._hands.tell(
                    termination_refused_notices(
                        outcome, claim.status.provider_id, refs=(claim.ref,)
                    )
                )
                raise outcome

    async def _finish_without_instance(self, claim: NodeClaim) -> Outcome:
        """End a claim that names no instance, unless one was launched for it all the same."""
        if not self._launcher.brought_nothing(claim.uid):
            provider_id = await self._lookup.provider_id(claim)
            if provider_id:
                if self._is_held(claim):
                    return DONE
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
