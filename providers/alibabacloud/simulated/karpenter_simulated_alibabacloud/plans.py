"""Reads plans of instances from launch calls, and checks them."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.images import ARM64
from karpenter_simulated_alibabacloud.instance_plan import (
    InstancePlan,
    InstanceTemplate,
    RequestedDisk,
)
from karpenter_simulated_alibabacloud.instances import Disk
from karpenter_simulated_alibabacloud.parameters import read_tags
from karpenter_simulated_alibabacloud.values import (
    check_disk_size,
    disk_category,
    performance_level,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_simulated_alibabacloud.deployment_sets import DeploymentSets
    from karpenter_simulated_alibabacloud.images import Image, Images
    from karpenter_simulated_alibabacloud.networks import Networks, VSwitch
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.prices import Prices
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue

__all__ = [
    "InstancePlanChecks",
    "capacity_type_of",
    "read_template",
]

_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403
_LARGEST_USER_DATA: Final = 32 * 1024
_DEFAULT_DATA_DISK_GIB: Final = 20
_MOST_GROUPS: Final = 16
_MOST_DATA_DISKS: Final = 16


def read_user_data(text: str) -> bytes:
    """Return user data decoded.

    Raises:
        CloudError: it is no base64, or too large.
    """
    try:
        data = b64decode(text, validate=True)
    except binascii.Error:
        raise CloudError(
            "InvalidUserData.Base64FormatInvalid", "The specified UserData must be base64 encoded."
        ) from None
    if len(data) > _LARGEST_USER_DATA:
        raise CloudError(
            "InvalidUserData.SizeExceeded",
            f"The specified UserData has {len(data)} bytes, at most {_LARGEST_USER_DATA} may be.",
        )
    return data


def read_groups(own: RequestParameters) -> tuple[str, ...]:
    """Return the security groups that are asked for, in whichever way."""
    one, several = own.text("SecurityGroupId"), own.texts("SecurityGroupIds", most=_MOST_GROUPS)
    if one and several:
        raise CloudError(
            "InvalidParameter.Conflict",
            "SecurityGroupId and SecurityGroupIds must not be given together.",
        )
    return tuple(several) if several else (one,) if one else ()


def read_data_disks(own: RequestParameters, categories: Sequence[str]) -> tuple[RequestedDisk, ...]:
    """Return data disks; `categories` are for those that name none themselves."""
    return tuple(
        RequestedDisk(
            disk=Disk(
                category="",
                size_gib=each.integer("Size", _DEFAULT_DATA_DISK_GIB),
                performance_level=performance_level(each, "PerformanceLevel"),
                device=each.text("Device"),
                encrypted=each.flag("Encrypted"),
                kms_key_id=each.text("KmsKeyId") or each.text("KMSKeyId"),
                snapshot_id=each.text("SnapshotId"),
                provisioned_iops=each.integer("ProvisionedIops"),
                bursting=each.flag("BurstingEnabled"),
                deleted_with_instance=each.flag("DeleteWithInstance", default=True),
            ),
            categories=(own_category,)
            if (own_category := disk_category(each, "Category", system=False))
            else tuple(categories),
        )
        for each in own.items_of("DataDisk", most=_MOST_DATA_DISKS)
    )


def read_template(
    own: RequestParameters,
    *,
    system_disk: RequestedDisk,
    data_disk_categories: Sequence[str],
    image_id: str,
) -> InstanceTemplate:
    """Return what a launch configuration, or RunInstances, asks for in all instances."""
    return InstanceTemplate(
        image_id=image_id,
        security_groups=read_groups(own),
        user_data=read_user_data(own.text("UserData")),
        system_disk=system_disk,
        data_disks=read_data_disks(own, data_disk_categories),
        tags=read_tags(own),
        own=own,
    )


@final
class InstancePlanChecks:
    """Checks of a plan that need no stock."""

    def __init__(
        self,
        *,
        catalogue: TypeCatalogue,
        networks: Networks,
        images: Images,
        prices: Prices,
        deployment_sets: DeploymentSets,
    ) -> None:
        self._catalogue: Final = catalogue
        self._networks: Final = networks
        self._images: Final = images
        self._prices: Final = prices
        self._deployment_sets: Final = deployment_sets

    def image(self, image_id: str) -> Image:
        """Return an image that can be launched from.

        Raises:
            CloudError: there is none.
        """
        image = self._images.get(image_id)
        if image is None:
            raise CloudError(
                "InvalidImageId.NotFound",
                f"The specified ImageId {image_id} does not exist.",
                status=_NOT_FOUND,
            )
        return image

    def vswitch(self, vswitch_id: str) -> VSwitch:
        """Return a vSwitch.

        Raises:
            CloudError: there is none.
        """
        vswitch = self._networks.vswitch(vswitch_id)
        if vswitch is None:
            raise CloudError(
                "InvalidVSwitchId.NotFound",
                f"The specified VSwitchId {vswitch_id} does not exist.",
                status=_NOT_FOUND,
            )
        return vswitch

    def groups(self, template: InstanceTemplate, vswitch: VSwitch) -> None:
        """Refuse security groups that are not there, or not in the vSwitch's VPC."""
        if not template.security_groups:
            raise CloudError("MissingParameter.SecurityGroupId", "A security group must be given.")
        kinds: set[str] = set()
        for group_id in template.security_groups:
            group = self._networks.security_group(group_id)
            if group is None:
                raise CloudError(
                    "InvalidSecurityGroupId.NotFound",
                    f"The specified SecurityGroupId {group_id} does not exist.",
                    status=_NOT_FOUND,
                )
            if group.vpc_id != vswitch.vpc_id:
                raise CloudError(
                    "InvalidParameter.Mismatch",
                    f"The security group {group_id} and the vSwitch {vswitch.id} are not in the"
                    " same VPC.",
                )
            kinds.add(group.kind)
        if len(kinds) > 1:
            raise CloudError(
                "InvalidOperation.MultiGroupType",
                "Basic and enterprise security groups must not be given together.",
            )

    def refusal(self, plan: InstancePlan) -> CloudError | None:
        """Return why a plan's pool is not to be had at all, however much stock there is."""
        type_info = self._catalogue.type_info(plan.pool.instance_type)
        if type_info is None:
            return CloudError(
                "InvalidInstanceType.ValueNotSupported",
                f"The specified InstanceType {plan.pool.instance_type} does not exist.",
            )
        if not self._catalogue.is_offered(plan.pool):
            return CloudError(
                "InvalidResourceType.NotSupported",
                f"{plan.pool.instance_type} is not sold as {plan.pool.capacity_type} in the zone"
                f" {plan.pool.zone}.",
                status=_FORBIDDEN,
            )
        if (type_info.architecture == "ARM") != (plan.image.architecture == ARM64):
            return CloudError(
                "ImageNotSupportInstanceType",
                f"The image {plan.image.id} ({plan.image.architecture}) does not support"
                f" {type_info.name} ({type_info.architecture}).",
            )
        if refusal := self._deployment_sets.refusal(plan):
            return refusal
        return self._disk_refusal(plan) or self._price_refusal(plan)

    def _disk_refusal(self, plan: InstancePlan) -> CloudError | None:
        wanted = plan.template.system_disk
        if wanted.disk.size_gib < plan.image.size_gib:
            return CloudError(
                "InvalidSystemDiskSize.LessThanImageSize",
                f"A system disk of {wanted.disk.size_gib} GiB is too small for {plan.image.id}.",
                status=_NOT_FOUND,
            )
        for disk in (wanted, *plan.template.data_disks):
            category = self.category(plan, disk)
            if category is None:
                return CloudError(
                    "OperationDenied.ZoneSystemCategoryNotMatch"
                    if disk is wanted
                    else "InvalidDataDiskCategory.NotSupported",
                    f"{plan.pool.instance_type} has no disk of {', '.join(disk.categories)} in the"
                    f" zone {plan.pool.zone}.",
                    status=_FORBIDDEN,
                )
            if error := check_disk_size(disk.disk, category, system=disk is wanted):
                return error
        return None

    def category(self, plan: InstancePlan, disk: RequestedDisk) -> str | None:
        """Return the first category of those that are asked for which the pool has."""
        offered = self._catalogue.disks(plan.pool.instance_type, plan.pool.zone)
        if not disk.categories:
            return next(iter(offered), None)
        return next((each for each in disk.categories if each in offered), None)

    def _price_refusal(self, plan: InstancePlan) -> CloudError | None:
        price = self._prices.of(plan.pool)
        if plan.spot_strategy == "SpotWithPriceLimit" and 0 < plan.price_limit < price:
            return CloudError(
                "InvalidSpotPriceLimit.LowerThanPublicPrice",
                f"The price limit {plan.price_limit} is below the price {price} of"
                f" {plan.pool.instance_type} in the zone {plan.pool.zone}.",
            )
        return None


def capacity_type_of(spot_strategy: str) -> str:
    """Return the capacity type of a strategy."""
    return ON_DEMAND if spot_strategy in {"", "NoSpot"} else SPOT
