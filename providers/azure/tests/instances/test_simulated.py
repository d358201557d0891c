"""Virtual machines of the simulated Azure, through the SDK with the credentials of workload identity."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.errors import AuthError, CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_simulated_azure.invariants import broken_invariants, leftovers

from .simulated_world import SimulatedWorld, read_settings

STARTED, GONE = TerminationStatus.STARTED, TerminationStatus.GONE


@pytest.fixture
def world(cloud):
    made = SimulatedWorld(cloud, read_settings())
    yield made
    made.client.close()


def test_virtual_machines_of_the_cluster_are_listed_and_fetched(world, cloud):
    """# case 120"""
    ids = sorted(world.create(f"web-{n}") for n in range(3))
    cloud.create_foreign_vm()
    cloud.behaviour.instances_per_page = 2

    listing = world.instances.list()

    assert listing.complete
    assert [each.provider_id for each in listing.instances] == ids
    assert [each.token for each in listing.instances] == [f"uid-of-web-{n}" for n in range(3)]
    assert world.instances.fetch(ids) == list(listing.instances)


def test_a_termination_leaves_nothing_behind(world, cloud):
    """# case 117"""
    cloud.behaviour.terminating_seconds = 15
    ids = [world.create(f"web-{n}", spot=bool(n)) for n in range(3)]
    assert world.instances.terminate(ids) == [STARTED] * 3
    assert world.instances.terminate(ids) == [STARTED] * 3
    assert cloud.calls.count("virtualMachines:delete") == 3
    assert all(each.terminating for each in world.instances.list().instances)

    world.clock.forward(120)

    assert world.instances.terminate(ids) == [GONE] * 3
    assert isinstance(world.instances.fetch(ids)[0], NodeClaimNotFoundError)
    assert not list(leftovers(cloud))
    assert not broken_invariants(cloud)


@pytest.mark.parametrize("status", [500, 503])
def test_a_deletion_without_an_answer_is_repeated(world, cloud, status):
    provider_id = world.create("web-1")
    with cloud.fail("virtualMachines:delete", code="ServerError", status=status, times=1):
        assert world.instances.terminate([provider_id]) == [STARTED]
    assert cloud.calls.count("virtualMachines:delete") == 2


def test_a_missing_permission_ends_nothing(world, cloud):
    provider_id = world.create("web-1")
    with cloud.permissions.take("Microsoft.Compute/virtualMachines/delete"):
        (outcome,) = world.instances.terminate([provider_id])
    assert isinstance(outcome, AuthError)
    assert outcome.action == "virtualMachines:delete"


def test_an_interface_that_a_failed_launch_leaves_is_deleted_when_it_is_not_reserved(world, cloud):
    """# case 119: that of another cluster stays"""
    cloud.behaviour.orphans_interfaces = True
    cloud.behaviour.interface_reserved_seconds = 700
    with cloud.fail_late(code="AllocationFailed"):
        left = world.create("web-1")
        cloud.create_foreign_vm()
    world.instances.terminate([left])
    cloud.terminate("aks-other-abcde")
    living = world.create("web-2")
    assert len(cloud.interfaces.all) == 3

    world.orphans.run()
    world.clock.forward(240)
    world.orphans.run()
    assert not cloud.calls.count("networkInterfaces:delete")

    for minutes, remaining in ((1, 3), (5, 2)):
        world.clock.forward(minutes * 60)
        world.orphans.run()
        world.clock.forward(5)
        assert len(cloud.interfaces.all) == remaining
    assert world.instances.terminate([living]) == [STARTED]
    names = {each.name for each in cloud.interfaces.all}
    assert names == {"aks-other-abcde"}


def test_tags_of_the_node_class_reach_virtual_machine_and_interface(world, cloud):
    """# case 107"""
    provider_id = world.create("web-1")
    node_class = AKSNodeClass.model_validate(
        {"metadata": {"name": "default"}, "spec": {"tags": {"team": "web"}}}
    )
    world.node_classes["default"] = node_class
    claim = NodeClaim.model_validate(
        {
            "metadata": {"name": "web-1", "uid": "uid-of-web-1", "labels": {NODE_POOL: "web"}},
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.azure.com",
                    "kind": "AKSNodeClass",
                    "name": "default",
                }
            },
            "status": {"providerID": provider_id},
        }
    )

    world.parts.updater.sync(claim, NodeView(uid="u", name="node"))

    vm = world.reader.find("aks-web-1")
    assert vm.tags["team"] == "web"
    assert vm.identities == {each.lower() for each in world.settings.node_identities}  # case 114
    (interface,) = cloud.interfaces.all
    assert interface.tags["team"] == "web"
    assert world.reader.is_ours(vm)


def test_without_a_token_nothing_is_gone(world, cloud, monkeypatch):
    provider_id = world.create("web-1")
    monkeypatch.setenv("AZURE_CLIENT_ID", "wrong")
    world.client.close()
    with pytest.raises(CloudProviderError) as caught:
        world.instances.fetch([provider_id])
    assert not isinstance(caught.value, NodeClaimNotFoundError)
