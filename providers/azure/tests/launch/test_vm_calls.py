"""Changes of virtual machines are fenced, and an instance view tells why one failed."""

from __future__ import annotations

import pytest

from karpenter_core.errors import FencedError
from karpenter_provider_azure.launch.vm_calls import VmCalls, failure_in_view
from providers.azure.tests.launch.launch_world import FakeArm, settings


class LostLease:
    """The fence of a process that does not hold the lease any more."""

    def check(self) -> None:
        raise FencedError("the lease is lost")


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
        change(VmCalls(arm, settings(), LostLease()))
    assert arm.calls == []


def test_requests_have_the_header_for_images_of_other_tenants():
    arm = FakeArm()
    fence = type("Held", (), {"check": lambda _self: None})()
    calls = VmCalls(arm, settings(), fence, image_headers=lambda: {"auxiliary": "token"})
    calls.create("aks-web-1", {"properties": {}})
    assert arm.headers == [{"If-None-Match": "*", "auxiliary": "token"}]


def test_the_deletion_of_a_virtual_machine_that_is_gone_succeeds():
    fence = type("Held", (), {"check": lambda _self: None})()
    VmCalls(FakeArm(), settings(), fence).delete("aks-web-1")


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
