"""Groups claims that one call can be for, by what they may be launched as.

Pure functions of values. Hundreds of claims have few different requests, so whatever depends on the
request alone is computed once for all claims that have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.labels import NODE_POOL, PRICE_OVERLAY_APPLIED
from karpenter_core.api.quantities import parse_resources
from karpenter_core.errors import CloudProviderError, ExhaustedScope, InsufficientCapacityError
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.launch_candidates import (
    capacity_type_of,
    compatible_types,
    fitting_candidates,
    is_inflexible,
    offering_key,
    offering_keys,
    with_offerings,
)
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.shortages import narrow_to_reservations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.launch_candidates import CompatibleType, LaunchCandidate

__all__ = [
    "LaunchGroup",
    "LaunchRules",
    "apply_filters",
    "claim_ref",
    "group_requests",
]

_UNAVAILABLE: Final = "all requested instance types were unavailable during launch"


class LaunchRules(Protocol):
    """A cloud's rules for launches from one NodeClass, at one moment."""

    @property
    def well_known_labels(self) -> Collection[str]:
        """Labels that an instance type may leave undefined."""
        ...

    @property
    def reservation_label(self) -> str:
        """Label by which an offering names its reservation."""
        ...

    def is_open(self, it: InstanceType, offering: Offering, /) -> bool:
        """Whether nothing has come to be known against an offering since it was listed."""
        ...

    def is_sold_out(self, it: InstanceType, offering: Offering, /) -> bool:
        """Whether an offering is unavailable to every NodeClass, whatever subnets have room."""
        ...

    def select(
        self, candidates: Sequence[LaunchCandidate], requirements: Requirements, /
    ) -> tuple[LaunchCandidate, ...]:
        """Return what a call asks for, the cheapest first.

        Raises:
            InsufficientCapacityError: nothing is left, or too little variety for `minValues`.
        """
        ...

    def requirements_key(self, requirements: Requirements, /) -> Hashable:
        """Return what a call depends on of requirements, beside the candidates."""
        ...

    def claim_key(self, request: LaunchRequest, /) -> Hashable:
        """Return what a call depends on of a claim: user data, tags."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchGroup:
    """Claims that ask for the same, and what that is."""

    requests: tuple[LaunchRequest, ...]
    requirements: Requirements
    candidates: tuple[LaunchCandidate, ...]
    """All of one capacity type."""
    capacity_type: str
    is_inflexible: bool
    """Whether on-demand is launched although spot is allowed, because spot has few types."""
    has_price_overlay: bool
    """Whether the claims were planned by other prices than the cloud's: these decide."""

    @property
    def node_pool(self) -> str:
        """The NodePool of the claims; empty for none."""
        return self.requests[0].node_claim.metadata.labels.get(NODE_POOL, "")

    def instance_types(self) -> tuple[InstanceType, ...]:
        """Return the types with the offerings of the candidates alone."""
        return tuple(candidate.to_instance_type() for candidate in self.candidates)


def claim_ref(request: LaunchRequest) -> ClaimRef:
    """Return whose the instance of a request will be."""
    return ClaimRef(name=request.node_claim.name, uid=request.token)


def group_requests(
    requests: Iterable[LaunchRequest], rules: LaunchRules
) -> tuple[tuple[LaunchGroup, ...], dict[str, CloudProviderError]]:
    """Return the groups of claims that can be launched, and by token why the others cannot."""
    choices = _LaunchChoices(rules)
    groups: dict[Hashable, tuple[_LaunchChoice, list[LaunchRequest]]] = {}
    refused: dict[str, CloudProviderError] = {}
    for request in requests:
        try:
            choice = choices.choice(request)
        except CloudProviderError as error:
            refused[request.token] = error
            continue
        key = (choice.key, rules.claim_key(request), _has_price_overlay(request))
        groups.setdefault(key, (choice, []))[1].append(request)
    return (
        tuple(
            LaunchGroup(
                requests=tuple(members),
                requirements=choice.requirements,
                candidates=choice.candidates,
                capacity_type=choice.capacity_type,
                is_inflexible=choice.is_inflexible,
                has_price_overlay=_has_price_overlay(members[0]),
            )
            for choice, members in groups.values()
        ),
        refused,
    )


def apply_filters(
    candidates: Sequence[LaunchCandidate],
    requirements: Requirements,
    filters: Iterable[
        Callable[[Sequence[LaunchCandidate], Requirements], tuple[LaunchCandidate, ...]]
    ],
) -> tuple[LaunchCandidate, ...]:
    """Return what filters leave, one after the other.

    Raises:
        InsufficientCapacityError: one of them leaves nothing; names the offerings that it got.
    """
    kept = tuple(candidates)
    for keep in filters:
        before, kept = kept, keep(kept, requirements)
        if not kept:
            raise InsufficientCapacityError(_UNAVAILABLE, offerings=offering_keys(before))
    return kept


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LaunchChoice:
    """Choice of offerings with which equal requests are launched."""

    key: Hashable
    """Equal for choices that lead to the same call."""
    requirements: Requirements
    candidates: tuple[LaunchCandidate, ...]
    capacity_type: str
    is_inflexible: bool


@final
class _LaunchChoices:
    """The choices of one batch; objects are compared by identity while it lives."""

    def __init__(self, rules: LaunchRules) -> None:
        self._rules: Final = rules
        self._requirements: Final[dict[tuple[RequirementSpec, ...], Requirements]] = {}
        self._compatible: Final[dict[Hashable, tuple[CompatibleType, ...]]] = {}
        self._choices: Final[dict[Hashable, _LaunchChoice | CloudProviderError]] = {}

    def choice(self, request: LaunchRequest) -> _LaunchChoice:
        """Return what a claim is launched as.

        Raises:
            InsufficientCapacityError: nothing of what it allows is available.
        """
        specs = request.node_claim.spec.requirements
        amounts = parse_resources(request.node_claim.spec.resources.requests)
        key = (id(request.instance_types), specs, tuple(sorted(amounts.items())))
        choice = self._choices.get(key)
        if choice is None:
            try:
                choice = self._choose(request.instance_types, specs, amounts)
            except CloudProviderError as error:
                choice = error
            self._choices[key] = choice
        if isinstance(choice, CloudProviderError):
            raise choice
        return choice

    def _choose(
        self,
        instance_types: Sequence[InstanceType],
        specs: tuple[RequirementSpec, ...],
        amounts: Mapping[str, int],
    ) -> _LaunchChoice:
        requirements = self._requirements.get(specs)
        if requirements is None:
            requirements = self._requirements[specs] = Requirements.from_specs(specs)
        compatible = self._compatible.get((id(instance_types), specs))
        if compatible is None:
            compatible = self._compatible[id(instance_types), specs] = compatible_types(
                instance_types,
                requirements,
                is_open=self._rules.is_open,
                well_known=self._rules.well_known_labels,
            )
        candidates = fitting_candidates(compatible, amounts)
        if not candidates:
            raise self._unavailable_error(instance_types, requirements)
        kept = self._rules.select(candidates, requirements)
        capacity_type = capacity_type_of(kept)
        kept = with_offerings(kept, lambda offering: offering.capacity_type == capacity_type)
        inflexible = is_inflexible(kept, capacity_type, requirements)
        return _LaunchChoice(
            key=(
                capacity_type,
                inflexible,
                self._rules.requirements_key(requirements),
                tuple(
                    (candidate.instance_type.name, *map(id, candidate.offerings))
                    for candidate in kept
                ),
            ),
            requirements=requirements,
            candidates=kept,
            capacity_type=capacity_type,
            is_inflexible=inflexible,
        )

    def _unavailable_error(
        self, instance_types: Sequence[InstanceType], requirements: Requirements
    ) -> CloudProviderError:
        listed = self._closed_offerings(instance_types, requirements)
        closed: dict[OfferingKey, bool] = {}
        for name, offering, is_sold_out in listed:
            key = offering_key(name, offering)
            closed[key] = closed.get(key, True) and is_sold_out
        sold_out = tuple(key for key, is_sold_out in closed.items() if is_sold_out)
        is_of_node_class = closed and not sold_out
        error = InsufficientCapacityError(
            _UNAVAILABLE,
            offerings=sold_out or tuple(closed),
            scope=ExhaustedScope.NODE_CLASS if is_of_node_class else ExhaustedScope.OFFERING,
        )
        return narrow_to_reservations(
            error,
            ((name, offering) for name, offering, _ in listed),
            label=self._rules.reservation_label,
        )

    def _closed_offerings(
        self, instance_types: Sequence[InstanceType], requirements: Requirements
    ) -> list[tuple[str, Offering, bool]]:
        """Return the offerings that were listed and are not open, and whether they are sold out.

        What is not sold out has no subnet with room. Reservations of a type in a zone share a key,
        which is sold out when all of them are.
        """
        listed = compatible_types(
            instance_types,
            requirements,
            is_open=lambda _it, _offering: True,
            well_known=self._rules.well_known_labels,
        )
        return [
            (compatible.instance_type.name, offering, self._rules.is_sold_out(it, offering))
            for compatible in listed
            for it in (compatible.instance_type,)
            for allocatable in compatible.allocatable_offerings
            for offering in allocatable.offerings
            if not self._rules.is_open(it, offering)
        ]


def _has_price_overlay(request: LaunchRequest) -> bool:
    return PRICE_OVERLAY_APPLIED in request.node_claim.metadata.annotations
