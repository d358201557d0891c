"""Drift of live instances: acceptance cases 33 to 38, rules PC-055, PC-056 and PC-058."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL
from karpenter_core.errors import BadInputError, CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from providers.aws.tests.launch.processes import (
    ON_DEMAND,
    claim_of,
    launched_claim,
    node_class_of,
)
from providers.aws.tests.launch.test_outcomes import reserved_class


@pytest.fixture
def claim(process, node_class):
    """A claim whose instance was just launched."""
    wanted = claim_of("one", ON_DEMAND, (INSTANCE_TYPE, "m5.large"))
    return launched_claim(wanted, process.launch_one(wanted, node_class))


@pytest.fixture
def detect(process):
    """Return the reason of one claim's drift, an error, or None."""

    def of(claim, node_class):
        (found,) = process.drift.detect([claim], node_class)
        return found.reason if isinstance(found, DriftFinding) else found

    return of


def with_status(node_class, **fields):
    """Return a NodeClass that has found something else."""
    status = {**node_class.status.model_dump(mode="json", by_alias=True), **fields}
    return type(node_class).model_validate(
        {**node_class.model_dump(mode="json", by_alias=True), "status": status}
    )


def with_labels(claim, **labels):
    changed = {**claim.metadata.labels, **labels}
    kept = {key: value for key, value in changed.items() if value is not None}
    return claim.model_copy(update={"metadata": claim.metadata.model_copy(update={"labels": kept})})


def test_a_new_instance_has_not_drifted(aws, process, claim, detect, node_class):
    """PC-055; many claims take one call."""
    assert detect(claim, node_class) is None
    aws.calls.clear()
    assert process.drift.detect([claim] * 5, node_class) == [None] * 5
    assert aws.calls.count("DescribeInstances") == 1


def test_another_image_is_drift(claim, detect, node_class):
    """Case 33."""
    image = node_class.status.amis[0].id
    arm_only = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]
    other = with_status(node_class, amis=[{"id": "ami-0new", "requirements": []}])
    newer = with_status(
        node_class,
        amis=[{"id": "ami-0new", "requirements": []}, {"id": image, "requirements": []}],
    )
    not_its = with_status(node_class, amis=[{"id": image, "requirements": arm_only}])

    assert [detect(claim, each) for each in (other, newer, not_its)] == ["AMIDrift"] * 3


def test_other_security_groups_are_drift(aws, claim, detect, node_class):
    """Cases 34 and 35."""
    mine = {"id": aws.world.security_group_id, "name": "nodes"}
    more = [mine, {"id": "sg-0more", "name": "more"}]
    other = [{"id": "sg-0other", "name": "other"}]

    for groups in (more, other):
        assert detect(claim, with_status(node_class, securityGroups=groups)) == "SecurityGroupDrift"
    both = with_status(
        node_class, securityGroups=other, subnets=[{"id": "subnet-0", "zone": "us-east-1a"}]
    )
    assert detect(claim, both) == "SecurityGroupDrift"


def test_groups_count_as_a_set(aws, clients, process, detect):
    """Case 34: more than the NodeClass names, or fewer, is drift; another order is none."""
    mine = {"id": aws.world.security_group_id, "name": "nodes"}
    made = clients.ec2.create_security_group(
        GroupName="more", Description="more", VpcId=aws.world.vpc_id
    )
    both = [mine, {"id": made["GroupId"], "name": "more"}]
    node_class = node_class_of(aws, clients, status={"securityGroups": both})
    wanted = claim_of("both", ON_DEMAND, (INSTANCE_TYPE, "m5.large"))
    claim = launched_claim(wanted, process.launch_one(wanted, node_class))

    def found(groups):
        return detect(claim, with_status(node_class, securityGroups=groups))

    assert found(both[::-1]) is None
    assert found([mine]) == "SecurityGroupDrift"
    assert found([*both, {"id": "sg-0third", "name": "third"}]) == "SecurityGroupDrift"


def test_another_subnet_is_drift(claim, detect, node_class):
    """Case 35."""
    other = with_status(node_class, subnets=[{"id": "subnet-0", "zone": "us-east-1a"}])

    assert detect(claim, other) == "SubnetDrift"


@pytest.mark.parametrize("field", ["amis", "securityGroups"])
def test_an_unresolved_node_class_is_an_error(claim, detect, node_class, field):
    """Cases 34 and 35."""
    found = detect(claim, with_status(node_class, **{field: []}))

    assert isinstance(found, CloudProviderError)
    assert field in str(found)


def test_a_node_class_without_subnets_is_an_error(process, claim, node_class):
    """Case 35."""
    with pytest.raises(CloudProviderError, match="subnets"):
        process.drift.detect([claim], with_status(node_class, subnets=[]))


def test_kubelet_settings_that_no_type_can_have_leave_drift_unknown(
    process, claim, node_class, monkeypatch
):
    """The claims are checked again; the NodeClass says what is wrong."""

    def failing(*_):
        raise BadInputError("spec.kubelet.maxPods: no")

    monkeypatch.setattr(type(process.offered), "instance_types", failing)
    with pytest.raises(CloudProviderError, match=r"spec\.kubelet\.maxPods: no"):
        process.drift.detect([claim], node_class)


def test_a_reservation_that_is_not_selected_any_more_is_drift(aws, clients, process, detect):
    """Case 36."""
    reservation = aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=5)
    node_class = reserved_class(aws, clients, process, reservation)
    wanted = claim_of("paid", (CAPACITY_TYPE, "reserved"))
    claim = launched_claim(wanted, process.launch_one(wanted, node_class))
    claim = with_labels(claim, **{CAPACITY_TYPE: "reserved"})
    without = with_status(node_class, capacityReservations=[])

    assert detect(claim, node_class) is None
    assert detect(claim, without) == "CapacityReservationDrift"
    aws.instance(claim.status.provider_id).capacity_reservation_id = ""
    assert detect(claim, without) is None


def test_an_instance_does_not_drift_because_its_reservation_has_ended(
    aws, clients, process, detect
):
    """EC2 calls both active for up to an hour, then the instance goes on as on-demand."""
    reservation = aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=5)
    node_class = reserved_class(aws, clients, process, reservation)
    wanted = claim_of("paid", (CAPACITY_TYPE, "reserved"))
    claim = launched_claim(wanted, process.launch_one(wanted, node_class))
    claim = with_labels(claim, **{CAPACITY_TYPE: "reserved"})
    without = with_status(node_class, capacityReservations=[])
    process.ended_reservations.add(reservation.id)

    assert detect(claim, without) is None


def test_a_placement_group_is_drift_either_way(aws, clients, process, claim, detect, node_class):
    """Case 37."""
    aws.placement_groups.add("apart", strategy="spread")
    grouped = node_class_of(aws, clients, placementGroupSelector={"name": "apart"})
    wanted = claim_of("grouped", ON_DEMAND, (INSTANCE_TYPE, "m5.large"))
    inside = launched_claim(wanted, process.launch_one(wanted, grouped))

    assert detect(inside, grouped) is None
    assert detect(claim, grouped) == "PlacementGroupDrift"
    assert detect(inside, node_class) == "PlacementGroupDrift"


def test_claims_that_say_too_little_are_errors(claim, detect, node_class):
    """Case 38."""

    def without(**status):
        return claim.model_copy(update={"status": claim.status.model_copy(update=status)})

    for broken, said in (
        (with_labels(claim, **{INSTANCE_TYPE: None}), "node.kubernetes.io/instance-type"),
        (with_labels(claim, **{INSTANCE_TYPE: "m9.large"}), "m9.large"),
        (without(image_id=""), "imageID"),
        (without(provider_id=""), "providerID"),
    ):
        found = detect(broken, node_class)
        assert isinstance(found, CloudProviderError)
        assert said in str(found)


def test_a_claim_of_no_pool_has_not_drifted(aws, claim, detect, node_class):
    other = with_status(node_class, amis=[{"id": "ami-0new", "requirements": []}])
    aws.calls.clear()

    assert detect(with_labels(claim, **{NODE_POOL: None}), other) is None
    assert not aws.calls.all


def test_an_instance_that_is_gone_is_not_found(aws, claim, detect, node_class):
    """PC-058."""
    aws.terminate(claim.status.provider_id)

    assert isinstance(detect(claim, node_class), NodeClaimNotFoundError)
