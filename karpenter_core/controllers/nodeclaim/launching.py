"""Hand a claim to its provider, once at a time, and remember what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, WELL_KNOWN, ZONE
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import (
    NodePool,
    NodePoolSpec,
    Template,
    TemplateMetadata,
    TemplateSpec,
)
from karpenter_core.api.quantities import parse_amount
from karpenter_core.controllers.nodeclass.hashes import NodeClassHashes
from karpenter_core.controllers.throttling import ThrottleWaits
from karpenter_core.controllers.workqueue import EARLY_SECONDS, Backoff
from karpenter_core.errors import (
    AuthError,
    CallPendingError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.lifecycle.changes import Step
from karpenter_core.lifecycle.claim_status import with_metadata
from karpenter_core.lifecycle.nodeclaim.launch import launch_failed, launched_claim
from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
from karpenter_core.scheduling.offerings import compatible_instance_types, order_by_price
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.state.events import CallFinished, CallStarted
from karpenter_core.state.usage import listed_types

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.provider.contract import LaunchOutcome
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Launcher"]

REMEMBERED_ORDERS: Final = 256
BACKOFF: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setback:
    """How often in a row a claim's launch has failed, and when it may be tried again."""

    failures: int
    not_before: float


_WITHOUT_INSTANCE: Final = (
    InsufficientCapacityError,
    NodeClassNotReadyError,
    ThrottledError,
    AuthError,
    LaunchFailedError,
)
"""What a launch is answered with that did nothing; after any other error there may be an instance."""


@final
class Launcher:
    """Launches instances; the ledger knows which calls are open and what they brought.

    Its back-off is its own: a claim is looked at for many reasons, and what a failed launch writes
    into the claim is one of them.
    """

    def __init__(
        self, *, hands: Hands, providers: Providers, runtime: Runtime, well_known: frozenset[str]
    ) -> None:
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._well_known = WELL_KNOWN | well_known
        self._orders: dict[tuple[str, tuple[RequirementSpec, ...]], tuple[InstanceType, ...]] = {}
        self._setbacks: dict[str, _Setback] = {}
        self._throttles: ThrottleWaits[str] = ThrottleWaits(runtime.jitter)
        """By UID of the claim."""
        self._barren: set[str] = set()
        """UIDs of claims whose launches are all known to have brought nothing."""
        self._unanswered: set[str] = set()
        """UIDs of claims with a launch that may have brought an instance nobody has told us of."""
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")
        self._hashes = NodeClassHashes(providers)
        providers.subscribe_late_launches(self._late)

    async def launch(self, claim: NodeClaim) -> Step | None:
        """Ask the provider for an instance; None when the ledger now holds one.

        Raises:
            FencedError: this process does not lead; nothing was sent.
        """
        setback = self._setbacks.get(claim.uid)
        left = 0.0 if setback is None else setback.not_before - self._runtime.clock.monotonic()
        if left > EARLY_SECONDS:
            return Step(claim=claim, requeue_after=timedelta(seconds=left))
        try:
            request = await self._request(claim, self._feed.snapshot())
        except NodeClassNotReadyError as error:
            return launch_failed(claim, error, now=self._runtime.clock.now())
        except CloudProviderError as error:
            return self._failed(claim, error, ())
        if request is None:
            # Its pool has not been listed since this process began: woken when it has.
            return Step(claim=claim)
        self._barren.discard(claim.uid)
        self._feed.fold(CallStarted(claim.uid, self._runtime.clock.now()))
        try:
            outcome = _taken_over(request.node_claim, await self._providers.launch(request))
        except BaseException:
            self._finished(claim, None)  # refused before anything was sent, or we are stopping
            raise
        match outcome:
            case NodeClaim():
                self._finished(claim, outcome)
                self._log_launch(outcome)
                return None
            case CallPendingError():
                self._log.warning("launch is late, its result will be taken over when it comes")
                return Step(claim=claim)
            case _:
                self._finished(claim, None)
                return self._failed(claim, outcome, request.instance_types)

    async def _request(self, claim: NodeClaim, snapshot: Snapshot) -> LaunchRequest | None:
        ref = claim.spec.node_class_ref
        node_class = snapshot.node_classes.get((ref.group, ref.kind, ref.name))
        if node_class is None or node_class.is_deleting:
            what = "not found" if node_class is None else "being deleted"
            raise NodeClassNotReadyError(f"{ref.kind} {ref.name} is {what}")
        pool = claim.metadata.labels.get(NODE_POOL)
        if pool is None:
            types = await self._types_for(claim, node_class)
        elif (catalogue := snapshot.catalogues.get(pool)) is not None:
            types = self._offered(claim, catalogue)
        else:
            return None
        stamp = await self._hashes.annotations_of(node_class)
        claim = with_metadata(claim, annotations={**claim.metadata.annotations, **stamp})
        return LaunchRequest(node_claim=claim, node_class=node_class, instance_types=types)

    def _offered(self, claim: NodeClaim, catalogue: Catalogue) -> tuple[InstanceType, ...]:
        """Return the types a claim may become, cheapest first; claims of one wave are alike."""
        key = (catalogue.version, claim.spec.requirements)
        known = self._orders.get(key)
        if known is None:
            if len(self._orders) >= REMEMBERED_ORDERS:
                self._orders.clear()
            requirements = Requirements.from_specs(claim.spec.requirements)
            known = self._orders[key] = order_by_price(
                listed_types(claim, catalogue), requirements, well_known=self._well_known
            )
        return known

    async def _types_for(self, claim: NodeClaim, node_class: NodeClass) -> tuple[InstanceType, ...]:
        """Return the types for a claim that a user wrote: of no pool, and solved by nobody.

        What it asks for, a solver has not turned into types that hold it, so that is done here.

        Raises:
            CloudProviderError: the provider could not list its types, or none would do.
        """
        listed = await self._providers.list_instance_types(_pool_of_one(claim), node_class)
        requirements = Requirements.from_specs(claim.spec.requirements)
        requests = {
            name: parse_amount(name, str(amount))
            for name, amount in claim.spec.resources.requests.items()
        }
        fitting = compatible_instance_types(
            listed, requirements, requests, well_known=self._well_known
        )
        if not fitting:
            raise InsufficientCapacityError(
                "no instance type meets the requirements and holds the requested resources"
            )
        return order_by_price(fitting, requirements, well_known=self._well_known)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a claim that is launched or gone."""
        self._setbacks.pop(uid, None)
        self._throttles.forget(uid)
        self._barren.discard(uid)
        self._unanswered.discard(uid)

    def brought_nothing(self, uid: str) -> bool:
        """Whether no instance can be there for a claim: it would be named by its token.

        A claim that an earlier process may have launched is not one of these.
        """
        return uid in self._barren

    def _failed(
        self, claim: NodeClaim, error: CloudProviderError, types: tuple[InstanceType, ...]
    ) -> Step:
        if not isinstance(error, _WITHOUT_INSTANCE):
            self._unanswered.add(claim.uid)
        elif claim.uid not in self._unanswered:
            self._barren.add(claim.uid)
        before = self._setbacks.get(claim.uid)
        failures = 0 if before is None else before.failures
        wait = self._throttles.seconds(claim.uid, error)
        if wait is None:  # what is throttled was not tried, so it is no failure
            failures += 1
            wait = BACKOFF.seconds(failures)
        self._setbacks[claim.uid] = _Setback(
            failures=failures, not_before=self._runtime.clock.monotonic() + wait
        )
        self._log.info("launch failed", error=str(error), error_type=type(error).__name__)
        return launch_failed(
            self._feed.snapshot().node_claims.get(claim.name, claim),
            error,
            now=self._runtime.clock.now(),
            instance_types=types,
        )

    def _late(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Take over what a launch brought that nobody waited for any more.

        Without its claim the instance is an orphan, which garbage collection ends.
        """
        claim = request.node_claim
        late = _taken_over(claim, outcome)
        if isinstance(late, NodeClaim):
            self._log.info("took over a late launch", NodeClaim={"name": claim.name})
            self._finished(claim, late)
        else:
            self._log.warning("late launch failed", NodeClaim={"name": claim.name}, error=str(late))
            self._finished(claim, None)

    def _finished(self, claim: NodeClaim, launched: NodeClaim | None) -> None:
        self._feed.fold(
            CallFinished(claim_uid=claim.uid, launched=launched, at=self._runtime.clock.now())
        )

    def _log_launch(self, claim: NodeClaim) -> None:
        labels = claim.metadata.labels
        self._log.info(
            "launched nodeclaim",
            NodeClaim={"name": claim.name},
            **{
                "provider-id": claim.status.provider_id,
                "instance-type": labels.get(INSTANCE_TYPE, ""),
                "zone": labels.get(ZONE, ""),
                "capacity-type": labels.get(CAPACITY_TYPE, ""),
                "allocatable": {n: str(value) for n, value in claim.status.allocatable.items()},
            },
        )


def _pool_of_one(claim: NodeClaim) -> NodePool:
    """Return the pool that a claim of no pool would be of; providers list types for pools."""
    spec = claim.spec
    template = TemplateSpec(
        taints=spec.taints,
        startup_taints=spec.startup_taints,
        requirements=spec.requirements,
        node_class_ref=spec.node_class_ref,
    )
    labels = TemplateMetadata(labels=claim.metadata.labels)
    return NodePool(
        metadata=claim.metadata,
        spec=NodePoolSpec(template=Template(metadata=labels, spec=template)),
    )


def _taken_over(claim: NodeClaim, outcome: LaunchOutcome) -> NodeClaim | CloudProviderError:
    """Return the claim with what a launch brought, or why it brought nothing.

    An instance described in a way that cannot be read is as good as none: it has the claim's token,
    so the next attempt finds it, and garbage collection does once the claim is given up.
    """
    if not isinstance(outcome, LaunchedInstance):
        return outcome
    try:
        if not outcome.provider_id:
            return CloudProviderError("the launched instance has no provider id")
        return launched_claim(claim, outcome)
    except Exception as error:
        return CloudProviderError(f"the launched instance cannot be read: {error!r}")
