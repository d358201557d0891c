"""Nodes are drained, detached and ended (cases 72-96, 97-107)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.api.labels import (
    DISRUPTED_TAINT,
    DO_NOT_DISRUPT,
    EXCLUDE_BALANCERS,
    TERMINATION_TIMESTAMP,
)
from karpenter_core.api.nodeclaim import (
    DISRUPTION_REASON,
    DRAINED,
    INSTANCE_TERMINATING,
    VOLUMES_DETACHED,
)
from karpenter_core.api.records import VolumeView
from karpenter_core.api.storage_records import PersistentVolumeClaimView, VolumeAttachmentView
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.node.drain import drain_wave, needs_force
from karpenter_core.lifecycle.node.eviction import (
    EvictionAction,
    EvictionVerdict,
    disrupted_notice,
    drain_reason,
    earlier_deadline,
    eviction_advice,
    eviction_verdict,
    refused_notice,
)
from karpenter_core.lifecycle.node.termination import (
    InstanceState,
    NodeTerminationAction,
    disrupted_patch,
    node_ref,
    node_termination,
    undisrupted_patch,
)
from karpenter_core.state.ledger_view import LedgerView, PodDeletion
from karpenter_core.state.pod_rules import undrained_pods
from karpenter_core.testing.builders import EPOCH, pod, pod_shape
from karpenter_core.testing.state_builders import node, node_claim, synced_state

NONE, WAIT = NodeTerminationAction.NONE, NodeTerminationAction.WAIT
FETCH, TERMINATE = NodeTerminationAction.FETCH_INSTANCE, NodeTerminationAction.TERMINATE_INSTANCE
FINISH = NodeTerminationAction.FINISH
LEDGER = LedgerView()
DENIAL = 'admission webhook "w.example.com" denied the request: not now'


def after(**delta: float):
    return EPOCH + timedelta(**delta)


def going(claim=None, **options):
    claim = claim or node_claim("web", stage="Initialized", deleted=EPOCH)
    return claim, node("web", claim=claim, deleted=EPOCH, **options)


def running(name="a", *, grace=30, deleted=None, priority_class="", annotations=None, **options):
    built = pod(name, node_name="web", phase="Running", **options)
    shape = msgspec.structs.replace(
        built.shape,
        termination_grace_period_seconds=grace,
        priority_class_name=priority_class,
        annotations=annotations or {},
    )
    return msgspec.structs.replace(built, shape=shape, deletion_timestamp=deleted, start_time=EPOCH)


def step_of(*objects, now=EPOCH, instance=InstanceState.UNKNOWN):
    builder = synced_state(*objects)
    return node_termination(
        builder.snapshot(),
        builder.snapshot().nodes["web"],
        now=now,
        instance=instance,
        out_of_service=False,
    )


def drained(claim):
    """The claim, drained since `EPOCH`."""
    return with_condition(
        claim, DRAINED, status="Unknown", reason="Draining", message="Draining", now=EPOCH
    )


def names(items):
    return [item.pod.name for item in items]


class TestBegin:
    def test_an_undeleted_or_foreign_node_is_ignored(self):
        """Case 73."""
        assert step_of(node("web")).action is NONE
        assert step_of(node("web", deleted=EPOCH)).action is NONE

    def test_deleted_node_deletes_its_claim(self):
        """Case 74."""
        alive = node_claim("web", stage="Initialized")
        assert step_of(*going(alive)).delete_claim
        assert not step_of(*going()).delete_claim

    def test_deleted_node_is_tainted_and_leaves_load_balancers(self):
        """Case 75; a taint of the same key and another effect is replaced."""
        claim, its_node = going(taints=("karpenter.sh/disrupted=x:NoExecute", "own:NoSchedule"))
        marked = step_of(claim, its_node, running()).node.applied_to(its_node)
        assert marked.labels[EXCLUDE_BALANCERS] == "karpenter"
        assert [(t.key, t.effect) for t in marked.taints] == [
            ("own", "NoSchedule"),
            (DISRUPTED_TAINT, "NoSchedule"),
        ]
        assert disrupted_patch(marked).operations_for(marked) == []

    def test_a_stale_disruption_taint_is_removed_except_from_a_deleted_node(self):
        stale = node("web", taints=("karpenter.sh/disrupted:NoSchedule",))
        assert undisrupted_patch(stale).applied_to(stale).taints == ()
        disrupted_node = disrupted_patch(stale).applied_to(stale)
        assert undisrupted_patch(disrupted_node).applied_to(disrupted_node).labels == stale.labels
        others = msgspec.structs.replace(disrupted_node, labels={EXCLUDE_BALANCERS: "true"})
        assert undisrupted_patch(others).applied_to(others).labels == others.labels
        assert undisrupted_patch(node("web")) is None
        _, leaving = going(taints=("karpenter.sh/disrupted:NoSchedule",))
        assert undisrupted_patch(leaving) is None

    def test_a_rollback_keeps_a_foreign_balancer_label(self):
        kept = node("web", labels={EXCLUDE_BALANCERS: "true"})
        marked = disrupted_patch(kept).applied_to(kept)
        assert undisrupted_patch(marked).applied_to(marked).labels == kept.labels

    def test_the_instance_of_an_unresponsive_node_is_fetched(self):
        """Case 85: gone ends it undrained; a Ready one is believed."""
        silent = going(ready="Unknown")
        assert step_of(*silent, running()).action is FETCH
        gone = step_of(*silent, running(), instance=InstanceState.GONE)
        assert (gone.action, gone.node) == (FINISH, None)
        assert step_of(*silent, running(), instance=InstanceState.PRESENT).action is WAIT
        assert step_of(*going(), running(), instance=InstanceState.GONE).action is WAIT

    def test_an_unreadable_deadline_is_an_error(self):
        claim = node_claim(
            "web", stage="Initialized", deleted=EPOCH, annotations={TERMINATION_TIMESTAMP: "x"}
        )
        with pytest.raises(BadInputError):
            step_of(*going(claim))


class TestDrain:
    def test_an_empty_node_waits_five_seconds_for_late_pods(self):
        """Cases 72, 84, 92."""
        claim, its_node = going()
        first = step_of(claim, its_node)
        assert (first.action, first.requeue_after) == (WAIT, timedelta(seconds=1))
        assert find_condition(first.claim.status.conditions, DRAINED).status == "Unknown"
        early = step_of(first.claim, its_node, now=after(seconds=3))
        assert early.action is WAIT
        assert early.claim is first.claim
        late = step_of(first.claim, its_node, now=after(seconds=5))
        assert is_true(late.claim.status.conditions, DRAINED, VOLUMES_DETACHED)
        assert [metric_update.metric for metric_update in late.metric_updates] == ["nodes_drained"]
        assert late.action is TERMINATE

    def test_a_node_emptied_by_a_command_drains_without_conditions(self):
        """It waits as long; pods that come all the same are drained as usual."""
        alive = node_claim("web", stage="Initialized", deleted=EPOCH)
        marked = with_condition(alive, DISRUPTION_REASON, now=EPOCH, reason="Empty")
        claim, its_node = going(marked, taints=("karpenter.sh/disrupted:NoSchedule",))
        early = step_of(claim, its_node, now=after(seconds=4))
        assert (early.action, early.claim) == (WAIT, claim)
        late = step_of(claim, its_node, now=after(seconds=5))
        assert is_true(late.claim.status.conditions, DRAINED, VOLUMES_DETACHED)
        assert (late.action, [metric_update.metric for metric_update in late.metric_updates]) == (
            TERMINATE,
            ["nodes_drained"],
        )
        step = step_of(claim, its_node, running(), now=after(seconds=6))
        assert find_condition(step.claim.status.conditions, DRAINED).reason == "Draining"
        emptied = step_of(step.claim, its_node, now=after(seconds=10))
        assert emptied.action is WAIT

    def test_a_node_that_was_given_a_reason_but_no_taint_waits_from_its_taint_on(self):
        """Reclaimed by its cloud, say: the taint comes with the first pass."""
        alive = node_claim("web", stage="Initialized", deleted=EPOCH)
        claim, its_node = going(with_condition(alive, DISRUPTION_REASON, now=EPOCH, reason="Spot"))
        first = step_of(claim, its_node, now=after(seconds=60))
        assert first.action is WAIT
        condition = find_condition(first.claim.status.conditions, DRAINED)
        assert (condition.status, condition.last_transition_time) == ("Unknown", after(seconds=60))

    def test_a_deletion_that_lies_in_the_future_is_not_waited_for(self):
        """The API server dates it, whose clock may be hours ahead of ours."""
        alive = node_claim("web", stage="Initialized", deleted=EPOCH)
        marked = with_condition(alive, DISRUPTION_REASON, now=EPOCH, reason="Empty")
        claim, its_node = going(marked, taints=("karpenter.sh/disrupted:NoSchedule",))
        now = after(hours=-5)
        first = step_of(claim, its_node, now=now)
        condition = find_condition(first.claim.status.conditions, DRAINED)
        assert (condition.status, condition.last_transition_time) == ("Unknown", now)
        assert step_of(first.claim, its_node, now=now + timedelta(seconds=5)).action is TERMINATE

    def test_drain_time_restarts_if_its_start_lies_in_the_future(self):
        """Else a clock that was hours ahead keeps the empty node for as many hours."""
        claim, its_node = going()
        ahead = step_of(claim, its_node, now=after(hours=5)).claim
        step = step_of(ahead, its_node, now=EPOCH)
        assert step.action is WAIT
        assert find_condition(step.claim.status.conditions, DRAINED).last_transition_time == EPOCH
        assert step_of(step.claim, its_node, now=after(seconds=5)).action is TERMINATE

    def test_node_without_claim_does_not_wait_for_late_pods(self):
        """Case 72: no claim, or two of them."""
        claim, its_node = going()
        assert step_of(its_node).action is FINISH
        twin = node_claim("twin", stage="Initialized", provider_id="kwok://web", deleted=EPOCH)
        step = step_of(claim, twin, its_node)
        assert (step.action, step.claim) == (FINISH, None)

    def test_waiting_pod_holds_the_node(self):
        """Cases 79, 84: also one without an owner."""
        claim, its_node = going()
        step = step_of(claim, its_node, running("a", owner_kind=""))
        assert (step.action, names(step.evictions)) == (WAIT, ["a"])
        assert find_condition(step.claim.status.conditions, DRAINED).reason == "Draining"
        assert [n.message for n in step.notices] == [
            "Failed to drain node, 1 pods are waiting to be evicted: default/a"
        ]

    def test_event_names_the_pods_that_are_waited_for(self):
        """The first few, after the reference's text."""
        claim, its_node = going()
        step = step_of(claim, its_node, *(running(f"web-{n}") for n in range(7)))
        assert step.notices[-1].message.endswith(
            "7 pods are waiting to be evicted: default/web-0, default/web-1, default/web-2, "
            "default/web-3, default/web-4 and 2 other(s)"
        )

    @pytest.mark.parametrize("tolerations", [["karpenter.sh/disrupted"], [""]])
    def test_pods_that_tolerate_the_taint_stay(self, tolerations):
        """Case 77: Exists of the key, or of everything."""
        assert undrained_pods([running(tolerations=tolerations)], EPOCH, LEDGER) == ()

    def test_pods_that_tolerate_other_taints_go(self):
        """Case 78."""
        tolerant = running(tolerations=["node.kubernetes.io/unschedulable"])
        assert len(undrained_pods([tolerant], EPOCH, LEDGER)) == 1

    def test_ended_static_and_stuck_pods_are_not_waited_for(self):
        """Cases 80, 81, 86."""
        ended = msgspec.structs.replace(running(), phase="Failed")
        static = running(owner_kind="Node")
        stuck = running(deleted=EPOCH)
        assert undrained_pods([ended, static], EPOCH, LEDGER) == ()
        assert len(undrained_pods([stuck], after(seconds=60), LEDGER)) == 1
        assert undrained_pods([stuck], after(seconds=90), LEDGER) == ()

    @pytest.mark.parametrize("hours", [-5, 5])
    def test_a_pod_is_stuck_by_how_long_it_was_seen_to_end(self, hours):
        """The API server dates the end of its grace period by another clock."""
        stuck = running(deleted=after(hours=hours))
        deletion = PodDeletion(after(hours=hours), after(seconds=30))
        ledger = LedgerView(pod_deletions={stuck.uid: deletion})
        assert len(undrained_pods([stuck], after(seconds=90), ledger)) == 1
        assert undrained_pods([stuck], after(seconds=91), ledger) == ()

    def test_protected_pods_are_waited_for(self):
        protected = running(annotations={DO_NOT_DISRUPT: "true"})
        assert len(undrained_pods([protected], EPOCH, LEDGER)) == 1

    def test_groups_leave_one_after_the_other(self):
        """Case 83."""
        pods = [
            running("critical-ds", owner_kind="DaemonSet", priority_class="system-node-critical"),
            running("critical-1", priority_class="system-node-critical"),
            running("critical-2", priority_class="system-cluster-critical"),
            running("ds", owner_kind="DaemonSet"),
            running("app"),
        ]
        waves = []
        while pods:
            wave = names(drain_wave(undrained_pods(pods, EPOCH, LEDGER), deadline=None, now=EPOCH))
            waves.append(wave)
            pods = [item for item in pods if item.name not in wave]
        assert waves == [["app"], ["ds"], ["critical-1", "critical-2"], ["critical-ds"]]

    def test_a_pod_pressed_for_time_does_not_wait_for_its_turn(self):
        """Case 90."""
        app = running("app", grace=30)
        critical = running("critical", grace=600, priority_class="system-node-critical")
        wave = drain_wave([app, critical], deadline=after(seconds=300), now=EPOCH)
        assert names(wave) == ["critical", "app"]
        assert {item.deadline for item in wave} == {after(seconds=300)}


class TestDeadline:
    DEADLINE = after(seconds=300)

    @pytest.mark.parametrize(
        ("grace", "seconds", "forced"),
        [(300, 1, True), (60, 90, False), (60, 240, False), (60, 265, True), (None, 299, False)],
    )
    def test_a_pod_is_forced_when_its_grace_would_overrun(self, grace, seconds, forced):
        """Cases 88 and 89."""
        result = needs_force(running(grace=grace), self.DEADLINE, after(seconds=seconds))
        assert result is forced

    def test_a_terminating_pod_is_forced_when_it_ends_too_late(self):
        """Case 91: at +90 s its grace becomes 210 s."""
        slow = running(grace=6000, deleted=after(seconds=6000))
        advice = eviction_advice(slow, uid=slow.uid, deadline=self.DEADLINE, now=after(seconds=90))
        assert (advice.action, advice.grace_seconds) == (EvictionAction.DELETE, 210)
        quick = running(deleted=after(seconds=100))
        assert not needs_force(quick, self.DEADLINE, after(seconds=90))

    @pytest.mark.parametrize("grace", [10**11, 2**63 - 1])
    def test_a_grace_period_beyond_the_calendar_is_cut_at_the_deadline(self, grace):
        """Kubernetes allows any number of seconds, and some mean by it: never."""
        eternal = running(grace=grace)
        advice = eviction_advice(eternal, uid=eternal.uid, deadline=self.DEADLINE, now=EPOCH)
        assert (advice.action, advice.grace_seconds) == (EvictionAction.DELETE, 300)
        assert names(drain_wave([eternal], deadline=self.DEADLINE, now=EPOCH)) == [eternal.name]

    def test_a_negative_grace_period_does_not_outlast_the_deadline(self):
        """Kubernetes ends such a pod after a second."""
        assert needs_force(running(grace=-(10**9)), self.DEADLINE, after(seconds=301))

    def test_without_deadline_nothing_is_forced(self):
        assert not needs_force(running(grace=6000), None, after(days=9))


class TestVolumes:
    CLAIM = PersistentVolumeClaimView(
        uid="c", namespace="default", name="data", volume_name="pv-1", bind_completed=True
    )

    def attachment(self, name="va-1", volume="pv-1", on="web"):
        return VolumeAttachmentView(uid=name, name=name, node_name=on, volume_name=volume)

    def step_of(self, *objects, seconds=10.0, claim=None):
        claim, its_node = going(claim)
        return step_of(drained(claim), its_node, *objects, now=after(seconds=seconds))

    def test_an_attachment_holds_the_node(self):
        """Case 93."""
        step = self.step_of(self.attachment())
        condition = find_condition(step.claim.status.conditions, VOLUMES_DETACHED)
        assert (step.action, condition.status, condition.reason) == (
            WAIT, "Unknown", "AwaitingVolumeDetachment",
        )  # fmt: skip
        assert step.notices[-1].message == ("Awaiting deletion of bound volumeattachments (va-1)")
        assert self.step_of().action is TERMINATE

    def test_many_attachments_are_summed_up(self):
        step = self.step_of(*(self.attachment(f"va-{n}", f"pv-{n}") for n in range(7)))
        assert step.notices[-1].message.endswith("va-4 and 2 other(s))")

    def test_attachments_of_other_nodes_do_not_hold_the_node(self):
        """Case 94: of another node, without a volume, of a pod that stays."""
        shape = msgspec.structs.replace(
            pod_shape(tolerations=["karpenter.sh/disrupted"]),
            volumes=(VolumeView(name="data", claim_name="data"),),
        )
        stays = pod("stays", shape=shape, node_name="web", phase="Running")
        objects = (
            stays, self.CLAIM, self.attachment(), self.attachment("va-2", on="other"),
            self.attachment("va-3", volume=""),
        )  # fmt: skip
        assert self.step_of(*objects).action is TERMINATE

    def test_volumes_are_not_waited_for_after_the_deadline(self):
        """Case 95."""
        claim = node_claim(
            "web",
            stage="Initialized",
            deleted=EPOCH,
            annotations={TERMINATION_TIMESTAMP: "2026-01-01T00:05:00Z"},
        )
        assert self.step_of(self.attachment(), seconds=299, claim=claim).action is WAIT
        step = self.step_of(self.attachment(), seconds=300, claim=claim)
        condition = find_condition(step.claim.status.conditions, VOLUMES_DETACHED)
        assert (step.action, condition.status, condition.reason) == (
            TERMINATE, "False", "TerminationGracePeriodElapsed",
        )  # fmt: skip


class TestEnd:
    def step_of(self, instance):
        claim, its_node = going()
        return step_of(drained(claim), its_node, now=after(seconds=10), instance=instance)

    def test_node_waits_for_its_instance_to_end(self):
        step = self.step_of(InstanceState.TERMINATING)
        assert (step.action, step.requeue_after) == (WAIT, timedelta(seconds=5))
        assert is_true(step.claim.status.conditions, INSTANCE_TERMINATING, DRAINED)

    def test_last_of_several_nodes_ends_the_instance(self):
        """Case 65: two Nodes show its id; the empty one goes, and pods run on under the other."""
        claim, its_node = going()
        twin = node("twin", claim=claim, deleted=EPOCH)
        step = step_of(drained(claim), its_node, twin, now=after(seconds=10))
        assert (step.action, step.finish is not None) == (FINISH, True)
        let_go = node("twin", claim=claim, deleted=EPOCH, finalizers=("foreign/x",))
        assert step_of(drained(claim), its_node, let_go, now=after(seconds=10)).action is TERMINATE

    def test_finished_node_is_released_and_measured(self):
        """Case 96."""
        step = self.step_of(InstanceState.GONE)
        _, its_node = going()
        assert step.action is FINISH
        assert step.finish.applied_to(its_node).finalizers == ()
        assert {
            metric_update.metric: metric_update.value for metric_update in step.metric_updates
        } == {
            "nodes_drained": 1.0,
            "nodes_terminated": 1.0,
            "nodes_termination_duration": 10.0,
            "nodes_lifetime_duration": 10.0,
        }


class TestEvictionQueue:
    def advice(self, item, *, deadline=None, now=EPOCH, uid=None):
        return eviction_advice(
            item, uid=uid or (item.uid if item else "x"), deadline=deadline, now=now
        )

    def test_a_pod_that_is_gone_or_another_is_done(self):
        """Cases 87, 97, 106."""
        assert self.advice(None).action is EvictionAction.DONE
        assert self.advice(running(), uid="older").action is EvictionAction.DONE

    def test_an_ordinary_pod_is_evicted(self):
        """Case 98."""
        assert self.advice(running()).action is EvictionAction.EVICT

    @pytest.mark.parametrize("gone", [{"phase": "Failed"}, {"deletion_timestamp": EPOCH}])
    def test_a_pod_at_its_end_is_done(self, gone):
        ended = msgspec.structs.replace(running(), **gone)
        assert self.advice(ended).action is EvictionAction.DONE

    def test_a_protected_pod_is_held(self):
        protected = running(annotations={DO_NOT_DISRUPT: "2m"})
        assert self.advice(protected, now=after(minutes=1)).action is EvictionAction.HOLD
        assert self.advice(protected, now=after(minutes=2)).action is EvictionAction.EVICT

    def test_a_deadline_overrides_protection_and_leaves_at_least_a_second(self):
        """Cases 88, 103, 107."""
        protected = running(grace=120, annotations={DO_NOT_DISRUPT: "true"})
        forced = self.advice(protected, deadline=after(minutes=1))
        assert (forced.action, forced.grace_seconds) == (EvictionAction.DELETE, 60)
        late = self.advice(protected, deadline=after(hours=-1))
        assert late.grace_seconds == 1
        text = disrupted_notice(protected, after(hours=-1), late.grace_seconds).message
        assert "granted 1 seconds of grace-period of its 120" in text

    def test_the_tighter_deadline_wins(self):
        """Cases 104 and 105."""
        soon, late = after(minutes=1), after(minutes=9)
        assert earlier_deadline(None, soon) == soon
        assert earlier_deadline(soon, late) == soon
        assert earlier_deadline(late, None) == late
        assert earlier_deadline(None, None) is None

    @pytest.mark.parametrize(
        ("status", "message", "causes", "verdict"),
        [
            (200, "", (), EvictionVerdict.EVICTED),
            (201, "", (), EvictionVerdict.EVICTED),
            (299, "", (), EvictionVerdict.EVICTED),
            (300, "", (), EvictionVerdict.FAILED),
            (199, "", (), EvictionVerdict.FAILED),
            (404, "", (), EvictionVerdict.GONE),
            (409, "", (), EvictionVerdict.GONE),
            (429, "", ("DisruptionBudget",), EvictionVerdict.BLOCKED),
            (429, "", (), EvictionVerdict.THROTTLED),
            (429, "webhook", ("Other",), EvictionVerdict.THROTTLED),
            (500, "found more than one PodDisruptionBudget", (), EvictionVerdict.SEVERAL_BUDGETS),
            (500, "etcd", (), EvictionVerdict.FAILED),
            (403, "", (), EvictionVerdict.DENIED),
            *((status, DENIAL, (), EvictionVerdict.DENIED) for status in (400, 404, 409, 500)),
            (429, DENIAL, (), EvictionVerdict.THROTTLED),
            (404, 'admission webhook "w"', (), EvictionVerdict.GONE),
            (404, "denied the request", (), EvictionVerdict.GONE),
        ],
    )
    def test_eviction_answers_are_interpreted(self, status, message, causes, verdict):
        """Cases 98, 100, 101; 429 is also what an API server says that has too much to do."""
        assert eviction_verdict(status, message, causes) is verdict

    def test_a_refusal_names_the_pod(self):
        """Case 100."""
        notice = refused_notice(
            node_ref(node("web")), running(), EvictionVerdict.BLOCKED, budgets=(), answer=""
        )
        assert (notice.reason, notice.message) == (
            "FailedDraining",
            "Failed to drain node, evicting pod violates a PDB (Pod=default/a)",
        )

    @pytest.mark.parametrize(
        ("verdict", "budgets", "text"),
        [
            (
                EvictionVerdict.BLOCKED,
                ["default/web"],
                "evicting pod violates a PDB (Pod=default/a): PodDisruptionBudget default/web",
            ),
            (
                EvictionVerdict.SEVERAL_BUDGETS,
                ["default/one", "default/two"],
                (
                    "eviction does not support multiple PDBs (Pod=default/a): "
                    "PodDisruptionBudgets default/one, default/two"
                ),
            ),
        ],
    )
    def test_a_refusal_names_the_budgets(self, verdict, budgets, text):
        """Cases 100 and 101: who is to be asked stands after the reference's text."""
        notice = refused_notice(
            node_ref(node("web")), running(), verdict, budgets=budgets, answer=""
        )
        assert notice.message == f"Failed to drain node, {text}"

    def test_the_reason_comes_from_the_claim(self):
        """Cases 98 and 99."""
        claim = node_claim("web", stage="Initialized")
        interrupted = with_condition(
            claim, "DisruptionReason", reason="SpotInterruption", now=EPOCH
        )
        assert drain_reason(node("web"), interrupted) == "SpotInterruption"
        assert drain_reason(node("web"), claim) == "Forceful Termination"
        assert drain_reason(None, claim) == drain_reason(node("web"), None) == ""
