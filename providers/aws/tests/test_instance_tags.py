"""Tags of all resources, and the assignment of a fleet's instances to claims."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.claim_tags import TooManyClaimsError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_aws.instance_tags import (
    CLAIM_TAGS,
    INDEX_TAG,
    claim_batches,
    claim_tags,
    from_tag_list,
    index_pattern,
    owned_tags,
    restricted_tags,
    to_tag_list,
)
from tests.properties import with_examples

CLUSTER_TAGS = {
    "kubernetes.io/cluster/test": "owned",
    "eks:eks-cluster-name": "test",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253)
claims = st.lists(
    st.builds(ClaimRef, name=names, uid=st.uuids().map(str)),
    max_size=30,
    unique_by=(lambda claim: claim.uid, lambda claim: claim.name),
)


def refs(count: int, name: str = "web-") -> list[ClaimRef]:
    return [
        ClaimRef(name=f"{name}{i:05}", uid=f"{i:08}-0000-4000-8000-000000000000")
        for i in range(count)
    ]


def test_ours_win_over_the_users_tags():
    tags = owned_tags(
        {
            "Name": "mine",
            "karpenter.sh/nodepool": "theirs",
            "karpenter.k8s.aws/nodeclaims-3": "x",
            INDEX_TAG: "x",
        },
        cluster="test",
        node_class="default",
        node_pool="web",
    )

    assert tags == {**CLUSTER_TAGS, "Name": "mine", "karpenter.sh/nodepool": "web"}
    assert list(tags) == sorted(tags)


def test_an_instance_without_a_pool_names_none():
    assert owned_tags({}, cluster="test", node_class="default") == CLUSTER_TAGS


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/cluster/test",
        "eks:eks-cluster-name",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
    ],
)
def test_users_may_not_set_ownership_tags(key):
    assert restricted_tags({key: "x", "Name": "y", "kubernetes.io/clusters": "z"}) == (key,)


def test_tag_lists_are_sorted_and_read_back():
    tags = {"b": "2", "a": "1"}

    assert to_tag_list(tags) == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    assert from_tag_list(to_tag_list(tags)) == tags


# -- fleets --------------------------------------------------------------------------------------


def test_a_fleet_for_one_claim_names_it_outright():
    [claim] = refs(1)

    tags = CLAIM_TAGS.tags_for([claim], other_tags=4)

    assert tags == {
        "karpenter.k8s.aws/nodeclaims": "web-00000:00000000-0000-4000-8000-000000000000",
        "karpenter.sh/nodeclaim": "web-00000",
    }


def test_a_fleet_for_several_claims_names_none_outright():
    tags = CLAIM_TAGS.tags_for(refs(6), other_tags=4)

    assert sorted(tags) == ["karpenter.k8s.aws/nodeclaims", "karpenter.k8s.aws/nodeclaims-1"]
    assert tags["karpenter.k8s.aws/nodeclaims"].count(":") == 5


def test_more_claims_than_tags_hold_are_refused():
    with pytest.raises(TooManyClaimsError):
        CLAIM_TAGS.tags_for(refs(60), other_tags=4)


def test_fifty_claims_with_ordinary_names_fit_into_one_fleet():
    assert [len(batch) for batch in CLAIM_TAGS.batches(refs(120), other_tags=5)] == [50, 50, 20]


@pytest.mark.parametrize("count", [1, 51])
def test_one_tag_finds_the_instances_of_any_claim_of_a_fleet(count):
    """A filter on a tag needs its key, and claims are spread over up to ten."""
    found = [ClaimRef(name=f"w{i}", uid=f"uid-{i}") for i in range(count)]

    value = claim_tags(found, other_tags=4)[INDEX_TAG]

    assert len(value) <= 256
    assert all(fnmatchcase(value, index_pattern(claim.uid)) for claim in found)
    assert not fnmatchcase(value, index_pattern("another"))


def test_the_index_takes_a_tag_of_its_own():
    """Of fifty that an instance may have; ten claims take two, and others come later."""
    assert len(claim_tags(refs(10), other_tags=45)) == 3
    with pytest.raises(TooManyClaimsError):
        claim_tags(refs(10), other_tags=46)


def test_a_fleet_is_for_as_many_claims_as_its_index_holds():
    short = [ClaimRef(name="w", uid=f"u{i}") for i in range(120)]

    batches = claim_batches(short, other_tags=4)

    assert [len(batch) for batch in batches] == [51, 51, 18]
    assert all(len(claim_tags(batch, other_tags=4)[INDEX_TAG]) <= 256 for batch in batches)


def test_a_users_many_tags_make_fleets_smaller():
    assert [len(batch) for batch in CLAIM_TAGS.batches(refs(12), other_tags=47)] == [5, 5, 2]


def test_a_claim_with_the_longest_name_has_a_fleet_of_its_own():
    long = ClaimRef(name="n" * 253, uid="00000000-ffff-4000-8000-000000000000")

    batches = CLAIM_TAGS.batches([*refs(2), long], other_tags=4)

    assert {len(batch) for batch in batches} == {1, 2}
    assert CLAIM_TAGS.claims_of(CLAIM_TAGS.tags_for([long], other_tags=4)) == (long,)


def test_unreadable_tags_are_left_out():
    tags = {"karpenter.k8s.aws/nodeclaims": "nonsense web-1: : :uid-2"}

    assert CLAIM_TAGS.claims_of(tags) == (ClaimRef(name="", uid="uid-2"),)


@given(claims, st.integers(min_value=0, max_value=50))
@with_examples(100)
def test_every_claim_is_in_one_fleet_by_its_tags(found, other_tags):
    batches = CLAIM_TAGS.batches(found, other_tags=other_tags)

    assert sorted(c.uid for batch in batches for c in batch) == sorted(c.uid for c in found)
    for batch in batches:
        tags = CLAIM_TAGS.tags_for(batch, other_tags=other_tags)
        assert CLAIM_TAGS.claims_of(tags) == tuple(sorted(batch, key=lambda claim: claim.uid))
        assert all(len(value) <= 256 for value in tags.values())
        assert len(tags) <= 11


@given(claims, st.randoms())
@with_examples(100)
def test_fleets_and_their_tags_do_not_depend_on_the_order_of_claims(found, random):
    shuffled = random.sample(found, len(found))

    assert CLAIM_TAGS.batches(found, other_tags=4) == CLAIM_TAGS.batches(shuffled, other_tags=4)


# -- whose an instance is --------------------------------------------------------------------------


def fleet(
    count: int, instances: int, own: dict[str, str] | None = None
) -> dict[str, dict[str, str]]:
    tags = CLAIM_TAGS.tags_for(refs(count), other_tags=4)
    names = [f"i-{index}" for index in range(instances)]
    return {
        name: {**tags, **({"karpenter.sh/nodeclaim": own[name]} if own and name in own else {})}
        for name in names
    }


def test_instances_by_id_are_assigned_to_claims_by_uid():
    owners = CLAIM_TAGS.assign_owners(fleet(3, 3))

    assert {key: claim.name for key, claim in owners.items()} == {
        "i-0": "web-00000",
        "i-1": "web-00001",
        "i-2": "web-00002",
    }
    assert owners["i-1"].uid == "00000001-0000-4000-8000-000000000000"


def test_assignment_does_not_depend_on_the_listing_order():
    instances = fleet(4, 4)

    assert CLAIM_TAGS.assign_owners(instances) == CLAIM_TAGS.assign_owners(
        dict(reversed(instances.items()))
    )


def test_too_few_instances_leave_the_last_claims_without_one():
    assert {claim.name for claim in CLAIM_TAGS.assign_owners(fleet(3, 2)).values()} == {
        "web-00000",
        "web-00001",
    }


def test_an_instance_beyond_the_last_claim_is_surplus():
    assert sorted(CLAIM_TAGS.assign_owners(fleet(2, 3))) == ["i-0", "i-1"]


def test_tags_of_an_instance_count_first():
    owners = CLAIM_TAGS.assign_owners(fleet(3, 3, own={"i-2": "web-00000"}))

    assert {key: claim.name for key, claim in owners.items()} == {
        "i-0": "web-00001",
        "i-1": "web-00002",
        "i-2": "web-00000",
    }


def test_registered_instances_keep_their_claims_when_terminated_ones_are_forgotten():
    own = {"i-1": "web-00001", "i-2": "web-00002"}

    shown = fleet(3, 3, own=own)
    del shown["i-0"]

    assert {k: c.name for k, c in CLAIM_TAGS.assign_owners(shown).items()} == own


def test_an_instance_of_another_controller_has_its_claims_name():
    [claim] = CLAIM_TAGS.assign_owners({"i-1": {"karpenter.sh/nodeclaim": "old"}}).values()

    assert claim == ClaimRef(name="old", uid="")


def test_an_untagged_instance_has_no_claim():
    assert CLAIM_TAGS.assign_owners({"i-1": {}}) == {}
