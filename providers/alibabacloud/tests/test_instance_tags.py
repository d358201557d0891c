"""Tags of instances, and the claims of a group's instances (case 60)."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.claim_tags import TooManyClaimsError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_alibabacloud.instance_tags import (
    CLAIM_TAGS,
    is_owned,
    owned_tags,
    restricted_tags,
    to_tag_list,
)
from karpenter_provider_alibabacloud.labels import MAX_TAG_LENGTH, MAX_TAGS, NODE_CLAIM_TAG
from tests.properties import with_examples

POOL = "general"
OWN_TAGS = 4


def ref(number: int, pool: str = POOL) -> ClaimRef:
    """A claim as Kubernetes names it."""
    uid = UUID(int=Random(number).getrandbits(128), version=4)
    return ClaimRef(name=f"{pool}-x{number:04d}", uid=str(uid))


def tags_of(claims: list[ClaimRef], pool: str = POOL) -> dict[str, str]:
    """All tags of an instance of a group for these claims."""
    owned = owned_tags({}, cluster_id="c1", node_class="default", node_pool=pool)
    return owned | CLAIM_TAGS.tags_for(claims, node_pool=pool, other_tags=len(owned))


def test_tags_name_fewer_claims_than_one_call_may_launch():
    """RunInstances takes 100. The shortest names that the API server makes, and no other tags."""
    claims = [ref(number, "a") for number in range(300)]
    batches = CLAIM_TAGS.batches(claims, node_pool="a", other_tags=0)
    assert 50 < max(map(len, batches)) <= 100


def test_system_tags_win_over_the_users():
    """Case 60: four of ours, and of the user's those that are not ours."""
    tags = owned_tags(
        {"team": "web", "karpenter.sh/nodepool": "theirs"},
        cluster_id="c1",
        node_class="default",
        node_pool=POOL,
    )

    assert tags == {
        "ecs:ecs-cluster-id": "c1",
        "karpenter.k8s.alibabacloud/ecsnodeclass": "default",
        "karpenter.sh/nodepool": POOL,
        "kubernetes.io/cluster/c1": "owned",
        "team": "web",
    }
    assert [tag["Key"] for tag in to_tag_list(tags)] == sorted(tags)


def test_users_may_not_set_owner_tags():
    """They are refused when a NodeClass is launched, too."""
    keys = ["team", "kubernetes.io/cluster/other", "karpenter.sh/nodeclaim", "ecs:ecs-cluster-id"]

    assert restricted_tags(keys) == (
        "ecs:ecs-cluster-id",
        "karpenter.sh/nodeclaim",
        "kubernetes.io/cluster/other",
    )


@pytest.mark.parametrize(
    ("missing", "owned"),
    [("kubernetes.io/cluster/c1", False), ("karpenter.sh/nodepool", True), ("", True)],
)
def test_an_instance_is_recognised_by_its_cluster_tag(missing: str, owned: bool):
    """NodePool or NodeClass says that it was launched for a claim."""
    tags = tags_of([ref(1)])
    tags.pop(missing, None)

    assert is_owned(tags, "c1") is owned
    assert not is_owned(tags, "c2")


def test_nodes_of_acks_own_pools_are_not_ours():
    """They have the cluster's tag and no NodePool."""
    assert not is_owned({"kubernetes.io/cluster/c1": "owned", "ecs:ecs-cluster-id": "c1"}, "c1")


def test_an_instance_alone_names_its_claim():
    """As people and other tools read it."""
    claim = ref(1)

    tags = CLAIM_TAGS.tags_for([claim], node_pool=POOL, other_tags=OWN_TAGS)

    assert tags[NODE_CLAIM_TAG] == claim.name
    assert CLAIM_TAGS.claims_of({"karpenter.sh/nodepool": POOL, **tags}) == (claim,)


def test_fifty_claims_share_a_group():
    """Without tags of the user's, so that a hundred equal claims are two groups (case 67)."""
    claims = [ref(number) for number in range(100)]

    batches = CLAIM_TAGS.batches(claims, node_pool=POOL, other_tags=OWN_TAGS)

    assert len(batches) == 2
    assert sorted(claim.uid for batch in batches for claim in batch) == sorted(
        claim.uid for claim in claims
    )


def test_two_tags_stay_free_for_a_registered_instance():
    """Those of the user and of the claims leave room for what is added when its node registers."""
    (group, *_) = CLAIM_TAGS.batches(map(ref, range(300)), node_pool=POOL, other_tags=14)

    tags = CLAIM_TAGS.tags_for(group, node_pool=POOL, other_tags=14)

    assert len(tags) + 14 == MAX_TAGS - 2


def test_a_group_is_no_larger_than_its_tags():
    """A group with too many tags is refused, not cut."""
    claims = [ref(number) for number in range(57)]

    with pytest.raises(TooManyClaimsError, match="57 claims"):
        CLAIM_TAGS.tags_for(claims, node_pool=POOL, other_tags=OWN_TAGS)


_UIDS = st.one_of(st.uuids().map(str), st.text("abc-123", min_size=1, max_size=20))
_NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True)


@with_examples(60)
@given(
    st.dictionaries(_UIDS, _NAMES, min_size=1, max_size=80),
    st.integers(0, 13),
    st.sampled_from(["", "general", "aliyun"]),
)
def test_all_claims_are_read_back(names: dict[str, str], user_tags: int, pool: str):
    """For any names and UIDs, within the limits of ECS."""
    claims = [ClaimRef(name=name, uid=uid) for uid, name in names.items()]
    other = OWN_TAGS + user_tags

    read: list[ClaimRef] = []
    for batch in CLAIM_TAGS.batches(claims, node_pool=pool, other_tags=other):
        tags = CLAIM_TAGS.tags_for(batch, node_pool=pool, other_tags=other)
        assert len(set(tags) - {NODE_CLAIM_TAG}) + other + 2 <= MAX_TAGS
        for key, value in tags.items():
            assert len(value) <= MAX_TAG_LENGTH
            assert key == NODE_CLAIM_TAG or not value.startswith(("aliyun", "acs:"))
        read += CLAIM_TAGS.claims_of({"karpenter.sh/nodepool": pool, **tags})

    assert sorted(read, key=lambda claim: claim.uid) == sorted(claims, key=lambda claim: claim.uid)


def test_a_long_name_is_in_its_own_tag_only():
    """The UID is still there."""
    claim = ClaimRef(name="n" * 120, uid=ref(1).uid)

    tags = CLAIM_TAGS.tags_for([claim], node_pool=POOL, other_tags=OWN_TAGS)

    assert CLAIM_TAGS.claims_of(tags) == (claim,)


def test_unreadable_tags_are_left_out():
    """Handwritten tags name no claim."""
    tags = {"karpenter.k8s.alibabacloud/nodeclaims": "nonsense -x:short :"}

    assert CLAIM_TAGS.claims_of(tags) == ()


def test_instances_are_assigned_in_order_of_id_and_uid():
    """Every reader of the tags assigns alike, in any order of instances."""
    claims = sorted((ref(number) for number in range(3)), key=lambda claim: claim.uid)
    tags = tags_of(claims)
    instances = dict.fromkeys(("i-c", "i-a", "i-b"), tags)

    assert CLAIM_TAGS.assign_owners(instances) == dict(
        zip(("i-a", "i-b", "i-c"), claims, strict=True)
    )
    assert CLAIM_TAGS.owners_of(instances, {}) == CLAIM_TAGS.owners_of(
        dict(reversed(instances.items())), {}
    )


def test_an_instances_own_tag_counts_before_the_order():
    """A registered instance stays its claim's, whichever of its group went meanwhile."""
    claims = sorted((ref(number) for number in range(3)), key=lambda claim: claim.uid)
    tags = tags_of(claims)
    own = {**tags, NODE_CLAIM_TAG: claims[2].name}

    owners_by_id = CLAIM_TAGS.assign_owners({"i-a": own, "i-b": tags})

    assert owners_by_id == {"i-a": claims[2], "i-b": claims[0]}


def test_remembered_owners_count_first():
    """ECS does not list all instances of the group yet."""
    claims = sorted((ref(number) for number in range(2)), key=lambda claim: claim.uid)
    instances = {"i-b": tags_of(claims)}

    assert CLAIM_TAGS.owners_of(instances, {"i-b": claims[1]}) == {"i-b": claims[1]}


def test_a_late_instance_is_surplus_when_every_claim_has_one():
    """A restarted process assigned the listed instances; a claim without one was launched again.
    Later instances must be collected, not assigned to claims that have theirs."""
    claims = sorted((ref(number) for number in range(3)), key=lambda claim: claim.uid)
    tags = tags_of(claims)
    shown = dict.fromkeys(("i-a", "i-b", "i-c"), tags)
    known = {"i-b": claims[0], "i-c": claims[1], "i-z": claims[2]}

    assert CLAIM_TAGS.owners_of(shown, known) == {"i-b": claims[0], "i-c": claims[1]}


def test_groups_are_distinguished_by_their_claims():
    """The second group was for the claims that the first brought nothing."""
    claims = sorted((ref(number) for number in range(3)), key=lambda claim: claim.uid)
    first, second = tags_of(claims), tags_of(claims[1:])

    owners = CLAIM_TAGS.owners_of({"i-z": first, "i-a": second, "i-b": second}, {})

    assert owners == {"i-z": claims[0], "i-a": claims[1], "i-b": claims[2]}


def test_an_instance_beyond_the_last_claim_is_surplus():
    """It is listed, and found to be leaked."""
    tags = {key: value for key, value in tags_of([ref(1)]).items() if key != NODE_CLAIM_TAG}

    owners_by_id = CLAIM_TAGS.assign_owners(dict.fromkeys(("i-a", "i-b"), tags))

    assert owners_by_id == {"i-a": ref(1)}
