"""Deleting virtual machines, with everything that belongs to them or does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_azure.invariants import broken_invariants, leftovers


def delete(azure, name="aks-a", *, force=True):
    query = {"forceDeletion": "true"} if force else {}
    return azure.send("DELETE", azure.path(name), **query)


def test_a_deletion_takes_interface_disk_and_extensions_along(azure, cloud):
    azure.create()
    azure.machines.begin_delete(azure.group, "aks-a", force_deletion=True).result()
    assert azure.send("GET", azure.path("aks-a")).status == 404
    assert not list(leftovers(cloud))
    assert broken_invariants(cloud) == []


def test_a_deletion_takes_its_time(azure, cloud):
    cloud.behaviour.terminating_seconds = 15
    azure.create()
    answer = delete(azure)
    assert answer.status == 202
    assert azure.send("GET", azure.path("aks-a")).body["properties"]["provisioningState"] == (
        "Deleting"
    )
    assert len(list(leftovers(cloud))) == 3
    cloud.time.advance(14)
    assert azure.poll(answer)["status"] == "InProgress"
    cloud.time.advance(1)
    assert azure.poll(answer)["status"] == "Succeeded"
    assert not list(leftovers(cloud))


def test_a_deletion_without_force_takes_longer(azure, cloud):
    cloud.behaviour.terminating_seconds = 15
    cloud.behaviour.graceful_seconds = 20
    azure.create()
    answer = delete(azure, force=False)
    cloud.time.advance(34)
    assert azure.poll(answer)["status"] == "InProgress"
    cloud.time.advance(1)
    assert azure.poll(answer)["status"] == "Succeeded"


def test_deleting_a_missing_resource_succeeds(azure):  # case 117
    assert delete(azure).status == 204


def test_a_second_deletion_waits_for_the_first(azure, cloud):
    cloud.behaviour.terminating_seconds = 10
    azure.create()
    delete(azure)
    cloud.time.advance(6)
    second = delete(azure)
    assert second.status == 202
    cloud.time.advance(4)
    assert azure.poll(second)["status"] == "Succeeded"


def test_resources_with_the_detach_option_survive(azure, cloud):
    interface_id, body = azure.interface_path("aks-a"), azure.body("aks-a")
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    interface["properties"]["deleteOption"] = "Detach"
    body["properties"]["storageProfile"]["osDisk"]["deleteOption"] = "Detach"
    azure.put("aks-a", body)
    delete(azure)
    assert [each.id for each in cloud.interfaces.all] == [interface_id]
    assert len(broken_invariants(cloud)) == 2
    disk = azure.compute.disks.get(azure.group, "aks-a")
    assert disk.disk_state == "Unattached"
    azure.compute.disks.begin_delete(azure.group, "aks-a").result()
    assert azure.send("DELETE", interface_id).status == 202
    assert broken_invariants(cloud) == []


def test_the_disk_of_a_living_virtual_machine_is_not_deleted(azure):
    azure.create()
    answer = azure.send("DELETE", azure.path("aks-a", "Microsoft.Compute/disks"))
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")


def test_a_name_is_free_again_after_its_deletion(azure, cloud):
    cloud.behaviour.terminating_seconds = 10
    first = azure.create().vm_id
    delete(azure)
    answer = azure.put()
    assert (answer.status, answer.code) == (409, "Conflict")
    cloud.time.advance(10)
    second = azure.put(headers={"If-None-Match": "*"})
    assert second.status == 201
    assert second.body["properties"]["vmId"] != first
    assert len(cloud.interfaces.all) == len(cloud.disks.ids) == 1


@pytest.mark.parametrize("stuck", [True, False])
def test_a_deletion_that_does_not_succeed_leaves_everything(azure, cloud, stuck):
    azure.create()
    error = None if stuck else CloudError("InternalExecutionError", "an internal error")
    cloud.operations.fail("virtualMachines:delete", stuck=stuck, error=error)
    answer = delete(azure)
    assert azure.poll(answer)["status"] == ("InProgress" if stuck else "Failed")
    assert azure.machines.get(azure.group, "aks-a").provisioning_state == "Succeeded"
    assert len(list(leftovers(cloud))) == 3
    assert delete(azure).status == 202
    assert not list(leftovers(cloud))


def test_addresses_are_given_back(azure, cloud):
    subnet = cloud.networks.subnet(cloud.world.subnet_id)
    free = subnet.free
    azure.create()
    assert subnet.free == free - 1
    delete(azure)
    assert not cloud.interfaces.all
    assert subnet.free == free


def test_each_violated_invariant_is_named(azure, cloud):
    azure.put_interface("aks-orphan")
    azure.create()
    azure.put()
    cloud.operations.fail("virtualMachines:patch", stuck=True)
    azure.send("PATCH", azure.path("aks-a"), {"tags": {}})
    first, second, third = broken_invariants(cloud)
    assert first == (
        f"the network interface {azure.interface_path('aks-orphan')} belongs to no virtual machine"
    )
    assert "virtualMachines:patch" in second
    assert "was put again 1 times" in third


def test_an_evicted_virtual_machine_is_deleted(azure, cloud):
    azure.create(spot=True)
    cloud.reclaim("aks-a")
    machine = cloud.instance("aks-a")
    assert machine.ends_at - cloud.time() <= timedelta(seconds=30)
    assert azure.machines.get(azure.group, "aks-a").provisioning_state == "Succeeded"
    cloud.time.advance(30)
    assert azure.send("GET", azure.path("aks-a")).status == 404
    assert not list(leftovers(cloud))
