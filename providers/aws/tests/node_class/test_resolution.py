"""NodeClasses resolved over the simulated AWS (acceptance cases 134, 135, 140, 143)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from providers.aws.tests.node_class.resolvers import applied, conditions, statuses

ALL_TRUE = dict.fromkeys(
    (
        "AMIsReady",
        "CapacityReservationsReady",
        "PlacementGroupReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "ValidationSucceeded",
        "Ready",
    ),
    "True",
)


def test_a_usable_node_class_is_ready_with_all_discovered_resources(parts, aws):
    """Status and conditions; the profile is made."""
    found = parts.resolve(parts.node_class())

    assert statuses(found) == ALL_TRUE
    status = found.status
    assert {subnet.zone: subnet.id for subnet in status.subnets} == aws.world.subnets
    assert all(subnet.zone_id for subnet in status.subnets)
    assert [group.id for group in status.security_groups] == [aws.world.security_group_id]
    assert len(status.amis) == 5
    assert not any(ami.deprecated for ami in status.amis)
    assert status.instance_profile in aws.held().instance_profiles


def test_resolving_again_finds_the_same_and_writes_nothing(parts):
    """With a status or without, in this process or another (PC-015)."""
    node_class = parts.node_class()
    first = parts.resolver.resolve(node_class)
    assert parts.resolver.resolve(node_class) == first

    found = applied(node_class, first, parts.clock)
    assert parts.resolve(found) == found


def test_another_process_finds_the_same(make_parts):
    """The status is all that it needs to know."""
    found = make_parts().resolve(make_parts().node_class())
    assert make_parts().resolve(found) == found


def test_without_the_gate_reservations_are_not_queried(make_parts, aws):
    """And have no condition."""
    parts = make_parts(uses_reservations=False)
    node_class = parts.node_class(capacity_reservation_selector_terms=[{"id": "cr-1"}])

    found = parts.resolve(node_class)

    assert "CapacityReservationsReady" not in statuses(found)
    assert statuses(found)["Ready"] == "True"
    assert aws.calls.count("DescribeCapacityReservations") == 0


NOTHING_FOUND = [
    pytest.param(
        {"ami_selector_terms": [{"id": "ami-0gone"}], "ami_family": "AL2023"},
        "AMIsReady",
        "AMINotFound",
        'spec.amiSelectorTerms[0].id "ami-0gone"',
        "amis",
        id="image",
    ),
    pytest.param(
        {"ami_selector_terms": [{"alias": "al2023@v19990101"}]},
        "AMIsReady",
        "AMINotFound",
        'spec.amiSelectorTerms[0].alias "al2023@v19990101"',
        "amis",
        id="alias",
    ),
    pytest.param(
        {"subnet_selector_terms": [{"tags": {"team": "nobody"}}]},
        "SubnetsReady",
        "SubnetsNotFound",
        "spec.subnetSelectorTerms[0].tags {team: nobody}",
        "subnets",
        id="subnet",
    ),
    pytest.param(
        {"security_group_selector_terms": [{"id": "sg-0gone"}]},
        "SecurityGroupsReady",
        "SecurityGroupsNotFound",
        'spec.securityGroupSelectorTerms[0].id "sg-0gone"',
        "security_groups",
        id="security group",
    ),
]


@pytest.mark.parametrize(("spec", "condition", "reason", "named", "listed"), NOTHING_FOUND)
def test_an_empty_selector_is_named_and_resolved_again_in_a_minute(
    parts, spec, condition, reason, named, listed
):
    """Case 134: the list that was there is emptied; `Ready` says why."""
    good = parts.resolve(parts.node_class())
    assert getattr(good.status, listed)
    changed = parts.node_class(generation=2, **spec).model_copy(update={"status": good.status})

    resolution = parts.resolver.resolve(changed)
    found = applied(changed, resolution, parts.clock)

    assert resolution.retry_after == timedelta(minutes=1)
    assert getattr(found.status, listed) == ()
    reported = conditions(found)[condition]
    assert (reported.status, reported.reason) == ("False", reason)
    assert named in reported.message
    ready = conditions(found)["Ready"]
    assert (ready.status, ready.reason) == ("False", "UnhealthyDependents")
    assert named in ready.message


def test_no_dry_run_before_discovery_is_complete(parts, aws):
    """Case 135: a dependency that is False."""
    found = parts.resolve(parts.node_class(subnet_selector_terms=[{"id": "subnet-0gone"}]))

    reported = conditions(found)["ValidationSucceeded"]
    assert (reported.status, reported.reason) == ("False", "DependenciesNotReady")
    assert "SubnetsReady" in reported.message
    assert aws.calls.count("CreateLaunchTemplate") == 0


def test_a_dependency_that_is_unknown_leaves_validation_unknown(parts, aws):
    """Case 135."""
    with aws.cut_off("DescribeSecurityGroups"):
        found = parts.resolve(parts.node_class())

    reported = conditions(found)["ValidationSucceeded"]
    assert (reported.status, reported.reason) == ("Unknown", "DependenciesNotReady")
    assert conditions(found)["SecurityGroupsReady"].reason == "CloudUnreachable"
    assert statuses(found)["Ready"] == "Unknown"


def test_an_alias_that_this_kubernetes_does_not_have_says_so(make_parts):
    """Case 111 as a condition; images that were found before stay listed, for drift."""
    before = make_parts(version="1.32")
    node_class = before.node_class(ami_selector_terms=[{"alias": "al2@latest"}])
    found = before.resolve(node_class)
    assert statuses(found)["Ready"] == "True"

    upgraded = make_parts(version="v1.33.1-eks-1").resolve(found)

    reported = conditions(upgraded)["AMIsReady"]
    assert (reported.status, reported.reason) == ("False", "UnsupportedAlias")
    assert 'spec.amiSelectorTerms[0].alias "al2@latest"' in reported.message
    assert upgraded.status.amis == found.status.amis


def test_a_deleted_security_group_among_others_is_named_though_ready(parts, aws, clients):
    """Nodes can be launched; the condition reports it."""
    extra = clients.ec2.create_security_group(
        GroupName="extra", Description="extra", VpcId=aws.world.vpc_id
    )["GroupId"]
    clients.ec2.delete_security_group(GroupId=extra)
    terms = [{"id": aws.world.security_group_id}, {"id": extra}]

    found = parts.resolve(parts.node_class(security_group_selector_terms=terms))

    reported = conditions(found)["SecurityGroupsReady"]
    assert (reported.status, statuses(found)["Ready"]) == ("True", "True")
    assert f'spec.securityGroupSelectorTerms[1].id "{extra}"' in reported.message


# -- Refusals and silence -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "condition", "field"),
    [
        ("ec2:DescribeSubnets", "SubnetsReady", "spec.subnetSelectorTerms"),
        ("ec2:DescribeSecurityGroups", "SecurityGroupsReady", "spec.securityGroupSelectorTerms"),
        ("ec2:DescribeImages", "AMIsReady", "spec.amiSelectorTerms"),
        ("ssm:GetParameter", "AMIsReady", "spec.amiSelectorTerms"),
        ("iam:CreateInstanceProfile", "InstanceProfileReady", "spec.role"),
        ("iam:AddRoleToInstanceProfile", "InstanceProfileReady", "spec.role"),
    ],
)
def test_a_missing_permission_is_a_condition_with_field_and_action(
    parts, aws, action, condition, field
):
    """Earlier findings stay in the status; other parts are not touched."""
    with aws.deny(action):
        found = parts.resolve(parts.node_class())

    reported = conditions(found)[condition]
    assert (reported.status, reported.reason) == ("False", "Unauthorized")
    assert field in reported.message
    assert action in reported.message
    others = {"AMIsReady", "SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady"}
    assert {statuses(found)[other] for other in others - {condition}} == {"True"}
    assert aws.held().instance_profiles == (
        [] if action.startswith("iam:") else [found.status.instance_profile]
    )


def test_wrong_credentials_are_a_condition_of_every_part(parts, aws):
    """Each names its call; nothing crashes, and nothing that was found is lost."""
    good = parts.resolve(parts.node_class())
    parts.clock.forward(minutes=20)
    with aws.fail("*", code="AuthFailure", status=401, times=None):
        found = parts.resolve(good)

    reported = conditions(found)
    for name in ("AMIsReady", "SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady"):
        assert (reported[name].status, reported[name].reason) == ("False", "Unauthorized")
    assert reported["Ready"].status == "False"
    assert "ec2:DescribeSubnets" in reported["Ready"].message
    assert found.status.subnets == good.status.subnets
    assert found.status.amis == good.status.amis


def test_a_role_that_does_not_exist_is_named(parts):
    """No half profile is left."""
    found = parts.resolve(parts.node_class(role="nobody"))

    reported = conditions(found)["InstanceProfileReady"]
    assert (reported.status, reported.reason) == ("False", "NoSuchEntity")
    assert 'spec.role "nobody"' in reported.message
    assert not parts.aws.held().instance_profiles


def test_encoded_ec2_text_is_in_no_message(parts, aws):
    """It differs each time: the condition would never rest."""
    with aws.fail(
        "DescribeSubnets",
        code="UnauthorizedOperation",
        message="You are not authorized. Encoded authorization failure message: 4fB0nw== ",
        status=403,
    ):
        found = parts.resolve(parts.node_class())
    message = conditions(found)["SubnetsReady"].message
    assert "You are not authorized." in message
    assert "Encoded" not in message


def test_without_any_answer_nothing_is_adopted(parts, aws):
    """PC-014: resolving raises, and the last finding stands."""
    good = parts.resolve(parts.node_class())
    parts.clock.forward(minutes=20)
    with aws.cut_off(), pytest.raises(CloudProviderError):
        parts.resolver.resolve(good)


def test_a_service_without_an_answer_keeps_its_last_status(parts, aws):
    """Here IAM: the others are resolved, and `Ready` does not change."""
    good = parts.resolve(parts.node_class())
    parts.clock.forward(minutes=20)
    with aws.cut_off("iam:*"):
        resolution = parts.resolver.resolve(good)
    found = applied(good, resolution, parts.clock)

    assert "InstanceProfileReady" not in {c.type for c in resolution.conditions}
    assert found == good
    assert resolution.retry_after == timedelta(minutes=1)


def test_status_of_another_spec_is_not_kept(parts, aws):
    """The role was changed, and its profile is unknown."""
    good = parts.resolve(parts.node_class())
    changed = parts.node_class(generation=2, role="other").model_copy(
        update={"status": good.status}
    )
    parts.clock.forward(minutes=20)
    with aws.cut_off("iam:*"):
        found = parts.resolve(changed)

    reported = conditions(found)["InstanceProfileReady"]
    assert (reported.status, reported.reason) == ("Unknown", "CloudUnreachable")
    assert 'spec.role "other"' in reported.message
    assert statuses(found)["Ready"] == "Unknown"
    assert found.status.instance_profile == good.status.instance_profile


def test_a_hanging_service_delays_no_other(parts, aws):
    """All are asked at once; here two are silent until both are known to be asked."""
    with (
        aws.fall_silent("ssm:*") as ssm,
        aws.fall_silent("iam:*") as iam,
        ThreadPoolExecutor(1) as pool,
    ):
        resolving = pool.submit(parts.resolver.resolve, parts.node_class())
        deadline = time.monotonic() + 8
        while not (ssm.struck and iam.struck and aws.calls.count("DescribeSubnets")):
            assert time.monotonic() < deadline, "the second waits for the first"
            time.sleep(0.01)
        ssm.end()
        iam.end()
        assert resolving.result().conditions


# -- The rest -----------------------------------------------------------------------------------


def test_a_placement_group_must_be_there(parts, aws):
    """By name or id; the status has no field for it."""
    missing = parts.resolve(parts.node_class(placement_group_selector={"name": "racks"}))
    reported = conditions(missing)["PlacementGroupReady"]
    assert (reported.status, reported.reason) == ("False", "PlacementGroupNotFound")
    assert 'name "racks"' in reported.message
    assert "spec.placementGroupSelector" in reported.message

    aws.placement_groups.add("racks", strategy="spread")
    parts.clock.forward(minutes=1)
    found = parts.resolve(missing)
    assert statuses(found) == ALL_TRUE


def test_reservations_are_listed_until_they_end(parts, aws):
    """Case 143; the next pass is due at the end of the first of them."""
    now = parts.clock.now()
    block = aws.reservations.add(
        instance_type="m5.large",
        zone="us-east-1a",
        total=3,
        kind="capacity-block",
        ends_at=now + timedelta(minutes=30),
        tags={"team": "web"},
    )
    terms = [{"tags": {"team": "web"}}]
    node_class = parts.node_class(capacity_reservation_selector_terms=terms)

    found = parts.resolve(node_class)
    (listed,) = found.status.capacity_reservations
    assert (listed.id, listed.state, listed.reservation_type) == (
        block.id,
        "expiring",
        "capacity-block",
    )
    parts.clock.forward(minutes=29, seconds=30)
    assert parts.resolver.resolve(found).retry_after == timedelta(seconds=30)
    parts.clock.forward(seconds=30)
    ended = parts.resolve(found)
    assert ended.status.capacity_reservations == ()
    assert statuses(ended) == ALL_TRUE


def test_a_changed_role_gets_another_profile(parts, aws, clients):
    """Case 140: as the status shows; the old one stays protected."""
    clients.iam.create_role(RoleName="second", AssumeRolePolicyDocument="{}")
    first = parts.resolve(parts.node_class())
    changed = parts.node_class(generation=2, role="second").model_copy(
        update={"status": first.status}
    )
    second = parts.resolve(changed)

    old, new = first.status.instance_profile, second.status.instance_profile
    assert old != new
    assert sorted(aws.held().instance_profiles) == sorted([old, new])
    assert parts.profiles.is_protected(old)
    assert parts.resolver.profiles_in_use() == {old, new}
    parts.resolve(second)
    assert parts.resolver.profiles_in_use() == {new}


def test_free_addresses_are_resolved_again_in_a_minute(parts):
    """For any other findings."""
    assert parts.resolver.resolve(parts.node_class()).retry_after == timedelta(minutes=1)
