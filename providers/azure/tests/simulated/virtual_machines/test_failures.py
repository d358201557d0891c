"""Creations that fail late, are canceled, are stuck or slow; network interfaces that stay reserved."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.pools import InstancePool


def test_a_failed_virtual_machine_stays_and_shows_the_error_code(azure, cloud):
    cloud.fail_late(code="ZonalAllocationFailed", message="no capacity", after_seconds=10)
    answer = azure.put()
    assert answer.status == 201
    cloud.time.advance(9)
    assert azure.machines.get(azure.group, "aks-a").provisioning_state == "Creating"
    cloud.time.advance(1)

    told = azure.poll(answer)
    assert (told["status"], told["error"]["code"]) == ("Failed", "ZonalAllocationFailed")
    machine = azure.machines.get(azure.group, "aks-a", expand="instanceView")
    assert machine.provisioning_state == "Failed"
    status = machine.instance_view.statuses[0]
    assert status.code == "ProvisioningState/failed/ZonalAllocationFailed"
    assert (status.level, status.message) == ("Error", "no capacity")
    assert cloud.node("aks-a") is None


def test_a_failed_virtual_machine_uses_quota_until_it_is_deleted(azure, cloud):
    cloud.fail_late(code="AllocationFailed")
    azure.put()
    assert cloud.quotas.used["cores"] == 4
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")
    assert not cloud.quotas.used


def test_an_inline_interface_is_deleted_with_a_failed_virtual_machine(azure, cloud):
    cloud.fail_late(code="AllocationFailed")
    azure.put()
    assert [each.name for each in cloud.interfaces.all] == ["aks-a"]
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")
    assert not cloud.interfaces.all
    assert not cloud.disks.ids


def test_an_interface_that_a_failure_leaves_behind_stays_reserved(azure, cloud):  # case 119
    cloud.behaviour.orphans_interfaces = True
    cloud.fail_late(code="AllocationFailed")
    azure.put()
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")

    interface_id = azure.interface_path("aks-a")
    refused = azure.send("DELETE", interface_id)
    assert (refused.status, refused.code) == (400, "NicReservedForAnotherVm")
    cloud.time.advance(179)
    assert azure.send("DELETE", interface_id).code == "NicReservedForAnotherVm"
    cloud.time.advance(1)
    assert azure.send("DELETE", interface_id).status == 202
    assert not cloud.interfaces.all


def test_a_failure_strikes_as_often_as_was_said(azure, cloud):
    cloud.fail_late(code="AllocationFailed", times=1, pool=InstancePool(zone="westus2-1"))
    azure.put("aks-a", zone="2")
    azure.put("aks-b", zone="1")
    azure.put("aks-c", zone="1")
    states = {each.name: str(cloud.instances.state_of(each)) for each in cloud.living()}
    assert states == {"aks-a": "Succeeded", "aks-b": "Failed", "aks-c": "Succeeded"}


def test_an_operation_that_is_stuck_never_ends(azure, cloud):
    with cloud.operations.fail("virtualMachines:put", stuck=True):
        answer = azure.put()
    cloud.time.advance(7200)
    assert azure.poll(answer)["status"] == "InProgress"
    assert azure.machines.get(azure.group, "aks-a").provisioning_state == "Creating"
    assert cloud.node("aks-a") is None
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")
    assert azure.poll(answer)["status"] == "Canceled"


@pytest.mark.parametrize("fault", ["canceled", "error"])
def test_a_fault_of_an_operation_decides_about_the_virtual_machine(azure, cloud, fault):
    error = CloudError("InternalExecutionError", "an internal error")
    with cloud.operations.fail(
        "virtualMachines:put",
        canceled=fault == "canceled",
        error=error if fault == "error" else None,
    ):
        answer = azure.put()
    wanted = "Canceled" if fault == "canceled" else "Failed"
    assert azure.poll(answer)["status"] == wanted
    assert azure.machines.get(azure.group, "aks-a").provisioning_state == "Failed"


def test_slow_launches_hold_up_no_others(azure, cloud):
    with cloud.slow_launches(300, InstancePool(zone="westus2-1")):
        slow, fast = azure.put("aks-a", zone="1"), azure.put("aks-b", zone="2")
    assert azure.poll(fast)["status"] == "Succeeded"
    assert azure.poll(slow)["status"] == "InProgress"
    cloud.time.advance(300)
    assert azure.poll(slow)["status"] == "Succeeded"


def test_a_creation_ends_as_canceled_when_its_virtual_machine_is_deleted(azure, cloud):
    cloud.behaviour.pending_seconds = 60
    answer = azure.put()
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")
    told = azure.poll(answer)
    assert (told["status"], told["error"]["code"]) == ("Canceled", "OperationPreempted")


def test_a_failed_virtual_machine_that_is_put_again_fails_again(azure, cloud):
    cloud.fail_late(code="AllocationFailed", times=1)
    azure.put()
    again = azure.put()
    assert (again.status, azure.poll(again)["error"]["code"]) == (200, "AllocationFailed")


def test_a_refusal_by_a_fault_has_the_form_of_azure(azure, cloud):
    cloud.fail("virtualMachines:put", code="InternalServerError", message="oops", status=500)
    answer = azure.put()
    assert (answer.status, answer.code, answer.message) == (500, "InternalServerError", "oops")
    assert azure.put().status == 201


def test_a_lost_reply_has_created_the_virtual_machine(azure, cloud):  # case 91
    cloud.lose_replies("virtualMachines:put")
    with pytest.raises(Exception, match=r"aborted|closed|reset|EOF"):
        azure.put(headers={"If-None-Match": "*"})
    assert azure.put(headers={"If-None-Match": "*"}).status == 412
    assert len(cloud.living()) == 1
