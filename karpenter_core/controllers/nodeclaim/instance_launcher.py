"""Launches instances: one call per claim at a time, with back-off."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, WELL_KNOWN, ZONE
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import (
    NodeClaimTemplate,
    NodePool,
    NodePoolSpec,
    TemplateMetadata,
    TemplateSpec,
)
from karpenter_core.api.quantities import parse_amount
from karpenter_core.controllers.nodeclaim.launch_stamps import LaunchStamps
from karpenter_core.controllers.nodeclass.hashes import NodeClassHashes
from karpenter_core.controllers.provisioning.new_claims import DECISION
from karpenter_core.controllers.reconciling.throttling import ThrottleWaits
from karpenter_core.controllers.reconciling.workqueue import EARLY_SECONDS, ExponentialBackoff
from karpenter_core.errors import (
    AuthError,
    CallPendingError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.nodeclaim.launch import (
    exhausted_for,
    exhausted_offerings,
    launch_failed,
    launched_claim,
)
from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
from karpenter_core.scheduling.offerings import compatible_instance_types, order_by_price
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.state.events import LaunchCallFinished, LaunchCallStarted, OfferingsUnavailable
from karpenter_core.state.node_pool_usage import listed_types

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.provider.contract import LaunchOutcome
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["InstanceLauncher"]

REMEMBERED_TYPE_LISTS: Final = 256
LAUNCH_BACKOFF: Final = ExponentialBackoff(base_seconds=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedLaunches:
    """The number of failed launches of a claim in a row, and when the launch may be tried again."""

    failures: int
    not_before: float


_WITHOUT_INSTANCE: Final = (
    InsufficientCapacityError,
    NodeClassNotReadyError,
    ThrottledError,
    AuthError,
    LaunchFailedError,
)
"""Errors of launches that created nothing; after any other error an instance may exist."""


@final
class InstanceLauncher:
    """Launches instances; the ledger has the open calls and their results.

    It has a back-off of its own, because a claim is reconciled for many reasons, among them the
    condition that a failed launch writes.
    """

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        providers: Providers,
        runtime: ControllerRuntime,
        well_known: frozenset[str],
    ) -> None:
        self._cluster_state = cluster_state
        self._providers = providers
        self._runtime = runtime
        self._well_known = WELL_KNOWN | well_known
        self._compatible_types: dict[
            tuple[str, tuple[RequirementSpec, ...]], tuple[InstanceType, ...]
        ] = {}
        self._failed_launches: dict[str, _FailedLaunches] = {}
        self._throttles: ThrottleWaits[str] = ThrottleWaits(runtime.jitter)
        """By UID of the claim."""
        self._without_instance: set[str] = set()
        """UIDs of claims of which every launch is known to have created nothing."""
        self._began: datetime | None = None
        """The time from which this process launches alone."""
        self._unanswered: set[str] = set()
        """UIDs of claims with a failed launch that may have created an unknown instance."""
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")
        self._hashes = NodeClassHashes(providers)
        self._stamps = LaunchStamps()
        providers.subscribe_late_launches(self._finish_late_launch)

    def begin(self) -> None:
        """Note that only this process launches from now on."""
        self._began = self._runtime.clock.now()

    async def launch(self, claim: NodeClaim) -> LifecycleStep | None:
        """Call the provider for an instance; return None if the ledger now has one.

        Raises:
            FencedError: this process is not the leader; nothing was sent.
        """
        failed_launches = self._failed_launches.get(claim.uid)
        left = (
            0.0
            if failed_launches is None
            else failed_launches.not_before - self._runtime.clock.monotonic()
        )
        if left > EARLY_SECONDS:
            return LifecycleStep(claim=claim, requeue_after=timedelta(seconds=left))
        try:
            request = await self._request(claim, self._cluster_state.snapshot())
        except NodeClassNotReadyError as error:
            return launch_failed(claim, error, now=self._runtime.clock.now())
        except CloudProviderError as error:
            return self._record_failure(claim, error, ())
        if request is None:
            # The types of its pool are not listed yet; the claim is woken when they are.
            return LifecycleStep(claim=claim)
        self._without_instance.discard(claim.uid)
        self._cluster_state.fold(LaunchCallStarted(claim.uid, self._runtime.clock.now()))
        try:
            answer = await self._providers.launch(request)
            outcome = self._claim_after_launch(request.node_claim, answer)
        except BaseException:
            self._record_finished(
                claim, None
            )  # refused before anything was sent, or we are stopping
            raise
        match outcome:
            case NodeClaim():
                self._record_finished(claim, outcome)
                self._record_shortages(request, answer)
                self._log_launch(outcome)
                return None
            case CallPendingError():
                self._log.warning("launch is late, its result is recorded when it comes")
                return LifecycleStep(claim=claim)
            case _:
                self._record_finished(claim, None)
                return self._record_failure(claim, outcome, request.instance_types)

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
            types = self._types_to_request(claim, catalogue)
        else:
            return None
        current = await self._hashes.annotations_of(node_class)
        claim = self._stamps.stamp(claim, node_class, current)
        return LaunchRequest(node_claim=claim, node_class=node_class, instance_types=types)

    def _types_to_request(self, claim: NodeClaim, catalogue: Catalogue) -> tuple[InstanceType, ...]:
        """Return the compatible types, cheapest first, cached for claims with equal requirements."""
        key = (catalogue.version, claim.spec.requirements)
        types = self._compatible_types.get(key)
        if types is None:
            if len(self._compatible_types) >= REMEMBERED_TYPE_LISTS:
                self._compatible_types.clear()
            requirements = Requirements.from_specs(claim.spec.requirements)
            types = self._compatible_types[key] = order_by_price(
                listed_types(claim, catalogue), requirements, well_known=self._well_known
            )
        return types

    async def _types_for(self, claim: NodeClaim, node_class: NodeClass) -> tuple[InstanceType, ...]:
        """Return the types for a claim that a user created without a pool.

        No scheduling pass has chosen types that fit its requests, so that is done here.

        Raises:
            CloudProviderError: the provider could not list its types, or none fits.
        """
        listed = await self._providers.list_instance_types(
            _pool_for_standalone_claim(claim), node_class
        )
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
        """Drop the data of a claim that is launched or gone."""
        self._failed_launches.pop(uid, None)
        self._throttles.forget(uid)
        self._without_instance.discard(uid)
        self._unanswered.discard(uid)
        self._stamps.forget(uid)

    def is_without_instance(self, uid: str) -> bool:
        """Tell whether a claim certainly has no instance.

        Of claims that an earlier process may have launched, this is not certain.
        """
        return uid in self._without_instance

    def _is_older(self, claim: NodeClaim) -> bool:
        """Tell whether a process before this one may have launched a claim.

        A refusal does not deny it: the cloud may refuse a call before it looks at the token.
        """
        created = claim.metadata.creation_timestamp
        return self._began is not None and created is not None and created <= self._began

    def _record_failure(
        self, claim: NodeClaim, error: CloudProviderError, types: tuple[InstanceType, ...]
    ) -> LifecycleStep:
        if not isinstance(error, _WITHOUT_INSTANCE):
            self._unanswered.add(claim.uid)
        elif claim.uid not in self._unanswered:
            if not self._is_older(claim):
                self._without_instance.add(claim.uid)
            self._stamps.forget(claim.uid)
        before = self._failed_launches.get(claim.uid)
        failures = 0 if before is None else before.failures
        wait = self._throttles.seconds(claim.uid, error)
        if wait is None:  # a throttled call was not carried out, so it is no failure
            failures += 1
            wait = LAUNCH_BACKOFF.seconds(failures)
        self._failed_launches[claim.uid] = _FailedLaunches(
            failures=failures, not_before=self._runtime.clock.monotonic() + wait
        )
        self._log.info(
            "launch failed",
            decision=_decision_of(claim),
            error=str(error),
            error_type=type(error).__name__,
        )
        return launch_failed(
            self._cluster_state.snapshot().node_claims.get(claim.name, claim),
            error,
            now=self._runtime.clock.now(),
            instance_types=types,
        )

    def _finish_late_launch(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Record the result of a launch that was answered after its timeout.

        If the claim is gone, its instance is an orphan, which garbage collection terminates.
        """
        claim = request.node_claim
        late = self._claim_after_launch(claim, outcome)
        if isinstance(late, NodeClaim):
            self._log.info(
                "recorded a late launch",
                decision=_decision_of(claim),
                NodeClaim={"name": claim.name},
            )
            self._record_finished(claim, late)
            self._record_shortages(request, outcome)
        else:
            self._log.warning(
                "late launch failed",
                decision=_decision_of(claim),
                NodeClaim={"name": claim.name},
                error=str(late),
            )
            self._record_finished(claim, None)

    def _claim_after_launch(
        self, claim: NodeClaim, outcome: LaunchOutcome
    ) -> NodeClaim | CloudProviderError:
        """Return the claim of a request with the launched instance, or the error of the launch.

        An instance whose description cannot be parsed counts as an error: it has the claim's token, so
        the next attempt finds it, or garbage collection does after the claim was given up.
        """
        if not isinstance(outcome, LaunchedInstance):
            return outcome
        try:
            if not outcome.provider_id:
                return CloudProviderError("the launched instance has no provider ID")
            if outcome.existed:
                claim = self._stamps.with_earlier(claim)
            return launched_claim(claim, outcome)
        except Exception as error:
            return CloudProviderError(f"the launched instance cannot be parsed: {error!r}")

    def _record_finished(self, claim: NodeClaim, launched: NodeClaim | None) -> None:
        self._cluster_state.fold(
            LaunchCallFinished(claim_uid=claim.uid, launched=launched, at=self._runtime.clock.now())
        )

    def _record_shortages(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Make the offerings unavailable that a successful launch found sold out."""
        shortages = outcome.shortages if isinstance(outcome, LaunchedInstance) else ()
        claim = request.node_claim
        for shortage in shortages:
            if not (shortage.offerings or shortage.quota_groups):
                continue
            self._log.info("launch found offerings sold out", error=str(shortage))
            self._cluster_state.fold(
                OfferingsUnavailable(
                    offerings=exhausted_offerings(
                        shortage,
                        request.instance_types,
                        Requirements.from_specs(claim.spec.requirements),
                    ),
                    provider=self._providers.provider_of(claim.spec.node_class_ref),
                    node_class=exhausted_for(claim, shortage),
                    at=self._cluster_state.now,
                )
            )

    def _log_launch(self, claim: NodeClaim) -> None:
        labels = claim.metadata.labels
        self._log.info(
            "launched nodeclaim",
            decision=_decision_of(claim),
            NodeClaim={"name": claim.name},
            **{
                "provider-id": claim.status.provider_id,
                "instance-type": labels.get(INSTANCE_TYPE, ""),
                "zone": labels.get(ZONE, ""),
                "capacity-type": labels.get(CAPACITY_TYPE, ""),
                "allocatable": {n: str(value) for n, value in claim.status.allocatable.items()},
            },
        )


def _decision_of(claim: NodeClaim) -> str:
    """Return the id of the decision that made a claim; empty for claims of others."""
    return claim.metadata.annotations.get(DECISION, "")


def _pool_for_standalone_claim(claim: NodeClaim) -> NodePool:
    """Return a made-up pool for a claim without one, because providers list types for pools."""
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
        spec=NodePoolSpec(template=NodeClaimTemplate(metadata=labels, spec=template)),
    )
