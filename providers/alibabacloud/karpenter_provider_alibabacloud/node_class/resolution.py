"""Names the parts of an ECSNodeClass, and how each is found.

`karpenter_core.provider.kit.node_class.resolution` resolves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.discovery import reservations_part
from karpenter_core.provider.kit.node_class.resolution import (
    NodeClassPart,
    NodeClassResolver,
    SharedRead,
)
from karpenter_provider_alibabacloud.discovery import (
    images,
    reservations,
    security_groups,
    vswitches,
)
from karpenter_provider_alibabacloud.node_class import parts
from karpenter_provider_alibabacloud.node_class.conditions import (
    ALIBABA_CLOUD_ERRORS,
    CAPACITY_RESERVATIONS_READY,
    IMAGES_READY,
    SECURITY_GROUPS_READY,
    VSWITCHES_READY,
)

if TYPE_CHECKING:
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_core.provider.kit.node_class.resolution import NodeClassValidation
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.discovery.images import ImageReader
    from karpenter_provider_alibabacloud.discovery.reservations import ReservationReader
    from karpenter_provider_alibabacloud.discovery.security_groups import SecurityGroupReader
    from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader

__all__ = ["NodeClassDiscovery", "node_class_resolver"]

MAX_SILENCE: Final = 3
"""After so many reads without an answer in a row, what was found before does not stand any longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassDiscovery:
    """All that discovery can find."""

    vswitches: VSwitchReader
    security_groups: SecurityGroupReader
    images: ImageReader
    reservations: ReservationReader | None
    """None when the feature gate ReservedCapacity is off."""


def node_class_resolver(
    discovery: NodeClassDiscovery, validation: NodeClassValidation[ECSNodeClass], clock: Clock
) -> NodeClassResolver[ECSNodeClass]:
    """Return the resolver."""
    return NodeClassResolver(
        lambda node_class: _parts(discovery, node_class, clock),
        ALIBABA_CLOUD_ERRORS,
        validation=validation,
        max_silence=MAX_SILENCE,
    )


def _parts(
    discovery: NodeClassDiscovery, node_class: ECSNodeClass, clock: Clock
) -> list[NodeClassPart]:
    spec = node_class.spec
    switches = SharedRead(lambda: discovery.vswitches.find(spec.v_switch_selector_terms))

    def groups() -> ResolutionPart:
        found = discovery.security_groups.find(spec.security_group_selector_terms)
        try:
            networks = parts.vpcs(switches())
        except CloudProviderError:
            networks = frozenset[str]()
        return parts.security_group_part(found, networks)

    searches = [
        NodeClassPart(VSWITCHES_READY, vswitches.FIELD, lambda: parts.vswitch_part(switches())),
        NodeClassPart(SECURITY_GROUPS_READY, security_groups.FIELD, groups),
        NodeClassPart(
            IMAGES_READY,
            images.FIELD,
            lambda: parts.image_part(discovery.images.find(node_class)),
        ),
    ]
    if discovery.reservations is not None:
        reader = discovery.reservations

        def reserved() -> ResolutionPart:
            found = reader.find(spec.capacity_reservation_selector_terms)
            listed = [item.status() for item in found.items]
            return reservations_part(CAPACITY_RESERVATIONS_READY, found, listed, now=clock.now())

        searches.append(
            NodeClassPart(
                CAPACITY_RESERVATIONS_READY,
                reservations.FIELD,
                reserved,
                is_launch_need=False,
                is_always_read=False,
            )
        )
    return searches
