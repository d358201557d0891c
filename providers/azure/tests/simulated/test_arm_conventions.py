"""Tests the conventions of Azure Resource Manager over plain HTTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.simulated.faults import (
    CloudError,
    CloudFault,
    CloudFaultKind,
)
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_core.provider.kit.simulated.server import HttpRequest
from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply, ArmRoutes
from karpenter_simulated_azure.throttling import AZURE_RATES

NSG = "Microsoft.Network/networkSecurityGroups"


@pytest.fixture
def endpoint(served):
    return served.manager.application.endpoint


@pytest.fixture
def path(served):
    """A resource that exists."""
    return served.world.network_security_group_id


# -- paths -------------------------------------------------------------------------------------------


def test_paths_are_read_without_regard_to_case(served, path):
    lowered, shouted = served.send("GET", path.lower()), served.send("GET", path.upper())

    assert (lowered.status, shouted.status) == (200, 200)
    assert lowered.body["id"] == shouted.body["id"] == path


def test_an_unknown_resource_is_named_with_type_and_group(served):
    answer = served.send("GET", served.group(f"{NSG}/other"))

    assert (answer.status, answer.code) == (404, "ResourceNotFound")
    assert (
        f"'{NSG}/other' under resource group '{served.world.node_group}'"
        in (answer.body["error"]["message"])
    )


def test_an_unknown_group_subscription_or_type_gives_its_own_error(served):
    world = served.world
    group = served.send("GET", f"{world.group_path('nowhere')}/providers/{NSG}")
    subscription = served.send(
        "GET", f"/subscriptions/00000000-0000-0000-0000-000000000000/providers/{NSG}"
    )
    kind = served.send("GET", served.group("Microsoft.Network/unicorns"))
    method = served.send("DELETE", served.group(f"{NSG}/other"))
    nonsense = served.send("GET", "/nonsense")

    answers = (group, subscription, kind, method, nonsense)
    assert [(each.status, each.code) for each in answers] == [
        (404, "ResourceGroupNotFound"),
        (404, "SubscriptionNotFound"),
        (404, "InvalidResourceType"),
        (405, "HttpMethodNotSupported"),
        (400, "InvalidRequestUri"),
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("", "MissingApiVersionParameter"),
        ("2010-01-01", "NoRegisteredProviderFound"),
        ("2024-07-01-preview", "NoRegisteredProviderFound"),
        ("latest", "NoRegisteredProviderFound"),
    ],
)
def test_an_api_version_that_is_missing_or_not_supported_is_refused(served, path, version, code):
    answer = served.send("GET", path, version=version)

    assert (answer.status, answer.code) == (400, code)


def test_sizes_have_a_single_api_version(served):
    skus = served.subscription("Microsoft.Compute/skus")

    assert served.send("GET", skus, version="2021-07-01").status == 200
    assert served.send("GET", skus, version="2024-07-01").code == "NoRegisteredProviderFound"


@given(
    names=st.lists(st.from_regex(r"[A-Za-z0-9._()-]{1,12}", fullmatch=True), max_size=3),
    casing=st.sampled_from([str, str.lower, str.upper]),
    has_group=st.booleans(),
)
def test_every_path_of_a_route_is_read_with_its_names_as_sent(names, casing, has_group):
    kinds = [f"kind{number}" for number in range(max(1, len(names)))]
    routes = ArmRoutes()
    method = "GET" if names else "LIST"
    routes.add(method, f"Microsoft.Test/{'/'.join(kinds)}", lambda _call: ArmReply())
    start = (
        casing("/subscriptions/") + "S1" + (casing("/resourceGroups/") + "G1" if has_group else "")
    )
    tail = "/".join([kinds[0], *names[:1]]) if names else kinds[0]
    for kind, name in zip(kinds[1:], names[1:], strict=True):
        tail += f"/{casing(kind)}/{name}"

    call = routes.read(
        HttpRequest(method="GET", path=f"{start}/providers/Microsoft.Test/{tail}", headers={})
    )

    assert call.resource_type == f"Microsoft.Test/{'/'.join(kinds)}"
    assert list(call.names) == names
    assert (call.subscription, call.resource_group) == ("S1", "G1" if has_group else "")


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("2024-07-01", True),
        ("2023-12-31", False),
        ("2025-01-02", False),
        ("2024-07-01-beta", False),
    ],
)
def test_api_versions_are_accepted_by_date(version, accepted):
    versions = ApiVersions(earliest="2024-01-01", latest="2025-01-01", previews=True)

    assert versions.accept(version) is accepted
    assert versions.accept("2024-07-01-preview")


def test_a_body_that_is_no_json_object_is_refused(served):
    nic = served.group("Microsoft.Network/networkInterfaces/nic")
    for body in (b"{", b"[]", b'"text"'):
        answer = served.send("PUT", nic, body)
        assert (answer.status, answer.code) == (400, "InvalidRequestContent")


# -- tokens and permissions --------------------------------------------------------------------------


def test_a_call_without_a_token_is_challenged(served, path):
    answer = served.send("GET", path, token="")

    assert (answer.status, answer.code) == (401, "AuthenticationFailed")
    assert served.world.tenant_id in answer.headers["www-authenticate"]


def test_a_token_that_is_forged_expired_or_for_another_resource_is_refused(served, path):
    tokens = served.manager.application.tokens
    good = served.token()
    other = served.token(scope="https://vault.azure.net/.default")
    tokens.lifetime_seconds = -1
    expired = served.token()

    codes = [
        served.send("GET", path, token=each).code
        for each in (f"{good}x", tokens.federated_token(), other, expired)
    ]

    assert codes == [
        "InvalidAuthenticationToken",
        "InvalidAuthenticationToken",
        "InvalidAuthenticationTokenAudience",
        "ExpiredAuthenticationToken",
    ]
    assert served.send("GET", path, token=good).status == 200
    tokens.revoke_all()
    assert served.send("GET", path, token=good).code == "ExpiredAuthenticationToken"


@pytest.mark.parametrize(
    ("form", "error", "number"),
    [
        ({"client_secret": "wrong"}, "invalid_client", 7000215),
        ({"client_id": "00000000-0000-0000-0000-000000000000"}, "unauthorized_client", 700016),
        ({"tenant": "nowhere"}, "invalid_request", 90002),
        ({"scope": "https://management.azure.com"}, "invalid_scope", 1002012),
        ({"scope": "https://elsewhere/.default"}, "invalid_resource", 500011),
        ({"grant_type": "password"}, "unsupported_grant_type", 70003),
    ],
)
def test_the_token_endpoint_refuses_with_the_codes_of_entra(served, form, error, number):
    answer = served.ask_token(**form)

    assert answer.status in {400, 401}
    assert (answer.body["error"], answer.body["error_codes"]) == (error, [number])
    assert answer.body["error_description"].startswith(f"AADSTS{number}: ")


@pytest.mark.parametrize(
    ("assertion", "number"),
    [
        ({"subject": "system:serviceaccount:default:other"}, 700213),
        ({"audience": "sts.amazonaws.com"}, 700212),
        ({"lifetime_seconds": -10}, 700024),
        (None, 50027),
    ],
)
def test_an_assertion_must_be_that_of_the_federated_credential(served, assertion, number):
    tokens = served.manager.application.tokens
    sent = "a.b.c" if assertion is None else tokens.federated_token(**assertion)
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

    answer = served.ask_token(client_assertion_type=kind, client_assertion=sent)

    assert answer.body["error_codes"] == [number]


def test_image_tokens_permit_shared_images_until_they_expire(served):
    tokens = served.manager.application.tokens
    answer = served.raw("GET", "/sig-token?scope=x").body
    seen = []
    served.manager.routes.add(
        "GET",
        "Microsoft.Test/things",
        lambda call: ArmReply(body={"permitted": tokens.permit_shared_images(call)}),
    )

    for header in (f"Bearer {answer['Token']}", f"Bearer {served.token()}", ""):
        sent = {"x-ms-authorization-auxiliary": header}
        found = served.send("GET", served.group("Microsoft.Test/things/a"), headers=sent)
        seen.append(found.body["permitted"])

    assert seen == [True, False, False]
    assert served.raw("GET", "/sig-token").status == 400


def test_discovery_returns_the_url_of_the_request(served):
    tenant = served.world.tenant_id
    instance = served.raw("GET", "/common/discovery/instance?api-version=1.1").body
    target = instance["tenant_discovery_endpoint"].removeprefix(served.url)
    openid = served.raw("GET", target).body

    assert openid["token_endpoint"] == f"{served.url}/{tenant}/oauth2/v2.0/token"


def test_a_permission_can_be_taken_away_for_one_group_alone(served, path):
    permissions = served.manager.application.permissions
    listed = f"{served.world.subscription_path}/providers/{NSG}"
    taken = permissions.take(f"{NSG}/*", scope=f"*/resourceGroups/{served.world.node_group}/*")

    refused = served.send("GET", path)

    assert (refused.status, refused.code) == (403, "AuthorizationFailed")
    assert f"'{NSG}/read' over scope '{path}'" in refused.body["error"]["message"]
    assert served.send("GET", listed).status == 200
    taken.end()
    assert served.send("GET", path).status == 200


# -- headers, faults, throttling ---------------------------------------------------------------------


def test_answers_have_request_ids_of_their_own_and_echo_that_of_the_client(served, path):
    first = served.send("GET", path, headers={"x-ms-client-request-id": "mine"})
    second = served.send("GET", path)

    assert first.headers["x-ms-client-request-id"] == "mine"
    assert first.headers["x-ms-request-id"] != second.headers["x-ms-request-id"]
    assert int(first.headers["x-ms-ratelimit-remaining-subscription-reads"]) > 0


def test_remaining_calls_fall_with_every_call_of_the_class(served, endpoint):
    endpoint.throttling.set({"compute-reads": SimulatedCallRate(bucket=5, refill=0)})
    skus = served.subscription("Microsoft.Compute/skus")

    told = [
        served.send("GET", skus, version="2021-07-01").headers["x-ms-ratelimit-remaining-resource"]
        for _ in range(2)
    ]

    assert told == ["Microsoft.Compute/ComputeReads;4", "Microsoft.Compute/ComputeReads;3"]


def test_network_and_subscription_throttle_with_codes_of_their_own(served, endpoint, path):
    endpoint.throttling.set({"network-reads": SimulatedCallRate(bucket=0, refill=0.25)})
    network = served.send("GET", path)
    endpoint.throttling.set({"subscription-reads": SimulatedCallRate(bucket=1, refill=0.1)})
    served.send("GET", path)
    subscription = served.send("GET", path)

    assert (network.status, network.code) == (429, "TooManyRequests")
    assert (subscription.status, subscription.code) == (429, "SubscriptionRequestsThrottled")
    assert subscription.headers["retry-after"] == "10"
    assert served.world.subscription_id in subscription.body["error"]["message"]


@pytest.mark.parametrize(
    ("bucket", "permitted"),
    [
        ("compute-put-vm", 1500),
        ("compute-update-vm", 1500),
        ("compute-delete-vm", 1500),
        ("compute-list-vms", 900),
        ("compute-put-vm/aks-web-1", 12),
        ("compute-delete-vm/aks-web-1", 12),
        ("compute-get-vm/aks-web-1", 36),
    ],
)
def test_the_rates_of_azure_are_those_of_its_documentation(endpoint, bucket, permitted):
    endpoint.throttling.set(AZURE_RATES)
    taken = sum(endpoint.throttling.take(bucket) for _ in range(2000))
    assert permitted <= taken < permitted * 1.2
    assert endpoint.throttling.take(f"{bucket}-of-another")


def test_a_class_that_is_empty_leaves_the_other_classes_alone(served, endpoint, path):
    endpoint.throttling.set({"compute-*": SimulatedCallRate(bucket=0, refill=1)})

    skus = served.send("GET", served.subscription("Microsoft.Compute/skus"), version="2021-07-01")
    assert skus.status == 429
    assert served.send("GET", path).status == 200


def test_a_fault_strikes_an_action_with_details_and_inner_error(served, endpoint, path):
    error = ArmFault(
        "InvalidTemplateDeployment",
        "The template is not valid.",
        status=400,
        target="vm",
        details=[{"code": "SkuNotAvailable", "message": "not here"}],
        innererror={"code": "Inner"},
    )
    endpoint.faults.add(
        CloudFault(
            kind=CloudFaultKind.REFUSED,
            action="networkSecurityGroups:*",
            error=error,
            times=1,
            where=lambda parameters: parameters["name"] == served.world.network_security_group,
        )
    )

    assert served.send("GET", path).body["error"] == {
        "code": "InvalidTemplateDeployment",
        "message": "The template is not valid.",
        "target": "vm",
        "details": [{"code": "SkuNotAvailable", "message": "not here"}],
        "innererror": {"code": "Inner"},
    }
    assert served.send("GET", path).status == 200


def test_a_denied_action_and_a_failing_token_endpoint_answer_in_their_own_form(
    served, endpoint, path
):
    token = served.token()
    endpoint.faults.add(
        CloudFault(kind=CloudFaultKind.REFUSED, action="networkSecurityGroups:get", times=1)
    )
    down = CloudError("temporarily_unavailable", "try later", status=503)
    endpoint.faults.add(
        CloudFault(kind=CloudFaultKind.REFUSED, action="tokens:post", error=down, times=1)
    )

    denied, unavailable = served.send("GET", path, token=token), served.ask_token()

    assert (denied.status, denied.code) == (403, "AuthorizationFailed")
    assert (unavailable.status, unavailable.body["error"]) == (503, "temporarily_unavailable")


def test_the_log_has_action_outcome_and_resource(served, endpoint, path):
    served.send("GET", path)
    served.send("GET", f"{path}-other")

    calls = endpoint.calls.of("networkSecurityGroups:get")
    assert [each.outcome for each in calls] == ["ok", "ResourceNotFound"]
    assert calls[0].parameters["name"] == served.world.network_security_group
    assert calls[0].service == "Microsoft.Network"
