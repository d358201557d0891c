"""Fleets of the simulated AWS: the cheapest choice, errors beside it, tokens, quotas, addresses."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.calls.failures import UncertainCallError

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


def test_an_on_demand_fleet_takes_the_cheapest_type(launch):
    assert launch.fleet("m5.2xlarge", "m5.large", "m5.xlarge").places == [("m5.large", A)]


def test_a_spot_fleet_takes_the_cheapest_pool_of_type_and_zone(aws, launch):
    aws.prices.set_spot("m5.xlarge", C, 0.001)

    fleet = launch.fleet("m5.large", "m5.xlarge", target="spot")

    assert fleet.places == [("m5.xlarge", C)]
    assert launch.described(*fleet.ids)[0]["InstanceLifecycle"] == "spot"
    assert launch.described(*fleet.ids)[0]["SpotInstanceRequestId"].startswith("sir-")


def test_priorities_decide_where_the_strategy_says_so(aws, launch):
    subnets = aws.world.subnets
    fleet = launch.fleet(
        overrides=[
            {
                "InstanceType": "m5.large",
                "SubnetId": subnets[A],
                "AvailabilityZone": A,
                "Priority": 2,
            },
            {
                "InstanceType": "m5.xlarge",
                "SubnetId": subnets[B],
                "AvailabilityZone": B,
                "Priority": 1,
            },
        ],
        OnDemandOptions={"AllocationStrategy": "prioritized"},
    )

    assert fleet.places == [("m5.xlarge", B)]


def test_a_sold_out_pool_is_an_error_and_the_next_is_used(aws, launch):
    aws.capacity.sell_out(instance_type="m5.large")

    fleet = launch.fleet("m5.large", "m5.xlarge", zones=[A])

    assert fleet.places == [("m5.xlarge", A)]
    assert fleet.errors == [("m5.large", A, "InsufficientInstanceCapacity")]


def test_a_fleet_uses_the_remaining_stock_and_then_the_next_pool(aws, launch):
    from karpenter_core.provider.kit.simulated.pools import InstancePool

    aws.capacity.stock(InstancePool(capacity_type="on-demand", instance_type="m5.large"), 2)

    fleet = launch.fleet("m5.large", count=5)

    assert [len(each["InstanceIds"]) for each in fleet.answer["Instances"]] == [2, 2, 1]
    assert [code for _, _, code in fleet.errors] == ["InsufficientInstanceCapacity"] * 2


def test_ended_instances_return_to_stock(aws, launch):
    from karpenter_core.provider.kit.simulated.pools import InstancePool

    aws.capacity.stock(InstancePool(instance_type="m5.large", zone=A), 1)
    first = launch.fleet("m5.large", zones=[A])
    assert launch.fleet("m5.large", zones=[A]).ids == []

    aws.terminate(first.ids[0])

    assert len(launch.fleet("m5.large", zones=[A]).ids) == 1


def test_spot_and_on_demand_have_stocks_of_their_own(aws, launch):
    aws.capacity.sell_out(capacity_type="spot")

    assert launch.fleet("m5.large", target="spot").ids == []
    assert len(launch.fleet("m5.large").ids) == 1


def test_the_same_token_with_the_same_parameters_launches_once(launch):
    first = launch.fleet("m5.large", ClientToken="token")
    again = launch.fleet("m5.large", ClientToken="token")

    assert again.answer["FleetId"] == first.answer["FleetId"]
    assert again.ids == first.ids


def test_the_same_token_with_other_parameters_is_refused(launch, code):
    launch.fleet("m5.large", ClientToken="token")

    refused = code(lambda: launch.fleet("m5.xlarge", ClientToken="token"))

    assert refused == "IdempotentParameterMismatch"


def test_a_launch_whose_reply_was_lost_is_adopted_by_its_token(aws, launch):
    launch.template()
    with aws.lose_replies("CreateFleet"), pytest.raises(UncertainCallError):
        launch.fleet("m5.large", ClientToken="token")
    fleet = launch.fleet("m5.large", ClientToken="token")

    assert aws.held().instances == fleet.ids


def test_the_quota_of_vcpus_holds_for_a_group_of_families(aws, launch):
    aws.capacity.limit_vcpus(4)

    fleet = launch.fleet("m5.large", count=3, zones=[A])

    assert len(fleet.ids) == 2
    assert fleet.errors == [("m5.large", A, "VcpuLimitExceeded")]
    assert launch.fleet("c5.large", zones=[A]).errors == [("c5.large", A, "VcpuLimitExceeded")]
    assert len(launch.fleet("m5.large", target="spot").ids) == 1


def test_the_quota_of_spot_instances_holds_for_all_types(aws, launch):
    aws.capacity.limit_spot_instances(1)
    launch.fleet("m5.large", target="spot")

    fleet = launch.fleet("c5.large", target="spot", zones=[A])

    assert fleet.errors == [("c5.large", A, "MaxSpotInstanceCountExceeded")]


def test_a_subnet_without_addresses_is_an_error_and_a_sibling_is_taken(aws, launch, clients):
    small = clients.ec2.create_subnet(
        VpcId=aws.world.vpc_id, CidrBlock="10.0.200.0/28", AvailabilityZone=A
    )["Subnet"]["SubnetId"]
    here = [{"InstanceType": "m5.large", "SubnetId": small, "AvailabilityZone": A}]
    sibling = {"InstanceType": "m5.large", "SubnetId": aws.world.subnets[A], "AvailabilityZone": A}

    fleet = launch.fleet(overrides=[*here, sibling], count=12)

    assert [len(each["InstanceIds"]) for each in fleet.answer["Instances"]] == [11, 1]
    assert fleet.errors == [("m5.large", A, "InsufficientFreeAddressesInSubnet")]
    described = clients.ec2.describe_subnets(SubnetIds=[small])["Subnets"][0]
    assert described["AvailableIpAddressCount"] == 0


def test_an_override_can_be_made_to_fail_with_any_code(aws, launch):
    aws.fail_pools(code="UnauthorizedOperation", zone=A)

    fleet = launch.fleet("m5.large")

    assert fleet.places == [("m5.large", B)]
    assert fleet.errors == [("m5.large", A, "UnauthorizedOperation")]


def test_mistakes_in_a_launch_are_errors_of_its_overrides(aws, launch, clients):
    other = clients.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    group = clients.ec2.create_security_group(GroupName="other", Description="x", VpcId=other)
    wrong = {
        "image": {"ImageId": "ami-00000000000000000"},
        "profile": {"IamInstanceProfile": {"Name": "absent"}},
        "group": {"SecurityGroupIds": ["sg-00000000000000000"]},
        "network": {"SecurityGroupIds": [group["GroupId"]]},
        "architecture": {"ImageId": launch.image(architecture="arm64")},
    }
    codes = {}
    for name, data in wrong.items():
        launch.template(name, **data)
        codes[name] = launch.fleet("m5.large", zones=[A], template=name).errors[0][2]

    assert codes == {
        "image": "InvalidAMIID.NotFound",
        "profile": "InvalidParameterValue",
        "group": "InvalidGroup.NotFound",
        "network": "InvalidParameter",
        "architecture": "InvalidParameterValue",
    }


def test_a_type_that_a_zone_does_not_have_is_no_configuration_of_a_fleet_there(aws, launch):
    aws.catalogue.withdraw("m5.large", A)

    assert launch.fleet("m5.large", zones=[A]).errors == [
        ("m5.large", A, "InvalidFleetConfiguration")
    ]


def test_a_launch_template_that_is_not_there_refuses_the_fleet(launch, code):
    refused = code(lambda: launch.fleet("m5.large", template="absent"))

    assert refused == "InvalidLaunchTemplateName.NotFoundException"


@pytest.mark.parametrize(
    "interface",
    [
        {"DeviceIndex": 7, "NetworkCardIndex": 1},
        {"DeviceIndex": 0, "NetworkCardIndex": 2},
    ],
)
def test_an_interface_that_a_network_card_does_not_take_refuses_the_launch(launch, interface):
    """The second and last card of i7ie.48xlarge takes seven interfaces."""
    primary = {"DeviceIndex": 0, "NetworkCardIndex": 0}
    launch.template("cards", NetworkInterfaces=[primary, interface])

    [(_, _, code)] = launch.fleet("i7ie.48xlarge", zones=[A], template="cards").errors

    assert code == "InvalidParameterValue"


def test_a_network_card_without_efa_refuses_an_interface_with_one(launch):
    launch.template(
        "efa",
        NetworkInterfaces=[{"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "efa"}],
    )

    [(_, _, code)] = launch.fleet("p6-b300.48xlarge", zones=[A], template="efa").errors

    assert code == "InvalidParameterValue"


def test_a_dry_run_launches_nothing(aws, launch, code):
    launch.template()

    assert code(lambda: launch.fleet("m5.large", DryRun=True)) == "DryRunOperation"
    assert aws.held().instances == []


def test_an_instance_has_the_tags_of_fleet_and_template_and_those_of_aws(aws, launch):
    launch.template(
        "tagged",
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [
                    {"Key": "from", "Value": "template"},
                    {"Key": "both", "Value": "template"},
                ],
            }
        ],
    )
    fleet = launch.fleet("m5.large", template="tagged", tags=[{"Key": "both", "Value": "fleet"}])
    tags = {tag["Key"]: tag["Value"] for tag in launch.described(*fleet.ids)[0]["Tags"]}

    assert tags["from"] == "template"
    assert tags["both"] == "fleet"
    assert tags["aws:ec2:fleet-id"] == fleet.answer["FleetId"]
    assert tags["aws:ec2launchtemplate:version"] == "1"


def test_tags_that_are_too_long_refuse_the_fleet(aws, launch, code):
    launch.template()

    refused = code(lambda: launch.fleet("m5.large", tags=[{"Key": "k", "Value": "v" * 257}]))

    assert refused == "InvalidParameterValue"
    assert aws.held().instances == []


def test_an_instance_is_as_its_launch_template_says(aws, launch):
    profile = launch.profile()
    launch.template(
        "whole",
        IamInstanceProfile={"Name": profile},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        Monitoring={"Enabled": True},
        NetworkInterfaces=[
            {"DeviceIndex": 0, "NetworkCardIndex": 0, "Groups": [aws.world.security_group_id]},
            {"DeviceIndex": 1, "NetworkCardIndex": 1, "InterfaceType": "efa-only"},
        ],
        BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 30}}],
    )
    before = aws.instances.used_addresses().get(aws.world.subnets[A], 0)
    fleet = launch.fleet("p4d.24xlarge", zones=[A], template="whole")
    instance = launch.described(*fleet.ids)[0]

    assert instance["IamInstanceProfile"]["Arn"].endswith("/karpenter/us-east-1/test/nodes")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["Monitoring"]["State"] == "enabled"
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [
        aws.world.security_group_id
    ]
    assert [each["InterfaceType"] for each in instance["NetworkInterfaces"]] == [
        "interface",
        "efa-only",
    ]
    assert instance["Placement"]["AvailabilityZoneId"] == "use1-az6"
    assert aws.instances.used_addresses()[aws.world.subnets[A]] == before + 1


def test_deleting_an_instant_fleet_ends_its_instances(aws, launch, clients):
    fleet = launch.fleet("m5.large", count=2)

    clients.ec2.delete_fleets(FleetIds=[fleet.answer["FleetId"]], TerminateInstances=True)

    assert aws.held().instances == []


def test_fleets_that_aws_refuses_outright_are_refused(aws, launch, code):
    launch.template()
    twice = [{"InstanceType": "m5.large", "SubnetId": aws.world.subnets[A]}] * 2
    wrong_strategy = {"AllocationStrategy": "cheapest"}

    assert code(lambda: launch.fleet(overrides=twice)) == "InvalidFleetConfig"
    assert code(lambda: launch.fleet("m5.large", ClientToken="x" * 65)) == "InvalidParameterValue"
    assert (
        code(lambda: launch.fleet("m5.large", OnDemandOptions=wrong_strategy))
        == "InvalidParameterValue"
    )


def test_more_launch_templates_or_choices_than_a_fleet_takes_are_refused(clients, launch, code):
    template = {"LaunchTemplateName": launch.template(), "Version": "$Latest"}

    def asked(*, configs, overrides):
        return clients.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": template,
                    "Overrides": [{"InstanceType": f"m5.{n}"} for n in range(overrides)],
                }
                for _ in range(configs)
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
            DryRun=True,
        )

    assert code(lambda: asked(configs=50, overrides=6)) == "DryRunOperation"
    assert code(lambda: asked(configs=51, overrides=1)) == "InvalidFleetConfig"
    assert code(lambda: asked(configs=43, overrides=7)) == "InvalidFleetConfig"


def test_fleets_at_the_same_time_never_get_more_than_there_is(aws, launch):
    from concurrent.futures import ThreadPoolExecutor

    from karpenter_core.provider.kit.simulated.pools import InstancePool

    launch.template()
    aws.capacity.stock(InstancePool(instance_type="m5.large", zone=A), 25)
    with ThreadPoolExecutor(8) as threads:
        fleets = list(threads.map(lambda _: launch.fleet("m5.large", zones=[A]), range(40)))

    assert sum(len(fleet.ids) for fleet in fleets) == 25
    assert sum(len(fleet.errors) for fleet in fleets) == 15
    addresses = {each.private_address for each in aws.instances.living}
    assert len(addresses) == 25
