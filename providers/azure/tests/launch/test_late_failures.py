"""Launches that fail after Azure accepted them are announced like refusals."""

from __future__ import annotations

import pytest

from karpenter_core.api.conditions import TRUE, Condition
from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import (
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.kit.late_failures import LateFailures
from providers.azure.tests.launch.launch_world import LaunchWorld, claim

D2 = "Standard_D2s_v5"


def launched(made, name="web-1", *, registered=False):
    """Launch a claim, and let the cluster know its instance."""
    outcome = made.launch(name)
    own = claim(name)
    conditions = (Condition(type="Registered", status=TRUE),) if registered else ()
    status = own.status.model_copy(
        update={"provider_id": outcome.provider_id, "conditions": conditions}
    )
    made.claims[name] = own.model_copy(update={"status": status})
    return outcome


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_failed_operation_names_the_exhausted_offerings(forgotten):
    """Its error is that of the operation, or after a restart that of the instance view."""
    made = LaunchWorld()
    outcome = launched(made)
    made.arm.fail("aks-web-1", "ZonalAllocationFailed", "full", forgotten=forgotten)
    if forgotten:
        made.start()
    (announced,) = LateFailures(made.failed.read, lambda: made.claims).poll()
    assert announced.kind is InterruptionKind.LAUNCH_FAILED  # case 83
    assert announced.provider_id == outcome.provider_id
    assert isinstance(announced.error, InsufficientCapacityError)  # case 101
    assert {group.zone for group in announced.error.quota_groups} == {outcome.zone}
    assert not made.is_available(D2, outcome.zone, SPOT)
    assert not made.is_available(D2, outcome.zone, ON_DEMAND)
    assert made.observer.failed == [("async", "ZonalAllocationFailed")]


def test_a_failure_is_recorded_once():
    """A repeated announcement neither prolongs the marks nor reads the error again."""
    made = LaunchWorld()
    zone = launched(made).zone
    made.arm.fail("aks-web-1", "ZonalAllocationFailed")
    made.failed.read()
    made.clock.forward(minutes=59)
    assert len(made.failed.read()) == 1
    assert made.arm.counts["operations:get"] == 1
    made.clock.forward(minutes=2)
    assert made.is_available(D2, zone, SPOT)
    assert len(made.observer.failed) == 1


def test_a_virtual_machine_of_the_same_name_fails_anew():
    made = LaunchWorld()
    launched(made)
    made.arm.fail("aks-web-1", "ZonalAllocationFailed")
    made.failed.read()
    made.vm()["properties"]["vmId"] = "another"
    made.failed.read()
    assert len(made.observer.failed) == 2


def test_nothing_is_listed_while_all_nodes_are_registered():
    made = LaunchWorld()
    launched(made, registered=True)
    assert LateFailures(made.failed.read, lambda: made.claims).poll() == []
    assert made.arm.counts["virtualMachines:list"] == 0


def test_a_registered_node_whose_update_failed_is_no_failed_launch():
    made = LaunchWorld()
    launched(made, "old", registered=True)
    launched(made, "new")
    made.arm.fail("aks-old", "Conflict")
    assert made.failed.read() == {}


def test_a_failed_extension_is_no_failed_launch():
    made = LaunchWorld()
    launched(made)
    made.arm.fail("aks-web-1", "VMExtensionProvisioningError", forgotten=True)
    assert made.failed.read() == {}
    assert made.failed.read() == {}
    assert made.arm.counts["virtualMachines:get"] == 1


def test_a_new_virtual_machine_without_a_claim_is_announced_and_an_old_one_is_not():
    """A new leader learns from it what the last one knew."""
    made = LaunchWorld()
    made.launch("gone")
    made.arm.fail("aks-gone", "ZonalAllocationFailed")
    assert len(made.failed.read()) == 1
    made.clock.forward(hours=2)
    assert made.failed.read() == {}


def test_a_failure_without_a_reason_is_announced():
    made = LaunchWorld()
    launched(made)
    made.arm.fail("aks-web-1", "X", forgotten=True)
    made.arm.views.clear()
    (error,) = made.failed.read().values()
    assert isinstance(error, LaunchFailedError)


def test_many_failures_are_read_over_several_polls():
    made = LaunchWorld()
    for number in range(50):
        launched(made, f"web-{number}")
        made.arm.fail(f"aks-web-{number}", "AllocationFailed", forgotten=True)
    assert [len(made.failed.read()) for _ in range(4)] == [20, 40, 50, 50]


def test_an_error_that_cannot_be_read_is_read_later():
    made = LaunchWorld()
    launched(made, "web-1")
    launched(made, "web-2")
    made.arm.fail("aks-web-1", "AllocationFailed", forgotten=True)
    made.arm.fail("aks-web-2", "AllocationFailed", forgotten=True)
    errors = [CloudProviderError("no answer"), None, ThrottledError("slow")]
    read = made.arm.get

    def get(*args, **kwargs):
        error = errors.pop(0) if errors else None
        if error is not None:
            raise error
        return read(*args, **kwargs)

    made.arm.get = get
    assert [len(made.failed.read()) for _ in range(3)] == [1, 1, 2]


def test_throttling_ends_the_reading_of_a_poll():
    made = LaunchWorld()
    for number in range(5):
        launched(made, f"web-{number}")
        made.arm.fail(f"aks-web-{number}", "AllocationFailed", forgotten=True)
    reads = []

    def get(*args, **_kwargs):
        reads.append(args)
        raise ThrottledError("slow")

    made.arm.get = get
    assert made.failed.read() == {}
    assert len(reads) == 1
