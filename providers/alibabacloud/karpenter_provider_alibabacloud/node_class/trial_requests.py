"""Builds the launch request for the dry run of a NodeClass."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.api.labels import ON_DEMAND
from karpenter_core.errors import LaunchFailedError
from karpenter_provider_alibabacloud.catalogue.current_types import launchable
from karpenter_provider_alibabacloud.catalogue.system_disks import usable_categories
from karpenter_provider_alibabacloud.instance_tags import owned_tags
from karpenter_provider_alibabacloud.launch.configuration import run_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDiskReader

__all__ = ["TrialInstance", "TrialRequestBuilder", "trial_instance"]


class TrialInstance(NamedTuple):
    """The instance type, zone and image of a dry run."""

    instance_type: str
    zone: str
    image_id: str


def trial_instance(
    instance_types: Sequence[InstanceType],
    node_pools: Iterable[NodePool],
    image_for: Callable[[str], str],
) -> TrialInstance | None:
    """Return what to try; None when none of the images is for any type.

    Of the types that some NodePool may launch (all, where there is none) it is the cheapest that can be
    had on demand now, if any can be: the same each time.
    """
    launchable_names = {name for pool in node_pools for name in launchable(instance_types, pool)}
    best: tuple[tuple[bool, float, str, str], TrialInstance] | None = None
    for it in instance_types:
        image = image_for(it.name)
        if not image or (launchable_names and it.name not in launchable_names):
            continue
        for offering in it.offerings:
            if offering.capacity_type != ON_DEMAND:
                continue
            price = offering.price.amount if offering.available else inf
            rank = (not offering.available, price, it.name, offering.zone)
            if best is None or rank < best[0]:
                best = (rank, TrialInstance(it.name, offering.zone, image))
    return None if best is None else best[1]


@final
class TrialRequestBuilder:
    """Makes requests of RunInstances; callable from any thread."""

    def __init__(
        self,
        region: str,
        *,
        cluster_id: str,
        types: CurrentInstanceTypes,
        system_disks: SystemDiskReader,
        known: NodeClassRegistry[ECSNodeClass],
    ) -> None:
        self._region: Final = region
        self._cluster_id: Final = cluster_id
        self._types: Final = types
        self._system_disks: Final = system_disks
        self._node_classes: Final = known

    def request(self, node_class: ECSNodeClass, user_data: str) -> Mapping[str, object]:
        """Return the parameters of RunInstances for one usual instance, with `user_data`.

        Raises:
            LaunchFailedError: no instance type boots any of the images.
            CloudProviderError: no instance types are known yet.
        """
        choice = trial_instance(
            self._types.instance_types(node_class),
            self._node_classes.node_pools(node_class),
            self._types.image_for(node_class),
        )
        if choice is None:
            raise LaunchFailedError(
                f'ECSNodeClass "{node_class.name}": no instance type in the zones of its '
                "vSwitches can boot any of its images"
            )
        name, zone, image = choice
        spec, status = node_class.spec, node_class.status
        disks = self._system_disks.of([name])[name]
        disk_categories = spec.system_disk_categories
        return {
            "RegionId": self._region,
            "InstanceType": name,
            "ImageId": image,
            "VSwitchId": next(each.id for each in status.v_switches if each.zone_id == zone),
            "InstanceChargeType": "PostPaid",
            "Amount": 1,
            **run_parameters(
                node_class,
                category=(*usable_categories(disks, zone, disk_categories), *disk_categories)[0],
                user_data=user_data,
                tags=owned_tags(spec.tags, cluster_id=self._cluster_id, node_class=node_class.name),
                capacity_type=ON_DEMAND,
            ),
        }
