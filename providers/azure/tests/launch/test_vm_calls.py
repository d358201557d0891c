"""Changes of virtual machines are fenced, and an instance view tells why one failed."""

from __future__ import annotations

import pytest

from karpenter_core.errors import FencedError
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.launch.vm_calls import VmCalls, failure_in_view
from providers.azure.tests.launch.launch_world import FakeArm, settings


class LostLease:
    """The fence of a process that does not hold the lease any more."""

    def check(self) -> None:
        raise FencedError("the lease is lost")


def vm_calls(arm, fence, **changes):
    others = {"image_headers": dict, "note_deleted": lambda: None, **changes}
    return VmCalls(arm, settings(), fence, **others)


@pytest.mark.parametrize(
    "change",
    [
        lambda calls: calls.create("aks-web-1", {}),
        lambda calls: calls.delete("aks-web-1"),
        lambda calls: calls.put_extension("aks-web-1", "billing", {}),
    ],
)
def test_a_process_without_the_lease_changes_nothing(change):
    arm = FakeArm()
    with pytest.raises(FencedError):
        change(vm_calls(arm, LostLease()))
    assert arm.calls == []


def test_requests_have_the_header_for_images_of_other_tenants():
    arm = FakeArm()
    fence = type("Held", (), {"check": lambda _self: None})()
    calls = vm_calls(arm, fence, image_headers=lambda: {"auxiliary": "token"})
    calls.create("aks-web-1", {"properties": {}})
    assert arm.headers == [{"If-None-Match": "*", "auxiliary": "token"}]


class GoneArm(FakeArm):
    """The virtual machine that is deleted is gone already."""

    def send(self, *_arguments, **_options):
        raise ArmNotFoundError("there is no such virtual machine", status=404)


@pytest.mark.parametrize(("arm", "noted"), [(FakeArm(), 1), (GoneArm(), 0)], ids=["there", "gone"])
def test_only_a_deletion_that_azure_begins_frees_quota(arm, noted):
    """A virtual machine that is gone already is deleted: that is no error, and frees nothing."""
    fence = type("Held", (), {"check": lambda _self: None})()
    deletions = []
    vm_calls(arm, fence, note_deleted=lambda: deletions.append(1)).delete("aks-web-1")
    assert len(deletions) == noted


def view(*statuses):
    return {"properties": {"instanceView": {"statuses": list(statuses)}}}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (view({"code": "ProvisioningState/failed/X", "message": "why"}), "X", "why"),
        (view({"code": "provisioningstate/Failed", "displayStatus": "bad"}), "Failed", "bad"),
        (view({"code": "ProvisioningState/canceled"}), "canceled", ""),
        (view({"code": "PowerState/running"}, {"code": "ProvisioningState/failed/X/Y"}), "X/Y", ""),
    ],
)
def test_the_failure_of_an_instance_view_is_read(body, code, message):
    error = failure_in_view(body)
    assert (error.code, error.message, error.status) == (code, message, 200)


@pytest.mark.parametrize(
    "body",
    [{}, {"properties": None}, view(), view({"code": "ProvisioningState/succeeded"}), view({})],
)
def test_an_instance_view_without_a_failure_has_no_error(body):
    assert failure_in_view(body) is None
