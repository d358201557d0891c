"""AKS machines of the simulated Azure, through the SDK: what one process does with them."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.errors import AuthError, CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding, TerminationStatus
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_azure.invariants import broken_invariants, leftovers
from providers.azure.tests.instances.simulated_world import SimulatedWorld, read_settings
from providers.azure.tests.instances.test_drift import node_class

STARTED, GONE = TerminationStatus.STARTED, TerminationStatus.GONE
LIST, DELETE = "machines:list", "deleteMachines:post"


@pytest.fixture
def start(cloud, monkeypatch):
    """Return what starts a process that manages machines."""
    monkeypatch.setenv("MANAGE_EXISTING_AKS_MACHINES", "true")
    monkeypatch.setenv("AKS_MACHINES_POOL_NAME", cloud.world.machines_pool)
    started = []

    def run():
        started.append(SimulatedWorld(cloud, read_settings()))
        return started[-1]

    yield run
    for each in started:
        each.client.close()


@pytest.fixture
def world(start):
    return start()


@pytest.fixture
def nodes(world):
    return world.parts.nodes


def machines(cloud, count=1, **fields):
    """Make machines that run; return their provider IDs."""
    ids = [cloud.create_aks_machine(f"web-{n}", **fields) for n in range(count)]
    cloud.time.advance(120)
    return ids


def claim(provider_id, name="web-0", image=""):
    return NodeClaim.model_validate(
        {
            "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": {NODE_POOL: "web"}},
            "spec": {"nodeClassRef": {"kind": "AKSNodeClass", "name": "default", "group": "x"}},
            "status": {"providerID": provider_id, "imageID": image},
        }
    )


# -- listing -------------------------------------------------------------------------------------


def test_machines_are_listed_beside_virtual_machines(world, cloud, nodes):
    vm = world.create("api-1")
    ids = machines(cloud, 3, zone="2", spot=True)
    cloud.behaviour.instances_per_page = 2

    listing = nodes.list()

    assert listing.complete
    assert [each.provider_id for each in listing.instances] == sorted([vm, *ids])
    first = next(each for each in listing.instances if each.provider_id == ids[0])
    assert (first.node_claim, first.token) == ("web-0", "")
    assert (first.instance_type, first.zone) == ("Standard_D4s_v5", "westus2-2")
    assert first.capacity_type == "spot"
    assert first.image_id.startswith("AKSUbuntu-2204gen2containerd-")
    assert first.created is not None
    assert nodes.fetch([vm, *ids, vm])[1:4] == [
        each for each in listing.instances if each.provider_id in ids
    ]
    assert cloud.calls.count(LIST) == 2 + 2


def test_machines_without_spot_are_on_demand(cloud, nodes):
    """# case 125"""
    machines(cloud)
    (found,) = nodes.list().instances
    assert found.capacity_type == "on-demand"


def test_machines_of_others_are_left_alone(cloud, nodes):
    """Those that a user has added to the pool, and those of another cluster."""
    machines(cloud, tags={"team": "web"})
    cloud.create_aks_machine(
        "api-1",
        tags={
            "karpenter.azure.com_cluster": "other",
            "karpenter.azure.com_aksmachine_nodeclaim": "api-1",
        },
    )
    assert nodes.list().instances == ()


def test_without_the_option_aks_machines_are_not_listed(start, cloud, monkeypatch):
    monkeypatch.setenv("MANAGE_EXISTING_AKS_MACHINES", "false")
    machines(cloud)
    assert start().parts.nodes.list().instances == ()
    assert not cloud.calls.count("machines:*")


@pytest.mark.parametrize(
    "fault",
    [
        {"code": "InternalServerError", "status": 500},
        {"code": "TooManyRequests", "status": 429},
        {"code": "AuthorizationFailed", "status": 403},
        {"code": "NotFound", "status": 404},
    ],
)
def test_a_failing_list_of_machines_makes_the_listing_incomplete(world, cloud, nodes, fault):
    vm = world.create("api-1")
    (machine,) = machines(cloud)
    with cloud.fail(LIST, times=None, **fault):
        listing = nodes.list()
        fetched = nodes.fetch([vm, machine])
        terminated = nodes.terminate([machine, vm])
        with pytest.raises(CloudProviderError) as caught:
            nodes.fetch([machine])

    assert not listing.complete
    assert "AKS machines could not be listed" in listing.problem
    assert [each.provider_id for each in listing.instances] == [vm]
    assert fetched[0].provider_id == vm
    for unknown in (fetched[1], terminated[0], caught.value):
        assert isinstance(unknown, CloudProviderError)
        assert not isinstance(unknown, NodeClaimNotFoundError)
    assert terminated[1] is STARTED
    assert not cloud.calls.count(DELETE)


def test_failing_virtual_machines_do_not_hide_machines(world, cloud, nodes):
    vms = [world.create(f"api-{n}") for n in range(3)]
    (machine,) = machines(cloud)
    with cloud.fail("virtualMachines:list", code="InternalServerError", status=500, times=None):
        *unknown, found = nodes.fetch([*vms, machine])
        with pytest.raises(CloudProviderError):
            nodes.list()
    assert found.provider_id == machine
    assert all(isinstance(each, CloudProviderError) for each in unknown)


@pytest.mark.parametrize(
    "wrong",
    [
        {"AKS_MACHINES_POOL_NAME": "other"},
        {"CLUSTER_NAME": "other"},
        {"ARM_RESOURCE_GROUP": "other"},
    ],
)
def test_a_wrong_setting_does_not_make_machines_gone(start, cloud, monkeypatch, wrong):
    (machine,) = machines(cloud)
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    nodes = start().parts.nodes

    listing = nodes.list()
    assert not listing.complete
    assert "--aks-machines-pool-name" in listing.problem
    if "AKS_MACHINES_POOL_NAME" not in wrong:
        with pytest.raises(CloudProviderError) as caught:
            nodes.fetch([machine])
        assert not isinstance(caught.value, NodeClaimNotFoundError)


def test_a_machine_is_gone_only_if_its_own_answer_says_so(cloud, nodes):
    (machine,) = machines(cloud)
    cloud.terminate(machine)
    with (
        cloud.fail("machines:get", code="ResourceGroupNotFound", status=404),
        pytest.raises(CloudProviderError) as caught,
    ):
        nodes.fetch([machine])
    assert not isinstance(caught.value, NodeClaimNotFoundError)
    (gone,) = nodes.fetch([machine])
    assert isinstance(gone, NodeClaimNotFoundError)


def test_a_machine_with_another_virtual_machine_is_another_instance(cloud, nodes):
    """AKS has replaced the virtual machine: what ends the old one must not end the new one."""
    (machine,) = machines(cloud)
    before = machine.replace("-10101010-", "-20202020-")

    assert isinstance(nodes.fetch([before])[0], NodeClaimNotFoundError)
    assert nodes.terminate([before]) == [GONE]
    assert not cloud.calls.count(DELETE)


def test_an_unreadable_aks_machine_makes_the_listing_incomplete(cloud, nodes):
    good, _ = machines(cloud, 2)
    cloud.aks_machines.get("web-1").has_vm = False

    listing = nodes.list()

    assert not listing.complete
    assert "AKS machine web-1 cannot be read" in listing.problem
    assert [each.provider_id for each in listing.instances] == [good]


def test_a_machine_that_the_list_lacks_is_looked_up_alone(cloud, nodes):
    _, machine = machines(cloud, 2)
    cloud.aks_machines.get("web-1").has_vm = False

    (found,) = nodes.fetch([machine])

    assert found.provider_id == machine
    assert cloud.calls.count("machines:get") == 1


def test_stable_api_versions_do_not_describe_machines(world, cloud):
    """The version is a preview for this reason."""
    machines(cloud)
    pool = f"{cloud.world.cluster_id}/agentPools/{cloud.world.machines_pool}"
    (found,) = world.client.list_all(
        f"{pool}/machines", api_version="2026-08-01", action="agentPools/machines:list"
    )
    assert found["properties"].keys() == {"network", "resourceId"}


# -- termination ---------------------------------------------------------------------------------


def test_machines_are_terminated_by_one_call_and_leave_nothing_behind(world, cloud, nodes):
    cloud.behaviour.terminating_seconds = 15
    ids = machines(cloud, 3)
    vm = world.create("api-1")

    assert nodes.terminate([*ids, vm]) == [STARTED] * 4
    world.clock.forward(1)
    assert nodes.terminate([*ids, vm]) == [STARTED] * 4
    assert [each.terminating for each in nodes.list().instances] == [True] * 4
    assert cloud.calls.count(DELETE) == 1
    assert cloud.calls.count("virtualMachines:delete") == 1

    world.clock.forward(120)
    assert nodes.terminate([*ids, vm]) == [GONE] * 4
    assert isinstance(nodes.fetch(ids)[0], NodeClaimNotFoundError)
    assert not list(leftovers(cloud))
    assert not broken_invariants(cloud)


def test_a_new_process_finds_and_terminates_machines(start, cloud):
    """Nothing about machines is remembered from a launch."""
    cloud.behaviour.terminating_seconds = 15
    ids = machines(cloud, 2)
    before = start().parts.nodes
    listed = before.list()
    assert before.terminate(ids[:1]) == [STARTED]

    after = start().parts.nodes
    assert after.terminate(ids) == [STARTED] * 2
    assert [each.provider_id for each in after.list().instances] == [
        each.provider_id for each in listed.instances
    ]
    bodies = [each.parameters["body"] for each in cloud.calls.of(DELETE)]
    assert bodies == [{"machineNames": ["web-0"]}, {"machineNames": ["web-1"]}]

    cloud.time.advance(60)
    assert start().parts.nodes.terminate(ids) == [GONE] * 2


def test_a_refused_machine_does_not_keep_others(cloud, nodes):
    """# case 124, for deletions"""
    ids = machines(cloud, 6)
    with cloud.fail(
        DELETE,
        code="BadRequest",
        status=400,
        times=None,
        where=lambda parameters: "web-4" in parameters["body"]["machineNames"],
    ):
        outcomes = nodes.terminate(ids)

    assert [each is STARTED for each in outcomes] == [True] * 4 + [False, True]
    assert "was not deleted" in str(outcomes[4])


def test_a_conflict_of_the_pool_is_not_tried_for_each_machine(cloud, nodes):
    ids = machines(cloud, 3)
    with cloud.fail(DELETE, code="OperationNotAllowed", status=409, times=None):
        outcomes = nodes.terminate(ids)
    assert all(isinstance(each, CloudProviderError) for each in outcomes)
    assert cloud.calls.count(DELETE) == 1


def test_a_missing_permission_ends_nothing(cloud, nodes):
    (machine,) = machines(cloud)
    action = "Microsoft.ContainerService/managedClusters/agentPools/deleteMachines/action"
    with cloud.permissions.take(action):
        (outcome,) = nodes.terminate([machine])
    assert isinstance(outcome, AuthError)
    assert action in str(outcome)


def test_a_process_that_does_not_lead_terminates_nothing(world, cloud, nodes):
    (machine,) = machines(cloud)
    world.fence.error = CloudProviderError("not the leader")
    (outcome,) = nodes.terminate([machine])
    assert isinstance(outcome, CloudProviderError)
    assert not cloud.calls.count(DELETE)


def test_machines_that_end_meanwhile_are_no_error(cloud, nodes):
    """The list is older than the deletion; AKS refuses a request whose machines all are gone."""
    (machine,) = machines(cloud)

    def end(_parameters):
        cloud.terminate(machine)
        return False

    with cloud.fail(DELETE, code="BadRequest", times=None, where=end):
        assert nodes.terminate([machine]) == [STARTED]
    assert nodes.terminate([machine]) == [GONE]


def test_a_deletion_that_fails_late_is_made_again(world, cloud, nodes):
    (machine,) = machines(cloud)
    with cloud.operations.fail(DELETE, error=CloudError("InternalServerError", "")):
        assert nodes.terminate([machine]) == [STARTED]
    world.clock.forward(10)
    assert nodes.terminate([machine]) == [STARTED]
    assert cloud.calls.count(DELETE) == 1

    world.clock.forward(30)
    assert nodes.terminate([machine]) == [STARTED]
    assert cloud.calls.count(DELETE) == 2
    world.clock.forward(120)
    assert nodes.terminate([machine]) == [GONE]


# -- drift and changes ---------------------------------------------------------------------------


def detect(world, provider_ids, of):
    claims = [claim(each, f"web-{n}") for n, each in enumerate(provider_ids)]
    found = world.parts.drift.detect(claims, of)
    return [each.reason if isinstance(each, DriftFinding) else each for each in found]


@pytest.fixture
def current_class(cloud):
    image = cloud.galleries.community_id("2204gen2containerd")
    return node_class(images=(image,))


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("", None),
        ("Synced", None),
        ("Recreate", "ClusterConfigDrift"),
        ("Reimage", "ClusterConfigDrift"),
    ],
)
def test_a_machine_drifts_when_aks_says_so(world, cloud, current_class, action, reason):
    """# case 112"""
    (machine,) = machines(cloud)
    cloud.aks_machines.get("web-0").drift_action = action
    assert detect(world, [machine], current_class) == [reason]


def test_a_machine_with_another_image_has_drifted(world, cloud, current_class):
    """# case 110: by the form of AKS, whatever gallery the class has its images from"""
    machine, other = machines(cloud, 2)
    cloud.aks_machines.get("web-1").node_image_version = "AKSUbuntu-2204gen2containerd-202001.01.0"
    cloud.aks_machines.get("web-1").drift_action = "Recreate"
    shared = node_class(images=(cloud.galleries.shared_id("2204gen2containerd"),))

    for each in (current_class, shared):
        assert detect(world, [machine, other], each) == [None, "ImageDrift"]
    not_ready = node_class(images_ready="False")
    assert detect(world, [machine, other], not_ready) == [None, "ClusterConfigDrift"]


def test_a_kubelet_identity_of_aks_is_no_drift(world, cloud, current_class):
    (machine,) = machines(cloud)
    labels = {"kubernetes.azure.com/kubelet-identity-client-id": "another"}
    world.nodes["node"] = NodeView(
        uid="u", name="node", provider_id=machine, kubelet_version="v1.34.1", labels=labels
    )
    assert detect(world, [machine], current_class) == [None]

    world.nodes["node"] = NodeView(
        uid="u", name="node", provider_id=machine, kubelet_version="v1.33.9", labels=labels
    )
    assert detect(world, [machine], current_class) == ["K8sVersionDrift"]


def test_machines_that_cannot_be_listed_have_not_drifted(world, cloud, current_class):
    vm = world.create("api-1")
    (machine,) = machines(cloud)
    vm_claim = claim(vm, "api-1", image=current_class.status.images[0].id)
    with cloud.fail(LIST, code="InternalServerError", status=500, times=None):
        of_vm, of_machine = world.parts.drift.detect([vm_claim, claim(machine)], current_class)
    assert of_vm is None
    assert isinstance(of_machine, CloudProviderError)


def test_only_machines_of_the_pool_are_machines(world, cloud, nodes):
    (machine,) = machines(cloud)
    vm = world.create("api-1")
    assert nodes.is_machine(machine)
    assert nodes.is_machine(machine.upper().replace("AZURE://", "azure://"))
    assert not nodes.is_machine(vm)
    assert not nodes.is_machine("")
    assert not nodes.is_machine(machine.replace(cloud.world.machines_pool, "other"))
