"""Groups that describe their instances by attributes, converted."""

from __future__ import annotations

import json

import pytest

from tests.cli.convert.test_golden import convert

CATEGORY = {"key": "karpenter.k8s.aws/instance-category", "operator": "NotIn", "values": ["t"]}


def converted(**attributes):
    """Return the documents and warnings of a group with such attributes, and a template's type."""
    group = {
        "AutoScalingGroupName": "web",
        "MinSize": 0,
        "MaxSize": 5,
        "VPCZoneIdentifier": "subnet-0a",
        "MixedInstancesPolicy": {
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "web", "Version": "1"},
                "Overrides": [{"InstanceRequirements": attributes}],
            }
        },
        "Tags": [],
    }
    version = {"LaunchTemplateName": "web", "VersionNumber": 1}
    templates = [{**version, "LaunchTemplateData": {"InstanceType": "m5.large"}}]
    text = "\n---\n".join(
        map(json.dumps, ({"AutoScalingGroups": [group]}, {"LaunchTemplateVersions": templates}))
    )
    (first, _) = json.loads(convert("-o", "json", "-", text=text).stdout)["documents"]
    return first


def requirements(**attributes):
    """Return the requirements of the NodePool of a group with such attributes."""
    manifests = converted(**attributes)["manifests"]
    pool = next(each for each in manifests if each["kind"] == "NodePool")
    return pool["spec"]["template"]["spec"]["requirements"]


@pytest.mark.parametrize(
    ("attributes", "excluded"),
    [
        ({}, True),
        ({"BurstablePerformance": "excluded"}, True),
        ({"BurstablePerformance": "included"}, False),
        ({"BurstablePerformance": "required"}, False),
    ],
)
def test_burstable_types_are_excluded_unless_the_group_includes_them(attributes, excluded):
    assert (CATEGORY in requirements(**attributes)) is excluded


def test_bounds_and_makers_become_requirements_for_the_same_instances():
    found = requirements(
        VCpuCount={"Min": 2, "Max": 8},
        MemoryMiB={"Min": 0},
        CpuManufacturers=["amazon-web-services", "intel"],
        BurstablePerformance="included",
    )

    cpu = "karpenter.k8s.aws/instance-cpu"
    assert [each for each in found if each["key"] == cpu] == [
        {"key": cpu, "operator": "Gt", "values": ["1"]},
        {"key": cpu, "operator": "Lt", "values": ["9"]},
    ]
    assert not any(each["key"].endswith("instance-memory") for each in found)
    makers = next(each for each in found if each["key"].endswith("cpu-manufacturer"))
    assert (makers["operator"], sorted(makers["values"])) == ("In", ["aws", "intel"])


def test_attributes_replace_the_instance_type_of_the_launch_template():
    found = requirements(VCpuCount={"Min": 2}, MemoryMiB={"Min": 0})
    assert not [each for each in found if each["key"] == "node.kubernetes.io/instance-type"]


def test_attributes_that_no_requirement_has_are_left_to_do():
    """A group of GPUs must not become a NodePool of any instances without a word."""
    warnings = converted(
        VCpuCount={"Min": 2},
        AcceleratorCount={"Min": 1},
        ExcludedInstanceTypes=["m5*"],
        LocalStorage="included",
        RequireHibernateSupport=False,
    )["toDo"]
    assert [each.partition(" = ")[0] for each in warnings] == [
        'the group "web": InstanceRequirements.AcceleratorCount',
        'the group "web": InstanceRequirements.ExcludedInstanceTypes',
    ]
    assert '= {"Min": 1} is not in the NodePool' in warnings[0]
