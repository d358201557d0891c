"""Garbage collection of interfaces and disks."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError, CloudProviderError, FencedError, ThrottledError
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_provider_azure.instance_tags import instance_tags
from karpenter_provider_azure.instances.orphans import OrphanCollector, interface_query

from .fake_azure import refusal

TAGS = instance_tags(
    {}, additional_tags={}, cluster="demo", claim_uid="uid-of-gone", node_pool="web"
)


@pytest.fixture
def collector(world):
    return OrphanCollector(
        world.azure,
        world.clock,
        settings=world.settings,
        reader=world.reader,
        query=world.query,
        read_claims=lambda: world.claims,
        fence=world.fence,
    )


@pytest.fixture
def run(world, collector):
    """Run the task so often in five minutes that leftovers become ripe."""

    def several_times(times=2):
        for _ in range(times):
            collector.run()
            world.clock.forward(minutes=5)

    return several_times


def deleted(world):
    return [path.rpartition("/")[2] for method, path, _ in world.azure.sent if method == "DELETE"]


def test_a_leftover_interface_is_deleted_after_five_minutes(world, collector, run):
    """# case 119"""
    world.add_interface("aks-gone", TAGS)
    collector.run()
    assert not deleted(world)
    world.clock.forward(minutes=4)
    collector.run()
    assert not deleted(world)
    world.clock.forward(minutes=1)
    collector.run()
    assert deleted(world) == ["aks-gone"]


def test_an_interface_that_is_used_stays(world, run):
    """# case 119: also that of a claim that is still launching"""
    world.add_vm("web-1")
    world.add_interface("aks-launching", TAGS)
    world.claims["launching"] = object()
    world.add_interface("aks-attached", TAGS, vm="/somewhere")
    run(3)
    assert not deleted(world)


def test_an_interface_of_a_virtual_machine_stays(world, run):
    world.add_vm("web-1")
    interface = world.add_interface("aks-web-1-3f2a", TAGS)
    world.vm("web-1")["properties"]["networkProfile"] = {
        "networkInterfaces": [{"id": interface.upper()}]
    }
    run(3)
    assert not deleted(world)


def test_an_interface_becomes_a_leftover_when_its_claim_is_removed(world, run):
    world.add_interface("aks-launching", TAGS)
    world.claims["launching"] = object()
    run(3)
    world.claims.clear()
    run(1)
    assert not deleted(world)
    run(1)
    assert deleted(world) == ["aks-launching"]


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("aks-gone", {}),
        ("aks-gone", TAGS | {"karpenter.azure.com_cluster": "other"}),
        ("aks-gone", TAGS | {"karpenter.azure.com_aksmachine_nodeclaim": "m"}),
        ("jump-host", TAGS),
    ],
)
def test_resources_outside_of_this_cluster_stay(world, run, name, tags):
    world.add_interface(name, tags)
    world.add_disk(name, tags)
    run(3)
    assert not deleted(world)


def test_a_reserved_interface_is_deleted_in_a_later_round(world, run):
    """# case 119"""
    world.add_interface("aks-gone", TAGS)
    world.add_interface("aks-other", TAGS)
    world.azure.errors["DELETE", "aks-gone"] = refusal(400, "NicReservedForAnotherVm")
    run(2)
    assert world.azure.actions("networkInterfaces:delete") == ["networkInterfaces:delete"] * 2
    assert deleted(world) == ["aks-other"]
    world.azure.errors.clear()
    run(1)
    assert deleted(world) == ["aks-other", "aks-gone"]


def test_a_leftover_disk_is_deleted(world, run):
    world.add_disk("aks-gone", TAGS)
    run()
    assert deleted(world) == ["aks-gone"]


@pytest.mark.parametrize(
    "more",
    [
        {"managed_by": "/vm"},
        {"state": "Attached"},
        {"state": "Reserved"},
        {"state": "ActiveSAS"},
        {"state": ""},
    ],
)
def test_a_disk_stays_unless_azure_says_that_it_is_unattached(world, run, more):
    world.add_disk("aks-gone", TAGS, **more)
    run(3)
    assert not deleted(world)


def test_an_incomplete_listing_deletes_nothing(world, run):
    world.add_interface("aks-gone", TAGS)
    world.add_vm("web-1")
    world.vm("web-1")["id"] = ""
    run(5)
    assert not deleted(world)


def test_a_failed_listing_deletes_nothing(world, collector):
    world.add_interface("aks-gone", TAGS)
    collector.run()
    world.clock.forward(minutes=5)
    world.azure.errors["LIST", "virtualmachines"] = CloudProviderError("no answer")
    with pytest.raises(CloudProviderError):
        collector.run()
    assert not deleted(world)


def test_a_throttled_deletion_ends_the_round(world, run):
    for name in ("a", "b", "c"):
        world.add_interface(f"aks-{name}", TAGS)
        world.azure.errors["DELETE", f"aks-{name}"] = ThrottledError("slow down")
    with pytest.raises(ThrottledError):
        run()
    assert len(world.azure.actions("networkInterfaces:delete")) == 1


@pytest.mark.parametrize(
    "error",
    [
        UncertainCallError("InternalServerError"),
        AuthError("denied", action="networkInterfaces:delete"),
    ],
    ids=["without an answer", "not permitted"],
)
def test_leftovers_that_cannot_be_deleted_hold_up_no_other(world, collector, error):
    for name in ("a", "b", "c"):
        world.add_interface(f"aks-{name}", TAGS)
    for name in ("a", "b"):
        world.azure.errors["DELETE", f"aks-{name}"] = error
    collector.run()
    for _ in range(3):
        world.clock.forward(minutes=5)
        with pytest.raises(type(error)):
            collector.run()
    assert deleted(world) == ["aks-c"]


def test_a_process_without_the_lease_deletes_nothing(world, run):
    world.add_interface("aks-gone", TAGS)
    world.fence.error = FencedError("no lease")
    with pytest.raises(FencedError):
        run()
    assert not deleted(world)


def test_most_of_many_leftovers_wait_for_an_hour(world, run):
    """The cause may be a wrong filter."""
    for number in range(12):
        world.add_interface(f"aks-gone-{number}", TAGS)
    run(11)
    assert not deleted(world)
    run(3)
    assert len(deleted(world)) == 12


def test_the_query_names_type_group_and_tag():
    assert interface_query("MC_Demo") == (
        'Resources | where type == "microsoft.network/networkinterfaces"'
        ' | where resourceGroup =~ "mc_demo"'
        ' | where tags has_cs "karpenter.azure.com_cluster"'
    )


def test_the_task_runs_every_five_minutes(collector):
    (task,) = collector.tasks()
    assert task.period.total_seconds() == 300
    assert task.leader_only


def test_a_role_without_interfaces_keeps_no_disk(world, run):
    """Azure refuses deletions of interfaces; disks cost money meanwhile."""
    world.add_interface("aks-gone", TAGS)
    world.add_disk("aks-gone-too", TAGS)
    world.azure.errors["DELETE", "aks-gone"] = AuthError(
        "networkInterfaces/delete", action="networkInterfaces:delete"
    )
    with pytest.raises(AuthError, match="networkInterfaces/delete"):
        run()
    assert deleted(world) == ["aks-gone-too"]


def test_a_graph_that_does_not_answer_keeps_no_disk(world, run):
    world.add_disk("aks-gone", TAGS)
    world.azure.errors["LIST", "networkinterfaces"] = AuthError(
        "resources/read", action="resources:query"
    )
    for _ in range(2):
        with pytest.raises(AuthError, match="resources/read"):
            run(1)
        world.clock.forward(minutes=5)
    assert deleted(world) == ["aks-gone"]
