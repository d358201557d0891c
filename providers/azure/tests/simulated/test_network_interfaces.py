"""Tests networks and stand-alone network interfaces of the simulated Azure over plain HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest

TYPE = "Microsoft.Network/networkInterfaces"
JOIN = "Microsoft.Network/virtualNetworks/subnets/join/action"


@pytest.fixture
def interfaces(served):
    return served.manager.interfaces


@pytest.fixture
def networks(served):
    return served.manager.networks


@pytest.fixture
def nic(served):
    """The path of a network interface."""
    return served.group(f"{TYPE}/aks-default-abc")


def body(served, *, addresses=1, subnet="", pools=(), tags=None, **properties):
    configurations = [
        {
            "name": f"ipconfig{number}",
            "properties": {
                "primary": number == 0,
                "privateIPAllocationMethod": "Dynamic",
                "subnet": {"id": subnet or served.world.subnet_id},
                "loadBalancerBackendAddressPools": [{"id": each} for each in pools],
            },
        }
        for number in range(addresses)
    ]
    return {
        "location": served.world.location,
        "tags": tags or {},
        "properties": {"ipConfigurations": configurations, **properties},
    }


def poll(served, answer):
    """State of an operation now."""
    return served.raw(
        "GET",
        answer.headers["azure-asyncoperation"].removeprefix(served.url),
        headers={"Authorization": f"Bearer {served.token()}"},
    )


def addresses_of(answer):
    return [
        each["properties"]["privateIPAddress"]
        for each in answer.body["properties"]["ipConfigurations"]
    ]


def test_a_created_interface_has_an_address_of_the_subnet_and_is_read_again(served, nic):
    made = served.send("PUT", nic, body(served, tags={"a": "b"}, enableAcceleratedNetworking=True))
    read = served.send("GET", nic)

    assert (made.status, read.status) == (201, 200)
    assert addresses_of(made) == ["10.224.0.4"]
    assert read.body == made.body
    assert read.body["properties"]["enableAcceleratedNetworking"] is True
    assert read.body["tags"] == {"a": "b"}
    assert read.headers["etag"] == read.body["etag"] == made.headers["etag"]
    assert poll(served, made).body["status"] == "Succeeded"


def test_creation_takes_the_configured_time(served, interfaces, nic):
    interfaces.creation_seconds = 3
    made = served.send("PUT", nic, body(served))

    assert made.body["properties"]["provisioningState"] == "Updating"
    assert poll(served, made).body["status"] == "InProgress"
    served.time.advance(3)
    assert poll(served, made).body["status"] == "Succeeded"
    assert served.send("GET", nic).body["properties"]["provisioningState"] == "Succeeded"


def test_interfaces_get_distinct_addresses_and_give_them_back(served, networks, nic):
    first = served.send("PUT", nic, body(served, addresses=30))
    second = served.send("PUT", f"{nic}-2", body(served, addresses=2))
    assert len({*addresses_of(first), *addresses_of(second)}) == 32
    assert networks.subnet(served.world.subnet_id).free == 65531 - 32

    assert served.send("DELETE", nic).status == 202
    assert served.send("GET", nic).status == 404
    third = served.send("PUT", f"{nic}-3", body(served))
    fourth = served.send("PUT", f"{nic}-4", body(served))

    assert addresses_of(third) == addresses_of(first)[:1]
    assert addresses_of(fourth) == addresses_of(first)[1:2]


def test_a_repeated_put_keeps_addresses_and_changes_the_etag(served, nic):
    made = served.send("PUT", nic, body(served, addresses=2))
    again = served.send("PUT", nic, body(served, addresses=3, tags={"x": "y"}))
    fewer = served.send("PUT", nic, body(served, addresses=1))

    assert (again.status, again.body["tags"]) == (200, {"x": "y"})
    assert addresses_of(again)[:2] == addresses_of(made)
    assert addresses_of(fewer) == addresses_of(made)[:1]
    assert len({made.body["etag"], again.body["etag"], fewer.body["etag"]}) == 3


def test_a_full_subnet_refuses_and_keeps_nothing(served, networks, nic):
    subnet = networks.add_subnet(served.world.vnet_id, "small", "10.230.0.0/29")

    assert served.send("PUT", nic, body(served, subnet=subnet.id, addresses=2)).status == 201
    full = served.send("PUT", f"{nic}-2", body(served, subnet=subnet.id, addresses=2))

    assert (full.status, full.code) == (400, "SubnetIsFull")
    assert subnet.id in full.body["error"]["message"]
    assert served.send("GET", f"{nic}-2").status == 404
    assert subnet.free == 1


def test_a_missing_backend_pool_subnet_or_security_group_is_named(served, networks, nic):
    balancer = networks.add_load_balancer("kubernetes", {"kubernetes": ()})
    gone = balancer.pool_id("old")
    for sent, missing in (
        (body(served, pools=[gone]), gone),
        (body(served, subnet=f"{served.world.subnet_id}x"), f"{served.world.subnet_id}x"),
        (body(served, networkSecurityGroup={"id": "/nsg"}), "/nsg"),
    ):
        answer = served.send("PUT", nic, sent)
        assert (answer.status, answer.code) == (400, "InvalidResourceReference")
        assert f"Resource {missing} referenced by" in answer.body["error"]["message"]

    good = served.send("PUT", nic, body(served, pools=[balancer.pool_id("Kubernetes")]))
    assert good.status == 201


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"location": ""}, "LocationRequired"),
        ({"location": "eastus"}, "LocationNotAvailableForResourceType"),
        ({"properties": {"ipConfigurations": []}}, "InvalidRequestFormat"),
        ({"tags": {"a/b": "c"}}, "InvalidTagNameCharacters"),
        ({"tags": {"a": "c" * 257}}, "InvalidTags"),
        ({"tags": {str(number): "" for number in range(51)}}, "InvalidTags"),
        ({"tags": "none"}, "InvalidRequestContent"),
    ],
)
def test_a_malformed_body_is_refused(served, nic, change, code):
    answer = served.send("PUT", nic, body(served) | change)

    assert (answer.status, answer.code) == (400, code)
    assert served.send("GET", nic).status == 404


def test_a_subnet_that_may_not_be_joined_is_a_linked_refusal(served, nic):
    with served.manager.application.permissions.take(JOIN):
        answer = served.send("PUT", nic, body(served))

    assert (answer.status, answer.code) == (403, "LinkedAuthorizationFailed")
    assert (
        f"'{JOIN}' on the linked scope(s) '{served.world.subnet_id}'"
        in (answer.body["error"]["message"])
    )


def test_conditions_on_etags_are_kept(served, nic):
    made = served.send("PUT", nic, body(served))
    etag = made.headers["etag"]

    exists = served.send("PUT", nic, body(served), headers={"If-None-Match": "*"})
    stale = served.send("PATCH", nic, {"tags": {}}, headers={"If-Match": 'W/"0"'})
    good = served.send("PATCH", nic, {"tags": {"a": "b"}}, headers={"If-Match": etag})

    assert (exists.status, exists.code) == (412, "PreconditionFailed")
    assert stale.status == 412
    assert (good.status, good.body["tags"]) == (200, {"a": "b"})
    assert good.headers["etag"] != etag


def test_a_deletion_takes_time_and_of_a_missing_interface_none(served, interfaces, nic):
    interfaces.deletion_seconds = 5
    assert served.send("DELETE", nic).status == 204
    served.send("PUT", nic, body(served))

    answer = served.send("DELETE", nic)

    assert answer.status == 202
    assert served.send("GET", nic).body["properties"]["provisioningState"] == "Deleting"
    location = answer.headers["location"].removeprefix(served.url)
    authorised = {"Authorization": f"Bearer {served.token()}"}
    assert served.raw("GET", location, headers=authorised).status == 202
    served.time.advance(5)
    assert served.raw("GET", location, headers=authorised).status == 204
    assert served.send("GET", nic).status == 404
    served.time.advance(24 * 3600 + 1)
    assert served.raw("GET", location, headers=authorised).status == 404


def test_an_interface_of_a_virtual_machine_is_not_deleted(served, interfaces, nic):
    served.send("PUT", nic, body(served))
    machine = served.group("Microsoft.Compute/virtualMachines/vm")
    interfaces.attach(nic, machine)

    answer = served.send("DELETE", nic)

    assert (answer.status, answer.code) == (400, "NicInUse")
    read = served.send("GET", nic).body["properties"]
    assert read["virtualMachine"] == {"id": machine}
    interfaces.detach(nic, at=served.time() + timedelta(seconds=10))
    assert served.send("DELETE", nic).status == 400
    served.time.advance(10)
    assert served.send("DELETE", nic).status == 202


def test_an_interface_of_a_failed_launch_is_reserved_for_180_seconds(served, interfaces, nic):
    served.send("PUT", nic, body(served))
    machine = served.group("Microsoft.Compute/virtualMachines/vm")
    interfaces.reserve(nic, machine, until=served.time() + timedelta(seconds=180))

    refused = served.send("DELETE", nic)
    with pytest.raises(Exception, match="NicReservedForAnotherVm"):
        interfaces.attach(nic, f"{machine}-2")

    assert (refused.status, refused.code) == (400, "NicReservedForAnotherVm")
    assert machine in refused.body["error"]["message"]
    served.time.advance(180)
    assert served.send("DELETE", nic).status == 202


def test_a_list_has_pages_with_absolute_links_to_the_next(served, nic):
    served.manager.interface_calls.page_size = 2
    for number in range(5):
        served.send("PUT", f"{nic}-{number}", body(served))
    token = served.token()

    names, target = [], f"{served.group(TYPE)}?api-version=2024-07-01"
    while target:
        answer = served.raw("GET", target, headers={"Authorization": f"Bearer {token}"})
        names.append([each["name"] for each in answer.body["value"]])
        link = answer.body.get("nextLink", "")
        assert not link or (
            link.startswith(served.url) and "$skiptoken" in link.replace("%24", "$")
        )
        target = link.removeprefix(served.url)

    assert [len(each) for each in names] == [2, 2, 1]
    assert [name for each in names for name in each] == [
        f"aks-default-abc-{number}" for number in range(5)
    ]
    assert len(served.send("GET", served.subscription(TYPE)).body["value"]) == 2


def test_the_managed_network_is_read(served, networks):
    world = served.world
    vnet = served.send("GET", world.vnet_id).body
    subnet = served.send("GET", world.subnet_id).body
    balancers = served.send("GET", served.group("Microsoft.Network/loadBalancers")).body["value"]
    groups = served.send("GET", served.group("Microsoft.Network/networkSecurityGroups")).body

    assert vnet["properties"]["resourceGuid"] == world.vnet_guid
    assert subnet["properties"]["addressPrefix"] == world.subnet_prefix
    assert [each["name"] for each in balancers] == ["kubernetes"]
    pools = balancers[0]["properties"]["backendAddressPools"]
    assert [each["name"] for each in pools] == ["aksOutboundBackendPool", "kubernetes"]
    assert [each["id"] for each in groups["value"]] == [world.network_security_group_id]
    networks.remove(world.subnet_id)
    assert served.send("GET", world.subnet_id).code == "ResourceNotFound"


def test_an_ip_based_pool_has_addresses(served, networks):
    networks.add_load_balancer("kubernetes-internal", {"by-ip": ("10.0.0.9",)})

    found = served.send("GET", served.group("Microsoft.Network/loadBalancers")).body["value"]

    pool = found[1]["properties"]["backendAddressPools"][0]["properties"]
    assert pool["loadBalancerBackendAddresses"][0]["properties"] == {"ipAddress": "10.0.0.9"}
