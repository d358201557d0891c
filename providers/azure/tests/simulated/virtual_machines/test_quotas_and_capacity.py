"""Quotas of cores, and capacity that is missing at once or late."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError
from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_azure.allocation import AllocationCode

FAMILY = "standardDSv5Family"


def test_a_family_quota_refuses_with_the_numbers_of_the_family(azure, cloud):  # case 94
    cloud.usages.set_limit(FAMILY, 100)
    cloud.quotas.use_elsewhere(FAMILY, 96)
    answer = azure.put(size="Standard_D32s_v5")
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")
    for text in (
        f"exceeding approved {FAMILY} Cores quota",
        (
            "Location: westus2, Current Limit: 100, Current Usage: 96, Additional Required: 32,"
            " (Minimum) New Limit Required: 128."
        ),
    ):
        assert text in answer.message
    assert azure.put(size="Standard_D4s_v5").status == 201


def test_a_family_without_quota_shows_the_limit_0(azure, cloud):  # case 95
    cloud.usages.set_limit(FAMILY, 0)
    assert "Current Limit: 0" in azure.put().message


def test_the_regional_quota_counts_every_family_and_no_spot(azure, cloud):  # case 100
    cloud.usages.set_limit("cores", 8)
    azure.create("aks-a", size="Standard_D4s_v5")
    azure.create("aks-b", size="Standard_E4s_v5")
    answer = azure.put("aks-c", size="Standard_D4s_v3")
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")
    assert "exceeding approved Total Regional Cores quota" in answer.message
    assert azure.put("aks-d", spot=True).status == 201


def test_the_spot_quota_is_one_for_all_sizes(azure, cloud):  # case 93
    cloud.usages.set_limit("lowPriorityCores", 4)
    azure.create("aks-a", spot=True)
    answer = azure.put("aks-b", size="Standard_E4s_v5", spot=True)
    assert answer.code == "OperationNotAllowed"
    assert "LowPriorityCores" in answer.message
    assert azure.put("aks-c").status == 201


def test_a_virtual_machine_uses_quota_until_its_deletion_is_complete(azure, cloud):
    cloud.usages.set_limit(FAMILY, 4)
    cloud.behaviour.pending_seconds = 30
    cloud.behaviour.terminating_seconds = 20
    azure.put("aks-a")
    assert azure.put("aks-b").code == "OperationNotAllowed"
    azure.send("DELETE", azure.path("aks-a"), forceDeletion="true")
    cloud.time.advance(19)
    assert azure.put("aks-b").code == "OperationNotAllowed"
    cloud.time.advance(1)
    assert azure.put("aks-b").status == 201


def test_used_vcpus_are_those_of_the_region_usages(azure, cloud):
    cloud.usages.set_limit(FAMILY, 10)
    azure.create("aks-a")
    azure.create("aks-b", spot=True)
    told = {each.name.value: each for each in azure.compute.usage.list(cloud.world.location)}
    assert (told[FAMILY].current_value, told[FAMILY].limit) == (4, 10)
    assert (told["cores"].current_value, told["lowPriorityCores"].current_value) == (4, 4)


@pytest.mark.parametrize(
    ("spot", "zone", "code"),
    [
        (False, "1", "ZonalAllocationFailed"),
        (False, "", "AllocationFailed"),
        (True, "1", "OverconstrainedZonalAllocationRequest"),
        (True, "", "OverconstrainedAllocationRequest"),
    ],
)
def test_a_pool_without_capacity_refuses_in_the_words_for_its_place(azure, cloud, spot, zone, code):
    with cloud.capacity.sell_out():
        answer = azure.put(spot=spot, zone=zone)
    assert (answer.status, answer.code) == (409, code)
    assert not cloud.living()
    assert not cloud.interfaces.all
    assert azure.put(spot=spot, zone=zone).status == 201


def test_a_zone_without_capacity_leaves_the_others(azure, cloud):
    cloud.capacity.sell_out(zone="westus2-1", capacity_type="on-demand")
    assert azure.put("aks-a", zone="1").code == "ZonalAllocationFailed"
    assert azure.put("aks-b", zone="2").status == 201
    assert azure.put("aks-c", zone="").status == 201
    assert azure.put("aks-d", zone="1", spot=True).status == 201


def test_the_code_of_a_pool_without_capacity_may_be_chosen(azure, cloud):
    cloud.capacity.code_of = lambda _pool: AllocationCode.NOT_AVAILABLE
    cloud.capacity.sell_out()
    answer = azure.put(spot=True)
    assert (answer.status, answer.code) == (409, "SkuNotAvailable")
    assert "Standard_D4s_v5" in answer.message


def test_stock_is_given_back_by_deletions(azure, cloud):
    cloud.capacity.stock(InstancePool(zone="westus2-1"), 1)
    azure.create("aks-a")
    assert azure.put("aks-b").code == "ZonalAllocationFailed"
    azure.machines.begin_delete(azure.group, "aks-a", force_deletion=True).result()
    assert azure.put("aks-b").status == 201


def test_capacity_may_be_missed_late_in_an_operation_that_is_answered_with_200(azure, cloud):
    # case 101
    cloud.behaviour.allocation_seconds = 5
    cloud.capacity.sell_out(zone="westus2-1")
    answer = azure.put()
    assert answer.status == 201
    cloud.time.advance(5)
    assert azure.poll(answer)["error"]["code"] == "ZonalAllocationFailed"
    assert cloud.instances.state_of(cloud.instance("aks-a")) == "Failed"
    assert cloud.capacity.left(cloud.instance("aks-a").pool) == 0


def test_refusals_of_pools_come_as_conflicts(azure, cloud):
    with cloud.fail_pools(code="SkuNotAvailable", capacity_type="spot"):
        answer = azure.put(spot=True)
        assert (answer.status, answer.code) == (409, "SkuNotAvailable")
        assert azure.put("aks-b").status == 201


def test_launches_are_recorded_with_their_attempted_offerings(azure, cloud):
    cloud.capacity.sell_out(zone="westus2-1")
    azure.put("aks-a", zone="1")
    azure.put("aks-b", zone="2")
    first, second = cloud.launches.all
    assert [each.zone for each in first.sold_out] == ["westus2-1"]
    assert [each.zone for each in second.bought] == ["westus2-2"]


def test_a_late_failure_raises_in_the_poller(azure, cloud):
    cloud.fail_late(code="AllocationFailed", message="no capacity")
    with pytest.raises(HttpResponseError) as caught:
        azure.create()
    assert (caught.value.status_code, caught.value.error.code) == (200, "AllocationFailed")


@settings(max_examples=20, deadline=None)
@given(
    limit=st.integers(0, 64),
    launches=st.lists(
        st.tuples(st.sampled_from(["Standard_D4s_v5", "Standard_D8s_v5"]), st.booleans()),
        max_size=6,
    ),
)
def test_no_quota_is_ever_exceeded(azure_caller, limit, launches):
    cloud = azure_caller.cloud
    cloud.reset()
    for name in (FAMILY, "lowPriorityCores"):
        cloud.usages.set_limit(name, limit)
    accepted = {True: 0, False: 0}
    for number, (size, spot) in enumerate(launches):
        cores = 4 if size == "Standard_D4s_v5" else 8
        status = azure_caller.put(f"aks-{number}", size=size, spot=spot).status
        assert status == (201 if accepted[spot] + cores <= limit else 409)
        accepted[spot] += cores if status == 201 else 0
    used = cloud.quotas.used
    assert used.get(FAMILY.lower(), 0) == accepted[False]
    assert used.get("lowprioritycores", 0) == accepted[True]
