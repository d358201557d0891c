"""Launches in the simulated Azure, through its real SDK."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import (
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClaimNotFoundError,
    ThrottledError,
)
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_simulated_azure.invariants import broken_invariants, leftovers

D2, D4 = "Standard_D2s_v5", "Standard_D4s_v5"
PUT = "virtualMachines:put"
REGULAR = RequirementSpec(key=CAPACITY_TYPE, operator="In", values=(ON_DEMAND,))


def in_zone(number):
    return RequirementSpec(key=ZONE, operator="In", values=(f"westus2-{number}",))


def machine(cloud, outcome):
    return cloud.instance(outcome.provider_id)


def test_a_launched_virtual_machine_becomes_a_node(cloud, launches):
    outcome = launches().launch()
    cloud.time.advance(300)
    node = cloud.node(outcome.provider_id)
    assert node["spec"]["providerID"] == outcome.provider_id  # case 90
    assert node["metadata"]["labels"][ZONE] == outcome.zone
    assert outcome.capacity_type == SPOT
    taints = {taint["key"] for taint in node["spec"]["taints"]}
    assert "karpenter.sh/unregistered" in taints
    assert broken_invariants(cloud) == []


def test_a_virtual_machine_is_deleted_with_its_disk_and_interface(cloud, launches):
    made = launches()
    made.launch()
    cloud.time.advance(60)
    assert len(list(leftovers(cloud))) == 3  # case 74
    made.parts.launch.calls.delete("aks-web-1")
    cloud.time.advance(120)
    assert list(leftovers(cloud)) == []
    assert broken_invariants(cloud) == []


def test_a_zone_that_is_full_is_left_out_in_the_same_launch(cloud, launches):
    made = launches()
    for zone in ("westus2-1", "westus2-2"):
        cloud.capacity.sell_out(zone=zone)
    outcomes = [made.launch(f"web-{n}") for n in range(8)]
    assert {outcome.zone for outcome in outcomes} == {"westus2-3"}  # case 97
    refused = cloud.calls.count(PUT) - len(outcomes)
    assert 1 <= refused <= 4
    assert broken_invariants(cloud) == []


def test_the_quota_of_spot_leads_to_on_demand(cloud, launches):
    made = launches()
    cloud.usages.set_limit("lowPriorityCores", 1)
    outcome = made.launch()  # case 93
    assert outcome.capacity_type == ON_DEMAND
    assert [group.capacity_type for group in outcome.shortages[0].quota_groups] == [SPOT]


def test_the_quota_of_a_family_leads_to_another_one(cloud, launches):
    made = launches()
    cloud.usages.set_limit("standardDSv5Family", 0)
    outcome = made.launch("web-1", D2, "Standard_D4ds_v5", requirements=(REGULAR,))
    assert outcome.instance_type == "Standard_D4ds_v5"
    assert cloud.calls.count(PUT) == 2


def test_a_cached_quota_is_not_requested(cloud, launches):
    made = launches()
    cloud.usages.set_limit("standardDSv5Family", 3)
    made.parts.catalogue.quotas.refresh()
    assert made.launch(requirements=(REGULAR,)).instance_type == D2
    with pytest.raises(InsufficientCapacityError):
        made.launch("web-2", requirements=(REGULAR,))
    assert cloud.calls.count(PUT) == 1


def test_the_quota_of_a_deleted_virtual_machine_can_be_used_soon(cloud, launches):
    made = launches()
    quotas = made.parts.catalogue.quotas
    cloud.usages.set_limit("standardDSv5Family", 3)
    made.launch(requirements=(REGULAR,))
    cloud.time.advance(60)
    quotas.refresh()
    assert not quotas.is_due()

    made.parts.launch.calls.delete("aks-web-1")
    cloud.time.advance(60)
    assert quotas.is_due()
    quotas.refresh()

    assert made.launch("web-2", requirements=(REGULAR,)).instance_type == D2


def test_a_launch_that_fails_later_is_announced(cloud, launches):
    made = launches()
    cloud.behaviour.allocation_seconds = 10
    cloud.capacity.sell_out(zone="westus2-1")
    outcome = made.launch(requirements=(in_zone(1),))
    assert made.parts.launch.late_failures.poll() == []
    cloud.time.advance(20)
    (announced,) = made.parts.launch.late_failures.poll()
    assert announced.kind is InterruptionKind.LAUNCH_FAILED  # cases 83 and 101
    assert announced.provider_id == outcome.provider_id
    assert {group.zone for group in announced.error.quota_groups} == {"westus2-1"}
    failed = made.sample("karpenter_instance_vm_create_failure_total", phase="async")
    assert failed == 1
    made.parts.launch.late_failures.acknowledge([announced.id])
    assert made.parts.launch.late_failures.poll() == []
    made.parts.launch.calls.delete("aks-web-1")
    cloud.time.advance(300)
    assert list(leftovers(cloud)) == []


def test_a_new_process_learns_the_reason_from_the_instance_view(cloud, launches):
    made = launches()
    cloud.behaviour.allocation_seconds = 10
    cloud.capacity.sell_out(zone="westus2-1")
    made.launch(requirements=(in_zone(1),))
    cloud.time.advance(20)
    made.start()
    (announced,) = made.parts.launch.late_failures.poll()
    assert isinstance(announced.error, InsufficientCapacityError)
    assert {group.zone for group in announced.error.quota_groups} == {"westus2-1"}


def test_a_failed_virtual_machine_is_discarded_by_the_next_launch_of_its_claim(cloud, launches):
    made = launches()
    cloud.behaviour.allocation_seconds = 10
    cloud.capacity.sell_out(zone="westus2-1")
    made.launch(requirements=(in_zone(1),))
    cloud.time.advance(20)
    made.start()
    with pytest.raises(InsufficientCapacityError):
        made.launch(requirements=(in_zone(1),))
    cloud.time.advance(300)
    assert list(leftovers(cloud)) == []


def test_a_restart_adopts_the_virtual_machine(cloud, launches):
    made = launches()
    before = made.launch()
    made.start()
    after = made.launch()  # case 91
    assert (after.provider_id, after.zone, after.capacity_type, after.image_id) == (
        before.provider_id,
        before.zone,
        before.capacity_type,
        before.image_id,
    )
    assert len(cloud.living()) == 1
    assert broken_invariants(cloud) == []


def test_a_lost_reply_launches_no_second_instance(cloud, launches):
    made = launches()
    cloud.lose_replies(PUT, times=1)
    assert made.launch().provider_id
    assert len(cloud.living()) == 1
    assert broken_invariants(cloud) == []


def test_the_catalogue_shows_shortages_of_launches_and_their_end(cloud, launches):
    made = launches()
    cloud.capacity.sell_out(zone="westus2-1")

    def open_zones():
        types = made.parts.catalogue.types.instance_types(made.node_class())
        (d2,) = (it for it in types if it.name == D2)
        return {offering.zone[-1] for offering in d2.offerings if offering.available}

    before = made.parts.catalogue.types.instance_types(made.node_class())
    with pytest.raises(InsufficientCapacityError):
        made.launch(requirements=(in_zone(1),))
    assert open_zones() == {"2", "3", "0"}
    cloud.time.advance(3610)  # case 104
    assert open_zones() == {"1", "2", "3", "0"}
    assert made.parts.catalogue.types.instance_types(made.node_class()) is not before


def test_a_throttled_launch_marks_nothing_and_waits(cloud, launches):
    made = launches()
    text = "The server rejected the request because too many requests have been received"
    refused = cloud.fail(
        PUT, code="OperationNotAllowed", message=text, status=429, retry_after_seconds=1, times=1
    )
    assert made.launch().provider_id  # case 103: the client waits, and sends it again
    assert refused.struck == 1
    assert made.marks.is_empty


def test_a_long_throttling_holds_no_thread(cloud, launches):
    made = launches()
    cloud.fail(PUT, code="OperationNotAllowed", status=429, retry_after_seconds=60, times=None)
    with pytest.raises(ThrottledError) as raised:
        made.launch()
    assert raised.value.retry_after.total_seconds() > 50


def test_a_truncated_answer_launches_no_second_instance(cloud, launches):
    made = launches()
    with cloud.cut_bodies(PUT) as fault:
        outcome = made.launch()
    assert fault.struck == 1
    assert [cloud.provider_id(each) for each in cloud.living()] == [outcome.provider_id]
    assert broken_invariants(cloud) == []


@pytest.mark.parametrize("page", ["first", "second"])
@pytest.mark.parametrize("how", ["cut", "refused"])
def test_a_listing_that_breaks_off_is_no_shorter_listing(cloud, launches, page, how):
    """Nodes would count as gone, and their claims be ended."""
    made = launches()
    ids = sorted(made.launch(f"web-{number}").provider_id for number in range(3))
    hooks = made.provider.hooks
    cloud.behaviour.instances_per_page = 2
    assert [each.provider_id for each in hooks.list_instances().instances] == ids

    def is_struck(parameters):
        return ("$skiptoken" in parameters["query"]) is (page == "second")

    listing = "virtualMachines:list"
    fault = (
        cloud.cut_bodies(listing, times=None, where=is_struck)
        if how == "cut"
        else cloud.fail(listing, code="InternalError", status=500, times=None, where=is_struck)
    )
    with fault:
        for call in (hooks.list_instances, lambda: hooks.fetch_instances(ids)):
            with pytest.raises(CloudProviderError) as raised:
                call()
            assert not isinstance(raised.value, NodeClaimNotFoundError)
    assert fault.struck
    assert [each.provider_id for each in hooks.list_instances().instances] == ids


def test_a_wave_keeps_to_the_limit_of_writes(cloud, launches):
    """After the first refusal all launches pause together, and none is lost."""
    made = launches()
    cloud.throttling.set({"compute-put-vm": SimulatedCallRate(bucket=10, refill=10)})

    def launch(number):
        while True:
            try:
                return made.launch(f"web-{number}")
            except ThrottledError as error:
                sleep(min(error.retry_after.total_seconds(), 1))

    with ThreadPoolExecutor(24) as pool:
        outcomes = list(pool.map(launch, range(30)))
    assert len({outcome.provider_id for outcome in outcomes}) == 30
    assert len(cloud.living()) == 30
    assert made.marks.is_empty
    assert cloud.calls.count(PUT) <= 90
    assert broken_invariants(cloud) == []


def test_a_wave_of_launches_that_is_throttled_does_not_keep_nodes_alive(cloud, launches):
    """Azure counts deletions apart, and so do the pauses of the provider."""
    made = launches()
    old = [made.launch(f"old-{number}").provider_id for number in range(5)]
    cloud.throttling.set({"compute-put-vm": SimulatedCallRate(bucket=1, refill=1 / 60)})
    made.launch("web-1")
    with pytest.raises(ThrottledError):
        made.launch("web-2")

    outcomes = made.provider.hooks.terminate_instances(old)

    assert outcomes == [TerminationStatus.STARTED] * 5
    assert cloud.calls.count("virtualMachines:delete") == 5
    cloud.time.advance(60)
    assert [each.name for each in cloud.living()] == ["aks-web-1"]


def test_a_refused_parameter_is_a_failed_launch(cloud, launches):
    made = launches()
    cloud.fail(PUT, code="InvalidParameter", message="osProfile.customData", status=400)
    with pytest.raises(LaunchFailedError, match=r"osProfile\.customData"):
        made.launch()
    assert list(leftovers(cloud)) == []


def test_extensions_are_installed_once_the_virtual_machine_is_made(cloud, launches):
    made = launches()
    cloud.behaviour.pending_seconds = 60
    vm, installer = machine(cloud, made.launch()), made.billing_installer()
    installer.run()
    assert vm.extensions == {}
    cloud.time.advance(120)
    installer.run()
    assert vm.extensions.keys() == {"computeakslinuxbilling"}  # case 86
    cloud.time.advance(600)
    made.billing_installer().run()
    assert [each.action for each in cloud.calls.all].count("extensions:put") == 1


def test_a_node_without_an_overlay_has_an_address_for_each_pod(cloud, launches):
    made = launches(network_plugin_mode="", network_dataplane="")
    made.launch()
    (interface,) = cloud.interfaces.all
    assert len(interface.configurations) == 30  # case 77


def test_two_hundred_claims_are_launched_at_once(cloud, launches):
    made = launches()
    cloud.usages.set_limit("lowPriorityCores", 10_000)
    with ThreadPoolExecutor(24) as pool:
        outcomes = list(pool.map(made.launch, [f"web-{n}" for n in range(200)]))
    assert len({outcome.provider_id for outcome in outcomes}) == 200
    assert cloud.calls.count(PUT) == 200  # case 92
    assert cloud.calls.count("loadBalancers:list") == 1
    assert cloud.calls.count("networkSecurityGroups:list") == 1
    assert cloud.calls.count("skus:list") == 1
    assert len(cloud.living()) == 200
    assert broken_invariants(cloud) == []
