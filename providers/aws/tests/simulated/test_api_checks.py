"""Refusals of requests by EC2: enumerations, ranges, patterns and combinations of the real API."""

from __future__ import annotations

import pytest

A = "us-east-1a"
GROUP = "sg-00000000000000000"


def template(clients, name="checked", **data):
    return clients.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)


@pytest.mark.parametrize(
    "data",
    [
        {"MetadataOptions": {"HttpTokens": "sometimes"}},
        {"MetadataOptions": {"HttpProtocolIpv6": "on"}},
        {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeType": "gp9"}}]},
        {"Placement": {"Tenancy": "shared"}},
        {"CapacityReservationSpecification": {"CapacityReservationPreference": "maybe"}},
        {"TagSpecifications": [{"ResourceType": "machine", "Tags": []}]},
    ],
)
def test_a_value_that_is_not_of_the_enumeration_is_refused(clients, code, data):
    assert code(lambda: template(clients, **data)) == "InvalidParameterValue"
    assert clients.ec2.describe_launch_templates()["LaunchTemplates"] == []


def test_a_refusal_names_the_parameter_and_its_value(clients):
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError, match=r"\(sometimes\).*MetadataOptions\.HttpTokens.*optional"):
        template(clients, MetadataOptions={"HttpTokens": "sometimes"})


def test_fleets_are_checked_against_the_model_too(launch, code):
    options = {"AllocationStrategy": "lowest-price", "SingleInstanceType": True}

    assert launch.fleet("m5.large", OnDemandOptions=options).ids
    wrong = {"AllocationStrategy": "cheapest"}
    assert code(lambda: launch.fleet("m5.large", OnDemandOptions=wrong)) == "InvalidParameterValue"
    assert code(lambda: launch.fleet("m5.large", target="gratis")) == "InvalidParameterValue"


@pytest.mark.parametrize("name", ["a" * 129, "a b", "ä" * 5])
def test_a_malformed_name_of_a_launch_template_is_refused_by_every_call(
    clients, launch, code, name
):
    malformed = "InvalidLaunchTemplateName.MalformedException"

    assert code(lambda: template(clients, name)) == malformed
    overrides = [{"InstanceType": "m5.large"}]
    assert code(lambda: launch.fleet(template=name, overrides=overrides)) == malformed


def test_a_page_that_is_larger_than_the_api_gives_is_refused(clients, code):
    refused = code(clients.ec2.describe_instance_types, MaxResults=101)

    assert refused == "InvalidParameterValue"


def test_a_type_unknown_to_sdk_and_region_is_a_fleet_error(launch):
    assert launch.fleet("m99.large", zones=[A]).errors == [
        ("m99.large", A, "InvalidParameterValue")
    ]


def volume(**ebs):
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": ebs}]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (volume(VolumeType="gp3", VolumeSize=100, Iops=80_001), "InvalidParameterValue"),
        (volume(VolumeType="gp3", VolumeSize=100, Iops=2999), "InvalidParameterValue"),
        (volume(VolumeType="gp3", VolumeSize=8, Iops=4001), "InvalidParameterValue"),
        (volume(VolumeType="gp3", VolumeSize=65_537), "InvalidParameterValue"),
        (volume(VolumeType="gp3", VolumeSize=100, Throughput=124), "InvalidParameterValue"),
        (volume(VolumeType="gp3", VolumeSize=100, Throughput=2001), "InvalidParameterValue"),
        (volume(VolumeType="gp3", VolumeSize=100, Throughput=751), "InvalidParameterValue"),
        (volume(VolumeType="gp2", VolumeSize=100, Iops=3000), "InvalidParameterCombination"),
        (volume(VolumeType="gp2", VolumeSize=100, Throughput=200), "InvalidParameterCombination"),
        (volume(VolumeType="io2", VolumeSize=100), "MissingParameter"),
        (volume(VolumeType="io1", VolumeSize=4, Iops=201), "InvalidParameterValue"),
        (volume(VolumeType="st1", VolumeSize=124), "InvalidParameterValue"),
        ({"BlockDeviceMappings": [{"DeviceName": "disk1"}]}, "InvalidBlockDeviceMapping"),
        (
            {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda"}] * 2},
            "InvalidBlockDeviceMapping",
        ),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "InvalidParameterValue"),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 0}}, "InvalidParameterValue"),
        (
            {
                "MetadataOptions": {"InstanceMetadataTags": "enabled"},
                "TagSpecifications": [
                    {
                        "ResourceType": "instance",
                        "Tags": [{"Key": "karpenter.sh/nodepool", "Value": "web"}],
                    }
                ],
            },
            "InvalidParameterValue",
        ),
        ({"SecurityGroupIds": ["web"]}, "InvalidGroupId.Malformed"),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "subnet-x"}]},
            "InvalidSubnetID.Malformed",
        ),
        (
            {
                "SecurityGroupIds": [GROUP],
                "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [GROUP]}],
            },
            "InvalidParameterCombination",
        ),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0}, {"DeviceIndex": 0}]},
            "InvalidParameterValue",
        ),
    ],
)
def test_a_template_with_a_mistake_is_taken_with_a_warning_and_launches_nothing(
    aws, clients, launch, code, data, expected
):
    """As the API reference has it: parameters of a template are not fully validated."""
    answer = template(clients, ImageId=launch.image(), **data)
    assert answer["Warning"]["Errors"][0]["Code"] == expected

    assert launch.fleet("m5.large", zones=[A], template="checked").errors == [
        ("m5.large", A, expected)
    ]
    refused = code(
        clients.ec2.run_instances,
        LaunchTemplate={"LaunchTemplateName": "checked"},
        InstanceType="m5.large",
        SubnetId=aws.world.subnets[A],
        MinCount=1,
        MaxCount=1,
        DryRun=True,
    )
    assert refused == expected
    assert aws.living() == []


@pytest.mark.parametrize(
    "data",
    [
        volume(VolumeType="gp3", VolumeSize=160, Iops=80_000, Throughput=2000),
        volume(VolumeType="gp3", VolumeSize=1, Iops=3000, Throughput=750),
        volume(VolumeType="io1", VolumeSize=4, Iops=200),
        volume(VolumeType="io2", VolumeSize=65_536, Iops=256_000),
        {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1"}, {"DeviceName": "xvdb"}]},
        {"MetadataOptions": {"HttpPutResponseHopLimit": 64}},
        {
            "NetworkInterfaces": [
                {"DeviceIndex": 0, "NetworkCardIndex": 0},
                {"DeviceIndex": 1, "NetworkCardIndex": 0},
                {"DeviceIndex": 1, "NetworkCardIndex": 1},
            ]
        },
    ],
)
def test_a_launch_within_the_limits_has_no_warning(clients, launch, data):
    answer = template(clients, ImageId=launch.image(), **data)

    assert "Warning" not in answer
    two_cards = "c6in.32xlarge"
    assert len(launch.fleet(two_cards, zones=[A], template="checked").ids) == 1


def test_groups_of_template_and_interface_of_the_call_together_are_refused(
    aws, clients, launch, code
):
    group = aws.world.security_group_id
    template(clients, ImageId=launch.image(), SecurityGroupIds=[group])

    refused = code(
        clients.ec2.run_instances,
        LaunchTemplate={"LaunchTemplateName": "checked"},
        InstanceType="m5.large",
        NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": aws.world.subnets[A], "Groups": [group]}],
        MinCount=1,
        MaxCount=1,
    )

    assert refused == "InvalidParameterCombination"
