"""Creates the claims of a plan within limits, each exactly once.

A process has one creator. Provisioning and disruption both use it, so that limits of NodePools and
launch limits hold for all claims together.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import count as counting
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.notices import Notice
from karpenter_core.api.quantities import format_resources, parse_resources
from karpenter_core.controllers.provisioning.creation_outages import CreationOutages
from karpenter_core.controllers.provisioning.new_claims import (
    DECISION,
    manifest_of,
    new_claim,
    slot_ids,
)
from karpenter_core.errors import (
    ApiError,
    ConflictError,
    FencedError,
    KarpenterError,
    NotFoundError,
    TooManyRequestsError,
)
from karpenter_core.kube.refusals import (
    REFUSED_WINDOW,
    is_in_doubt,
    is_refusal,
    is_webhook_outage,
)
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import created_metric
from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_core.scheduling.overlays import OverlaidTypes
from karpenter_core.state.events import PodsDecided
from karpenter_core.state.launch_ceilings import LaunchCeilings
from karpenter_core.state.launch_limits import LaunchAllowance, LaunchLimits
from karpenter_core.state.node_pool_usage import exceeded_limits
from karpenter_core.state.pool_schedules import launch_hold
from karpenter_core.state.static_pools import StaticNodeAllowance, is_static

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.provisioning.new_claims import DecisionRef
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.scheduling.problem import PlannedNodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ClaimCreator", "CreatedClaims"]

CONCURRENCY: Final = 32
"""More than enough to use up the API requests per second."""
ATTEMPTS: Final = 6
OUTAGE_ATTEMPTS: Final = 2
"""Attempts while an admission webhook or the API server does not answer: the pass waits for each."""
SLOW_SECONDS: Final = 10.0
"""The time after which an attempt counts as not answered, whatever the error."""
ANSWER_SECONDS: Final = 35.0
"""The time that the API server has for an answer: a webhook that has to agree may take 30 s."""
RETRY_SECONDS: Final = 0.5
_GONE: Final = "nodepool is gone"
_CHANGED: Final = "the template of the nodepool has changed since the plan"
UNWANTED: Final = "it is not wanted any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedClaims:
    """The result for a batch of planned claims, in their order.

    `names` are the created claims, None for a claim that was not created; `refused` has the reason for
    each claim that a limit of the pool or a launch limit refused. `rejected` has the API server's
    answer for each claim that an admission policy, a webhook or a quota refused, or why there is none.
    Both are planned again later.
    """

    names: tuple[str | None, ...]
    refused: Mapping[int, str]
    rejected: Mapping[int, str]

    @property
    def obstacles(self) -> Mapping[int, str]:
        """Reasons for claims that were not created: refused here, or by the API server."""
        return {**self.refused, **self.rejected}


@final
class ClaimCreator:
    """Creates planned claims and records the pods that each is for."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        runtime: ControllerRuntime,
        launch_limits: LaunchLimits | None,
    ) -> None:
        self._writer = writer
        self._launch_limits = launch_limits or LaunchLimits()
        self._in_flight: Counter[str] = Counter()
        """By pool: allowed claims whose creation has not been answered."""
        self._overlaid: dict[str, tuple[str, OverlaidTypes]] = {}
        """By pool: the version of its catalogue, and what overlays change in it."""
        self._planned_in_flight: dict[int, PlannedNodeClaim] = {}
        """Allowed claims whose creation has not been answered, by a number for each of them."""
        self._granted = counting()
        self._slots_in_flight: set[str] = set()
        """Ids of the slots of claims of static pools whose creation has not been answered."""
        self._cluster_state = writer.cluster_state
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    async def create(
        self,
        planned: Sequence[PlannedNodeClaim],
        *,
        pools: Mapping[str, NodePool],
        decision_ref: DecisionRef,
        reason: str,
        annotations: Sequence[Mapping[str, str]] = (),
        leaving: Collection[str] = (),
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> CreatedClaims:
        """Create the claims that the limits allow, a few at a time, while they are wanted.

        `pools` are the NodePools with which they were planned: a claim has the labels and requirements
        of its plan and the taints and the hash of its NodePool, so with another template nobody would
        notice that it is outdated.

        With `annotations`, one mapping for each claim, the claims belong together: if the limits
        refuse one of them, none is created. `leaving` are claims that these replace: they do not count
        for the limits of NodePools.

        Serialising all claims of a plan for ten thousand pods before the first is sent would block the
        event loop for seconds, and the lease would be lost meanwhile.
        """
        refused = self._refusals(planned, pools, leaving=leaving, counted=True)
        if annotations and refused:
            why = next(iter(refused.values()))
            refused = {number: refused.get(number, why) for number in range(len(planned))}
        under_way = {n: item.pool for n, item in enumerate(planned) if n not in refused}
        self._in_flight.update(under_way.values())
        grants = {n: next(self._granted) for n in under_way}
        self._planned_in_flight.update((grant, planned[n]) for n, grant in grants.items())
        slots = self._take_slots(under_way)
        rejected: dict[int, str] = {}
        outages = CreationOutages()

        async def create(number: int) -> str | None:
            try:
                if not is_wanted():
                    refused[number] = UNWANTED
                    return None
                if self._is_outdated(planned[number].pool, pools):
                    refused[number] = _CHANGED
                    return None
                if why := outages.reason_for(planned[number].pool):
                    rejected[number] = why
                    return None
                return await self._create_one(
                    planned[number],
                    decision_ref=decision_ref,
                    reason=reason,
                    annotations=annotations[number] if annotations else {},
                    slot=slots.get(number, ""),
                )
            except ApiError as error:
                rejected[number] = str(error)
                outages.note(planned[number].pool, error)
                return None
            finally:
                self._count_created(under_way, number)
                del self._planned_in_flight[grants[number]]

        try:
            names = await gather_bounded(create, tuple(under_way), at_once=CONCURRENCY)
        finally:
            for number in tuple(under_way):  # cancelled before their turn
                self._count_created(under_way, number)
                self._planned_in_flight.pop(grants[number], None)
            self._slots_in_flight.difference_update(slots.values())
        created = dict(zip(grants, names, strict=True))
        return CreatedClaims(
            names=tuple(map(created.get, range(len(planned)))), refused=refused, rejected=rejected
        )

    def in_flight(self, pool: str) -> int:
        """Return the number of a pool's claims whose creation has not been answered."""
        return self._in_flight[pool]

    def _count_created(self, under_way: dict[int, str], number: int) -> None:
        pool = under_way.pop(number, None)
        if pool is not None:
            self._in_flight[pool] -= 1

    def _take_slots(self, under_way: Mapping[int, str]) -> dict[int, str]:
        """Return a free slot for each claim of a static pool, by the number of the claim."""
        snapshot = self._cluster_state.snapshot()
        free: dict[str, Iterator[str]] = {}
        slots: dict[int, str] = {}
        for number, name in under_way.items():
            pool = snapshot.node_pools[name]
            if is_static(pool):
                if name not in free:
                    free[name] = slot_ids(pool, snapshot.node_claims, self._slots_in_flight)
                slots[number] = next(free[name])
        self._slots_in_flight.update(slots.values())
        return slots

    def _is_outdated(self, name: str, pools: Mapping[str, NodePool]) -> bool:
        """Tell whether a pool has another template than one of `pools`, with which it was planned."""
        planned_with, pool = pools.get(name), self._cluster_state.snapshot().node_pools.get(name)
        if planned_with is None or pool is None or pool is planned_with:
            return False
        return pool.spec.template != planned_with.spec.template

    def refusal(
        self,
        planned: Sequence[PlannedNodeClaim],
        *,
        pools: Mapping[str, NodePool],
        leaving: Collection[str] = (),
    ) -> str:
        """Return why some of these claims would be refused now; empty if all are allowed.

        For callers that need all claims or none, before they change anything. `pools` and `leaving` as
        in `create`.
        """
        refused = self._refusals(planned, pools, leaving=leaving, counted=False)
        return next(iter(refused.values()), "")

    def _refusals(
        self,
        planned: Sequence[PlannedNodeClaim],
        planned_with: Mapping[str, NodePool],
        *,
        leaving: Collection[str],
        counted: bool,
    ) -> dict[int, str]:
        """Return the reasons for refused claims, by their index.

        If only some are allowed, claims whose pods have the highest priority come first.
        """
        snapshot = self._cluster_state.snapshot()
        allowance = LaunchAllowance(
            snapshot,
            self._launch_limits,
            now=self._runtime.clock.now(),
            in_flight=self._in_flight,
        )
        ceilings = LaunchCeilings(
            snapshot,
            self._launch_limits,
            in_flight=self._planned_in_flight.values(),
            leaving=leaving,
        )
        pools = {item.pool for item in planned}
        over = {
            **{name: _CHANGED for name in pools if self._is_outdated(name, planned_with)},
            **self._pools_over_limits(snapshot, pools, ceilings.pool_usage),
        }
        static = StaticNodeAllowance(snapshot, in_flight=self._in_flight)
        refused: dict[int, str] = {}
        limited: Counter[tuple[str, str]] = Counter()
        for number, item in sorted(enumerate(planned), key=lambda pair: -_priority(pair[1])):
            pool = snapshot.node_pools.get(item.pool)
            if pool is None or item.pool in over:
                refused[number] = over.get(item.pool, _GONE)
            elif (exceeded := ceilings.refusal(item)) is not None:
                refused[number] = exceeded.message
                limited[item.pool, exceeded.limit] += 1
            elif why := static.refusal(pool):
                refused[number] = why
            elif (refusal := allowance.grant(pool)) is not None:
                refused[number] = refusal.message
                limited[item.pool, refusal.limit] += 1
            else:
                ceilings.count(item)
                static.grant(pool)
        if counted:
            self._report_refused(planned, refused, limited)
        return refused

    def _report_refused(
        self,
        planned: Sequence[PlannedNodeClaim],
        refused: Mapping[int, str],
        limited: Mapping[tuple[str, str], int],
    ) -> None:
        self._writer.record_metrics(
            MetricUpdate(
                metric=LifecycleMetric.NODECLAIMS_HELD_BACK,
                labels={"nodepool": pool, "reason": limit},
                value=count,
            )
            for (pool, limit), count in limited.items()
        )
        counts = Counter((planned[number].pool, why) for number, why in refused.items())
        for (pool, why), count in counts.items():
            self._log.warning(
                "nodeclaims not created", NodePool={"name": pool}, count=count, why=why
            )

    def _pools_over_limits(
        self, snapshot: Snapshot, pools: set[str], usage: Mapping[str, Mapping[str, int]]
    ) -> Mapping[str, str]:
        """Return the pools that may not grow now, with the reasons."""
        refused: dict[str, str] = {}
        for name in pools:
            pool = snapshot.node_pools.get(name)
            if pool is None or pool.is_deleting:
                refused[name] = _GONE
                continue
            if hold := launch_hold(name, snapshot.pool_schedules.get(name)):
                refused[name] = hold
                continue
            limits = parse_resources(pool.spec.limits)
            exceeded = exceeded_limits(limits, usage.get(name, {}))
            if exceeded:
                refused[name] = f"resource usage exceeds limit ({', '.join(exceeded)})"
        return refused

    async def _create_one(
        self,
        planned: PlannedNodeClaim,
        *,
        decision_ref: DecisionRef,
        reason: str,
        annotations: Mapping[str, str],
        slot: str,
    ) -> str | None:
        """Create one claim; `slot` is the slot of a static pool's claim, else empty.

        Raises:
            ApiError: the API server refuses the claim, or has not answered.
        """
        snapshot = self._cluster_state.snapshot()
        pool = snapshot.node_pools.get(planned.pool)
        if pool is None:
            self._report_failed(planned, _GONE)
            return None
        claim = new_claim(
            planned,
            pool,
            unique=slot or self._runtime.new_id(),
            decision_ref=decision_ref,
            reason=reason,
            annotations=annotations,
            overlaid=self._overlaid_types(snapshot, planned.pool),
            node_class=_node_class_of(pool, snapshot),
        )
        try:
            await self._send(claim)
        except FencedError:
            raise
        except ConflictError as error:
            if slot:  # another process, or an earlier create without an answer, was first
                await self._read_back(claim, annotations={})
            self._report_failed(planned, str(error))
            return None
        except KarpenterError as error:
            self._report_failed(planned, str(error))
            if is_refusal(error):
                self._writer.publish(_refused_claim(pool, str(error)))
                raise
            if isinstance(error, TooManyRequestsError) or (
                isinstance(error, ApiError) and is_in_doubt(error)
            ):
                raise
            return None
        now = self._runtime.clock.now()
        self._cluster_state.fold(
            PodsDecided(
                placed={pod.uid: claim.name for pod in planned.pods if not pod.is_virtual}, at=now
            )
        )
        self._writer.record_metrics((created_metric(claim, reason),))
        self._log.info(
            "created nodeclaim",
            NodePool={"name": planned.pool},
            NodeClaim={"name": claim.name},
            decision=decision_ref.id,
            pods=len(planned.pods),
            requests={key: str(value) for key, value in format_resources(planned.requests).items()},
            instance_types=_type_names(planned.instance_types),
        )
        return claim.name

    def _overlaid_types(self, snapshot: Snapshot, pool: str) -> OverlaidTypes | None:
        """Return the instance types of a pool that overlays change; None without overlays."""
        catalogue = snapshot.catalogues.get(pool) if snapshot.node_overlays else None
        if catalogue is None:
            return None
        found = self._overlaid.get(pool)
        if found is None or found[0] != catalogue.version:
            found = self._overlaid[pool] = catalogue.version, OverlaidTypes.of(catalogue)
        return found[1]

    async def _send(self, claim: NodeClaim) -> None:
        """Create a claim; after a lost answer, create it again under the same name.

        If it exists already it is read back at once: the watch may be far behind, and until the state
        has the claim its pods would get another one.
        """
        manifest = manifest_of(claim)
        clock = self._runtime.clock
        for attempt in range(ATTEMPTS):
            begun = clock.monotonic()
            try:
                await self._writer.kube_writer.create(
                    NODE_CLAIMS, manifest, answer_seconds=ANSWER_SECONDS
                )
            except ConflictError:
                if attempt == 0:
                    raise  # another claim has the name: the pods are planned again
                await self._read_back(
                    claim, annotations={DECISION: claim.metadata.annotations[DECISION]}
                )
            except ApiError as error:
                is_slow = clock.monotonic() - begun >= SLOW_SECONDS or is_webhook_outage(error)
                attempts = OUTAGE_ATTEMPTS if is_slow else ATTEMPTS
                if not is_in_doubt(error) or attempt + 1 >= attempts:
                    raise
                await clock.sleep(RETRY_SECONDS * 2**attempt)
                continue
            return

    async def _read_back(self, claim: NodeClaim, *, annotations: Mapping[str, str]) -> None:
        """Put the server's claim into the state: a patch without changes returns the object."""
        with suppress(NotFoundError):  # it was created and deleted
            await self._writer.kube_writer.patch(
                NODE_CLAIMS, claim.name, {"metadata": {"annotations": annotations}}
            )

    def _report_failed(self, planned: PlannedNodeClaim, why: str) -> None:
        self._log.error("could not create nodeclaim", NodePool={"name": planned.pool}, error=why)


def _refused_claim(pool: NodePool, why: str) -> Notice:
    """Say on the NodePool that the API server refuses its NodeClaims, as it will the next time too."""
    return Notice(
        regarding=pool.ref,
        type="Warning",
        reason="NodeClaimRefused",
        message=f"The API server refuses NodeClaims of this NodePool: {why}",
        dedupe=(pool.uid,),
        window=REFUSED_WINDOW,
    )


def _node_class_of(pool: NodePool, snapshot: Snapshot) -> NodeClass | None:
    ref = pool.spec.template.spec.node_class_ref
    return snapshot.node_classes.get((ref.group, ref.kind, ref.name))


def _priority(planned: PlannedNodeClaim) -> int:
    return max((pod.shape.priority for pod in planned.pods), default=0)


def _type_names(instance_types: Sequence[str]) -> str:
    """Return the first few types, which are the cheapest, and the number of the others."""
    shown = ", ".join(instance_types[:5])
    more = len(instance_types) - 5
    return f"{shown} and {more} other(s)" if more > 0 else shown
