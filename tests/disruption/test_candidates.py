"""Candidates for disruption and their obstacles (cases 108-113, 160-163)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, POD_DELETION_COST
from karpenter_core.disruption.blocked_nodes import blocked_notices
from karpenter_core.disruption.candidates import (
    BOOT_TIME,
    DisruptionClass,
    evaluate_nodes,
    is_recent,
)
from karpenter_core.disruption.costs import eviction_cost, lifetime_remaining, reschedule_cost
from karpenter_core.state.events import (
    DeletionMarked,
    DeletionUnmarked,
    NodesNominated,
    PodsDecided,
)
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_rules import do_not_disrupt, is_disruptable, protection_notice
from karpenter_core.testing.builders import EPOCH, catalogue, node_pool, pod, pod_shape
from karpenter_core.testing.state_builders import (
    disruption_budget,
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
)

POOL = node_pool("default")
NOW = EPOCH + timedelta(minutes=10)
GRACEFUL, EVENTUAL = DisruptionClass.GRACEFUL, DisruptionClass.EVENTUAL


def running(name="a", *, annotation=None, start=EPOCH, **changes):
    options = {
        key: changes.pop(key) for key in ("owner_kind", "labels", "tolerations") if key in changes
    }
    built = pod(name, node_name="web", phase="Running", **options)
    annotations = {} if annotation is None else {DO_NOT_DISRUPT: annotation}
    shape = msgspec.structs.replace(built.shape, annotations=annotations)
    return msgspec.structs.replace(built, shape=shape, start_time=start, **changes)


def judge(*objects, now=NOW, builder=None, **options):
    return evaluate_nodes((builder or synced_state(POOL, *objects)).snapshot(), now=now, **options)


def message(*objects, **options):
    judgement = judge(*objects, **options)
    assert judgement.candidates == ()
    (blocked,) = judgement.blocked
    return blocked.message


def is_candidate(*objects, **options):
    return [item.name for item in judge(*objects, **options).candidates] == ["web"]


class TestStateNodes:
    def test_an_initialized_node_is_a_candidate(self):
        (result,) = judge(*node_and_claim("web")).candidates
        assert (result.name, result.zone, result.capacity_type) == ("web", "zone-a", "on-demand")
        assert result.price.amount == pytest.approx(0.04 * 4 * 0.97)

    def test_the_blocking_annotation_is_named_on_node_and_claim(self):
        """Case 160: events on both objects."""
        (blocked,) = judge(*node_and_claim("web", annotations={DO_NOT_DISRUPT: "true"})).blocked
        notices = blocked_notices(blocked)
        assert [notice.regarding.kind for notice in notices] == ["Node", "NodeClaim"]
        assert {(notice.type, notice.reason) for notice in notices} == {
            ("Normal", "DisruptionBlocked")
        }
        assert {notice.message for notice in notices} == {
            'Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation'
        }

    def test_only_true_counts_on_a_node(self):
        """Case 165: `false` blocks nothing."""
        assert is_candidate(*node_and_claim("web", annotations={DO_NOT_DISRUPT: "false"}))

    @pytest.mark.parametrize(
        ("objects", "text"),
        [
            (
                (node_claim("web", stage="Initialized"),),
                "Nodeclaim does not have an associated node",
            ),
            (node_and_claim("web", stage="Registered"), "Node isn't initialized"),
            (node_and_claim("web", pool="gone"), "NodePool not found (NodePool=gone)"),
        ],
    )
    def test_incomplete_nodes_are_blocked(self, objects, text):
        assert message(*objects) == text

    @pytest.mark.parametrize(
        ("objects", "reported"),
        [
            ((node_claim("web", stage="Initialized"),), ["NodeClaim"]),
            (node_and_claim("web", stage="Registered"), ["Node", "NodeClaim"]),
        ],
    )
    def test_a_booting_node_is_reported_only_when_slow(self, objects, reported):
        """Case 160: every new node is incomplete for a while."""
        for seconds, kinds in ((119, []), (120, reported)):
            (blocked,) = judge(*objects, now=EPOCH + timedelta(seconds=seconds)).blocked
            assert [notice.regarding.kind for notice in blocked_notices(blocked)] == kinds

    def test_without_a_pool_label_it_is_blocked(self):
        its_node, claim = node_and_claim("web")
        labels = {k: v for k, v in its_node.labels.items() if k != "karpenter.sh/nodepool"}
        bare = msgspec.structs.replace(its_node, labels=labels)
        assert is_candidate(bare, claim), "its claim says which NodePool it belongs to"
        metadata = claim.metadata.model_copy(update={"labels": {}})
        bare_claim = claim.model_copy(update={"metadata": metadata})
        assert message(bare, bare_claim) == (
            "Node doesn't have required label (label=karpenter.sh/nodepool)"
        )

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_a_pool_without_instance_types_blocks_its_nodes(self, is_ready):
        """A new process has yet to list those of a ready NodePool, which concerns no user."""
        pool = ready_node_pool(POOL) if is_ready else POOL
        builder = synced_state(pool, *node_and_claim("web"), catalogues={})
        expected = "NodePool has no instance types, or is not ready (NodePool=default)"
        assert message(builder=builder) == expected
        (blocked,) = judge(builder=builder).blocked
        assert bool(blocked_notices(blocked)) is not is_ready

    def test_a_ready_pool_whose_listing_is_empty_is_reported(self):
        listed = {"default": catalogue()}
        builder = synced_state(ready_node_pool(POOL), *node_and_claim("web"), catalogues=listed)
        (blocked,) = judge(builder=builder).blocked
        assert blocked_notices(blocked)

    def test_foreign_and_queued_nodes_are_skipped_without_a_report(self):
        for result in (
            judge(node("web")),
            judge(*node_and_claim("web"), queued=frozenset({"kwok://web"})),
        ):
            (blocked,) = result.blocked
            assert blocked_notices(blocked) == ()

    def test_a_terminating_node_is_blocked(self):
        builder = synced_state(POOL, *node_and_claim("web"))
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert message(builder=builder) == "Node is deleting or marked for deletion"

    def test_a_nominated_node_is_blocked_for_its_window(self):
        builder = synced_state(POOL, *node_and_claim("web"))
        builder.apply_event(NodesNominated(names=("web",), until=NOW + timedelta(seconds=20)))
        assert message(builder=builder) == "Node is nominated for a pending pod"
        assert is_candidate(builder=builder, now=NOW + timedelta(seconds=21))

    def test_a_node_that_pods_wait_for_counts_as_nominated(self):
        """A fresh node is empty until the scheduler has bound what it was ordered for."""
        waiting = pod("waits")
        builder = synced_state(POOL, *node_and_claim("web"), waiting)
        builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=NOW))
        assert message(builder=builder) == "Node is nominated for a pending pod"
        assert is_candidate(builder=builder, now=NOW + timedelta(seconds=20))

    def test_missing_labels_and_unknown_types_do_not_block(self):
        """Case 161: they have no price."""
        its_node, claim = node_and_claim("web", instance_type="unheard-of")
        (result,) = judge(its_node, claim).candidates
        assert (result.instance_type, result.price.amount) == (None, 0.0)


class TestPods:
    @pytest.mark.parametrize("owner", ["ReplicaSet", "DaemonSet", "Node"])
    def test_protected_pods_of_every_owner_block_disruption(self, owner):
        """Case 160: app, daemon and mirror."""
        assert message(*node_and_claim("web"), running(annotation="true", owner_kind=owner)) == (
            'Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/a)'
        )

    @pytest.mark.parametrize("gone", [{"phase": "Failed"}, {"deletion_timestamp": EPOCH}])
    def test_pods_at_their_end_do_not(self, gone):
        """Cases 112 and 161."""
        assert is_candidate(*node_and_claim("web"), running(annotation="true", **gone))
        assert is_candidate(*node_and_claim("web"), running(**gone), disruption_budget())

    def test_an_exhausted_budget_blocks(self):
        assert message(*node_and_claim("web"), running(), disruption_budget("b")) == (
            "Pdb prevents pod evictions (PodDisruptionBudget=[default/b])"
        )
        assert is_candidate(*node_and_claim("web"), running(), disruption_budget("b", allowed=1))

    def test_daemons_are_held_by_budgets_too_but_mirrors_are_not(self):
        """Cases 160 and 161."""
        daemon = running(owner_kind="DaemonSet")
        assert "Pdb prevents" in message(*node_and_claim("web"), daemon, disruption_budget())
        assert is_candidate(*node_and_claim("web"), running(owner_kind="Node"), disruption_budget())

    def test_two_budgets_for_one_pod_always_block(self):
        two = (disruption_budget("a", allowed=1), disruption_budget("b", allowed=1))
        assert message(*node_and_claim("web"), running(), *two) == (
            "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/a default/b])"
        )

    def test_budgets_of_other_namespaces_and_other_pods_do_not(self):
        """Case 209."""
        others = (
            disruption_budget("a", namespace="other"),
            disruption_budget("b", labels={"app": "other"}),
        )
        assert is_candidate(*node_and_claim("web"), running(), *others)

    def test_an_unready_pod_may_go_when_its_budget_says_so(self):
        """Cases 113 and 209."""
        policy = disruption_budget(unhealthy_policy="AlwaysAllow")
        assert is_candidate(*node_and_claim("web"), running(ready=False), policy)
        assert not is_candidate(*node_and_claim("web"), running(ready=True), policy)
        assert not is_candidate(*node_and_claim("web"), running(ready=False), disruption_budget())

    def test_pods_that_the_eviction_api_lets_go_do_not_block(self):
        """An exhausted budget protects neither an unready pod beside enough ready ones, nor a
        pod that does not run yet."""
        enough = disruption_budget(healthy=2, desired=2)
        assert is_candidate(*node_and_claim("web"), running(ready=False), enough)
        assert not is_candidate(*node_and_claim("web"), running(ready=True), enough)
        starting = running(phase="Pending")
        assert is_candidate(*node_and_claim("web"), starting, disruption_budget())

    @pytest.mark.parametrize("hold", ["annotation", "budget"])
    def test_a_grace_period_outweighs_pods_eventually(self, hold):
        """Case 162."""
        objects = (
            (running(annotation="true"),)
            if hold == "annotation"
            else (running(), disruption_budget())
        )
        patient = node_and_claim("web", termination_grace_period="300s")
        assert is_candidate(*patient, *objects, disruption_class=EVENTUAL)
        assert not is_candidate(*patient, *objects, disruption_class=GRACEFUL)
        assert not is_candidate(*node_and_claim("web"), *objects, disruption_class=EVENTUAL)


class TestDoNotDisrupt:
    @pytest.mark.parametrize(
        ("value", "active", "reason", "text"),
        [
            (None, False, None, ""),
            ("true", True, None, ""),
            ("15m", True, "DoNotDisruptUntil", "will elapse at 2026-01-01T00:15:00Z"),
            ("5m", False, "DoNotDisruptGracePeriodElapsed", "pod is now disruptable"),
            ("0s", False, "InvalidDoNotDisruptAnnotation", 'duration "0s" must be positive'),
            ("-5m", False, "InvalidDoNotDisruptAnnotation", 'duration "-5m" must be positive'),
            (
                "invalid-format",
                False,
                "InvalidDoNotDisruptAnnotation",
                'failed to parse "invalid-format" as a duration',
            ),
        ],
    )
    def test_values(self, value, active, reason, text):
        """Cases 108-110, ten minutes after the pod started."""
        item = running(annotation=value)
        verdict = do_not_disrupt(item, NOW)
        notice = protection_notice(item, verdict)
        assert verdict.is_active is active
        assert is_disruptable(item, NOW) is not active
        assert (None if notice is None else notice.reason) == reason
        assert text in ("" if notice is None else notice.message)

    def test_a_pod_that_has_not_started_is_protected(self):
        """Case 111."""
        assert do_not_disrupt(running(annotation="5m", start=None), NOW).is_active

    def test_blocking_annotations_are_reported(self):
        judgement = judge(*node_and_claim("web"), running(annotation="5m"))
        assert [notice.reason for notice in judgement.notices] == ["DoNotDisruptGracePeriodElapsed"]

    def test_protected_pods_are_not_rescheduled_now(self):
        """Case 113."""
        budgets = PodBudgets(())
        assert not budgets.is_reschedulable_now(running(annotation="true"), NOW)
        assert budgets.is_reschedulable_now(running(), NOW)


class TestCosts:
    def cost(self, *, deletion=None, priority=0):
        annotations = {} if deletion is None else {POD_DELETION_COST: deletion}
        shape = msgspec.structs.replace(pod_shape(), annotations=annotations, priority=priority)
        return eviction_cost(shape)

    def test_the_order_of_costs(self):
        """Case 163."""
        assert self.cost() == 1.0
        assert self.cost(deletion="101") > self.cost(deletion="100") > self.cost(deletion="99")
        assert self.cost(deletion="100") > 1.0 > self.cost(deletion="-100")
        assert self.cost(priority=1) > 1.0 > self.cost(priority=-1)

    def test_deletion_costs_are_bounded_and_invalid_ones_ignored(self):
        assert self.cost(deletion="1e300") == 10.0
        assert self.cost(priority=-(2**31)) == -10.0
        assert self.cost(deletion="much") == self.cost(deletion="nan") == 1.0

    def test_pods_that_like_to_go_cost_nothing(self):
        assert reschedule_cost([2.0, -5.0]) == 3.0

    @pytest.mark.parametrize(
        ("expire", "hours", "left"), [("Never", 999, 1.0), ("10h", 0, 1.0), ("10h", 5, 0.5), ("10h", 99, 0.0)]
    )  # fmt: skip
    def test_remaining_lifetime_is_a_share_of_expire_after(self, expire, hours, left):
        claim = node_claim("web", expire_after=expire)
        assert lifetime_remaining(claim, EPOCH + timedelta(hours=hours)) == pytest.approx(left)


class TestPause:
    def paused(self, *, annotation="", everywhere=False):
        pool = node_pool()
        if annotation:
            annotations = {"karpenter.sh/pause-disruption": annotation}
            metadata = pool.metadata.model_copy(update={"annotations": annotations})
            pool = pool.model_copy(update={"metadata": metadata})
        result = evaluate_nodes(
            synced_state(pool, *node_and_claim("web")).snapshot(), now=EPOCH, paused=everywhere
        )
        return [item.message for item in result.blocked]

    def test_nothing_is_paused_by_default(self):
        assert self.paused() == []
        assert self.paused(annotation="false") == []

    def test_an_annotation_pauses_one_pool(self):
        assert "paused" in self.paused(annotation="true")[0]

    def test_a_setting_pauses_everything(self):
        assert "--pause-disruption" in self.paused(everywhere=True)[0]


class TestPodsToCome:
    """A node for which pods of a leaving node are planned is expected to receive them."""

    def state(self, *objects, target="new", **pod_options):
        moving = msgspec.structs.replace(
            pod("moving", node_name="old", phase="Running"), start_time=EPOCH, **pod_options
        )
        builder = synced_state(
            POOL, *node_and_claim("old"), *node_and_claim("new"), *objects, moving
        )
        builder.apply_event(PodsDecided(placed={moving.uid: target}, at=EPOCH))
        builder.apply_event(DeletionMarked(names=("old",), cause="x"))
        return builder

    def candidates(self, builder, *, hours=1):
        verdicts = evaluate_nodes(builder.snapshot(), now=EPOCH + timedelta(hours=hours))
        return [item.name for item in verdicts.candidates]

    def test_it_is_expected_however_long_the_drain_is_held_up(self):
        held = disruption_budget("held")
        assert self.candidates(self.state(held)) == []

    def test_it_is_not_expected_once_the_pods_are_planned_elsewhere(self):
        builder = self.state()
        builder.apply_event(PodsDecided(failed=frozenset({pod("moving").uid}), at=EPOCH))
        assert self.candidates(builder) == ["new"]

    def test_it_is_not_expected_once_the_pods_are_gone(self):
        assert self.candidates(self.state(phase="Succeeded")) == ["new"]

    def test_it_is_not_expected_when_the_removal_is_taken_back(self):
        builder = self.state()
        builder.apply_event(DeletionUnmarked(names=("old",)))
        assert self.candidates(builder) == ["new", "old"]

    def test_a_node_is_not_expected_for_pods_that_may_not_be_evicted(self):
        held = disruption_budget("held", max_unavailable="0")
        assert self.candidates(self.state(held)) == ["new"]


def test_a_node_is_recent_by_the_age_of_its_claim_and_without_one_never():
    snapshot = synced_state(*node_and_claim("ours"), node("theirs")).snapshot()
    ours, theirs = snapshot.state_node("ours"), snapshot.state_node("theirs")
    created = ours.claim.metadata.creation_timestamp
    assert is_recent(ours, created + BOOT_TIME - timedelta(seconds=1))
    assert not is_recent(ours, created + BOOT_TIME)
    assert not is_recent(theirs, created)
