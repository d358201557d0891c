"""Whatever happens to virtual machines, nothing is left of them and every quota is free again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_azure.invariants import broken_invariants, leftovers

NAMES = st.sampled_from(["aks-a", "aks-b", "aks-c"])
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.booleans()),
    st.tuples(st.just("delete"), NAMES, st.booleans()),
    st.tuples(st.just("evict"), NAMES, st.just(value=True)),
    st.tuples(st.just("wait"), NAMES, st.booleans()),
    st.tuples(st.sampled_from(["fail-late", "fail-delete", "sell-out"]), NAMES, st.booleans()),
)


def take(azure, step, name, flag):
    """Take one step; calls may be refused, and are never answered by a server error."""
    cloud = azure.cloud
    match step:
        case "put":
            answer = azure.put(name, spot=flag, headers={"If-None-Match": "*"})
        case "delete":
            query = {"forceDeletion": "true"} if flag else {}
            answer = azure.send("DELETE", azure.path(name), **query)
        case "evict":
            for machine in [each for each in cloud.living() if each.name == name and each.is_spot]:
                cloud.reclaim(machine.resource_id)
            return
        case "fail-late":
            cloud.fail_late(code="AllocationFailed", after_seconds=7, times=1)
            return
        case "fail-delete":
            error = CloudError("InternalExecutionError", "an internal error")
            cloud.operations.fail("virtualMachines:delete", error=error)
            return
        case "sell-out":
            cloud.behaviour.allocation_seconds = 3 if flag else None
            rule = cloud.capacity.sell_out(zone="westus2-1")
            azure.put(name, spot=flag)
            rule.end()
            return
        case _:
            cloud.time.advance(40 if flag else 4)
            return
    assert answer.status < 500, answer.body


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(STEPS, max_size=12))
def test_nothing_is_left_of_virtual_machines_once_they_are_deleted(azure_caller, steps):
    azure, cloud = azure_caller, azure_caller.cloud
    cloud.reset()
    cloud.behaviour.pending_seconds = 10
    cloud.behaviour.terminating_seconds = 5
    cloud.behaviour.graceful_seconds = 5
    subnet = cloud.networks.subnet(cloud.world.subnet_id)
    for step, name, flag in steps:
        take(azure, step, name, flag)
        living = {each.resource_id for each in cloud.living()}
        assert {each.attached_to(cloud.time()) for each in cloud.interfaces.all} == living
        assert cloud.quotas.used.get("cores", 0) + cloud.quotas.used.get(
            "lowprioritycores", 0
        ) == 4 * len(living)
    cloud.operations.clear()
    for name in ("aks-a", "aks-b", "aks-c"):
        azure.send("DELETE", azure.path(name), forceDeletion="true")
    cloud.time.advance(60)
    assert not list(leftovers(cloud))
    assert not [each for each in broken_invariants(cloud) if "was put again" not in each]
    assert subnet.free == subnet.size
