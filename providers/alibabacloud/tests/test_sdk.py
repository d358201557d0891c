"""Clients of Alibaba Cloud over the real SDKs (acceptance cases 66, 99, 102, 103, 104; region of 98)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from requests import Session

from karpenter_core.errors import SettingsError
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass
from karpenter_provider_alibabacloud.credentials import find_credential
from karpenter_provider_alibabacloud.metadata import region_id
from karpenter_provider_alibabacloud.sdk import (
    ClientLimits,
    CloudClients,
    attempt_failure,
    is_repeatable,
    listed_pages,
)
from karpenter_provider_alibabacloud.sdk_caller import ServiceEndpoint, _plain, unknown_names
from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings
from karpenter_simulated_alibabacloud.signatures import SignatureMode

LAUNCH = {"RegionId": "cn-hangzhou", "InstanceType": "ecs.g7.large"}


def clients_of(cloud, **more):
    endpoint = cloud.endpoint
    return CloudClients(
        region=cloud.account.region,
        endpoint_ecs=endpoint,
        endpoint_vpc=endpoint,
        endpoint_cs=endpoint,
        protocol="http",
        **more,
    )


@pytest.mark.parametrize(
    ("service", "action", "parameters", "complaint"),
    [
        ("ecs", "DescribeInstances", {"Tagg": 1}, "no parameter Tagg"),
        ("vpc", "DescribeVSwitches", {"Tag": [{"Keyy": "a"}]}, "no parameter Tag.1.Keyy"),
        ("ecs", "DescribeNothing", {}, "no action DescribeNothing"),
        ("ack", "DescribeClusterDetail", {}, "needs ClusterId"),
        ("ack", "DescribeClusterDetail", {"ClusterId": "c", "Region": "r"}, "no parameter Region"),
    ],
)
def test_an_unknown_parameter_is_refused_before_the_call(
    clients, cloud, service, action, parameters, complaint
):
    with pytest.raises(TypeError, match=complaint):
        getattr(clients, service).call(action, parameters)

    assert cloud.calls.all == ()


def test_answers_are_handed_on_as_they_are(clients, cloud):
    """Mappings, lists and text alike; parameters that are None are not sent."""
    cluster = cloud.world.cluster

    detail = clients.ack.call("DescribeClusterDetail", {"ClusterId": cluster})
    script = clients.ack.call(
        "DescribeClusterAttachScripts", {"ClusterId": cluster, "nodepool_id": None}
    )
    versions = clients.ack.call(
        "DescribeKubernetesVersionMetadata",
        {"Region": "cn-hangzhou", "ClusterType": "ManagedKubernetes"},
    )

    assert detail["cluster_id"] == cluster
    assert "--openapi-token" in script["body"]
    assert versions["body"][0]["images"]
    assert "nodepool_id" not in cloud.calls.of("DescribeClusterAttachScripts")[0].parameters


@pytest.mark.parametrize(
    ("service", "called", "action", "parameters"),
    [
        ("vpc", "vpc", "DescribeVSwitches", {"RegionId": "cn-hangzhou"}),
        ("ack", "cs", "DescribeClusterDetail", {"ClusterId": "c"}),
    ],
)
def test_a_refusal_names_code_request_and_action(
    clients, cloud, service, called, action, parameters
):
    """One service writes its message in lower case."""
    cloud.deny(action, times=1)

    with pytest.raises(ApiError) as caught:
        getattr(clients, service).call(action, parameters)

    error = caught.value
    assert error.error_class is ErrorClass.AUTH
    assert (error.action, error.status) == (f"{called}:{action}", 403)
    assert len(error.request_id) == 36
    assert "request id" not in error.message.lower()
    assert error.message


def test_throttling_twice_and_then_success_makes_three_calls(cloud):
    """Case 66: the waits are short and have jitter."""
    waited: list[float] = []
    seen: list[tuple[str, str]] = []
    cloud.fail("DescribeVSwitches", code="Throttling.User", times=2)

    with clients_of(
        cloud,
        sleep=waited.append,
        observe=lambda action, code, _seconds: seen.append((action, code)),
    ) as clients:
        answer = clients.vpc.call("DescribeVSwitches", {"RegionId": "cn-hangzhou"})

    assert answer["TotalCount"] == 3
    assert cloud.calls.count("DescribeVSwitches") == 3
    assert [code for _, code in seen] == ["Throttling.User", "Throttling.User", "OK"]
    assert waited[0] <= 0.1
    assert waited[1] <= 0.2


def test_the_retry_delay_of_the_cloud_is_kept(cloud):
    waited: list[float] = []
    cloud.tell_retry_after(1500)
    cloud.fail("DescribeVSwitches", code="Throttling", times=1)

    with clients_of(cloud, sleep=waited.append) as clients:
        clients.vpc.call("DescribeVSwitches", {"RegionId": "cn-hangzhou"})

    assert waited[0] == 1.5  # then its turn: the clock of these clients does not move


def test_a_long_retry_delay_pauses_the_action_and_no_other(cloud):
    request = {"RegionId": "cn-hangzhou"}
    cloud.tell_retry_after(300_000)
    cloud.fail("DescribeVSwitches", code="Throttling.Api", times=1)

    with clients_of(cloud) as clients:
        for _ in range(2):
            with pytest.raises(ApiError) as caught:
                clients.vpc.call("DescribeVSwitches", request)
        clients.vpc.call("DescribeVpcs", request)

    refused = caught.value
    assert cloud.calls.count("DescribeVSwitches") == 1
    assert refused.error_class is ErrorClass.THROTTLED
    assert not refused.may_be_done
    assert timedelta(seconds=200) < refused.retry_after <= timedelta(seconds=300)
    assert (refused.action, "Throttling.Api" in str(refused)) == ("vpc:DescribeVSwitches", True)


def test_a_read_is_repeated_when_the_reply_is_lost_and_a_write_only_with_a_token(clients, cloud):
    cloud.cut_off("DescribeVSwitches", times=2)
    clients.vpc.call("DescribeVSwitches", {"RegionId": "cn-hangzhou"})

    cloud.cut_off("DeleteInstances", times=1)
    with pytest.raises(ApiError) as caught:
        clients.ecs.call(
            "DeleteInstances", {"RegionId": "cn-hangzhou", "InstanceId": ["i-1"], "Force": True}
        )

    assert (caught.value.code, caught.value.status) == ("", 0)
    assert caught.value.error_class is ErrorClass.TRANSIENT
    assert cloud.calls.count("DeleteInstances") == 1
    assert is_repeatable("RunInstances", {**LAUNCH, "ClientToken": "t"})
    assert not is_repeatable("RunInstances", LAUNCH)
    assert is_repeatable("ListTagResources", {})


def test_waits_grow_and_end():
    policy = RetryPolicy()
    throttled = ApiError("Throttling", status=400)
    patient = ApiError("Throttling", status=400, retry_after=timedelta(minutes=5))
    broken = ApiError("InternalError", status=500)
    in_progress = ApiError("IdempotentProcessing", status=403)

    def waits(error, attempts, *, repeatable=True):
        return [
            policy.wait_seconds(
                attempt_failure(error), attempt=attempt, repeatable=repeatable, draw=1.0
            )
            for attempt in range(1, attempts + 1)
        ]

    assert waits(throttled, 5) == [0.1, 0.2, 0.4, 0.8, None]
    assert waits(broken, 3) == [0.1, 0.2, None]
    assert waits(broken, 1, repeatable=False) == [None]
    assert waits(throttled, 1, repeatable=False) == [0.1]  # nothing was done
    assert waits(patient, 1) == [None]
    assert waits(in_progress, 10) == [0.5, 1, 2, 4, 5, 5, 5, 5, 5, None]
    assert waits(in_progress, 1, repeatable=False) == [None]
    assert waits(ApiError("InvalidParameter", status=400), 1) == [None]


def test_all_tries_together_end_before_a_hook_does():
    """PC-009."""
    limits = ClientLimits()
    tries = limits.retries.transient_attempts
    waits = tries * limits.retries.longest_backoff_seconds

    assert tries * (limits.connect_seconds + limits.read_seconds) + waits < 120
    backoff = sum(limits.retries.first_backoff_seconds * 2**each for each in range(tries))
    assert tries * (limits.connect_seconds + limits.launch_read_seconds) + backoff < 120


def test_a_hanging_endpoint_fails_one_call_and_delays_no_other(cloud):
    """Case 103, with a shorter limit than the ten seconds that hold otherwise."""
    retries = RetryPolicy(transient_attempts=1)
    limits = ClientLimits(read_seconds=1.0, retries=retries)
    with (
        clients_of(cloud, limits=limits) as clients,
        cloud.fall_silent("DescribeVSwitches"),
        ThreadPoolExecutor(1) as pool,
    ):
        clients.vpc.call(
            "DescribeVpcs", {"RegionId": "cn-hangzhou"}
        )  # SDK and connection are there
        hung = pool.submit(clients.vpc.call, "DescribeVSwitches", {"RegionId": "cn-hangzhou"})

        clients.vpc.call("DescribeVpcs", {"RegionId": "cn-hangzhou"})
        assert not hung.done()

        with pytest.raises(ApiError, match="no answer"):
            hung.result(timeout=5)
    assert ClientLimits().read_seconds == 10


def test_two_hundred_calls_of_a_slow_cloud_share_the_connections(cloud, clients):
    """Case 102: the calls wait for the cloud at the same time, not one after the other."""
    cloud.behaviour.latency_seconds = 0.1
    request = {"RegionId": "cn-hangzhou"}
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda _: clients.vpc.call("DescribeVpcs", request), range(64)))  # connects
        started = time.perf_counter()
        list(pool.map(lambda _: clients.vpc.call("DescribeVpcs", request), range(200)))
        took = time.perf_counter() - started

    assert cloud.calls.count("DescribeVpcs") == 264
    one_after_the_other = 200 * cloud.behaviour.latency_seconds
    assert took < one_after_the_other / 4


def test_a_configured_endpoint_is_called_without_a_proxy(cloud, monkeypatch):
    """Case 104: the SDK itself takes proxies from the environment at each call."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)

    with clients_of(cloud) as clients:
        assert clients.vpc.call("DescribeVpcs", {"RegionId": "cn-hangzhou"})["TotalCount"] == 1


def test_roles_for_service_accounts_are_used_where_there_is_no_key(tmp_path):
    """Case 99; nothing is asked before the first call."""
    token = tmp_path / "token"
    token.write_text("t")
    role = {
        "ALIBABA_CLOUD_ROLE_ARN": "acs:ram::1:role/karpenter",
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1:oidc-provider/ack",
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE": str(token),
    }

    credential = find_credential(role)

    assert credential.provider.endswith("oidc_role_arn")
    assert credential.client.cloud_credential.type_name.endswith("oidc_role_arn")
    assert str(credential) == "oidc_role_arn"


def test_only_the_end_of_a_keys_id_is_shown():
    key = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI5tEXAMPLE", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "s"}

    assert str(find_credential(key)) == "access_key (…MPLE)"
    assert find_credential({**key, "ALIBABA_CLOUD_SECURITY_TOKEN": "t"}).provider == "sts"
    assert find_credential({}).provider == "default"


def test_missing_credentials_are_an_error_of_credentials(cloud, monkeypatch, tmp_path):
    """The default chain finds nothing on this host, and metadata is not queried."""
    for name in ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name)
    from alibabacloud_credentials.utils import auth_constant, auth_util

    monkeypatch.setattr(auth_util, "environment_access_key_id", None)
    monkeypatch.setattr(auth_util, "environment_ecs_metadata_disabled", "true")
    monkeypatch.setattr(auth_constant, "HOME", str(tmp_path))

    with clients_of(cloud) as clients, pytest.raises(ApiError) as caught:
        clients.vpc.call("DescribeVpcs", {"RegionId": "cn-hangzhou"})

    assert caught.value.error_class is ErrorClass.AUTH
    assert cloud.calls.all == ()


class TestRefusedCredentials:
    @pytest.fixture
    def seconds(self):
        """The time, in a list of one."""
        return [1000.0]

    @pytest.fixture
    def clients(self, cloud, seconds):
        with clients_of(cloud, monotonic=lambda: seconds[0]) as made:
            yield made

    @pytest.mark.parametrize(
        ("code", "is_renewed"),
        [
            ("InvalidSecurityToken.Expired", True),
            ("InvalidAccessKeyId.NotFound", True),
            ("SignatureDoesNotMatch", True),
            ("Forbidden.RAM", False),
            ("InternalError", False),
        ],
    )
    def test_credentials_are_looked_for_again(self, cloud, clients, code, is_renewed):
        """Permissions that are missing are those of any credentials."""
        refused = clients.credential
        with cloud.fail("DescribeVpcs", code=code, status=400, times=None):
            assert not self.describe(clients)

        assert (clients.credential is not refused) is is_renewed
        assert self.describe(clients)

    def test_a_key_that_was_replaced_is_used_for_the_next_call(self, cloud, clients, monkeypatch):
        """The simulated cloud knows one key alone."""
        cloud.signatures.check_kind = SignatureMode.STRICT
        with monkeypatch.context() as patch:
            patch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI5tDeleted")
            assert not self.describe(clients)
        assert self.describe(clients)

    def test_they_are_looked_for_once_a_minute_at_most(self, cloud, clients, seconds):
        found = []
        with cloud.fail("DescribeVpcs", code="InvalidAccessKeyId", status=404, times=None):
            for seconds[0] in (1000.0, 1001.0, 1059.9, 1060.0, 1061.0):
                found.append(clients.credential)
                assert not self.describe(clients)

        assert [later is found[1] for later in found] == [False, True, True, True, False]

    def describe(self, clients):
        """Return whether the call succeeded."""
        try:
            clients.vpc.call("DescribeVpcs", {"RegionId": "cn-hangzhou"})
        except ApiError:
            return False
        return True


def test_the_vpc_network_has_endpoints_in_every_region():
    """The SDK's own table knows those of the internet only."""
    endpoint = ServiceEndpoint(region="cn-hangzhou", network="vpc", address="", protocol="")

    assert endpoint.host("ecs") == "ecs-vpc.cn-hangzhou.aliyuncs.com"
    assert endpoint.host("vpc") == "vpc-vpc.cn-hangzhou.aliyuncs.com"
    assert endpoint.host("cs") == "cs-anony-vpc.cn-hangzhou.aliyuncs.com"
    assert (
        ServiceEndpoint(region="cn-hangzhou", network="public", address="", protocol="").host("ecs")
        is None
    )
    assert (
        ServiceEndpoint(region="r", network="vpc", address="127.0.0.1:1", protocol="").host("ecs")
        == "127.0.0.1:1"
    )


def test_clients_are_made_as_the_settings_say_and_close_their_connections(cloud, monkeypatch):
    closed, close = [], Session.close

    def noted(session):
        closed.append(session)
        close(session)

    monkeypatch.setattr(Session, "close", noted)
    settings = AlibabaCloudSettings(
        cluster_id=cloud.world.cluster,
        region_id="cn-hangzhou",
        endpoint_vpc=cloud.endpoint,
        endpoint_protocol="http",
        http_pool=3,
    )

    observed = []

    def observe(*attempt, **_):
        observed.append(attempt)

    with CloudClients.from_settings(settings, limits=None, observe=observe) as clients:
        assert clients.vpc.call("DescribeVpcs", {"RegionId": clients.region})["TotalCount"] == 1
        assert clients.limits.connections == 3
        assert not closed
    assert observed
    assert closed


def test_without_a_region_the_error_names_the_setting():
    """Case 98: nothing listens there, and that is known at once."""
    started = time.perf_counter()

    with pytest.raises(SettingsError, match="REGION_ID"):
        region_id("http://127.0.0.1:9")

    assert time.perf_counter() - started < 5


def listed(call, parameters, items="Things"):
    return list(listed_pages(call, parameters, items=items, action="ecs:DescribeThings"))


def test_pages_by_token_end_where_there_is_none():
    answers = {
        None: {"Things": {"Thing": [{"n": 1}]}, "NextToken": "a"},
        "a": {"Things": {"Thing": []}, "NextToken": "b"},
        "b": {"Things": {"Thing": [{"n": 2}]}, "NextToken": ""},
    }

    pages = listed(lambda page: answers[page.get("NextToken")], {"MaxResults": 1}, "Things.Thing")

    assert pages == [[{"n": 1}], [], [{"n": 2}]]


def test_a_listing_with_repeated_page_tokens_ends():
    with pytest.raises(RuntimeError, match="a listing of Things repeats: NextToken 'a'"):
        listed(lambda _: {"Things": [], "NextToken": "a"}, {"MaxResults": 1})


def test_pages_by_number_end_with_a_short_page_or_at_the_total():
    asked: list[object] = []

    def answer(page):
        asked.append(page["PageNumber"])
        return {"Things": [{}] * (2 if page["PageNumber"] < 3 else 1)}

    assert [len(page) for page in listed(answer, {"PageSize": 2})] == [2, 2, 1]
    assert asked == [1, 2, 3]
    full = {"Things": [{}, {}], "TotalCount": 2}
    assert listed(lambda _: full, {"PageSize": 2}) == [[{}, {}]]


def test_pages_by_offset_end_where_the_next_one_is_the_beginning():
    answers = {0: {"Things": [{}], "NextOffset": 1}, 1: {"Things": [{}], "NextOffset": 0}}

    assert listed(lambda page: answers[page["Offset"]], {"Offset": 0}) == [[{}], [{}]]


def test_limits_of_time_reach_the_sdk_in_milliseconds(cloud):
    limits = ClientLimits(connect_seconds=3, read_seconds=7.5)
    client = clients_of(cloud, limits=limits)._caller("ecs")._client
    assert (client._connect_timeout, client._read_timeout) == (3000, 7500)


def test_lists_are_read_as_deep_as_they_go():
    """A name that the SDK does not know would be dropped without a word."""
    given = {"Tag": ({"Key": "a", "Odd": 1}, {"Key": "b", "Value": None})}
    known = {"Tag": [{"Key": "a"}, {"Key": "b"}]}
    assert list(unknown_names(_plain(given), known)) == ["Tag.1.Odd"]
