"""Sends launch calls, records their answers, repeats unanswered ones.

A call that is not answered may have been carried out. It is remembered, and repeated word for word
when one of its claims comes back: EC2 answers the same token with the same instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.contract import Instance
from karpenter_core.provider.kit.recent_launches import (
    RecentLaunch,
    RecentLaunches,
    UnansweredCalls,
)
from karpenter_provider_aws.codes import (
    INSUFFICIENT_ADDRESSES,
    SERVICE_LINKED_ROLE_DENIED,
    is_server_fault,
    is_token_used,
    is_unfulfillable,
    launch_failure,
)
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import CLAIM_TAGS, FLEET_ID_TAG, claim_tags, owned_tags
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG
from karpenter_provider_aws.launch.answers import (
    LaunchAnswer,
    merged_shortage,
    read_answer,
    refusal_answer,
    shortages_of,
    unserved_outcome,
)
from karpenter_provider_aws.launch.fleet import fleet_request, targets_of
from karpenter_provider_aws.launch.launched_instances import LaunchDetails, launched_instance
from karpenter_provider_aws.launch.plans import claim_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger
    from types_boto3_ec2.type_defs import CreateFleetRequestTypeDef, CreateFleetResultTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.recent_launches import ClaimRef
    from karpenter_core.provider.kit.subnet_addresses import AddressHold
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, Subnet
    from karpenter_provider_aws.discovery.reservations import ReservationCounts
    from karpenter_provider_aws.discovery.subnets import SubnetReader
    from karpenter_provider_aws.launch.answers import NewInstance, TargetFailure
    from karpenter_provider_aws.launch.fleet import LaunchTarget
    from karpenter_provider_aws.launch.plans import LaunchPlan
    from karpenter_provider_aws.launch.template_groups import LaunchTemplate
    from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["Availability", "FailureCounter", "LaunchApiCall", "LaunchExecutor", "no_counter"]

_ROUNDS: Final = 3
"""Maximum number of calls of a launch to other subnets, within one call of the core."""


class FailureCounter(Protocol):
    """Counts what fleets could not have, for `karpenter_cloudprovider_instance_launch_failures_total`."""

    def __call__(self, *, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
        """Count one failure."""
        ...


def no_counter(*, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchApiCall:
    """A call as it was made, to be read with its answer, and made again if none comes."""

    plan: LaunchPlan
    requests: Mapping[str, LaunchRequest]
    """By token."""
    templates: tuple[LaunchTemplate, ...]
    targets: tuple[LaunchTarget, ...]
    request: CreateFleetRequestTypeDef
    hold: AddressHold[Subnet]

    @property
    def claims(self) -> tuple[ClaimRef, ...]:
        """The claims of the instances."""
        return tuple(claim_ref(request) for request in self.requests.values())

    def allowed_types(self) -> tuple[InstanceType, ...]:
        """Return the types that any of its claims may have."""
        types = {it.name: it for each in self.requests.values() for it in each.instance_types}
        return tuple(types.values())

    def requests_of(self, tokens: Container[str]) -> list[LaunchRequest]:
        """Return the requests that have one of these tokens."""
        return [request for token, request in self.requests.items() if token in tokens]

    def untried_templates(self, templates: Iterable[LaunchTemplate]) -> tuple[LaunchTemplate, ...]:
        """Return the templates that it was not made with."""
        return tuple(template for template in templates if template not in self.templates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The records of available capacity that launches read and update."""

    subnets: SubnetReader
    reservation_counts: ReservationCounts
    unavailable_offerings: UnavailableOfferings


@final
class LaunchExecutor:
    """Sends launch calls and records their answers; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        cluster: str,
        templates: ClusterLaunchTemplates,
        availability: Availability,
        recent: RecentLaunches,
        count_failure: FailureCounter = no_counter,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
    ) -> None:
        """Take `count_failure` and `observe_batch` from `AwsMetrics`."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._templates: Final = templates
        self._availability: Final = availability
        self._recent: Final = recent
        self._count_failure: Final = count_failure
        self._observe_batch: Final = observe_batch
        self._unanswered_calls: Final[UnansweredCalls[LaunchApiCall]] = UnansweredCalls(clock)
        self._log: FilteringBoundLogger = structlog.get_logger("aws.launch")

    def tags(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the tags of everything that is made for a plan."""
        return owned_tags(
            plan.node_class.spec.tags,
            cluster=self._cluster,
            node_class=plan.node_class.name,
            node_pool=plan.node_pool,
        )

    def unanswered_call(self, uid: str) -> LaunchApiCall | None:
        """Return the call for a claim that was not answered, and may have been carried out."""
        return self._unanswered_calls.call_for(uid)

    def has_attempted(self, uid: str) -> bool:
        """Whether this process has called for a claim, and repeats its call or makes another one.

        Its call was not answered, or was answered and brought the claim nothing.
        """
        return self._unanswered_calls.has_attempted(uid)

    def execute(
        self,
        plan: LaunchPlan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
    ) -> dict[str, LaunchOutcome]:
        """Launch an instance for each of these requests of a plan; return the outcomes by token.

        Where a subnet turns out to be full, another one of its zone is tried; and where a fleet
        could not take all templates and had nothing, the others are.
        """
        outcomes: dict[str, LaunchOutcome] = {}
        left, untried = list(requests), templates
        other_subnets = _ROUNDS - 1
        while left and untried:
            call = self._build_call(plan, left, untried)
            if call is None:
                break
            answer, brought = self._send(call)
            outcomes |= {t: merged_shortage(outcomes.get(t), o) for t, o in brought.items()}
            if answer is None:
                break
            if other_subnets and self._has_other_subnets(plan, answer):
                other_subnets -= 1
                left = call.requests_of({t for t, o in outcomes.items() if _is_error(o)})
            else:
                untried = call.untried_templates(untried)
                left = call.requests_of(
                    {t for t, o in outcomes.items() if _may_succeed_elsewhere(o)}
                )
        nowhere = LaunchFailedError("the NodeClass has no subnet in the zone of any offering")
        return {request.token: outcomes.get(request.token, nowhere) for request in requests}

    def repeat(self, call: LaunchApiCall) -> dict[str, LaunchOutcome]:
        """Make a call again that was not answered; return the outcomes of all its claims by token."""
        return self._send(call)[1]

    def _build_call(
        self,
        plan: LaunchPlan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
    ) -> LaunchApiCall | None:
        """Return the call for some of a plan's claims; None when it could have no target."""
        uids = [request.token for request in requests]
        hold = self._availability.subnets.zonal_subnets(
            self._with_open_subnets(plan.node_class),
            instance_types=plan.instance_types(),
            capacity_type=plan.capacity_type,
            instances=len(requests),
        )
        targets = targets_of(templates, plan.candidates, hold.subnets)
        if not targets:
            self._availability.subnets.restore(hold)
            return None
        used = {target.template for target in targets}
        return LaunchApiCall(
            plan=plan,
            requests={request.token: request for request in requests},
            templates=tuple(template for template in templates if template.name in used),
            targets=targets,
            request=fleet_request(
                targets,
                plan.options,
                [claim_ref(request) for request in requests],
                self.tags(plan),
                attempts=self._unanswered_calls.attempts(uids),
            ),
            hold=hold,
        )

    def _send(self, call: LaunchApiCall) -> tuple[LaunchAnswer | None, dict[str, LaunchOutcome]]:
        """Make a call; return what was answered, if anything was, and the outcomes by token."""
        sent = False

        def create() -> CreateFleetResultTypeDef:
            nonlocal sent
            sent = True
            self._observe_batch("create_fleet", len(call.requests))
            with core_errors_of("ec2:CreateFleet"):
                # The SDK would tell of its last attempt alone, and the first may have been carried out.
                return self._clients.ec2_without_retries.create_fleet(**call.request)

        try:
            result = self._templates.run(call.templates, create)
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if sent and (failure is None or is_server_fault(failure)):
                # Who knows; the addresses stay reserved until subnets are read again.
                self._unanswered_calls.note_unanswered(call.requests, call)
                return None, dict.fromkeys(call.requests, error)
            if self._unanswered_calls.is_unanswered(call.requests, call):
                # Only the answer to a token tells; a refusal may be about the repetition alone.
                message = f"{error}; an earlier attempt may have been carried out"
                return None, dict.fromkeys(call.requests, CloudProviderError(message))
            if failure is not None and is_token_used(failure.code):
                self._unanswered_calls.note_unanswered(call.requests, call)
                return None, dict.fromkeys(call.requests, error)
            if failure is None or not (
                is_unfulfillable(failure.code) or failure.code == SERVICE_LINKED_ROLE_DENIED
            ):
                self._availability.subnets.restore(call.hold)
                self._unanswered_calls.note_answered(call.requests, failed=())
                return None, dict.fromkeys(call.requests, _refused_outcome(error))
            fleet_id, answer = "", refusal_answer(failure.code, failure.message)
        else:
            fleet_id, answer = result.get("FleetId", ""), read_answer(result, call.targets)
        self._record_answer(call, answer)
        outcomes = self._outcomes_by_claim(call, answer, fleet_id)
        failed = [t for t, o in outcomes.items() if isinstance(o, CloudProviderError)]
        self._unanswered_calls.note_answered(call.requests, failed=failed)
        return answer, outcomes

    def _outcomes_by_claim(
        self, call: LaunchApiCall, answer: LaunchAnswer, fleet_id: str
    ) -> dict[str, LaunchOutcome]:
        """Return the outcome of each claim that has an instance, by tags as any process would."""
        tags = {
            **claim_tags(call.claims, other_tags=len(self.tags(call.plan))),
            FLEET_ID_TAG: fleet_id,
            EKS_CLUSTER_NAME_TAG: self._cluster,
        }
        owners = CLAIM_TAGS.assign_owners({item.id: tags for item in answer.instances})
        outcomes: dict[str, LaunchOutcome] = {}
        for item in answer.instances:
            owner = owners.get(item.id)
            if owner is not None and owner.uid in call.requests:
                outcomes[owner.uid] = self._launched_outcome(call, item, owner)
        missing = [token for token in call.requests if token not in outcomes]
        if missing:
            error = unserved_outcome(answer, call.targets, call.allowed_types())
            self._log.info(
                "launch returned too few instances",
                fleet=fleet_id,
                missing=len(missing),
                error=str(error),
            )
            outcomes |= dict.fromkeys(missing, error)
        return outcomes

    def _launched_outcome(
        self, call: LaunchApiCall, item: NewInstance, owner: ClaimRef
    ) -> LaunchOutcome:
        request, target = call.requests[owner.uid], item.target
        instance_type = next(it for it in request.instance_types if it.name == target.instance_type)
        details = LaunchDetails(
            instance_id=item.id,
            zone=target.offering.zone,
            subnet_id=target.subnet.id,
            capacity_type=call.plan.capacity_type,
            image_id=target.image_id,
            tenancy=call.plan.tenancy,
            reservation_id=target.reservation_id,
            partition=call.plan.partition,
        )
        outcome = launched_instance(
            details, instance_type, request.node_claim, call.plan.node_class
        )
        instance = Instance(
            provider_id=outcome.provider_id,
            node_claim=owner.name,
            token=owner.uid,
            instance_type=outcome.instance_type,
            zone=outcome.zone,
            capacity_type=outcome.capacity_type,
            image_id=outcome.image_id,
            created=self._clock.now(),
        )
        self._recent.add(
            RecentLaunch(instance_id=item.id, owner=owner, instance=instance, outcome=outcome)
        )
        return outcome

    def _record_answer(self, call: LaunchApiCall, answer: LaunchAnswer) -> None:
        """Record launched instances and exhausted capacity."""
        now, availability, plan = self._clock.now(), self._availability, call.plan
        availability.subnets.note_launched(call.hold, answer.by_subnet())
        if plan.capacity_type == RESERVED:
            for item in answer.instances:
                availability.reservation_counts.note_launched(
                    item.target.reservation_id, launched_at=now
                )
        marks = shortages_of(
            answer.failures,
            call.targets,
            plan.capacity_type,
            placement_group=""
            if plan.launch_context.group is None
            else plan.launch_context.group.id,
            partition=str(plan.partition) if plan.partition else "",
        )
        if marks.offerings:
            availability.unavailable_offerings.mark(*marks.offerings, now=now)
        for capacity_type in marks.capacity_types:
            availability.unavailable_offerings.mark_capacity_type(capacity_type, now=now)
        for subnet_id in marks.subnets:
            availability.unavailable_offerings.mark_subnet(subnet_id, now=now)
            availability.subnets.note_exhausted(subnet_id)
        availability.reservation_counts.note_exhausted(*marks.reservations)
        self._count(answer.failures, plan.capacity_type)

    def _count(self, failures: Iterable[TargetFailure], capacity_type: str) -> None:
        for failure in failures:
            subnet = None if failure.target is None else failure.target.subnet
            self._count_failure(
                zone="" if subnet is None else subnet.zone,
                zone_id="" if subnet is None else subnet.zone_id,
                capacity_type=capacity_type,
                reason=failure.reason,
            )

    def _has_other_subnets(self, plan: LaunchPlan, answer: LaunchAnswer) -> bool:
        """Whether a subnet was full of which the zone has another one."""
        if not all(failure.is_shortage for failure in answer.failures):
            return False
        full = {
            failure.target.subnet.zone
            for failure in answer.failures
            if failure.code == INSUFFICIENT_ADDRESSES and failure.target is not None
        }
        marked = self._availability.unavailable_offerings.view(now=self._clock.now()).subnets
        return any(
            subnet.zone in full and subnet.id not in marked
            for subnet in plan.node_class.status.subnets
        )

    def _with_open_subnets(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """Return a NodeClass with the subnets alone that were not found full."""
        marked = self._availability.unavailable_offerings.view(now=self._clock.now()).subnets
        if not marked:
            return node_class
        left = tuple(s for s in node_class.status.subnets if s.id not in marked)
        status = node_class.status.model_copy(update={"subnets": left})
        return node_class.model_copy(update={"status": status})


def _is_error(outcome: LaunchOutcome) -> bool:
    return isinstance(outcome, CloudProviderError)


def _may_succeed_elsewhere(outcome: LaunchOutcome) -> bool:
    return (
        isinstance(outcome, InsufficientCapacityError)
        and outcome.scope is not ExhaustedScope.REGION
    )


def _refused_outcome(error: CloudProviderError) -> CloudProviderError:
    """Return the outcome of a call that EC2 refused, or that was never sent."""
    failure = refusal_behind(error)
    if failure is None or isinstance(error, ThrottledError):
        return error
    told = launch_failure(failure.code, failure.message)
    if isinstance(error, AuthError):
        return AuthError(f"{error.action}: {told.message}", action=error.action, reason=told.reason)
    return LaunchFailedError(str(error), reason=told.reason)
