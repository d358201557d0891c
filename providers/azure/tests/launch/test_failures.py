"""Errors of launches are classified by code and text, and make unavailable what they are about."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import INSTANCE_TYPE, ON_DEMAND, SPOT
from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_provider_azure.arm.errors import error_of_answer, error_of_body
from karpenter_provider_azure.launch.failures import (
    LaunchAttempt,
    LaunchFailureKind,
    classify_failure,
    failed_marks,
    is_of_launch,
    launch_error,
)
from providers.azure.tests.launch.launch_world import LaunchWorld, family_sizes, vm_size

QUOTA = (
    "Operation could not be completed as it results in exceeding approved {name} quota. Additional "
    "details - Deployment Model: Resource Manager, Location: westus2, Current Limit: {limit}, "
    "Current Usage: 96, Additional Required: 32, (Minimum) New Limit Required: 128."
)
D16, D32, D48 = "Standard_D16s_v5", "Standard_D32s_v5", "Standard_D48s_v5"
EVERYWHERE = {"0", "1", "2", "3"}
HOUR = timedelta(hours=1)


def quota(name, limit=100):
    return QUOTA.format(name=name, limit=limit)


def body(code, message="", **more):
    return {"error": {"code": code, "message": message, **more}}


def world():
    return LaunchWorld(*family_sizes(16, 32, 48))


def fail(made, code, message="", *, zone="1", capacity_type=ON_DEMAND, size=D32, **more):
    """Record a refusal of an attempt; return the core's error."""
    label = zone if zone == "0" else f"westus2-{zone}"
    attempt = made.failures.attempt(size, label, capacity_type, image="i", node_pool="web")
    error = error_of_answer(409, body(code, message, **more))
    return made.failures.record(error, attempt, phase="sync")


def open_again_after(made, life, name, capacity_type, zone):
    """Whether an offering is closed until `life` has passed, and open from then on."""
    made.clock.forward(seconds=life.total_seconds() - 1)
    before = zone in made.open_zones(name, capacity_type)
    made.clock.forward(seconds=11)
    return not before and zone in made.open_zones(name, capacity_type)


def test_the_spot_quota_closes_all_spot_offerings_for_an_hour():
    made = world()
    fail(made, "OperationNotAllowed", quota("LowPriorityCores"), capacity_type=SPOT)  # case 93
    for name in made.sizes:
        assert made.open_zones(name, SPOT) == set()
        assert made.open_zones(name, ON_DEMAND) == EVERYWHERE
    assert open_again_after(made, HOUR, D16, SPOT, "0")


@pytest.mark.parametrize("name", ["LowPriorityCores", "lowprioritycores", "Low Priority Cores"])
def test_the_spot_quota_is_recognised_in_every_spelling(name):
    error = error_of_body(body("operationNotAllowed", quota(name)))
    failure = classify_failure(error, size=D32, capacity_type=SPOT)
    assert failure.kind is LaunchFailureKind.SPOT_QUOTA


@pytest.mark.parametrize(("limit", "minutes"), [(100, 10), (0, 60)])  # cases 94 and 95
def test_a_family_quota_blocks_larger_sizes_only(limit, minutes):
    """In all zones, and for the capacity type of the attempt."""
    made = world()
    fail(made, "OperationNotAllowed", quota("standardDSv5Family Cores", limit))
    assert made.open_zones(D16, ON_DEMAND) == EVERYWHERE
    assert made.open_zones(D32, ON_DEMAND) == made.open_zones(D48, ON_DEMAND) == set()
    assert made.open_zones(D32, SPOT) == EVERYWHERE
    assert open_again_after(made, timedelta(minutes=minutes), D32, ON_DEMAND, "2")


def test_a_limit_that_begins_with_zero_is_not_zero():
    error = error_of_body(body("OperationNotAllowed", quota("X Family Cores", "0.5")))
    assert classify_failure(error, size=D32, capacity_type=SPOT).life == timedelta(minutes=10)


@pytest.mark.parametrize(("capacity_type", "hours"), [(SPOT, 1), (ON_DEMAND, 23)])  # case 96
def test_a_size_that_is_not_available_is_closed_in_its_scope(capacity_type, hours):
    made = world()
    fail(made, "SkuNotAvailable", capacity_type=capacity_type)
    other = ON_DEMAND if capacity_type == SPOT else SPOT
    assert made.open_zones(D32, capacity_type) == {"0"}
    assert made.open_zones(D32, other) == EVERYWHERE
    assert open_again_after(made, timedelta(hours=hours), D32, capacity_type, "3")


def test_a_full_zone_is_closed_for_both_capacity_types():
    made = world()
    fail(made, "ZonalAllocationFailed")  # case 97
    for capacity_type in (ON_DEMAND, SPOT):
        assert made.open_zones(D32, capacity_type) == EVERYWHERE - {"1"}
        assert made.open_zones(D16, capacity_type) == EVERYWHERE
    assert open_again_after(made, HOUR, D32, SPOT, "1")


@pytest.mark.parametrize(("zone", "left"), [("1", {"0"}), ("0", {"1", "2", "3"})])  # case 98
def test_a_failed_allocation_closes_the_scope_of_the_attempt(zone, left):
    made = world()
    fail(made, "AllocationFailed", zone=zone)
    assert made.open_zones(D32, ON_DEMAND) == made.open_zones(D32, SPOT) == left
    assert open_again_after(made, HOUR, D32, SPOT, zone)


@pytest.mark.parametrize(  # case 99
    ("code", "closed"),
    [
        ("OverconstrainedZonalAllocationRequest", {"1"}),
        ("OverconstrainedAllocationRequest", {"1", "2", "3"}),
    ],
)
def test_an_overconstrained_request_closes_one_capacity_type(code, closed):
    made = world()
    fail(made, code)
    assert made.open_zones(D32, ON_DEMAND) == EVERYWHERE - closed
    assert made.open_zones(D32, SPOT) == EVERYWHERE
    assert open_again_after(made, HOUR, D32, ON_DEMAND, "1")


@pytest.mark.parametrize(
    "text",
    [
        quota("Total Regional Cores"),  # case 100
        quota("Total Regional vCPUs"),
        "Operation results in exceeding quota limits of Core. Maximum allowed: 4, Current in use: 4.",
    ],
)
def test_the_regional_quota_closes_larger_sizes_for_a_short_time(text):
    """Karpenter's provider marks nothing, and launches the same again at once."""
    made = world()
    error = fail(made, "OperationNotAllowed", text)
    assert isinstance(error, InsufficientCapacityError)
    assert made.open_zones(D16, ON_DEMAND) == EVERYWHERE
    assert made.open_zones(D48, ON_DEMAND) == set()
    assert made.open_zones(D48, SPOT) == EVERYWHERE
    assert open_again_after(made, timedelta(minutes=3), D32, ON_DEMAND, "1")


def test_a_failed_operation_is_classified_like_a_refusal():
    refused = error_of_answer(409, body("ZonalAllocationFailed", "full"))
    failed = error_of_body({"status": "Failed", **body("ZonalAllocationFailed", "full")})
    assert (refused.status, failed.status) == (409, 200)  # case 101
    assert classify_failure(refused, size=D32, capacity_type=SPOT) == classify_failure(
        failed, size=D32, capacity_type=SPOT
    )


@pytest.mark.parametrize(  # case 102
    "more",
    [
        {"details": [{"code": "SkuNotAvailable", "message": "not in westus2"}]},
        {"innererror": {"code": "SkuNotAvailable"}},
        {"details": [{"code": "X", "details": [{"code": "SKUNotAvailable"}]}]},
    ],
)
def test_the_code_may_be_that_of_a_detail(more):
    error = error_of_answer(400, body("InvalidTemplateDeployment", "see details", **more))
    failure = classify_failure(error, size=D32, capacity_type=SPOT)
    assert failure.kind is LaunchFailureKind.SIZE_NOT_AVAILABLE
    assert failure.reason == "SKUNotAvailable"


def test_too_many_requests_are_no_quota():
    """Of an operation, too, whose status is 200 whatever happened."""
    made = world()
    text = "The server rejected the request because too many requests have been received"
    error = fail(made, "OperationNotAllowed", text)  # case 103
    assert isinstance(error, ThrottledError)
    assert made.unavailable.view(now=made.clock.now()).is_empty


def test_a_block_drops_to_smaller_sizes_and_is_renewed_by_larger_ones():
    made = LaunchWorld(*family_sizes(2, 4, 8))
    d2, d4, d8 = made.sizes
    fail(made, "ZonalAllocationFailed", size=d8)
    assert "1" in made.open_zones(d4, SPOT)
    fail(made, "ZonalAllocationFailed", size=d4)  # case 105
    assert "1" not in made.open_zones(d4, SPOT)
    made.clock.forward(minutes=59)
    fail(made, "ZonalAllocationFailed", size=d8)
    made.clock.forward(minutes=59)
    assert "1" not in made.open_zones(d4, SPOT)
    assert "1" in made.open_zones(d2, SPOT)
    made.clock.forward(minutes=2)
    assert "1" in made.open_zones(d4, SPOT)


def test_a_failure_of_a_size_without_a_family_concerns_this_size_alone():
    made = LaunchWorld(*family_sizes(2, 4, family=""))
    d2, d4 = made.sizes
    error = fail(made, "ZonalAllocationFailed", size=d2)  # case 106
    assert "1" not in made.open_zones(d2, SPOT)
    assert "1" in made.open_zones(d4, SPOT)
    assert {each.capacity_type for each in error.offerings} == {SPOT, ON_DEMAND}


def test_a_quota_of_a_size_without_a_family_closes_all_its_zones():
    made = LaunchWorld(*family_sizes(2, family=""))
    (d2,) = made.sizes
    fail(made, "OperationNotAllowed", quota("X Family Cores"), size=d2)
    assert made.open_zones(d2, ON_DEMAND) == set()
    assert made.open_zones(d2, SPOT) == EVERYWHERE


def test_an_expired_mark_changes_the_sequence_by_which_catalogues_are_rebuilt():
    made = world()
    fail(made, "ZonalAllocationFailed")
    marked = made.unavailable.view(now=made.clock.now()).sequence(D32)
    made.clock.forward(hours=1, seconds=10)
    assert made.unavailable.view(now=made.clock.now()).sequence(D32) > marked  # case 104


def test_a_full_subnet_is_of_the_node_class_alone():
    error = fail(world(), "SubnetIsFull", "no address")
    assert error.scope is ExhaustedScope.NODE_CLASS


UNSUITABLE = [
    (
        "InvalidParameter",
        f"The VM size '{D32}' cannot boot with OS image or disk. Please check the disk controllers.",
    ),
    ("BadRequest", f"The selected VM size '{D32}' cannot boot Hypervisor Generation '2'."),
    ("NotSupported", f"Ephemeral OS disk is not supported for VM size {D32}."),
    (
        "NotSupported",
        f"OS disk of Ephemeral VM with size greater than 86 GB is not allowed for VM size {D32}.",
    ),
    ("InvalidParameter", f"The requested VM size {D32} is not available in the current region."),
    ("InvalidParameter", f"The Virtual Machine size ({D32}) does not support Premium_LRS."),
    (
        "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
        f"Virtual machine aks-web has size {D32}, which is not compatible with accelerated networking.",
    ),
    ("InvalidParameter", f"The value {D32} provided for the VM size is not valid."),
]


@pytest.mark.parametrize(("code", "text"), UNSUITABLE)
def test_a_size_that_azure_finds_unsuitable_is_closed_alone(code, text):
    made = world()
    error = fail(made, code, text)
    assert made.open_zones(D32, ON_DEMAND) == made.open_zones(D32, SPOT) == set()
    assert made.open_zones(D48, ON_DEMAND) == made.open_zones(D16, SPOT) == EVERYWHERE
    assert [(each.label, each.value) for each in error.quota_groups] == [(INSTANCE_TYPE, D32)]
    assert str(error) == f"SizeUnsuitable: {code}: {text}"
    assert open_again_after(made, HOUR, D32, ON_DEMAND, "0")


@pytest.mark.parametrize(
    "text",
    [
        f"The VM size '{D32}_Promo' cannot boot with OS image or disk.",
        f"The VM size 'Standard_X' is unknown; the sizes are: {D32}, {D48}",
    ],
)
def test_an_error_about_another_size_closes_none(text):
    made = world()
    assert isinstance(fail(made, "InvalidParameter", text), LaunchFailedError)
    assert made.unavailable.view(now=made.clock.now()).is_empty


@pytest.mark.parametrize("code", ["", "InvalidParameter", "ImageNotFound"])
def test_any_other_error_is_no_shortage(code):
    made = world()
    error = fail(made, code, "text")
    assert isinstance(error, LaunchFailedError)
    assert error.reason == "CreateInstanceFailed"
    assert made.unavailable.view(now=made.clock.now()).is_empty


def test_the_core_learns_of_every_size_of_the_family():
    made = LaunchWorld(*family_sizes(2, 4), vm_size("Standard_F2s_v2", cpus=2, family="other"))
    error = fail(made, "ZonalAllocationFailed", size="Standard_D4s_v5")
    assert {group.value for group in error.quota_groups} == set(list(made.sizes)[:2])
    assert {(g.least_cpu_milli, g.zone, g.capacity_type) for g in error.quota_groups} == {
        (4000, "westus2-1", "")
    }


def test_the_text_is_cut_for_conditions_and_names_the_code():
    error = error_of_body(body("ZonalAllocationFailed", "x" * 5000))
    text = classify_failure(error, size=D32, capacity_type=SPOT).text
    assert text.startswith("ZonalAllocationFailure: ZonalAllocationFailed: x")
    assert len(text) == 1200


@pytest.mark.parametrize(
    ("code", "text", "is_launch"),
    [
        ("AllocationFailed", "", True),
        ("VMExtensionProvisioningError", "extension 'computeAksLinuxBilling' failed", False),
        ("VMExtensionProvisioningError", "extension 'cse-agent-karpenter' failed", True),
    ],
)
def test_a_failed_extension_is_a_failed_launch_only_if_the_node_cannot_join(code, text, is_launch):
    assert is_of_launch(error_of_body(body(code, text))) is is_launch
    nested = body("DeploymentFailed", "see the details", details=[body(code, text)["error"]])
    assert is_of_launch(error_of_body(nested)) is is_launch


CODES = st.sampled_from(
    [
        "OperationNotAllowed",
        "SkuNotAvailable",
        "ZonalAllocationFailed",
        "AllocationFailed",
        "OverconstrainedZonalAllocationRequest",
        "OverconstrainedAllocationRequest",
        "Conflict",
    ]
)
TEXTS = st.sampled_from(
    [quota("LowPriorityCores"), quota("X Family Cores"), quota("Total Regional Cores"), "no"]
)
ATTEMPTS = st.builds(
    LaunchAttempt,
    instance_type=st.just("d4"),
    zone=st.sampled_from(["r-1", "r-2", "0"]),
    capacity_type=st.sampled_from([SPOT, ON_DEMAND]),
    group=st.sampled_from(["", "dfamily"]),
    cpu_milli=st.just(4000),
    size_zones=st.sampled_from([(), ("r-1", "r-2")]),
)


@given(CODES, TEXTS, ATTEMPTS)
def test_a_shortage_always_covers_the_offering_that_met_it(code, text, attempt):
    """Otherwise the same offering would be tried again in the same launch, for ever."""
    error = error_of_body(body(code, text))
    failure = classify_failure(
        error, size=attempt.instance_type, capacity_type=attempt.capacity_type
    )
    marks = failed_marks(failure, attempt)
    raised = launch_error(failure, marks, lambda _group: ["d4"])
    is_other_spot_quota = (
        failure.kind is LaunchFailureKind.SPOT_QUOTA and attempt.capacity_type != SPOT
    )
    covered = any(
        shortage.covers(
            capacity_type=attempt.capacity_type,
            zone=attempt.zone,
            group=attempt.group,
            cpu_milli=attempt.cpu_milli,
        )
        for shortage in marks.shortages
    ) or any(
        (each.instance_type, each.zone, each.capacity_type)
        == (attempt.instance_type, attempt.zone, attempt.capacity_type)
        for each in marks.offerings
    )
    assert covered == (isinstance(raised, InsufficientCapacityError) and not is_other_spot_quota)
    assert bool(failure.life) == bool(marks)
