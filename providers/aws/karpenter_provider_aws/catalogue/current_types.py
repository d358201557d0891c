"""Lists current instance types, with placement group and zonal shifts.

`CatalogueInputs`, the arguments of the catalogue, are put together here alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import INSTANCE_TYPE, MEMORY
from karpenter_provider_aws.catalogue.instance_types import CatalogueInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.instance_types import InstanceTypeCatalogue
    from karpenter_provider_aws.discovery.placement_groups import (
        DescribedPlacementGroup,
        PlacementGroupReader,
    )
    from karpenter_provider_aws.instance_type_info import InterfacePlace
    from karpenter_provider_aws.kubelet.sizing import KubeletSizing
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["CurrentInstanceTypes"]


@final
class CurrentInstanceTypes:
    """Lists the instance types of a NodeClass as they are now; callable from any thread."""

    def __init__(
        self,
        catalogue: InstanceTypeCatalogue,
        clock: Clock,
        *,
        groups: PlacementGroupReader,
        shifts: Callable[[], ShiftedZones],
        node_classes: NodeClassRegistry[EC2NodeClass],
    ) -> None:
        """`shifts` is `ZonalShifts.zones`."""
        self._catalogue: Final = catalogue
        self._clock: Final = clock
        self._groups: Final = groups
        self._shifts: Final = shifts
        self._node_classes: Final = node_classes

    def instance_types(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        """Return every type that the region sells (as `InstanceTypeCatalogue.instance_types`)."""
        return self._catalogue.instance_types(node_class, self._situation(node_class))

    def sizing_of(self, node_class: EC2NodeClass) -> Callable[[str], KubeletSizing]:
        """Return a function from a type's name to the sizing of its kubelet."""
        return self._catalogue.sizing(node_class, self._situation(node_class))

    def efa_places(self, instance_type: str) -> tuple[InterfacePlace, ...]:
        """Return the interfaces of an instance with all EFAs of its type.

        Raises:
            CloudProviderError: the region does not sell the type.
        """
        return self._catalogue.info(instance_type).efa_places

    def node_pools(self, node_class: EC2NodeClass) -> tuple[NodePool, ...]:
        """Return the NodePools that are known to use a NodeClass, by name."""
        return self._node_classes.node_pools(node_class)

    def group_of(self, node_class: EC2NodeClass) -> DescribedPlacementGroup | None:
        """Return the placement group that a NodeClass selects; None: none, or it is not there.

        Raises:
            CloudProviderError: EC2 refused or did not answer, and it was never found.
        """
        return self._groups.found_or_last(node_class.spec.placement_group_selector)

    def learn_memory(self, node_claim: NodeClaim, node: NodeView) -> bool:
        """Note how much memory a registered node has; True if the catalogue is changed by it.

        Raises:
            CloudProviderError: the catalogue is not known, or does not have its type.
        """
        node_class = self._node_classes.node_class(node_claim.spec.node_class_ref.name)
        instance_type = node.labels.get(INSTANCE_TYPE, "")
        if node_class is None or not node_class.status.subnets or not instance_type:
            return False
        return self._catalogue.learn_memory(
            node_class,
            self._situation(node_class),
            instance_type=instance_type,
            image_id=node_claim.status.image_id,
            memory_bytes=node.capacity.get(MEMORY, 0),
        )

    def _situation(self, node_class: EC2NodeClass) -> CatalogueInputs:
        return CatalogueInputs(
            now=self._clock.now(),
            group=self.group_of(node_class),
            shifted_zones=self._shifts().ids,
        )
