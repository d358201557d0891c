"""Drift of live instances: acceptance cases 91, 92 and 97, rules PC-055, PC-056 and PC-058."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from karpenter_provider_alibabacloud.drift import DriftDetector, drift_of
from providers.alibabacloud.tests.discovery.worlds import node_class_of


@pytest.fixture
def scheduled():
    """System events that come later, by instance id."""
    return {}


@pytest.fixture
def detector(world, scheduled):
    return DriftDetector(instances=world.instances, scheduled=lambda: scheduled)


@pytest.fixture
def detect(detector):
    """Return the reason of one claim's drift, an error, or None."""

    def of(claim, node_class):
        (found,) = detector.detect([claim], node_class)
        return found.reason if isinstance(found, DriftFinding) else found

    return of


@pytest.fixture
def claim(world):
    """A claim whose instance was just launched."""
    (found,) = world.launch("one", remembered=True)
    return world.claim("one", found)


@pytest.fixture
def node_class(world, claim):
    """A NodeClass that has found what that instance is made of."""
    instance = world.cloud.instance(claim.status.provider_id)
    return with_status(
        node_class_of(world.cloud),
        images=[{"id": instance.image_id, "requirements": []}],
        securityGroups=[{"id": world.cloud.world.security_group_id}],
        vSwitches=[
            {"id": vswitch, "zoneID": zone}
            for zone, vswitch in sorted(world.cloud.world.vswitches.items())
        ],
    )


def with_status(node_class, **fields):
    """Return a NodeClass that has found something else."""
    whole = node_class.model_dump(mode="json", by_alias=True, exclude_none=True)
    whole["status"] = {**whole.get("status", {}), **fields}
    return type(node_class).model_validate(whole)


def with_labels(claim, **labels):
    kept = {k: v for k, v in {**claim.metadata.labels, **labels}.items() if v is not None}
    return claim.model_copy(update={"metadata": claim.metadata.model_copy(update={"labels": kept})})


def test_a_new_instance_has_not_drifted(world, detector, claim, node_class):
    """PC-055; many claims take one call."""
    world.cloud.calls.clear()

    assert detector.detect([claim] * 5, node_class) == [None] * 5
    assert world.cloud.calls.count("DescribeInstances") == 1


def test_another_image_is_drift(claim, detect, node_class):
    """Case 91: of the images for all architectures, the instance's own is none any more."""
    mine = {"id": node_class.status.images[0].id, "requirements": []}
    newer = {"id": "m-newer", "requirements": []}

    assert detect(claim, with_status(node_class, images=[newer])) == "ImageDrift"
    assert detect(claim, with_status(node_class, images=[newer, mine])) is None


def test_security_groups_count_as_a_set(claim, detect, node_class):
    """Case 92."""
    mine = {"id": node_class.status.security_groups[0].id}

    for groups in ([mine, {"id": "sg-more"}], [{"id": "sg-other"}]):
        assert detect(claim, with_status(node_class, securityGroups=groups)) == "SecurityGroupDrift"


def test_a_vswitch_that_is_not_selected_any_more_is_drift(world, claim, detect, node_class):
    """Case 92."""
    mine = world.cloud.instance(claim.status.provider_id).vswitch_id
    others = [
        {"id": each.id, "zoneID": each.zone_id}
        for each in node_class.status.v_switches
        if each.id != mine
    ]

    assert others
    assert detect(claim, with_status(node_class, vSwitches=others)) == "VSwitchDrift"


def test_a_private_pool_that_is_not_selected_any_more_is_drift(world, detect, node_class):
    reservation = world.cloud.reservations.add(
        "paid", instance_type="ecs.g7.large", zone="cn-hangzhou-b", total=2
    )
    options = {"MatchCriteria": "Target", "Id": reservation.id}
    (found,) = world.launch("paid", PrivatePoolOptions=options)
    claim = world.claim("paid", found, **{CAPACITY_TYPE: "reserved"})
    pool = {"id": reservation.id, "zoneID": "cn-hangzhou-b", "instanceType": "ecs.g7.large"}

    assert detect(claim, with_status(node_class, capacityReservations=[pool])) is None
    assert detect(claim, node_class) == "CapacityReservationDrift"
    world.cloud.instance(found).reservation_id = ""
    assert detect(claim, node_class) is None


def test_another_deployment_set_is_drift(claim, detect, node_class):
    spec = node_class.spec.model_copy(update={"deployment_set_id": "ds-1"})

    assert detect(claim, node_class.model_copy(update={"spec": spec})) == "DeploymentSetDrift"


def test_an_instance_that_will_be_worked_on_is_replaced_before(
    claim, detect, node_class, scheduled
):
    """Case 97."""
    scheduled[claim.status.provider_id.rpartition(".")[2]] = "SystemMaintenance.Reboot"

    assert detect(claim, node_class) == "SystemEventScheduled"


def test_the_first_reason_counts(claim, detect, node_class, scheduled):
    scheduled[claim.status.provider_id.rpartition(".")[2]] = "SystemMaintenance.Reboot"
    other = with_status(
        node_class,
        securityGroups=[{"id": "sg-other"}],
        vSwitches=[{"id": "vsw-other", "zoneID": "cn-hangzhou-b"}],
    )

    assert detect(claim, other) == "SecurityGroupDrift"


@pytest.mark.parametrize("field", ["images", "securityGroups", "vSwitches"])
def test_an_unresolved_node_class_is_an_error(claim, detect, node_class, field):
    found = detect(claim, with_status(node_class, **{field: []}))

    assert isinstance(found, CloudProviderError)
    assert field in str(found)


def test_claims_that_name_no_instance_are_errors(claim, detect, node_class):
    for said in ("", "kwok://one"):
        status = claim.status.model_copy(update={"provider_id": said})
        found = detect(claim.model_copy(update={"status": status}), node_class)
        assert isinstance(found, CloudProviderError)
        assert "providerID" in str(found)


def test_a_claim_of_no_pool_has_not_drifted(world, claim, detect, node_class):
    other = with_status(node_class, images=[{"id": "m-newer", "requirements": []}])
    world.cloud.calls.clear()

    assert detect(with_labels(claim, **{NODE_POOL: None}), other) is None
    assert not world.cloud.calls.all


def test_a_missing_instance_is_not_found_and_a_pending_one_has_no_drift(
    world, claim, detect, node_class
):
    """PC-058."""
    world.cloud.behaviour.invisible_seconds = 600
    assert detect(claim, node_class) is None

    world.cloud.terminate(claim.status.provider_id)
    world.clock.forward(61)

    assert isinstance(detect(claim, node_class), NodeClaimNotFoundError)


@pytest.mark.parametrize(
    ("fact", "empty"), [("image_id", ""), ("vswitch_id", ""), ("security_groups", frozenset())]
)
def test_a_description_without_the_compared_field_is_no_drift(
    world, claim, node_class, fact, empty
):
    (instance,) = world.instances.find(
        [claim.status.provider_id.rpartition(".")[2]]
    ).present.values()

    with pytest.raises(
        CloudProviderError, match=f"instance {instance.id} is described without its"
    ):
        drift_of(claim, node_class, replace(instance, **{fact: empty}))
