"""One fleet at a time: ask for it, read the answer, take note of what was learned.

A call whose answer does not come may have been carried out. It is remembered, and asked again word for
word when one of its claims comes back: EC2 answers the same token with the same instances.
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
from karpenter_core.provider.kit.recent_launches import Launch, RecentLaunches, Uncertain
from karpenter_provider_aws.codes import (
    INSUFFICIENT_ADDRESSES,
    SERVICE_LINKED_ROLE_DENIED,
    is_server_fault,
    is_token_used,
    is_unfulfillable,
    launch_failure,
)
from karpenter_provider_aws.discovery.calls import calling, failure_behind
from karpenter_provider_aws.instance_tags import CLAIM_TAGS, FLEET_ID_TAG, claim_tags, owned_tags
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG
from karpenter_provider_aws.launch.fleet import fleet_request, targets_of
from karpenter_provider_aws.launch.launched import Facts, launched_instance
from karpenter_provider_aws.launch.outcome import (
    FleetAnswer,
    marks_of,
    read_answer,
    refusal_as_failure,
    short_of_both,
    why_unserved,
)
from karpenter_provider_aws.launch.plans import claim_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger
    from types_boto3_ec2.type_defs import CreateFleetRequestTypeDef, CreateFleetResultTypeDef

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.addresses import AddressHold
    from karpenter_core.provider.kit.recent_launches import ClaimRef
    from karpenter_core.provider.kit.unavailable import UnavailableOfferings
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, Subnet
    from karpenter_provider_aws.discovery.reservations import AvailabilityBook
    from karpenter_provider_aws.discovery.subnets import Subnets
    from karpenter_provider_aws.launch.fleet import Target
    from karpenter_provider_aws.launch.outcome import Bought, FleetFailure
    from karpenter_provider_aws.launch.plans import Plan
    from karpenter_provider_aws.launch.template_groups import LaunchTemplate
    from karpenter_provider_aws.launch.templates import LaunchTemplates
    from karpenter_provider_aws.sdk import Clients

__all__ = ["Buyer", "FailureCounter", "FleetCall", "Shelves", "no_counter"]

_ROUNDS: Final = 3
"""How often a launch goes on to other subnets, within one call of the core."""


class FailureCounter(Protocol):
    """Counts what fleets could not have, for `karpenter_cloudprovider_instance_launch_failures_total`."""

    def __call__(self, *, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
        """Count one failure."""
        ...


def no_counter(*, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetCall:
    """A call as it was made, to be read with its answer, and made again if none comes."""

    plan: Plan
    requests: Mapping[str, LaunchRequest]
    """By token."""
    templates: tuple[LaunchTemplate, ...]
    targets: tuple[Target, ...]
    request: CreateFleetRequestTypeDef
    hold: AddressHold[Subnet]

    @property
    def claims(self) -> tuple[ClaimRef, ...]:
        """Whose the instances will be."""
        return tuple(claim_ref(request) for request in self.requests.values())

    def offered(self) -> tuple[InstanceType, ...]:
        """Return the types that any of its claims may have."""
        types = {it.name: it for each in self.requests.values() for it in each.instance_types}
        return tuple(types.values())

    def those(self, tokens: Container[str]) -> list[LaunchRequest]:
        """Return the requests that have one of these tokens."""
        return [request for token, request in self.requests.items() if token in tokens]

    def without_its_templates(
        self, templates: Iterable[LaunchTemplate]
    ) -> tuple[LaunchTemplate, ...]:
        """Return the templates that it was not made with."""
        return tuple(template for template in templates if template not in self.templates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelves:
    """Where is written down what can still be had."""

    subnets: Subnets
    availability: AvailabilityBook
    unavailable: UnavailableOfferings


@final
class Buyer:
    """Asks for fleets; callable from any thread."""

    def __init__(
        self,
        clients: Clients,
        clock: Clock,
        *,
        cluster: str,
        templates: LaunchTemplates,
        shelves: Shelves,
        recent: RecentLaunches,
        count_failure: FailureCounter = no_counter,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
    ) -> None:
        """Take `count_failure` and `observe_batch` from `AwsMetrics`."""
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._templates: Final = templates
        self._shelves: Final = shelves
        self._recent: Final = recent
        self._count_failure: Final = count_failure
        self._observe_batch: Final = observe_batch
        self._uncertain: Final[Uncertain[FleetCall]] = Uncertain(clock)
        self._log: FilteringBoundLogger = structlog.get_logger("aws.launch")

    def tags(self, plan: Plan) -> dict[str, str]:
        """Return the tags of everything that is made for a plan."""
        return owned_tags(
            plan.node_class.spec.tags,
            cluster=self._cluster,
            node_class=plan.node_class.name,
            node_pool=plan.node_pool,
        )

    def unanswered(self, uid: str) -> FleetCall | None:
        """Return the call for a claim of which nobody knows whether it was carried out."""
        return self._uncertain.call_for(uid)

    def knows_of(self, uid: str) -> bool:
        """Whether this process knows itself what to do for a claim: it repeats its own call, or makes one.

        Its call was not answered, or was answered and brought the claim nothing.
        """
        return self.unanswered(uid) is not None or bool(self._uncertain.attempts([uid]))

    def buy(
        self,
        plan: Plan,
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
            call = self._call(plan, left, untried)
            if call is None:
                break
            answer, brought = self._made(call)
            outcomes |= {t: short_of_both(outcomes.get(t), o) for t, o in brought.items()}
            if answer is None:
                break
            if other_subnets and self._has_other_subnets(plan, answer):
                other_subnets -= 1
                left = call.those({t for t, o in outcomes.items() if _is_error(o)})
            else:
                untried = call.without_its_templates(untried)
                left = call.those({t for t, o in outcomes.items() if _may_be_had_elsewhere(o)})
        nowhere = LaunchFailedError("none of the offerings is where the NodeClass has a subnet")
        return {request.token: outcomes.get(request.token, nowhere) for request in requests}

    def repeat(self, call: FleetCall) -> dict[str, LaunchOutcome]:
        """Make a call again that was not answered; return the outcomes of all its claims by token."""
        return self._made(call)[1]

    def _call(
        self,
        plan: Plan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
    ) -> FleetCall | None:
        """Return the call for some of a plan's claims; None when it could have no target."""
        uids = [request.token for request in requests]
        hold = self._shelves.subnets.zonal_subnets(
            self._with_open_subnets(plan.node_class),
            instance_types=plan.instance_types(),
            capacity_type=plan.capacity_type,
            instances=len(requests),
        )
        targets = targets_of(templates, plan.candidates, hold.subnets)
        if not targets:
            self._shelves.subnets.restore(hold)
            return None
        used = {target.template for target in targets}
        return FleetCall(
            plan=plan,
            requests={request.token: request for request in requests},
            templates=tuple(template for template in templates if template.name in used),
            targets=targets,
            request=fleet_request(
                targets,
                plan.options,
                [claim_ref(request) for request in requests],
                self.tags(plan),
                attempts=self._uncertain.attempts(uids),
            ),
            hold=hold,
        )

    def _made(self, call: FleetCall) -> tuple[FleetAnswer | None, dict[str, LaunchOutcome]]:
        """Make a call; return what was answered, if anything was, and the outcomes by token."""
        sent = False

        def create() -> CreateFleetResultTypeDef:
            nonlocal sent
            sent = True
            self._observe_batch("create_fleet", len(call.requests))
            with calling("ec2:CreateFleet"):
                # The SDK would tell of its last attempt alone, and the first may have been carried out.
                return self._clients.ec2_without_retries.create_fleet(**call.request)

        try:
            result = self._templates.run(call.templates, create)
        except CloudProviderError as error:
            failure = failure_behind(error)
            if sent and (failure is None or is_server_fault(failure)):
                # Who knows; the addresses stay reserved until subnets are read again.
                self._uncertain.note_unanswered(call.requests, call)
                return None, dict.fromkeys(call.requests, error)
            if self._is_uncertain(call):
                # Only the answer to a token tells; a refusal may be about the repetition alone.
                message = f"{error}; an earlier attempt may have been carried out"
                return None, dict.fromkeys(call.requests, CloudProviderError(message))
            if failure is not None and is_token_used(failure.code):
                self._uncertain.note_unanswered(call.requests, call)
                return None, dict.fromkeys(call.requests, error)
            if failure is None or not (
                is_unfulfillable(failure.code) or failure.code == SERVICE_LINKED_ROLE_DENIED
            ):
                self._shelves.subnets.restore(call.hold)
                self._uncertain.note_answered(call.requests, failed=())
                return None, dict.fromkeys(call.requests, _refusal(error))
            fleet_id, answer = "", refusal_as_failure(failure.code, failure.message)
        else:
            fleet_id, answer = result.get("FleetId", ""), read_answer(result, call.targets)
        self._take_note(call, answer)
        outcomes = self._dealt(call, answer, fleet_id)
        failed = [t for t, o in outcomes.items() if isinstance(o, CloudProviderError)]
        self._uncertain.note_answered(call.requests, failed=failed)
        return answer, outcomes

    def _is_uncertain(self, call: FleetCall) -> bool:
        """Whether nobody knows what came of an earlier attempt of this very call."""
        return any(self._uncertain.call_for(token) is call for token in call.requests)

    def _dealt(
        self, call: FleetCall, answer: FleetAnswer, fleet_id: str
    ) -> dict[str, LaunchOutcome]:
        """Give each claim its instance, as everybody will who looks at the tags."""
        tags = {
            **claim_tags(call.claims, other_tags=len(self.tags(call.plan))),
            FLEET_ID_TAG: fleet_id,
            EKS_CLUSTER_NAME_TAG: self._cluster,
        }
        owners = CLAIM_TAGS.deal({item.id: tags for item in answer.bought})
        outcomes: dict[str, LaunchOutcome] = {}
        for item in answer.bought:
            owner = owners.get(item.id)
            if owner is not None and owner.uid in call.requests:
                outcomes[owner.uid] = self._launched(call, item, owner)
        missing = [token for token in call.requests if token not in outcomes]
        if missing:
            error = why_unserved(answer, call.targets, call.offered())
            self._log.info(
                "launch brought too little", fleet=fleet_id, missing=len(missing), error=str(error)
            )
            outcomes |= dict.fromkeys(missing, error)
        return outcomes

    def _launched(self, call: FleetCall, item: Bought, owner: ClaimRef) -> LaunchOutcome:
        request, target = call.requests[owner.uid], item.target
        instance_type = next(it for it in request.instance_types if it.name == target.instance_type)
        facts = Facts(
            instance_id=item.id,
            zone=target.offering.zone,
            subnet_id=target.subnet.id,
            capacity_type=call.plan.capacity_type,
            image_id=target.image_id,
            tenancy=call.plan.tenancy,
            reservation_id=target.reservation_id,
            partition=call.plan.partition,
        )
        outcome = launched_instance(facts, instance_type, request.node_claim, call.plan.node_class)
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
            Launch(instance_id=item.id, owner=owner, instance=instance, outcome=outcome)
        )
        return outcome

    def _take_note(self, call: FleetCall, answer: FleetAnswer) -> None:
        """Write down what was bought and what was found exhausted."""
        now, shelves, plan = self._clock.now(), self._shelves, call.plan
        shelves.subnets.note_launched(call.hold, answer.by_subnet())
        if plan.capacity_type == RESERVED:
            for item in answer.bought:
                shelves.availability.note_launched(item.target.reservation_id, launched_at=now)
        marks = marks_of(
            answer.failures,
            call.targets,
            plan.capacity_type,
            placement_group="" if plan.ground.group is None else plan.ground.group.id,
            partition=str(plan.partition) if plan.partition else "",
        )
        if marks.offerings:
            shelves.unavailable.mark(*marks.offerings, now=now)
        for capacity_type in marks.capacity_types:
            shelves.unavailable.mark_capacity_type(capacity_type, now=now)
        for subnet_id in marks.subnets:
            shelves.unavailable.mark_subnet(subnet_id, now=now)
            shelves.subnets.note_exhausted(subnet_id)
        shelves.availability.note_exhausted(*marks.reservations)
        self._count(answer.failures, plan.capacity_type)

    def _count(self, failures: Iterable[FleetFailure], capacity_type: str) -> None:
        for failure in failures:
            subnet = None if failure.target is None else failure.target.subnet
            self._count_failure(
                zone="" if subnet is None else subnet.zone,
                zone_id="" if subnet is None else subnet.zone_id,
                capacity_type=capacity_type,
                reason=failure.reason,
            )

    def _has_other_subnets(self, plan: Plan, answer: FleetAnswer) -> bool:
        """Whether a subnet was full of which the zone has another one."""
        if not all(failure.is_shortage for failure in answer.failures):
            return False
        full = {
            failure.target.subnet.zone
            for failure in answer.failures
            if failure.code == INSUFFICIENT_ADDRESSES and failure.target is not None
        }
        marked = self._shelves.unavailable.view(now=self._clock.now()).subnets
        return any(
            subnet.zone in full and subnet.id not in marked
            for subnet in plan.node_class.status.subnets
        )

    def _with_open_subnets(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """Return a NodeClass with the subnets alone that were not found full."""
        marked = self._shelves.unavailable.view(now=self._clock.now()).subnets
        if not marked:
            return node_class
        left = tuple(s for s in node_class.status.subnets if s.id not in marked)
        status = node_class.status.model_copy(update={"subnets": left})
        return node_class.model_copy(update={"status": status})


def _is_error(outcome: LaunchOutcome) -> bool:
    return isinstance(outcome, CloudProviderError)


def _may_be_had_elsewhere(outcome: LaunchOutcome) -> bool:
    return (
        isinstance(outcome, InsufficientCapacityError)
        and outcome.scope is not ExhaustedScope.REGION
    )


def _refusal(error: CloudProviderError) -> CloudProviderError:
    """Return the outcome of a call that EC2 refused, or that was never sent."""
    failure = failure_behind(error)
    if failure is None or isinstance(error, ThrottledError):
        return error
    told = launch_failure(failure.code, failure.message)
    if isinstance(error, AuthError):
        return AuthError(f"{error.action}: {told.message}", action=error.action, reason=told.reason)
    return LaunchFailedError(str(error), reason=told.reason)
