"""Create the claims of a plan, each once, whatever happens to the answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.quantities import format_resources, parse_resources
from karpenter_core.controllers.provisioning.claims import DECISION, claim_for, manifest_of
from karpenter_core.errors import (
    ApiError,
    ConflictError,
    FencedError,
    KarpenterError,
    NotFoundError,
)
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.lifecycle.claims import created_fact
from karpenter_core.state.events import PodsDecided
from karpenter_core.state.usage import exceeded_limits, pool_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.provisioning.claims import Decided
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["ClaimCreator"]

AT_ONCE: Final = 32
"""Far more than it takes to use up our requests a second."""
ATTEMPTS: Final = 6
RETRY_SECONDS: Final = 0.5
_SERVER_ERROR: Final = 500


@final
class ClaimCreator:
    """Creates planned claims and notes which pods each is for."""

    def __init__(self, *, hands: Hands, runtime: Runtime) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    async def create(
        self, planned: Sequence[PlannedNodeClaim], *, decided: Decided, reason: str
    ) -> tuple[str | None, ...]:
        """Create all of them, some at a time; return the name of each, None where that failed.

        The claims of a plan for ten thousand pods would keep the event loop for seconds if they
        were all written down before the first one is sent, and the lease would be lost meanwhile.
        """
        over = self._over_limits({item.pool for item in planned})
        turns = asyncio.Semaphore(AT_ONCE)

        async def in_turn(item: PlannedNodeClaim) -> str | None:
            async with turns:
                return await self._create_one(item, over, decided=decided, reason=reason)

        return tuple(await asyncio.gather(*map(in_turn, planned)))

    def _over_limits(self, pools: set[str]) -> Mapping[str, str]:
        """Return why pools may get nothing more, as the state is at this moment."""
        snapshot = self._feed.snapshot()
        usage = pool_usage(snapshot)
        refused: dict[str, str] = {}
        for name in pools:
            pool = snapshot.node_pools.get(name)
            if pool is None or pool.is_deleting:
                refused[name] = "nodepool is gone"
                continue
            limits = parse_resources(pool.spec.limits)
            exceeded = exceeded_limits(limits, usage.get(name, {}))
            if exceeded:
                refused[name] = f"resource usage exceeds limit ({', '.join(exceeded)})"
        return refused

    async def _create_one(
        self,
        planned: PlannedNodeClaim,
        over: Mapping[str, str],
        *,
        decided: Decided,
        reason: str,
    ) -> str | None:
        if planned.pool in over:
            self._refused(planned, over[planned.pool])
            return None
        pool = self._feed.snapshot().node_pools.get(planned.pool)
        if pool is None:
            self._refused(planned, "nodepool is gone")
            return None
        claim = claim_for(planned, pool, unique=self._runtime.new_id(), decided=decided)
        try:
            await self._send(claim)
        except FencedError:
            raise
        except KarpenterError as error:
            self._refused(planned, str(error))
            return None
        now = self._runtime.clock.now()
        self._feed.fold(PodsDecided(placed={pod.uid: claim.name for pod in planned.pods}, at=now))
        self._hands.count((created_fact(claim, reason),))
        self._log.info(
            "created nodeclaim",
            NodePool={"name": planned.pool},
            NodeClaim={"name": claim.name},
            decision=decided.id,
            pods=len(planned.pods),
            requests={key: str(value) for key, value in format_resources(planned.requests).items()},
            instance_types=_shown(planned.instance_types),
        )
        return claim.name

    async def _send(self, claim: NodeClaim) -> None:
        """Create a claim; an answer that is lost is asked for again, under the same name.

        One that turns out to be there is read back at once: the watch may be far behind, and until
        the claim is known its pods would be given another one.
        """
        manifest = manifest_of(claim)
        for attempt in range(ATTEMPTS):
            try:
                await self._hands.writer.create(NODE_CLAIMS, manifest)
            except ConflictError:
                if attempt == 0:
                    raise  # somebody else's claim has the name: the pods are planned again
                await self._read_back(claim)
            except ApiError as error:
                in_doubt = error.status == 0 or error.status >= _SERVER_ERROR
                if not in_doubt or attempt + 1 == ATTEMPTS:
                    raise
                await self._runtime.clock.sleep(RETRY_SECONDS * 2**attempt)
                continue
            return

    async def _read_back(self, claim: NodeClaim) -> None:
        """Fold a claim as the server has it: a patch that changes nothing answers with all of it."""
        annotations = {DECISION: claim.metadata.annotations[DECISION]}
        with suppress(NotFoundError):  # it came and went
            await self._hands.writer.patch(
                NODE_CLAIMS, claim.name, {"metadata": {"annotations": annotations}}
            )

    def _refused(self, planned: PlannedNodeClaim, why: str) -> None:
        self._log.error("could not create nodeclaim", NodePool={"name": planned.pool}, error=why)


def _shown(instance_types: Sequence[str]) -> str:
    """Name the first few types, the cheapest ones, and how many more there are."""
    shown = ", ".join(instance_types[:5])
    more = len(instance_types) - 5
    return f"{shown} and {more} other(s)" if more > 0 else shown
