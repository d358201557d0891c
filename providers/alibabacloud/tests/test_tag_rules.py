"""Tags name the claims of an instance, its cluster and its NodeClass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_alibabacloud.instance_tags import (
    CLAIM_TAGS,
    is_owned,
    owned_tags,
    restricted_tags,
    to_tag_list,
)
from karpenter_provider_alibabacloud.labels import (
    CLUSTER_ID_TAG,
    NODE_CLAIM_TAG,
    NODE_CLAIMS_TAG,
    NODE_CLASS_TAG,
    NODE_POOL_TAG,
)

UID = "0b0fd7f8-6a53-4b8c-9d1e-3f0a5c1d2e4f"
OTHER_UID = "ffffffff-0000-4b8c-9d1e-3f0a5c1d2e4f"
names = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
uids = st.one_of(st.uuids().map(str), st.from_regex(r"[A-Za-z0-9-]{1,30}", fullmatch=True))


def read_back(*claims, pool="web"):
    tags = CLAIM_TAGS.tags_for(claims, node_pool=pool, other_tags=0)
    return list(CLAIM_TAGS.claims_of({**tags, NODE_POOL_TAG: pool}))


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        ("web-7xk2p", UID),
        ("web-", UID),
        ("web", UID),
        ("other-7xk2p", UID),
        ("aliyun-7xk2p", UID),
        ("web-7xk2p", UID.upper()),
        ("web-7xk2p", UID.replace("-", "")),
        ("web-7xk2p", "not-a-uuid"),
        ("web-7xk2p", "twenty-two-characters-"),
    ],
)
def test_names_and_uids_of_any_form_are_read_back_as_they_were(name, uid):
    claims = [ClaimRef(name=name, uid=uid), ClaimRef(name="web-2", uid=OTHER_UID)]
    assert set(read_back(*claims)) == set(claims)


@given(st.lists(st.tuples(names, uids), max_size=8, unique_by=(lambda p: p[0], lambda p: p[1])))
def test_all_claims_of_a_group_are_read_back(pairs):
    claims = [ClaimRef(name=name, uid=uid) for name, uid in pairs]
    assert set(read_back(*claims)) == set(claims)


@pytest.mark.parametrize(
    ("name", "written"),
    [("web-7xk2p", "-7xk2p:"), ("other-1", "=other-1:"), ("aliyun", "=aliyun:")],
)
def test_an_entry_is_short_and_never_begins_as_ecs_refuses_it(name, written):
    claims = [ClaimRef(name=name, uid=UID), ClaimRef(name="web-2", uid=OTHER_UID)]
    tags = CLAIM_TAGS.tags_for(claims, node_pool="web", other_tags=0)
    text = " ".join(tags.values())
    assert written in text
    assert UID not in text
    assert not any(value.startswith(("aliyun", "acs:")) for value in tags.values())


@pytest.mark.parametrize(
    "entry",
    ["-7xk2p", "-7xk2p:", "-7xk2p:short", f"-7xk2p:{'*' * 22}", f"-7xk2p:{'A' * 23}"],
)
def test_an_invalid_entry_is_left_out(entry):
    tags = CLAIM_TAGS.tags_for(
        [ClaimRef(name="web-1", uid=UID), ClaimRef(name="web-2", uid=OTHER_UID)],
        node_pool="web",
        other_tags=0,
    )
    (key,) = tags.keys() - {NODE_CLAIM_TAG}
    broken = {key: f"{entry} {tags[key]}", NODE_POOL_TAG: "web"}
    assert [claim.uid for claim in CLAIM_TAGS.claims_of(broken)] == [UID, OTHER_UID]


OWN = owned_tags({}, cluster_id="c-1", node_class="default", node_pool="web")


@pytest.mark.parametrize(
    ("tags", "owned"),
    [
        (OWN, True),
        ({**OWN, CLUSTER_ID_TAG: "c-2"}, False),
        ({key: OWN[key] for key in OWN if key != CLUSTER_ID_TAG}, True),
        ({**OWN, "kubernetes.io/cluster/c-1": "shared"}, False),
        ({key: OWN[key] for key in OWN if not key.startswith("kubernetes.io/")}, False),
        ({key: OWN[key] for key in OWN if key != NODE_POOL_TAG}, True),
        ({key: OWN[key] for key in OWN if key != NODE_CLASS_TAG}, True),
        ({k: OWN[k] for k in OWN if k not in {NODE_CLASS_TAG, NODE_POOL_TAG}}, False),
        ({}, False),
    ],
)
def test_an_instance_is_ours_by_its_cluster_and_a_name_of_ours(tags, owned):
    assert is_owned(tags, "c-1") is owned
    assert not is_owned(tags, "c-9")


def test_our_tags_win_over_the_users_and_are_sorted():
    theirs = {
        "zone": "a",
        "team": "b",
        CLUSTER_ID_TAG: "x",
        NODE_CLAIMS_TAG: "y",
    }
    tags = owned_tags(theirs, cluster_id="c-1", node_class="default", node_pool="web")
    assert tags == {**OWN, "zone": "a", "team": "b"}
    assert list(tags) == sorted(tags)
    assert NODE_POOL_TAG not in owned_tags({}, cluster_id="c-1", node_class="default")
    assert to_tag_list({"b": "2", "a": "1"}) == [
        {"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "restricted"),
    [
        (CLUSTER_ID_TAG, True),
        (NODE_POOL_TAG, True),
        (NODE_CLASS_TAG, True),
        (NODE_CLAIM_TAG, True),
        (f"{NODE_CLAIMS_TAG}.2", True),
        ("kubernetes.io/cluster/c-1", True),
        ("kubernetes.io/cluster", True),
        ("team", False),
        ("kubernetes.io/role", False),
    ],
)
def test_users_may_not_set_the_ownership_tags(key, restricted):
    assert restricted_tags(["team", key]) == (key,) * restricted
