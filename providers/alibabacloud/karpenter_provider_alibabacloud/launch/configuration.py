"""Builds the parameters that all instances of a launch share.

Both ways to launch take it. Pure functions of values. Nothing empty is sent: ECS takes an empty
text for a value, and refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import SPOT
from karpenter_provider_alibabacloud.instance_tags import to_tag_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

__all__ = ["common_parameters", "group_configuration", "run_parameters", "without_empty"]

_LEVELLED: Final = "cloud_essd"
"""The category of disks that has performance levels."""
_AUTO: Final = "cloud_auto"
"""The category of disks that has IOPS to choose, and bursts."""


def without_empty(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters that have a value, no empty text, list or mapping."""
    kept: dict[str, object] = {}
    for name, value in parameters.items():
        if value is None or value in ("", [], {}):
            continue
        kept[name] = value
    return kept


def common_parameters(
    node_class: ECSNodeClass, *, user_data: str, tags: Mapping[str, str], capacity_type: str
) -> dict[str, object]:
    """Return what both ways to launch name alike."""
    spec = node_class.spec
    is_spot = capacity_type == SPOT
    return without_empty(
        {
            "UserData": user_data,
            "SecurityGroupIds": [group.id for group in node_class.status.security_groups],
            "ResourceGroupId": spec.resource_group_id,
            "KeyPairName": spec.key_pair_name,
            "Password": spec.password,
            "PasswordInherit": True if spec.password_inherit else None,
            "RamRoleName": spec.ram_role_name,
            "DeploymentSetId": spec.deployment_set_id,
            "InternetMaxBandwidthOut": spec.internet_max_bandwidth_out,
            "InternetChargeType": spec.internet_charge_type,
            "SpotDuration": spec.spot.duration_hours if is_spot and spec.spot else None,
            # A stopped instance would be paid for and never come back as a node.
            "SpotInterruptionBehavior": "Terminate" if is_spot else None,
            "Tag": to_tag_list(tags),
        }
    )


def group_configuration(
    node_class: ECSNodeClass,
    *,
    image_id: str,
    user_data: str,
    tags: Mapping[str, str],
    capacity_type: str,
) -> dict[str, object]:
    """Return the `LaunchConfiguration` of a provisioning group."""
    spec = node_class.spec
    categories = spec.system_disk_categories
    return {
        **common_parameters(
            node_class, user_data=user_data, tags=tags, capacity_type=capacity_type
        ),
        "ImageId": image_id,
        **without_empty(
            {
                "SystemDiskSize": spec.system_disk_gib,
                "SystemDiskPerformanceLevel": (
                    spec.system_disk_performance_level if _LEVELLED in categories else ""
                ),
                "SystemDisk": _system_disk(node_class, categories),
                "DataDisk": _data_disks(node_class, key_name="KmsKeyId"),
            }
        ),
    }


def run_parameters(
    node_class: ECSNodeClass,
    *,
    category: str,
    user_data: str,
    tags: Mapping[str, str],
    capacity_type: str,
) -> dict[str, object]:
    """Return what RunInstances is asked besides type, image and place."""
    spec = node_class.spec
    metadata = spec.metadata_options
    # RunInstances takes one category: that of the system disk is one that the type has in the zone.
    data_category = next(iter(spec.data_disk_categories), category)
    return {
        **common_parameters(
            node_class, user_data=user_data, tags=tags, capacity_type=capacity_type
        ),
        "SystemDisk": without_empty(
            {
                "Category": category,
                "Size": str(spec.system_disk_gib),
                "PerformanceLevel": (
                    spec.system_disk_performance_level if category == _LEVELLED else ""
                ),
                **_system_disk(node_class, (category,)),
            }
        ),
        **without_empty(
            {
                "DataDisk": [
                    {**data_disk, "Category": data_category}
                    for data_disk in _data_disks(
                        node_class, key_name="KMSKeyId", categories=(data_category,)
                    )
                ],
                "HttpEndpoint": metadata.http_endpoint if metadata else "",
                "HttpTokens": metadata.http_tokens if metadata else "",
                "HttpPutResponseHopLimit": (
                    metadata.http_put_response_hop_limit if metadata else None
                ),
            }
        ),
    }


def _data_disks(
    node_class: ECSNodeClass, *, key_name: str, categories: Sequence[str] | None = None
) -> list[dict[str, object]]:
    """Return the data disks; `key_name` is what a way to launch calls the id of a KMS key."""
    if categories is None:
        categories = node_class.spec.effective_data_disk_categories
    return [
        without_empty(
            {
                "Size": disk.size_gib,
                "Device": disk.device,
                "PerformanceLevel": disk.performance_level if _LEVELLED in categories else "",
                "Encrypted": _flag(disk.encrypted),
                key_name: disk.kms_key_id,
                "SnapshotId": disk.snapshot_id,
                "DeleteWithInstance": disk.delete_with_instance is not False,
            }
        )
        for disk in node_class.spec.data_disks
    ]


def _system_disk(node_class: ECSNodeClass, categories: Sequence[str]) -> dict[str, object]:
    """Return what is special about a system disk of one of these categories."""
    disk = node_class.spec.system_disk
    if disk is None:
        return {}
    is_auto = _AUTO in categories
    return without_empty(
        {
            "Encrypted": _flag(disk.encrypted),
            "KMSKeyId": disk.kms_key_id,
            "ProvisionedIops": disk.provisioned_iops if is_auto else None,
            "BurstingEnabled": disk.bursting_enabled if is_auto else None,
        }
    )


def _flag(value: bool | None) -> str | None:  # noqa: FBT001 - a value, no switch
    """Return a flag as the API has it where it takes text."""
    return None if value is None else str(value).lower()
