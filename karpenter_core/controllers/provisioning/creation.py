"""Create the claims of a plan, each once, whatever happens to the answers.

There is one creator in a process: whoever orders machines, for pods or in the place of others, goes
through it, so that limits and brakes hold for all of them together.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
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
from karpenter_core.lifecycle.changes import Fact
from karpenter_core.lifecycle.nodeclaim.claims import created_fact
from karpenter_core.state.brakes import Allowance, Brakes
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
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ClaimCreator", "Creation"]

AT_ONCE: Final = 32
"""Far more than it takes to use up our requests a second."""
ATTEMPTS: Final = 6
RETRY_SECONDS: Final = 0.5
_SERVER_ERROR: Final = 500
_GONE: Final = "nodepool is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What came of a batch of planned claims, in their order.

    `names` are those of the claims created, None where none was; `refused` says why for those that
    were not even tried: a limit or a brake was in the way. They are to be planned again later.
    """

    names: tuple[str | None, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict[int, str])


@final
class ClaimCreator:
    """Creates planned claims and notes which pods each is for."""

    def __init__(self, *, hands: Hands, runtime: Runtime, brakes: Brakes | None = None) -> None:
        self._hands = hands
        self._brakes = brakes or Brakes()
        self._in_flight: Counter[str] = Counter()
        """By pool: claims that were granted and whose creation has not been answered."""
        self._feed = hands.feed
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    async def create(
        self, planned: Sequence[PlannedNodeClaim], *, decided: Decided, reason: str
    ) -> Creation:
        """Create all that may be created, some at a time.

        The claims of a plan for ten thousand pods would keep the event loop for seconds if they
        were all written down before the first one is sent, and the lease would be lost meanwhile.
        """
        refused = self._refusals(planned, counted=True)
        under_way = {n: item.pool for n, item in enumerate(planned) if n not in refused}
        self._in_flight.update(under_way.values())
        turns = asyncio.Semaphore(AT_ONCE)

        async def in_turn(number: int, item: PlannedNodeClaim) -> str | None:
            if number in refused:
                return None
            async with turns:
                try:
                    return await self._create_one(item, decided=decided, reason=reason)
                finally:
                    self._land(under_way, number)

        try:
            names = await asyncio.gather(*(in_turn(n, item) for n, item in enumerate(planned)))
        finally:
            for number in tuple(under_way):  # cancelled before their turn
                self._land(under_way, number)
        return Creation(names=tuple(names), refused=refused)

    def _land(self, under_way: dict[int, str], number: int) -> None:
        pool = under_way.pop(number, None)
        if pool is not None:
            self._in_flight[pool] -= 1

    def refusal(self, planned: Sequence[PlannedNodeClaim]) -> str:
        """Return why some of these claims would not be created now; empty when all would be.

        For those who need all or none, before they change anything.
        """
        return next(iter(self._refusals(planned, counted=False).values()), "")

    def _refusals(self, planned: Sequence[PlannedNodeClaim], *, counted: bool) -> dict[int, str]:
        """Return which claims may not be created at this moment, by their place, and why.

        Where only some may, those go first whose pods have the highest priority.
        """
        snapshot = self._feed.snapshot()
        over = self._over_limits(snapshot, {item.pool for item in planned})
        allowance = Allowance(
            snapshot, self._brakes, now=self._runtime.clock.now(), in_flight=self._in_flight
        )
        refused: dict[int, str] = {}
        braked: Counter[tuple[str, str]] = Counter()
        for number, item in sorted(enumerate(planned), key=lambda pair: -_priority(pair[1])):
            pool = snapshot.node_pools.get(item.pool)
            if pool is None or item.pool in over:
                refused[number] = over.get(item.pool, _GONE)
            elif (refusal := allowance.take(pool)) is not None:
                refused[number] = refusal.why
                braked[item.pool, refusal.brake] += 1
        if counted:
            self._say_refused(planned, refused, braked)
        return refused

    def _say_refused(
        self,
        planned: Sequence[PlannedNodeClaim],
        refused: Mapping[int, str],
        braked: Mapping[tuple[str, str], int],
    ) -> None:
        self._hands.count(
            Fact(
                metric="nodeclaims_held_back",
                labels={"nodepool": pool, "reason": brake},
                value=count,
            )
            for (pool, brake), count in braked.items()
        )
        alike = Counter((planned[number].pool, why) for number, why in refused.items())
        for (pool, why), count in alike.items():
            self._log.warning(
                "nodeclaims not created", NodePool={"name": pool}, count=count, why=why
            )

    def _over_limits(self, snapshot: Snapshot, pools: set[str]) -> Mapping[str, str]:
        """Return why pools may get nothing more, as the state is at this moment."""
        usage = pool_usage(snapshot)
        refused: dict[str, str] = {}
        for name in pools:
            pool = snapshot.node_pools.get(name)
            if pool is None or pool.is_deleting:
                refused[name] = _GONE
                continue
            limits = parse_resources(pool.spec.limits)
            exceeded = exceeded_limits(limits, usage.get(name, {}))
            if exceeded:
                refused[name] = f"resource usage exceeds limit ({', '.join(exceeded)})"
        return refused

    async def _create_one(
        self, planned: PlannedNodeClaim, *, decided: Decided, reason: str
    ) -> str | None:
        pool = self._feed.snapshot().node_pools.get(planned.pool)
        if pool is None:
            self._failed(planned, _GONE)
            return None
        claim = claim_for(
            planned, pool, unique=self._runtime.new_id(), decided=decided, reason=reason
        )
        try:
            await self._send(claim)
        except FencedError:
            raise
        except KarpenterError as error:
            self._failed(planned, str(error))
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

    def _failed(self, planned: PlannedNodeClaim, why: str) -> None:
        self._log.error("could not create nodeclaim", NodePool={"name": planned.pool}, error=why)


def _priority(planned: PlannedNodeClaim) -> int:
    return max((pod.shape.priority for pod in planned.pods), default=0)


def _shown(instance_types: Sequence[str]) -> str:
    """Name the first few types, the cheapest ones, and how many more there are."""
    shown = ", ".join(instance_types[:5])
    more = len(instance_types) - 5
    return f"{shown} and {more} other(s)" if more > 0 else shown
