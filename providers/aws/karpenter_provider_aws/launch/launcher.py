"""Launches one instance for each NodeClaim, for the launch hook.

Answers `karpenter_launch_instances`. The core passes a claim again after a crash, and there must
never be two instances for it. So EC2 first lists the existing instances of these claims (one cheap
call for two hundred of them); then unanswered calls are repeated; the remaining claims are
launched, equal ones by one fleet.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    LaunchFailedError,
    NodeClassNotReadyError,
)
from karpenter_provider_aws.instance_tags import CLAIM_TAGS, FLEET_ID_TAG, claim_batches
from karpenter_provider_aws.launch.launched_instances import LaunchDetails, launched_instance
from karpenter_provider_aws.launch.plans import LaunchContext, claim_ref, plan_launches
from karpenter_provider_aws.launch.preconditions import unmet_precondition
from karpenter_provider_aws.launch.template_groups import TemplateRequest, templates_for
from karpenter_provider_aws.zonal_shift import no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_aws.catalogue.offerings import PriceList
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader
    from karpenter_provider_aws.launch.executor import Availability, LaunchApiCall, LaunchExecutor
    from karpenter_provider_aws.launch.plans import LaunchPlan
    from karpenter_provider_aws.launch.template_groups import ClusterDetails, LaunchTemplate
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["CloudInstanceLauncher"]

_FLEETS_AT_ONCE: Final = 8
"""CreateFleet takes seconds; EC2 takes five of them a second, after a burst of a hundred."""
_SHOWN_WITHIN: Final = timedelta(minutes=5)
"""By then EC2 shows all instances of a fleet, whatever it showed at first."""


@final
class CloudInstanceLauncher:
    """Launches instances; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        reader: InstanceReader,
        executor: LaunchExecutor,
        recent: RecentLaunches,
        owners: InstanceOwners,
        availability: Availability,
        types: CurrentInstanceTypes,
        prices: PriceList,
        details: Callable[[], ClusterDetails],
        shifts: Callable[[], ShiftedZones] = no_shifts,
    ) -> None:
        """`details` is `ClusterSource.details`, `shifts` is `ZonalShifts.zones`."""
        self._clock: Final = clock
        self._reader: Final = reader
        self._executor: Final = executor
        self._recent: Final = recent
        self._owners: Final = owners
        self._availability: Final = availability
        self._types: Final = types
        self._prices: Final = prices
        self._details: Final = details
        self._shifts: Final = shifts
        self._log: FilteringBoundLogger = structlog.get_logger("aws.launch")

    def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        """Launch one instance for each request and say, in the same order, what came of it.

        Raises:
            CloudProviderError: EC2 could not be asked what there is already; nothing was sent.
        """
        wanted = {request.token: request for request in requests}
        outcomes = self._existing_outcomes(wanted.values())
        for call in self._unanswered(r for t, r in wanted.items() if t not in outcomes):
            outcomes |= self._repeat_call(call)
        new = [request for token, request in wanted.items() if token not in outcomes]
        by_class: dict[tuple[str, str], list[LaunchRequest]] = {}
        for request in new:
            metadata = request.node_class.metadata
            by_class.setdefault((metadata.name, metadata.resource_version), []).append(request)
        for members in by_class.values():
            outcomes |= self._launch_new(members)
        return [outcomes[request.token] for request in requests]

    # -- what there is ---------------------------------------------------------------------------

    def _existing_outcomes(self, requests: Iterable[LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Return the outcomes of claims for which something was launched before, by token."""
        wanted = {request.token: request for request in requests}
        described = self._reader.of_claims(wanted)
        owners = CLAIM_TAGS.owners_of({it.id: it.tags for it in described}, self._owners())
        mine: dict[str, list[DescribedInstance]] = {}
        for instance in described:
            owner = owners.get(instance.id)
            if owner is not None and owner.uid in wanted:
                mine.setdefault(owner.uid, []).append(instance)
        outcomes: dict[str, LaunchOutcome] = {}
        awaited = self._unanswered_claims_of(described)
        for token, request in wanted.items():
            recent = self._recent.of_claim(token)
            if token in mine:
                outcomes[token] = self._found_outcome(request, mine[token])
            elif recent is not None:  # EC2 does not show it yet
                outcomes[token] = recent.outcome
            elif token in awaited and not self._executor.has_attempted(token):
                outcomes[token] = CloudProviderError(
                    "another process launched for this NodeClaim and others of late, and EC2 does not "
                    "show an instance for each of them yet"
                )
        return outcomes

    def _unanswered_claims_of(self, described: Iterable[DescribedInstance]) -> frozenset[str]:
        """Return the UIDs of claims whose fleet is young and shown with fewer instances than claims."""
        fleets: dict[str, list[DescribedInstance]] = {}
        for instance in described:
            fleets.setdefault(instance.tags.get(FLEET_ID_TAG, instance.id), []).append(instance)
        now = self._clock.now()
        awaited: set[str] = set()
        for shown in fleets.values():
            claims = CLAIM_TAGS.claims_of(shown[0].tags)
            launched_at = [it.launched_at for it in shown if it.launched_at is not None]
            is_young = bool(launched_at) and now - max(launched_at) < _SHOWN_WITHIN
            if is_young and len(shown) < len(claims):
                awaited |= {claim.uid for claim in claims}
        return frozenset(awaited)

    def _found_outcome(
        self, request: LaunchRequest, instances: Sequence[DescribedInstance]
    ) -> LaunchOutcome:
        there = [instance for instance in instances if not instance.is_leaving]
        if not there:
            gone = ", ".join(instance.id for instance in instances)
            return LaunchFailedError(
                f"the instance of this NodeClaim was terminated: {gone}",
                reason="InstanceTerminated",
            )
        instance = there[0]
        try:
            node_class = _node_class_of(request)
            instance_type = self._type_of(instance.instance_type, request, node_class)
        except (CloudProviderError, BadInputError) as error:
            return _typed(error)
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
        return launched_instance(details, instance_type, request.node_claim, node_class)

    def _type_of(self, name: str, request: LaunchRequest, node_class: EC2NodeClass) -> InstanceType:
        """Return a type, which the claim may no longer be offered."""
        for it in request.instance_types:
            if it.name == name:
                return it
        for it in self._types.instance_types(node_class):
            if it.name == name:
                return it
        raise CloudProviderError(f'instance type "{name}" is not sold any more')

    def _unanswered(self, requests: Iterable[LaunchRequest]) -> list[LaunchApiCall]:
        """Return the calls for these claims that nobody has seen the answer of, each once."""
        calls: dict[int, LaunchApiCall] = {}
        for request in requests:
            call = self._executor.unanswered_call(request.token)
            if call is not None:
                calls[id(call)] = call
        return list(calls.values())

    def _repeat_call(self, call: LaunchApiCall) -> dict[str, LaunchOutcome]:
        try:
            return self._executor.repeat(call)
        except CloudProviderError as error:
            return dict.fromkeys(call.requests, error)

    # -- what is launched ------------------------------------------------------------------------

    def _launch_new(self, requests: Sequence[LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Launch for claims of one NodeClass; return the outcomes by token."""
        tokens = [request.token for request in requests]
        try:
            node_class = _node_class_of(requests[0])
            refused = unmet_precondition(node_class)
            if refused is not None:
                return dict.fromkeys(tokens, refused)
            launch_context = self._launch_context(node_class)
        except (CloudProviderError, BadInputError) as error:
            return dict.fromkeys(tokens, _typed(error))
        plans, unplanned = plan_launches(requests, launch_context)
        outcomes: dict[str, LaunchOutcome] = dict(unplanned)
        jobs: list[Callable[[], dict[str, LaunchOutcome]]] = []
        for plan in plans:
            try:
                templates = self._templates_of(plan)
            except (CloudProviderError, BadInputError) as error:
                outcomes |= {request.token: _typed(error) for request in plan.requests}
                continue
            jobs += [
                partial(self._launch_plan, plan, part, templates)
                for part in self._plan_chunks(plan)
            ]
        for brought in _run(jobs):
            outcomes |= brought
        return outcomes

    def _launch_plan(
        self,
        plan: LaunchPlan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
    ) -> dict[str, LaunchOutcome]:
        try:
            return self._executor.execute(plan, requests, templates)
        except CloudProviderError as error:
            return {request.token: error for request in requests}

    def _plan_chunks(self, plan: LaunchPlan) -> list[list[LaunchRequest]]:
        """Cut a plan into fleets: as many claims as the tags of one can name."""
        by_uid = {request.token: request for request in plan.requests}
        batches = claim_batches(
            (claim_ref(request) for request in plan.requests),
            other_tags=len(self._executor.tags(plan)),
        )
        return [[by_uid[claim.uid] for claim in batch] for batch in batches]

    def _templates_of(self, plan: LaunchPlan) -> tuple[LaunchTemplate, ...]:
        if plan.is_inflexible:
            self._log.info(
                "launching on-demand although spot is allowed: allow more instance types",
                instance_types=len(plan.candidates),
            )
        group = plan.launch_context.group
        return templates_for(
            TemplateRequest(
                node_class=plan.node_class,
                node_claim=plan.requests[0].node_claim,
                instance_types=plan.instance_types(),
                capacity_type=plan.capacity_type,
                tags=self._executor.tags(plan),
                tenancy=plan.tenancy,
                placement_group_id="" if group is None else group.id,
                placement_partition=plan.partition,
            ),
            self._details(),
            self._types.sizing_of(plan.node_class),
        )

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
            group=group,
        )


def _run(
    jobs: Sequence[Callable[[], dict[str, LaunchOutcome]]],
) -> list[dict[str, LaunchOutcome]]:
    if len(jobs) <= 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), _FLEETS_AT_ONCE), "aws-fleets") as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def _node_class_of(request: LaunchRequest) -> EC2NodeClass:
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass

    if not isinstance(request.node_class, EC2NodeClass):
        raise BadInputError(f'"{request.node_class.name}" is not an EC2NodeClass')
    return request.node_class


def _typed(error: CloudProviderError | BadInputError) -> CloudProviderError:
    """Return an outcome; what is wrong with a NodeClass's own text waits for its user."""
    if isinstance(error, CloudProviderError):
        return error
    return LaunchFailedError(str(error), reason="InstanceTypeResolutionFailed")
