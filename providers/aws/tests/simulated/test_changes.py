"""Changes by others to the simulated AWS, and delays: tokens, sight, quotas, tags, prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_aws.testing import attempts

A, B = "us-east-1a", "us-east-1b"


@pytest.fixture
def impatient(aws):
    """Clients that ask once."""
    from karpenter_provider_aws.sdk import ClientLimits, CloudClients

    made = CloudClients(
        region=aws.account.region, limits=ClientLimits(read_seconds=20, retries=attempts(1))
    )
    yield made
    made.close()


def test_the_token_of_a_slow_fleet_is_in_progress_until_its_answer(aws, impatient, launch, code):
    launch.template()
    launch.clients = impatient
    aws.behaviour.fleet_seconds = 180

    with pytest.raises(UncertainCallError):  # no answer: the connection breaks
        launch.fleet("m5.large", ClientToken="token")
    meanwhile = code(lambda: launch.fleet("m5.large", ClientToken="token"))
    mismatch = code(lambda: launch.fleet("m5.xlarge", ClientToken="token"))
    aws.time.advance(180)
    ids = launch.fleet("m5.large", ClientToken="token").ids

    assert meanwhile == "IncorrectState"
    assert mismatch == "IdempotentParameterMismatch"
    assert ids == [each.id for each in aws.living()]
    assert len(ids) == 1


def test_some_instances_of_a_fleet_are_described_later_than_others(aws, clients, launch, code):
    aws.behaviour.slow_share, aws.behaviour.slow_seconds = 0.4, 300
    ids = launch.fleet("m5.large", count=5, zones=[A]).ids

    def shown():
        reservations = clients.ec2.describe_instances()["Reservations"]
        return [each["InstanceId"] for one in reservations for each in one["Instances"]]

    assert shown() == ids[:3]
    refused = code(clients.ec2.describe_instances, InstanceIds=ids[3:4])
    assert refused == "InvalidInstanceID.NotFound"
    aws.time.advance(300)
    assert shown() == ids


@pytest.mark.parametrize(
    "code",
    ["VcpuLimitExceeded", "InsufficientInstanceCapacity", "MaxSpotInstanceCountExceeded"],
)
def test_a_limit_holds_for_all_pools_of_a_pattern_together(aws, launch, code):
    aws.capacity.limit(InstancePool(zone=A), 3, code=code)

    first = launch.fleet("m5.large", "c5.large", count=4, zones=[A])
    elsewhere = launch.fleet("m5.large", zones=[B])

    assert len(first.ids) == 3
    assert {error[1:] for error in first.errors} == {(A, code)}
    assert len(elsewhere.ids) == 1
    aws.terminate(first.ids[0])
    assert len(launch.fleet("m5.large", count=4, zones=[A]).ids) == 1


def test_a_limit_of_one_type_leaves_the_others(aws, launch):
    aws.capacity.limit(InstancePool(instance_type="m5.large"), 0, code="VcpuLimitExceeded")

    fleet = launch.fleet("m5.large", "m5.xlarge", zones=[A])

    assert fleet.places == [("m5.xlarge", A)]
    assert fleet.errors == [("m5.large", A, "VcpuLimitExceeded")]


def test_the_quota_of_spot_counts_vcpus_of_a_group_of_families(aws, launch):
    aws.capacity.limit_spot_vcpus(6)

    fleet = launch.fleet("m5.large", target="spot", count=5, zones=[A])

    assert len(fleet.ids) == 3
    assert fleet.errors == [("m5.large", A, "MaxSpotInstanceCountExceeded")]
    assert len(launch.fleet("m5.large", zones=[A]).ids) == 1


def test_a_lack_of_stock_is_an_error_of_the_server(aws, launch, impatient):
    """It says what came of the call all the same."""
    from botocore.exceptions import ClientError

    aws.capacity.sell_out()
    with pytest.raises(ClientError) as caught:
        impatient.ec2.run_instances(
            ImageId=launch.image(),
            InstanceType="m5.large",
            SubnetId=aws.world.subnets[A],
            MinCount=1,
            MaxCount=1,
        )

    assert caught.value.response["Error"]["Code"] == "InsufficientInstanceCapacity"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_termination_protection_is_set_by_template_and_by_attribute(aws, clients, launch, code):
    launch.template("kept", DisableApiTermination=True)
    (kept,) = launch.fleet("m5.large", template="kept").ids
    (plain,) = launch.fleet("m5.large").ids
    clients.ec2.modify_instance_attribute(InstanceId=plain, DisableApiTermination={"Value": True})

    for each in (kept, plain):
        refused = code(clients.ec2.terminate_instances, InstanceIds=[each])
        assert refused == "OperationNotPermitted"
        clients.ec2.modify_instance_attribute(
            InstanceId=each, DisableApiTermination={"Value": False}
        )
        clients.ec2.terminate_instances(InstanceIds=[each])
    assert aws.living() == []


def test_tags_that_others_change_are_seen_and_are_no_call_of_ours(aws, launch):
    (instance_id,) = launch.fleet("m5.large").ids
    aws.calls.clear()

    aws.tag(aws.instance(instance_id).provider_id, {"Name": "theirs", "team": "web"})
    aws.untag(instance_id, "kubernetes.io/cluster/test")

    assert aws.calls.count("CreateTags") == 0
    (described,) = launch.described(instance_id)
    tags = {tag["Key"]: tag["Value"] for tag in described["Tags"]}
    assert tags["Name"] == "theirs"
    assert tags["team"] == "web"
    assert "kubernetes.io/cluster/test" not in tags


def test_prices_move_between_two_reads(aws, clients):
    def listed():
        history = clients.ec2.describe_spot_price_history(
            InstanceTypes=["m5.large"], AvailabilityZone=A, StartTime=datetime.now(UTC)
        )["SpotPriceHistory"]
        products = clients.pricing.get_products(
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": "instanceType", "Value": "m5.large"},
                {"Type": "TERM_MATCH", "Field": "tenancy", "Value": "Shared"},
            ],
        )["PriceList"]
        return [each["SpotPrice"] for each in history], products

    before = listed()
    assert listed() == before
    aws.prices.set_spot("c5.large", A, 0.04)

    aws.prices.move(0.2)

    spot, products = listed()
    assert len(spot) == 1
    assert spot != before[0]
    assert products != before[1]
    assert float(spot[0]) == pytest.approx(float(before[0][0]), rel=0.2)
    assert aws.prices.spot("c5.large", A) == 0.04, "values set by a test are kept"


def test_the_spot_price_history_keeps_former_prices(aws, clients):
    first = aws.prices.spot("m5.large", A)
    for _ in range(2):
        aws.time.advance(60)
        aws.prices.move()

    def history(**since):
        return clients.ec2.describe_spot_price_history(
            InstanceTypes=["m5.large"], AvailabilityZone=A, **since
        )["SpotPriceHistory"]

    found = history()
    assert len({each["SpotPrice"] for each in found}) == 3
    assert float(found[-1]["SpotPrice"]) == pytest.approx(first)
    assert [each["Timestamp"] for each in found] == sorted(
        (each["Timestamp"] for each in found), reverse=True
    )
    recent = history(StartTime=aws.time() - timedelta(seconds=30))
    assert [each["SpotPrice"] for each in recent] == [each["SpotPrice"] for each in found[:2]]
