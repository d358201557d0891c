"""Converts scaling groups, as `aliyun ess DescribeScalingGroups` prints them.

Scaling configurations (`aliyun ess DescribeScalingConfigurations`) in the same input become the
ECSNodeClasses of their groups.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract.conversion import Conversion
from karpenter_core.provider.kit.json_values import as_integer, as_items, as_object, as_objects
from karpenter_core.provider.kit.node_groups import (
    NodeGroup,
    capacity_type_requirement,
    object_name,
    report_fields,
    requirement_in,
    tagged_labels,
    tagged_taints,
    write_node_pool,
)
from karpenter_provider_alibabacloud.labels import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["CONVERSIONS"]

_KIND: Final = "ECSNodeClass"
_WHOLE: Final = 100
_USED: Final = frozenset(
    {
        "ActiveScalingConfigurationId",
        "MaxSize",
        "MinSize",
        "OnDemandPercentageAboveBaseCapacity",
        "ResourceGroupId",
        "ScalingGroupId",
        "ScalingGroupName",
        "VSwitchId",
        "VSwitchIds",
    }
)
_REASONS: Final = {
    "DefaultCooldown": "nodes are launched for pods, without a cooldown",
    "DesiredCapacity": "nodes are launched for pods",
    "HealthCheckType": "nodes are repaired by their conditions",
    "LoadBalancerIds": "Services register nodes at load balancers",
    "MultiAZPolicy": "set spec.vSwitchSelectionPolicy of the ECSNodeClass for it",
    "RemovalPolicies": "disruption chooses the nodes that cost most for their pods",
    "SpotInstancePools": "the cheapest available offerings are used",
    "SpotInstanceRemedy": "interrupted instances are replaced before they end",
}
"""Reasons for fields that have no counterpart."""


_READ: Final = frozenset(
    {
        *("DataDisks", "DeploymentSetId", "ImageFamily", "ImageId", "ImageName", "InstanceType"),
        *("InstanceTypes", "InternetChargeType", "InternetMaxBandwidthOut", "KeyPairName"),
        "PasswordInherit",
        *("RamRoleName", "ResourceGroupId", "SecurityGroupId", "SecurityGroupIds", "SpotStrategy"),
        *("SystemDiskCategory", "SystemDiskEncrypted", "SystemDiskKMSKeyId"),
        *("SystemDiskPerformanceLevel", "SystemDiskSize", "Tags", "UserData"),
    }
)
"""Fields of a scaling configuration that are converted."""
_STATE: Final = frozenset(
    {
        *("CreationTime", "HostName", "ImageOwnerAlias", "InstanceGeneration", "InstanceName"),
        *("IoOptimized", "LifecycleState", "LoadBalancerWeight", "ScalingConfigurationId"),
        *("ScalingConfigurationName", "ScalingGroupId", "SystemDiskDescription", "SystemDiskName"),
        *("SystemDiskCategories", "InternetMaxBandwidthIn", "PasswordSetted"),
    }
)
"""Fields of a scaling configuration that no node of a NodePool needs."""
_WITHOUT_EFFECT: Final[tuple[object, ...]] = (None, "", 0, False, [], {}, "default", "Active")


def _groups(document: Mapping[str, object]) -> object:
    return as_object(document.get("ScalingGroups")).get("ScalingGroup")


def _configurations(document: Mapping[str, object]) -> object:
    return as_object(document.get("ScalingConfigurations")).get("ScalingConfiguration")


def _convert_groups(draft: ManifestDraft) -> None:
    for number, group in enumerate(as_objects(_groups(draft.source))):
        _convert_group(draft, group, f"ScalingGroups.ScalingGroup.{number}")
    for field in draft.source:
        draft.leave_out(field, "it belongs to the answer of the API")


def _convert_group(draft: ManifestDraft, group: Mapping[str, object], path: str) -> None:
    name = str(group.get("ScalingGroupName") or group.get("ScalingGroupId") or "group")
    configuration = _configuration(group, draft.documents)
    tags = _tags(configuration)
    spot = _spot_percentage(group, configuration)
    write_node_pool(
        draft,
        NodeGroup(
            name=name,
            class_group=GROUP,
            class_kind=_KIND,
            class_name=object_name(name),
            minimum=as_integer(group.get("MinSize")),
            maximum=as_integer(group.get("MaxSize")),
            labels=tagged_labels(tags),
            taints=tagged_taints(tags),
            requirements=[
                *_instance_types(configuration),
                capacity_type_requirement(spot),
            ],
            spot_share=f"{spot}%" if 0 < spot < _WHOLE else "",
        ),
    )
    if not configuration:
        draft.warn(
            f'the scaling configuration of the group "{name}" is not in the input: add the output of '
            f'`aliyun ess DescribeScalingConfigurations`, or complete {_KIND} "{object_name(name)}"'
        )
    for field in sorted(configuration.keys() - _READ - _STATE):
        if not _is_empty(configuration[field]):
            draft.warn(
                f'scaling configuration "{configuration.get("ScalingConfigurationId")}": {field} = '
                f"{json.dumps(configuration[field])} is not converted: set what has its meaning in NodePool "
                f"or {_KIND} {object_name(name)}"
            )
    _write_node_class(draft, object_name(name), group, configuration)
    part_of = f"NodePool and {_KIND}"
    report_fields(draft, group, path, converted=_USED, part_of=part_of, reasons=_REASONS)


def _write_node_class(
    draft: ManifestDraft,
    name: str,
    group: Mapping[str, object],
    configuration: Mapping[str, object],
) -> None:
    node_class = draft.new_manifest(api_version=f"{GROUP}/v1alpha1", kind=_KIND, name=name)
    switches = [str(each) for each in as_items(as_object(group.get("VSwitchIds")).get("VSwitchId"))]
    switches = switches or [str(each) for each in [group.get("VSwitchId")] if each]
    security = as_items(as_object(configuration.get("SecurityGroupIds")).get("SecurityGroupId"))
    groups = [str(each) for each in security] or [str(configuration.get("SecurityGroupId") or "")]
    fields = {
        "vSwitchSelectorTerms": [{"id": each} for each in switches],
        "securityGroupSelectorTerms": [{"id": each} for each in groups if each],
        "imageSelectorTerms": _image_terms(configuration),
        "systemDisk": _system_disk(configuration),
        **_data_disks(configuration),
        "deploymentSetId": configuration.get("DeploymentSetId"),
        "passwordInherit": configuration.get("PasswordInherit"),
        **_internet(configuration),
        "ramRoleName": configuration.get("RamRoleName"),
        "keyPairName": configuration.get("KeyPairName"),
        "resourceGroupId": group.get("ResourceGroupId"),
        "userData": _decoded(configuration),
        "tags": {
            key: value
            for key, value in _tags(configuration).items()
            if not key.startswith("k8s.io/cluster-autoscaler/")
        },
    }
    for field, value in fields.items():
        if value:
            node_class.add(f"spec.{field}", value, "vSwitches or configuration of the group")


def _configuration(
    group: Mapping[str, object], documents: Sequence[Mapping[str, object]]
) -> Mapping[str, object]:
    """Return the active configuration of a group; empty if it is not in the input."""
    of_group = [
        each
        for document in documents
        for each in as_objects(_configurations(document))
        if each.get("ScalingGroupId") == group.get("ScalingGroupId")
    ]
    active = group.get("ActiveScalingConfigurationId")
    chosen = [each for each in of_group if each.get("ScalingConfigurationId") == active]
    chosen = chosen or [each for each in of_group if each.get("LifecycleState") == "Active"]
    return chosen[0] if chosen else {}


def _spot_percentage(group: Mapping[str, object], configuration: Mapping[str, object]) -> int:
    on_demand = group.get("OnDemandPercentageAboveBaseCapacity")
    if isinstance(on_demand, int):
        return _WHOLE - on_demand
    strategy = configuration.get("SpotStrategy") or "NoSpot"
    return 0 if strategy == "NoSpot" else _WHOLE


def _instance_types(configuration: Mapping[str, object]) -> list[dict[str, object]]:
    listed = as_items(as_object(configuration.get("InstanceTypes")).get("InstanceType"))
    types = [str(each) for each in listed or [configuration.get("InstanceType")] if each]
    return [requirement_in("node.kubernetes.io/instance-type", types)] if types else []


def _image_terms(configuration: Mapping[str, object]) -> list[dict[str, object]]:
    for field, term in (("ImageId", "id"), ("ImageFamily", "imageFamily"), ("ImageName", "name")):
        if configuration.get(field):
            return [{term: configuration[field]}]
    return []


def _system_disk(configuration: Mapping[str, object]) -> dict[str, object]:
    disk: dict[str, object] = {}
    if configuration.get("SystemDiskCategory"):
        disk["categories"] = [configuration["SystemDiskCategory"]]
    if configuration.get("SystemDiskSize"):
        disk["volumeSize"] = f"{configuration['SystemDiskSize']}Gi"
    named = {key.removeprefix("SystemDisk"): value for key, value in configuration.items()}
    return {**disk, **_disk_options(named)}


def _disk_options(disk: Mapping[str, object]) -> dict[str, object]:
    """Return performance and encryption of a disk, without what it does not set."""
    options: dict[str, object] = {}
    if disk.get("PerformanceLevel"):
        options["performanceLevel"] = disk["PerformanceLevel"]
    if str(disk.get("Encrypted")).lower() == "true":
        options["encrypted"] = True
    if disk.get("KMSKeyId"):
        options["kmsKeyId"] = disk["KMSKeyId"]
    return options


def _data_disks(configuration: Mapping[str, object]) -> dict[str, object]:
    """Return the data disks and their categories, which an ECSNodeClass has for all of them."""
    disks: list[dict[str, object]] = []
    categories: list[str] = []
    for each in as_objects(as_object(configuration.get("DataDisks")).get("DataDisk")):
        disk: dict[str, object] = {}
        if each.get("Size"):
            disk["volumeSize"] = f"{each['Size']}Gi"
        for old, new in (("Device", "device"), ("SnapshotId", "snapshotId")):
            if each.get(old):
                disk[new] = each[old]
        if each.get("DeleteWithInstance") is False:
            disk["deleteWithInstance"] = False
        disks.append({**disk, **_disk_options(each)})
        categories += [str(each["Category"])] if each.get("Category") else []
    return {"dataDisks": disks, "dataDiskCategories": list(dict.fromkeys(categories))}


def _internet(configuration: Mapping[str, object]) -> dict[str, object]:
    """Return the bandwidth of a public address; nothing for a group without one."""
    bandwidth = configuration.get("InternetMaxBandwidthOut")
    if not bandwidth:
        return {}
    charge = configuration.get("InternetChargeType")
    return {"internetMaxBandwidthOut": bandwidth, "internetChargeType": charge}


def _is_empty(value: object) -> bool:
    """Tell whether a setting is unset, also as a list in an object of its own (`{"Tag": []}`)."""
    if isinstance(value, Mapping):
        return all(_is_empty(each) for each in cast("Mapping[str, object]", value).values())
    return value in _WITHOUT_EFFECT


def _decoded(configuration: Mapping[str, object]) -> str:
    text = str(configuration.get("UserData") or "")
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        title = configuration.get("ScalingConfigurationId")
        message = f'scaling configuration "{title}": UserData is no text in base64'
        raise BadInputError(message) from error


def _tags(configuration: Mapping[str, object]) -> dict[str, str]:
    tags = as_objects(as_object(configuration.get("Tags")).get("Tag"))
    return {
        str(tag.get("Key") or tag.get("TagKey")): str(tag.get("Value") or tag.get("TagValue") or "")
        for tag in tags
    }


def _use_configurations(draft: ManifestDraft) -> None:
    for key in draft.source:
        draft.use(key, f"scaling configurations become {_KIND}es of their groups")


CONVERSIONS: Final = (
    Conversion(
        kind="scaling groups of ESS",
        accepts=lambda document: isinstance(_groups(document), list),
        convert=_convert_groups,
        successors={},
    ),
    Conversion(
        kind="scaling configurations of ESS",
        accepts=lambda document: isinstance(_configurations(document), list),
        convert=_use_configurations,
        successors={},
    ),
)
