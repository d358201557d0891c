"""Instance profiles, through boto3 against moto's IAM (acceptance cases 140-142)."""

from __future__ import annotations

from itertools import count
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError

from karpenter_core.api.base import ObjectMeta
from karpenter_core.errors import AuthError, CloudProviderError, FencedError
from karpenter_core.kube.fence import ObserverFence
from karpenter_core.provider.contract import UnfencedProcess
from karpenter_provider_aws.api.nodeclass import (
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
)
from karpenter_provider_aws.discovery.call_errors import is_refusal
from karpenter_provider_aws.discovery.profile_names import (
    InstanceProfile,
    legacy_profile_name,
    profile_name,
    profile_path,
    profiles_below,
    role_name,
)
from karpenter_provider_aws.discovery.profiles import InstanceProfiles
from providers.aws.tests.discovery.moto_world import call_log, refused

PLACE = {"cluster": "blue", "region": "us-east-1"}
WRITES = {
    "CreateInstanceProfile",
    "AddRoleToInstanceProfile",
    "RemoveRoleFromInstanceProfile",
    "DeleteInstanceProfile",
}
TRUST = '{"Version": "2012-10-17", "Statement": []}'


@pytest.fixture
def iam(clients):
    for role in ("node-role", "other-role"):
        clients.iam.create_role(RoleName=role, AssumeRolePolicyDocument=TRUST)
    return clients.iam


@pytest.fixture
def make_profiles(clients, clock, iam):
    ids = count()

    def make(cluster="blue", **options):
        options = {"fence": UnfencedProcess(), "isolated": False, **options}
        return InstanceProfiles(
            clients, clock, cluster=cluster, new_id=lambda: f"id-{next(ids)}", **options
        )

    return make


@pytest.fixture
def profiles(make_profiles):
    return make_profiles()


def node_class(role="node-role", *, profile="", uid="uid-1", name="default", **spec):
    return EC2NodeClass(
        metadata=ObjectMeta(name=name, uid=uid),
        spec=EC2NodeClassSpec(role=role, **spec),
        status=EC2NodeClassStatus(instance_profile=profile),
    )


def names(iam):
    return {
        item["InstanceProfileName"] for item in iam.list_instance_profiles()["InstanceProfiles"]
    }


def role_of(iam, name):
    return [
        r["RoleName"]
        for r in iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
    ]


# -- Names --------------------------------------------------------------------------------------


def test_the_legacy_name_is_the_one_that_karpenter_gave():
    """Computed with upstream's own hash library for "us-east-1default"."""
    assert legacy_profile_name(node_class="default", **PLACE) == "blue_15843455441266977890"


@pytest.mark.parametrize(
    ("region", "node_class", "digest"),
    [
        ("", "a", 0xAF63BD4C8601B7BE),
        ("foo", "b", 0x0378817EE2ED65CB),
        ("foo", "bar", 0x340D8765A4DDA9C2),
        ("cur", "ds", 0x2183C1B327C38AE6),
    ],
)
def test_names_have_the_published_hashes_of_fnv_1(region, node_class, digest):
    """The test vectors of its authors: another hash would not find the profiles that exist."""
    name = legacy_profile_name(cluster="blue", region=region, node_class=node_class)
    assert name == f"blue_{digest}"


def test_a_legacy_name_that_iam_refuses_is_not_used():
    """A cluster's name may hold other characters, or be too long."""
    for cluster in ("a b", "x" * 128):
        assert not legacy_profile_name(cluster=cluster, region="us-east-1", node_class="default")


def test_each_new_profile_has_another_name():
    """For one NodeClass, too."""
    made = {profile_name(node_class="default", unique=unique, **PLACE) for unique in "abc"}
    assert len(made) == 3
    assert all(name.startswith("blue_") for name in made)


def test_the_path_of_a_node_class_is_below_that_of_its_cluster():
    """Another cluster whose name begins alike is no part of it."""
    cluster = profile_path(**PLACE)
    assert profile_path(**PLACE, uid="uid-1") == f"{cluster}uid-1/"
    assert not profile_path(cluster="blue-2", region="us-east-1").startswith(cluster)


@pytest.mark.parametrize(
    ("role", "name"),
    [("nodes", "nodes"), ("team/nodes", "nodes"), ("/a/b/nodes", "nodes"), ("a/", "a/")],
)
def test_a_role_is_named_without_its_path(role, name):
    """The call takes no path."""
    assert role_name(role) == name


# -- Making -------------------------------------------------------------------------------------


def test_a_role_gets_a_profile_with_path_tags_and_role(profiles, iam):
    """Case 140."""
    name = profiles.ensure(node_class(tags={"team": "web"}))

    made = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    assert made["Path"] == "/karpenter/us-east-1/blue/uid-1/"
    assert [role["RoleName"] for role in made["Roles"]] == ["node-role"]
    assert {tag["Key"]: tag["Value"] for tag in made["Tags"]} == {
        "team": "web",
        "kubernetes.io/cluster/blue": "owned",
        "eks:eks-cluster-name": "blue",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "topology.kubernetes.io/region": "us-east-1",
    }


def test_a_profile_with_the_right_role_is_unchanged(make_profiles, iam, clock):
    """Case 140: and read every quarter of an hour only, also by another process."""
    name = make_profiles().ensure(node_class())
    again = make_profiles()
    with call_log(iam) as log:
        for _ in range(3):
            assert again.ensure(node_class(profile=name)) == name
            clock.forward(minutes=4)
        assert [operation for operation, _ in log.calls] == ["GetInstanceProfile"]
        clock.forward(minutes=4)
        assert again.ensure(node_class("path/node-role", profile=name)) == name
        assert {operation for operation, _ in log.calls} == {"GetInstanceProfile"}


def test_another_role_makes_another_profile_and_both_are_protected_for_an_hour(
    profiles, iam, clock
):
    """Case 140."""
    old = profiles.ensure(node_class())
    clock.forward(minutes=30)
    new = profiles.ensure(node_class("other-role", profile=old))

    assert role_of(iam, new) == ["other-role"]
    assert role_of(iam, old) == ["node-role"]
    clock.forward(minutes=59)
    assert profiles.is_protected(old)
    assert profiles.is_protected(new)
    clock.forward(minutes=1)
    assert not profiles.is_protected(old)


def test_a_profile_with_a_foreign_role_is_replaced(make_profiles, iam):
    """Case 140: nodes that run with it keep it."""
    old = make_profiles().ensure(node_class())
    iam.remove_role_from_instance_profile(InstanceProfileName=old, RoleName="node-role")
    iam.add_role_to_instance_profile(InstanceProfileName=old, RoleName="other-role")

    new = make_profiles().ensure(node_class(profile=old))

    assert new != old
    assert role_of(iam, new) == ["node-role"]


def test_a_deleted_profile_is_created_again(make_profiles, iam):
    """Under another name."""
    assert make_profiles().ensure(node_class(profile="blue_gone")) in names(iam)


def test_a_name_that_was_not_written_into_the_status_is_remembered(profiles, iam, clock):
    """For a minute; each NodeClass and role has its own."""
    first = profiles.ensure(node_class())
    clock.forward(seconds=59)
    assert profiles.ensure(node_class()) == first
    assert profiles.ensure(node_class(uid="uid-2")) != first
    assert len(names(iam)) == 2
    clock.forward(seconds=1)
    assert profiles.ensure(node_class()) != first


def test_a_profile_of_the_users_own_needs_no_call(profiles, iam):
    """The one that was there before is kept for a while."""
    with call_log(iam) as log:
        given = node_class("", instance_profile="mine", profile="blue_before")
        assert profiles.ensure(given) == "mine"
        assert len(log) == 0
    assert profiles.is_protected("blue_before")


def test_an_incomplete_profile_is_removed(profiles, iam):
    """Case 140: when the role cannot be attached."""
    with (
        refused(iam, "AddRoleToInstanceProfile", "AccessDenied", status=403),
        pytest.raises(AuthError, match="iam:AddRoleToInstanceProfile"),
    ):
        profiles.ensure(node_class())
    assert names(iam) == set()


def test_a_role_that_is_missing_is_not_tried_again_for_a_minute(profiles, iam, clock):
    """Each attempt would make and remove a profile; the finding names the role."""
    missing = node_class("nobody")
    with call_log(iam) as log:
        for _ in range(3):
            with pytest.raises(CloudProviderError, match="nobody") as caught:
                profiles.ensure(missing)
            assert is_refusal(caught.value)
        assert len(log.of("CreateInstanceProfile")) == 1
        clock.forward(minutes=1)
        iam.create_role(RoleName="nobody", AssumeRolePolicyDocument=TRUST)
        assert role_of(iam, profiles.ensure(missing)) == ["nobody"]


@pytest.mark.parametrize("attached", ["", "node-role", "other-role"])
def test_a_profile_that_was_made_though_the_reply_was_lost_is_used(profiles, iam, attached):
    """With any role: case 140, a wrong one is replaced."""
    name = profile_name(node_class="default", unique="id-0", **PLACE)
    iam.create_instance_profile(InstanceProfileName=name, Path=profile_path(**PLACE, uid="uid-1"))
    if attached:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=attached)

    assert profiles.ensure(node_class()) == name
    assert role_of(iam, name) == ["node-role"]


def test_a_profile_that_is_there_already_is_not_used_after_another_refusal(
    profiles, iam, monkeypatch
):
    """It was not made by this call, and the refusal is told."""
    name = profile_name(node_class="default", unique="id-0", **PLACE)
    iam.create_instance_profile(InstanceProfileName=name, Path=profile_path(**PLACE, uid="uid-1"))
    answer = {"Error": {"Code": "LimitExceeded", "Message": "no more profiles"}}
    refusal = ClientError(answer, "CreateInstanceProfile")

    def refuse(**_):
        raise refusal

    monkeypatch.setattr(profiles._clients.iam, "create_instance_profile", refuse)
    with pytest.raises(CloudProviderError, match="no more profiles"):
        profiles.ensure(node_class())


# -- Removing -----------------------------------------------------------------------------------


def test_the_end_of_a_node_class_removes_all_its_profiles(profiles, iam):
    """Case 141: with a legacy one; another NodeClass's stay, and it may be repeated."""
    gone = node_class()
    old = profiles.ensure(gone)
    profiles.ensure(node_class("other-role", profile=old))
    stays = profiles.ensure(node_class(uid="uid-2", name="second"))
    legacy = legacy_profile_name(node_class="default", **PLACE)
    iam.create_instance_profile(InstanceProfileName=legacy)
    iam.create_instance_profile(InstanceProfileName="mine")

    for _ in range(2):
        profiles.remove_all(gone)

    assert names(iam) == {stays, "mine"}


def test_without_iam_access_nothing_is_removed(make_profiles, iam):
    """An isolated network has no endpoint for it."""
    isolated = make_profiles(isolated=True)
    name = isolated.ensure(node_class())
    with call_log(iam) as log:
        isolated.remove_all(node_class())
        isolated.collect([], complete=True)
        assert len(log) == 0
    assert names(iam) == {name}


def test_unused_profiles_alone_are_collected(make_profiles, iam, clock):
    """Case 142: current, claimed, protected and foreign profiles stay."""
    profiles = make_profiles()
    current, claimed, unused = (
        profiles.ensure(node_class(uid=f"uid-{i}", name=f"class-{i}")) for i in range(3)
    )
    foreign = make_profiles("blue-2").ensure(node_class())
    iam.create_instance_profile(InstanceProfileName="elsewhere", Path="/karpenter/")
    clock.forward(hours=1)
    profiles.protect("blue_new")
    protected = profiles.ensure(node_class("other-role", uid="uid-3"))
    used = {current, claimed}

    assert profiles.collect(used, complete=True) == ()
    clock.forward(minutes=30)
    assert profiles.collect(used, complete=False) == ()
    assert profiles.collect(used, complete=True) == (unused,)
    assert names(iam) == {current, claimed, protected, foreign, "elsewhere"}


def test_a_profile_that_cannot_be_removed_holds_up_no_other(profiles, iam, clock):
    """Such as one that somebody's policy protects: the next round begins with the others."""
    made = [profiles.ensure(node_class(uid=f"uid-{i}", name=f"class-{i}")) for i in range(2)]
    protected, other = sorted(made)
    clock.forward(hours=1)
    profiles.collect([], complete=True)
    clock.forward(minutes=30)
    refusal = ClientError({"Error": {"Code": "AccessDenied"}}, "DeleteInstanceProfile")
    with (
        patch.object(iam, "delete_instance_profile", side_effect=refusal),
        pytest.raises(AuthError),
    ):
        profiles.collect([], complete=True)
    assert names(iam) == set(made)
    assert profiles.collect([], complete=True) == (other, protected)


def test_nothing_is_collected_that_is_used_again(profiles, clock):
    """Between the pass that found it unused and the next."""
    name = profiles.ensure(node_class())
    clock.forward(hours=1)
    profiles.collect([], complete=True)
    clock.forward(minutes=30)
    assert profiles.collect([name], complete=True) == ()
    assert profiles.collect([], complete=True) == ()


def test_a_path_that_is_not_ours_is_never_touched():
    """For any content of the listing."""
    listed = [
        InstanceProfile(name="b", path="/karpenter/us-east-1/blue/uid-1/"),
        InstanceProfile(name="a", path="/karpenter/us-east-1/blue/uid-2/"),
        InstanceProfile(name="foreign", path="/karpenter/us-east-1/blue-2/uid-1/"),
        InstanceProfile(name="root", path="/"),
    ]
    assert profiles_below(listed, profile_path(**PLACE)) == listed[:2]


def test_a_missing_permission_names_the_call(profiles, iam):
    """As a policy would."""
    with (
        refused(iam, "GetInstanceProfile", "AccessDenied", status=403),
        pytest.raises(AuthError) as caught,
    ):
        profiles.ensure(node_class(profile="blue_1"))
    assert caught.value.action == "iam:GetInstanceProfile"


def test_a_process_that_only_observes_makes_no_profile(make_profiles, iam):
    """It may resolve NodeClasses, so the fence is asked before the change."""
    with pytest.raises(FencedError):
        make_profiles(fence=ObserverFence()).ensure(node_class())

    assert iam.list_instance_profiles()["InstanceProfiles"] == []
