"""Rules of pods: provisioning, rescheduling, eviction and budgets."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import (
    DISRUPTED_TAINT,
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    SAFE_TO_EVICT,
)
from karpenter_core.api.records import Toleration
from karpenter_core.kube.objects import view_from_manifest
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_rules import (
    PodProtection,
    do_not_disrupt,
    is_evictable,
    protection_notice,
    tolerates_disruption,
)
from karpenter_core.testing.builders import EPOCH, pod, pod_shape, toleration
from karpenter_core.testing.state_builders import disruption_budget

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet"}
STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
OTHER_DAEMON_SET = {"apiVersion": "apps.example.com/v1", "kind": "DaemonSet", "controller": True}
NODE = {"apiVersion": "v1", "kind": "Node"}


def node_terms(*terms):
    """An affinity of which each term names a node, has an expression, or both."""
    fields = [{"key": "metadata.name", "operator": "In", "values": ["web"]}]
    expressions = [{"key": "arch", "operator": "Exists"}]
    parts = {"named": {"matchFields": fields}, "other": {"matchExpressions": expressions}}
    built = [{k: v for name in term for k, v in parts[name].items()} for term in terms]
    required = {"nodeSelectorTerms": built}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


PINNED = node_terms(["named"])


def read(
    *,
    owners=(REPLICA_SET,),
    node="",
    conditions=(),
    deleted=False,
    annotations=None,
    affinity=None,
    **status,
):
    """A pod as the API server shows it."""
    meta = {
        "name": "a",
        "ownerReferences": [{"name": "o", "uid": "u", **owner} for owner in owners],
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
        **({"annotations": annotations} if annotations else {}),
    }
    spec = {"containers": [], **({"nodeName": node} if node else {}), "affinity": affinity}
    return view_from_manifest(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": spec,
            "status": {"conditions": list(conditions), **status},
        }
    )


def scheduled(reason, status="False"):
    return {"type": "PodScheduled", "status": status, "reason": reason}


GAVE_UP = scheduled("Unschedulable")


@pytest.mark.parametrize(
    ("view", "asks"),
    [
        (read(conditions=[GAVE_UP]), True),
        (read(conditions=[scheduled("Unschedulable", status="Unknown")]), True),
        (read(conditions=[{"type": "Ready", "status": "False"}, GAVE_UP]), True),
        (read(owners=(), conditions=[GAVE_UP]), True),
        (read(owners=[{**DAEMON_SET, "apiVersion": "x/v1"}], conditions=[GAVE_UP]), True),
        (read(owners=[{**NODE, "apiVersion": "x/v1"}], conditions=[GAVE_UP]), True),
        (read(), False),
        (read(conditions=[scheduled("SchedulingGated")]), False),
        (read(conditions=[{"type": "Ready", "status": "False", "reason": "Unschedulable"}]), False),
        (read(conditions=[GAVE_UP], node="web"), False),
        (read(conditions=[GAVE_UP], nominatedNodeName="web"), False),
        (read(conditions=[GAVE_UP], owners=[DAEMON_SET]), False),
        (read(conditions=[GAVE_UP], owners=[REPLICA_SET, DAEMON_SET]), False),
        (read(conditions=[GAVE_UP], owners=[NODE]), False),
        (read(conditions=[GAVE_UP], owners=[OTHER_DAEMON_SET]), True),
        (read(conditions=[GAVE_UP], owners=[OTHER_DAEMON_SET], affinity=PINNED), False),
        (read(conditions=[GAVE_UP], deleted=True), False),
        (read(conditions=[GAVE_UP], phase="Failed"), False),
    ],
)
def test_a_pod_needs_a_node_once_marked_unschedulable(view, asks):
    """Section 9.1; a pod that is being deleted never gets one (see the differences)."""
    assert view.is_provisionable is asks


@pytest.mark.parametrize(
    ("view", "comes_back"),
    [
        (read(node="web"), True),
        (read(node="web", owners=()), True),
        (read(node="web", owners=[STATEFUL_SET]), True),
        (read(node="web", owners=[STATEFUL_SET], deleted=True), True),
        (read(node="web", owners=[{**STATEFUL_SET, "apiVersion": "x/v1"}], deleted=True), False),
        (read(node="web", deleted=True), False),
        (read(node="web", phase="Succeeded"), False),
        (read(node="web", owners=[DAEMON_SET]), False),
        (read(node="web", owners=[NODE]), False),
        (read(node="web", owners=[OTHER_DAEMON_SET]), True),
        (read(node="web", owners=[OTHER_DAEMON_SET], affinity=PINNED), False),
        (read(node="web", affinity=PINNED), True),
    ],
)
def test_a_pod_is_rescheduled_when_active_or_recreated_by_its_set(view, comes_back):
    """Section 9.1 and case 289."""
    assert view.is_reschedulable is comes_back


@pytest.mark.parametrize(
    ("owner", "terms", "is_daemon"),
    [
        (DAEMON_SET, [], True),
        (OTHER_DAEMON_SET, [["named"]], True),
        (OTHER_DAEMON_SET, [["named", "other"], ["named"]], True),
        (OTHER_DAEMON_SET, [["named"], ["other"]], False),
        (OTHER_DAEMON_SET, [["other"]], False),
        (OTHER_DAEMON_SET, [], False),
        (STATEFUL_SET, [["named"]], False),
    ],
)
def test_a_daemon_is_of_a_daemon_set_of_kubernetes_or_pinned_to_its_node_by_another(
    owner, terms, is_daemon
):
    """Some controllers have DaemonSets of their own, and pin pods like Kubernetes' controller."""
    affinity = node_terms(*terms) if terms else None
    assert read(node="web", owners=[owner], affinity=affinity).is_daemon is is_daemon


def running(*, ready=None, phase="Running", **options):
    return msgspec.structs.replace(
        pod("a", node_name="web", phase=phase, **options), ready=ready, start_time=EPOCH
    )


def moves(item, *budgets, now=EPOCH):
    return PodBudgets(budgets).is_reschedulable_now(item, now)


class TestBudgets:
    """Whether a pod of a node that goes will need another place."""

    @pytest.mark.parametrize(
        ("amounts", "goes"),
        [
            ({"max_unavailable": "0"}, False),
            ({"max_unavailable": "0%"}, False),
            ({"min_available": "100%"}, False),
            ({"max_unavailable": "1"}, True),
            ({"max_unavailable": "1%"}, True),
            ({"min_available": "99%"}, True),
            ({"min_available": "1000"}, True),
        ],
    )
    def test_only_a_budget_that_never_allows_anything_holds_a_pod(self, amounts, goes):
        """Case 290: what an integer minimum comes to depends on the pods there are."""
        assert moves(running(), disruption_budget(**amounts)) is goes

    def test_two_budgets_for_one_pod_always_block_eviction(self):
        """Case 290: the eviction API refuses it."""
        generous = [disruption_budget(name, max_unavailable="100%") for name in ("a", "b")]
        assert moves(running(), generous[0])
        assert not moves(running(), *generous)

    def test_budgets_watch_over_their_namespace_and_selector(self):
        held = running(labels={"app": "web"})
        elsewhere = disruption_budget(namespace="other", max_unavailable="0")
        others = disruption_budget(labels={"app": "api"}, max_unavailable="0")
        selects_none = msgspec.structs.replace(
            disruption_budget(max_unavailable="0"), selector=None
        )
        assert moves(held, elsewhere, others, selects_none)
        assert not moves(held, disruption_budget(labels={"app": "web"}, max_unavailable="0"))

    @pytest.mark.parametrize(("ready", "goes"), [(False, True), (True, False), (None, False)])
    def test_a_budget_may_let_unhealthy_pods_go(self, ready, goes):
        policy = disruption_budget(max_unavailable="0", unhealthy_policy="AlwaysAllow")
        assert moves(running(ready=ready), policy) is goes
        assert not moves(running(ready=ready), disruption_budget(max_unavailable="0"))

    @pytest.mark.parametrize(
        ("ready", "healthy", "desired", "goes"),
        [
            (False, 2, 2, True),
            (False, 3, 2, True),
            (False, 1, 2, False),
            (False, 0, 0, False),
            (True, 2, 2, False),
        ],
    )
    def test_an_unready_pod_may_go_while_enough_others_are_ready(
        self, ready, healthy, desired, goes
    ):
        """The eviction API counts it neither as healthy nor as disrupted."""
        budget = disruption_budget(min_available="100%", healthy=healthy, desired=desired)
        assert moves(running(ready=ready), budget) is goes

    def test_budgets_do_not_protect_a_pod_that_does_not_run_yet(self):
        """One whose image cannot be pulled would otherwise hold its node for ever."""
        starting = running(phase="Pending")
        two = [disruption_budget(name, max_unavailable="0") for name in ("a", "b")]
        assert moves(starting, two[0])
        assert moves(starting, *two)

    @pytest.mark.parametrize(
        "item",
        [
            running(tolerations=[toleration(f"{DISRUPTED_TAINT}:NoSchedule")]),
            msgspec.structs.replace(running(owner_kind="StatefulSet"), deletion_timestamp=EPOCH),
        ],
    )
    def test_a_pod_that_is_not_evicted_needs_no_permission_of_budgets(self, item):
        """It goes with its node, or is going already."""
        assert moves(item, disruption_budget(max_unavailable="0"))

    def test_a_protected_pod_stays_until_its_time_is_over(self):
        def protected(value):
            item = running()
            shape = msgspec.structs.replace(item.shape, annotations={DO_NOT_DISRUPT: value})
            return msgspec.structs.replace(item, shape=shape)

        assert not moves(protected("true"))
        assert not moves(protected("5m"), now=EPOCH + timedelta(minutes=4))
        assert moves(protected("5m"), now=EPOCH + timedelta(minutes=5))
        assert moves(protected("false"))

    def test_the_time_of_a_protected_pod_begins_with_its_start(self):
        """Until then there is no end to tell: no Event."""
        item = read(node="web", annotations={DO_NOT_DISRUPT: "5m"})
        assert item.start_time is None
        verdict = do_not_disrupt(item, EPOCH + timedelta(hours=1))
        assert verdict.protection is PodProtection.ALWAYS
        assert not is_evictable(item, EPOCH + timedelta(hours=1))
        assert protection_notice(item, verdict) is None

    @pytest.mark.parametrize(
        ("minutes", "reason"),
        [(4, "DoNotDisruptUntil"), (5, "DoNotDisruptGracePeriodElapsed")],
    )
    def test_the_end_of_protection_is_announced_once_for_each_pod(self, minutes, reason):
        started = {"startTime": f"{EPOCH:%Y-%m-%dT%H:%M:%SZ}"}
        item = read(node="web", annotations={DO_NOT_DISRUPT: "5m"}, **started)
        items = [msgspec.structs.replace(item, uid=uid) for uid in ("uid-1", "uid-2")]
        now = EPOCH + timedelta(minutes=minutes)
        one, other = (protection_notice(each, do_not_disrupt(each, now)) for each in items)
        assert one.reason == other.reason == reason
        assert one.dedupe[0] == items[0].uid
        assert one.dedupe != other.dedupe


class TestOlderAnnotations:
    """Annotations of older autoscalers protect a pod without do-not-disrupt."""

    def verdict(self, annotations, *, age=timedelta()):
        item = read(node="web", annotations=annotations, startTime=f"{EPOCH:%Y-%m-%dT%H:%M:%SZ}")
        return item, do_not_disrupt(item, EPOCH + age)

    @pytest.mark.parametrize(
        ("annotations", "by"),
        [
            ({DO_NOT_EVICT: "true"}, DO_NOT_EVICT),
            ({SAFE_TO_EVICT: "false"}, SAFE_TO_EVICT),
            ({SAFE_TO_EVICT: "false", DO_NOT_EVICT: "true"}, DO_NOT_EVICT),
            ({DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "true"}, DO_NOT_DISRUPT),
            ({DO_NOT_DISRUPT: "10m", SAFE_TO_EVICT: "false"}, DO_NOT_DISRUPT),
            ({DO_NOT_DISRUPT: "never", SAFE_TO_EVICT: "false"}, SAFE_TO_EVICT),
            ({DO_NOT_EVICT: "false"}, None),
            ({SAFE_TO_EVICT: "true"}, None),
            ({DO_NOT_DISRUPT: "5m", SAFE_TO_EVICT: "false"}, None),
        ],
    )
    def test_they_rank_below_do_not_disrupt(self, annotations, by):
        """Five minutes after the start; what cannot be read leaves the decision to them."""
        age = timedelta(minutes=5)
        item, verdict = self.verdict(annotations, age=age)
        assert verdict.is_active is (by is not None)
        assert is_evictable(item, EPOCH + age) is (by is None)
        if by is not None:
            assert verdict.annotation == by

    @pytest.mark.parametrize(
        ("kind", "version"), [("DaemonSet", "apps/v1"), ("Node", "v1"), ("ReplicaSet", "apps/v1")]
    )
    def test_safe_to_evict_of_pods_that_stay_on_their_node_protects_nothing(self, kind, version):
        """As in Cluster Autoscaler: an agent on every node would keep every node."""
        built, _ = self.verdict({SAFE_TO_EVICT: "false"})
        shape = msgspec.structs.replace(built.shape, owner_kind=kind, owner_api_version=version)
        item = msgspec.structs.replace(built, shape=shape)
        assert do_not_disrupt(item, EPOCH).is_active is (kind == "ReplicaSet")

    def test_an_unreadable_value_is_reported_although_an_older_one_protects(self):
        item, verdict = self.verdict({DO_NOT_DISRUPT: "never", DO_NOT_EVICT: "true"})
        assert protection_notice(item, verdict).reason == "InvalidDoNotDisruptAnnotation"
        item, verdict = self.verdict({DO_NOT_EVICT: "true"})
        assert protection_notice(item, verdict) is None


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", None)])
def test_readiness_of_a_pod_is_true_false_or_unknown(status, ready):
    assert read(node="web", conditions=[{"type": "Ready", "status": status}]).ready is ready


@pytest.mark.parametrize(
    ("key", "operator", "value", "effect", "stays"),
    [
        (DISRUPTED_TAINT, "Exists", "", "NoSchedule", True),
        (DISRUPTED_TAINT, "Exists", "", "", True),
        (DISRUPTED_TAINT, "Equal", "", "NoSchedule", True),
        (DISRUPTED_TAINT, "", "", "NoSchedule", True),
        (DISRUPTED_TAINT, "Equal", "other", "NoSchedule", False),
        (DISRUPTED_TAINT, "", "other", "NoSchedule", False),
        (DISRUPTED_TAINT, "Exists", "", "NoExecute", False),
        (DISRUPTED_TAINT, "Lt", "", "NoSchedule", False),
        ("other", "Exists", "", "NoSchedule", False),
        ("other", "Equal", "", "", False),
        ("", "Exists", "", "", True),
        ("", "Exists", "", "NoSchedule", True),
        ("", "Exists", "", "NoExecute", False),
        ("", "Equal", "", "", False),
    ],
)
def test_a_pod_that_tolerates_the_taint_of_a_leaving_node_stays(
    key, operator, value, effect, stays
):
    tolerated = Toleration(key=key, operator=operator, value=value, effect=effect)
    item = pod("web", shape=pod_shape(tolerations=[tolerated]), node_name="node", phase="Running")
    assert tolerates_disruption(item) is stays
    assert is_evictable(item, EPOCH) is not stays
