"""Converts managed node groups, as `aws eks describe-nodegroup` prints them.

Fields: https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract.conversion import Conversion
from karpenter_core.provider.kit.json_values import as_integer, as_items, as_object, as_objects
from karpenter_core.provider.kit.node_groups import (
    NodeGroup,
    object_name,
    report_fields,
    requirement_in,
    write_node_pool,
)
from karpenter_provider_aws.conversion.launch_templates import (
    LaunchTemplate,
    find_launch_template,
    write_node_class,
)
from karpenter_provider_aws.labels import GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["MANAGED_NODE_GROUP_CONVERSIONS"]

_GROUP: Final = "nodegroup"
_CUSTOM: Final = "CUSTOM"
_ALIASES: Final = (
    ("AL2023_", "al2023@latest"),
    ("AL2_", "al2@latest"),
    ("BOTTLEROCKET_", "bottlerocket@latest"),
    ("WINDOWS_CORE_2019_", "windows2019@latest"),
    ("WINDOWS_CORE_2022_", "windows2022@latest"),
    ("WINDOWS_FULL_2019_", "windows2019@latest"),
    ("WINDOWS_CORE_2025_", "windows2025@latest"),
    ("WINDOWS_FULL_2022_", "windows2022@latest"),
    ("WINDOWS_FULL_2025_", "windows2025@latest"),
)
"""Aliases of today by the beginning of `amiType`; variants with a GPU are chosen by instance type."""
_LOST_VARIANTS: Final = (
    ("WINDOWS_FULL_", "Windows Server Core"),
    ("_FIPS", "the variant without FIPS"),
)
"""Parts of `amiType` for variants that have no alias, and what the alias selects instead."""
_CAPACITY_TYPES: Final = {
    "CAPACITY_BLOCK": "reserved",
    "ON_DEMAND": "on-demand",
    "SPOT": "spot",
}
_EFFECTS: Final = {
    "NO_EXECUTE": "NoExecute",
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
_DEVICES: Final = {
    "bottlerocket@latest": "/dev/xvdb",
    **dict.fromkeys(
        ("windows2019@latest", "windows2022@latest", "windows2025@latest"), "/dev/sda1"
    ),
}
"""The device that holds images and volumes, where it is not /dev/xvda."""
_CONVERTED: Final = (
    "amiType",
    "capacityType",
    "clusterName",
    "diskSize",
    "instanceTypes",
    "labels",
    "launchTemplate",
    "nodeRole",
    "nodegroupName",
    "scalingConfig",
    "subnets",
    "tags",
    "taints",
    "updateConfig",
)
_REASONS: Final = {
    "nodeRepairConfig": "the feature gate NodeRepair is an option of the controller",
    "releaseVersion": "the alias takes the latest AMI; name a version in it to keep one",
    "remoteAccess": "set spec.userData of the EC2NodeClass for SSH keys",
    "version": "nodes get the version of the control plane",
    "warmPoolConfig": "keep room by a CapacityBuffer",
}


def _convert(draft: ManifestDraft) -> None:
    group = as_object(draft.get(_GROUP))
    name = str(group["nodegroupName"])
    class_name = object_name(name)
    template = find_launch_template(_template_reference(group), draft.documents)
    requirements, scaling = _requirements(group, template), as_object(group.get("scalingConfig"))
    pool = write_node_pool(
        draft,
        NodeGroup(
            name=name,
            class_group=GROUP,
            class_kind="EC2NodeClass",
            class_name=class_name,
            minimum=as_integer(scaling.get("minSize")),
            maximum=as_integer(scaling.get("maxSize")) if "maxSize" in scaling else None,
            labels={str(k): str(v) for k, v in as_object(group.get("labels")).items()},
            taints=[_taint(name, each) for each in as_objects(group.get("taints"))],
            requirements=requirements,
        ),
    )
    if template is None and group.get("launchTemplate"):
        draft.warn(
            f'the launch template of the node group "{name}" is not in the input: add the output of `aws '
            f"ec2 describe-launch-template-versions`, or complete instance types of NodePool and "
            f'EC2NodeClass "{class_name}"'
        )
    if group.get("capacityType") == "CAPACITY_BLOCK":
        draft.warn(
            f'node group "{name}" uses a Capacity Block: name the reservation in '
            f'spec.capacityReservationSelectorTerms of EC2NodeClass "{class_name}"; nothing is launched '
            "without it"
        )
    _write_budgets(pool, as_object(group.get("updateConfig")))
    node_class = write_node_class(
        draft,
        name=class_name,
        template=template,
        subnets=[str(each) for each in as_items(group.get("subnets"))],
        tags=_tags(group),
    )
    _complete_node_class(draft, node_class, group, template)
    part_of = f'NodePool and EC2NodeClass "{class_name}"'
    report_fields(draft, group, _GROUP, converted=_CONVERTED, part_of=part_of, reasons=_REASONS)


def _requirements(
    group: Mapping[str, object], template: LaunchTemplate | None
) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    types = [str(each) for each in as_items(group.get("instanceTypes"))]
    if not types and template is not None and template.instance_type:
        types = [template.instance_type]
    if types:
        found.append(requirement_in("node.kubernetes.io/instance-type", types))
    kind = str(group.get("capacityType") or "ON_DEMAND")
    if kind not in _CAPACITY_TYPES:
        raise BadInputError(f'{_GROUP}.capacityType: "{kind}" is not known')
    found.append(requirement_in("karpenter.sh/capacity-type", [_CAPACITY_TYPES[kind]]))
    ami = str(group.get("amiType") or "")
    if ami and ami != _CUSTOM:
        arch = "arm64" if "ARM_64" in ami else "amd64"
        found.append(requirement_in("kubernetes.io/arch", [arch]))
    return found


def _taint(name: str, taint: Mapping[str, object]) -> dict[str, str]:
    effect = str(taint.get("effect"))
    if effect not in _EFFECTS:
        raise BadInputError(f'node group "{name}", taints: effect "{effect}" is not known')
    found = {"key": str(taint.get("key")), "effect": _EFFECTS[effect]}
    return {**found, "value": str(taint["value"])} if taint.get("value") else found


def _write_budgets(pool: ManifestDraft, update: Mapping[str, object]) -> None:
    """Write how many nodes an update of the group replaces at once; other reasons keep the default."""
    share, number = update.get("maxUnavailablePercentage"), update.get("maxUnavailable")
    nodes = f"{share}%" if share is not None else "" if number is None else str(number)
    if nodes:
        budgets = [
            {"nodes": "10%", "reasons": ["Empty", "Underutilized"]},
            {"nodes": nodes, "reasons": ["Drifted"]},
        ]
        pool.add("spec.disruption.budgets", budgets, "updateConfig of the group, and the default")


def _complete_node_class(
    draft: ManifestDraft,
    node_class: ManifestDraft,
    group: Mapping[str, object],
    template: LaunchTemplate | None,
) -> None:
    name = str(group["nodegroupName"])
    role = str(group.get("nodeRole") or "").rpartition("/")[2]
    if role and not (template and template.data.get("IamInstanceProfile")):
        node_class.add("spec.role", role, "nodeRole of the group")
    ami = str(group.get("amiType") or "")
    alias = next((alias for start, alias in _ALIASES if ami.startswith(start)), "")
    if not (template and template.data.get("ImageId")):
        if alias:
            node_class.add("spec.amiSelectorTerms", [{"alias": alias}], f"amiType {ami}")
            for part, instead in _LOST_VARIANTS:
                if part in ami:
                    draft.warn(
                        f'node group "{name}": no alias selects the AMIs of amiType "{ami}", and '
                        f'"{alias}" selects {instead}: name an AMI of the group in '
                        "spec.amiSelectorTerms of the EC2NodeClass to keep the variant"
                    )
        else:
            draft.warn(
                f'node group "{name}": amiType "{ami}" names no AMI: complete '
                "spec.amiSelectorTerms of the EC2NodeClass, or add the launch template to the input"
            )
    size = group.get("diskSize")
    if size is not None:
        ebs = {"volumeSize": f"{as_integer(size)}Gi", "volumeType": "gp3"}
        mapping = {"deviceName": _DEVICES.get(alias, "/dev/xvda"), "ebs": ebs}
        node_class.add("spec.blockDeviceMappings", [mapping], "diskSize of the group")
    if not (template and (template.data.get("SecurityGroupIds") or _has_interface(template))):
        terms = [{"tags": {"aws:eks:cluster-name": str(group.get("clusterName") or "")}}]
        reason = "EKS gives nodes the security group of the cluster"
        node_class.add("spec.securityGroupSelectorTerms", terms, reason)


def _has_interface(template: LaunchTemplate) -> bool:
    interfaces = as_objects(template.data.get("NetworkInterfaces"))
    return any(as_items(each.get("Groups")) for each in interfaces)


def _template_reference(group: Mapping[str, object]) -> Mapping[str, object]:
    reference = as_object(group.get("launchTemplate"))
    names = {"id": "LaunchTemplateId", "name": "LaunchTemplateName", "version": "Version"}
    return {new: reference[old] for old, new in names.items() if reference.get(old)}


def _tags(group: Mapping[str, object]) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in as_object(group.get("tags")).items()
        if not key.startswith(
            ("aws:", "eks:", "kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/")
        )
    }


MANAGED_NODE_GROUP_CONVERSIONS: Final = (
    Conversion(
        kind="managed node group of EKS",
        accepts=lambda document: bool(as_object(document.get(_GROUP)).get("nodegroupName")),
        convert=_convert,
        successors={},
    ),
)
