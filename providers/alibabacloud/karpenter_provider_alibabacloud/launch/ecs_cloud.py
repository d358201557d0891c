"""Launches instances by provisioning groups or RunInstances.

The kit's launch state machine makes these calls. One call serves claims with equal requests. What
could not be had is asked for elsewhere: in other targets of the plan, other vSwitches, with other
images.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import NODE_POOL, RESERVED, ZONE
from karpenter_core.errors import BadInputError, CloudProviderError, LaunchFailedError
from karpenter_core.provider.kit.launch.cloud import (
    AnsweredCall,
    CallFailure,
    CloudTraits,
    FailureKind,
)
from karpenter_core.provider.kit.launch.existing_instances import as_outcome
from karpenter_core.provider.kit.launch.groups import claim_ref
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.codes import (
    SHORTAGES,
    ApiError,
    ErrorClass,
    core_error,
    launch_reason,
)
from karpenter_provider_alibabacloud.described_instances import VISIBLE_WITHIN
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.launch.answers import (
    LaunchAnswer,
    read_group_answer,
    read_run_answer,
    refusal_answer,
    shortages_of,
    unserved_outcome,
)
from karpenter_provider_alibabacloud.launch.boot_configuration import BootConfiguration
from karpenter_provider_alibabacloud.launch.calls import ADDRESSES_LIFE, LaunchApiCall
from karpenter_provider_alibabacloud.launch.launched_instances import (
    LaunchDetails,
    launched_instance,
)
from karpenter_provider_alibabacloud.launch.plans import plan_launches
from karpenter_provider_alibabacloud.launch.preconditions import unmet_precondition
from karpenter_provider_alibabacloud.launch.requests import RUN_INSTANCES
from karpenter_provider_alibabacloud.launch.targets import BALANCED, ranked, spread, zones_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_core.provider.kit.token_bucket import TokenBucket
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
    from karpenter_provider_alibabacloud.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.launch.calls import (
        Availability,
        LaunchCallBuilder,
        TriedTarget,
    )
    from karpenter_provider_alibabacloud.launch.plans import LaunchPlan
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["ECS_TRAITS", "EcsCloud"]

ECS_TRAITS: Final = CloudTraits(
    name="ECS",
    log_name="alibabacloud.launch",
    bad_input_reason="InvalidNodeClass",
    shown_within=VISIBLE_WITHIN,
    finds_claims=False,
)
_ROUNDS: Final = 5
"""Maximum number of calls of a launch to other targets."""
_QUOTA_LIFE: Final = timedelta(minutes=10)
"""Time that offerings with a used-up quota are unavailable."""
_MISMATCHED_REQUEST: Final = "IdempotentParameterMismatch"
"""The code for a token that came before, with something else: another process launched the same."""
_INCONCLUSIVE: Final = frozenset(
    {ErrorClass.CAPACITY, ErrorClass.ADDRESSES, ErrorClass.QUOTA, ErrorClass.DISK_QUOTA}
)
"""Refusals of a repeated token that instances of an earlier attempt may cause: they use it up."""

AnsweredEcsCall = AnsweredCall[LaunchApiCall, LaunchAnswer]


@final
class EcsJob:
    """Claims that one call can be for, and the targets that were tried."""

    def __init__(
        self,
        calls: LaunchCallBuilder,
        plan: LaunchPlan,
        boot_configuration: BootConfiguration,
        requests: Sequence[LaunchRequest],
        zones: Sequence[str],
    ) -> None:
        """`zones` are in the order to try them; without any, prices decide."""
        self.requests: Final = tuple(requests)
        self._calls: Final = calls
        self._plan: Final = plan
        self._boot_configuration: Final = boot_configuration
        self._zones: Final = tuple(zones)
        self._tried: Final[set[TriedTarget]] = set()
        self._rounds_left = _ROUNDS
        self._has_failed_unexpectedly = False

    def next_call(
        self, requests: Sequence[LaunchRequest], attempts: Mapping[str, int]
    ) -> LaunchApiCall | None:
        """Return the call for targets that were not tried; None when nothing is left to try."""
        if not self._rounds_left:
            return None
        self._rounds_left -= 1
        return self._calls.build(
            self._plan,
            self._boot_configuration,
            requests,
            zones=self._zones,
            tried=self._tried,
            attempts=attempts,
        )

    def note_answer(self, answered: AnsweredEcsCall) -> None:
        """Try no target again; after a failure that is no shortage, try others only once."""
        call, answer = answered.call, answered.answer
        self._tried.update(call.trials(answer.tried_of(call.targets)))
        if any(not failure.is_shortage for failure in answer.failures):
            if self._has_failed_unexpectedly:
                self._rounds_left = 0
            self._has_failed_unexpectedly = True

    def error_without_call(self) -> CloudProviderError:
        """Return the outcome of claims for which nothing that was planned is available."""
        return self._calls.unavailable_error(self._plan)


@final
class EcsCloud:
    """ECS as the launch state machine sees it; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        calls: LaunchCallBuilder,
        reader: InstanceReader,
        availability: Availability,
        recent: RecentLaunches,
        types: CurrentInstanceTypes,
        bootstrapper: UserDataBuilder,
        nodes: Callable[[], Mapping[str, NodeView]],
        bucket: TokenBucket,
        sleep: Callable[[float], None] = time.sleep,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
        observe_targets: Callable[[int], None] = lambda _targets: None,
    ) -> None:
        """`nodes` is `ProviderContext.read_nodes`; `bucket` limits the rate of calls.

        `observe_batch` gets the number of claims of a call, `observe_targets` that of its targets.
        """
        self._clients: Final = clients
        self._clock: Final = clock
        self._calls: Final = calls
        self._reader: Final = reader
        self._availability: Final = availability
        self._recent: Final = recent
        self._types: Final = types
        self._bootstrapper: Final = bootstrapper
        self._nodes: Final = nodes
        self._bucket: Final = bucket
        self._sleep: Final = sleep
        self._observe_batch: Final = observe_batch
        self._observe_targets: Final = observe_targets
        self._log: FilteringBoundLogger = structlog.get_logger(ECS_TRAITS.log_name)

    # -- instances -------------------------------------------------------------------------------

    def describe(self, _tokens: Sequence[str], /) -> Sequence[DescribedInstance]:
        """Return all instances of the cluster: tags are found by whole values only."""
        listing = self._reader.of_cluster()
        if listing.problem:
            raise CloudProviderError(f"the cluster's instances cannot be read: {listing.problem}")
        return listing.instances

    def outcome_of_existing(
        self, request: LaunchRequest, instance: DescribedInstance
    ) -> LaunchedInstance:
        """Return the outcome of a claim whose instance exists."""
        details = LaunchDetails(
            region=self._reader.region,
            instance_id=instance.id,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            image_id=instance.image_id,
            reservation_id=instance.reservation_id,
        )
        instance_type = self._type_of(instance, request)
        return launched_instance(details, instance_type, request.node_claim)

    def outcome_of_new(
        self, answered: AnsweredEcsCall, instance_id: str, request: LaunchRequest
    ) -> LaunchedInstance:
        """Return the outcome of a claim for which a call has just launched an instance."""
        target = answered.answer.target_of(instance_id)
        details = LaunchDetails(
            region=self._clients.region,
            instance_id=instance_id,
            zone=target.zone,
            capacity_type=answered.call.plan.group.capacity_type,
            image_id=target.image_id,
            reservation_id=target.reservation_id,
        )
        name = target.instance_type.name
        instance_type = next(it for it in request.instance_types if it.name == name)
        return launched_instance(details, instance_type, request.node_claim)

    def _type_of(self, instance: DescribedInstance, request: LaunchRequest) -> InstanceType:
        """Return the type of an instance, which the claim may no longer be offered."""
        for it in (*request.instance_types, *self._types.instance_types(_node_class_of(request))):
            if it.name == instance.instance_type:
                return it
        raise CloudProviderError(
            f'instance {instance.id} is of the type "{instance.instance_type}", which the region '
            "does not sell any more"
        )

    # -- launches --------------------------------------------------------------------------------

    def jobs(
        self, requests: Sequence[LaunchRequest]
    ) -> tuple[Sequence[EcsJob], Mapping[str, CloudProviderError]]:
        """Return the launches for claims of one NodeClass, and by token why some have none."""
        node_class = _node_class_of(requests[0])
        unmet = unmet_precondition(node_class)
        if unmet is not None:
            raise unmet
        plans, unplanned = plan_launches(requests, self._calls.launch_context(node_class))
        refused = dict(unplanned)
        jobs: list[EcsJob] = []
        for plan in plans:
            try:
                boot_configuration = self._boot_configuration(plan)
            except (CloudProviderError, BadInputError) as error:
                outcome = as_outcome(error, reason=ECS_TRAITS.bad_input_reason)
                refused |= {request.token: outcome for request in plan.group.requests}
                continue
            jobs += [
                EcsJob(self._calls, plan, boot_configuration, batch, zones)
                for batch, zones in self._batches_by_zone(plan)
            ]
        return jobs, refused

    def _boot_configuration(self, plan: LaunchPlan) -> BootConfiguration:
        if plan.group.is_inflexible:
            self._log.info(
                "launching on-demand although spot is allowed: allow more instance types",
                instance_types=len(plan.group.candidates),
            )
        return BootConfiguration(
            plan.node_class,
            plan.group.requests[0].node_claim,
            capacity_type=plan.group.capacity_type,
            types=self._types,
            bootstrapper=self._bootstrapper,
        )

    def _batches_by_zone(
        self, plan: LaunchPlan
    ) -> list[tuple[list[LaunchRequest], tuple[str, ...]]]:
        """Cut a plan into calls: as many claims as the tags of one can name.

        With the policy `balanced` each is for a zone, and the others come after that.
        """
        if plan.node_class.spec.v_switch_selection_policy != BALANCED:
            return [(batch, ()) for batch in self._batches(plan, plan.group.requests)]
        zones = zones_of(plan.group.candidates)
        nodes, free = self._nodes_by_zone(plan), self._calls.free_addresses(plan.node_class)
        order = ranked(zones, nodes=nodes, free=free)
        return [
            (batch, (zone, *(other for other in order if other != zone)))
            for zone, members in spread(plan.group.requests, zones, nodes=nodes, free=free).items()
            for batch in self._batches(plan, members)
        ]

    def _batches(
        self, plan: LaunchPlan, requests: Sequence[LaunchRequest]
    ) -> list[list[LaunchRequest]]:
        """RunInstances makes up to 100 instances, more than tags name (at most 72 claims)."""
        by_uid = {request.token: request for request in requests}
        batches = CLAIM_TAGS.batches(
            (claim_ref(request) for request in requests),
            node_pool=plan.group.node_pool,
            other_tags=len(self._calls.tags(plan)),
        )
        return [[by_uid[claim.uid] for claim in batch] for batch in batches]

    def _nodes_by_zone(self, plan: LaunchPlan) -> Counter[str]:
        """Count the nodes and recent launches of the plan's NodePool, by zone."""
        pool = plan.group.node_pool
        nodes = [it for it in self._nodes().values() if it.labels.get(NODE_POOL) == pool]
        provider_ids = {node.provider_id for node in nodes}
        counts = Counter(node.labels.get(ZONE, "") for node in nodes)
        counts.update(
            launch.outcome.zone
            for launch in self._recent.all().values()
            if launch.outcome.labels.get(NODE_POOL) == pool
            and launch.outcome.provider_id not in provider_ids
        )
        return counts

    # -- calls -----------------------------------------------------------------------------------

    def send(self, call: LaunchApiCall) -> LaunchAnswer | CallFailure[LaunchAnswer]:
        """Make a call once, when the rate limit allows it."""
        wait_seconds = self._bucket.reserve()
        if wait_seconds > 0:
            self._sleep(wait_seconds)
        self._observe_batch(call.action, len(call.requests))
        self._observe_targets(len(call.targets))
        try:
            body = self._clients.ecs.call(call.action, call.parameters)
        except ApiError as error:
            failure = _call_failure(call, error)
            if failure.needs_other_form:
                self._calls.use_one_image_a_call()
            return failure
        if call.action == RUN_INSTANCES:
            return read_run_answer(body, call.targets[0])
        return read_group_answer(body, call.targets)

    def release(self, call: LaunchApiCall) -> None:
        """Give the addresses back that a call holds."""
        self._availability.vswitches.restore(call.hold)

    def record(self, answered: AnsweredEcsCall) -> None:
        """Record used addresses and reservations, and exhausted capacity."""
        call, answer = answered.call, answered.answer
        now, availability = self._clock.now(), self._availability
        capacity_type = call.plan.group.capacity_type
        availability.vswitches.note_launched(
            call.hold, answer.count_by(lambda target: target.vswitch.id)
        )
        for target in {id(item.target): item.target for item in answer.instances}.values():
            mark = UnavailableOffering(target.instance_type.name, target.zone, capacity_type)
            availability.unavailable_offerings.delete(mark, now=now)
        if capacity_type == RESERVED:
            for item in answer.instances:
                availability.reservation_counts.note_launched(
                    item.target.reservation_id, launched_at=now
                )
        shortages = shortages_of(
            answer.failures,
            capacity_type=capacity_type,
            categories=call.categories,
        )
        if shortages.offerings:
            availability.unavailable_offerings.mark(*shortages.offerings, now=now)
        if shortages.quotas:
            availability.unavailable_offerings.mark_shortages(
                *shortages.quotas, now=now, life=_QUOTA_LIFE
            )
        for vswitch_id in shortages.vswitches:
            availability.unavailable_offerings.mark_subnet(vswitch_id, now=now, life=ADDRESSES_LIFE)
            availability.vswitches.note_exhausted(vswitch_id)
        availability.disks.mark(*shortages.disks)
        availability.reservation_counts.note_exhausted(*shortages.reservations)

    def unserved_error(self, answered: Sequence[AnsweredEcsCall]) -> CloudProviderError:
        """Return the outcome of claims that none of these calls brought an instance."""
        tried = [target for each in answered for target in each.answer.tried_of(each.call.targets)]
        return unserved_outcome([each.answer for each in answered], tried)


def _call_failure(call: LaunchApiCall, error: ApiError) -> CallFailure[LaunchAnswer]:
    """Classify the failure of a call."""
    outcome, kind = _refused_outcome(error), error.error_class
    if error.code == _MISMATCHED_REQUEST:
        return CallFailure(kind=FailureKind.LAUNCHED_ELSEWHERE, error=outcome)
    answer = refusal_answer(error, call.targets)
    if kind in SHORTAGES and kind not in _INCONCLUSIVE:
        return CallFailure(kind=FailureKind.FINAL, error=outcome, answer=answer)
    if error.may_be_done:
        return CallFailure(kind=FailureKind.UNANSWERED, error=outcome)
    if kind in _INCONCLUSIVE:
        return CallFailure(kind=FailureKind.EXHAUSTED, error=outcome, answer=answer)
    return CallFailure(
        kind=FailureKind.REFUSED,
        error=outcome,
        # A code that no table has may be about the target.
        answer=answer if kind is ErrorClass.UNKNOWN else None,
        needs_other_form=_is_about_images(call, error),
    )


def _refused_outcome(error: ApiError) -> CloudProviderError:
    """Return the outcome of a call that was refused."""
    passing = {ErrorClass.THROTTLED, ErrorClass.AUTH, ErrorClass.TRANSIENT}
    if error.error_class in passing or error.code == _MISMATCHED_REQUEST:
        outcome = core_error(error)
    else:
        reason = launch_reason(error.code, error.message, status=error.status)
        outcome = LaunchFailedError(str(error), reason=reason)
    outcome.__cause__ = error
    return outcome


def _is_about_images(call: LaunchApiCall, error: ApiError) -> bool:
    """Whether ECS refuses the images of instances of two architectures in one call."""
    error_text = f"{error.code} {error.message}"
    return (
        call.has_images
        and error.error_class is ErrorClass.CONFIGURATION
        and "LaunchTemplateConfig" in error_text
        and "ImageId" in error_text
    )


def _node_class_of(request: LaunchRequest) -> ECSNodeClass:
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

    if not isinstance(request.node_class, ECSNodeClass):
        raise BadInputError(f'"{request.node_class.name}" is not an ECSNodeClass')
    return request.node_class
