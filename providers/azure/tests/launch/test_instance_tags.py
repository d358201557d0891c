"""Tags tell whose a virtual machine is; users cannot change those that do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.instance_tags import (
    CLAIM_NAME_TAG,
    CLAIM_UID_TAG,
    foreign_reason,
    instance_tags,
)
from karpenter_provider_azure.instances.vm_reader import is_owned
from karpenter_provider_azure.labels import (
    AKS_MACHINE_NODE_CLAIM_TAG,
    BILLING_TAG,
    CLUSTER_TAG,
    NODE_POOL_TAG,
)

TAGS = st.dictionaries(
    st.text("abKarpenter.zus/_", min_size=1, max_size=8)
    | st.sampled_from(
        [
            "karpenter.azure.com/cluster",
            "KARPENTER.SH_NODEPOOL",
            CLAIM_UID_TAG,
            CLAIM_NAME_TAG,
            AKS_MACHINE_NODE_CLAIM_TAG,
        ]
    ),
    st.text(max_size=3),
)


def tags(class_tags=None, additional=None):
    return instance_tags(
        class_tags or {},
        additional_tags=additional or {},
        cluster="tidal",
        claim_uid="uid-1",
        node_pool="web",
    )


def test_a_virtual_machine_has_the_managed_tags():
    assert tags() == {
        BILLING_TAG: "linux",
        CLUSTER_TAG: "tidal",
        CLAIM_UID_TAG: "uid-1",
        NODE_POOL_TAG: "web",
    }


def test_the_tags_of_a_claim_without_a_node_pool_name_none():
    made = instance_tags({}, additional_tags={}, cluster="tidal", claim_uid="uid-1")
    assert NODE_POOL_TAG not in made


@pytest.mark.parametrize(("length", "is_tagged"), [(59, False), (60, True)])
def test_a_name_that_the_virtual_machine_does_not_have_is_a_tag(length, is_tagged):
    name = "a" * length
    made = instance_tags(
        {CLAIM_NAME_TAG: "mine"}, additional_tags={}, cluster="c", claim_uid="u", claim_name=name
    )
    assert made.get(CLAIM_NAME_TAG) == (name if is_tagged else None)


def test_a_name_with_dots_is_a_tag():
    made = instance_tags(
        {}, additional_tags={}, cluster="c", claim_uid="u", claim_name="team.a-x7k2p"
    )
    assert made[CLAIM_NAME_TAG] == "team.a-x7k2p"


def test_managed_tags_replace_those_of_users():
    """In either spelling."""
    made = tags({"karpenter.azure.com/cluster": "other", "karpenter.sh_nodepool": "other"})
    assert (made[CLUSTER_TAG], made[NODE_POOL_TAG]) == ("tidal", "web")  # case 85


@pytest.mark.parametrize("key", [AKS_MACHINE_NODE_CLAIM_TAG, AKS_MACHINE_NODE_CLAIM_TAG.upper()])
def test_tags_copied_from_an_aks_machine_make_no_virtual_machine_one(key):
    """It would not be listed, and be left behind by its claim."""
    made = tags({key: "web-1", "team": "sea"}, {key: "web-1"})
    assert is_owned(made, "tidal")
    assert made == {**tags(), "team": "sea"}


def test_the_tags_of_users_name_no_node_pool_of_a_claim_without_one():
    made = instance_tags(
        {"karpenter.sh/nodepool": "web"}, additional_tags={}, cluster="tidal", claim_uid="uid-1"
    )
    assert NODE_POOL_TAG not in made


def test_additional_tags_lose_to_those_of_the_node_class():
    made = tags({"team/name": "sea"}, {"team_name": "land", "cost": "7"})  # case 85
    assert (made["team_name"], made["cost"]) == ("sea", "7")


@given(TAGS, TAGS)
def test_whatever_users_tag_the_claim_still_owns_the_virtual_machine(class_tags, additional):
    made = tags(class_tags, additional)
    assert foreign_reason(made, cluster="tidal", claim_uid="uid-1") == ""
    assert not any("/" in key for key in made)
    assert len({key.lower() for key in made}) == len(made)
    assert list(made) == sorted(made)


def test_a_virtual_machine_of_another_cluster_or_claim_is_foreign():
    made = tags()
    assert (
        foreign_reason(made, cluster="other", claim_uid="uid-1")
        == f"it has the tag {CLUSTER_TAG}=tidal"
    )
    assert (
        foreign_reason(made, cluster="tidal", claim_uid="uid-2")
        == f"it has the tag {CLAIM_UID_TAG}=uid-1"
    )
    assert (
        foreign_reason({}, cluster="tidal", claim_uid="uid-1")
        == f"it does not have the tag {CLUSTER_TAG}"
    )
    machine = {**made, AKS_MACHINE_NODE_CLAIM_TAG: "web-1"}
    assert foreign_reason(machine, cluster="tidal", claim_uid="uid-1").startswith(
        f"it has the tag {AKS_MACHINE_NODE_CLAIM_TAG}="
    )


def test_a_virtual_machine_without_the_uid_is_that_of_the_claim_it_is_named_after():
    made = {key: value for key, value in tags().items() if key != CLAIM_UID_TAG}
    assert foreign_reason(made, cluster="tidal", claim_uid="uid-1") == ""
