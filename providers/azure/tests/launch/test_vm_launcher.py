"""A claim gets one virtual machine, from the first offering that has capacity."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import FALSE, UNKNOWN
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import (
    AuthError,
    BadInputError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    ThrottledError,
)
from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_azure import labels
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.described_vms import read_vm
from karpenter_provider_azure.instance_tags import CLAIM_UID_TAG
from karpenter_provider_azure.instances.vm_reader import claim_of
from karpenter_provider_azure.labels import CLUSTER_TAG, NODE_POOL_TAG
from providers.azure.tests.launch.launch_world import (
    IMAGE,
    MANAGED_SUBNET,
    OWN_SUBNET,
    FakeArm,
    LaunchWorld,
    family_sizes,
    instance_type,
    node_class,
    refusal,
    vm_size,
)

D2, D4 = "Standard_D2s_v5", "Standard_D4s_v5"
LOW_PRIORITY = "results in exceeding approved LowPriorityCores quota. Current Limit: 3"
MANAGED_GROUP = "nsg-id"


def only(key, *values):
    return RequirementSpec(key=key, operator="In", values=values)


def refused_when(predicate, code, message=""):
    return lambda body: refusal(code, message) if predicate(body) else None


def is_spot(body):
    return body["properties"]["priority"] == "Spot"


def interface_of(vm):
    (configuration,) = vm["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    return configuration["properties"]


# -- one request ---------------------------------------------------------------------------------


def test_a_launch_is_one_request():
    made = LaunchWorld()
    outcome = made.launch()
    assert made.arm.counts == {"virtualMachines:put": 1}  # case 73, without GET and interface
    assert made.arm.headers == [{"If-None-Match": "*"}]
    assert outcome.provider_id == (  # case 90
        "azure:///subscriptions/sub/resourceGroups/mc_foo/providers/Microsoft.Compute/"
        "virtualMachines/aks-web-1"
    )
    assert made.vm()["tags"] | {"compute.aks.billing": "linux"} == {
        CLUSTER_TAG: "tidal",
        CLAIM_UID_TAG: "uid-of-web-1",
        NODE_POOL_TAG: "web",
        "compute.aks.billing": "linux",
    }
    assert made.observer.requested == [outcome.zone]


def test_the_outcome_describes_the_node():
    outcome = LaunchWorld().launch()
    assert (outcome.instance_type, outcome.capacity_type, outcome.image_id) == (D2, SPOT, IMAGE)
    assert outcome.labels[INSTANCE_TYPE] == D2
    assert outcome.labels[ZONE] == outcome.zone
    assert outcome.labels[CAPACITY_TYPE] == SPOT
    assert outcome.labels[NODE_POOL] == "web"
    assert outcome.labels[labels.PLACEMENT_SCOPE] == labels.ZONAL
    assert outcome.labels[labels.AKS_PRIORITY] == labels.PRIORITY_SPOT
    assert outcome.labels[labels.AKS_SCALE_SET_PRIORITY] == labels.PRIORITY_SPOT
    assert outcome.labels[labels.SKU_STORAGE_ULTRA_SSD] == "false"
    assert outcome.labels[labels.SKU_CPU] == "2"
    assert labels.AKS_MODE not in outcome.labels
    assert 0 not in outcome.capacity.values()
    assert outcome.allocatable["cpu"] < outcome.capacity["cpu"] == 2000


def test_a_node_without_a_zone_has_the_zone_0():
    outcome = LaunchWorld().launch(requirements=(only(ZONE, "0"),))  # case 76
    assert (outcome.zone, outcome.labels[labels.PLACEMENT_SCOPE]) == ("0", labels.REGIONAL)


def test_a_label_that_the_claim_fixes_is_in_the_outcome():
    outcome = LaunchWorld().launch(requirements=(only(labels.AKS_MODE, "system"),))
    assert outcome.labels[labels.AKS_MODE] == "system"


def test_a_launch_is_remembered_until_listings_show_it():
    made = LaunchWorld()
    outcome = made.launch()
    launch = made.recent.of_claim("uid-of-web-1")
    assert (launch.instance_id, launch.owner.name) == ("aks-web-1", "web-1")
    assert launch.instance.provider_id == outcome.provider_id
    assert launch.instance.created == made.clock.now()


@pytest.mark.parametrize(
    ("requirements", "enabled"),
    [
        ((), False),
        ((only(labels.SKU_STORAGE_ULTRA_SSD, "true"),), True),
        ((only(labels.SKU_STORAGE_ULTRA_SSD, "true", "false"),), False),
        (
            (
                RequirementSpec(
                    key=labels.SKU_STORAGE_ULTRA_SSD, operator="NotIn", values=("true",)
                ),
            ),
            False,
        ),
    ],
)
def test_ultra_disks_are_possible_only_if_the_claim_insists(requirements, enabled):
    made = LaunchWorld(vm_size(D2, cpus=2, family="f", ultra_ssd_zones=("1",)))
    outcome = made.launch(requirements=requirements)  # case 46
    assert ("additionalCapabilities" in made.vm()["properties"]) is enabled
    assert outcome.labels[labels.SKU_STORAGE_ULTRA_SSD] == str(enabled).lower()


def test_tags_of_the_node_class_are_written():
    own = node_class(tags={"team/name": "sea"})
    made = LaunchWorld(additional_tags={"team_name": "land", "cost": "7"})
    made.launch(node_class=own)
    assert made.vm()["tags"]["team_name"] == "sea"  # case 85
    assert made.vm()["tags"]["cost"] == "7"


@pytest.mark.parametrize(  # case 78
    ("cluster_subnet", "own", "group"),
    [
        (MANAGED_SUBNET, "", ""),
        (OWN_SUBNET, "", MANAGED_GROUP),
        (MANAGED_SUBNET, OWN_SUBNET, MANAGED_GROUP),
    ],
)
def test_the_security_group_is_attached_in_networks_that_aks_does_not_manage(
    cluster_subnet, own, group
):
    made = LaunchWorld(vnet_subnet_id=cluster_subnet)
    made.launch(node_class=node_class(vnetSubnetID=own))
    interface = interface_of(made.vm())
    assert interface.get("networkSecurityGroup", {}).get("id", "") == group
    subnet = interface["ipConfigurations"][0]["properties"]["subnet"]
    assert subnet == {"id": own or cluster_subnet}


def test_a_malformed_subnet_names_the_node_class():
    with pytest.raises(LaunchFailedError, match='AKSNodeClass "general"'):
        LaunchWorld().launch(node_class=node_class(vnetSubnetID="/subnets/x"))


# -- readiness -----------------------------------------------------------------------------------


def test_a_node_class_that_is_not_ready_launches_nothing():
    made = LaunchWorld()
    with pytest.raises(NodeClassNotReadyError, match="SubnetNotFound: text"):  # case 72
        made.launch(node_class=node_class(ready=FALSE, reason="SubnetNotFound"))
    with pytest.raises(LaunchFailedError) as raised:
        made.launch(node_class=node_class(ready=UNKNOWN))
    assert raised.value.reason == "NodeClassReadinessUnknown"
    assert made.arm.calls == []


# -- refusals ------------------------------------------------------------------------------------


def test_after_the_spot_quota_the_same_launch_takes_on_demand():
    made = LaunchWorld()
    made.arm.refuse = refused_when(is_spot, "OperationNotAllowed", LOW_PRIORITY)
    outcome = made.launch()  # case 93
    assert outcome.capacity_type == ON_DEMAND
    assert made.arm.counts["virtualMachines:put"] == 2
    (shortage,) = outcome.shortages
    assert [group.capacity_type for group in shortage.quota_groups] == [SPOT]
    assert made.observer.failed == [("sync", "OperationNotAllowed")]


def test_after_a_full_zone_the_same_launch_takes_another_one():
    made = LaunchWorld()
    full = set()

    def refuse(body):
        full.update(body["zones"][:1] if not full else ())
        return refusal("ZonalAllocationFailed") if full.issuperset(body["zones"]) else None

    made.arm.refuse = refuse
    outcome = made.launch()  # case 97
    assert outcome.zone not in {f"westus2-{zone}" for zone in full}
    assert made.arm.counts["virtualMachines:put"] == 2


def test_a_family_quota_falls_back_to_another_family():
    other = vm_size("Standard_F2s_v2", cpus=2, family="standardFSv2Family")
    made = LaunchWorld(*family_sizes(2, 4), other)
    made.types[-1] = instance_type(other, dict.fromkeys(_every_offering(), 9.0))
    made.arm.refuse = refused_when(
        lambda body: "_D" in body["properties"]["hardwareProfile"]["vmSize"],
        "OperationNotAllowed",
        "exceeding approved standardDSv5Family Cores quota. Current Limit: 10",
    )
    outcome = made.launch()
    assert outcome.instance_type == other.name
    sizes = [body["properties"]["hardwareProfile"]["vmSize"] for body in made.arm.bodies]
    assert sizes == [D2, D2, other.name]  # spot, on demand, and no larger size of the family


def _every_offering():
    zones = ("westus2-1", "westus2-2", "westus2-3", "0")
    return [(zone, capacity_type) for zone in zones for capacity_type in (ON_DEMAND, SPOT)]


def test_a_claim_for_which_nothing_is_left_names_all_that_is_exhausted():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: refusal("AllocationFailed", "no capacity")
    with pytest.raises(
        InsufficientCapacityError, match="AllocationFailure: AllocationFailed"
    ) as raised:
        made.launch()
    assert made.arm.counts["virtualMachines:put"] == 2  # in zones, and without one
    assert {group.value for group in raised.value.quota_groups} == {D2, D4}
    assert made.arm.vms == {}


def test_a_launch_skips_offerings_that_the_launch_before_reported_as_full():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: refusal("AllocationFailed")
    with pytest.raises(InsufficientCapacityError):
        made.launch("web-1")
    before = made.arm.counts["virtualMachines:put"]
    with pytest.raises(InsufficientCapacityError) as raised:
        made.launch("web-2")
    assert made.arm.counts["virtualMachines:put"] == before
    assert {key.instance_type for key in raised.value.offerings} == {D2, D4}


def test_the_regional_quota_is_a_shortage():
    made = LaunchWorld(*family_sizes(2))
    text = "exceeding approved Total Regional Cores quota. Current Limit: 10"
    made.arm.refuse = lambda _body: refusal("OperationNotAllowed", text)
    with pytest.raises(InsufficientCapacityError):  # case 100
        made.launch()


def test_a_full_subnet_names_every_offering_for_this_node_class():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: refusal("SubnetIsFull", "no address", status=400)
    with pytest.raises(InsufficientCapacityError) as raised:
        made.launch()
    assert raised.value.scope is ExhaustedScope.NODE_CLASS
    assert len(raised.value.offerings) == 16
    assert made.arm.counts["virtualMachines:put"] == 1


def test_a_mistake_is_a_failed_launch_and_not_tried_elsewhere():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: refusal(
        "InvalidParameter", "customData is too long", status=400
    )
    with pytest.raises(LaunchFailedError, match="customData is too long") as raised:
        made.launch()
    assert raised.value.reason == "CreateInstanceFailed"
    assert made.arm.counts["virtualMachines:put"] == 1
    assert made.quotas.open == {}


@pytest.mark.parametrize(
    "error",
    [
        ThrottledError("slow down", retry_after=timedelta(seconds=30)),
        AuthError("forbidden", action="virtualMachines:put"),
    ],
)
def test_a_throttled_or_forbidden_launch_marks_nothing(error):
    made = LaunchWorld()
    made.arm.throttles = [error]
    with pytest.raises(type(error)) as raised:  # case 103
        made.launch()
    if isinstance(error, ThrottledError):
        assert raised.value.retry_after == error.retry_after
        assert raised.value.pauses == {"karpenter_launch_instances"}
    assert made.unavailable.view(now=made.clock.now()).is_empty
    assert made.quotas.open == {}
    assert made.launch().provider_id


def test_bad_input_of_the_boot_data_is_a_failed_launch():
    made = LaunchWorld()

    def boot_data(_target):
        raise BadInputError("spec.kubelet: cannot be used")

    made.boot.boot_data = boot_data
    with pytest.raises(LaunchFailedError, match=r"spec\.kubelet") as raised:
        made.launch()
    assert raised.value.reason == "InvalidNodeClass"


def test_vcpus_are_reserved_until_azure_counts_them():
    made = LaunchWorld()
    made.launch()
    assert made.quotas.open == {"uid-of-web-1": f"{D2} spot launched"}


# -- backend pools -------------------------------------------------------------------------------


def missing_pool(made, pool):
    def refuse(body):
        (configuration,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
        first = configuration["properties"]["ipConfigurations"][0]["properties"]
        used = [each["id"] for each in first["loadBalancerBackendAddressPools"]]
        if pool not in used:
            return None
        made.pools = ("/pools/new",)
        return refusal("InvalidResourceReference", f"Resource {pool} was not found", status=400)

    return refuse


def test_a_deleted_backend_pool_is_read_again_once():
    made = LaunchWorld()
    made.arm.refuse = missing_pool(made, made.pools[0])
    made.launch()  # case 80
    assert (made.pool_reads, made.arm.counts["virtualMachines:put"]) == (2, 2)


def test_a_reference_to_something_else_is_not_tried_again():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: refusal(
        "InvalidResourceReference", f"subnet {MANAGED_SUBNET} was not found", status=400
    )
    with pytest.raises(LaunchFailedError):  # case 80
        made.launch()
    assert (made.pool_reads, made.arm.counts["virtualMachines:put"]) == (1, 1)


def test_parallel_launches_read_deleted_pools_once():
    made = LaunchWorld()
    refuse, met = missing_pool(made, made.pools[0]), threading.Barrier(10)

    def together(body):
        error = refuse(body)
        if error is not None:
            met.wait(10)
        return error

    made.arm.refuse = together
    with ThreadPoolExecutor(10) as pool:
        outcomes = list(pool.map(made.launch, [f"web-{n}" for n in range(10)]))
    assert len({outcome.provider_id for outcome in outcomes}) == 10
    assert made.pool_reads == 2  # case 80


# -- virtual machines of earlier launches --------------------------------------------------------


def test_a_restart_adopts_the_virtual_machine():
    made = LaunchWorld()
    before = made.launch()
    made.start()
    after = made.launch()  # case 91
    assert after.provider_id == before.provider_id
    assert (after.zone, after.capacity_type, after.labels) == (
        before.zone,
        before.capacity_type,
        before.labels,
    )
    assert len(made.arm.vms) == 1
    assert made.arm.counts["virtualMachines:put"] == 2
    assert made.arm.counts["virtualMachines:get"] == 1


def test_a_launch_without_an_answer_is_adopted_by_the_next_one():
    made = LaunchWorld()
    made.arm.loses_answers = 1
    with pytest.raises(UncertainCallError):
        made.launch()
    assert made.launch().provider_id.endswith("aks-web-1")
    assert len(made.arm.vms) == 1


def test_a_repeated_request_that_was_carried_out_before_is_adopted():
    """The client repeats a request without an answer by itself."""
    made = LaunchWorld()
    assert not made.launch().existed
    made.arm.refuse = lambda _body: None
    outcome = made.launch()
    assert outcome.provider_id.endswith("aks-web-1")
    assert outcome.existed


def test_a_refused_change_of_a_virtual_machine_that_exists_adopts_it():
    """Should Azure not honour If-None-Match, it still refuses another size or zone."""
    made = LaunchWorld()
    before = made.launch()
    made.arm.refuse_first = lambda _body: refusal("PropertyChangeNotAllowed", "vmSize")
    assert made.launch().zone == before.zone
    assert made.observer.failed == []


def test_a_refusal_after_an_attempt_without_an_answer_marks_nothing():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: refusal("SkuNotAvailable").of_call("put", may_be_done=True)
    with pytest.raises(UncertainCallError):
        made.launch()
    assert made.unavailable.view(now=made.clock.now()).is_empty


def test_a_virtual_machine_that_used_up_the_quota_is_adopted_without_a_request():
    made = LaunchWorld(*family_sizes(2))
    made.launch()
    made.start()
    made.closed = {(D2, zone, ct) for zone, ct in _every_offering()}
    assert made.launch().provider_id.endswith("aks-web-1")
    assert made.arm.counts["virtualMachines:put"] == 1


def test_a_quota_that_is_checked_before_the_name_hides_no_virtual_machine():
    made = LaunchWorld(*family_sizes(2))
    made.launch()
    made.start()
    made.arm.refuse_first = lambda _body: refusal("AllocationFailed")
    outcome = made.launch()
    assert outcome.provider_id.endswith("aks-web-1")
    assert outcome.shortages[0].quota_groups


def test_nothing_open_and_no_virtual_machine_is_a_shortage():
    made = LaunchWorld(*family_sizes(2))
    made.closed = {(D2, zone, ct) for zone, ct in _every_offering()}
    with pytest.raises(InsufficientCapacityError):
        made.launch()
    assert made.arm.counts == {"virtualMachines:get": 1}


def test_a_virtual_machine_of_a_size_that_is_not_requested_any_more_is_adopted():
    made = LaunchWorld()
    made.launch(types=[D4])
    assert made.launch(types=[D2]).instance_type == D4


def test_a_virtual_machine_without_a_size_is_not_adopted():
    made = LaunchWorld()
    made.launch()
    del made.vm()["properties"]["hardwareProfile"]
    with pytest.raises(CloudProviderError, match="aks-web-1 of an earlier launch has no size"):
        made.launch()
    assert len(made.arm.vms) == 1


def test_a_failed_virtual_machine_without_a_size_marks_nothing():
    made = LaunchWorld()
    made.launch()
    del made.vm()["properties"]["hardwareProfile"]
    made.arm.fail("aks-web-1", "ZonalAllocationFailed")
    with pytest.raises(CloudProviderError):
        made.launch()
    assert made.unavailable.view(now=made.clock.now()).is_empty


@pytest.mark.parametrize("tag", [CLUSTER_TAG, CLAIM_UID_TAG])
def test_a_virtual_machine_of_another_claim_is_not_adopted(tag):
    made = LaunchWorld()
    made.launch()
    made.vm()["tags"][tag] = "other"
    with pytest.raises(LaunchFailedError, match=f"{tag}=other") as raised:
        made.launch()
    assert raised.value.reason == "VirtualMachineExists"
    assert made.arm.counts["virtualMachines:delete"] == 0


def test_a_virtual_machine_that_is_being_deleted_is_waited_for():
    made = LaunchWorld()
    made.launch()
    made.vm()["properties"]["provisioningState"] = "Deleting"
    with pytest.raises(CloudProviderError, match="is being deleted") as raised:
        made.launch()
    assert type(raised.value) is CloudProviderError
    made.arm.vms.clear()
    assert made.launch().provider_id


@pytest.mark.parametrize("action", ["get", "send"])
@pytest.mark.parametrize(
    "error", [ThrottledError("slow down"), AuthError("forbidden", action="virtualMachines:get")]
)
def test_an_existing_virtual_machine_that_cannot_be_read_or_deleted_is_not_denied(action, error):
    """The core takes these errors of a launch for the absence of a virtual machine."""
    made = LaunchWorld()
    made.launch()
    made.arm.fail("aks-web-1", "ZonalAllocationFailed")
    own = getattr(made.arm, action)

    def refuse(*args, **kwargs):
        if args[0] == "PUT":
            return own(*args, **kwargs)
        raise error

    setattr(made.arm, action, refuse)
    with pytest.raises(CloudProviderError, match=r"slow down|forbidden") as raised:
        made.launch()
    assert type(raised.value) is CloudProviderError


@pytest.mark.parametrize("pool", ["a" * 54, "a" * 63])
def test_a_claim_of_any_node_pool_has_one_virtual_machine(pool):
    """The name of a NodePool is a label: it has up to 63 characters."""
    made, name = LaunchWorld(), f"{pool}-x7k2p"
    first = made.launch(name, pool=pool)
    made.start()
    assert made.launch(name, pool=pool).provider_id == first.provider_id
    assert made.launch(f"{pool}-x7k2q", pool=pool).provider_id != first.provider_id

    vm, other = (read_vm(each) for each in made.arm.vms.values())
    assert len(vm.name) == len(other.name) == 63
    assert claim_of(vm) == ClaimRef(name=name, uid=vm.tags[CLAIM_UID_TAG])
    assert made.arm.counts["virtualMachines:put"] == 3


def test_a_virtual_machine_that_failed_before_a_restart_is_deleted_and_counts_as_refused():
    made = LaunchWorld()
    zone = made.launch().zone
    made.arm.fail("aks-web-1", "ZonalAllocationFailed", "full")
    made.start()
    with pytest.raises(InsufficientCapacityError, match="ZonalAllocationFailed") as raised:
        made.launch()
    assert {group.zone for group in raised.value.quota_groups} == {zone}
    assert made.arm.counts["virtualMachines:delete"] == 1
    assert not made.is_available(D2, zone, SPOT)
    assert made.observer.failed == [("async", "ZonalAllocationFailed")]
    assert made.launch("web-2").zone != zone


def test_a_refusal_that_leaves_a_failed_virtual_machine_behind_is_cleaned_up():
    made = LaunchWorld()

    def refuse(body):
        path = (
            "/subscriptions/sub/resourceGroups/MC_Foo/providers/Microsoft.Compute/virtualMachines"
        )
        made.arm.vms["aks-web-1"] = {"id": f"{path}/aks-web-1", "name": "aks-web-1", **body}
        made.arm.fail("aks-web-1", "ZonalAllocationFailed")
        return refusal("ZonalAllocationFailed")

    made.arm.refuse = refuse
    with pytest.raises(InsufficientCapacityError):  # case 82
        made.launch()
    assert made.vm()["properties"]["provisioningState"] == "Deleting"


def test_a_failed_virtual_machine_and_the_refusals_before_it_are_reported_together():
    made = LaunchWorld(*family_sizes(2))
    made.launch()
    made.arm.fail("aks-web-1", "ZonalAllocationFailed")
    made.arm.refuse_first = refused_when(is_spot, "OperationNotAllowed", LOW_PRIORITY)
    with pytest.raises(InsufficientCapacityError) as raised:
        made.launch()
    groups = raised.value.quota_groups
    assert {group.value for group in groups} == {"", D2}
    assert {group.capacity_type for group in groups if not group.value} == {SPOT}


def test_the_operation_of_a_discarded_virtual_machine_is_forgotten():
    """The next one has the same name."""
    made = LaunchWorld()
    made.launch()
    made.arm.fail("aks-web-1", "ZonalAllocationFailed")
    with pytest.raises(InsufficientCapacityError):
        made.launch()
    assert not made.operations.get("aks-web-1")


def test_a_virtual_machine_whose_extension_failed_is_adopted():
    made = LaunchWorld()
    made.launch()
    made.arm.fail("aks-web-1", "VMExtensionProvisioningError", forgotten=True)
    made.start()
    assert made.launch().provider_id
    assert made.arm.counts["virtualMachines:delete"] == 0


# -- claims without a NodePool -------------------------------------------------------------------


def test_a_standalone_claim_gets_the_error_of_its_operation():
    made = LaunchWorld()
    made.on_sleep = lambda: (
        made.clock.passed < timedelta(seconds=6)
        or made.arm.fail("aks-web-1", "AllocationFailed", "no capacity")
    )
    with pytest.raises(InsufficientCapacityError, match="no capacity"):  # case 84
        made.launch(pool="")
    assert made.clock.passed == timedelta(seconds=6)
    assert made.vm()["properties"]["provisioningState"] == "Deleting"


def test_a_standalone_claim_that_takes_long_is_launched():
    made = LaunchWorld()
    assert made.launch(pool="").labels.get(NODE_POOL) is None
    assert made.clock.passed >= timedelta(seconds=90)


# -- many claims ---------------------------------------------------------------------------------


def test_two_hundred_claims_make_two_hundred_requests():
    made = LaunchWorld()
    with ThreadPoolExecutor(24) as pool:
        outcomes = list(pool.map(made.launch, [f"web-{n}" for n in range(200)]))
    assert len({outcome.provider_id for outcome in outcomes}) == 200
    assert made.arm.counts == {"virtualMachines:put": 200}  # case 92
    assert made.pool_reads == 1


def test_many_claims_spread_over_zones():
    made = LaunchWorld()
    zones = [made.launch(f"web-{n}").zone for n in range(120)]
    assert {zone for zone in zones if zones.count(zone) > 15} == {f"westus2-{n}" for n in (1, 2, 3)}


def test_a_slow_launch_holds_no_other_one():
    """Each claim is a call of its own: the fast ones are done while the slow one waits."""
    arm = FakeArm()
    made, released = LaunchWorld(arm=arm), threading.Event()
    arm.refuse = lambda body: (
        released.wait(10) and None if body["tags"][CLAIM_UID_TAG] == "uid-of-slow" else None
    )
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(made.launch, "slow")
        fast = [pool.submit(made.launch, f"web-{n}").result(10) for n in range(20)]
        assert not slow.done()
        released.set()
        assert slow.result(10).provider_id
    assert len(fast) == 20


def test_an_unanswered_launch_does_not_take_the_quota_from_its_own_repetition():
    made = LaunchWorld(*family_sizes(2))
    made.is_open = lambda it, offering: not made.quotas.open
    made.start()
    made.arm.refuse_first = lambda _body: (_ for _ in ()).throw(UncertainCallError("no answer"))
    with pytest.raises(UncertainCallError):
        made.launch()
    made.arm.refuse_first = lambda _body: None
    assert made.launch().provider_id
    assert len(made.arm.vms) == 1


def test_a_launch_that_was_not_sent_reserves_no_quota():
    made = LaunchWorld()
    made.arm.refuse_first = lambda _body: (_ for _ in ()).throw(
        CloudProviderError("no image token")
    )
    with pytest.raises(CloudProviderError, match="no image token"):
        made.launch()
    assert made.quotas.open == {}


def test_a_status_404_that_is_not_about_the_machine_is_no_absence():
    """A wrong resource group or a proxy has the same status."""
    made = LaunchWorld()
    made.launch()
    made.start()
    made.arm.refuse_first = lambda _body: refusal("AllocationFailed")
    made.arm.get = lambda *_, **__: (_ for _ in ()).throw(
        ArmNotFoundError("gone", code="ResourceGroupNotFound", status=404)
    )
    with pytest.raises(CloudProviderError, match="ResourceGroupNotFound") as raised:
        made.launch()
    assert not isinstance(raised.value, InsufficientCapacityError)


def by_policy(path="properties.hardwareProfile.vmSize", message="disallowed by policy"):
    violation = {
        "type": "PolicyViolation",
        "info": {
            "evaluationDetails": {"evaluatedExpressions": [{"result": "False", "path": path}]}
        },
    }
    return refusal("RequestDisallowedByPolicy", message, status=403, additionalInfo=[violation])


def test_a_size_that_a_policy_does_not_allow_is_followed_by_another_size():
    made = LaunchWorld(*family_sizes(2, 4))
    made.arm.refuse = lambda body: (
        by_policy() if body["properties"]["hardwareProfile"]["vmSize"] == D2 else None
    )
    assert made.launch().instance_type == D4
    assert made.arm.counts["virtualMachines:put"] == 2
    assert made.open_zones(D2, SPOT) == made.open_zones(D2, ON_DEMAND) == set()
    assert made.open_zones(D4, SPOT) == {"1", "2", "3", "0"}
    made.clock.forward(minutes=61)
    assert made.open_zones(D2, SPOT) == {"1", "2", "3", "0"}


def unsuitable(size):
    text = f"The VM size '{size}' cannot boot with OS image or disk."
    return refusal("InvalidParameter", text, status=400)


def test_a_size_that_does_not_suit_the_image_is_followed_by_another_size():
    made = LaunchWorld(*family_sizes(2, 4))
    made.arm.refuse = lambda body: (
        unsuitable(D2) if body["properties"]["hardwareProfile"]["vmSize"] == D2 else None
    )
    outcome = made.launch()
    assert outcome.instance_type == D4
    assert made.arm.counts["virtualMachines:put"] == 2
    assert [str(each) for each in outcome.shortages] == [
        f"SizeUnsuitable: InvalidParameter: The VM size '{D2}' cannot boot with OS image or disk."
    ]


@pytest.mark.parametrize(
    ("refused", "words"), [(unsuitable(D2), "cannot boot"), (by_policy(), "disallowed by policy")]
)
def test_a_claim_of_sizes_that_azure_does_not_make_says_why(refused, words):
    made = LaunchWorld(*family_sizes(2))
    made.arm.refuse = lambda _body: refused
    with pytest.raises(InsufficientCapacityError, match=words) as raised:
        made.launch()
    assert "sold out" not in str(raised.value)


def test_a_policy_about_something_else_marks_no_size():
    made = LaunchWorld()
    made.arm.refuse = lambda _body: by_policy("tags.owner")
    with pytest.raises(LaunchFailedError, match="disallowed by policy"):
        made.launch()
    assert made.unavailable.view(now=made.clock.now()).is_empty


@pytest.mark.parametrize("launches", [2, 8])
def test_launches_that_saw_the_same_room_in_a_quota_do_not_exceed_it(launches):
    """Each looks before any of them is counted."""
    made = LaunchWorld(*family_sizes(2))
    (d2,) = made.sizes.values()
    limits = {"cores": 3, "lowPriorityCores": 3}
    made.quotas = RegionQuotas(
        made.clock,
        fetch=lambda: [
            {"name": {"value": name}, "limit": limit, "currentValue": 0}
            for name, limit in limits.items()
        ],
    )
    made.quotas.refresh()
    together, waited = threading.Barrier(launches), threading.local()

    def is_open(_it, offering):
        room = made.quotas.view().has_room(d2, offering.capacity_type)
        if not hasattr(waited, "done"):
            waited.done = True
            together.wait(10)
        return room

    made.is_open = is_open
    made.start()

    def launch(number):
        try:
            return made.launch(f"web-{number}")
        except InsufficientCapacityError as error:
            return error

    with ThreadPoolExecutor(launches) as pool:
        outcomes = list(pool.map(launch, range(launches)))

    assert len(made.arm.vms) == made.arm.counts["virtualMachines:put"] == 2  # one of each kind
    refused = [each for each in outcomes if isinstance(each, InsufficientCapacityError)]
    assert len(refused) == launches - 2
    assert all("quota" in str(each) or "no offering" in str(each) for each in refused)
