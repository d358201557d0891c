"""Creates missing claims of static NodePools: `static.provisioning`.

The claim creator checks `limits.nodes` and every launch limit when it creates claims, and counts those
that the API server has not answered yet. So provisioning and drift together never exceed a limit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.conditions import READY, is_true
from karpenter_core.api.decisions import PROVISION, Decision, bounded
from karpenter_core.api.notices import ObjectRef
from karpenter_core.api.prices import Price
from karpenter_core.controllers.provisioning.new_claims import DecisionRef
from karpenter_core.controllers.reconciling.reconciler import DONE, ReconcileResult
from karpenter_core.controllers.static.pool_changes import SETTLED_SECONDS, StaticPoolReconciler
from karpenter_core.scheduling.journal import planned_launch
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.state.static_pools import (
    free_nodes,
    is_managed_static,
    missing_replicas,
    node_limit,
    static_pool_claims,
)

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator, CreatedClaims
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.scheduling.problem import PlannedNodeClaim, SolveOptions
    from karpenter_core.state.provisioning_input import ProblemSettings

__all__ = ["StaticProvisioningController"]

LIMITED_SECONDS: Final = 30.0  # upstream default
IN_FLIGHT_SECONDS: Final = 1.0
"""The time after which a pool is looked at again while claims are being created for it."""
METHOD: Final = "static"


@final
class StaticProvisioningController:
    """The controller `static.provisioning`."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        creator: ClaimCreator,
        runtime: ControllerRuntime,
        problem_settings: ProblemSettings,
        solve: SolveOptions,
    ) -> None:
        self._cluster_state = cluster_state
        self._creator = creator
        self._runtime = runtime
        self._problem_settings = problem_settings
        self._solve = solve
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._pools = StaticPoolReconciler(
            self.name, self.reconcile, cluster_state=cluster_state, runtime=runtime
        )

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "static.provisioning"

    async def run(self) -> None:
        """Work until cancelled; nothing is created before every claim has been listed."""
        await self._pools.run()

    async def reconcile(self, name: str) -> ReconcileResult:
        """Create the claims that a pool lacks, as far as its node limit allows."""
        snapshot = self._cluster_state.snapshot()
        pool = snapshot.node_pools.get(name)
        if (
            pool is None
            or not is_managed_static(pool, snapshot)
            or not is_true(pool.status.conditions, READY)
            or name not in snapshot.catalogues  # its instance types are being listed
        ):
            return DONE
        claims = static_pool_claims(snapshot, name)
        missing = missing_replicas(pool, claims)
        if not missing:
            return ReconcileResult(requeue_after=SETTLED_SECONDS)
        missing = missing_replicas(pool, claims, in_flight=self._creator.in_flight(name))
        if not missing:
            return ReconcileResult(requeue_after=IN_FLIGHT_SECONDS)
        free = free_nodes(pool, claims)
        if free == 0:
            self._log.info("nodepool node limit reached", limit=node_limit(pool), missing=missing)
            return ReconcileResult(requeue_after=LIMITED_SECONDS)
        planned = plan_static_claim(
            snapshot,
            pool,
            aliases=self._problem_settings.aliases,
            well_known=self._problem_settings.well_known,
            solve=self._solve,
        )
        if planned is None:
            self._log.info("no instance type is available for the nodepool", missing=missing)
            return ReconcileResult(requeue_after=LIMITED_SECONDS)
        count = missing if free is None else min(missing, free)
        return await self._create(pool, planned, count, existing=len(claims.active))

    async def _create(
        self, pool: NodePool, planned: PlannedNodeClaim, count: int, *, existing: int
    ) -> ReconcileResult:
        cause = f"{existing} of {pool.spec.replicas} replica(s) of nodepool {pool.name} exist"
        decision_ref = DecisionRef(id=self._runtime.new_id(), cause=cause)
        structlog.contextvars.bind_contextvars(decision=decision_ref.id)
        self._log.info(
            "provisioning nodeclaims for replicas",
            current=existing,
            desired=pool.spec.replicas,
            count=count,
        )
        created = await self._creator.create(
            (planned,) * count,
            pools={pool.name: pool},
            decision_ref=decision_ref,
            reason="provisioned",
            is_wanted=partial(self._lacks_replicas, pool),
        )
        await self._record(decision_ref, planned, created)
        failed = sum(name is None for name in created.names) - len(created.refused)
        if failed:
            return ReconcileResult(back_off=True)  # the creator has logged the errors
        if created.refused:
            return ReconcileResult(requeue_after=LIMITED_SECONDS)
        return ReconcileResult(requeue_after=SETTLED_SECONDS)

    def _lacks_replicas(self, planned_for: NodePool) -> bool:
        """Tell whether a pool still needs a claim: its replicas may be fewer than when they were planned."""
        snapshot = self._cluster_state.snapshot()
        pool = snapshot.node_pools.get(planned_for.name)
        if pool is None or pool.uid != planned_for.uid or not is_managed_static(pool, snapshot):
            return False
        if (pool.spec.replicas or 0) >= (planned_for.spec.replicas or 0):
            return True
        return missing_replicas(pool, static_pool_claims(snapshot, pool.name)) > 0

    async def _record(
        self, decision_ref: DecisionRef, planned: PlannedNodeClaim, created: CreatedClaims
    ) -> None:
        """Record the decision, unless limits or errors left nothing of it: it is made again soon."""
        names = [name for name in created.names if name is not None]
        if not names:
            return
        currency = self._solve.currency
        price = planned.cheapest.price_per_hour * len(names)
        await self._runtime.journal.record(
            Decision(
                id=decision_ref.id,
                cause=decision_ref.cause,
                kind=PROVISION,
                at=self._runtime.clock.now(),
                summary=f"{len(names)} nodeclaim(s) for replicas of nodepool {planned.pool}",
                method=METHOD,
                price_per_hour_before=Price(0.0, currency),
                price_per_hour_after=Price(price, currency),
                **bounded(
                    objects=[
                        ObjectRef(api_version="karpenter.sh/v1", kind="NodeClaim", name=name)
                        for name in names
                    ],
                    launches=[
                        planned_launch(planned, name=name, currency=currency) for name in names
                    ],
                ),
            )
        )
