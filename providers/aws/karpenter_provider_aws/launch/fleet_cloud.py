"""Launches instances by CreateFleet, for the kit's launch state machine.

A fleet serves claims with equal requests. Where one of its subnets turns out to be full, another one
of its zone is tried; where it could not take all templates and had nothing, the others are. Templates
that EC2 does not find are looked for again, and made.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import (
    AuthError,
    BadInputError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.launch.answers import merge_shortages
from karpenter_core.provider.kit.launch.cloud import (
    AnsweredCall,
    CallFailure,
    CloudTraits,
    FailureKind,
)
from karpenter_core.provider.kit.launch.existing_instances import as_outcome
from karpenter_core.provider.kit.launch.groups import claim_ref
from karpenter_provider_aws.codes import (
    SERVICE_LINKED_ROLE_DENIED,
    is_launch_template_missing,
    is_token_used,
    is_unfulfillable,
    launch_failure,
)
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import claim_batches
from karpenter_provider_aws.launch.answers import (
    LaunchAnswer,
    read_answer,
    refusal_answer,
    shortages_of,
    unserved_outcome,
)
from karpenter_provider_aws.launch.fleet_calls import FleetCall, FleetCallBuilder
from karpenter_provider_aws.launch.launched_instances import LaunchDetails, launched_instance
from karpenter_provider_aws.launch.plans import LaunchContext, plan_launches
from karpenter_provider_aws.launch.preconditions import unmet_precondition
from karpenter_provider_aws.launch.template_groups import TemplateRequest, templates_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger
    from types_boto3_ec2.type_defs import CreateFleetResultTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_aws.catalogue.offerings import PriceList
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader
    from karpenter_provider_aws.launch.answers import TargetFailure
    from karpenter_provider_aws.launch.fleet_calls import Availability
    from karpenter_provider_aws.launch.plans import LaunchPlan
    from karpenter_provider_aws.launch.template_groups import ClusterDetails, LaunchTemplate
    from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["EC2_TRAITS", "FailureCounter", "FleetCloud"]

EC2_TRAITS: Final = CloudTraits(
    name="EC2",
    log_name="aws.launch",
    bad_input_reason="InstanceTypeResolutionFailed",
    shown_within=timedelta(minutes=5),
    quiet_within=timedelta(minutes=5),
    finds_claims=True,
)
_OTHER_SUBNETS: Final = 2
"""Maximum number of further calls of a launch to other subnets."""
_REPEATS_WITHOUT_TEMPLATE: Final = 1
"""Maximum number of further calls of a launch after an answer that misses a template."""

AnsweredFleet = AnsweredCall[FleetCall, LaunchAnswer]


class FailureCounter(Protocol):
    """Counts what fleets could not have, for `karpenter_cloudprovider_instance_launch_failures_total`."""

    def __call__(self, *, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
        """Count one failure."""
        ...


@final
class FleetJob:
    """Claims that one fleet can serve, and the templates and subnets that were tried."""

    def __init__(
        self,
        calls: FleetCallBuilder,
        plan: LaunchPlan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
    ) -> None:
        self.requests: Final = tuple(requests)
        self._calls: Final = calls
        self._plan: Final = plan
        self._untried_templates = templates
        self._other_subnets = _OTHER_SUBNETS
        self._repeats_without_template = _REPEATS_WITHOUT_TEMPLATE
        self._answered: Final[list[AnsweredFleet]] = []

    def next_call(
        self, requests: Sequence[LaunchRequest], attempts: Mapping[str, int]
    ) -> FleetCall | None:
        """Return a fleet of the templates that were not tried; None when nothing is left to try."""
        if not self._untried_templates:
            return None
        return self._calls.build(self._plan, requests, self._untried_templates, attempts)

    def note_answer(self, answered: AnsweredFleet) -> None:
        """Choose between the same templates, other subnets and other templates for the next call."""
        if self._repeats_without_template and _misses_template(answered.answer):
            self._repeats_without_template -= 1
            return
        self._answered.append(answered)
        if self._other_subnets and self._has_other_subnets(answered.answer):
            self._other_subnets -= 1
            return
        error = _unserved_error(self._answered)
        may_succeed = (
            isinstance(error, InsufficientCapacityError)
            and error.scope is not ExhaustedScope.REGION
        )
        self._untried_templates = (
            answered.call.untried_templates(self._untried_templates) if may_succeed else ()
        )

    def error_without_call(self) -> CloudProviderError:
        """Return the outcome of claims for which there was no target."""
        return LaunchFailedError("the NodeClass has no subnet in the zone of any offering")

    def _has_other_subnets(self, answer: LaunchAnswer) -> bool:
        """Whether capacity alone was lacking, and a zone with a full subnet has another one."""
        if not all(failure.is_shortage for failure in answer.failures):
            return False
        zones = {
            failure.target.subnet.zone
            for failure in answer.failures
            if failure.is_out_of_addresses and failure.target is not None
        }
        return self._calls.has_open_subnet(self._plan.node_class, zones)


@final
class FleetCloud:
    """EC2 as the launch state machine sees it; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        calls: FleetCallBuilder,
        reader: InstanceReader,
        templates: ClusterLaunchTemplates,
        availability: Availability,
        types: CurrentInstanceTypes,
        prices: PriceList,
        details: Callable[[], ClusterDetails],
        shifts: Callable[[], ShiftedZones],
        count_failure: FailureCounter,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
    ) -> None:
        """Take `details` from `ClusterSource`, `shifts` from `ZonalShifts.zones`.

        `count_failure` and `observe_batch` are those of `AwsMetrics`.
        """
        self._clients: Final = clients
        self._clock: Final = clock
        self._calls: Final = calls
        self._reader: Final = reader
        self._templates: Final = templates
        self._availability: Final = availability
        self._types: Final = types
        self._prices: Final = prices
        self._details: Final = details
        self._shifts: Final = shifts
        self._count_failure: Final = count_failure
        self._observe_batch: Final = observe_batch
        self._log: FilteringBoundLogger = structlog.get_logger(EC2_TRAITS.log_name)

    # -- instances -------------------------------------------------------------------------------

    def describe(self, tokens: Sequence[str], /) -> Sequence[DescribedInstance]:
        """Return all instances of the fleets that were made for these claims."""
        return self._reader.of_claims(tokens)

    def outcome_of_existing(
        self, request: LaunchRequest, instance: DescribedInstance
    ) -> LaunchedInstance:
        """Return the outcome of a claim whose instance exists."""
        node_class = _node_class_of(request)
        details = LaunchDetails(
            instance_id=instance.id,
            zone=instance.zone,
            subnet_id=instance.subnet_id,
            capacity_type=instance.capacity_type,
            image_id=instance.image_id,
            tenancy=instance.tenancy,
            reservation_id=instance.reservation_id,
            partition=instance.partition,
        )
        instance_type = self._type_of(instance.instance_type, request, node_class)
        return launched_instance(details, instance_type, request.node_claim, node_class)

    def outcome_of_new(
        self, answered: AnsweredFleet, instance_id: str, request: LaunchRequest
    ) -> LaunchedInstance:
        """Return the outcome of a claim for which a fleet has just launched an instance."""
        plan, target = answered.call.plan, answered.answer.target_of(instance_id)
        details = LaunchDetails(
            instance_id=instance_id,
            zone=target.offering.zone,
            subnet_id=target.subnet.id,
            capacity_type=plan.group.capacity_type,
            image_id=target.image_id,
            tenancy=plan.tenancy,
            reservation_id=target.reservation_id,
            partition=plan.partition,
        )
        instance_type = next(it for it in request.instance_types if it.name == target.instance_type)
        return launched_instance(details, instance_type, request.node_claim, plan.node_class)

    def _type_of(self, name: str, request: LaunchRequest, node_class: EC2NodeClass) -> InstanceType:
        """Return a type, which the claim may no longer be offered."""
        for it in (*request.instance_types, *self._types.instance_types(node_class)):
            if it.name == name:
                return it
        raise CloudProviderError(f'instance type "{name}" is not sold any more')

    # -- launches --------------------------------------------------------------------------------

    def jobs(
        self, requests: Sequence[LaunchRequest]
    ) -> tuple[Sequence[FleetJob], Mapping[str, CloudProviderError]]:
        """Return the fleets for claims of one NodeClass, and by token why some have none."""
        node_class = _node_class_of(requests[0])
        unmet = unmet_precondition(node_class)
        if unmet is not None:
            raise unmet
        plans, unplanned = plan_launches(requests, self._launch_context(node_class))
        refused = dict(unplanned)
        jobs: list[FleetJob] = []
        for plan in plans:
            try:
                templates = self._templates_of(plan)
            except (CloudProviderError, BadInputError) as error:
                outcome = as_outcome(error, reason=EC2_TRAITS.bad_input_reason)
                refused |= {request.token: outcome for request in plan.group.requests}
                continue
            batches = self._batches(plan)
            jobs += [FleetJob(self._calls, plan, batch, templates) for batch in batches]
        return jobs, refused

    def _launch_context(self, node_class: EC2NodeClass) -> LaunchContext:
        group = self._types.group_of(node_class)
        if node_class.spec.placement_group_selector is not None and group is None:
            raise NodeClassNotReadyError(
                f'EC2NodeClass "{node_class.name}": spec.placementGroupSelector finds no group'
            )
        return LaunchContext(
            node_class=node_class,
            shortages=self._availability.unavailable_offerings.view(now=self._clock.now()),
            shifted=self._shifts(),
            reserved_left=self._availability.reservation_counts.remaining,
            prices=self._prices,
            placement_group=group,
        )

    def _templates_of(self, plan: LaunchPlan) -> tuple[LaunchTemplate, ...]:
        if plan.group.is_inflexible:
            self._log.info(
                "launching on-demand although spot is allowed: allow more instance types",
                instance_types=len(plan.group.candidates),
            )
        group = plan.launch_context.placement_group
        return templates_for(
            TemplateRequest(
                node_class=plan.node_class,
                node_claim=plan.group.requests[0].node_claim,
                instance_types=plan.group.instance_types(),
                capacity_type=plan.group.capacity_type,
                tags=self._calls.tags(plan),
                tenancy=plan.tenancy,
                placement_group_id="" if group is None else group.id,
                placement_partition=plan.partition,
            ),
            self._details(),
            self._types.sizing_of(plan.node_class),
            self._types.efa_places,
        )

    def _batches(self, plan: LaunchPlan) -> list[list[LaunchRequest]]:
        """Cut a plan into fleets: as many claims as the tags of one can name."""
        by_uid = {request.token: request for request in plan.group.requests}
        batches = claim_batches(
            (claim_ref(request) for request in plan.group.requests),
            other_tags=len(self._calls.tags(plan)),
        )
        return [[by_uid[claim.uid] for claim in batch] for batch in batches]

    # -- calls -----------------------------------------------------------------------------------

    def send(self, call: FleetCall) -> LaunchAnswer | CallFailure[LaunchAnswer]:
        """Make a fleet once."""
        is_sent = False

        def create() -> CreateFleetResultTypeDef:
            nonlocal is_sent
            is_sent = True
            self._observe_batch("create_fleet", len(call.requests))
            with core_errors_of("ec2:CreateFleet"):
                return self._clients.ec2.create_fleet(**call.request)

        try:
            result = self._templates.run(call.templates, create)
        except CloudProviderError as error:
            return _call_failure(error, is_sent=is_sent)
        return read_answer(result, call.targets)

    def release(self, call: FleetCall) -> None:
        """Give the addresses back that a call holds."""
        self._availability.subnets.restore(call.hold)

    def record(self, answered: AnsweredFleet) -> None:
        """Record used addresses and reservations, and exhausted capacity."""
        call, answer = answered.call, answered.answer
        now, availability, plan = self._clock.now(), self._availability, call.plan
        availability.subnets.note_launched(
            call.hold, answer.count_by(lambda target: target.subnet.id)
        )
        if plan.group.capacity_type == RESERVED:
            for item in answer.instances:
                availability.reservation_counts.note_launched(
                    item.target.reservation_id, launched_at=now
                )
        group = plan.launch_context.placement_group
        shortages = shortages_of(
            answer.failures,
            call.targets,
            plan.group.capacity_type,
            placement_group="" if group is None else group.id,
            partition=str(plan.partition) if plan.partition else "",
            offered=call.allowed_types(),
        )
        if shortages.offerings:
            availability.unavailable_offerings.mark(*shortages.offerings, now=now)
        if shortages.wide:
            availability.unavailable_offerings.mark_shortages(*shortages.wide, now=now)
        for subnet_id in shortages.subnets:
            availability.unavailable_offerings.mark_subnet(subnet_id, now=now)
            availability.subnets.note_exhausted(subnet_id)
        availability.reservation_counts.note_exhausted(*shortages.reservations)
        if _misses_template(answer):
            self._templates.invalidate(template.name for template in call.templates)
        self._count(answer.failures, plan.group.capacity_type)

    def unserved_error(self, answered: Sequence[AnsweredFleet]) -> CloudProviderError:
        """Return the outcome of claims that none of these fleets brought an instance."""
        return _unserved_error(answered)

    def _count(self, failures: Iterable[TargetFailure], capacity_type: str) -> None:
        for failure in failures:
            subnet = None if failure.target is None else failure.target.subnet
            self._count_failure(
                zone="" if subnet is None else subnet.zone,
                zone_id="" if subnet is None else subnet.zone_id,
                capacity_type=capacity_type,
                reason=failure.reason,
            )


def _unserved_error(answered: Sequence[AnsweredFleet]) -> CloudProviderError:
    return reduce(
        merge_shortages,
        (
            unserved_outcome(each.answer, each.call.targets, each.call.allowed_types())
            for each in answered
        ),
    )


def _misses_template(answer: LaunchAnswer) -> bool:
    """Whether EC2 accepted a fleet and did not find one of its launch templates."""
    return any(is_launch_template_missing(failure.code) for failure in answer.failures)


def _call_failure(error: CloudProviderError, *, is_sent: bool) -> CallFailure[LaunchAnswer]:
    """Classify the failure of a fleet; one that was not sent failed for want of its templates."""
    if isinstance(error, ThrottledError):
        return CallFailure(kind=FailureKind.REFUSED, error=error)
    failure = refusal_behind(error)
    is_uncertain = isinstance(error, UncertainCallError)
    if is_sent and (failure is None or is_uncertain or is_token_used(failure.code)):
        return CallFailure(kind=FailureKind.UNANSWERED, error=error)
    if failure is not None and (
        is_unfulfillable(failure.code, failure.message)
        or failure.code == SERVICE_LINKED_ROLE_DENIED
    ):
        answer = refusal_answer(failure.code, failure.message)
        return CallFailure(kind=FailureKind.EXHAUSTED, error=error, answer=answer)
    return CallFailure(kind=FailureKind.REFUSED, error=_refused_outcome(error))


def _refused_outcome(error: CloudProviderError) -> CloudProviderError:
    """Return the outcome of a call that EC2 refused, or that was never sent."""
    failure = refusal_behind(error)
    if failure is None:
        return error
    launch = launch_failure(failure.code, failure.message)
    if isinstance(error, AuthError):
        message = f"{error.action}: {launch.message}"
        return AuthError(message, action=error.action, reason=launch.reason)
    return LaunchFailedError(str(error), reason=launch.reason)


def _node_class_of(request: LaunchRequest) -> EC2NodeClass:
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

    if not isinstance(request.node_class, EC2NodeClass):
        raise BadInputError(f'"{request.node_class.name}" is not an EC2NodeClass')
    return request.node_class
