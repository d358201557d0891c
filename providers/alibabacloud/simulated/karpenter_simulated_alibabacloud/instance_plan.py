"""The plan of instances of one pool, as a launch call asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_simulated_alibabacloud.instances import Disk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_alibabacloud.images import Image
    from karpenter_simulated_alibabacloud.networks import VSwitch
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["InstancePlan", "InstanceTemplate", "RequestedDisk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedDisk:
    """A disk as it is asked for: the first of its categories that can be had is taken."""

    disk: Disk
    categories: tuple[str, ...]

    def of(self, category: str) -> Disk:
        """Return the disk with a category decided."""
        disk = self.disk
        return Disk(
            category=category,
            size_gib=disk.size_gib,
            performance_level=(disk.performance_level or "PL1") if category == "cloud_essd" else "",
            device=disk.device,
            encrypted=disk.encrypted,
            kms_key_id=disk.kms_key_id,
            snapshot_id=disk.snapshot_id,
            provisioned_iops=disk.provisioned_iops,
            bursting=disk.bursting,
            deleted_with_instance=disk.deleted_with_instance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTemplate:
    """The properties that all instances of a call share."""

    image_id: str
    security_groups: tuple[str, ...]
    user_data: bytes
    system_disk: RequestedDisk
    data_disks: tuple[RequestedDisk, ...]
    tags: Mapping[str, str]
    own: RequestParameters
    """The rest, as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlan:
    """Instances of one pool."""

    pool: InstancePool
    vswitch: VSwitch
    image: Image
    template: InstanceTemplate
    spot_strategy: str
    """`NoSpot`, `SpotAsPriceGo` or `SpotWithPriceLimit`."""
    price_limit: float
    """0 for none."""
