"""Fetching, listing and terminating virtual machines."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import (
    CloudProviderError,
    NodeClaimNotFoundError,
    TerminationRefusedError,
    ThrottledError,
)
from karpenter_core.provider.contract import Instance, LaunchedInstance, TerminationStatus
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunch
from karpenter_provider_azure.arm.errors import error_of_answer
from karpenter_provider_azure.instances.vm_reader import is_owned

from .fake_azure import SIZE, refusal

STARTED, GONE = TerminationStatus.STARTED, TerminationStatus.GONE
OWN = {"karpenter.azure.com_cluster": "demo", "karpenter.sh_nodepool": "web"}


def remember(world, provider_id, claim):
    """Have a virtual machine launched by this process."""
    instance = Instance(provider_id=provider_id, node_claim=claim, created=world.clock.now())
    outcome = LaunchedInstance(
        provider_id=provider_id,
        instance_type=SIZE,
        zone="westus2-1",
        capacity_type="on-demand",
        capacity={},
        allocatable={},
    )
    owner = ClaimRef(name=claim, uid=f"uid-of-{claim}")
    world.recent.add(
        RecentLaunch(instance_id=f"aks-{claim}", owner=owner, instance=instance, outcome=outcome)
    )


# -- reading -------------------------------------------------------------------------------------


def test_an_instance_is_fetched_with_its_claim(world):
    provider_id = world.add_vm()
    (found,) = world.instances.fetch([provider_id])
    assert (found.provider_id, found.node_claim, found.token) == (
        provider_id,
        "web-1",
        "uid-of-web-1",
    )
    assert (found.instance_type, found.zone, found.capacity_type) == (
        SIZE,
        "westus2-1",
        "on-demand",
    )
    assert world.azure.actions() == ["virtualMachines:get"]


def test_many_instances_are_fetched_by_one_listing(world):
    ids = [world.add_vm(f"web-{n}") for n in range(50)]
    assert [each.provider_id for each in world.instances.fetch(ids)] == ids
    assert world.azure.actions() == ["virtualMachines:list"]


def test_an_instance_that_a_listing_lacks_is_looked_up_before_it_counts_as_gone(world):
    ids = [world.add_vm(f"web-{n}") for n in range(5)]
    world.azure.unlisted = {key for key in world.azure.resources if key.endswith("/aks-web-0")}
    world.remove("web-1")

    first, second, *_ = world.instances.fetch(ids)

    assert first.node_claim == "web-0"
    assert isinstance(second, NodeClaimNotFoundError)
    assert world.azure.actions().count("virtualMachines:get") == 2


def test_a_missing_instance_is_not_found(world):
    provider_id = world.add_vm()
    world.remove()
    (found,) = world.instances.fetch([provider_id])
    assert isinstance(found, NodeClaimNotFoundError)


@pytest.mark.parametrize(
    "code", ["ResourceGroupNotFound", "SubscriptionNotFound", "InvalidResourceType", ""]
)
def test_only_a_missing_resource_is_a_missing_instance(world, code):
    """A wrong setting must not end all claims."""
    provider_id = world.add_vm()
    world.azure.errors["GET", "aks-web-1"] = refusal(404, code)
    with pytest.raises(CloudProviderError) as caught:
        world.instances.fetch([provider_id])
    assert not isinstance(caught.value, NodeClaimNotFoundError)


def test_an_instance_of_another_group_is_refused(world):
    other = world.add_vm().replace("mc_demo", "mc_other")
    (found,) = world.instances.fetch([other])
    assert 'resource group "mc_other"' in str(found)
    assert not isinstance(found, NodeClaimNotFoundError)
    (found,) = world.instances.fetch(["aws:///a/i-1"])
    assert "no provider ID of Azure" in str(found)


def test_a_launched_instance_that_is_not_shown_yet_is_neither_gone_nor_terminated(world):
    provider_id = world.add_vm()
    world.remove()
    remember(world, provider_id, "web-1")

    (found,) = world.instances.fetch([provider_id])
    (ended,) = world.instances.terminate([provider_id])
    assert not isinstance(found, NodeClaimNotFoundError)
    assert isinstance(ended, CloudProviderError)
    assert [each.provider_id for each in world.instances.list().instances] == [provider_id]

    world.clock.forward(minutes=2)
    assert isinstance(world.instances.fetch([provider_id])[0], NodeClaimNotFoundError)


def test_only_instances_of_the_cluster_are_listed(world):
    """# case 120"""
    mine = world.add_vm("web-1")
    world.add_vm("machine", tags=OWN | {"karpenter.azure.com_aksmachine_nodeclaim": "m"})
    world.add_vm("foreign", tags=OWN | {"karpenter.azure.com_cluster": "other"})
    world.add_vm("no-pool", tags={"karpenter.azure.com_cluster": "demo"})
    standalone = world.add_vm("alone", pool="")

    listing = world.instances.list()

    assert listing.complete
    assert {each.provider_id for each in listing.instances} == {mine, standalone}


def test_an_instance_of_karpenters_own_provider_has_its_claim_by_name(world):
    world.add_vm("web-9", tags=OWN)
    (found,) = world.instances.list().instances
    assert (found.node_claim, found.token) == ("web-9", "")


@pytest.mark.parametrize(
    ("tags", "is_ours"),
    [
        (OWN, True),
        ({key.upper(): value for key, value in OWN.items()}, True),
        (OWN | {"karpenter.azure.com_cluster": "Demo"}, False),
        ({}, False),
    ],
)
def test_keys_of_tags_are_compared_without_case(tags, is_ours):
    assert is_owned(tags, "demo") is is_ours


def test_a_virtual_machine_with_a_foreign_name_is_not_listed_in_spite_of_its_tags(world):
    """Tags are copied with a snapshot or a template; the names of claims begin with `aks-`."""
    mine = world.add_vm("web-1")
    copied = {**world.vm("web-1"), "name": "jump-host"}
    copied["id"] = copied["id"].replace("aks-web-1", "jump-host")
    world.azure.resources[copied["id"].lower()] = copied

    listing = world.instances.list()

    assert listing.complete
    assert [each.provider_id for each in listing.instances] == [mine]


def test_an_instance_without_a_size_is_listed_reported_and_terminated(world):
    provider_id = world.add_vm("web-2")
    del world.vm("web-2")["properties"]["hardwareProfile"]

    with capture_logs() as logs:
        listing = world.instances.list()
        world.instances.list()

    assert listing.complete
    (found,) = listing.instances
    assert (found.provider_id, found.node_claim, found.instance_type) == (provider_id, "web-2", "")
    (reported,) = [each for each in logs if each["log_level"] == "warning"]
    assert reported["vm"] == "aks-web-2"
    assert world.instances.fetch([provider_id])[0].node_claim == "web-2"
    assert world.instances.terminate([provider_id]) == [STARTED]


@pytest.mark.parametrize(
    "change",
    [
        {"properties": {}},
        {"properties": {"virtualMachineScaleSet": {"id": "/subscriptions/s"}}},
        {"id": "/subscriptions/s/virtualMachineScaleSets/aks-pool/virtualMachines/0"},
    ],
)
@pytest.mark.parametrize("tags", [{}, OWN | {"karpenter.azure.com_cluster": "other"}])
def test_a_foreign_aks_machine_is_ignored_by_the_listing(world, change, tags):
    mine = world.add_vm("web-1")
    world.add_vm("web-2", tags=tags)
    world.vm("web-2").update(change)

    with capture_logs() as logs:
        listing = world.instances.list()

    assert listing.complete
    assert [each.provider_id for each in listing.instances] == [mine]
    assert not logs


def test_an_instance_of_ours_without_a_readable_id_makes_the_listing_incomplete(world):
    world.add_vm("web-1")
    world.vm("web-1")["id"] = ""
    listing = world.instances.list()
    assert not listing.complete
    assert "cannot be read" in listing.problem


def test_a_deleting_instance_is_listed_as_terminating(world):
    """# case 118: the core leaves it alone"""
    world.add_vm(state="Deleting")
    (found,) = world.instances.list().instances
    assert found.terminating
    assert found.created == world.clock.now()


# -- termination ---------------------------------------------------------------------------------


def test_a_deletion_is_forced_and_sent_once(world):
    """# case 117"""
    provider_id = world.add_vm()
    assert world.instances.terminate([provider_id]) == [STARTED]
    assert world.instances.terminate([provider_id]) == [STARTED]
    (sent,) = world.azure.sent
    assert sent[0] == "DELETE"
    assert sent[2]["query"] == {"forceDeletion": "true"}

    world.remove()
    assert world.instances.terminate([provider_id]) == [GONE]


def test_a_deleting_instance_is_not_deleted_again(world):
    """# case 117"""
    provider_id = world.add_vm(state="deleting")
    assert world.instances.terminate([provider_id]) == [STARTED]
    assert not world.azure.sent


def test_two_concurrent_terminations_send_one_deletion(world):
    """# case 117"""
    provider_id = world.add_vm()
    delete, outcomes = world.azure.delete, []

    def delete_slowly(name):
        other = Thread(
            target=lambda: outcomes.extend(world.instances.terminate([provider_id])), daemon=True
        )
        other.start()
        other.join(5)
        delete(name)

    world.azure.delete = delete_slowly
    world.restart()
    assert world.instances.terminate([provider_id]) == [STARTED]
    assert outcomes == [STARTED]
    assert len(world.azure.sent) == 1


def test_a_deletion_that_failed_is_sent_again(world):
    provider_id = world.add_vm()
    world.instances.terminate([provider_id])
    world.vm()["properties"]["provisioningState"] = "Failed"
    world.clock.forward(seconds=30)
    assert world.instances.terminate([provider_id]) == [STARTED]
    assert len(world.azure.sent) == 2


def test_two_hundred_terminations_cost_one_listing_and_a_call_each(world):
    ids = [world.add_vm(f"web-{n}") for n in range(200)]
    assert set(world.instances.terminate(ids)) == {STARTED}
    assert world.azure.actions("virtualMachines:list") == ["virtualMachines:list"]
    assert len(world.azure.sent) == 200
    assert set(world.instances.terminate(ids)) == {STARTED}
    assert len(world.azure.sent) == 200


@pytest.mark.parametrize(
    "error",
    [
        {"code": "ScopeLocked", "message": "lock keep-me"},
        {"code": "Conflict", "message": "keep-me", "innererror": {"code": "CannotDeleteResource"}},
        {"code": "Conflict", "message": "keep-me", "details": [{"code": "ScopeLocked"}]},
    ],
)
def test_a_locked_instance_is_refused_with_its_lock(world, error):
    provider_id, other = world.add_vm("web-1"), world.add_vm("web-2")
    world.azure.errors["DELETE", "aks-web-1"] = error_of_answer(409, {"error": error})

    locked, deleted = world.instances.terminate([provider_id, other])

    assert isinstance(locked, TerminationRefusedError)
    assert "keep-me" in str(locked)
    assert deleted is STARTED


@pytest.mark.parametrize(
    "error",
    [
        refusal(409, "AnotherOperationInProgress"),
        UncertainCallError("no answer"),
        ThrottledError("slow down", retry_after=timedelta(seconds=30)),
    ],
)
def test_a_failed_deletion_is_no_end(world, error):
    provider_id = world.add_vm()
    world.azure.errors["DELETE", "aks-web-1"] = error
    (outcome,) = world.instances.terminate([provider_id])
    assert isinstance(outcome, CloudProviderError)
    assert not isinstance(outcome, NodeClaimNotFoundError | TerminationRefusedError)
    del world.azure.errors["DELETE", "aks-web-1"]
    world.clock.forward(seconds=30)
    assert world.instances.terminate([provider_id]) == [STARTED]


def test_an_unreadable_cloud_terminates_nothing(world):
    provider_id = world.add_vm()
    world.azure.errors["GET", "aks-web-1"] = CloudProviderError("no answer")
    with pytest.raises(CloudProviderError):
        world.instances.terminate([provider_id])
    assert not world.azure.sent
