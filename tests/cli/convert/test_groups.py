"""Whole groups of the clouds become NodePools and NodeClasses: each of their fields, and its absence."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
import yaml

from karpenter_core.api.nodepool import NodePool
from karpenter_core.cli.convert.session import convert_documents
from karpenter_core.cli.convert.yaml_manifest import node_of
from karpenter_core.cli.convert.yaml_text import TextDocument
from karpenter_core.disruption.budgets import DisruptionReason, allowed_disruptions
from karpenter_provider_alibabacloud.conversion.scaling_groups import CONVERSIONS as ESS
from karpenter_provider_aws.conversion.managed_node_groups import (
    MANAGED_NODE_GROUP_CONVERSIONS as EKS,
)
from karpenter_provider_aws.conversion.scaling_groups import SCALING_GROUP_CONVERSIONS as ASG
from karpenter_provider_azure.conversion.agent_pools import CONVERSIONS as AKS

TYPE = "node.kubernetes.io/instance-type"


def converted(rules, *documents):
    """Return NodePool and NodeClass of the first document, and its warnings as one text."""
    texts = [TextDocument(where="input", node=node_of(each), text="") for each in documents]
    first = convert_documents(texts, rules)[0]
    assert first.error == ""
    made = {each["kind"]: each for each in map(yaml.safe_load, first.texts)}
    pool = made.pop("NodePool")
    ((_, node_class),) = made.items()
    return pool, node_class.get("spec", {}), "\n".join(first.warnings)


def requirements(pool):
    """Return values by key; of a comparison, with its operator."""
    return {
        each["key"]: each["values"]
        if each["operator"] == "In"
        else (each["operator"], *each["values"])
        for each in pool["spec"]["template"]["spec"]["requirements"]
    }


# -- Alibaba Cloud ---------------------------------------------------------------------------------


def ess(configuration=None, **group):
    found = {"ScalingGroups": {"ScalingGroup": [group]}}
    if configuration is None:
        return converted(ESS, found)
    whole = {
        "ScalingGroupId": group.get("ScalingGroupId"),
        "LifecycleState": "Active",
        **configuration,
    }
    return converted(ESS, found, {"ScalingConfigurations": {"ScalingConfiguration": [whole]}})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"ScalingGroupName": "web", "ScalingGroupId": "asg-1"}, "web"),
        ({"ScalingGroupId": "asg-1"}, "asg-1"),
        ({}, "group"),
    ],
)
def test_an_ess_group_is_named_by_its_name_or_its_id(fields, name):
    assert ess(**fields)[0]["metadata"]["name"] == name


def test_an_empty_ess_configuration_gives_no_fields():
    pool, node_class, warnings = ess({}, ScalingGroupId="asg-1")
    assert TYPE not in requirements(pool)
    assert node_class == {}
    assert "minimum" not in warnings


def test_single_fields_of_an_ess_configuration_are_read_where_there_is_no_list():
    pool, node_class, warnings = ess(
        {
            "InstanceType": "ecs.g7.large",
            "SecurityGroupId": "sg-1",
            "Tags": {
                "Tag": [
                    {"TagKey": "team", "TagValue": "web"},
                    {"Key": "a", "Value": "b"},
                    {"Key": "c"},
                ]
            },
            "UserData": base64.b64encode(b"#!/bin/sh").decode(),
        },
        ScalingGroupId="asg-1",
        VSwitchId="vsw-1",
        MinSize=2,
    )
    assert requirements(pool)[TYPE] == ["ecs.g7.large"]
    assert node_class["securityGroupSelectorTerms"] == [{"id": "sg-1"}]
    assert node_class["vSwitchSelectorTerms"] == [{"id": "vsw-1"}]
    assert node_class["tags"] == {"team": "web", "a": "b", "c": ""}
    assert node_class["userData"] == "#!/bin/sh"
    assert "2" in warnings


def test_lists_of_an_ess_configuration_replace_its_single_fields():
    pool, node_class, _ = ess(
        {
            "InstanceType": "ecs.old",
            "InstanceTypes": {"InstanceType": ["ecs.a", "ecs.b"]},
            "SecurityGroupId": "sg-old",
            "SecurityGroupIds": {"SecurityGroupId": ["sg-1", "sg-2"]},
        },
        ScalingGroupId="asg-1",
        VSwitchId="vsw-old",
        VSwitchIds={"VSwitchId": ["vsw-1"]},
    )
    assert requirements(pool)[TYPE] == ["ecs.a", "ecs.b"]
    assert node_class["securityGroupSelectorTerms"] == [{"id": "sg-1"}, {"id": "sg-2"}]
    assert node_class["vSwitchSelectorTerms"] == [{"id": "vsw-1"}]


def test_disks_and_addresses_of_an_ess_configuration_are_converted():
    """The default performance level of an ECSNodeClass is PL0, and that of ECS is not."""
    disk = {"Category": "cloud_essd", "Size": 200, "Device": "/dev/xvdb", "Encrypted": "true"}
    _, node_class, warnings = ess(
        {
            "SystemDiskCategory": "cloud_essd",
            "SystemDiskPerformanceLevel": "PL1",
            "SystemDiskEncrypted": True,
            "DataDisks": {
                "DataDisk": [
                    {**disk, "KMSKeyId": "key-1", "PerformanceLevel": "PL2"},
                    {"Category": "cloud_essd", "SnapshotId": "s-1", "DeleteWithInstance": False},
                ]
            },
            "InternetChargeType": "PayByTraffic",
            "InternetMaxBandwidthOut": 5,
        },
        ScalingGroupId="asg-1",
    )
    assert node_class["systemDisk"] == {
        "categories": ["cloud_essd"],
        "performanceLevel": "PL1",
        "encrypted": True,
    }
    assert node_class["dataDisks"] == [
        {
            "volumeSize": "200Gi",
            "device": "/dev/xvdb",
            "encrypted": True,
            "kmsKeyId": "key-1",
            "performanceLevel": "PL2",
        },
        {"snapshotId": "s-1", "deleteWithInstance": False},
    ]
    assert node_class["dataDiskCategories"] == ["cloud_essd"]
    assert node_class["internetMaxBandwidthOut"] == 5
    assert warnings == ""


def test_settings_of_an_ess_configuration_that_are_not_converted_are_left_to_do():
    _, _, warnings = ess(
        {
            "ScalingConfigurationId": "asc-1",
            "SpotPriceLimit": {"SpotPriceModel": [{"InstanceType": "ecs.a", "PriceLimit": 1.5}]},
            "HpcClusterId": "hpc-1",
            "InternetMaxBandwidthOut": 0,
            "InternetChargeType": "PayByTraffic",
            "Tenancy": "default",
            "SchedulerOptions": {},
            "InstancePatternInfos": {"InstancePatternInfo": []},
        },
        ScalingGroupId="asg-1",
    )
    assert [line.partition(" = ")[0] for line in warnings.splitlines()] == [
        'scaling configuration "asc-1": HpcClusterId',
        'scaling configuration "asc-1": SpotPriceLimit',
    ]


# -- AWS -------------------------------------------------------------------------------------------


def template(**data):
    version = {"LaunchTemplateId": "lt-1", "VersionNumber": 1, "DefaultVersion": True}
    return {"LaunchTemplateVersions": [{**version, "LaunchTemplateData": data}]}


def asg(*documents, **group):
    return converted(ASG, {"AutoScalingGroups": [group]}, *documents)


def eks(*documents, **group):
    return converted(EKS, {"nodegroup": {"nodegroupName": "web", **group}}, *documents)


def test_a_group_without_fields_gets_a_name_and_no_requirements():
    pool, node_class, _ = asg()
    assert pool["metadata"]["name"] == "group"
    assert requirements(pool) == {"karpenter.sh/capacity-type": ["on-demand"]}
    assert "subnetSelectorTerms" not in node_class
    assert "tags" not in node_class


@pytest.mark.parametrize(
    ("market", "policy", "capacity_types"),
    [
        ("spot", None, ["spot"]),
        (None, None, ["on-demand"]),
        ("spot", {"OnDemandPercentageAboveBaseCapacity": 100}, ["on-demand"]),
        ("spot", {"OnDemandPercentageAboveBaseCapacity": 99}, ["on-demand", "spot"]),
        (None, {"OnDemandPercentageAboveBaseCapacity": 0}, ["spot"]),
    ],
)
def test_the_policy_of_a_group_goes_before_the_market_of_its_template(
    market, policy, capacity_types
):
    reference = {"LaunchTemplateId": "lt-1", "Version": "1"}
    data = {"InstanceMarketOptions": {"MarketType": market}} if market else {}
    group = {"LaunchTemplate": reference}
    if policy is not None:
        group = {
            "MixedInstancesPolicy": {
                "InstancesDistribution": policy,
                "LaunchTemplate": {"LaunchTemplateSpecification": reference},
            }
        }
    pool, _, _ = asg(template(InstanceType="m7g.large", **data), **group)
    assert sorted(requirements(pool)["karpenter.sh/capacity-type"]) == capacity_types
    assert requirements(pool)[TYPE] == ["m7g.large"]


def test_overrides_and_ranges_of_a_group_become_requirements():
    """A lower bound of one is one; of zero, none."""
    overrides = [
        {"InstanceType": "a1.large"},
        {"InstanceRequirements": {"VCpuCount": {"Min": 1, "Max": 8}, "MemoryMiB": {"Min": 0}}},
    ]
    pool, _, _ = asg(
        MixedInstancesPolicy={"LaunchTemplate": {"Overrides": overrides}},
        Tags=[{"Key": "team", "Value": "web"}, {"Key": "empty"}],
    )
    operators = [
        (each["key"].rpartition("/")[2], each["operator"], *each["values"])
        for each in pool["spec"]["template"]["spec"]["requirements"]
    ]
    assert ("instance-type", "In", "a1.large") in operators
    assert ("instance-cpu", "Gt", "0") in operators
    assert ("instance-cpu", "Lt", "9") in operators
    assert not [each for each in operators if each[0] == "instance-memory"]


def test_settings_of_a_group_that_nothing_has_are_left_to_do():
    option = "k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime"
    _, node_class, warnings = asg(
        template(ImageId="resolve:ssm:/images/eks"),
        VPCZoneIdentifier="subnet-a, subnet-b",
        MixedInstancesPolicy={
            "InstancesDistribution": {"SpotMaxPrice": "0.10"},
            "LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1"}},
        },
        Tags=[{"Key": option, "Value": "1m0s"}],
    )
    assert "SpotMaxPrice = 0.10 has no counterpart" in warnings
    assert f'the tag "{option}" = "1m0s" sets an option of Cluster Autoscaler' in warnings
    assert node_class["amiSelectorTerms"] == [{"ssmParameter": "/images/eks"}]
    assert node_class["subnetSelectorTerms"] == [{"id": "subnet-a"}, {"id": "subnet-b"}]


def test_a_managed_group_takes_from_its_template_what_it_does_not_say_itself():
    profile = template(
        InstanceType="m7g.large",
        IamInstanceProfile={"Name": "nodes"},
        SecurityGroupIds=["sg-1"],
        ImageId="ami-1",
    )
    reference = {
        "launchTemplate": {"id": "lt-1", "version": "1"},
        "nodeRole": "arn:aws:iam::1:role/web",
    }
    pool, node_class, _ = eks(profile, amiType="CUSTOM", **reference)
    assert requirements(pool) == {TYPE: ["m7g.large"], "karpenter.sh/capacity-type": ["on-demand"]}
    assert "role" not in node_class
    assert node_class["instanceProfile"] == "nodes"
    assert node_class["securityGroupSelectorTerms"] == [{"id": "sg-1"}]
    assert node_class["amiSelectorTerms"] == [{"id": "ami-1"}]

    own, _, _ = eks(profile, instanceTypes=["c7g.large"], **reference)
    assert requirements(own)[TYPE] == ["c7g.large"]


def test_a_managed_group_without_a_template_has_the_role_and_the_groups_of_eks():
    pool, node_class, warnings = eks(
        template(),
        launchTemplate={"id": "lt-1"},
        nodeRole="arn:aws:iam::1:role/web",
        clusterName="prod",
    )
    assert TYPE not in requirements(pool)
    assert "kubernetes.io/arch" not in requirements(pool)
    assert node_class["role"] == "web"
    assert node_class["securityGroupSelectorTerms"] == [{"tags": {"aws:eks:cluster-name": "prod"}}]
    assert "names no AMI" in warnings


def test_a_managed_group_whose_launch_template_is_not_in_the_input_is_left_to_do():
    """Its instance types, disks and security groups would be lost without a word."""
    reference = {"launchTemplate": {"name": "web", "id": "lt-2", "version": "3"}}
    _, _, warnings = eks(template(), amiType="AL2023_x86_64_STANDARD", **reference)
    assert 'the launch template of the node group "web" is not in the input' in warnings

    _, _, warnings = eks(template(), amiType="AL2023_x86_64_STANDARD")
    assert warnings == ""


def test_a_capacity_block_and_settings_within_fields_of_a_template_are_left_to_do():
    options = {"HttpTokens": "required", "InstanceMetadataTags": "enabled"}
    interfaces = [{"InterfaceType": "efa", "Groups": ["sg-1"]}, {"InterfaceType": "efa"}]
    _, _, warnings = eks(
        template(MetadataOptions=options, NetworkInterfaces=interfaces),
        amiType="AL2023_x86_64_STANDARD",
        capacityType="CAPACITY_BLOCK",
        launchTemplate={"id": "lt-1"},
    )
    assert "spec.capacityReservationSelectorTerms" in warnings
    assert "MetadataOptions.InstanceMetadataTags has no counterpart" in warnings
    assert warnings.count("NetworkInterfaces.InterfaceType efa is not converted") == 1


def test_the_budget_for_drift_is_that_of_updates_of_the_group():
    """A budget for every reason would limit drift too: the least of all budgets counts."""
    pool, _, _ = eks(
        amiType="AL2023_x86_64_STANDARD", updateConfig={"maxUnavailablePercentage": 50}
    )
    disruption = NodePool.model_validate(pool)
    now = datetime(2030, 1, 1, tzinfo=UTC)
    allowed = {
        reason: allowed_disruptions(disruption, reason, total=20, now=now)
        for reason in (DisruptionReason.DRIFTED, DisruptionReason.EMPTY)
    }
    assert allowed == {DisruptionReason.DRIFTED: 10, DisruptionReason.EMPTY: 2}


@pytest.mark.parametrize(
    ("ami_type", "alias", "device", "lost"),
    [
        ("WINDOWS_CORE_2019_x86_64", "windows2019@latest", "/dev/sda1", ""),
        ("WINDOWS_CORE_2025_x86_64", "windows2025@latest", "/dev/sda1", ""),
        ("WINDOWS_FULL_2022_x86_64", "windows2022@latest", "/dev/sda1", "Windows Server Core"),
        ("WINDOWS_FULL_2025_x86_64", "windows2025@latest", "/dev/sda1", "Windows Server Core"),
        ("BOTTLEROCKET_x86_64", "bottlerocket@latest", "/dev/xvdb", ""),
        ("BOTTLEROCKET_ARM_64_FIPS", "bottlerocket@latest", "/dev/xvdb", "without FIPS"),
        ("AL2023_x86_64_NVIDIA", "al2023@latest", "/dev/xvda", ""),
    ],
)
def test_a_managed_group_keeps_its_image_and_the_disk_of_the_images_device(
    ami_type, alias, device, lost
):
    """A variant of an image that no alias selects is left to do, with what the alias selects."""
    _, node_class, warnings = eks(amiType=ami_type, diskSize=80)
    assert node_class["amiSelectorTerms"] == [{"alias": alias}]
    (disk,) = node_class["blockDeviceMappings"]
    assert (disk["deviceName"], disk["ebs"]["volumeSize"]) == (device, "80Gi")
    assert lost in warnings
    assert ("name an AMI" in warnings) is bool(lost)


def test_security_groups_of_an_interface_replace_those_of_eks():
    interface = {"NetworkInterfaces": [{"Groups": ["sg-2"]}]}
    _, node_class, _ = eks(template(**interface), launchTemplate={"id": "lt-1"}, clusterName="prod")
    assert node_class["securityGroupSelectorTerms"] == [{"id": "sg-2"}]
    assert "role" not in node_class


@pytest.mark.parametrize(("on_demand", "share"), [(0, None), (1, "99%"), (99, "1%"), (100, None)])
def test_a_group_of_both_capacity_types_keeps_its_share_of_spot(on_demand, share):
    policy = {"OnDemandPercentageAboveBaseCapacity": on_demand}
    pools = [
        asg(MixedInstancesPolicy={"InstancesDistribution": policy})[0],
        ess({}, ScalingGroupId="asg-1", **policy)[0],
    ]
    found = [
        each["metadata"].get("annotations", {}).get("karpenter.sh/spot-share") for each in pools
    ]
    assert found == [share, share]


# -- Azure -----------------------------------------------------------------------------------------


POOL = "Microsoft.ContainerService/managedClusters/agentPools"
SCALE_SET = "Microsoft.Compute/virtualMachineScaleSets"


def azure(kind=POOL, **fields):
    return converted(AKS, {"type": kind, **fields})


def test_a_node_pool_without_fields_has_the_usual_image_and_no_requirements():
    pool, node_class, warnings = azure()
    assert pool["metadata"]["name"] == "pool"
    assert requirements(pool) == {"karpenter.sh/capacity-type": ["on-demand"]}
    assert node_class == {"imageFamily": "Ubuntu"}
    assert warnings == ""


def test_settings_of_the_machines_of_a_node_pool_are_converted_or_left_to_do():
    pool, node_class, warnings = azure(
        name="web",
        scaleSetPriority="Spot",
        nodeTaints=["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"],
        enableEncryptionAtHost=True,
        enableUltraSsd=True,
        securityProfile={"enableSecureBoot": True, "enableVtpm": False},
        gpuProfile={"driver": "None"},
        artifactStreamingProfile={"enabled": True},
        podSubnetId="/subnets/pods",
        workloadRuntime="KataMshvVmIsolation",
        hostGroupId=None,
    )
    assert node_class["security"] == {
        "encryptionAtHost": True,
        "trustedLaunch": {"secureBoot": True, "vtpm": False},
    }
    assert node_class["gpu"] == {"mode": "None"}
    assert node_class["artifactStreaming"] == {"enabled": True}
    assert requirements(pool)["karpenter.azure.com/sku-storage-ultra-ssd"] == ["true"]
    (taint,) = pool["spec"]["template"]["spec"]["taints"]
    assert (
        taint["key"] == "kubernetes.azure.com/scalesetpriority"
    )  # keeps other pods off spot nodes
    assert 'podSubnetId = "/subnets/pods" has no counterpart' in warnings
    assert 'workloadRuntime = "KataMshvVmIsolation" has no counterpart' in warnings
    assert "hostGroupId" not in warnings


@pytest.mark.parametrize(
    "fields",
    [
        {"enableEncryptionAtHost": False, "enableUltraSsd": False},
        {"securityProfile": {"enableSecureBoot": False, "enableVtpm": False}},
        {"gpuProfile": {"driver": "Install"}, "artifactStreamingProfile": {"enabled": False}},
        {"workloadRuntime": "OCIContainer", "enableNodePublicIp": False, "podSubnetId": None},
    ],
)
def test_settings_that_a_node_pool_does_not_use_are_not_written(fields):
    assert azure(**fields) == azure()


@pytest.mark.parametrize("gb", ["osDiskSizeGb", "osDiskSizeGB"])
@pytest.mark.parametrize("subnet", ["vnetSubnetId", "vnetSubnetID"])
def test_both_spellings_of_a_node_pool_are_read(gb, subnet):
    """The command line writes another one than the API."""
    _, node_class, _ = azure(**{gb: 64, subnet: "/subnets/a", "osSku": "AzureLinux"})
    assert node_class == {
        "imageFamily": "AzureLinux",
        "osDiskSizeGB": 64,
        "vnetSubnetID": "/subnets/a",
    }


@pytest.mark.parametrize(
    ("fields", "is_left"),
    [({"count": 2}, True), ({"enableAutoScaling": True, "maxCount": 5}, False)],
)
def test_nodes_that_a_node_pool_always_has_are_left_to_do(fields, is_left):
    assert bool(azure(**fields)[2]) is is_left


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("team=web:NoExecute", {"key": "team", "value": "web", "effect": "NoExecute"}),
        ("team:NoExecute", {"key": "team", "effect": "NoExecute"}),
        ("team=web", {"key": "team", "value": "web", "effect": "NoSchedule"}),
    ],
)
def test_taints_of_a_node_pool_may_lack_value_and_effect(text, taint):
    pool, _, _ = azure(nodeTaints=[text])
    assert pool["spec"]["template"]["spec"]["taints"] == [taint]


@pytest.mark.parametrize("gb", ["diskSizeGb", "diskSizeGB"])
def test_the_disk_of_a_scale_set_is_read_in_both_spellings(gb):
    disk = {"storageProfile": {"osDisk": {gb: 64}}}
    pool, node_class, _ = azure(SCALE_SET, virtualMachineProfile=disk)
    assert node_class == {"osDiskSizeGB": 64}
    assert requirements(pool) == {"karpenter.sh/capacity-type": ["on-demand"]}
