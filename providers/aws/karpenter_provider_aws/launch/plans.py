"""Plans fleets for claims that can be launched together (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import MIN_VALUES_RELAXED, RESERVED, WELL_KNOWN
from karpenter_core.errors import (
    CloudProviderError,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.launch.groups import group_requests
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    EFA,
    LABEL_CLASSES,
    NITRO_SANDBOX_RESOURCE,
    PLACEMENT_GROUP_PARTITION,
)
from karpenter_provider_aws.launch.filters import (
    filter_candidates,
)
from karpenter_provider_aws.launch.fleet import (
    options_of,
    tenancy_of,
)
from karpenter_provider_aws.launch.template_groups import lowest_partition
from karpenter_provider_aws.quotas import quota_class

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.launch.groups import LaunchGroup
    from karpenter_core.provider.kit.launch_candidates import LaunchCandidate
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.offerings import PriceList
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.launch.fleet import FleetOptions
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["LaunchContext", "LaunchPlan", "plan_launches"]

_WELL_KNOWN: Final = WELL_KNOWN | LABEL_CLASSES.well_known


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """The inputs of a launch, as this process knows them at that moment."""

    node_class: EC2NodeClass
    shortages: UnavailableSnapshot
    shifted: ShiftedZones
    reserved_left: Callable[[str], int]
    """Number of instances left of each reservation, by its id."""
    prices: PriceList
    placement_group: DescribedPlacementGroup | None = None

    @property
    def well_known_labels(self) -> frozenset[str]:
        """Labels that an instance type may leave undefined."""
        return _WELL_KNOWN

    @property
    def reservation_label(self) -> str:
        """Label by which an offering names its reservation."""
        return CAPACITY_RESERVATION_ID

    def is_sold_out(self, it: InstanceType, offering: Offering) -> bool:
        """Whether an offering cannot be had, whatever subnets have room."""
        return self._is_closed(offering) or self._is_short(it, offering)

    def is_open(self, it: InstanceType, offering: Offering) -> bool:
        """Whether nothing has come to be known against an offering since it was listed."""
        subnets = [s.id for s in self.node_class.status.subnets if s.zone == offering.zone]
        if not subnets or self._is_closed(offering):
            return False
        return not self._is_short(it, offering, subnets)

    def _is_closed(self, offering: Offering) -> bool:
        """Whether its zone is shifted away from, or its reservation used up."""
        if self.shifted.has(offering.zone):
            return True
        if offering.capacity_type != RESERVED:
            return False
        return self.reserved_left(offering.requirements.single_value(CAPACITY_RESERVATION_ID)) <= 0

    def _is_short(
        self, it: InstanceType, offering: Offering, subnets: Collection[str] = ()
    ) -> bool:
        """Whether a launch found an offering, or all these subnets, exhausted."""
        if self.shortages.is_empty:
            return False
        mark = UnavailableOffering(
            it.name,
            offering.zone,
            offering.capacity_type,
            "" if self.placement_group is None else self.placement_group.id,
            offering.requirements.single_value(PLACEMENT_GROUP_PARTITION),
        )
        return self.shortages.is_unavailable(
            mark, subnets, group=quota_class(it.name), cpu_milli=it.capacity["cpu"]
        )

    def select(
        self, candidates: Sequence[LaunchCandidate], requirements: Requirements
    ) -> tuple[LaunchCandidate, ...]:
        """Return what a fleet is asked for, the cheapest first."""
        return filter_candidates(candidates, requirements)

    def requirements_key(self, requirements: Requirements) -> Hashable:
        """Return the tenancy and partition: both are of the whole fleet."""
        return tenancy_of(requirements), lowest_partition(requirements)

    def claim_key(self, request: LaunchRequest) -> Hashable:
        """Return all of a claim that its launch template and its fleet's context depend on."""
        return _template_key(request), _context(request, self.node_class)

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
    group: LaunchGroup
    options: FleetOptions
    tenancy: str
    partition: int
    """Of a placement group; 0 lets EC2 choose."""

    @property
    def node_class(self) -> EC2NodeClass:
        """The NodeClass of the instances."""
        return self.launch_context.node_class


def plan_launches(
    requests: Iterable[LaunchRequest], launch_context: LaunchContext
) -> tuple[tuple[LaunchPlan, ...], dict[str, CloudProviderError]]:
    """Return what to launch, and by token why some claims cannot be."""
    groups, refused = group_requests(requests, launch_context)
    return tuple(_plan(group, launch_context) for group in groups), refused


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


def _context(request: LaunchRequest, node_class: EC2NodeClass) -> str:
    """Return the fleet's context, which is not for a launch that had to give up variety."""
    relaxed = request.node_claim.metadata.annotations.get(MIN_VALUES_RELAXED) == "true"
    return "" if relaxed else node_class.spec.context


def _plan(group: LaunchGroup, launch_context: LaunchContext) -> LaunchPlan:
    has_own_prices = group.has_price_overlay or any(
        launch_context.has_own_price(candidate.instance_type, offering)
        for candidate in group.candidates
        for offering in candidate.offerings
    )
    return LaunchPlan(
        launch_context=launch_context,
        group=group,
        options=options_of(
            group.candidates,
            group.capacity_type,
            context=_context(group.requests[0], launch_context.node_class),
            has_own_prices=has_own_prices,
        ),
        tenancy=tenancy_of(group.requirements),
        partition=(
            0 if launch_context.placement_group is None else lowest_partition(group.requirements)
        ),
    )
