"""Tags of instances that run: acceptance case 89, rule PC-046."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError, ThrottledError
from karpenter_provider_alibabacloud.launch.owners import CLAIM_TAGS
from karpenter_provider_alibabacloud.tagging import Tagging, TagWish, tag_change
from providers.alibabacloud.tests.discovery.worlds import node_class_of

WISH = TagWish(added={"own": "1"}, set={"theirs": "2"}, obsolete=frozenset({("old", "3")}))


class Tagged:
    """A process that tags."""

    def __init__(self, world):
        self.world = world
        self.user_tags(None)
        self.restart()

    def restart(self):
        self.world.restart()
        self.tagging = Tagging(
            self.world.clients,
            self.world.clock,
            cluster_id=self.world.cloud.world.cluster,
            reader=self.world.reader,
            last_listed=self.world.instances.last_listed,
            node_class=lambda name: self.node_class if name == "default" else None,
        )

    def user_tags(self, tags):
        """Set the tags of the NodeClass; None for one that is not known."""
        self.node_class = None if tags is None else node_class_of(self.world.cloud, tags=tags)

    def launch(self, *names, **more):
        """Launch and register; return what the core says when it asks for tags."""
        found = self.world.launch(*names, **more)
        owners = {e.provider_id: e.node_claim for e in self.world.instances.fetch(found)}
        return [
            (self.world.claim(owners[each], each), self.world.join(each, spot=False))
            for each in found
        ]

    def sync(self, *pairs):
        """Do as the core does, until all is done; return how many seconds that took."""
        seconds, left = 0, list(pairs)
        while left:
            later = []
            for pair in left:
                try:
                    self.tagging.sync(*pair)
                except ThrottledError:
                    later.append(pair)
            if later:
                seconds += 1
                self.world.clock.forward(1)
            left = later
        return seconds

    def tags(self, pair):
        return self.world.cloud.instance(pair[0].status.provider_id).tags

    def count(self, action="TagResources"):
        return self.world.cloud.calls.count(action)


@pytest.fixture
def tagged(world):
    return Tagged(world)


def test_what_is_missing_is_added_and_nothing_overwritten(tagged):
    """Case 89."""
    one, two = tagged.launch("web-one", "web-two")
    tagged.tags(one)["Name"] = "of somebody"

    tagged.sync(one, two)

    assert tagged.tags(one)["Name"] == "of somebody"
    assert tagged.tags(two)["Name"] == two[1].name
    for claim, node in (one, two):
        assert tagged.tags((claim, node))["karpenter.sh/nodeclaim"] == claim.name
        assert claim.name in {
            each.name for each in CLAIM_TAGS.claims_of(tagged.tags((claim, node)))
        }


def test_what_has_all_its_tags_costs_no_call(tagged):
    (pair,) = tagged.launch("alone")
    tagged.sync(pair)
    tagged.world.cloud.calls.clear()

    tagged.sync(pair)

    assert not tagged.world.cloud.calls.all


def test_what_was_listed_is_not_read_by_a_new_process(tagged):
    pairs = tagged.launch("web-one", "web-two")
    tagged.sync(*pairs)
    tagged.restart()
    tagged.world.instances.list()
    tagged.world.cloud.calls.clear()

    tagged.sync(*pairs)

    assert not tagged.world.cloud.calls.all


def test_thirty_nodes_that_lack_the_same_take_two_calls(tagged):
    """Case 89; names differ, and what differs cannot be in one call."""
    pairs = tagged.launch(*(f"web-{n}" for n in range(15)))
    pairs += tagged.launch(*(f"web-{n}" for n in range(15, 30)))
    tagged.user_tags({})
    assert tagged.sync(*pairs) >= 28
    tagged.world.cloud.calls.clear()
    tagged.world.clock.forward(1)

    tagged.user_tags({"team": "blue"})
    tagged.sync(*pairs)

    assert tagged.count() == 2
    assert all(tagged.tags(pair)["team"] == "blue" for pair in pairs)


def test_instances_that_were_not_listed_are_read_together(tagged):
    pairs = tagged.launch(*(f"web-{n}" for n in range(8)))
    tagged.restart()
    tagged.world.cloud.calls.clear()

    tagged.sync(*pairs)

    assert tagged.count("DescribeInstances") == 2
    assert tagged.count() == 8


def test_changes_are_made_once_a_second_in_the_order_in_which_they_were_asked_for(tagged):
    pairs = tagged.launch("web-one", "web-two", "web-three")
    tagged.tagging.sync(*pairs[0])
    waits = []
    for pair in pairs[1:]:
        with pytest.raises(ThrottledError) as raised:
            tagged.tagging.sync(*pair)
        waits.append(raised.value.retry_after.total_seconds())

    assert waits == [1, 2]
    assert tagged.count() == 1
    tagged.world.clock.forward(1)
    tagged.tagging.sync(*pairs[1])
    assert [("Name" in tagged.tags(pair)) for pair in pairs] == [True, True, False]


def test_the_tags_of_the_node_class_are_brought_in_line(tagged):
    """Tags are no reason to replace a node (they are not in the hash)."""
    tagged.user_tags({"team": "blue", "cost": "1"})
    (pair,) = tagged.launch("alone", user_tags={"team": "blue", "cost": "1"})
    tagged.tags(pair)["somebody"] = "else's"
    tagged.sync(pair)

    tagged.world.clock.forward(1)
    tagged.user_tags({"team": "red", "kubernetes.io/cluster/x": "owned"})
    tagged.sync(pair)

    tags = tagged.tags(pair)
    assert (tags["team"], tags["somebody"]) == ("red", "else's")
    assert "cost" not in tags
    assert "kubernetes.io/cluster/x" not in tags
    assert tags["karpenter.sh/nodepool"] == "web"


def test_a_name_that_the_node_class_gives_is_kept(tagged):
    tagged.user_tags({"Name": "worker"})
    (pair,) = tagged.launch("alone", user_tags={"Name": "worker"})

    tagged.sync(pair)

    assert tagged.tags(pair)["Name"] == "worker"


def test_what_is_gone_needs_no_tags(tagged):
    one, two = tagged.launch("web-one", "web-two")
    tagged.restart()
    tagged.world.cloud.terminate(one[0].status.provider_id)

    tagged.sync(one, two)

    assert tagged.count() == 1


def test_one_that_goes_away_does_not_keep_the_others(tagged):
    pairs = tagged.launch("web-one", "web-two", "web-three")
    tagged.user_tags({})
    tagged.sync(*pairs)
    tagged.world.instances.list()
    tagged.world.clock.forward(1)
    tagged.world.cloud.terminate(pairs[1][0].status.provider_id)

    tagged.user_tags({"team": "blue"})
    tagged.sync(*pairs)

    assert [tagged.tags(pair).get("team") for pair in pairs] == ["blue", None, "blue"]


def test_claims_without_a_node_or_that_are_going_are_not_tagged(tagged):
    ((claim, node),) = tagged.launch("early")
    going = claim.metadata.model_copy(update={"deletion_timestamp": tagged.world.clock.now()})
    tagged.world.cloud.calls.clear()

    tagged.sync((claim.model_copy(update={"metadata": going}), node))
    tagged.sync((claim.model_copy(update={"status": type(claim.status)()}), node))

    assert not tagged.world.cloud.calls.all


def test_a_refusal_is_told(tagged):
    (pair,) = tagged.launch("alone")

    with tagged.world.cloud.deny("TagResources"), pytest.raises(AuthError, match="TagResources"):
        tagged.tagging.sync(*pair)

    tagged.world.clock.forward(1)
    tagged.sync(pair)
    assert "Name" in tagged.tags(pair)


@pytest.mark.parametrize(
    ("tags", "put", "removed"),
    [
        ({}, {"own": "1", "theirs": "2"}, []),
        ({"own": "x", "theirs": "x"}, {"theirs": "2"}, []),
        ({"own": "1", "theirs": "2"}, {}, []),
        ({"own": "1", "theirs": "2", "old": "3"}, {}, ["old"]),
        ({"own": "1", "theirs": "2", "old": "changed since"}, {}, []),
    ],
)
def test_a_change_is_no_more_than_is_needed(tags, put, removed):
    change = tag_change(tags, WISH)

    assert (dict(change.put), list(change.removed)) == (put, removed)
    assert not tag_change(change.applied(tags), WISH)


def test_no_instance_gets_more_tags_than_it_can_have():
    """What names the claim comes first; what goes makes room."""
    full = {f"k{n}": "" for n in range(19)}

    assert dict(tag_change(full, WISH).put) == {"own": "1"}
    assert dict(tag_change({**full, "old": "3"}, WISH).put) == {"own": "1"}
    assert tag_change({**full, "k19": ""}, WISH).put == ()
