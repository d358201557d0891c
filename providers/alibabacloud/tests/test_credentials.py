"""Tests the choice between available credentials (section 12.2)."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_alibabacloud.credentials import find_credential
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of, is_refusal
from karpenter_provider_alibabacloud.sdk import CloudClients

KEY = {"ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI5tEXAMPLE", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "s"}
TOKEN = {"ALIBABA_CLOUD_SECURITY_TOKEN": "t"}


@pytest.fixture
def role(tmp_path):
    token = tmp_path / "token"
    token.write_text("t")
    return {
        "ALIBABA_CLOUD_ROLE_ARN": "acs:ram::1:role/karpenter",
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1:oidc-provider/ack",
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE": str(token),
    }


def test_access_keys_precede_roles_and_roles_precede_other_credentials(role):
    """As in the library's own chain."""
    assert find_credential({**role, **KEY}).provider == "access_key"
    assert find_credential({**role, **KEY, **TOKEN}).provider == "sts"
    assert find_credential({**role, **TOKEN}).provider == "oidc_role_arn"
    assert find_credential(TOKEN).provider == "default"


@pytest.mark.parametrize("missing", sorted(KEY))
def test_an_incomplete_key_is_ignored(role, missing):
    half = {name: value for name, value in KEY.items() if name != missing}

    assert find_credential({**role, **half}).provider == "oidc_role_arn"


def test_a_role_is_used_only_with_all_three_variables(role):
    for missing in role:
        some = {name: value for name, value in role.items() if name != missing}
        assert find_credential(some).provider == "default", missing


def test_the_role_is_taken_where_the_variables_say(role):
    """The service that gives out its keys, and what it is asked for."""
    given = {
        **role,
        "ALIBABA_CLOUD_STS_REGION": "cn-beijing",
        "ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED": "true",
        "ALIBABA_CLOUD_ROLE_SESSION_NAME": "node-keeper",
    }

    source = find_credential(given).client.cloud_credential.provider

    assert source._sts_endpoint == "sts-vpc.cn-beijing.aliyuncs.com"
    assert source._role_session_name == "node-keeper"


def test_a_profile_of_the_command_line_is_used_where_there_is_nothing_else(tmp_path, monkeypatch):
    """Charts of the existing provider mount one: `~/.aliyun/config.json`."""
    from alibabacloud_credentials.provider import cli_profile
    from alibabacloud_credentials.utils import auth_util

    folder = tmp_path / ".aliyun"
    folder.mkdir()
    profile = {
        "name": "default",
        "mode": "AK",
        "access_key_id": "LTAI5tPROFILE",
        "access_key_secret": "s",
    }
    (folder / "config.json").write_text(json.dumps({"current": "default", "profiles": [profile]}))
    monkeypatch.setattr(cli_profile.ac, "HOME", str(tmp_path))
    for name in ("access_key_id", "access_key_secret", "role_arn", "oidc_provider_arn"):
        monkeypatch.setattr(auth_util, f"environment_{name}", None)

    found = find_credential({})

    assert found.provider == "default"
    assert found.client.get_credential().access_key_id == "LTAI5tPROFILE"


@pytest.mark.parametrize(
    ("status", "code", "is_refused"),
    [
        (503, "ServiceUnavailable", False),
        (500, "InternalError", False),
        (429, "", False),
        (400, "Throttling.User", False),
        (400, "Throttling", False),
        (400, "AuthenticationFail.OIDCToken.Expired", True),
        (403, "AuthenticationFail.NoPermission", True),
        (404, "EntityNotExist.Role", True),
    ],
)
def test_a_fault_of_the_service_that_gives_keys_is_no_refusal(
    cloud, role, monkeypatch, status, code, is_refused
):
    """NodeClasses would not be ready, and the NodeClaims to launch would be deleted."""
    from alibabacloud_credentials.provider import oidc

    for name in (*KEY, *TOKEN):
        monkeypatch.delenv(name, raising=False)
    for name, value in role.items():
        monkeypatch.setenv(name, value)
    body = json.dumps({"RequestId": "R-1", "Code": code, "Message": "m"}).encode()
    answer = SimpleNamespace(status_code=status, body=body)
    monkeypatch.setattr(oidc, "TeaCore", SimpleNamespace(do_action=lambda *_: answer))
    clients = CloudClients(
        region=cloud.account.region,
        endpoint_ecs=cloud.endpoint,
        protocol="http",
        sleep=lambda _seconds: None,
    )

    with (
        clients,
        pytest.raises(CloudProviderError, match=f"http_code: {status}") as caught,
        core_errors_of(),
    ):
        clients.ecs.call("DescribeInstances", {"RegionId": cloud.account.region})

    assert is_refusal(caught.value) is is_refused
    assert isinstance(caught.value, AuthError) is is_refused
    assert not cloud.calls.count("DescribeInstances")
