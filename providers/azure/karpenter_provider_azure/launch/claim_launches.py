"""Inputs and outcomes of launches: the catalogue, and a claim's offerings."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import NODE_POOL, SPOT, WELL_KNOWN
from karpenter_core.errors import (
    BadInputError,
    ExhaustedScope,
    InsufficientCapacityError,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.launch.cheapest import cheapest_offerings
from karpenter_core.provider.kit.launch.launched_instances import describe_launch, offering_in
from karpenter_core.provider.kit.launch_candidates import offering_key
from karpenter_provider_azure import labels
from karpenter_provider_azure.labels import placement_scope
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest

    OfferedType: TypeAlias = "tuple[InstanceType, Offering]"
    RankedOfferings: TypeAlias = "tuple[tuple[OfferedType, ...], ...]"
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import LaunchedInstance
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.quotas import RegionQuotas
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = [
    "ClaimLaunch",
    "LaunchCatalogue",
    "OfferingOrder",
    "launched_node",
    "node_class_of",
    "ranked_offerings",
    "uses_ultra_ssd",
]

_WAVES_KEPT: Final = 8


def ranked_offerings(request: LaunchRequest) -> RankedOfferings:
    """Return the available offerings that a claim allows, the best first; equal ones together.

    The lower price is better, then spot, then an offering with a zone, then the name of the type. What is
    left equal are zones of one type.
    """
    found = cheapest_offerings(request, own_labels=labels.WELL_KNOWN)
    return tuple(tuple(equal) for _, equal in groupby(sorted(found, key=_rank), key=_rank))


def _rank(each: OfferedType) -> tuple[float, bool, bool, str]:
    it, offering = each
    is_regional = offering.zone == labels.REGIONAL_ZONE
    return offering.price.amount, offering.capacity_type != SPOT, is_regional, it.name


@final
class OfferingOrder:
    """Orders the offerings of claims; callable from any thread."""

    def __init__(self, draw: Callable[[], float]) -> None:
        """`draw` returns a random number (`random.random`), which decides between equal zones."""
        self._draw: Final = draw
        self._lock: Final = Lock()
        self._ranked: Final[
            OrderedDict[
                tuple[int, tuple[RequirementSpec, ...]],
                tuple[Sequence[InstanceType], RankedOfferings],
            ]
        ] = OrderedDict()
        """By identity of the instance types, which are kept so that no other ones get it."""

    def offerings(self, request: LaunchRequest) -> Iterator[OfferedType]:
        """Yield the available offerings that a claim allows, the best first.

        Zones that differ in nothing are shuffled, so that many claims are spread over them.
        """
        for equal in self._ranked_for(request):
            if len(equal) == 1:
                yield equal[0]
            else:
                yield from sorted(equal, key=lambda _each: self._draw())

    def _ranked_for(self, request: LaunchRequest) -> RankedOfferings:
        key = id(request.instance_types), request.node_claim.spec.requirements
        with self._lock:
            kept = self._ranked.get(key)
        if kept is not None:
            return kept[1]
        ranked = ranked_offerings(request)
        with self._lock:
            self._ranked[key] = request.instance_types, ranked
            while len(self._ranked) > _WAVES_KEPT:
                self._ranked.popitem(last=False)
        return ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCatalogue:
    """The functions of the catalogue that launches use; callable from any thread."""

    sizes: Callable[[], Mapping[str, VmSize]]
    """Returns the VM sizes of the region by name."""
    is_open: Callable[[InstanceType, Offering], bool]
    """Whether an offering is available by all that is known now (`InstanceTypeCatalogue.is_open`)."""
    instance_types: Callable[[AKSNodeClass], Iterable[InstanceType]]
    """Returns all instance types of a NodeClass."""
    quotas: RegionQuotas
    """Launches are known by the UIDs of their claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLaunch:
    """One call of the hook."""

    request: LaunchRequest
    node_class: AKSNodeClass

    def of_all_offerings(self, error: CloudProviderError) -> CloudProviderError:
        """Return an error; one about the NodeClass names all offerings, none of which it can launch."""
        if (
            not isinstance(error, InsufficientCapacityError)
            or error.scope is not ExhaustedScope.NODE_CLASS
        ):
            return error
        keys = [
            offering_key(it.name, offering)
            for equal in ranked_offerings(self.request)
            for it, offering in equal
        ]
        return InsufficientCapacityError(str(error), offerings=keys, scope=error.scope)

    @property
    def vm_name(self) -> str:
        """The name of the virtual machine."""
        return vm_name(self.request.node_claim.name)

    @property
    def node_pool(self) -> str:
        """The NodePool of the claim; empty for none."""
        return self.request.node_claim.metadata.labels.get(NODE_POOL, "")


def node_class_of(request: LaunchRequest) -> AKSNodeClass:
    """Return the NodeClass of a request.

    Raises:
        BadInputError: it is of another kind.
    """
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass

    if not isinstance(request.node_class, AKSNodeClass):
        raise BadInputError(f'"{request.node_class.name}" is not an AKSNodeClass')
    return request.node_class


def uses_ultra_ssd(claim: NodeClaim) -> bool:
    """Whether a claim asks for a virtual machine that ultra disks can be attached to.

    It does if its requirements allow `true` and not `false`.
    """
    requirements = Requirements.from_specs(claim.spec.requirements)
    if labels.SKU_STORAGE_ULTRA_SSD not in requirements:
        return False
    wanted = requirements.get(labels.SKU_STORAGE_ULTRA_SSD)
    return wanted.has(labels.TRUE) and not wanted.has(labels.FALSE)


def launched_node(
    claim: NodeClaim, vm: DescribedVm, instance_type: InstanceType
) -> LaunchedInstance:
    """Return the outcome of a claim whose virtual machine exists.

    `instance_type` is that of the virtual machine, with all its offerings.
    """
    priority = labels.PRIORITY_OF[vm.capacity_type]
    offering = offering_in(
        instance_type,
        zone=vm.zone,
        capacity_type=vm.capacity_type,
        reservation_label="",  # no offering is reserved
    )
    return describe_launch(
        claim,
        instance_type,
        offering,
        provider_id=vm.provider_id,
        zone=vm.zone,
        capacity_type=vm.capacity_type,
        image_id=vm.image_id,
        labels={
            **_own_labels(claim),
            labels.PLACEMENT_SCOPE: placement_scope(vm.zone),
            labels.AKS_SCALE_SET_PRIORITY: priority,
            labels.AKS_PRIORITY: priority,
            labels.SKU_STORAGE_ULTRA_SSD: labels.TRUE if uses_ultra_ssd(claim) else labels.FALSE,
        },
        offering_labels=labels.OFFERING_LABELS,
    )


def _own_labels(claim: NodeClaim) -> dict[str, str]:
    """Return the labels of AKS and this provider that the claim's requirements fix to one value."""
    requirements = Requirements.from_specs(claim.spec.requirements)
    return {
        key: value
        for key in requirements
        if key in labels.WELL_KNOWN - WELL_KNOWN and (value := requirements.single_value(key))
    }
