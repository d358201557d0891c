"""Updates of virtual machines in place."""

from __future__ import annotations

from dataclasses import replace

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.errors import CloudProviderError, FencedError, ThrottledError
from karpenter_core.provider.kit.instances.tag_changes import DesiredTags
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.instances.vm_updater import (
    DesiredVm,
    VmExtensions,
    VmState,
    VmUpdater,
    changed_state,
    plan_change,
)

from .fake_azure import PREFIX, refusal

BILLING, SCRIPT = "computeAksLinuxBilling", "cse-agent-karpenter"
IDENTITY = f"{PREFIX}/Microsoft.ManagedIdentity/userAssignedIdentities/one"
VM = "virtualMachines:patch"
NIC = "networkInterfaces:patch"
EXTENSION = "virtualMachines/extensions:patch"


def node_class(tags):
    return AKSNodeClass.model_validate({"metadata": {"name": "default"}, "spec": {"tags": tags}})


class Stage:
    def __init__(self, world, *, extensions=None, **settings):
        from providers.azure.tests.arm.values import settings_for

        self.world = world
        self.node_classes = {"default": node_class({"team": "web"})}
        self.updater = VmUpdater(
            world.azure,
            world.clock,
            settings=settings_for(**settings),
            reader=world.reader,
            extensions=extensions or VmExtensions(optional=(BILLING,), required=()),
            last_listed=world.instances.last_listed,
            node_class=self.node_classes.get,
            fence=world.fence,
        )

    def add(self, claim="web-1", **more):
        provider_id = self.world.add_vm(claim, **more)
        self.world.instances.list()
        self.world.azure.calls.clear()
        return provider_id

    def sync(self, claim="web-1", *, provider_id=None):
        metadata = {"name": claim, "uid": f"uid-of-{claim}", "labels": {NODE_POOL: "web"}}
        ref = {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"}
        if provider_id is None:
            provider_id = f"azure://{self.world.vm(claim)['id']}".replace("MC_demo", "mc_demo")
        node_claim = NodeClaim.model_validate(
            {
                "metadata": metadata,
                "spec": {"nodeClassRef": ref},
                "status": {"providerID": provider_id},
            }
        )
        self.updater.sync(node_claim, NodeView(uid="u", name=f"node-{claim}"))

    def tags(self, claim="web-1", kind="Microsoft.Compute/virtualMachines"):
        return self.world.azure.resources[f"{PREFIX}/{kind}/aks-{claim}".lower()]["tags"]

    def patches(self):
        return self.world.azure.actions(VM, NIC, EXTENSION)


@pytest.fixture
def stage(world):
    return Stage(world)


def add_extension(world, name, claim="web-1"):
    path = f"{world.vm(claim)['id']}/extensions/{name}"
    world.vm(claim).setdefault("resources", []).append({"id": path})
    world.azure.resources[path.lower()] = {"id": path, "tags": {}}
    return path.lower()


def test_tags_of_the_node_class_are_added_to_the_vm_and_its_parts(world, stage):
    """# case 107"""
    stage.add()
    path = add_extension(world, BILLING)

    stage.sync()

    assert stage.patches() == [NIC, EXTENSION, VM]
    assert stage.tags()["team"] == "web"
    assert stage.tags(kind="Microsoft.Network/networkInterfaces") == stage.tags()
    assert world.azure.resources[path]["tags"] == stage.tags()


def test_nothing_is_sent_for_a_vm_that_is_as_it_should_be(world, stage):
    stage.add(tags={**default_tags(), "team": "web"})
    stage.sync()
    assert not world.azure.calls


def default_tags():
    return {
        "karpenter.azure.com_cluster": "demo",
        "karpenter.azure.com_nodeclaim-uid": "uid-of-web-1",
        "karpenter.sh_nodepool": "web",
        "compute.aks.billing": "linux",
    }


def test_a_tag_that_a_policy_sets_is_left_to_it_for_an_hour(world, stage):
    """Each change would be undone by the policy, and made again as soon as a listing shows it."""
    world.azure.policy_tags = {"Team": "finance"}
    stage.add(tags={**default_tags(), "Team": "finance"})
    with structlog.testing.capture_logs() as logs:
        for _ in range(10):
            stage.sync()
            world.clock.forward(minutes=5, seconds=1)
            world.instances.list()
    (line,) = logs
    assert (line["log_level"], line["keys"]) == ("warning", ["Team"])
    assert stage.patches().count(VM) == 1
    world.azure.policy_tags = {}
    world.clock.forward(minutes=10)
    stage.sync()
    assert stage.tags()["Team"] == "web"


def test_tags_of_several_policies_are_left_to_them_together(world, stage):
    stage.node_classes["default"] = node_class({"team": "web", "cost": "7"})
    world.azure.policy_tags = {"team": "finance"}
    stage.add()
    stage.sync()
    world.azure.policy_tags = {"team": "finance", "cost": "9"}
    world.vm()["tags"]["cost"] = "9"
    for _ in range(5):
        world.clock.forward(minutes=5, seconds=1)
        world.instances.list()
        stage.sync()
    assert stage.patches().count(VM) == 2


def test_an_answer_without_tags_says_nothing_of_policies(world, stage):
    stage.add()
    send = world.azure.send
    world.azure.send = lambda *args, **more: replace(send(*args, **more), body={})
    with structlog.testing.capture_logs() as logs:
        stage.sync()
    assert stage.tags()["team"] == "web"
    assert not logs


def test_keys_that_differ_in_case_alone_are_one_tag(world, stage):
    stage.add(tags={**default_tags(), "Team": "old"})
    stage.sync()
    assert stage.tags()["Team"] == "web"
    assert "team" not in stage.tags()


def test_tags_of_others_stay(stage):
    stage.add(tags={**default_tags(), "policy": "kept"})
    stage.sync()
    assert stage.tags()["policy"] == "kept"


def test_a_tag_that_the_node_class_has_no_more_is_removed(stage):
    stage.add()
    stage.sync()
    stage.node_classes["default"] = node_class({"cost": "7"})
    stage.world.clock.forward(seconds=10)
    stage.sync()
    assert stage.tags()["cost"] == "7"
    assert "team" not in stage.tags()


def test_the_managed_tags_of_another_provider_are_completed(stage):
    stage.add(tags={"karpenter.azure.com_cluster": "demo", "karpenter.sh_nodepool": "web"})
    stage.sync()
    assert stage.tags() == {**default_tags(), "team": "web"}


def test_a_missing_identity_is_added_and_none_is_removed(world):
    """# case 114"""
    stage = Stage(world, node_identities=(IDENTITY,))
    other = IDENTITY.replace("one", "other")
    identity = {"type": "SystemAssigned", "userAssignedIdentities": {other: {}}}
    stage.add(tags={**default_tags(), "team": "web"}, identity=identity)

    stage.sync()
    stage.sync()

    assert stage.patches() == [VM]
    assert world.vm()["identity"] == {
        "type": "SystemAssigned, UserAssigned",
        "userAssignedIdentities": {other: {}, IDENTITY: {}},
    }
    without = Stage(world)
    without.sync()
    assert stage.patches() == [VM]


def test_a_missing_billing_extension_is_ignored(world, stage):
    """# case 115"""
    stage.add()
    del world.azure.resources[add_extension(world, BILLING)]
    stage.sync()
    assert stage.tags()["team"] == "web"


def test_a_node_that_joined_without_a_script_gets_its_tags(world):
    stage = Stage(world, extensions=VmExtensions(required=(SCRIPT,), optional=(BILLING,)))
    stage.add()
    stage.sync()
    assert stage.patches() == [NIC, VM]
    assert stage.tags()["team"] == "web"


def test_a_missing_script_extension_is_an_error(world):
    """# case 115: and the virtual machine shows that the change is still to be made"""
    stage = Stage(world, extensions=VmExtensions(required=(SCRIPT,), optional=()))
    stage.add()
    del world.azure.resources[add_extension(world, SCRIPT)]
    with pytest.raises(CloudProviderError, match=f"has no extension {SCRIPT}"):
        stage.sync()
    assert "team" not in stage.tags()
    add_extension(world, SCRIPT)
    world.clock.forward(minutes=2)
    stage.sync()
    assert stage.tags()["team"] == "web"


def test_a_refused_vm_holds_up_no_other(world, stage):
    stage.add("web-1")
    stage.add("web-2")
    world.azure.errors["PATCH", "aks-web-1"] = refusal(409, "OperationNotAllowed", "busy")
    with pytest.raises(CloudProviderError, match="busy"):
        stage.sync("web-1")
    world.clock.forward(seconds=2)
    stage.sync("web-2")
    assert stage.tags("web-2")["team"] == "web"


def test_changes_wait_for_their_rate(world, stage):
    for number in range(5):
        stage.add(f"web-{number}")
    names = [f"web-{number}" for number in range(5)]

    def sync_all():
        waits = []
        for name in names:
            try:
                stage.sync(name)
            except ThrottledError as error:
                waits.append(error.retry_after)
        return waits

    waits = sync_all()
    assert waits
    assert all(waits)
    for _ in range(5):
        world.clock.forward(seconds=1)
        waits = sync_all()
    assert not waits
    assert all(stage.tags(f"web-{number}")["team"] == "web" for number in range(5))


def test_tags_without_room_are_reported_once(stage):
    stage.add(tags={**default_tags(), **{f"policy-{n}": "x" for n in range(46)}})
    with structlog.testing.capture_logs() as logs:
        stage.sync()
        stage.sync()
    (line,) = logs
    assert (line["log_level"], line["keys"]) == ("warning", ["team"])
    assert not stage.patches()


def test_a_vm_that_is_gone_or_deleting_is_left_alone(world, stage):
    provider_id = stage.add(state="Deleting")
    stage.sync()
    world.remove()
    world.clock.forward(seconds=10)
    stage.sync(provider_id=provider_id)
    assert not stage.patches()


def test_a_process_without_the_lease_changes_nothing(world, stage):
    stage.add()
    world.fence.error = FencedError("no lease")
    with pytest.raises(FencedError):
        stage.sync()
    assert not stage.patches()


def test_claims_without_a_readable_provider_id_or_class_are_left_alone(world, stage):
    stage.add()
    stage.sync(provider_id="aws:///i-1")
    stage.sync(provider_id="")
    stage.node_classes.clear()
    stage.sync()
    assert not stage.patches()


keys = st.sampled_from(["a", "A", "b", "B", "c"])
tag_maps = st.dictionaries(keys, st.sampled_from(["1", "2"]), max_size=3)
identity_sets = st.frozensets(st.sampled_from(["/i/one", "/i/two"]))


@given(tag_maps, tag_maps, identity_sets, st.lists(st.sampled_from(["/I/One", "/i/two"])))
def test_a_change_that_was_made_is_not_planned_again(before, after, has, needs):
    wanted = {key.lower(): value for key, value in after.items()}
    before = {key.lower(): value for key, value in before.items()}
    state = VmState(tags=before, identities=has)
    desired = DesiredVm(
        tags=DesiredTags(added={}, set=wanted), identities=tuple(dict.fromkeys(needs))
    )
    changed = changed_state(state, plan_change(state, desired))
    assert not plan_change(changed, desired)
    assert has <= changed.identities
    assert wanted.items() <= changed.tags.items()
