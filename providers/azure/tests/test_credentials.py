"""Tests the cache of tokens, and the chain of credentials against a token endpoint over TLS."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from karpenter_core.errors import AuthError
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_provider_azure.arm import credentials
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.arm.credentials import (
    CappedCredential,
    find_credential,
    token_failure,
)
from karpenter_provider_azure.arm.errors import NoTokenError
from karpenter_provider_azure.cloud_environment import read_environment_file

from .arm.conftest import _server, server  # noqa: F401 - fixtures
from .arm.values import settings_for

HOUR = 3600
VARIABLES = (
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_TENANT_ID",
    "AZURE_TOKEN_CREDENTIALS",
)


class Source:
    def __init__(self, lifetime=24 * HOUR):
        self.asked = 0
        self.error = None
        self.lifetime = lifetime
        self.closed = False

    def get_token(self, *scopes, **options):
        self.asked += 1
        self.last = (scopes, options)
        if self.error is not None:
            raise self.error
        return SimpleNamespace(token=f"t{self.asked}", expires_on=self.lifetime)

    def close(self):
        self.closed = True


@pytest.fixture
def time_now():
    return SimpleNamespace(seconds=0.0)


def capped(source, time_now):
    return CappedCredential(lambda: source, now=lambda: time_now.seconds, outages=None)


def test_a_token_is_used_for_two_hours_at_most(time_now):
    source = Source()
    credential = capped(source, time_now)
    assert credential.get_token("scope").expires_on == 2 * HOUR
    time_now.seconds = 2 * HOUR - 301
    assert credential.get_token("scope").token == "t1"
    time_now.seconds = 2 * HOUR - 300
    assert credential.get_token("scope").token == "t2"


def test_a_token_is_used_to_its_end_while_there_is_no_new_one(time_now):
    source = Source()
    credential = capped(source, time_now)
    credential.get_token("scope")
    source.error = ValueError("no answer")
    time_now.seconds = 2 * HOUR - 1
    assert credential.get_token("scope").token == "t1"
    time_now.seconds = 2 * HOUR
    with pytest.raises(NoTokenError):
        credential.get_token("scope")


def test_a_shorter_life_stays_as_it_is(time_now):
    assert capped(Source(lifetime=600), time_now).get_token("scope").expires_on == 600


def test_threads_share_one_request(time_now):
    source = Source()
    credential = capped(source, time_now)
    threads = [threading.Thread(target=credential.get_token, args=("scope",)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.asked == 1


def test_claims_get_a_new_token(time_now):
    source = Source()
    credential = capped(source, time_now)
    credential.get_token("scope")
    credential.get_token("scope", claims="c")
    assert source.asked == 2
    assert source.last == (("scope",), {"claims": "c"})


class CachingSource(Source):
    """A credential of the SDK, which keeps its token until that expires."""

    def get_token(self, *scopes, **options):
        if not self.asked:
            self.token = super().get_token(*scopes, **options)
        return self.token


@pytest.fixture
def rotating(time_now):
    """A credential whose identity gets another token whenever it is asked without a cache."""
    made = []

    def make():
        source = CachingSource()
        source.get_token("scope")
        source.token.token = f"t{len(made) + 1}"
        made.append(source)
        return source

    yield CappedCredential(make, now=lambda: time_now.seconds, outages=None)
    assert all(source.closed for source in made)


def test_a_forgotten_token_does_not_come_back_from_the_cache_of_the_sdk(rotating):
    """Azure has refused it, and would refuse it for a day."""
    assert rotating.get_token("scope").token == "t1"
    rotating.forget_tokens(rotating.generation)
    assert rotating.get_token("scope").token == "t2"


def test_calls_that_fail_at_once_get_one_new_token(rotating):
    """The second one's refusal was of the old token."""
    before = rotating.generation
    assert rotating.get_token("scope").token == "t1"
    rotating.forget_tokens(before)
    assert rotating.get_token("scope").token == "t2"
    rotating.forget_tokens(before)
    assert rotating.get_token("scope").token == "t2"


def test_a_token_of_a_day_is_not_used_again_after_two_hours(rotating, time_now):
    """Permissions that changed meanwhile are in a new one alone."""
    rotating.get_token("scope")
    time_now.seconds = 2 * HOUR
    assert rotating.get_token("scope").token == "t2"


def test_a_closed_credential_goes_on_with_a_new_token(rotating):
    rotating.get_token("scope")
    rotating.close()
    assert rotating.get_token("scope").token == "t2"


def test_a_failure_names_the_scope():
    def make():
        raise ValueError("AZURE_CLIENT_ID is missing")

    with pytest.raises(NoTokenError, match="no token for scope: AZURE_CLIENT_ID is missing"):
        CappedCredential(make, outages=None).get_token("scope")


@pytest.fixture
def workload(server, monkeypatch, tmp_path):  # noqa: F811 - the fixture
    """The variables of the webhook of workload identity."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    token_file = tmp_path / "token"
    token_file.write_text("service-account-token")
    monkeypatch.setenv("AZURE_CLIENT_ID", "client-1")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant-1")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token_file))
    return server


@pytest.mark.parametrize("is_host_given", [False, True])
def test_workload_identity_gets_its_token_from_the_authority(workload, monkeypatch, is_host_given):
    if is_host_given:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", workload.url)
    settings = settings_for(workload.url, workload.ca_bundle)
    workload.reply(200, {"access_token": "arm-token", "expires_in": 86400, "token_type": "Bearer"})
    workload.reply(200, {"ok": True})

    client = ArmClient(settings, observe_remaining=None, observe=None)
    assert client.get("/subscriptions/s/x", api_version="1", action="x:get") == {"ok": True}
    client.close()

    token_request, call = workload.received
    assert token_request.path == "/tenant-1/oauth2/v2.0/token"
    assert "service-account-token" in token_request.body
    assert "client-1" in token_request.body
    assert call.headers["authorization"] == "Bearer arm-token"


@pytest.mark.parametrize("is_named", [True, False])
def test_only_authorities_of_azures_own_clouds_are_looked_up(workload, monkeypatch, is_named):
    given = []
    for name in ("WorkloadIdentityCredential", "DefaultAzureCredential"):
        monkeypatch.setattr(f"azure.identity.{name}", lambda **options: given.append(options))
    cloud = replace(settings_for(workload.url, workload.ca_bundle).cloud, is_named=is_named)

    credentials._chain(cloud, None, os.environ)

    assert [options["disable_instance_discovery"] for options in given] == [not is_named] * 2


def test_workload_identity_is_tried_once_in_its_own_cloud(workload):
    """The default chain would ask for it again, at the authority of the public cloud."""
    cloud = settings_for(workload.url, workload.ca_bundle).cloud
    chain = credentials._chain(cloud, None, os.environ)
    first, rest = chain.credentials
    assert type(first).__name__ == "WorkloadIdentityCredential"
    names = {type(each).__name__ for each in rest.credentials}
    assert "ManagedIdentityCredential" in names
    assert "WorkloadIdentityCredential" not in names


def test_a_refused_identity_is_an_error_of_authentication(workload):
    error = {"error": "invalid_client", "error_description": "AADSTS70021: no matching identity"}
    workload.reply(401, error)
    client = ArmClient(
        settings_for(workload.url, workload.ca_bundle), observe_remaining=None, observe=None
    )
    with pytest.raises(AuthError, match="AADSTS70021"):
        client.check_token()
    client.close()


def test_without_any_credential_those_that_were_tried_are_named(workload, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    client = ArmClient(
        settings_for(workload.url, workload.ca_bundle), observe_remaining=None, observe=None
    )
    with pytest.raises(AuthError) as caught:
        client.check_token()
    client.close()
    assert "EnvironmentCredential: Environment variables are not fully configured." in str(
        caught.value
    )
    assert "aka.ms" not in str(caught.value)


CHAIN = """DefaultAzureCredential failed to retrieve a token from the included credentials.
Attempted credentials:
\tEnvironmentCredential: EnvironmentCredential authentication unavailable. Environment variables are not fully configured.
Visit https://aka.ms/environment to troubleshoot this issue.
\tWorkloadIdentityCredential: {failure}
{rest}To mitigate this issue, please refer to the troubleshooting guidelines here at https://aka.ms/x."""


def test_the_failed_credential_of_a_chain_is_shown_with_its_cause():
    failure = (
        "Authentication failed: AADSTS70021: No matching federated identity record found. "
        "Trace ID: 1 Correlation ID: 2"
    )
    assert token_failure(CHAIN.format(failure=failure, rest="")) == (
        "WorkloadIdentityCredential: Authentication failed: AADSTS70021: No matching federated "
        "identity record found. (not configured: EnvironmentCredential)"
    )


def test_a_chain_that_comes_to_its_end_has_nothing_configured():
    rest = "\tAzureCliCredential: Azure CLI not found on path\n"
    text = CHAIN.format(failure="WorkloadIdentityCredential authentication unavailable.", rest=rest)
    assert token_failure(text) == (
        "no credential is configured; tried EnvironmentCredential, WorkloadIdentityCredential, "
        "AzureCliCredential"
    )


@pytest.mark.parametrize("text", ["connection refused", "connection\n refused"])
def test_other_texts_are_shown_in_one_line(text):
    assert token_failure(text) == "connection refused"


def test_finding_a_credential_sends_no_request(workload):
    find_credential(settings_for(workload.url).cloud)
    assert not workload.received


def test_a_token_service_that_does_not_answer_is_no_refusal(cloud):
    settings = settings_for(
        ca_bundle=cloud.ca_bundle,
        cloud=read_environment_file(cloud.environment["AZURE_ENVIRONMENT_FILEPATH"]),
        azure_subscription_id=cloud.world.subscription_id,
    )
    client = ArmClient(
        settings,
        read_seconds=0.2,
        sleep=lambda _seconds: None,
        observe_remaining=None,
        observe=None,
    )

    def get():
        return client.get(cloud.world.subnet_id, api_version="2024-05-01", action="subnets:get")

    with cloud.cut_off("tokens:post"), pytest.raises(UncertainCallError, match="no token"):
        get()
    with cloud.fall_silent("tokens:post"), pytest.raises(UncertainCallError, match="no token"):
        get()
    for status in (429, 500, 503):
        with (
            cloud.fail("tokens:post", code="temporarily_unavailable", status=status, times=None),
            pytest.raises(UncertainCallError, match="no token"),
        ):
            get()
    for status in (
        400,
        401,
    ):  # AADSTS700024, of a wrong clock, and AADSTS7000222, of an expired secret
        with (
            cloud.fail("tokens:post", code="invalid_client", status=status, times=None),
            pytest.raises(AuthError, match="no token"),
        ):
            get()
    assert get()["id"] == cloud.world.subnet_id
    client.close()
