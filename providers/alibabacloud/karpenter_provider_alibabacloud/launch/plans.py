"""Plans launch calls for claims that can be launched together (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import RESERVED, WELL_KNOWN
from karpenter_core.errors import (
    CloudProviderError,
)
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.launch.groups import group_requests
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.api.disks import DISK_CATEGORIES
from karpenter_provider_alibabacloud.launch.filters import (
    filter_candidates,
    reservation_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.provider.kit.launch.groups import LaunchGroup
    from karpenter_core.provider.kit.launch_candidates import LaunchCandidate
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableSnapshot
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.system_disks import DisksByZone

__all__ = ["LaunchContext", "LaunchPlan", "plan_launches"]

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

    @property
    def well_known_labels(self) -> frozenset[str]:
        """Labels that an instance type may leave undefined."""
        return _WELL_KNOWN

    @property
    def reservation_label(self) -> str:
        """Label by which an offering names its private pool."""
        return labels.CAPACITY_RESERVATION_ID

    def is_sold_out(self, it: InstanceType, offering: Offering) -> bool:
        """Whether an offering is unavailable to every NodeClass, whatever vSwitches have room."""
        return not self._is_left(offering) or self._is_short(it, offering)

    def is_open(self, it: InstanceType, offering: Offering) -> bool:
        """Whether nothing has come to be known against an offering since it was listed."""
        vswitches = [v.id for v in self.node_class.status.v_switches if v.zone_id == offering.zone]
        if not vswitches:
            return False
        if self._is_short(it, offering, vswitches):
            return False
        return self._is_left(offering)

    def _is_left(self, offering: Offering) -> bool:
        """Whether an offering is no private pool, or one that has instances left."""
        return (
            offering.capacity_type != RESERVED or self.reserved_left(reservation_of(offering)) > 0
        )

    def _is_short(
        self, it: InstanceType, offering: Offering, vswitches: Collection[str] = ()
    ) -> bool:
        """Whether a launch found an offering, or all these vSwitches, exhausted."""
        mark = UnavailableOffering(it.name, offering.zone, offering.capacity_type)
        return self.shortages.is_unavailable(
            mark, vswitches, group=it.name, cpu_milli=it.capacity["cpu"]
        )

    def select(
        self, candidates: Sequence[LaunchCandidate], requirements: Requirements
    ) -> tuple[LaunchCandidate, ...]:
        """Return what a call asks for, the cheapest first."""
        return filter_candidates(
            candidates,
            requirements,
            disks=self.disks if self.wants_disks else None,
            categories=self.node_class.spec.system_disk_categories,
        )

    def requirements_key(self, requirements: Requirements) -> Hashable:
        """Return whether `minValues` asks for variety: targets are chosen by it."""
        return requirements.has_min_values

    def claim_key(self, request: LaunchRequest) -> Hashable:
        """Return all of a claim that its user data and tags depend on, but for its own name."""
        return _boot_key(request, self.node_class)

    @property
    def wants_disks(self) -> bool:
        """Whether the NodeClass leaves out categories of system disks that a type might need."""
        spec = self.node_class.spec
        return spec.system_disk is not None and not set(DISK_CATEGORIES).issubset(
            spec.system_disk_categories
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchPlan:
    """Claims that ask for the same, and the NodeClass of their instances."""

    node_class: ECSNodeClass
    group: LaunchGroup

    def open_candidates(self, launch_context: LaunchContext) -> tuple[LaunchCandidate, ...]:
        """Return the candidates that are still available by what is known now."""
        kept: list[LaunchCandidate] = []
        for candidate in self.group.candidates:
            it = candidate.instance_type
            offerings = tuple(o for o in candidate.offerings if launch_context.is_open(it, o))
            if offerings:
                kept.append(replace(candidate, offerings=offerings))
        return tuple(kept)


def plan_launches(
    requests: Iterable[LaunchRequest], launch_context: LaunchContext
) -> tuple[tuple[LaunchPlan, ...], dict[str, CloudProviderError]]:
    """Return what to launch, and by token why some claims cannot be."""
    groups, refused = group_requests(requests, launch_context)
    plans = (LaunchPlan(node_class=launch_context.node_class, group=group) for group in groups)
    return tuple(plans), refused


def _boot_key(request: LaunchRequest, node_class: ECSNodeClass) -> Hashable:
    """Return all of a claim that its user data and tags tell of, but for whose it is."""
    claim = request.node_claim
    return (
        tuple(sorted(claim.metadata.labels.items())),
        claim.spec.taints,
        claim.spec.startup_taints,
        claim.name if _CLAIM_NAME in node_class.spec.user_data else "",
    )
