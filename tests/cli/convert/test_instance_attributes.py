"""Groups that describe their instances by attributes, converted."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.convert.test_golden import convert

CATEGORY = {"key": "karpenter.k8s.aws/instance-category", "operator": "NotIn", "values": ["t"]}


def requirements(**attributes):
    """Return the requirements of the NodePool of a group with such attributes."""
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
    documents = yaml.safe_load_all(
        convert("-", text=json.dumps({"AutoScalingGroups": [group]})).stdout
    )
    pool = next(each for each in documents if each["kind"] == "NodePool")
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
