"""Names the parts of an EC2NodeClass, and how each is found.

`karpenter_core.provider.kit.node_class.resolution` resolves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class import resolution
from karpenter_core.provider.kit.node_class.discovery import reservations_part
from karpenter_core.provider.kit.node_class.parts import condition_met
from karpenter_core.provider.kit.node_class.resolution import NodeClassPart
from karpenter_provider_aws.discovery import (
    images,
    placement_groups,
    reservations,
    security_groups,
    subnets,
)
from karpenter_provider_aws.node_class import parts
from karpenter_provider_aws.node_class.conditions import (
    AMIS_READY,
    AWS_ERRORS,
    CAPACITY_RESERVATIONS_READY,
    INSTANCE_PROFILE_READY,
    PLACEMENT_GROUP_READY,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
)

if TYPE_CHECKING:
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import NodeClassResolution
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_core.provider.kit.node_class.resolution import NodeClassValidation
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.images import ImageReader
    from karpenter_provider_aws.discovery.placement_groups import PlacementGroupReader
    from karpenter_provider_aws.discovery.profiles import InstanceProfiles
    from karpenter_provider_aws.discovery.reservations import ReservationReader
    from karpenter_provider_aws.discovery.security_groups import SecurityGroupReader
    from karpenter_provider_aws.discovery.subnets import SubnetReader

__all__ = ["NodeClassDiscovery", "NodeClassResolver"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassDiscovery:
    """All that discovery can find."""

    subnets: SubnetReader
    security_groups: SecurityGroupReader
    images: ImageReader
    placement_groups: PlacementGroupReader
    profiles: InstanceProfiles
    reservations: ReservationReader | None
    """None when the feature gate ReservedCapacity is off."""


@final
class NodeClassResolver:
    """Resolves NodeClasses, and knows their instance profiles; callable from any thread."""

    def __init__(
        self,
        discovery: NodeClassDiscovery,
        validation: NodeClassValidation[EC2NodeClass],
        clock: Clock,
    ) -> None:
        self._discovery: Final = discovery
        self._clock: Final = clock
        self._resolver: Final = resolution.NodeClassResolver(
            self._parts, AWS_ERRORS, validation=validation
        )
        self._lock: Final = Lock()
        self._profiles: Final[dict[str, frozenset[str]]] = {}

    def resolve(self, node_class: EC2NodeClass) -> NodeClassResolution:
        """Return status and conditions of a NodeClass.

        Raises:
            CloudProviderError: AWS could be asked for nothing.
        """
        return self._resolver.resolve(node_class)

    def profiles_in_use(self) -> frozenset[str]:
        """Return the instance profiles of all NodeClasses that were resolved by this process."""
        with self._lock:
            return frozenset(name for names in self._profiles.values() for name in names)

    def forget(self, node_class: EC2NodeClass) -> None:
        """Forget a NodeClass that is gone."""
        self._resolver.forget(node_class)
        with self._lock:
            self._profiles.pop(node_class.uid, None)

    def _parts(self, node_class: EC2NodeClass) -> list[NodeClassPart]:
        self._note_profile(node_class, "")
        found, spec = self._discovery, node_class.spec
        selector = spec.placement_group_selector
        searches = [
            NodeClassPart(
                AMIS_READY, images.FIELD, lambda: parts.ami_part(found.images, node_class)
            ),
            NodeClassPart(
                PLACEMENT_GROUP_READY,
                placement_groups.FIELD,
                lambda: parts.placement_group_part(selector, found.placement_groups.find(selector)),
                is_launch_need=False,
                is_always_read=False,
            ),
            NodeClassPart(
                SUBNETS_READY,
                subnets.FIELD,
                lambda: parts.subnet_part(found.subnets.find(spec.subnet_selector_terms)),
            ),
            NodeClassPart(
                SECURITY_GROUPS_READY,
                security_groups.FIELD,
                lambda: parts.security_group_part(
                    found.security_groups.find(spec.security_group_selector_terms)
                ),
            ),
            NodeClassPart(
                INSTANCE_PROFILE_READY,
                f'spec.role "{spec.role}"' if spec.role else "spec.instanceProfile",
                lambda: self._profile_part(node_class),
                is_always_read=False,
            ),
        ]
        if found.reservations is not None:
            reader = found.reservations
            searches.append(
                NodeClassPart(
                    CAPACITY_RESERVATIONS_READY,
                    reservations.FIELD,
                    lambda: self._reservations_part(reader, node_class),
                    is_launch_need=False,
                    is_always_read=False,
                )
            )
        return searches

    def _profile_part(self, node_class: EC2NodeClass) -> ResolutionPart:
        name = self._discovery.profiles.ensure(node_class)
        self._note_profile(node_class, name)
        return condition_met(INSTANCE_PROFILE_READY, status={"instanceProfile": name})

    def _reservations_part(
        self, reader: ReservationReader, node_class: EC2NodeClass
    ) -> ResolutionPart:
        found, now = (
            reader.find(node_class.spec.capacity_reservation_selector_terms),
            self._clock.now(),
        )
        listed = [item.status(now) for item in found.items]
        return reservations_part(CAPACITY_RESERVATIONS_READY, found, listed, now=now)

    def _note_profile(self, node_class: EC2NodeClass, name: str) -> None:
        names = {node_class.status.instance_profile, name} - {""}
        with self._lock:
            self._profiles[node_class.uid] = frozenset(names)
