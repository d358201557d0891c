"""Tests the resources of a region in the simulated AWS."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_simulated_aws.prices import price_table

KNOWN = [
    {"Name": "supported-virtualization-type", "Values": ["hvm"]},
    {"Name": "instance-type", "Values": ["m5.*", "m6g.large"]},
]
A = "us-east-1a"


def test_instance_types_are_listed_in_pages(clients):
    pages = list(
        clients.ec2.get_paginator("describe_instance_types").paginate(
            Filters=KNOWN, PaginationConfig={"PageSize": 5}
        )
    )
    names = [each["InstanceType"] for page in pages for each in page["InstanceTypes"]]

    assert len(pages) > 1
    assert len(names) == len(set(names))
    assert {"m5.large", "m6g.large"} <= set(names)


def test_types_are_filtered_by_architecture(clients):
    answer = clients.ec2.describe_instance_types(
        Filters=[
            *KNOWN,
            {"Name": "processor-info.supported-architecture", "Values": ["arm64"]},
        ]
    )

    assert [each["InstanceType"] for each in answer["InstanceTypes"]] == ["m6g.large"]


def test_pages_may_not_be_larger_than_those_of_aws(clients, code):
    assert code(clients.ec2.describe_instance_types, MaxResults=101) == "InvalidParameterValue"


def test_a_dry_run_of_a_listing_says_that_it_would_have_succeeded(clients, code):
    assert code(clients.ec2.describe_instance_types, DryRun=True) == "DryRunOperation"


def test_offerings_are_listed_by_zone_and_by_zone_id(aws, clients):
    def places(kind):
        answer = clients.ec2.describe_instance_type_offerings(
            LocationType=kind, Filters=[{"Name": "instance-type", "Values": ["m5.large"]}]
        )
        return [each["Location"] for each in answer["InstanceTypeOfferings"]]

    assert {A, "us-east-1b"} <= set(places("availability-zone"))
    aws.catalogue.withdraw("m5.large", "us-east-1b")

    assert A in places("availability-zone")
    assert "us-east-1b" not in places("availability-zone")
    assert "use1-az6" in places("availability-zone-id")
    assert places("region") == ["us-east-1"]


def test_spot_prices_are_below_on_demand_ones_and_can_be_set(aws, clients):
    aws.prices.set_spot("m5.large", A, 0.5)
    answer = clients.ec2.describe_spot_price_history(
        InstanceTypes=["m5.large"],
        ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        StartTime=datetime.now(UTC),
    )
    prices = {
        each["AvailabilityZone"]: float(each["SpotPrice"]) for each in answer["SpotPriceHistory"]
    }

    assert prices.pop(A) == pytest.approx(0.5)
    assert prices
    assert all(0 < price < aws.prices.on_demand("m5.large") for price in prices.values())


def test_the_price_list_separates_shared_and_metal_types(aws, clients):
    aws.prices.set_on_demand("m5.large", 0.096)

    def products(**wanted):
        pages = clients.pricing.get_paginator("get_products").paginate(
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in wanted.items()
            ],
        )
        return [json.loads(each) for page in pages for each in page["PriceList"]]

    shared = products(tenancy="Shared", productFamily="Compute Instance", instanceType="m5.large")
    metal = products(tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    (term,) = shared[0]["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()

    assert len(shared) == 1
    assert float(dimension["pricePerUnit"]["USD"]) == pytest.approx(0.096)
    assert all("metal" in each["product"]["attributes"]["instanceType"] for each in metal)
    assert metal


def test_prices_of_a_table_are_read_by_type(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("instance_type,vcpu,usd_per_hour\nm5.large,2,0.096\nm5.xlarge,4,0.192\n")

    assert price_table(path) == {"m5.large": 0.096, "m5.xlarge": 0.192}


def test_simulated_prices_grow_with_the_instance_type(aws):
    prices = [aws.prices.on_demand(f"m5.{size}") for size in ("large", "xlarge", "2xlarge")]

    assert prices == sorted(prices)
    assert prices[0] > 0
    assert aws.prices.on_demand("p5.48xlarge") > aws.prices.on_demand("m5.24xlarge")
    assert aws.prices.on_demand("no.such") == 0


def test_the_ready_world_has_tagged_subnets_in_three_zones_and_a_group(aws, clients):
    tagged = [{"Name": "tag:karpenter.sh/discovery", "Values": [aws.world.cluster]}]
    subnets = clients.ec2.describe_subnets(Filters=tagged)["Subnets"]
    groups = clients.ec2.describe_security_groups(Filters=tagged)["SecurityGroups"]

    assert sorted(each["AvailabilityZone"] for each in subnets) == list(aws.world.zones)
    assert {each["VpcId"] for each in (*subnets, *groups)} == {aws.world.vpc_id}
    assert [each["GroupId"] for each in groups] == [aws.world.security_group_id]


def test_free_addresses_fall_with_instances_and_rise_when_they_end(aws, clients, launch):
    subnet_id = aws.world.subnets[A]

    def free():
        found = clients.ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"]
        return found[0]["AvailableIpAddressCount"]

    before = free()
    ids = launch.fleet("m5.large", zones=[A], count=3).ids
    during = free()
    clients.ec2.terminate_instances(InstanceIds=ids)

    assert (during, free()) == (before - 3, before)


def test_subnets_are_listed_in_pages(clients):
    pages = list(
        clients.ec2.get_paginator("describe_subnets").paginate(PaginationConfig={"PageSize": 5})
    )

    assert len(pages) > 1


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("describe_subnets", {"SubnetIds": ["subnet-0"]}, "InvalidSubnetID.NotFound"),
        ("describe_security_groups", {"GroupIds": ["sg-0"]}, "InvalidGroup.NotFound"),
        ("describe_images", {"ImageIds": ["ami-0"]}, "InvalidAMIID.NotFound"),
        ("describe_images", {"ImageIds": ["x-0"]}, "InvalidAMIID.Malformed"),
        (
            "describe_capacity_reservations",
            {"CapacityReservationIds": ["cr-0"]},
            "InvalidCapacityReservationId.NotFound",
        ),
        ("describe_placement_groups", {"GroupNames": ["x"]}, "InvalidPlacementGroup.Unknown"),
        (
            "delete_launch_template",
            {"LaunchTemplateName": "absent"},
            "InvalidLaunchTemplateName.NotFoundException",
        ),
    ],
)
def test_a_missing_resource_has_the_code_of_aws(clients, code, call, arguments, expected):
    assert code(getattr(clients.ec2, call), **arguments) == expected


def test_images_of_amazon_are_selected_by_name_and_owner(clients):
    answer = clients.ec2.describe_images(
        Owners=["amazon"],
        Filters=[
            {"Name": "name", "Values": ["amazon-eks-node-al2023-*-standard-1.34-*"]},
            {"Name": "state", "Values": ["available"]},
        ],
    )

    assert {each["Architecture"] for each in answer["Images"]} == {"x86_64", "arm64"}
    assert clients.ec2.describe_images(Owners=["self"])["Images"] == []


def test_own_images_are_selected_by_tag_and_as_self(aws, clients):
    own = aws.images.add_own("mine", created_at=datetime(2026, 1, 1, tzinfo=UTC), tags={"a": "b"})

    by_owner = clients.ec2.describe_images(Owners=["self"])["Images"]
    by_tag = clients.ec2.describe_images(Filters=[{"Name": "tag:a", "Values": ["b"]}])["Images"]

    assert [each["ImageId"] for each in by_owner] == [own.id]
    assert [each["ImageId"] for each in by_tag] == [own.id]


def test_deprecated_images_are_listed_by_request(aws, clients, launch):
    image = launch.image()
    aws.images.deprecate(image, at=datetime(2026, 7, 1, tzinfo=UTC))

    hidden = clients.ec2.describe_images(ImageIds=[image])["Images"]
    shown = clients.ec2.describe_images(ImageIds=[image], IncludeDeprecated=True)["Images"]

    assert hidden == []
    assert shown[0]["DeprecationTime"] == "2026-07-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "name",
    [
        "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/recommended/image_id",
        "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/nvidia/recommended/image_id",
        (
            "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard"
            "/amazon-eks-node-al2023-x86_64-standard-1.34-v20260112/image_id"
        ),
        "/aws/service/bottlerocket/aws-k8s-1.34/x86_64/latest/image_id",
        "/aws/service/bottlerocket/aws-k8s-1.34-nvidia/arm64/1.45.0/image_id",
        "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id",
    ],
)
def test_public_parameters_name_images_that_are_there(clients, name):
    image = clients.ssm.get_parameter(Name=name)["Parameter"]["Value"]

    assert clients.ec2.describe_images(ImageIds=[image])["Images"]


def test_a_new_release_is_recommended_and_the_old_one_is_kept(aws, clients, launch):
    before = launch.image()
    aws.releases.publish(
        "al2023", "1.34", "v20261122", created_at=datetime(2026, 11, 22, tzinfo=UTC)
    )

    assert launch.image() != before
    assert clients.ec2.describe_images(ImageIds=[before])["Images"]


def test_there_is_no_al2_for_newer_versions_of_kubernetes(clients, code):
    name = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2/recommended/image_id"

    assert code(clients.ssm.get_parameter, Name=name) == "ParameterNotFound"


def test_profiles_are_listed_by_path(aws, clients, launch):
    launch.profile("ours")
    clients.iam.create_instance_profile(InstanceProfileName="foreign", Path="/other/")

    listed = clients.iam.list_instance_profiles(PathPrefix="/karpenter/us-east-1/test/")

    assert [each["InstanceProfileName"] for each in listed["InstanceProfiles"]] == ["ours"]
    assert [each["RoleName"] for each in listed["InstanceProfiles"][0]["Roles"]] == [aws.world.role]


def test_the_cluster_answer_has_its_network_and_an_unknown_cluster_is_not_found(aws, clients, code):
    cluster = clients.eks.describe_cluster(name=aws.world.cluster)["cluster"]

    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.100.0.0/16"
    assert cluster["version"] == "1.34"
    assert code(clients.eks.describe_cluster, name="absent") == "ResourceNotFoundException"


def test_a_zone_can_be_shifted_away_from(aws, clients, code):
    arn = aws.clusters.arn(aws.world.cluster)
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    aws.zonal_shifts.shift(arn, "use1-az6", expires_at=until)

    answer = clients.zonal_shift.get_managed_resource(resourceIdentifier=arn)
    (shift,) = answer["zonalShifts"]

    assert (shift["awayFrom"], shift["appliedStatus"]) == ("use1-az6", "APPLIED")
    assert shift["expiryTime"] == until
    unknown = aws.clusters.arn("absent")
    refused = code(clients.zonal_shift.get_managed_resource, resourceIdentifier=unknown)
    assert refused == "ResourceNotFoundException"


def test_launch_templates_have_versions_tags_and_unique_names(aws, clients, launch, code):
    name = launch.template(UserData="aGVsbG8=")
    refused = code(launch.template)
    clients.ec2.create_launch_template_version(
        LaunchTemplateName=name, LaunchTemplateData={"UserData": "d29ybGQ="}
    )
    versions = clients.ec2.describe_launch_template_versions(
        LaunchTemplateName=name, Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    found = clients.ec2.describe_launch_templates(
        Filters=[{"Name": "tag:kubernetes.io/cluster/test", "Values": ["owned"]}]
    )["LaunchTemplates"]

    assert refused == "InvalidLaunchTemplateName.AlreadyExistsException"
    assert [each["LaunchTemplateData"]["UserData"] for each in versions] == ["d29ybGQ="]
    assert [each["LaunchTemplateName"] for each in found] == [name]


def test_too_much_user_data_is_refused(launch, code):
    from base64 import b64encode

    much = b64encode(b"x" * 16_385).decode()

    assert code(lambda: launch.template(UserData=much)) == "InvalidUserData.Malformed"


def test_an_unsimulated_action_is_an_explicit_error(clients, code):
    refused = code(
        clients.ec2.enable_fast_snapshot_restores,
        AvailabilityZones=[A],
        SourceSnapshotIds=["snap-0"],
    )

    assert refused == "InvalidAction"
