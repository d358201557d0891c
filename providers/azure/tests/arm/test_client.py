"""Tests the client through the real SDK, against a server over TLS."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta

import pytest

from karpenter_core.errors import AuthError, CloudProviderError, SettingsError, ThrottledError
from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    UncertainCallError,
)
from karpenter_provider_azure.arm.client import RETRIES, ArmClient, operation_class
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.json_service import _RETRIES

from .values import API_VERSION, VMS, settings_for


def read(client, path=VMS):
    return client.get(path, api_version=API_VERSION, action="virtualMachines:get")


def write(client, *, method="PUT", **more):
    return client.send(
        method,
        f"{VMS}/aks-x",
        api_version=API_VERSION,
        action="virtualMachines:put",
        body={"location": "westus2"},
        **more,
    )


def test_a_request_has_token_version_and_body(client, server):
    server.reply(201, {"name": "aks-x"}, {"ETag": '"1"'})

    answer = write(client, headers={"If-None-Match": "*"}, query={"x": "a b"})

    assert (answer.status, answer.body, answer.headers["etag"]) == (201, {"name": "aks-x"}, '"1"')
    request = server.received[0]
    assert (request.method, request.path) == ("PUT", f"{VMS}/aks-x")
    assert request.query == {"api-version": API_VERSION, "x": "a b"}
    assert request.headers["authorization"] == "Bearer token-1"
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-ms-client-request-id"]
    assert request.body == {"location": "westus2"}


def test_calls_share_one_token(client, server, tokens):
    server.reply(200, {})
    for _ in range(3):
        read(client)
    assert len(tokens.requests) == 1
    assert tokens.closed == 1


def test_an_answer_without_a_body_is_empty(client, server):
    server.reply(204)
    assert write(client, method="DELETE").body == {}


def test_a_listing_has_the_items_of_all_pages(client, server):
    server.reply(200, {"value": [{"name": "a"}], "nextLink": f"{server.url}/page?$skiptoken=2"})
    server.reply(200, {"value": [{"name": "b"}]})

    items = client.list_all(VMS, api_version=API_VERSION, action="virtualMachines:list")

    assert [item["name"] for item in items] == ["a", "b"]
    assert server.received[1].path == "/page"
    assert server.received[1].query == {"$skiptoken": "2"}


def test_a_listing_with_a_repeated_page_token_is_refused(client, server):
    server.reply(200, {"value": [], "nextLink": f"{server.url}/page"})
    with pytest.raises(CloudProviderError, match="came twice"):
        client.list_all(VMS, api_version=API_VERSION, action="virtualMachines:list")


@pytest.mark.parametrize("page", [{}, {"value": None}, {"value": ["text"]}])
def test_a_page_that_cannot_be_read_is_no_empty_page(client, server, page):
    server.reply(200, page)
    with pytest.raises(CloudProviderError, match="virtualMachines:list"):
        client.list_all(VMS, api_version=API_VERSION, action="virtualMachines:list")


def test_a_missing_page_fails_the_listing(client, server):
    server.reply(200, {"value": [{}], "nextLink": f"{server.url}/page"})
    server.reply(404, {"error": {"code": "NotFound", "message": "gone"}})
    with pytest.raises(CloudProviderError, match="a page of the listing is missing") as caught:
        client.list_all(VMS, api_version=API_VERSION, action="virtualMachines:list")
    assert not isinstance(caught.value, ArmNotFoundError), "what is listed does exist"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/page",
        "http://127.0.0.1/page",
        "https://127.0.0.1.example.com/",
        "/page",
    ],
)
def test_no_token_is_sent_to_another_host(client, server, url):
    with pytest.raises(CloudProviderError, match="no token is sent"):
        client.follow(url, action="virtualMachines:list")
    assert not server.received


def test_pages_of_a_regional_endpoint_are_read():
    from karpenter_provider_azure.arm.sdk_sender import SdkSender

    sender = SdkSender(
        settings_for("https://management.azure.com"), authentication_policy=None, credential=None
    )
    assert sender.is_own("https://westus2.management.azure.com/subscriptions/x")
    assert sender.is_own("https://Management.Azure.com:443/subscriptions/x?$skiptoken=1")
    assert not sender.is_own("https://evilmanagement.azure.com/subscriptions/x")
    assert not sender.is_own("https://user@management.azure.com/")
    assert not sender.is_own("https://management.azure.com:444/")
    assert not sender.is_own("https://management.azure.com:port/")


def test_the_status_404_is_not_found_with_any_code(client, server):
    server.reply(404, {"error": {"code": "ParentResourceNotFound", "message": "no vnet"}})
    with pytest.raises(ArmNotFoundError) as caught:
        read(client)
    assert caught.value.code == "ParentResourceNotFound"
    assert "virtualMachines:get" in str(caught.value)


def test_a_refusal_is_sent_once_and_keeps_its_codes(client, server, observed):
    details = [{"code": "SkuNotAvailable", "message": "not there"}]
    server.reply(
        409, {"error": {"code": "InvalidTemplateDeployment", "message": "see", "details": details}}
    )

    with pytest.raises(ArmError) as caught:
        write(client)

    error = caught.value
    assert (error.status, error.code) == (409, "InvalidTemplateDeployment")
    assert error.codes == ("InvalidTemplateDeployment", "SkuNotAvailable")  # case 102
    assert not error.may_be_done
    assert observed == [("virtualMachines:put", "InvalidTemplateDeployment")]


def test_status_429_is_throttling_even_with_the_code_of_a_quota(client, server, waits):
    """# case 103"""
    body = {"error": {"code": "OperationNotAllowed", "message": "too many requests"}}
    server.reply(429, body, {"Retry-After": "2"})
    server.reply(200, {"name": "aks-x"})

    assert write(client).body == {"name": "aks-x"}

    assert waits[0] == 2.0  # then its turn: the clock of these clients does not move
    assert len(server.received) == 2


@pytest.mark.parametrize("policy", [RETRIES, _RETRIES], ids=["ARM", "JSON services"])
@pytest.mark.parametrize(("seconds", "wait"), [(9.5, 9.5), (10, 10), (10.5, None)])
def test_a_call_waits_for_a_pause_of_ten_seconds_and_not_longer(policy, seconds, wait):
    failure = AttemptFailure(
        kind=AttemptFailureKind.THROTTLED, retry_after=timedelta(seconds=seconds)
    )
    assert policy.wait_seconds(failure, attempt=1, repeatable=True, draw=0.5) == wait
    assert policy.wait_seconds(failure, attempt=2, repeatable=True, draw=0.5) == wait
    assert policy.wait_seconds(failure, attempt=3, repeatable=True, draw=0.5) is None
    lost = AttemptFailure(kind=AttemptFailureKind.UNANSWERED)
    waits = [
        policy.wait_seconds(lost, attempt=attempt, repeatable=True, draw=1.0)
        for attempt in (1, 2, 3)
    ]
    assert waits == [0.1, 0.2, None]
    assert policy.longest_call_seconds == 60, "hooks end within two minutes"


def test_a_long_pause_is_raised_and_the_class_is_not_called_before_its_end(client, server):
    server.reply(429, {"error": {"code": "TooManyRequests", "message": "x"}}, {"Retry-After": "60"})
    with pytest.raises(ThrottledError) as caught:
        write(client)
    assert caught.value.retry_after.total_seconds() == 60
    with pytest.raises(ThrottledError, match="not sent"):
        write(client)
    assert len(server.received) == 1
    server.replies.clear()
    server.reply(200, {})
    assert read(client) == {}  # another class


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_call_names_its_action(client, server, status):
    server.reply(status, {"error": {"code": "AuthorizationFailed", "message": "no role"}})
    with pytest.raises(AuthError, match="no role") as caught:
        write(client)
    assert caught.value.action == "virtualMachines:put"
    assert len(server.received) == (2 if status == 401 else 1), "a new token is tried once"


def test_a_token_that_azure_refuses_is_not_used_again(client, server, tokens):
    server.reply(401, {"error": {"code": "InvalidAuthenticationToken", "message": "revoked"}})
    server.reply(201, {"name": "aks-x"})
    assert write(client).body == {"name": "aks-x"}
    assert [request.headers["authorization"] for request in server.received] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


def test_without_a_token_nothing_is_sent(client, server, tokens):
    from azure.core.exceptions import ClientAuthenticationError

    tokens.error = ClientAuthenticationError(message="chain failed:\n  no identity\n")
    with pytest.raises(AuthError, match="chain failed: no identity"):
        write(client)
    assert not server.received


def test_a_refusal_after_a_cut_says_that_the_call_may_be_done(client, server):
    server.cut()
    server.reply(412, {"error": {"code": "PreconditionFailed", "message": "exists"}})
    with pytest.raises(ArmError) as caught:
        write(client)
    assert caught.value.status == 412
    assert caught.value.may_be_done


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_a_fault_of_azure_is_tried_three_times(client, server, status):
    server.reply(status, content=b"<html>bad gateway</html>")
    with pytest.raises(UncertainCallError, match="bad gateway"):
        write(client)
    assert len(server.received) == 3


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'"text"'])
def test_an_answer_that_cannot_be_read_is_no_answer(client, server, content):
    server.reply(200, content=content)
    with pytest.raises(CloudProviderError, match="JSON"):
        read(client)


def test_remaining_requests_are_observed(client, server, remaining):
    headers = {
        "x-ms-ratelimit-remaining-subscription-writes": "1199",
        "x-ms-ratelimit-remaining-resource": "Microsoft.Compute/PutVM3Min;239,broken",
    }
    server.reply(200, {}, headers)
    write(client)
    assert remaining == [{"subscription-writes": 1199, "Microsoft.Compute/PutVM3Min": 239}]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", VMS, "compute-list-vms"),
        ("GET", f"{VMS}?$skiptoken=2", "compute-list-vms"),
        ("GET", f"{VMS}/x", "compute-get-vm"),
        ("GET", f"{VMS}/x/extensions/e", "compute-get-vm"),
        ("PUT", f"{VMS}/x", "compute-put-vm"),
        ("PATCH", f"{VMS}/x", "compute-update-vm"),
        ("PUT", f"{VMS}/x/extensions/e", "compute-update-vm"),
        ("DELETE", f"{VMS}/x/extensions/e", "compute-update-vm"),
        ("GET", "/s/providers/Microsoft.Compute/locations/l/operations/o", "compute-polls"),
        ("GET", "/s/providers/Microsoft.Network/locations/l/operationResults/o", "network-polls"),
        ("GET", "/s/providers/Microsoft.Compute/locations/l/usages", "compute-reads"),
        ("GET", "/s/providers/Microsoft.Compute/skus", "compute-reads"),
        ("DELETE", "/x/providers/Microsoft.Compute/disks/d", "compute-deletes"),
        ("delete", "/x/providers/microsoft.network/networkInterfaces/n", "network-deletes"),
        ("DELETE", f"{VMS}/x", "compute-delete-vm"),
        ("DELETE", "/subscriptions/s/providers/Microsoft.Foo/bars/b", "deletes"),
        ("GET", "https://h/x/providers/Microsoft.Network/a?api-version=1", "network-reads"),
        ("POST", "/providers/Microsoft.ResourceGraph/resources", "graph"),
        ("GET", "/subscriptions/s/providers", "reads"),
        ("GET", "/subscriptions/s/locations", "reads"),
        ("PUT", "/subscriptions/s/providers/Microsoft.Foo/bars/b", "writes"),
    ],
)
def test_calls_are_classed_by_resource_provider_and_method(method, path, expected):
    assert operation_class(method, path) == expected


def test_an_endpoint_without_tls_fails_at_once():
    """# case 131"""
    started = time.monotonic()
    with pytest.raises(SettingsError, match=r"must be an https URL, not http://127\.0\.0\.1:1"):
        ArmClient(settings_for("http://127.0.0.1:1"), observe_remaining=None, observe=None)
    assert time.monotonic() - started < 1


def test_an_authentication_policy_permits_an_endpoint_without_tls():
    """# case 131"""
    from azure.core.pipeline.policies import SansIOHTTPPolicy

    from karpenter_core.provider.kit.simulated.server import HttpReply, HttpServer

    class FixedToken(SansIOHTTPPolicy):
        def on_request(self, request):
            request.http_request.headers["Authorization"] = "Bearer fixed"

    seen = []

    def answer(request):
        seen.append(request.headers["authorization"])
        return HttpReply(status=200, body=b'{"ok": true}')

    server = HttpServer(answer, name="plain-arm")
    server.start()
    client = ArmClient(
        settings_for(server.endpoint_url),
        authentication_policy=FixedToken(),
        observe_remaining=None,
        observe=None,
    )
    try:
        assert read(client) == {"ok": True}
    finally:
        client.close()
        server.stop()
    assert seen == ["Bearer fixed"]


def test_a_server_with_an_unknown_certificate_is_not_trusted(server, tokens):
    from karpenter_provider_azure.arm.credentials import CappedCredential

    client = ArmClient(
        settings_for(server.url),
        credential=CappedCredential(lambda: tokens, outages=None),
        sleep=lambda _seconds: None,
        observe_remaining=None,
        observe=None,
    )
    with pytest.raises(CloudProviderError, match="certificate"):
        read(client)
    client.close()
    assert not server.received


def test_a_closed_client_opens_new_connections(client, server):
    server.reply(200, {"ok": 1})
    read(client)
    client.close()
    assert read(client) == {"ok": 1}


def test_making_a_client_imports_no_sdk():
    """# case 132"""
    code = (
        "import sys\n"
        "from karpenter_provider_azure.arm.client import ArmClient\n"
        "from karpenter_provider_azure.settings import AzureSettings\n"
        "ArmClient(AzureSettings(cluster_name='c', cluster_endpoint='', kubelet_bootstrap_token='',"
        "ssh_public_key='', vnet_subnet_id='', node_resource_group='g', azure_subscription_id='s',"
        "location='westus2'), observe=None, observe_remaining=None)\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in {'azure', 'msal'}]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_calls_import_no_service_of_the_sdk():
    code = (
        "import sys\n"
        "from karpenter_provider_azure.arm.sdk_sender import SdkSender\n"
        "from karpenter_provider_azure.settings import AzureSettings\n"
        "SdkSender(AzureSettings(cluster_name='c', cluster_endpoint='', kubelet_bootstrap_token='',"
        "ssh_public_key='', vnet_subnet_id='', node_resource_group='g', azure_subscription_id='s',"
        "location='westus2'), credential=None, authentication_policy=None)._open_client()\n"
        "kinds = {name.split('.')[2] for name in sys.modules if name.startswith('azure.mgmt.')}\n"
        "assert kinds == {'core'}, kinds\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_throttled_launch_does_not_hold_back_deletions(client, server):
    """Azure counts them apart (`Microsoft.Compute/PutVM3Min`, `DeleteVM3Min`)."""
    server.reply(429, {"error": {"code": "OperationNotAllowed"}}, {"Retry-After": "60"})
    server.reply(202)
    with pytest.raises(ThrottledError):
        write(client)
    assert write(client, method="DELETE").status == 202


@pytest.mark.parametrize(
    ("message", "path", "error"),
    [
        ("The selected virtual machine size is not allowed.", "type", ArmError),
        ("It was disallowed.", "properties.hardwareProfile.vmSize", ArmError),
        ("It was disallowed.", "tags.owner", AuthError),
    ],
)
def test_a_policy_about_sizes_is_no_missing_permission(client, server, message, path, error):
    """Another size may be allowed; any other policy refuses all launches."""
    evaluated = {"evaluationDetails": {"evaluatedExpressions": [{"path": path}]}}
    violation = {"type": "PolicyViolation", "info": evaluated}
    refused = {"code": "RequestDisallowedByPolicy", "message": message}
    server.reply(403, {"error": {**refused, "additionalInfo": [violation]}})
    with pytest.raises(error, match=r"disallowed|not allowed"):
        write(client)


def test_a_policy_about_sizes_may_stand_behind_the_code_of_a_whole_deployment(client, server):
    """The outer code tells only that the template could not be deployed."""
    refused = {
        "code": "RequestDisallowedByPolicy",
        "message": "The selected virtual machine size is not allowed.",
    }
    server.reply(
        403,
        {
            "error": {
                "code": "InvalidTemplateDeployment",
                "message": "Failed.",
                "details": [refused],
            }
        },
    )
    with pytest.raises(ArmError, match="InvalidTemplateDeployment"):
        write(client)
