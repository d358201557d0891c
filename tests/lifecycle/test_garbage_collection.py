"""Claims without instances, instances without claims (case 121)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    ORPHAN_FLOOR,
    ORPHAN_GRACE,
    SURPLUS_AT_ONCE,
    SURPLUS_GRACE,
    orphaned_instances,
    surplus_instances,
    surplus_notice,
    vanished_claims,
    without_claimed,
)
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import CallStarted, Observed
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.machines import KWOK, MANAGED_KINDS, machine, node_claim, state


@dataclass(frozen=True)
class Instance:
    provider_id: str
    node_claim: str = ""
    token: str = ""
    launched_for: tuple[str, ...] = ()
    created: object = None
    terminating: bool = False


def gone(*objects, instances=(), complete=True, builder=None):
    snapshot = (builder or state(*objects)).snapshot()
    return [found.claim.name for found in vanished_claims(snapshot, instances, complete=complete)]


class TestVanishedClaims:
    def test_a_silent_node_without_instance_goes(self):
        assert gone(*machine("web", ready="False")) == ["web"]
        assert gone(*machine("web", ready="Unknown")) == ["web"]

    def test_so_do_a_hundred_at_once(self):
        many = [half for n in range(100) for half in machine(f"web-{n:03}", ready="False")]
        assert len(gone(*many)) == 100

    def test_a_ready_kubelet_is_believed(self):
        assert gone(*machine("web")) == []

    def test_a_claim_that_never_registered_is_left_to_liveness(self):
        assert gone(node_claim("web", stage="Launched")) == []

    def test_a_missing_node_alone_is_no_reason(self):
        listed = [Instance("kwok://web")]
        assert gone(node_claim("web", stage="Initialized"), instances=listed) == []
        assert gone(node_claim("web", stage="Initialized")) == ["web"]

    def test_a_terminating_instance_does_not_count(self):
        listed = [Instance("kwok://web", terminating=True)]
        assert gone(*machine("web", ready="False"), instances=listed) == ["web"]

    def test_an_incomplete_listing_or_state_tells_nothing(self):
        silent = machine("web", ready="False")
        assert gone(*silent, complete=False) == []
        unsynced = StateBuilder(MANAGED_KINDS)
        for half in silent:
            unsynced.fold(Observed(half))
        assert gone(builder=unsynced) == []

    def test_deleting_and_foreign_claims_are_left_alone(self):
        foreign = KWOK.model_copy(update={"kind": "Other"})
        assert gone(node_claim("a", stage="Initialized", deleted=EPOCH)) == []
        assert gone(node_claim("b", stage="Initialized", node_class_ref=foreign)) == []

    def test_only_claims_of_the_provider_that_was_asked(self):
        snapshot = state(node_claim("a", stage="Initialized")).snapshot()
        other = frozenset({("example.com", "Other")})
        assert vanished_claims(snapshot, (), complete=True, served=other) == ()

    def test_it_is_counted_with_its_pods(self):
        """Section 7.2: those that come back elsewhere, so no daemons."""
        pods = [
            pod("a", node_name="web", phase="Running"),
            pod("b", node_name="web", phase="Running", owner_kind="DaemonSet"),
        ]
        (found,) = vanished_claims(
            state(*machine("web", ready="False"), *pods).snapshot(), (), complete=True
        )
        assert {fact.metric: fact.value for fact in found.facts} == {
            "nodeclaims_disrupted": 1.0,
            "pods_disruption_initiated": 1.0,
        }
        assert {fact.labels["reason"] for fact in found.facts} == {"garbage_collected"}


class TestOrphans:
    def look(self, builder, instances, *, now=EPOCH, since=None, complete=True):
        return orphaned_instances(
            builder.snapshot(), instances, complete=complete, now=now, missing_since=since or {}
        )

    def twice(self, builder, instances):
        first = self.look(builder, instances)
        assert first.terminate == (), "one look never condemns"
        return self.look(builder, instances, now=EPOCH + ORPHAN_GRACE, since=first.missing_since)

    def test_an_instance_of_nobody_goes_after_the_grace_time(self):
        assert self.twice(state(), [Instance("kwok://x", token="gone")]).terminate == ("kwok://x",)

    def test_an_instance_is_somebodys_by_token_id_or_name(self):
        claim = node_claim("web")
        launched = node_claim("old", stage="Launched")
        builder = state(claim, launched)
        theirs = [
            Instance("kwok://1", token=claim.uid),
            Instance("kwok://old"),
            Instance("kwok://3", node_claim="web"),
        ]
        assert self.twice(builder, theirs).terminate == ()

    def test_a_claim_of_the_same_name_made_anew_does_not_own_it(self):
        builder = state(node_claim("web", uid="new"))
        stray = [Instance("kwok://1", node_claim="web", token="old")]
        assert self.twice(builder, stray).terminate == ("kwok://1",)

    def test_an_open_launch_owns_what_it_brings(self):
        builder = state()
        builder.fold(CallStarted("uid-claim", EPOCH))
        assert self.twice(builder, [Instance("kwok://1", token="uid-claim")]).terminate == ()

    def test_one_that_gets_its_claim_in_time_is_forgotten(self):
        builder, stray = state(), [Instance("kwok://1", token="uid-claim-web")]
        first = self.look(builder, stray)
        builder.fold(Observed(node_claim("web")))
        second = self.look(builder, stray, since=first.missing_since)
        assert dict(second.missing_since) == {}

    def test_what_terminates_already_is_left_alone(self):
        assert self.twice(state(), [Instance("kwok://1", terminating=True)]).terminate == ()

    def test_an_incomplete_look_condemns_nothing_and_forgets_nothing(self):
        since = {"kwok://1": EPOCH - timedelta(hours=1)}
        report = self.look(state(), [Instance("kwok://1")], since=since, complete=False)
        assert (report.terminate, report.missing_since) == ((), since)
        unsynced = StateBuilder(MANAGED_KINDS)
        assert self.look(unsynced, [Instance("kwok://1")], since=since).terminate == ()

    def test_too_many_at_once_are_taken_for_a_mistake(self):
        """More than half of what is there, and more than a few."""
        many = [Instance(f"kwok://{n:02}") for n in range(ORPHAN_FLOOR + 1)]
        report = self.twice(state(), many)
        assert (report.terminate, report.held_back) == ((), len(many))
        assert len(self.twice(state(), many[:ORPHAN_FLOOR]).terminate) == ORPHAN_FLOOR

    def test_the_same_many_among_more_are_not(self):
        claims = [node_claim(f"web-{n:02}", stage="Launched") for n in range(20)]
        theirs = [Instance(claim.status.provider_id) for claim in claims]
        many = [Instance(f"kwok://{n:02}") for n in range(ORPHAN_FLOOR + 1)]
        assert len(self.twice(state(*claims), [*theirs, *many]).terminate) == len(many)


class TestSurplus:
    """More instances than claims after a launch, so many that the brake holds them back."""

    UIDS = tuple(f"uid-of-lost-{n}" for n in range(3))

    def surplus(self, builder, instances, *, known=UIDS, after=SURPLUS_GRACE):
        since = {item.provider_id: EPOCH for item in instances}
        return surplus_instances(
            builder.snapshot(),
            instances,
            known_uids=frozenset(known),
            now=EPOCH + after,
            missing_since=since,
        )

    def lost(self, number):
        return [Instance(f"kwok://{n:02}", launched_for=self.UIDS) for n in range(number)]

    def test_instances_of_claims_that_are_gone_end_a_few_at_a_time(self):
        found = self.surplus(state(), self.lost(24))
        assert found == tuple(f"kwok://{n:02}" for n in range(SURPLUS_AT_ONCE))

    def test_they_have_a_long_grace(self):
        assert not self.surplus(state(), self.lost(24), after=SURPLUS_GRACE - timedelta(seconds=1))

    def test_instances_of_claims_that_nobody_has_seen_here_stay(self):
        """Another cluster may use the same name."""
        assert not self.surplus(state(), self.lost(24), known=())

    def test_a_claim_that_uses_another_instance_proves_that_the_launch_was_ours(self):
        """Also after a restart."""
        claim = node_claim("web", stage="Launched")
        more = [Instance(f"kwok://{n}", launched_for=(claim.uid, "uid-gone")) for n in range(3)]
        assert len(self.surplus(state(claim), more, known=())) == 3

    def test_an_instance_that_some_claim_may_still_get_stays(self):
        waiting = node_claim("web")
        more = [Instance(f"kwok://{n}", launched_for=(waiting.uid,)) for n in range(3)]
        assert not self.surplus(state(waiting), more)
        builder = state()
        builder.fold(CallStarted(self.UIDS[0], EPOCH))
        assert not self.surplus(builder, self.lost(3))

    def test_an_instance_whose_node_was_let_in_stays(self):
        """Claims that were lost, not launches that were made twice."""
        node = next(half for half in machine("web") if hasattr(half, "provider_id"))
        item = Instance(node.provider_id, launched_for=self.UIDS)
        assert node.labels["karpenter.sh/registered"] == "true"
        assert not self.surplus(state(node), [item])

    def test_the_token_counts_where_a_call_is_for_one_claim(self):
        assert self.surplus(state(), [Instance("kwok://1", token=self.UIDS[0])]) == ("kwok://1",)
        assert not self.surplus(state(), [Instance("kwok://1")])

    def test_a_claim_that_uses_another_instance_is_told(self):
        claim = node_claim("web", stage="Launched")
        item = Instance("kwok://surplus", launched_for=(claim.uid,))
        notice = surplus_notice(item.provider_id, [item], state(claim).snapshot())
        assert notice.regarding.name == "web"
        assert "kwok://surplus" in notice.message
        assert claim.status.provider_id in notice.message
        assert surplus_notice(item.provider_id, [item], state().snapshot()) is None

    def test_the_api_server_s_word_keeps_what_a_claim_may_still_get(self):
        waiting = node_claim("web")
        item = Instance("kwok://1", launched_for=(waiting.uid,))
        assert without_claimed([item.provider_id], [item], [waiting]) == ()
        assert without_claimed([item.provider_id], [item], []) == ("kwok://1",)
        unreadable = frozenset({waiting.uid})
        assert without_claimed([item.provider_id], [item], [], unreadable=unreadable) == ()
