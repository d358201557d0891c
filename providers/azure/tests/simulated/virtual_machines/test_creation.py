"""Creating virtual machines: inline network interfaces, disks, conditions, repeated requests."""

from __future__ import annotations

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError


def test_a_virtual_machine_is_created_with_its_interface_and_its_disk(azure, cloud):
    machine = azure.create("aks-a", zone="2", tags={"karpenter.sh_nodepool": "default"})

    assert machine.provisioning_state == "Succeeded"
    assert machine.zones == ["2"]
    assert machine.tags == {"karpenter.sh_nodepool": "default"}
    (interface,) = machine.network_profile.network_interfaces
    assert interface.id == azure.interface_path("aks-a")
    assert interface.delete_option == "Delete"
    assert machine.os_profile.custom_data is None
    seen = azure.send("GET", azure.interface_path("aks-a")).body
    assert seen["properties"]["virtualMachine"]["id"] == machine.id
    disk = azure.compute.disks.get(azure.group, "aks-a")
    assert (disk.managed_by, disk.disk_size_gb) == (machine.id, 128)


def test_a_creation_is_in_progress_until_its_time_has_passed(azure, cloud):
    cloud.behaviour.pending_seconds = 20
    answer = azure.put()
    assert (answer.status, answer.body["properties"]["provisioningState"]) == (201, "Creating")
    assert azure.poll(answer)["status"] == "InProgress"
    cloud.time.advance(20)
    assert azure.poll(answer)["status"] == "Succeeded"
    assert azure.machines.get(azure.group, "aks-a").provisioning_state == "Succeeded"


def test_a_spot_virtual_machine_shows_its_priority(azure):
    machine = azure.create(spot=True)
    assert (machine.priority, machine.eviction_policy) == ("Spot", "Delete")
    assert machine.billing_profile.max_price == -1


def test_a_regional_virtual_machine_has_no_zone(azure, cloud):
    assert azure.create(zone="").zones is None
    assert cloud.instance("aks-a").zone == "0"


def test_a_repeated_request_with_a_condition_finds_the_first_virtual_machine(azure, cloud):
    condition = {"If-None-Match": "*"}
    assert azure.put(headers=condition).status == 201
    again = azure.put(headers=condition)
    assert (again.status, again.code) == (412, "PreconditionFailed")
    with pytest.raises(HttpResponseError) as caught:
        azure.machines.begin_create_or_update(
            azure.group,
            "aks-a",
            azure.body(),
            match_condition=MatchConditions.IfMissing,
        )
    assert caught.value.status_code == 412
    assert len(cloud.living()) == 1
    assert cloud.rewritten == ()


def test_a_repeated_request_without_a_condition_changes_nothing(azure, cloud):
    first = azure.create()
    again = azure.put()
    assert (again.status, again.body["properties"]["vmId"]) == (200, first.vm_id)
    assert again.headers["ETag"] == first.etag
    assert cloud.quotas.used["standarddsv5family"] == 4
    assert cloud.rewritten == (first.id,)


@pytest.mark.parametrize(
    ("path", "value", "target"),
    [
        ("zones", ["2"], "zones"),
        ("properties.hardwareProfile.vmSize", "Standard_D8s_v5", "hardwareProfile.vmSize"),
        ("properties.osProfile.customData", "IyEvYmluL3NoCg==", "osProfile.customData"),
    ],
)
def test_a_repeated_request_for_something_else_is_refused(azure, path, value, target):
    # A claim's virtual machine stays what it was launched as.
    azure.create()
    answer = azure.put(body=azure.changed(path, value))
    assert (answer.status, answer.code) == (409, "PropertyChangeNotAllowed")
    assert answer.body["error"]["target"] == target


def test_a_request_with_a_stale_etag_is_refused(azure):
    first = azure.create()
    azure.send("PATCH", azure.path("aks-a"), {"tags": {"a": "b"}})
    with pytest.raises(ResourceModifiedError):
        azure.machines.begin_create_or_update(
            azure.group,
            "aks-a",
            azure.body(),
            etag=first.etag,
            match_condition=MatchConditions.IfNotModified,
        )


def test_names_match_in_any_casing(azure):
    azure.create("aks-a")
    assert azure.machines.get(azure.group.upper(), "AKS-A").name == "aks-a"


def test_the_interface_of_a_virtual_machine_is_not_deleted(azure):
    azure.create("aks-a")
    refused = azure.send("DELETE", azure.interface_path("aks-a"))
    assert (refused.status, refused.code) == (400, "NicInUse")


def test_an_inline_interface_may_have_another_name_than_was_given(azure, cloud):
    cloud.behaviour.interface_suffix = "-3f2a9c01"
    machine = azure.create("aks-a")
    interface_id = machine.network_profile.network_interfaces[0].id
    assert interface_id == azure.interface_path("aks-a-3f2a9c01")


def test_a_launch_into_a_full_subnet_is_refused_and_leaves_nothing(azure, cloud):
    subnet = cloud.networks.add_subnet(cloud.world.vnet_id, "small", "10.230.0.0/29")
    body = azure.body("aks-a")
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    interface["properties"]["ipConfigurations"] = [
        {"name": f"ip{number}", "properties": {"primary": not number, "subnet": {"id": subnet.id}}}
        for number in range(4)
    ]
    answer = azure.put("aks-a", body)
    assert (answer.status, answer.code) == (400, "SubnetIsFull")
    assert not cloud.living()
    assert not cloud.interfaces.all
    assert not cloud.quotas.used


def test_a_launch_that_names_an_unknown_backend_pool_is_refused(azure, cloud):
    pool = f"{cloud.world.group_path()}/providers/Microsoft.Network/loadBalancers/x/backendAddressPools/y"
    body = azure.body("aks-a")
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    (configuration,) = interface["properties"]["ipConfigurations"]
    configuration["properties"]["loadBalancerBackendAddressPools"] = [{"id": pool}]
    answer = azure.put("aks-a", body)
    assert (answer.status, answer.code) == (400, "InvalidResourceReference")
    assert pool in answer.message
    assert not cloud.living()
