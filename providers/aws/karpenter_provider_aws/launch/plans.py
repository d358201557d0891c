"""Groups claims that can be launched together into launch plans.

Pure functions of values. Hundreds of claims have few different requests, so whatever depends on the
request alone is computed once for all claims that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import MIN_VALUES_RELAXED, NODE_POOL, RESERVED
from karpenter_core.api.quantities import parse_resources
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    EFA,
    NITRO_SANDBOX_RESOURCE,
    PLACEMENT_GROUP_PARTITION,
)
from karpenter_provider_aws.launch.filters import (
    compatible_types,
    filter_candidates,
    fitting_candidates,
)
from karpenter_provider_aws.launch.fleet import (
    capacity_type_of,
    is_inflexible,
    options_of,
    tenancy_of,
    with_capacity_type,
)
from karpenter_provider_aws.launch.template_groups import lowest_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.offerings import PriceList
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.launch.filters import CompatibleType, LaunchCandidate
    from karpenter_provider_aws.launch.fleet import FleetOptions
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["PRICE_OVERLAY_APPLIED", "LaunchContext", "LaunchPlan", "claim_ref", "plan_launches"]

PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
"""On a NodeClaim: an overlay has changed the prices that it was planned by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """The inputs of a launch, as this process knows them at that moment."""

    node_class: EC2NodeClass
    shortages: UnavailableSnapshot
    shifted: ShiftedZones
    reserved_left: Callable[[str], int]
    """Number of instances left of each reservation, by its id."""
    prices: PriceList
    group: DescribedPlacementGroup | None = None

    def is_sold_out(self, it: InstanceType, offering: Offering) -> bool:
        """Whether an offering cannot be had, whatever subnets have room."""
        return self._is_closed(offering) or self.shortages.is_unavailable(
            self._unavailable_offering(it, offering)
        )

    def is_open(self, it: InstanceType, offering: Offering) -> bool:
        """Whether nothing has come to be known against an offering since it was listed."""
        subnets = [s.id for s in self.node_class.status.subnets if s.zone == offering.zone]
        if not subnets or self._is_closed(offering):
            return False
        return not self.shortages.is_unavailable(self._unavailable_offering(it, offering), subnets)

    def _is_closed(self, offering: Offering) -> bool:
        """Whether its zone is shifted away from, or its reservation used up."""
        if self.shifted.has(offering.zone):
            return True
        if offering.capacity_type != RESERVED:
            return False
        return self.reserved_left(offering.requirements.single_value(CAPACITY_RESERVATION_ID)) <= 0

    def _unavailable_offering(self, it: InstanceType, offering: Offering) -> UnavailableOffering:
        return UnavailableOffering(
            it.name,
            offering.zone,
            offering.capacity_type,
            "" if self.group is None else self.group.id,
            offering.requirements.single_value(PLACEMENT_GROUP_PARTITION),
        )

    def has_own_price(self, it: InstanceType, offering: Offering) -> bool:
        """Whether an offering costs something else than EC2 asks for it."""
        if offering.capacity_type == RESERVED:
            return False
        return not self.prices.is_of_cloud(
            it.name, offering.capacity_type, offering.zone, offering.price.amount
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchPlan:
    """Claims that ask for the same, and what that is."""

    launch_context: LaunchContext
    requests: tuple[LaunchRequest, ...]
    candidates: tuple[LaunchCandidate, ...]
    options: FleetOptions
    tenancy: str
    partition: int
    """Of a placement group; 0 lets EC2 choose."""
    is_inflexible: bool

    @property
    def node_class(self) -> EC2NodeClass:
        """The NodeClass of the instances."""
        return self.launch_context.node_class

    @property
    def capacity_type(self) -> str:
        """The capacity type of the launch."""
        return self.options.capacity_type

    @property
    def node_pool(self) -> str:
        """The NodePool of the claims; empty for none."""
        return self.requests[0].node_claim.metadata.labels.get(NODE_POOL, "")

    def instance_types(self) -> tuple[InstanceType, ...]:
        """Return the types, as if nothing else could be bought."""
        return tuple(candidate.to_instance_type() for candidate in self.candidates)


def claim_ref(request: LaunchRequest) -> ClaimRef:
    """Return whose the instance of a request will be."""
    return ClaimRef(name=request.node_claim.name, uid=request.token)


def plan_launches(
    requests: Iterable[LaunchRequest], launch_context: LaunchContext
) -> tuple[tuple[LaunchPlan, ...], dict[str, CloudProviderError]]:
    """Return what to launch, and by token why some claims cannot be."""
    choices = _LaunchChoices(launch_context)
    groups: dict[Hashable, tuple[_LaunchChoice, list[LaunchRequest]]] = {}
    refused: dict[str, CloudProviderError] = {}
    for request in requests:
        try:
            choice = choices.choice(request)
        except CloudProviderError as error:
            refused[request.token] = error
            continue
        key = (
            choice.key,
            _template_key(request),
            _context(request, launch_context),
            _has_overlay(request),
        )
        groups.setdefault(key, (choice, []))[1].append(request)
    plans = tuple(_plan(choice, members, launch_context) for choice, members in groups.values())
    return plans, refused


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LaunchChoice:
    """The plan for equal requests."""

    requirements: Requirements
    candidates: tuple[LaunchCandidate, ...]
    capacity_type: str

    @property
    def key(self) -> Hashable:
        """Equal for choices of which the same fleet comes."""
        return (
            self.capacity_type,
            tenancy_of(self.requirements),
            lowest_partition(self.requirements),
            is_inflexible(self.candidates, self.capacity_type, self.requirements),
            tuple(
                (candidate.instance_type.name, *(id(offering) for offering in candidate.offerings))
                for candidate in self.candidates
            ),
        )


@final
class _LaunchChoices:
    """The choices of one batch; objects are told apart by identity while it lives."""

    def __init__(self, launch_context: LaunchContext) -> None:
        self._launch_context: Final = launch_context
        self._requirements: Final[dict[tuple[RequirementSpec, ...], Requirements]] = {}
        self._compatible: Final[dict[Hashable, tuple[CompatibleType, ...]]] = {}
        self._choices: Final[dict[Hashable, _LaunchChoice | CloudProviderError]] = {}

    def choice(self, request: LaunchRequest) -> _LaunchChoice:
        """Return what a claim is launched as.

        Raises:
            InsufficientCapacityError: nothing of what it allows can be had.
        """
        specs = request.node_claim.spec.requirements
        choice_key = (id(request.instance_types), specs)
        amounts = _requested(request)
        key = (choice_key, tuple(sorted(amounts.items())))
        known = self._choices.get(key)
        if known is None:
            try:
                known = self._choose(request.instance_types, choice_key, amounts)
            except CloudProviderError as error:
                known = error
            self._choices[key] = known
        if isinstance(known, CloudProviderError):
            raise known
        return known

    def _choose(
        self,
        instance_types: Sequence[InstanceType],
        choice_key: tuple[int, tuple[RequirementSpec, ...]],
        amounts: Mapping[str, int],
    ) -> _LaunchChoice:
        requirements = self._requirements.get(choice_key[1])
        if requirements is None:
            requirements = self._requirements[choice_key[1]] = Requirements.from_specs(
                choice_key[1]
            )
        compatible = self._compatible.get(choice_key)
        if compatible is None:
            compatible = self._compatible[choice_key] = compatible_types(
                instance_types, requirements, is_open=self._launch_context.is_open
            )
        candidates = fitting_candidates(compatible, amounts)
        if not candidates:
            closed = self._closed(instance_types, requirements)
            sold_out = tuple(key for key, is_sold_out in closed.items() if is_sold_out)
            raise InsufficientCapacityError(
                "all requested instance types were unavailable during launch",
                offerings=sold_out or tuple(closed),
                scope=(
                    ExhaustedScope.NODE_CLASS
                    if closed and not sold_out
                    else ExhaustedScope.OFFERING
                ),
            )
        kept = filter_candidates(candidates, requirements)
        capacity_type = capacity_type_of(kept)
        return _LaunchChoice(
            requirements=requirements,
            candidates=with_capacity_type(kept, capacity_type),
            capacity_type=capacity_type,
        )

    def _closed(
        self, instance_types: Sequence[InstanceType], requirements: Requirements
    ) -> dict[OfferingKey, bool]:
        """Return what was listed as available, and is known here not to be; whether it is sold out.

        What is not sold out has no subnet with room. Reservations and partitions share a key, which
        is sold out when all of them are.
        """
        closed: dict[OfferingKey, bool] = {}
        for compatible in compatible_types(instance_types, requirements, is_open=_always):
            it = compatible.instance_type
            for allocatable in compatible.allocatable_offerings:
                for offering in allocatable.offerings:
                    if self._launch_context.is_open(it, offering):
                        continue
                    key = OfferingKey(
                        instance_type=it.name,
                        zone=offering.zone,
                        capacity_type=offering.capacity_type,
                    )
                    sold_out = self._launch_context.is_sold_out(it, offering)
                    closed[key] = closed.get(key, True) and sold_out
        return closed


def _always(_type: InstanceType, _offering: Offering) -> bool:
    return True


def _requested(request: LaunchRequest) -> Mapping[str, int]:
    return parse_resources(request.node_claim.spec.resources.requests)


def _template_key(request: LaunchRequest) -> Hashable:
    """Return all of a claim that its launch template tells of."""
    claim = request.node_claim
    wanted = claim.spec.resources.requests
    return (
        tuple(sorted(claim.metadata.labels.items())),
        claim.spec.taints,
        claim.spec.startup_taints,
        EFA in wanted,
        NITRO_SANDBOX_RESOURCE in wanted,
    )


def _context(request: LaunchRequest, launch_context: LaunchContext) -> str:
    """Return the fleet's context, which is not for a launch that had to give up variety."""
    relaxed = request.node_claim.metadata.annotations.get(MIN_VALUES_RELAXED) == "true"
    return "" if relaxed else launch_context.node_class.spec.context


def _has_overlay(request: LaunchRequest) -> bool:
    return PRICE_OVERLAY_APPLIED in request.node_claim.metadata.annotations


def _plan(
    choice: _LaunchChoice, requests: Sequence[LaunchRequest], launch_context: LaunchContext
) -> LaunchPlan:
    has_own_prices = _has_overlay(requests[0]) or any(
        launch_context.has_own_price(candidate.instance_type, offering)
        for candidate in choice.candidates
        for offering in candidate.offerings
    )
    return LaunchPlan(
        launch_context=launch_context,
        requests=tuple(requests),
        candidates=choice.candidates,
        options=options_of(
            choice.candidates,
            choice.capacity_type,
            context=_context(requests[0], launch_context),
            has_own_prices=has_own_prices,
        ),
        tenancy=tenancy_of(choice.requirements),
        partition=lowest_partition(choice.requirements) if launch_context.group is not None else 0,
        is_inflexible=is_inflexible(choice.candidates, choice.capacity_type, choice.requirements),
    )
