"""NodeClasses over the simulated cloud: status and conditions (acceptance cases 17 to 25)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from providers.alibabacloud.tests.discovery.worlds import node_class_of
from providers.alibabacloud.tests.node_class.conftest import said

READY_PARTS = ("VSwitchesReady", "SecurityGroupsReady", "ImagesReady")


def test_a_fully_resolved_node_class_is_ready_at_once(process, cloud):
    """Case 20: one answer is one patch of the status."""
    resolution = process.resolver.resolve(node_class_of(cloud))

    assert {c.type: c.status for c in resolution.conditions} == dict.fromkeys(
        (*READY_PARTS, "CapacityReservationsReady", "ValidationSucceeded", "Ready"), "True"
    )
    assert [set(item) for item in resolution.status["vSwitches"]] == [{"id", "zoneID"}] * 3
    assert resolution.status["securityGroups"] == [
        {"id": cloud.world.security_group_id, "name": f"{cloud.world.cluster}-node"}
    ]
    assert [set(item) for item in resolution.status["images"]] == [
        {"id", "name", "requirements"}
    ] * 2
    assert resolution.retry_after == timedelta(minutes=1)


def test_vswitches_with_most_addresses_come_first(process, cloud):
    """Case 18."""
    first, second, third = cloud.world.zones
    ids = cloud.world.vswitches
    for zone, free in ((first, 100), (second, 250), (third, 100)):
        cloud.networks.leave_addresses(ids[zone], free)

    resolved = process.resolve(node_class_of(cloud))

    ties = sorted([ids[first], ids[third]])
    assert [v.id for v in resolved.status.v_switches] == [ids[second], *ties]


@pytest.mark.parametrize(
    ("spec", "condition", "reason", "field"),
    [
        (
            {"vSwitchSelectorTerms": [{"tags": {"team": "none"}}]},
            "VSwitchesReady",
            "vSwitchesNotFound",
            "spec.vSwitchSelectorTerms[0] tags {team: none}",
        ),
        (
            {"securityGroupSelectorTerms": [{"name": "none"}]},
            "SecurityGroupsReady",
            "SecurityGroupsNotFound",
            'spec.securityGroupSelectorTerms[0] name "none"',
        ),
        (
            {"imageSelectorTerms": [{"id": "m-none"}]},
            "ImagesReady",
            "ImagesNotFound",
            'spec.imageSelectorTerms[0] id "m-none"',
        ),
        (
            {"imageSelectorTerms": [{"alias": "Debian"}]},
            "ImagesReady",
            "ImagesNotFound",
            'spec.imageSelectorTerms[0] alias "Debian"',
        ),
    ],
)
def test_an_empty_selector_is_named_and_resolved_again_soon(
    process, cloud, spec, condition, reason, field
):
    """Cases 17 and 19."""
    node_class = node_class_of(cloud, **spec)

    resolution = process.resolver.resolve(node_class)

    resolved = process.resolve(node_class)
    status, why, message = said(resolved, condition)
    assert (status, why) == ("False", reason)
    assert field in message
    assert field in said(resolved, "Ready")[2]
    assert said(resolved, "Ready")[0] == "False"
    assert resolution.retry_after == timedelta(seconds=15)
    others = [part for part in READY_PARTS if part != condition]
    assert [said(resolved, part)[0] for part in others] == ["True", "True"]


def test_security_groups_are_resolved_while_vswitches_are_not_answered(process, cloud):
    """Only whether both are of one network is not known then."""
    node_class = node_class_of(cloud)
    with cloud.fail("DescribeVSwitches", code="InternalError", status=500, times=None):
        resolved = process.resolve(node_class)
    assert said(resolved, "SecurityGroupsReady")[0] == "True"
    assert resolved.status.security_groups
    assert said(resolved, "VSwitchesReady")[0] != "True"


def test_an_unchanged_cloud_is_answered_alike(make_process, cloud):
    """Case 21: for every process, so that nothing is patched."""
    process = make_process()
    resolved = process.resolve(node_class_of(cloud))

    process.later(minutes=10)
    assert process.resolve(resolved) == resolved
    assert make_process().resolve(resolved) == resolved


def test_a_failed_read_erases_no_status(process, cloud):
    """Case 22."""
    resolved = process.resolve(node_class_of(cloud))
    process.later(minutes=2)
    cloud.cut_off("DescribeSecurityGroups")

    after = process.resolve(resolved)

    assert after.status == resolved.status


def test_a_part_without_an_answer_becomes_unknown_after_a_while(process, cloud):
    """Section 1.9: after three passes in a row; it recovers by itself."""
    resolved = process.resolve(node_class_of(cloud))
    with cloud.fail("DescribeSecurityGroups", code="InternalError", status=500, times=None):
        for expected in ("True", "True", "Unknown"):
            process.later(minutes=2)
            resolved = process.resolve(resolved)
            assert said(resolved, "SecurityGroupsReady")[0] == expected
        assert said(resolved, "SecurityGroupsReady")[1] == "InternalError"
        assert said(resolved, "Ready")[0] == "Unknown"
        assert resolved.status.security_groups

    process.later(minutes=2)
    assert said(process.resolve(resolved), "Ready")[0] == "True"


def test_resolution_without_an_answer_changes_nothing(process, cloud):
    """PC-014: there is no answer, however long that lasts."""
    resolved = process.resolve(node_class_of(cloud))
    cloud.cut_off()

    for _ in range(4):
        process.later(minutes=20)
        with pytest.raises(CloudProviderError, match="no answer"):
            process.resolver.resolve(resolved)


def test_vswitches_of_two_vpcs_cannot_be_used(process, cloud):
    """Case 23."""
    other = cloud.networks.add_vpc(cidr="172.16.0.0/12").id
    cloud.networks.add_vswitch(
        other, zone=cloud.world.zones[0], cidr="172.16.0.0/24", tags=cloud.world.discovery
    )

    status, reason, message = said(process.resolve(node_class_of(cloud)), "VSwitchesReady")

    assert (status, reason) == ("False", "MultipleVPCs")
    assert other in message
    assert cloud.world.vpc_id in message


def test_groups_of_two_kinds_cannot_be_mixed(process, cloud):
    basic = cloud.networks.add_security_group(
        cloud.world.vpc_id, name="basic", kind="normal", tags=cloud.world.discovery
    ).id

    status, reason, message = said(process.resolve(node_class_of(cloud)), "SecurityGroupsReady")

    assert (status, reason) == ("False", "MixedSecurityGroupTypes")
    assert f"{basic} is normal" in message


def test_groups_must_be_in_the_vpc_of_the_vswitches(process, cloud):
    other = cloud.networks.add_vpc(cidr="172.16.0.0/12").id
    group = cloud.networks.add_security_group(other, name="far", kind="enterprise").id
    node_class = node_class_of(cloud, securityGroupSelectorTerms=[{"id": group}])

    status, reason, message = said(process.resolve(node_class), "SecurityGroupsReady")

    assert (status, reason) == ("False", "SecurityGroupVPCMismatch")
    assert f"{group} is in {other}" in message


def test_a_refusal_is_a_condition_that_names_the_action_and_rests(process, cloud):
    """A missing RAM action; the request's id, which is another each time, is left out."""
    cloud.deny("DescribeSecurityGroups")
    resolved = process.resolve(node_class_of(cloud))

    status, reason, message = said(resolved, "SecurityGroupsReady")
    assert (status, reason) == ("False", "ForbiddenRAM")
    assert "spec.securityGroupSelectorTerms: ecs:DescribeSecurityGroups: Forbidden.RAM" in message
    assert "(request" not in message
    assert resolved.status.v_switches

    process.later(minutes=2)
    assert process.resolve(resolved) == resolved


def test_reservations_are_resolved_again_when_the_first_ends(process, cloud):
    """To find none is fine, and one that ends is not in the status any more."""
    zone = cloud.world.zones[0]
    made = cloud.reservations.add(
        "batch",
        instance_type="ecs.g7.large",
        zone=zone,
        total=2,
        ends_at=process.clock.now() + timedelta(seconds=40),
    )
    node_class = node_class_of(cloud, capacityReservationSelectorTerms=[{"name": "batch"}])

    resolution = process.resolver.resolve(node_class)
    resolved = process.resolve(node_class)

    assert resolution.retry_after <= timedelta(seconds=40)
    (listed,) = resolution.status["capacityReservations"]
    assert (listed["id"], listed["zoneID"]) == (made.id, zone)
    process.later(seconds=41)
    after = process.resolve(resolved)
    assert after.status.capacity_reservations == ()
    assert said(after, "Ready")[0] == "True"
    assert 'name "batch"' in said(after, "CapacityReservationsReady")[2]


def test_the_end_of_a_node_class_may_be_announced_twice(process, cloud):
    """Case 25: the core keeps the finalizer, and says which claims it waits for, until then."""
    resolved = process.resolve(node_class_of(cloud))
    calls = len(cloud.calls.all)

    for _ in range(2):
        process.finalizer.finalize(resolved)

    assert len(cloud.calls.all) == calls
