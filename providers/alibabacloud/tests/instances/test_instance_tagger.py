"""Tags of instances that run: acceptance case 89, rule PC-046."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import AuthError, ThrottledError
from karpenter_core.provider.kit.instances.tag_changes import DesiredTags, tag_change
from karpenter_provider_alibabacloud.instance_tagger import InstanceTagger
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from providers.alibabacloud.tests.discovery.worlds import node_class_of

WISH = DesiredTags(added={"own": "1"}, set={"theirs": "2"}, obsolete=frozenset({("old", "3")}))


class Tagged:
    """A process that tags."""

    def __init__(self, world):
        self.world = world
        self.claims_read = 0
        self.user_tags(None)
        self.restart()

    def restart(self):
        self.world.restart()
        self.tagger = InstanceTagger(
            self.world.clients,
            self.world.clock,
            cluster_id=self.world.cloud.world.cluster,
            reader=self.world.reader,
            last_listed=self.world.instances.last_listed,
            node_class=lambda name: self.node_class if name == "default" else None,
            read_claims=self.read_claims,
        )

    def read_claims(self):
        self.claims_read += 1
        return self.world.claims

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
                    self.tagger.sync(*pair)
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


def test_missing_tags_are_added_and_none_overwritten(tagged):
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


def test_a_fully_tagged_instance_needs_no_call(tagged):
    (pair,) = tagged.launch("alone")
    tagged.sync(pair)
    tagged.world.cloud.calls.clear()

    tagged.sync(pair)

    assert not tagged.world.cloud.calls.all


def test_listed_tags_are_not_read_again_by_a_new_process(tagged):
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


def test_changes_are_made_once_a_second_in_the_requested_order(tagged):
    pairs = tagged.launch("web-one", "web-two", "web-three")
    tagged.tagger.sync(*pairs[0])
    waits = []
    for pair in pairs[1:]:
        with pytest.raises(ThrottledError) as raised:
            tagged.tagger.sync(*pair)
        waits.append(raised.value.retry_after.total_seconds())

    assert waits == [1, 2]
    assert tagged.count() == 1
    tagged.world.clock.forward(1)
    tagged.tagger.sync(*pairs[1])
    assert [("Name" in tagged.tags(pair)) for pair in pairs] == [True, True, False]


def test_changed_tags_of_the_node_class_are_updated(tagged):
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


def test_claims_are_not_read_while_all_tags_fit(tagged):
    """Each reading waits for the event loop; a change reads for all that wait."""
    pairs = tagged.launch(*(f"web-{n}" for n in range(8)))

    tagged.sync(*pairs)
    tagged.sync(*pairs)

    assert tagged.count() == 8
    assert tagged.claims_read == 0


def test_a_missing_instance_is_not_tagged(tagged):
    one, two = tagged.launch("web-one", "web-two")
    tagged.restart()
    tagged.world.cloud.terminate(one[0].status.provider_id)

    tagged.sync(one, two)

    assert tagged.count() == 1


def test_one_ended_instance_does_not_stop_tagging_others(tagged):
    pairs = tagged.launch("web-one", "web-two", "web-three")
    tagged.user_tags({})
    tagged.sync(*pairs)
    tagged.world.instances.list()
    tagged.world.clock.forward(1)
    tagged.world.cloud.terminate(pairs[1][0].status.provider_id)

    tagged.user_tags({"team": "blue"})
    tagged.sync(*pairs)

    assert [tagged.tags(pair).get("team") for pair in pairs] == ["blue", None, "blue"]


def test_an_ended_instance_is_isolated_by_one_read_and_not_by_trying_each(tagged):
    """ECS refuses the whole call; the core asks for the tags of its claim for a while yet."""
    pairs = tagged.launch(*(f"web-{number}" for number in range(8)))
    tagged.user_tags({})
    tagged.sync(*pairs)
    tagged.world.instances.list()
    tagged.world.clock.forward(1)
    tagged.world.cloud.terminate(pairs[5][0].status.provider_id)
    tagged.world.cloud.calls.clear()

    tagged.user_tags({"team": "blue"})
    tagged.sync(*pairs)

    assert [tagged.tags(pair).get("team") for pair in pairs].count("blue") == 7
    assert (
        tagged.count() <= 3
    )  # the first of them, all that are alike, and these without the ended one


def test_claims_without_a_node_or_that_are_going_are_not_tagged(tagged):
    ((claim, node),) = tagged.launch("early")
    going = claim.metadata.model_copy(update={"deletion_timestamp": tagged.world.clock.now()})
    tagged.world.cloud.calls.clear()

    tagged.sync((claim.model_copy(update={"metadata": going}), node))
    tagged.sync((claim.model_copy(update={"status": type(claim.status)()}), node))

    assert not tagged.world.cloud.calls.all


def test_a_refusal_is_reported(tagged):
    (pair,) = tagged.launch("alone")

    with tagged.world.cloud.deny("TagResources"), pytest.raises(AuthError, match="TagResources"):
        tagged.tagger.sync(*pair)

    tagged.world.clock.forward(61)
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
    change = tag_change(tags, WISH, max_tags=20)

    assert (dict(change.put), list(change.removed)) == (put, removed)
    assert not tag_change(change.applied(tags), WISH, max_tags=20)


def test_no_instance_gets_more_tags_than_it_can_have():
    """Tags that name the claim come first; removed tags make space."""
    full = {f"k{n}": "" for n in range(19)}

    assert dict(tag_change(full, WISH, max_tags=20).put) == {"own": "1"}
    assert dict(tag_change({**full, "old": "3"}, WISH, max_tags=20).put) == {"own": "1"}
    assert tag_change({**full, "k19": ""}, WISH, max_tags=20).put == ()


USER_TAGS = {"cost-center": "42", "stage": "production", "team": "search"}


@pytest.fixture
def captured_logs():
    with capture_logs() as found:
        yield found


class TestRoomForTags:
    """An instance takes twenty tags; the claims of a large launch take most of them."""

    @pytest.fixture
    def wave(self, tagged):
        """A launch whose claims take all room there is; no claim names its instance yet."""
        pairs = tagged.launch(*(f"web-{n:02}" for n in range(84)))
        tagged.sync(*pairs[:1])
        assert len(tagged.tags(pairs[0])) == 20
        for claim, _ in pairs:
            status = claim.status.model_copy(update={"provider_id": ""})
            tagged.world.claims[claim.name] = claim.model_copy(update={"status": status})
        return pairs

    def write_down(self, tagged, pairs):
        tagged.world.claims.update((claim.name, claim) for claim, _ in pairs)

    def test_user_tags_wait_for_the_claims_and_are_set_then(self, tagged, wave, captured_logs):
        tagged.user_tags(USER_TAGS)
        self.write_down(tagged, wave[1:])
        before = dict(tagged.tags(wave[0]))

        tagged.world.clock.forward(1)
        with pytest.raises(ThrottledError, match="cost-center, stage, team"):
            tagged.tagger.sync(*wave[0])
        assert tagged.tags(wave[0]) == before
        (warnings,) = [e for e in captured_logs if "cannot take all tags" in e["event"]]
        assert warnings["keys"] == sorted(USER_TAGS)

        self.write_down(tagged, wave[:1])
        tagged.sync(*wave[:2])
        for pair in wave[:2]:
            assert tagged.tags(pair).items() >= USER_TAGS.items()

    def test_claims_are_read_once_for_all_that_wait(self, tagged, wave):
        """Once about the instance that is asked for, once about the five that lack room."""
        tagged.user_tags(USER_TAGS)
        with pytest.raises(ThrottledError):
            tagged.tagger.sync(*wave[0])
        for pair in wave[1:6]:
            with pytest.raises(ThrottledError):
                tagged.tagger.sync(*pair)
        self.write_down(tagged, wave)
        tagged.world.clock.forward(1)
        tagged.claims_read = 0

        tagged.tagger.sync(*wave[1])

        assert tagged.tags(wave[1]).items() >= USER_TAGS.items()
        assert tagged.claims_read == 2

    def test_the_claim_tag_is_kept_and_owners_are_unchanged(self, tagged, wave):
        """Also for a process that knows nothing, while others have all claims in their tags."""
        tagged.user_tags(USER_TAGS)
        self.write_down(tagged, wave)
        tagged.sync(*wave[:2])
        tagged.restart()

        owners = {e.provider_id: e.token for e in tagged.world.instances.list().instances}

        assert owners == {claim.status.provider_id: claim.uid for claim, _ in wave}
        for pair in wave[:2]:
            (own,) = CLAIM_TAGS.claims_of(tagged.tags(pair))
            assert (own.name, own.uid) == (pair[0].name, pair[0].uid)

    def test_the_own_claim_is_written_before_the_others_go(self, tagged, wave):
        """A process that dies in between leaves an instance with a claim."""
        tagged.user_tags(USER_TAGS)
        self.write_down(tagged, wave)
        tagged.world.clock.forward(1)
        tagged.world.cloud.deny("UntagResources")

        with pytest.raises(AuthError):
            tagged.tagger.sync(*wave[0])

        assert [claim.uid for claim in CLAIM_TAGS.claims_of(tagged.tags(wave[0]))][:1]
        own = {claim.uid for claim in CLAIM_TAGS.claims_of(tagged.tags(wave[0]))}
        assert wave[0][0].uid in own

    def test_tags_that_never_fit_are_reported_once(self, tagged, captured_logs):
        (pair,) = tagged.launch("web-one")
        tagged.sync(pair)
        tags = tagged.tags(pair)
        tags.update({f"somebody-{n}": "1" for n in range(20 - len(tags))})
        tagged.user_tags(USER_TAGS)
        tagged.restart()

        tagged.sync(pair)
        tagged.sync(pair)

        warnings = [e for e in captured_logs if "cannot take all tags" in e["event"]]
        assert [each["keys"] for each in warnings] == [sorted(USER_TAGS)]
        assert warnings[0]["NodeClaim"] == {"name": "web-one"}


def test_one_instance_that_refuses_tags_holds_up_no_other(tagged):
    """A policy may depend on the tags of the instance itself."""
    pairs = tagged.launch(*(f"web-{n}" for n in range(8)))
    tagged.sync(*pairs)
    tagged.user_tags({"team": "search"})
    refusing = pairs[3]
    denial = tagged.world.cloud.deny_about(
        "TagResources", refusing[0].status.provider_id, resources="ResourceId"
    )
    tagged.world.clock.forward(1)
    left = list(pairs)
    for _ in range(20):
        left = [pair for pair in left if not is_synced(tagged, pair)]
        tagged.world.clock.forward(1)

    assert left == [refusing]
    assert [pair for pair in pairs if tagged.tags(pair).get("team") != "search"] == [refusing]
    with pytest.raises(AuthError):
        tagged.tagger.sync(*refusing)
    denial.end()
    tagged.world.clock.forward(61)
    tagged.sync(refusing)
    assert tagged.tags(refusing)["team"] == "search"


def is_synced(tagged, pair):
    try:
        tagged.tagger.sync(*pair)
    except (AuthError, ThrottledError):
        return False
    return True


def test_an_instance_that_stops_gets_no_tags(tagged):
    (pair,) = tagged.launch("alone")
    tagged.world.cloud.stop_instance(pair[0].status.provider_id)
    tagged.restart()

    tagged.sync(pair)

    assert tagged.count() == 0


def test_throttling_says_nothing_of_an_instance(tagged):
    """Its tags are set as soon as ECS takes calls again."""
    (pair,) = tagged.launch("alone")
    with tagged.world.cloud.fail("TagResources", code="Throttling.User", times=None):
        for _ in range(2):
            with pytest.raises(ThrottledError):
                tagged.tagger.sync(*pair)
            tagged.world.clock.forward(1)

    tagged.tagger.sync(*pair)

    assert "Name" in tagged.tags(pair)


def test_removed_tags_are_set_again_and_foreign_tags_are_kept(tagged):
    """ACK and policies of the account have tags of their own on our instances."""
    tagged.world.cloud.behaviour.tags_added = (("acs:tag:createdby", "sub:1:web"),)
    tagged.user_tags({"team": "search"})
    (pair,) = tagged.launch("alone", user_tags={"team": "search"})
    tagged.sync(pair)
    expected = {**tagged.tags(pair), "ack.aliyun.com": "c1"}

    tagged.world.cloud.tag(
        pair[0].status.provider_id,
        {"Name": None, "karpenter.sh/nodeclaim": None, "team": "theirs", "ack.aliyun.com": "c1"},
    )
    tagged.restart()
    tagged.world.instances.list()
    tagged.sync(pair)

    assert tagged.tags(pair) == expected


def test_an_instance_that_lost_all_our_tags_is_not_listed_and_its_claim_still_finds_it(tagged):
    """It is not ended for that: the claim names it."""
    (pair,) = tagged.launch("alone")
    provider_id = pair[0].status.provider_id
    tagged.world.cloud.tag(provider_id, dict.fromkeys(tagged.tags(pair)))
    tagged.restart()

    assert tagged.world.instances.list().instances == ()
    (found,) = tagged.world.instances.fetch([provider_id])
    assert found.provider_id == provider_id
