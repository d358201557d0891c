"""What `karpenter_launch_instances` answers.

A claim is handed over again after a crash, and there must never be two instances for it. So EC2 is
asked first what there is already for these claims (one cheap call for two hundred of them); then
calls that were not answered are repeated; what is left is launched, claims that ask for the same by
one fleet.
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
from karpenter_provider_aws.launch.launched import Facts, launched_instance
from karpenter_provider_aws.launch.plans import Ground, claim_ref, plan_launches
from karpenter_provider_aws.launch.preconditions import refusal
from karpenter_provider_aws.launch.template_groups import TemplateRequest, templates_for
from karpenter_provider_aws.zonal_shift import no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.known_owners import KnownOwners
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.offered import OfferedTypes
    from karpenter_provider_aws.catalogue.offerings import PriceList
    from karpenter_provider_aws.described import DescribedInstance, MachineReader
    from karpenter_provider_aws.launch.buying import Buyer, FleetCall, Shelves
    from karpenter_provider_aws.launch.plans import Plan
    from karpenter_provider_aws.launch.template_groups import ClusterDetails, LaunchTemplate
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["Launching"]

_FLEETS_AT_ONCE: Final = 8
"""CreateFleet takes seconds; EC2 takes five of them a second, after a burst of a hundred."""
_SHOWN_WITHIN: Final = timedelta(minutes=5)
"""By then EC2 shows all instances of a fleet, whatever it showed at first."""


@final
class Launching:
    """Launches instances; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        reader: MachineReader,
        buyer: Buyer,
        recent: RecentLaunches,
        owners: KnownOwners,
        shelves: Shelves,
        types: OfferedTypes,
        prices: PriceList,
        details: Callable[[], ClusterDetails],
        shifts: Callable[[], ShiftedZones] = no_shifts,
    ) -> None:
        """`details` is `ClusterSource.details`, `shifts` is `ZonalShifts.zones`."""
        self._clock: Final = clock
        self._reader: Final = reader
        self._buyer: Final = buyer
        self._recent: Final = recent
        self._owners: Final = owners
        self._shelves: Final = shelves
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
        outcomes = self._existing(wanted.values())
        for call in self._unanswered(r for t, r in wanted.items() if t not in outcomes):
            outcomes |= self._repeated(call)
        new = [request for token, request in wanted.items() if token not in outcomes]
        by_class: dict[tuple[str, str], list[LaunchRequest]] = {}
        for request in new:
            metadata = request.node_class.metadata
            by_class.setdefault((metadata.name, metadata.resource_version), []).append(request)
        for members in by_class.values():
            outcomes |= self._launch_new(members)
        return [outcomes[request.token] for request in requests]

    # -- what there is ---------------------------------------------------------------------------

    def _existing(self, requests: Iterable[LaunchRequest]) -> dict[str, LaunchOutcome]:
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
        awaited = self._awaited_by(described)
        for token, request in wanted.items():
            recent = self._recent.of_claim(token)
            if token in mine:
                outcomes[token] = self._found(request, mine[token])
            elif recent is not None:  # EC2 does not show it yet
                outcomes[token] = recent.outcome
            elif token in awaited and not self._buyer.knows_of(token):
                outcomes[token] = CloudProviderError(
                    "another process launched for this NodeClaim and others of late, and EC2 does not "
                    "show an instance for each of them yet"
                )
        return outcomes

    def _awaited_by(self, described: Iterable[DescribedInstance]) -> frozenset[str]:
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

    def _found(
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
        facts = Facts(
            instance_id=instance.id,
            zone=instance.zone,
            subnet_id=instance.subnet_id,
            capacity_type=instance.capacity_type,
            image_id=instance.image_id,
            tenancy=instance.tenancy,
            reservation_id=instance.reservation_id,
            partition=instance.partition,
        )
        return launched_instance(facts, instance_type, request.node_claim, node_class)

    def _type_of(self, name: str, request: LaunchRequest, node_class: EC2NodeClass) -> InstanceType:
        """Return a type, which the claim may no longer be offered."""
        for it in request.instance_types:
            if it.name == name:
                return it
        for it in self._types.instance_types(node_class):
            if it.name == name:
                return it
        raise CloudProviderError(f'instance type "{name}" is not sold any more')

    def _unanswered(self, requests: Iterable[LaunchRequest]) -> list[FleetCall]:
        """Return the calls for these claims that nobody has seen the answer of, each once."""
        calls: dict[int, FleetCall] = {}
        for request in requests:
            call = self._buyer.unanswered(request.token)
            if call is not None:
                calls[id(call)] = call
        return list(calls.values())

    def _repeated(self, call: FleetCall) -> dict[str, LaunchOutcome]:
        try:
            return self._buyer.repeat(call)
        except CloudProviderError as error:
            return dict.fromkeys(call.requests, error)

    # -- what is launched ------------------------------------------------------------------------

    def _launch_new(self, requests: Sequence[LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Launch for claims of one NodeClass; return the outcomes by token."""
        tokens = [request.token for request in requests]
        try:
            node_class = _node_class_of(requests[0])
            refused = refusal(node_class)
            if refused is not None:
                return dict.fromkeys(tokens, refused)
            ground = self._ground(node_class)
        except (CloudProviderError, BadInputError) as error:
            return dict.fromkeys(tokens, _typed(error))
        plans, unplanned = plan_launches(requests, ground)
        outcomes: dict[str, LaunchOutcome] = dict(unplanned)
        jobs: list[Callable[[], dict[str, LaunchOutcome]]] = []
        for plan in plans:
            try:
                templates = self._templates_of(plan)
            except (CloudProviderError, BadInputError) as error:
                outcomes |= {request.token: _typed(error) for request in plan.requests}
                continue
            jobs += [partial(self._bought, plan, part, templates) for part in self._parts(plan)]
        for brought in _run(jobs):
            outcomes |= brought
        return outcomes

    def _bought(
        self,
        plan: Plan,
        requests: Sequence[LaunchRequest],
        templates: tuple[LaunchTemplate, ...],
    ) -> dict[str, LaunchOutcome]:
        try:
            return self._buyer.buy(plan, requests, templates)
        except CloudProviderError as error:
            return {request.token: error for request in requests}

    def _parts(self, plan: Plan) -> list[list[LaunchRequest]]:
        """Cut a plan into fleets: as many claims as the tags of one can name."""
        by_uid = {request.token: request for request in plan.requests}
        batches = claim_batches(
            (claim_ref(request) for request in plan.requests),
            other_tags=len(self._buyer.tags(plan)),
        )
        return [[by_uid[claim.uid] for claim in batch] for batch in batches]

    def _templates_of(self, plan: Plan) -> tuple[LaunchTemplate, ...]:
        if plan.is_inflexible:
            self._log.info(
                "on-demand is bought though spot would do: more instance types would help",
                instance_types=len(plan.candidates),
            )
        group = plan.ground.group
        return templates_for(
            TemplateRequest(
                node_class=plan.node_class,
                node_claim=plan.requests[0].node_claim,
                instance_types=plan.instance_types(),
                capacity_type=plan.capacity_type,
                tags=self._buyer.tags(plan),
                tenancy=plan.tenancy,
                placement_group_id="" if group is None else group.id,
                placement_partition=plan.partition,
            ),
            self._details(),
            self._types.numbers_of(plan.node_class),
        )

    def _ground(self, node_class: EC2NodeClass) -> Ground:
        group = self._types.group_of(node_class)
        if node_class.spec.placement_group_selector is not None and group is None:
            raise NodeClassNotReadyError(
                f'EC2NodeClass "{node_class.name}": spec.placementGroupSelector finds no group'
            )
        return Ground(
            node_class=node_class,
            shortages=self._shelves.unavailable.view(now=self._clock.now()),
            shifted=self._shifts(),
            reserved_left=self._shelves.availability.left,
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
