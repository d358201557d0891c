"""Tests the provider's client against the simulated Azure, with its own credential chain."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError, ThrottledError
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.simulated.faults import CloudFault, CloudFaultKind
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_provider_azure.arm.client import ArmClient
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.arm.graph import query
from karpenter_provider_azure.arm.operations import (
    operation_url,
    state_of_poll,
)
from karpenter_provider_azure.cloud_environment import CloudEnvironment
from karpenter_provider_azure.settings import AzureSettings
from karpenter_simulated_azure.arm_api import ArmFault

NIC = "Microsoft.Network/networkInterfaces"
VERSION = "2024-07-01"


@pytest.fixture
def waits():
    return []


@pytest.fixture
def remaining():
    return {}


@pytest.fixture
def client(served, workload_identity, waits, remaining, monkeypatch):
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")  # the bundle of the settings is enough, for tokens too
    world = served.world
    settings = AzureSettings(
        cluster_name=world.cluster_name,
        cluster_endpoint="https://cluster.example.com",
        kubelet_bootstrap_token="abcdef.0123456789abcdef",
        ssh_public_key="ssh-ed25519 AAAA",
        vnet_subnet_id=world.subnet_id,
        node_resource_group=world.node_group,
        azure_subscription_id=world.subscription_id,
        azure_tenant_id=world.tenant_id,
        location=world.location,
        cloud=CloudEnvironment(
            name="",
            resource_manager=served.url,
            audience="https://management.azure.com",
            authority=served.url,
            is_named=False,
        ),
        ca_bundle=str(served.certificates.ca_bundle),
    )
    made = ArmClient(
        settings,
        observe_remaining=remaining.update,
        sleep=lambda seconds: (waits.append(seconds), served.time.advance(seconds)),
        observe=None,
    )
    yield made
    made.close()


def put_interface(client, served, name="aks-a", **more):
    path = served.group(f"{NIC}/{name}")
    body = {
        "location": served.world.location,
        "tags": {"karpenter.sh_nodepool": "default"},
        "properties": {
            "ipConfigurations": [
                {"name": "a", "properties": {"subnet": {"id": served.world.subnet_id}}}
            ]
        },
    }
    return path, client.send(
        "PUT",
        path,
        api_version=VERSION,
        action="networkInterfaces:put",
        body=body,
        **more,
    )


def test_a_write_is_followed_to_its_end(served, client):
    served.manager.interfaces.creation_seconds = 3
    path, answer = put_interface(client, served)
    url = operation_url(answer)

    before = state_of_poll(client.follow(url, action="operations:get"))
    served.time.advance(3)
    after = state_of_poll(client.follow(url, action="operations:get"))

    assert (before.is_done, after.is_done, after.error) == (False, True, None)
    found = client.get(path, api_version=VERSION, action="networkInterfaces:get")
    assert found["properties"]["provisioningState"] == "Succeeded"


def test_a_failed_operation_keeps_its_code(served, client):
    error = ArmFault("ZonalAllocationFailed", "no capacity", status=409)
    with served.manager.operations.fail("networkInterfaces:put", error=error):
        _, answer = put_interface(client, served)

    state = state_of_poll(client.follow(operation_url(answer), action="operations:get"))

    assert (state.is_done, state.error.code) == (True, "ZonalAllocationFailed")


def test_every_page_of_a_list_and_of_the_graph_is_read(served, client):
    for number in range(5):
        put_interface(client, served, f"aks-{number}")
    served.manager.interface_calls.page_size = 2
    served.manager.graph.page_size = 2
    served.time.advance(2)

    listed = client.list_all(
        served.group(NIC), api_version=VERSION, action="networkInterfaces:list"
    )
    text = (
        f'Resources | where type == "{NIC.lower()}"'
        f' | where resourceGroup == "{served.world.node_group.lower()}"'
        ' | where tags has_cs "karpenter.sh_nodepool"'
    )
    rows = query(client, text)

    expected = [f"aks-{number}" for number in range(5)]
    assert [each["name"] for each in listed] == expected
    assert [each["name"] for each in rows] == expected
    assert served.calls("networkInterfaces:list") == 3
    assert served.calls("resources:query") == 3


def test_a_throttled_call_waits_as_long_as_azure_says(served, client, waits, remaining):
    rates = {"network-reads": SimulatedCallRate(bucket=1, refill=1 / 3)}
    served.manager.application.endpoint.throttling.set(rates)
    path = served.world.subnet_id

    for _ in range(2):
        client.get(path, api_version=VERSION, action="subnets:get")

    assert waits
    assert sum(waits) >= 3
    assert served.calls("subnets:get") == 3
    assert remaining["subscription-reads"] > 0


def test_an_empty_bucket_of_the_subscription_is_throttling_at_last(served, client):
    rates = {"subscription-reads": SimulatedCallRate(bucket=0, refill=0)}
    served.manager.application.endpoint.throttling.set(rates)

    with pytest.raises(ThrottledError):
        client.get(served.world.subnet_id, api_version=VERSION, action="subnets:get")


def test_a_missing_role_an_unknown_resource_and_a_cut_connection_give_different_errors(
    served, client
):
    path, faults = served.world.subnet_id, served.manager.application.endpoint.faults
    action = "Microsoft.Network/virtualNetworks/subnets/read"

    with served.manager.application.permissions.take(action), pytest.raises(AuthError):
        client.get(path, api_version=VERSION, action="subnets:get")
    with pytest.raises(ArmNotFoundError):
        client.get(f"{path}x", api_version=VERSION, action="subnets:get")
    fault = faults.add(CloudFault(kind=CloudFaultKind.LOST_REPLY, action="networkInterfaces:put"))
    with pytest.raises(UncertainCallError):
        put_interface(client, served)
    fault.end()

    assert served.send("GET", served.group(f"{NIC}/aks-a")).status == 200
    assert client.get(path, api_version=VERSION, action="subnets:get")["id"] == path
