"""Tags of running instances: what is added, set and removed, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.records import NodeView
from karpenter_core.errors import ThrottledError
from karpenter_core.provider.kit.instances.tag_changes import DesiredTags, tag_change
from karpenter_core.provider.kit.instances.tag_queue import TagLimits, TagQueue
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.testing.state_builders import node_claim
from tests.properties import with_examples
from tests.provider.small_cloud import CLAIM_TAGS, SmallCloud

LIMITS = TagLimits(
    service="Small",
    action="small:SetTags",
    max_tags=4,
    changes_per_second=1,
    changed_at_once=10,
    read_at_once=10,
)
keys = st.sampled_from("abcdefg")
values = st.sampled_from("123")
tag_sets = st.dictionaries(keys, values, max_size=4)


class Stage:
    """A queue over a small cloud."""

    def __init__(self):
        self.cloud = SmallCloud(is_tagged=True)
        self.claims = {}
        self.held: set[str] = set()
        self.calls: list[list[str]] = []
        self.queue = TagQueue(
            self.cloud.clock,
            self,
            LIMITS,
            log_name="test.tagging",
            reader=self.cloud,
            last_listed=self.cloud.instances.last_listed,
            claim_tags=CLAIM_TAGS,
            read_claims=lambda: self.claims,
            is_held=lambda provider_id: provider_id in self.held,
        )

    def sync(self, provider_id, **added):
        name = self.cloud.instance_id(provider_id)
        self.queue.sync(name, provider_id, DesiredTags(added=added))

    def tags(self, name):
        return self.cloud.launched[name].tags

    # -- TagCalls ----------------------------------------------------------------------------------

    def make(self, change, instance_ids):
        self.calls.append(list(instance_ids))
        for name in instance_ids:
            self.cloud.change(name, tags=change.applied(self.tags(name)))

    def is_gone(self, error):
        return False

    def is_refusal(self, error):
        return False


@pytest.fixture
def stage():
    return Stage()


def test_missing_tags_are_added_and_a_listed_instance_with_all_of_them_costs_no_call(stage):
    there = stage.cloud.launch("i-1")
    stage.sync(there, team="blue")
    assert stage.tags("i-1")["team"] == "blue"

    stage.cloud.instances.list()
    stage.cloud.reads.clear()
    other = Stage()
    other.cloud.launched = stage.cloud.launched
    other.cloud.instances.list()
    other.cloud.reads.clear()
    other.sync(there, team="red")
    assert (other.cloud.reads, other.calls) == ([], []), "a tag that is there is kept"


def test_an_instance_that_is_held_is_not_changed_until_it_comes_again(stage):
    first, held = stage.cloud.launch("i-1"), stage.cloud.launch("i-2")
    stage.sync(first, team="blue")
    with pytest.raises(ThrottledError):
        stage.sync(held, team="red")
    stage.held.add(held)
    stage.cloud.clock.seconds = 1
    third = stage.cloud.launch("i-3")
    stage.sync(third, team="green")
    assert stage.calls == [["i-1"], ["i-3"]]

    stage.held.clear()
    stage.cloud.clock.seconds = 2
    stage.sync(held, team="red")
    assert stage.tags("i-2")["team"] == "red"


def test_a_terminating_instance_gets_no_tags(stage):
    leaving = stage.cloud.launch("i-1", is_leaving=True)
    stage.sync(leaving, team="blue")
    assert stage.calls == []


def test_only_a_claim_with_an_instance_and_a_node_is_tagged(stage):
    here = stage.cloud.launch("i-1")
    node = NodeView(name="node", uid="uid-node")

    def found(provider_id, view, **fields):
        claim = node_claim("a", provider_id=provider_id, **fields)
        return stage.queue.instance_to_tag(claim, view)

    assert found(here, node) == "i-1"
    assert found("", node) == ""
    assert found("kwok://a", node) == ""
    assert found(here, node, deleted=stage.cloud.clock.now()) == ""


def test_tags_without_room_are_no_error_if_no_claims_take_the_room(stage):
    full = stage.cloud.launch("i-1")
    stage.cloud.change("i-1", tags=dict.fromkeys("abcd", "1"))
    stage.sync(full, team="blue")
    assert stage.calls == []


@with_examples(200)
@given(tags=tag_sets, added=tag_sets, theirs=tag_sets, once=tag_sets, max_tags=st.integers(4, 8))
def test_a_change_leads_to_the_desired_tags_at_once_and_takes_nothing_of_others(
    tags, added, theirs, once, max_tags
):
    desired = DesiredTags(added=added, set=theirs, obsolete=frozenset(once.items()))
    change = tag_change(tags, desired, max_tags=max_tags)
    after = change.applied(tags)

    assert len(after) <= max_tags
    assert not tag_change(after, desired, max_tags=max_tags)
    assert set(change.left_out) == (added.keys() | theirs.keys()) - after.keys()
    for key, value in tags.items():
        if key in theirs:
            assert after[key] == theirs[key]
        elif key in added or once.get(key) != value:
            assert after[key] == value
        else:
            assert key not in after


def test_the_own_claim_replaces_those_of_the_launch_only_once_all_are_settled():
    claims = [ClaimRef(name=f"{name * 90}", uid=name) for name in "abcd"]
    tags = CLAIM_TAGS.tags_for(claims, other_tags=0)
    assert len(tags) == 2
    own = {CLAIM_TAGS.own_key: claims[1].name}
    desired = DesiredTags(added={**own, "x": "1", "y": "1"}, claim=claims[1])

    def change(settled):
        return tag_change(
            tags,
            desired,
            max_tags=4,
            claim_tags=CLAIM_TAGS,
            is_settled=lambda claim: claim.uid in settled,
        )

    assert change("abc").left_out == ("y",)
    freed = change("abcd")
    assert not freed.left_out
    assert CLAIM_TAGS.claims_of(freed.applied(tags)) == (claims[1],)
