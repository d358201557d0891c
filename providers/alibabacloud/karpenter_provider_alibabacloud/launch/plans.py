"""Which claims are launched as what, and which of them together. Pure functions of values.

A wave has hundreds of claims and few different wishes, so whatever depends on a wish alone is worked
out once for all claims that have it.
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
from karpenter_core.provider.kit.launch_candidates import candidates_of, compatible_types
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.unavailable import OfferingMark
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.api.disks import DISK_CATEGORIES
from karpenter_provider_alibabacloud.launch.filters import (
    capacity_type_of,
    filtered,
    is_inflexible,
    reservation_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.launch_candidates import Candidate, CompatibleType
    from karpenter_core.provider.kit.unavailable import Shortages
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.system_disks import DisksByZone

__all__ = ["PRICE_OVERLAY_APPLIED", "Ground", "Plan", "claim_ref", "plan_launches"]

PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
"""On a NodeClaim: an overlay has changed the prices that it was planned by."""

_WELL_KNOWN: Final = WELL_KNOWN | labels.WELL_KNOWN
_CLAIM_NAME: Final = "{{nodeClaim}}"
"""In user data of a cluster that is none of ACK's: each claim's is another then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a launch finds, as far as this process knows it at that moment."""

    node_class: ECSNodeClass
    shortages: Shortages
    reserved_left: Callable[[str], int]
    """How many machines are left of a private pool, by its id."""
    disks: Callable[[Sequence[str]], Mapping[str, DisksByZone | None]]
    """What system disks types boot from (`SystemDisks.of`)."""

    def is_sold_out(self, it: InstanceType, offering: Offering) -> bool:
        """Whether an offering cannot be had from any NodeClass, whatever vSwitches have room."""
        mark = OfferingMark(it.name, offering.zone, offering.capacity_type)
        return self.shortages.is_unavailable(mark)

    def is_open(self, it: InstanceType, offering: Offering) -> bool:
        """Whether nothing has come to be known against an offering since it was listed."""
        vswitches = [v.id for v in self.node_class.status.v_switches if v.zone_id == offering.zone]
        if not vswitches:
            return False
        mark = OfferingMark(it.name, offering.zone, offering.capacity_type)
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
class Plan:
    """Claims that ask for the same, and what that is."""

    node_class: ECSNodeClass
    requests: tuple[LaunchRequest, ...]
    candidates: tuple[Candidate, ...]
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

    def open_candidates(self, ground: Ground) -> tuple[Candidate, ...]:
        """Return what is still there by what is known now."""
        kept: list[Candidate] = []
        for candidate in self.candidates:
            it = candidate.instance_type
            offerings = tuple(o for o in candidate.offerings if ground.is_open(it, o))
            if offerings:
                kept.append(replace(candidate, offerings=offerings))
        return tuple(kept)


def claim_ref(request: LaunchRequest) -> ClaimRef:
    """Return whose the instance of a request will be."""
    return ClaimRef(name=request.node_claim.name, uid=request.token)


def plan_launches(
    requests: Iterable[LaunchRequest], ground: Ground
) -> tuple[tuple[Plan, ...], dict[str, CloudProviderError]]:
    """Return what to launch, and by token why some claims cannot be."""
    wishes = _Wishes(ground)
    groups: dict[Hashable, tuple[_Choice, list[LaunchRequest]]] = {}
    refused: dict[str, CloudProviderError] = {}
    for request in requests:
        try:
            choice = wishes.choice(request)
        except CloudProviderError as error:
            refused[request.token] = error
            continue
        key = (choice.key, _boot_key(request, ground), _has_overlay(request))
        groups.setdefault(key, (choice, []))[1].append(request)
    plans = tuple(
        Plan(
            node_class=ground.node_class,
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
class _Choice:
    """What a wish comes to."""

    requirements: Requirements
    candidates: tuple[Candidate, ...]
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
class _Wishes:
    """The choices of one batch; objects are told apart by identity while it lives."""

    def __init__(self, ground: Ground) -> None:
        self._ground: Final = ground
        self._requirements: Final[dict[tuple[RequirementSpec, ...], Requirements]] = {}
        self._compatible: Final[dict[Hashable, tuple[CompatibleType, ...]]] = {}
        self._choices: Final[dict[Hashable, _Choice | CloudProviderError]] = {}

    def choice(self, request: LaunchRequest) -> _Choice:
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
    ) -> _Choice:
        requirements = self._requirements.get(specs)
        if requirements is None:
            requirements = self._requirements[specs] = Requirements.from_specs(specs)
        wish = (id(instance_types), specs)
        compatible = self._compatible.get(wish)
        if compatible is None:
            compatible = self._compatible[wish] = compatible_types(
                instance_types, requirements, is_open=self._ground.is_open, well_known=_WELL_KNOWN
            )
        candidates = candidates_of(compatible, amounts)
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
        kept = filtered(
            candidates,
            requirements,
            disks=self._ground.disks if self._ground.wants_disks else None,
            categories=self._ground.node_class.spec.system_disk_categories,
        )
        return _Choice(
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
            ): self._ground.is_sold_out(compatible.instance_type, offering)
            or offering.capacity_type == RESERVED
            for compatible in listed
            for machine in compatible.machines
            for offering in machine.offerings
            if not self._ground.is_open(compatible.instance_type, offering)
        }


def _always(_type: InstanceType, _offering: Offering) -> bool:
    return True


def _boot_key(request: LaunchRequest, ground: Ground) -> Hashable:
    """Return all of a claim that its user data and tags tell of, but for whose it is."""
    claim = request.node_claim
    return (
        tuple(sorted(claim.metadata.labels.items())),
        claim.spec.taints,
        claim.spec.startup_taints,
        claim.name if _CLAIM_NAME in ground.node_class.spec.user_data else "",
    )


def _has_overlay(request: LaunchRequest) -> bool:
    return PRICE_OVERLAY_APPLIED in request.node_claim.metadata.annotations
