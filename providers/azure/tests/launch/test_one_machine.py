"""Whatever is lost, refused or restarted, a claim has one virtual machine, and its outcome describes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_provider_azure.described_vms import read_vm
from providers.azure.tests.launch.launch_world import LaunchWorld, family_sizes, refusal

EVENTS = st.lists(
    st.sampled_from(
        ["launch", "refuse", "lose", "restart", "fail", "deleted", "close", "open", "later"]
    ),
    max_size=14,
)


def play(event, made, refusals):
    """Let something happen between two launches of the claim."""
    vm = made.arm.vms.get("aks-web-1")
    match event:
        case "refuse":
            refusals.append(refusal("ZonalAllocationFailed"))
        case "lose":
            made.arm.loses_answers = 1
        case "restart":
            made.start()
        case "fail" if vm is not None and vm["properties"]["provisioningState"] == "Creating":
            made.arm.fail("aks-web-1", "AllocationFailed")
        case "deleted" if vm is not None and vm["properties"]["provisioningState"] == "Deleting":
            del made.arm.vms["aks-web-1"]
        case "close":
            made.closed = {
                (it.name, offering.zone, offering.capacity_type)
                for it in made.types
                for offering in it.offerings
            }
        case "open":
            made.closed = set()
        case "later":
            made.clock.forward(hours=24)
        case _:
            pass


def launched(made):
    try:
        return made.launch()
    except CloudProviderError as error:
        return error


@given(EVENTS)
def test_an_outcome_always_describes_the_only_virtual_machine(events):
    made, refusals, created = LaunchWorld(*family_sizes(2)), [], []
    made.arm.refuse = lambda _body: refusals.pop() if refusals else None
    for event in (*events, "launch"):
        play(event, made, refusals)
        if event != "launch":
            continue
        requests = made.arm.counts["virtualMachines:put"]
        outcome = launched(made)
        if isinstance(outcome, InsufficientCapacityError):
            vm = made.arm.vms.get("aks-web-1")
            assert vm is None or vm["properties"]["provisioningState"] == "Deleting"
            assert outcome.offerings or outcome.quota_groups
        elif isinstance(outcome, LaunchedInstance):
            vm = read_vm(made.vm())
            created.append(vm.vm_id)
            assert (outcome.instance_type, outcome.zone, outcome.capacity_type) == (
                vm.instance_type,
                vm.zone,
                vm.capacity_type,
            )
            assert outcome.provider_id == vm.provider_id
            assert vm.state == "creating"
        assert made.arm.counts["virtualMachines:put"] - requests <= 8
    assert len(made.arm.vms) <= 1
    if "deleted" not in events:
        assert len(set(created)) <= 1
