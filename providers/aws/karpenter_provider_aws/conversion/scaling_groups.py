"""Converts Auto Scaling groups, as the AWS CLI prints them.

The command is `aws autoscaling describe-auto-scaling-groups`. Launch templates (`aws ec2
describe-launch-template-versions`) in the same input become the EC2NodeClasses of the groups that
name them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

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
from karpenter_provider_aws.conversion.launch_templates import (
    find_launch_template,
    is_launch_templates,
    write_node_class,
)
from karpenter_provider_aws.labels import GROUP

if TYPE_CHECKING:
    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["SCALING_GROUP_CONVERSIONS"]

_GROUPS: Final = "AutoScalingGroups"
_TAG_PREFIX: Final = "k8s.io/cluster-autoscaler/"
_OPTIONS_TAG: Final = f"{_TAG_PREFIX}node-template/autoscaling-options/"
_ATTRIBUTES: Final = frozenset(
    {"BurstablePerformance", "CpuManufacturers", "MemoryMiB", "VCpuCount"}
)
"""Attributes of instances that become requirements."""
_WITHOUT_EFFECT: Final[tuple[object, ...]] = (None, "", [], {}, "included", False)
_CONVERTED: Final = (
    "AutoScalingGroupName",
    "AvailabilityZones",
    "LaunchTemplate",
    "MaxSize",
    "MinSize",
    "MixedInstancesPolicy",
    "Tags",
    "VPCZoneIdentifier",
)
_WHOLE: Final = 100


def _convert_groups(draft: ManifestDraft) -> None:
    groups = draft.get(_GROUPS)
    for number, group in enumerate(
        cast("list[object]", groups) if isinstance(groups, list) else ()
    ):
        if isinstance(group, Mapping):
            _convert_group(draft, cast("Mapping[str, object]", group), f"{_GROUPS}.{number}")
    draft.leave_out("NextToken", "it belongs to the answer of the API")


def _convert_group(draft: ManifestDraft, group: Mapping[str, object], path: str) -> None:
    name = str(group.get("AutoScalingGroupName") or "group")
    tags = _tags(group)
    template = find_launch_template(_template_reference(group), draft.documents)
    class_name = object_name(name)
    spot = _spot_percentage(group)
    if spot is None and template is not None and template.is_spot:
        spot = _WHOLE
    write_node_pool(
        draft,
        NodeGroup(
            name=name,
            class_group=GROUP,
            class_kind="EC2NodeClass",
            class_name=class_name,
            minimum=as_integer(group.get("MinSize")),
            maximum=as_integer(group.get("MaxSize")),
            labels=tagged_labels(tags),
            taints=tagged_taints(tags),
            requirements=_requirements(group, spot, template.instance_type if template else ""),
            spot_share=f"{spot}%" if spot is not None and 0 < spot < _WHOLE else "",
        ),
    )
    subnets = [each.strip() for each in str(group.get("VPCZoneIdentifier") or "").split(",")]
    instance_tags = {
        key: value
        for key, value in tags.items()
        if not key.startswith((_TAG_PREFIX, "kubernetes.io/cluster/", "aws:"))
    }
    write_node_class(
        draft,
        name=class_name,
        template=template,
        subnets=list(filter(None, subnets)),
        tags=instance_tags,
    )
    if template is None:
        draft.warn(
            f'the launch template of the group "{name}" is not in the input: add the output of `aws ec2 '
            f'describe-launch-template-versions`, or complete EC2NodeClass "{class_name}"'
        )
    _warn_of_losses(draft, group, tags)
    base = _distribution(group).get("OnDemandBaseCapacity")
    if base:
        draft.warn(
            f'the group "{name}" begins with {base} instances on demand, NodePools have no such number: use '
            "a NodePool of its own for them"
        )
    part_of = f'NodePool and EC2NodeClass "{class_name}"'
    report_fields(draft, group, path, converted=_CONVERTED, part_of=part_of, reasons=_REASONS)


def _warn_of_losses(
    draft: ManifestDraft, group: Mapping[str, object], tags: Mapping[str, str]
) -> None:
    """Name settings within converted fields that neither NodePool nor EC2NodeClass gets."""
    title = f'the group "{group.get("AutoScalingGroupName")}"'
    for override in _overrides(group):
        attributes = as_object(override.get("InstanceRequirements"))
        for name in sorted(attributes.keys() - _ATTRIBUTES):
            if attributes[name] not in _WITHOUT_EFFECT:
                draft.warn(
                    f"{title}: InstanceRequirements.{name} = {json.dumps(attributes[name])} is not in "
                    "the NodePool: add a requirement with its meaning, or instance types"
                )
    price = _distribution(group).get("SpotMaxPrice")
    if price:
        draft.warn(f"{title}: SpotMaxPrice = {price} has no counterpart: spot has no highest price")
    for key, value in tags.items():
        if key.startswith(_OPTIONS_TAG):
            draft.warn(
                f'{title}: the tag "{key}" = "{value}" sets an option of Cluster Autoscaler for this '
                "group: set spec.disruption of the NodePool for it"
            )


_REASONS: Final = {
    "CapacityRebalance": "interruptions are read from the interruption queue",
    "DefaultCooldown": "nodes are launched for pods, without a cooldown",
    "DefaultInstanceWarmup": "nodes count as capacity from their launch on",
    "DesiredCapacity": "nodes are launched for pods",
    "HealthCheckGracePeriod": "nodes are repaired by their conditions",
    "HealthCheckType": "nodes are repaired by their conditions",
    "LaunchConfigurationName": "launch configurations cannot be converted: use a launch template",
    "LoadBalancerNames": "Services register nodes at load balancers",
    "MaxInstanceLifetime": "set spec.template.spec.expireAfter for it",
    "NewInstancesProtectedFromScaleIn": "annotate nodes or pods with karpenter.sh/do-not-disrupt",
    "PlacementGroup": "set spec.placementGroupSelector of the EC2NodeClass for it",
    "SuspendedProcesses": "processes of a group do not exist here",
    "TargetGroupARNs": "Services register nodes at load balancers",
    "TerminationPolicies": "disruption chooses the nodes that cost most for their pods",
    "WarmPoolConfiguration": "keep room by a CapacityBuffer",
}
"""Reasons for fields that have no counterpart."""


def _requirements(
    group: Mapping[str, object], spot: int | None, instance_type: str
) -> list[Mapping[str, object]]:
    requirements: list[Mapping[str, object]] = []
    types = _override_types(group)
    if not types and not any(each.get("InstanceRequirements") for each in _overrides(group)):
        types = list(filter(None, [instance_type]))
    if types:
        requirements.append(requirement_in("node.kubernetes.io/instance-type", types))
    requirements += _instance_requirements(group)
    requirements.append(capacity_type_requirement(spot or 0))
    zones = [str(zone) for zone in as_items(group.get("AvailabilityZones"))]
    if zones:
        requirements.append(requirement_in("topology.kubernetes.io/zone", zones))
    return requirements


def _instance_requirements(group: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return requirements for attributes of instances, where a label has the same meaning."""
    found: list[Mapping[str, object]] = []
    for override in _overrides(group):
        attributes = override.get("InstanceRequirements")
        if not isinstance(attributes, Mapping):
            continue
        fields = cast("Mapping[str, object]", attributes)
        found += _range(fields.get("VCpuCount"), f"{GROUP}/instance-cpu")
        found += _range(fields.get("MemoryMiB"), f"{GROUP}/instance-memory")
        if fields.get("BurstablePerformance", "excluded") == "excluded":
            found.append(
                {"key": f"{GROUP}/instance-category", "operator": "NotIn", "values": ["t"]}
            )
        vendors = {"intel": "intel", "amd": "amd", "amazon-web-services": "aws"}
        makers = as_items(fields.get("CpuManufacturers"))
        if makers:
            names = [vendors.get(str(each), str(each)) for each in makers]
            found.append(requirement_in(f"{GROUP}/instance-cpu-manufacturer", names))
    return found


def _range(bounds: object, label: str) -> list[Mapping[str, object]]:
    if not isinstance(bounds, Mapping):
        return []
    fields = cast("Mapping[str, object]", bounds)
    found: list[Mapping[str, object]] = []
    least, most = as_integer(fields.get("Min")), fields.get("Max")
    if least > 0:
        found.append({"key": label, "operator": "Gt", "values": [str(least - 1)]})
    if most is not None:
        found.append({"key": label, "operator": "Lt", "values": [str(as_integer(most) + 1)]})
    return found


def _spot_percentage(group: Mapping[str, object]) -> int | None:
    """Return the percentage of spot of a group with a mixed policy; None for any other group."""
    if not group.get("MixedInstancesPolicy"):
        return None
    on_demand = _distribution(group).get("OnDemandPercentageAboveBaseCapacity")
    return _WHOLE - (_WHOLE if on_demand is None else as_integer(on_demand))


def _distribution(group: Mapping[str, object]) -> Mapping[str, object]:
    return as_object(as_object(group.get("MixedInstancesPolicy")).get("InstancesDistribution"))


def _template_reference(group: Mapping[str, object]) -> Mapping[str, object]:
    mixed = as_object(as_object(group.get("MixedInstancesPolicy")).get("LaunchTemplate"))
    reference = as_object(mixed.get("LaunchTemplateSpecification"))
    return reference or as_object(group.get("LaunchTemplate"))


def _overrides(group: Mapping[str, object]) -> list[Mapping[str, object]]:
    mixed = as_object(as_object(group.get("MixedInstancesPolicy")).get("LaunchTemplate"))
    return as_objects(mixed.get("Overrides"))


def _override_types(group: Mapping[str, object]) -> list[str]:
    types = [each.get("InstanceType") for each in _overrides(group)]
    return [str(each) for each in types if each]


def _tags(group: Mapping[str, object]) -> dict[str, str]:
    tags = group.get("Tags")
    items = [
        as_object(each) for each in (cast("list[object]", tags) if isinstance(tags, list) else ())
    ]
    return {str(each.get("Key")): str(each.get("Value") or "") for each in items}


def _use_templates(draft: ManifestDraft) -> None:
    for key in draft.source:
        draft.use(key, "launch templates become EC2NodeClasses of the groups that name them")


SCALING_GROUP_CONVERSIONS: Final = (
    Conversion(
        kind="Auto Scaling groups",
        accepts=lambda document: isinstance(document.get(_GROUPS), list),
        convert=_convert_groups,
        successors={},
    ),
    Conversion(
        kind="versions of launch templates",
        accepts=is_launch_templates,
        convert=_use_templates,
        successors={},
    ),
)
