"""Groups claims that can be launched together into launch plans.

Pure functions of values. Hundreds of claims have few different requests, so whatever depends on the
request alone is computed once for all claims that have it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODE_POOL, RESERVED, WELL_KNOWN
from karpenter_core.api.quantities import parse_resources
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.launch_candidates import compatible_types, fitting_candidates
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.api.disks import DISK_CATEGORIES
from karpenter_provider_alibabacloud.launch.filters import (
    capacity_type_of,
    filter_candidates,
    is_inflexible,
    reservation_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.launch_candidates import CompatibleType, LaunchCandidate
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.system_disks import DisksByZone

__all__ = ["PRICE_OVERLAY_APPLIED", "LaunchContext", "LaunchPlan", "claim_ref", "plan_launches"]

PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
"""On a NodeClaim: an overlay has changed the prices that it was planned by."""

_WELL_KNOWN: Final = WELL_KNOWN | labels.WELL_KNOWN
_CLAIM_NAME: Final = "{{nodeClaim}}"
"""In user data of a cluster that is none of ACK's: each claim's is another then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """The inputs of a launch, as this process knows them at that moment."""

    node_class: ECSNodeClass
    shortages: UnavailableSnapshot
    reserved_left: Callable[[str], int]
    """Number of instances left of each private pool, by its id."""
    disks: Callable[[Sequence[str]], Mapping[str, DisksByZone | None]]
    """Returns the system disks that types boot from (`SystemDiskReader.of`)."""

    def is_sold_out(self, it: InstanceType, offering: Offering) -> bool:
        """Whether an offering cannot be had from any NodeClass, whatever vSwitches have room."""
        mark = UnavailableOffering(it.name, offering.zone, offering.capacity_type)
        return self.shortages.is_unavailable(mark)

    def is_open(self, it: InstanceType, offering: Offering) -> bool:
        """Whether nothing has come to be known against an offering since it was listed."""
        vswitches = [v.id for v in self.node_class.status.v_switches if v.zone_id == offering.zone]
        if not vswitches:
            return False
        mark = UnavailableOffering(it.name, offering.zone, offering.capacity_type)
        if self.shortages.is_unavailable(mark, vswitches):
            return False
        return (
            offering.capacity_type != RESERVED or self.reserved_left(reservation_of(offering)) > 0
        )

    @property
    def wants_disks(self) -> bool:
        """Whether the NodeClass leaves out categories of system disks that a type might need."""
        spec = self.node_class.spec
        return spec.system_disk is not None and not set(DISK_CATEGORIES).issubset(
            spec.system_disk_categories
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchPlan:
    """Claims that ask for the same, and what that is."""

    node_class: ECSNodeClass
    requests: tuple[LaunchRequest, ...]
    candidates: tuple[LaunchCandidate, ...]
    """All of one capacity type, the cheapest first."""
    capacity_type: str
    needs_variety: bool
    """Whether the claims ask for a number of different values (`minValues`)."""
    has_own_prices: bool
    """Prices are not those of ECS (an overlay): they decide, by priority."""
    is_inflexible: bool

    @property
    def node_pool(self) -> str:
        """The NodePool of the claims; empty for none."""
        return self.requests[0].node_claim.metadata.labels.get(NODE_POOL, "")

    def instance_types(self) -> tuple[InstanceType, ...]:
        """Return the types, as if nothing else could be bought."""
        return tuple(candidate.to_instance_type() for candidate in self.candidates)

    def open_candidates(self, launch_context: LaunchContext) -> tuple[LaunchCandidate, ...]:
        """Return what is still there by what is known now."""
        kept: list[LaunchCandidate] = []
        for candidate in self.candidates:
            it = candidate.instance_type
            offerings = tuple(o for o in candidate.offerings if launch_context.is_open(it, o))
            if offerings:
                kept.append(replace(candidate, offerings=offerings))
        return tuple(kept)


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
        key = (choice.key, _boot_key(request, launch_context), _has_overlay(request))
        groups.setdefault(key, (choice, []))[1].append(request)
    plans = tuple(
        LaunchPlan(
            node_class=launch_context.node_class,
            requests=tuple(members),
            candidates=choice.candidates,
            capacity_type=choice.capacity_type,
            needs_variety=choice.requirements.has_min_values,
            has_own_prices=_has_overlay(members[0]),
            is_inflexible=is_inflexible(
                choice.candidates, choice.capacity_type, choice.requirements
            ),
        )
        for choice, members in groups.values()
    )
    return plans, refused


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LaunchChoice:
    """The plan for equal requests."""

    requirements: Requirements
    candidates: tuple[LaunchCandidate, ...]
    capacity_type: str

    @property
    def key(self) -> Hashable:
        """Equal for choices of which the same launch comes."""
        return (
            self.capacity_type,
            self.requirements.has_min_values,
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
        amounts = parse_resources(request.node_claim.spec.resources.requests)
        key = (id(request.instance_types), specs, tuple(sorted(amounts.items())))
        known = self._choices.get(key)
        if known is None:
            try:
                known = self._choose(request.instance_types, specs, amounts)
            except CloudProviderError as error:
                known = error
            self._choices[key] = known
        if isinstance(known, CloudProviderError):
            raise known
        return known

    def _choose(
        self,
        instance_types: Sequence[InstanceType],
        specs: tuple[RequirementSpec, ...],
        amounts: Mapping[str, int],
    ) -> _LaunchChoice:
        requirements = self._requirements.get(specs)
        if requirements is None:
            requirements = self._requirements[specs] = Requirements.from_specs(specs)
        choice_key = (id(instance_types), specs)
        compatible = self._compatible.get(choice_key)
        if compatible is None:
            compatible = self._compatible[choice_key] = compatible_types(
                instance_types,
                requirements,
                is_open=self._launch_context.is_open,
                well_known=_WELL_KNOWN,
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
        kept = filter_candidates(
            candidates,
            requirements,
            disks=self._launch_context.disks if self._launch_context.wants_disks else None,
            categories=self._launch_context.node_class.spec.system_disk_categories,
        )
        return _LaunchChoice(
            requirements=requirements, candidates=kept, capacity_type=capacity_type_of(kept)
        )

    def _closed(
        self, instance_types: Sequence[InstanceType], requirements: Requirements
    ) -> dict[OfferingKey, bool]:
        """Return what was listed as available, and is known here not to be; whether for everybody."""
        listed = compatible_types(
            instance_types, requirements, is_open=_always, well_known=_WELL_KNOWN
        )
        return {
            OfferingKey(
                instance_type=compatible.instance_type.name,
                zone=offering.zone,
                capacity_type=offering.capacity_type,
            ): self._launch_context.is_sold_out(compatible.instance_type, offering)
            or offering.capacity_type == RESERVED
            for compatible in listed
            for allocatable in compatible.allocatable_offerings
            for offering in allocatable.offerings
            if not self._launch_context.is_open(compatible.instance_type, offering)
        }


def _always(_type: InstanceType, _offering: Offering) -> bool:
    return True


def _boot_key(request: LaunchRequest, launch_context: LaunchContext) -> Hashable:
    """Return all of a claim that its user data and tags tell of, but for whose it is."""
    claim = request.node_claim
    return (
        tuple(sorted(claim.metadata.labels.items())),
        claim.spec.taints,
        claim.spec.startup_taints,
        claim.name if _CLAIM_NAME in launch_context.node_class.spec.user_data else "",
    )


def _has_overlay(request: LaunchRequest) -> bool:
    return PRICE_OVERLAY_APPLIED in request.node_claim.metadata.annotations
