"""Tests faults of the simulated Alibaba Cloud, and its log."""

from __future__ import annotations

from datetime import timedelta
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.sdk import ClientLimits, CloudClients
from karpenter_simulated_alibabacloud.signatures import SignatureMode
from karpenter_simulated_alibabacloud.throttling import ALIBABA_CLOUD_RATES

REGION = {"RegionId": "cn-hangzhou"}


@pytest.fixture
def regions(clients):
    return lambda: clients.ecs.call("DescribeRegions", {})["Regions"]["Region"]


@pytest.fixture
def impatient(cloud):
    with CloudClients(
        region="cn-hangzhou",
        endpoint_ecs=cloud.endpoint,
        endpoint_vpc=cloud.endpoint,
        endpoint_cs=cloud.endpoint,
        protocol="http",
        limits=ClientLimits(read_seconds=0.2),
        sleep=lambda _seconds: None,
    ) as made:
        yield made


def outcomes(cloud, action):
    return [call.outcome for call in cloud.calls.of(action)]


def test_a_call_is_refused_as_often_as_was_said(cloud, regions):
    cloud.fail("DescribeRegions", code="Throttling.User", times=2)

    assert regions()
    assert outcomes(cloud, "DescribeRegions") == ["Throttling.User", "Throttling.User", "ok"]


@pytest.mark.parametrize(
    ("service", "action", "parameters", "expected"),
    [
        ("ecs", "DescribeRegions", {}, "Forbidden.RAM"),
        ("vpc", "DescribeVpcs", REGION, "Forbidden.RAM"),
        ("ack", "DescribeClusterDetail", {"ClusterId": "c1"}, "StatusForbidden"),
    ],
)
def test_a_denial_is_worded_as_each_service_does(
    cloud, clients, code, service, action, parameters, expected
):
    with cloud.deny("*"):
        assert code(getattr(clients, service).call, action, parameters) == expected


def test_a_fault_can_be_for_some_parameters_alone(cloud, clients, code):
    cloud.fail(
        "DescribeImages",
        code="Forbidden.RAM",
        times=None,
        where=lambda parameters: "ImageId" in parameters,
    )

    assert clients.ecs.call("DescribeImages", REGION)["Images"]
    assert code(clients.ecs.call, "DescribeImages", {**REGION, "ImageId": "m-1"}) == "Forbidden.RAM"


def test_a_cloud_that_is_cut_off_does_nothing(cloud, launch):
    with cloud.cut_off(), pytest.raises(ApiError) as caught:
        launch.run()

    assert caught.value.code == ""
    assert cloud.living() == []
    assert launch.run()


def test_a_lost_reply_is_of_a_call_that_was_carried_out(cloud, launch):
    with cloud.lose_replies("RunInstances"), pytest.raises(ApiError):
        launch.run()

    assert len(cloud.living()) == 1


def test_a_cloud_without_an_answer_ends_at_the_callers_time_limit(cloud, impatient, clients):
    with cloud.fall_silent("DescribeRegions"), pytest.raises(ApiError):
        impatient.ecs.call("DescribeRegions", {})

    assert set(outcomes(cloud, "DescribeRegions")) == {"silent"}
    assert clients.ecs.call("DescribeRegions", {})


def test_calls_are_throttled_by_buckets_that_fill_again(cloud, launch, code):
    cloud.tell_retry_after(70)
    cloud.throttling.set({"ecs:RunInstances": SimulatedCallRate(bucket=2, refill=1)})
    launch.run()
    launch.run()

    with pytest.raises(ApiError) as caught:
        launch.run()
    cloud.time.advance(60)

    assert caught.value.code == "Throttling.User"
    assert caught.value.retry_after == timedelta(milliseconds=70)
    assert launch.run()


def test_the_rates_of_alibaba_cloud_itself_can_be_set(cloud):
    """A minute's allowance of calls for vSwitches is 360, in one bucket that fills in a minute."""
    cloud.throttling.set(ALIBABA_CLOUD_RATES)
    taken = 0
    while cloud.throttling.take("vpc:DescribeVSwitches"):
        taken += 1
    others = 0
    while cloud.throttling.take("ecs:DescribeInstances"):
        others += 1

    cloud.time.advance(60)

    assert taken >= 360 > others >= 100
    assert cloud.throttling.take("vpc:DescribeVSwitches", 360)


def test_a_missing_resource_is_refused_by_name(cloud):
    def status(path, headers):
        request = Request(f"http://{cloud.endpoint}{path}", headers=headers, method="POST")
        try:
            with urlopen(request) as answer:
                return answer.status
        except HTTPError as error:
            with error:
                return error.code

    assert status("/?Action=MakeCoffee&Version=2014-05-26", {}) == 404
    assert status("/", {"x-acs-action": "DescribeRegions", "x-acs-version": "2001-01-01"}) == 404
    assert status("/clusters/a/b/c", {}) == 404
    assert status("/", {"x-acs-action": "DescribeRegions", "x-acs-version": "2014-05-26"}) == 200


def test_the_classic_form_of_calls_and_form_bodies_are_understood(cloud):
    request = Request(
        f"http://{cloud.endpoint}/?Action=DescribeImages&Version=2014-05-26",
        data=b"RegionId=cn-hangzhou&Tag.1.Key=a",
    )
    with urlopen(request) as answer:
        request_id = answer.headers["x-acs-request-id"]
        assert request_id.encode() in answer.read()

    (call,) = cloud.calls.of("DescribeImages")
    assert call.parameters["Tag"] == [{"Key": "a"}]


def test_right_signatures_are_taken(cloud, clients, regions):
    cloud.signatures.check_kind = SignatureMode.STRICT

    assert regions()
    assert clients.ack.call("DescribeClusterDetail", {"ClusterId": cloud.world.cluster})
    assert clients.vpc.call("DescribeVpcs", REGION)


@pytest.mark.parametrize(
    ("key", "secret", "expected"),
    [
        ("LTAI5tSimulatedKarpenter", "another", "SignatureDoesNotMatch"),
        ("LTAI5tSomebodyElse", "simulated", "InvalidAccessKeyId.NotFound"),
    ],
)
def test_wrong_signatures_are_refused(cloud, monkeypatch, impatient, code, key, secret, expected):
    cloud.signatures.check_kind = SignatureMode.STRICT
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", key)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", secret)

    assert code(impatient.ecs.call, "DescribeRegions", {}) == expected


def test_a_request_without_a_signature_is_refused_when_there_must_be_one(cloud):
    from karpenter_core.provider.kit.simulated.server import HttpRequest as Sent
    from karpenter_simulated_alibabacloud.signatures import SignatureChecker

    signatures = SignatureChecker(cloud.time)
    signatures.check_kind = SignatureMode.PRESENT

    with pytest.raises(CloudError, match=r"MissingParameter\.Signature"):
        signatures.check(Sent(method="POST", path="/", query="", headers={}))


def test_instance_metadata_has_the_region_and_the_termination_time(cloud, launch):
    (instance_id,) = launch.run(SpotStrategy="SpotAsPriceGo")
    cloud.metadata.instance_id = instance_id

    def metadata_value(name):
        with urlopen(f"{cloud.metadata_endpoint}/latest/meta-data/{name}") as answer:
            return answer.read().decode()

    assert metadata_value("region-id") == "cn-hangzhou"
    with pytest.raises(HTTPError, match="404") as caught:
        metadata_value("instance/spot/termination-time")
    caught.value.close()
    at = cloud.reclaim(instance_id)
    assert metadata_value("instance/spot/termination-time") == f"{at:%Y-%m-%dT%H:%M:%SZ}"


def test_a_region_can_be_as_large_as_real_ones(cloud):
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.types import generated_types
    from karpenter_simulated_alibabacloud.world import WorldPlan

    with SimulatedAlibabaCloud(
        region="cn-beijing",
        instance_types=generated_types(1000),
        plan=WorldPlan(region_zones=tuple("abcdefghij"), zones=tuple("abcdefghij")),
    ) as large:
        answer = large.handlers["ecs:DescribeAvailableResource"](
            RequestParameters({"RegionId": "cn-beijing", "DestinationResource": "InstanceType"})
        )

    zones = answer["AvailableZones"]["AvailableZone"]
    offered = [
        len(
            zone["AvailableResources"]["AvailableResource"][0]["SupportedResources"][
                "SupportedResource"
            ]
        )
        for zone in zones
    ]
    assert offered == [1000] * 10


def test_a_request_that_is_sent_twice_is_refused(cloud, clients):
    """As the cloud hears it: the same nonce comes again."""
    cloud.signatures.check_kind = SignatureMode.STRICT
    heard = []
    check = cloud.signatures.check

    class RecordingListener:
        """Keeps what it hears."""

        def check(self, request):
            heard.append(request)
            check(request)

    cloud._application.signatures, before = RecordingListener(), cloud._application.signatures
    try:
        clients.ecs.call("DescribeRegions", {})
    finally:
        cloud._application.signatures = before

    with pytest.raises(CloudError, match="SignatureNonceUsed"):
        check(heard[0])
