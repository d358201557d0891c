"""Claims without instances and instances without claims (case 121)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    ENDING_ORPHAN_GRACE,
    ORPHAN_GRACE,
    SURPLUS_GRACE,
    SURPLUS_PER_PASS,
    claims_with_stopped_instance,
    claims_without_instance,
    exclude_claimed,
    orphaned_instances,
    surplus_instances,
    surplus_notice,
)
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import LaunchCallStarted, ObjectObserved
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import (
    KWOK,
    MANAGED_KINDS,
    node_and_claim,
    node_claim,
    synced_state,
)


@dataclass(frozen=True)
class Instance:
    provider_id: str
    node_claim: str = ""
    token: str = ""
    launched_for: tuple[str, ...] = ()
    created: object = None
    terminating: bool = False


BY_ITS_PROVIDER = {"served_kinds": {(KWOK.group, KWOK.kind)}, "as_of": None}
"""A listing of the provider of all claims here, that is not behind."""


def gone(*objects, instances=(), complete=True, builder=None):
    snapshot = (builder or synced_state(*objects)).snapshot()
    return [
        result.claim.name
        for result in claims_without_instance(
            snapshot, instances, complete=complete, **BY_ITS_PROVIDER
        )
    ]


class TestVanishedClaims:
    def test_an_unresponsive_node_without_an_instance_is_deleted(self):
        assert gone(*node_and_claim("web", ready="False")) == ["web"]
        assert gone(*node_and_claim("web", ready="Unknown")) == ["web"]

    def test_a_hundred_unresponsive_nodes_without_instances_are_deleted_at_once(self):
        many = [half for n in range(100) for half in node_and_claim(f"web-{n:03}", ready="False")]
        assert len(gone(*many)) == 100

    def test_claim_of_a_ready_node_is_kept(self):
        assert gone(*node_and_claim("web")) == []

    def test_a_claim_that_never_registered_is_left_to_liveness(self):
        assert gone(node_claim("web", stage="Launched")) == []

    def test_claim_with_an_instance_and_no_node_is_kept(self):
        listed = [Instance("kwok://web")]
        assert gone(node_claim("web", stage="Initialized"), instances=listed) == []
        assert gone(node_claim("web", stage="Initialized")) == ["web"]

    def test_terminating_instance_does_not_keep_its_claim(self):
        listed = [Instance("kwok://web", terminating=True)]
        assert gone(*node_and_claim("web", ready="False"), instances=listed) == ["web"]

    @pytest.mark.parametrize(
        ("taint", "ready", "is_gone"),
        [
            ("node.cloudprovider.kubernetes.io/shutdown:NoSchedule", "Unknown", True),
            ("node.cloudprovider.kubernetes.io/shutdown:NoSchedule", "True", False),
            ("node.kubernetes.io/unreachable:NoSchedule", "Unknown", False),
        ],
    )
    def test_stopped_instance_does_not_keep_its_claim(self, taint, ready, is_gone):
        """It is listed as long as nobody deletes it; the cloud controller manager knows."""
        snapshot = synced_state(*node_and_claim("web", ready=ready, taints=[taint])).snapshot()
        (claim,) = snapshot.node_claims.values()
        stopped = claims_with_stopped_instance(snapshot)
        assert stopped == (frozenset({claim.uid}) if is_gone else frozenset())
        found = claims_without_instance(
            snapshot,
            [Instance("kwok://web")],
            complete=True,
            stopped=stopped,
            **BY_ITS_PROVIDER,
        )
        assert [each.stopped for each in found] == [True] * is_gone
        assert [
            (notice.regarding.kind, notice.reason) for each in found for notice in each.notices
        ] == [("NodeClaim", "InstanceStopping"), ("Node", "InstanceStopping")] * is_gone

    def test_incomplete_listing_or_state_deletes_no_claim(self):
        silent = node_and_claim("web", ready="False")
        assert gone(*silent, complete=False) == []
        unsynced = StateBuilder(MANAGED_KINDS)
        for half in silent:
            unsynced.apply_event(ObjectObserved(half))
        assert gone(builder=unsynced) == []

    @pytest.mark.parametrize(("seconds", "expected"), [(-1, []), (0, []), (1, ["web"])])
    def test_listing_that_is_behind_says_nothing_about_later_launches(self, seconds, expected):
        """`as_of` is compared with the end of the claim's launch."""
        silent = node_and_claim("web", ready="False")
        launched = find_condition(silent[1].status.conditions, "Launched").last_transition_time
        as_of = launched + timedelta(seconds=seconds)
        gone = claims_without_instance(
            synced_state(*silent).snapshot(),
            (),
            complete=True,
            **BY_ITS_PROVIDER | {"as_of": as_of},
        )
        assert [found.claim.name for found in gone] == expected

    def test_deleting_and_foreign_claims_are_ignored(self):
        foreign = KWOK.model_copy(update={"kind": "Other"})
        assert gone(node_claim("a", stage="Initialized", deleted=EPOCH)) == []
        assert gone(node_claim("b", stage="Initialized", node_class_ref=foreign)) == []

    def test_only_claims_of_the_listed_provider_are_deleted(self):
        snapshot = synced_state(node_claim("a", stage="Initialized")).snapshot()
        other = frozenset({("example.com", "Other")})
        assert (
            claims_without_instance(snapshot, (), complete=True, served_kinds=other, as_of=None)
            == ()
        )

    def test_deleted_claim_is_counted_with_its_pods(self):
        """Section 7.2: those that come back elsewhere, so no daemons."""
        pods = [
            pod("a", node_name="web", phase="Running"),
            pod("b", node_name="web", phase="Running", owner_kind="DaemonSet"),
        ]
        (result,) = claims_without_instance(
            synced_state(*node_and_claim("web", ready="False"), *pods).snapshot(),
            (),
            complete=True,
            **BY_ITS_PROVIDER,
        )
        assert {
            metric_update.metric: metric_update.value for metric_update in result.metric_updates
        } == {
            "nodeclaims_disrupted": 1.0,
            "pods_disruption_initiated": 1.0,
        }
        assert {metric_update.labels["reason"] for metric_update in result.metric_updates} == {
            "garbage_collected"
        }


class TestOrphans:
    def run_pass(self, builder, instances, *, now=EPOCH, since=None, complete=True):
        return orphaned_instances(
            builder.snapshot(), instances, complete=complete, now=now, missing_since=since or {}
        )

    def twice(self, builder, instances):
        first = self.run_pass(builder, instances)
        assert first.terminate == (), "one pass never terminates"
        return self.run_pass(
            builder, instances, now=EPOCH + ORPHAN_GRACE, since=first.missing_since
        )

    def test_instance_without_claim_is_terminated_after_the_grace_period(self):
        assert self.twice(synced_state(), [Instance("kwok://x", token="gone")]).terminate == (
            "kwok://x",
        )

    def test_instance_belongs_to_a_claim_by_token_id_or_name(self):
        claim = node_claim("web")
        launched = node_claim("old", stage="Launched")
        builder = synced_state(claim, launched)
        theirs = [
            Instance("kwok://1", token=claim.uid),
            Instance("kwok://old"),
            Instance("kwok://3", node_claim="web"),
        ]
        assert self.twice(builder, theirs).terminate == ()

    def test_new_claim_of_the_same_name_does_not_own_the_instance(self):
        builder = synced_state(node_claim("web", uid="new"))
        stray = [Instance("kwok://1", node_claim="web", token="old")]
        assert self.twice(builder, stray).terminate == ("kwok://1",)

    def test_an_instance_of_a_shared_call_is_kept_while_a_claim_has_none(self):
        waiting, served_kinds = node_claim("web"), node_claim("old", stage="Launched")
        builder = synced_state(waiting, served_kinds)
        shared = Instance("kwok://1", launched_for=(waiting.uid, served_kinds.uid))
        spare = Instance("kwok://2", launched_for=(served_kinds.uid,))
        assert self.twice(builder, [shared, spare]).terminate == ("kwok://2",)

    def test_open_launch_owns_its_instance(self):
        builder = synced_state()
        builder.apply_event(LaunchCallStarted("uid-claim", EPOCH))
        assert self.twice(builder, [Instance("kwok://1", token="uid-claim")]).terminate == ()

    def test_instance_that_gets_a_claim_in_time_is_kept(self):
        builder, stray = synced_state(), [Instance("kwok://1", token="uid-claim-web")]
        first = self.run_pass(builder, stray)
        builder.apply_event(ObjectObserved(node_claim("web")))
        second = self.run_pass(builder, stray, since=first.missing_since)
        assert dict(second.missing_since) == {}

    def test_terminating_instance_is_given_time_to_end(self):
        assert self.twice(synced_state(), [Instance("kwok://1", terminating=True)]).terminate == ()

    def test_terminating_instance_that_does_not_end_is_terminated(self):
        """A user has stopped it, and the cloud does not tell that from an end."""
        builder, stopped = synced_state(), [Instance("kwok://1", terminating=True)]
        since = self.run_pass(builder, stopped).missing_since
        early = EPOCH + ENDING_ORPHAN_GRACE - timedelta(seconds=1)
        assert self.run_pass(builder, stopped, now=early, since=since).terminate == ()
        late = EPOCH + ENDING_ORPHAN_GRACE
        assert self.run_pass(builder, stopped, now=late, since=since).terminate == ("kwok://1",)

    def test_incomplete_listing_terminates_nothing_and_forgets_nothing(self):
        since = {"kwok://1": EPOCH - timedelta(hours=1)}
        report = self.run_pass(synced_state(), [Instance("kwok://1")], since=since, complete=False)
        assert (report.terminate, report.missing_since) == ((), since)
        unsynced = StateBuilder(MANAGED_KINDS)
        assert self.run_pass(unsynced, [Instance("kwok://1")], since=since).terminate == ()

    def test_too_many_orphans_are_held_back(self):
        """More than half of what is there, and more than ten."""
        many = [Instance(f"kwok://{n:02}") for n in range(11)]
        report = self.twice(synced_state(), many)
        assert (report.terminate, report.held_back) == ((), len(many))
        assert len(self.twice(synced_state(), many[:10]).terminate) == 10

    def test_same_number_of_orphans_among_more_instances_is_terminated(self):
        claims = [node_claim(f"web-{n:02}", stage="Launched") for n in range(20)]
        theirs = [Instance(claim.status.provider_id) for claim in claims]
        many = [Instance(f"kwok://{n:02}") for n in range(11)]
        assert len(self.twice(synced_state(*claims), [*theirs, *many]).terminate) == len(many)


class TestClaimedAfterAll:
    """The API server's claims are asked before anything condemned ends."""

    def kept(self, instance, *claims, unreadable=()):
        result = exclude_claimed(
            [instance.provider_id], [instance], claims, unreadable=frozenset(unreadable)
        )
        assert result in {(), (instance.provider_id,)}
        return not result

    def test_an_instance_without_claim_ends(self):
        assert not self.kept(Instance("kwok://1", token="gone", node_claim="web"))
        assert not self.kept(Instance("kwok://1", node_claim="web"))

    def test_the_token_decides_where_there_is_one(self):
        claim = node_claim("web")
        assert self.kept(Instance("kwok://1", token=claim.uid), claim)
        assert not self.kept(Instance("kwok://1", token="old", node_claim="web"), claim)

    def test_without_a_provider_id_the_name_decides(self):
        assert self.kept(Instance("kwok://1", node_claim="web"), node_claim("web"))
        assert not self.kept(Instance("kwok://1", node_claim="other"), node_claim("web"))

    def test_a_claim_that_names_the_instance_keeps_it(self):
        claim = node_claim("web", stage="Launched")
        assert self.kept(Instance(claim.status.provider_id), claim)

    def test_claims_that_cannot_be_read_count_by_uid_and_by_name(self):
        assert self.kept(Instance("kwok://1", token="uid-odd"), unreadable=["uid-odd"])
        assert self.kept(Instance("kwok://1", node_claim="odd"), unreadable=["odd"])
        shared = Instance("kwok://1", launched_for=("uid-odd", "uid-gone"))
        assert self.kept(shared, unreadable=["uid-odd"])

    def test_an_instance_of_a_shared_call_is_kept_while_a_claim_has_none(self):
        waiting, served_kinds = node_claim("web"), node_claim("old", stage="Launched")
        shared = Instance("kwok://1", launched_for=(waiting.uid, served_kinds.uid))
        assert self.kept(shared, waiting, served_kinds)
        assert not self.kept(Instance("kwok://1", launched_for=(served_kinds.uid,)), served_kinds)


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

    def test_surplus_is_terminated_a_few_instances_per_pass(self):
        result = self.surplus(synced_state(), self.lost(24))
        assert result == tuple(f"kwok://{n:02}" for n in range(SURPLUS_PER_PASS))

    def test_surplus_has_a_longer_grace_period(self):
        assert not self.surplus(
            synced_state(), self.lost(24), after=SURPLUS_GRACE - timedelta(seconds=1)
        )

    def test_instance_of_unknown_claims_is_no_surplus(self):
        """Another cluster may use the same name."""
        assert not self.surplus(synced_state(), self.lost(24), known=())

    def test_a_claim_that_uses_another_instance_proves_that_the_launch_was_ours(self):
        """Also after a restart."""
        claim = node_claim("web", stage="Launched")
        more = [Instance(f"kwok://{n}", launched_for=(claim.uid, "uid-gone")) for n in range(3)]
        assert len(self.surplus(synced_state(claim), more, known=())) == 3

    def test_instance_that_a_claim_may_still_get_is_no_surplus(self):
        waiting = node_claim("web")
        more = [Instance(f"kwok://{n}", launched_for=(waiting.uid,)) for n in range(3)]
        assert not self.surplus(synced_state(waiting), more)
        builder = synced_state()
        builder.apply_event(LaunchCallStarted(self.UIDS[0], EPOCH))
        assert not self.surplus(builder, self.lost(3))

    def test_instance_with_a_registered_node_is_no_surplus(self):
        """Claims that were lost, not launches that were made twice."""
        node = next(half for half in node_and_claim("web") if hasattr(half, "provider_id"))
        item = Instance(node.provider_id, launched_for=self.UIDS)
        assert node.labels["karpenter.sh/registered"] == "true"
        assert not self.surplus(synced_state(node), [item])

    def test_the_token_counts_where_a_call_is_for_one_claim(self):
        assert self.surplus(synced_state(), [Instance("kwok://1", token=self.UIDS[0])]) == (
            "kwok://1",
        )
        assert not self.surplus(synced_state(), [Instance("kwok://1")])

    def test_the_first_claim_of_a_shared_call_by_name_is_reported(self):
        claims = [node_claim(name, stage="Launched") for name in ("web-2", "web-1")]
        item = Instance("kwok://surplus", launched_for=tuple(claim.uid for claim in claims))
        notice = surplus_notice(item.provider_id, [item], synced_state(*claims).snapshot())
        assert notice.regarding.name == "web-1"
        assert notice.dedupe == (notice.regarding.uid, "kwok://surplus")
        assert (notice.type, notice.reason) == ("Warning", "SurplusInstanceTerminated")
        assert surplus_notice("kwok://other", [item], synced_state(*claims).snapshot()) is None

    def test_claim_that_uses_another_instance_gets_an_event(self):
        claim = node_claim("web", stage="Launched")
        item = Instance("kwok://surplus", launched_for=(claim.uid,))
        notice = surplus_notice(item.provider_id, [item], synced_state(claim).snapshot())
        assert notice.regarding.name == "web"
        assert "kwok://surplus" in notice.message
        assert claim.status.provider_id in notice.message
        assert surplus_notice(item.provider_id, [item], synced_state().snapshot()) is None

    def test_listed_claim_without_instance_keeps_its_possible_instances(self):
        waiting = node_claim("web")
        item = Instance("kwok://1", launched_for=(waiting.uid,))
        assert exclude_claimed([item.provider_id], [item], [waiting], unreadable=frozenset()) == ()
        assert exclude_claimed([item.provider_id], [item], [], unreadable=frozenset()) == (
            "kwok://1",
        )
        unreadable = frozenset({waiting.uid})
        assert exclude_claimed([item.provider_id], [item], [], unreadable=unreadable) == ()

    def test_an_unreadable_claim_keeps_an_instance_that_bears_only_its_name(self):
        item = Instance("kwok://1", node_claim="web")
        assert exclude_claimed([item.provider_id], [item], [], unreadable=frozenset()) == (
            "kwok://1",
        )
        unreadable = frozenset({"web"})
        assert exclude_claimed([item.provider_id], [item], [], unreadable=unreadable) == ()
