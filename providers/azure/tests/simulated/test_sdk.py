"""Tests the simulated Azure through the SDKs of Azure, unmodified."""

from __future__ import annotations

import time

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.core.rest import HttpRequest
from azure.identity import ClientSecretCredential, DefaultAzureCredential
from azure.mgmt.compute import ComputeManagementClient

from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_simulated_azure.arm_api import ArmReply
from karpenter_simulated_azure.tokens import CLIENT_SECRET

SCOPE = "https://management.azure.com/.default"


@pytest.fixture
def credential(workload_identity):
    with DefaultAzureCredential() as made:
        yield made


@pytest.fixture
def client(served, credential):
    with ComputeManagementClient(
        credential,
        served.world.subscription_id,
        base_url=served.url,
        credential_scopes=[SCOPE],
        retry_total=0,
        polling_interval=0,
    ) as made:
        yield made


def send(client, method, path, **options):
    reply = client.send_request(HttpRequest(method, path, **options))
    reply.raise_for_status()
    return reply.json()


def test_the_default_credential_gets_a_token_for_the_workload_identity(served, credential):
    before = time.time()
    token = credential.get_token(SCOPE)

    assert served.send("GET", served.world.subnet_id, token=token.token).status == 200
    assert token.expires_on >= before + 80_000
    assert served.calls("tokens:post") == 1


def test_a_service_account_without_a_federated_credential_gets_no_token(
    served, credential, workload_identity
):
    tokens = served.manager.application.tokens
    workload_identity.write_text(
        tokens.federated_token(subject="system:serviceaccount:default:other")
    )

    with pytest.raises(ClientAuthenticationError, match=r"AADSTS700213.*default:other"):
        credential.get_token(SCOPE)


def test_a_client_secret_gets_a_token_through_msal(served, workload_identity):
    world = served.world
    with ClientSecretCredential(
        world.tenant_id,
        world.client_id,
        CLIENT_SECRET,
        authority=served.url,
        disable_instance_discovery=True,
    ) as credential:
        token = credential.get_token(SCOPE).token

    assert served.send("GET", world.subnet_id, token=token).status == 200


def test_send_request_lists_the_sizes_of_the_region(served, client):
    path = f"{served.world.subscription_path}/providers/Microsoft.Compute/skus"
    params = {"api-version": "2021-07-01", "$filter": "location eq 'westus2'"}

    answer = send(client, "GET", path, params=params)

    sizes = [each for each in answer["value"] if each["resourceType"] == "virtualMachines"]
    assert {"Standard_D4s_v5", "Standard_D4pls_v6"} <= {each["name"] for each in sizes}


def test_the_typed_client_reads_sizes_with_their_zones(served, client):
    sizes = {each.name: each for each in client.resource_skus.list(filter="location eq 'westus2'")}

    size = sizes["Standard_D4s_v5"]
    told = {each.name: each.value for each in size.capabilities}
    assert (told["vCPUs"], told["MemoryGB"]) == ("4", "16")
    assert size.location_info[0].zones == ["1", "2", "3"]
    assert size.location_info[0].zone_details[0].name == ["1", "2"]
    restricted = sizes["Standard_E8s_v5"].restrictions[0]
    assert (restricted.type, restricted.restriction_info.zones) == ("Zone", ["2"])


def test_the_typed_client_reads_quotas(served, client):
    served.manager.usages.set_limit("standardDSv5Family", 10)
    served.manager.usages.used = lambda: {"standardDSv5Family": 8, "cores": 8}
    try:
        found = {each.name.value: each for each in client.usage.list("westus2")}
    finally:
        served.manager.usages.used = dict

    family = found["standardDSv5Family"]
    assert (family.current_value, family.limit) == (8, 10)
    assert found["cores"].current_value == 8
    assert found["lowPriorityCores"].current_value == 0


def test_the_typed_client_reads_the_versions_of_community_images(served, client):
    gallery = "AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2"
    served.manager.galleries.publish("AKSUbuntu", "2404gen2containerd", "202511.20.0")
    served.manager.galleries.page_size = 2

    found = list(
        client.community_gallery_image_versions.list("westus2", gallery, "2404gen2containerd")
    )

    newest = max(found, key=lambda each: each.properties.published_date)
    assert (len(found), newest.name) == (3, "202511.20.0")


def test_the_typed_client_reads_a_disk_encryption_set(served, client):
    set_id = served.manager.cluster.add_disk_encryption_set("keys")
    group = served.world.node_group

    assert client.disk_encryption_sets.get(group, "keys").id == set_id
    with pytest.raises(ResourceNotFoundError) as caught:
        client.disk_encryption_sets.get(group, "other")
    assert caught.value.error.code == "ResourceNotFound"


def test_a_missing_permission_names_the_action(served, client):
    served.manager.cluster.add_disk_encryption_set("keys")
    action = "Microsoft.Compute/diskEncryptionSets/read"

    with (
        served.manager.application.permissions.take(action),
        pytest.raises(HttpResponseError) as caught,
    ):
        client.disk_encryption_sets.get(served.world.node_group, "keys")

    assert (caught.value.status_code, caught.value.error.code) == (403, "AuthorizationFailed")
    assert f"'{action}'" in caught.value.error.message
    assert client.disk_encryption_sets.get(served.world.node_group, "keys").name == "keys"


@pytest.fixture
def disks(served):
    """A type with long-running operations that the typed client knows: disks."""
    manager = served.manager
    kept = {}

    def put(call):
        done_at = served.time() if not kept.get("seconds") else None
        operation = manager.operations.start(call, done_at=done_at)
        kept["operation"] = operation
        return ArmReply(
            status=202,
            body={"name": call.resource_name, "id": call.path},
            headers=operation.headers,
        )

    def get(call):
        return ArmReply(body={"name": call.resource_name, "id": call.path, "location": "westus2"})

    manager.routes.add("PUT", "Microsoft.Compute/disks", put)
    manager.routes.add("GET", "Microsoft.Compute/disks", get)
    return kept


def begin(client, served):
    body = {"location": "westus2", "properties": {"creationData": {"createOption": "Empty"}}}
    return client.disks.begin_create_or_update(served.world.node_group, "data", body)


def test_a_poller_waits_for_an_operation(served, client, disks):
    disk = begin(client, served).result()

    assert disk.name == "data"
    assert served.calls("operations:get") == 1
    assert served.calls("disks:get") == 1


def test_a_poller_raises_the_error_of_an_operation_that_failed_with_http_200(served, client, disks):
    from karpenter_simulated_azure.arm_api import ArmFault

    error = ArmFault("ZonalAllocationFailed", "no capacity", status=409)
    with served.manager.operations.fail("disks:put", error=error):
        poller = begin(client, served)
        with pytest.raises(HttpResponseError) as caught:
            poller.result()

    assert (caught.value.error.code, caught.value.status_code) == ("ZonalAllocationFailed", 200)


def test_a_stuck_operation_continues_until_its_end_is_set(served, client, disks):
    with served.manager.operations.fail("disks:put", stuck=True):
        poller = begin(client, served)
    poller.wait(0.2)
    assert not poller.done()
    assert len(served.manager.operations.running) == 1

    disks["operation"].done_at = served.time()

    assert poller.result().name == "data"


def test_a_throttled_call_is_refused_with_the_wait_and_then_succeeds(served, client):
    rates = {"compute-reads": SimulatedCallRate(bucket=1, refill=0.5)}
    served.manager.application.endpoint.throttling.set(rates)
    group = served.world.node_group
    served.manager.cluster.add_disk_encryption_set("keys")
    client.disk_encryption_sets.get(group, "keys")

    with pytest.raises(HttpResponseError) as caught:
        client.disk_encryption_sets.get(group, "keys")

    error = caught.value
    assert (error.status_code, error.error.code) == (429, "OperationNotAllowed")
    assert "too many requests" in error.error.message
    assert error.error.details[0].code == "TooManyRequests"
    assert error.response.headers["Retry-After"] == "2"
    served.time.advance(2)
    assert client.disk_encryption_sets.get(group, "keys").name == "keys"
