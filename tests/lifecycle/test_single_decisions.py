"""Decisions of single functions of the lifecycle: each condition of them counts by itself."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import msgspec
import pytest

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.api.nodeclaim import (
    DISRUPTION_REASON,
    INSTANCE_TERMINATING,
    LAUNCHED,
    REGISTERED,
)
from karpenter_core.api.provisioning_request import ATOMIC_SCALE_UP, CHECK_CAPACITY
from karpenter_core.api.quantities import LARGEST_AMOUNT
from karpenter_core.disruption.balanced import _score
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
)
from karpenter_core.lifecycle.capacity_quota.status import quota_status
from karpenter_core.lifecycle.claim_status import (
    CLOCK_SKEW,
    disrupted_labels,
    with_condition,
    with_metadata,
    with_past_transition_time,
)
from karpenter_core.lifecycle.node.eviction import drain_reason
from karpenter_core.lifecycle.node.interruption import unclaimed_shortage
from karpenter_core.lifecycle.node.surge_move import SurgeAction, surge_advice
from karpenter_core.lifecycle.nodeclaim.initialization import _unmet_requirement
from karpenter_core.lifecycle.nodeclaim.termination import finished_step
from karpenter_core.lifecycle.nodeclaim.unfit_nodes import _shortage
from karpenter_core.lifecycle.nodepool import validation
from karpenter_core.lifecycle.nodepool.pool_usage import with_usage
from karpenter_core.lifecycle.nodepool.validation import _size_errors, joined_errors
from karpenter_core.lifecycle.provisioning_request import status
from karpenter_core.lifecycle.provisioning_request.gang_plan import _reason
from karpenter_core.lifecycle.provisioning_request.next_step import _failure
from karpenter_core.lifecycle.provisioning_request.notices import _is_changed
from karpenter_core.lifecycle.provisioning_request.parameters import (
    MOST_PODS,
    is_ours,
    parse_parameters,
)
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import node, node_claim
from tests.support.provisioning_requests import request

SECOND = timedelta(seconds=1)


def status_of(used, **fields):
    quota = SimpleNamespace(
        status=fields, metadata=SimpleNamespace(generation=1, resource_version="7")
    )
    found = quota_status(quota, SimpleNamespace(problems=(), limits={}), used, now=EPOCH)
    return found.patch.body["status"]


def test_an_unknown_price_is_left_out_of_the_use_of_a_quota():
    found = status_of({"cpu": 1000, "memory": LARGEST_AMOUNT})
    assert list(found["used"]["resources"]) == ["cpu"]
    (condition,) = found["conditions"]
    assert condition["status"] == "False"


@pytest.mark.parametrize(
    ("old", "since"),
    [
        ([{"type": "Reconciled", "status": "True", "lastTransitionTime": "then"}], "then"),
        ([{"type": "Reconciled", "status": "False", "lastTransitionTime": "then"}], "now"),
        ([{"type": "Reconciled", "status": "True"}], "now"),
        ("Reconciled", "now"),
        (None, "now"),
        ([1], "now"),
    ],
)
def test_a_condition_of_a_quota_keeps_its_date_while_it_holds(old, since):
    found = status_of({}, conditions=old)["conditions"]
    dates = [each["lastTransitionTime"] for each in found if isinstance(each, dict)]
    now = f"{EPOCH:%Y-%m-%dT%H:%M:%SZ}"
    assert dates == ["then" if since == "then" else now]


@pytest.mark.parametrize(("ahead", "is_kept"), [(timedelta(0), True), (SECOND, False)])
def test_a_date_within_the_skew_of_clocks_is_plausible(ahead, is_kept):
    claim = with_condition(node_claim("web"), REGISTERED, now=EPOCH + CLOCK_SKEW + ahead)
    assert (with_past_transition_time(claim, REGISTERED, EPOCH) is claim) is is_kept


def test_a_claim_with_the_same_metadata_is_the_same():
    claim = with_metadata(node_claim("web"), labels={"a": "b"}, finalizers=("f",))
    meta = claim.metadata
    assert with_metadata(claim, finalizers=meta.finalizers) is claim
    assert with_metadata(claim, labels=dict(meta.labels)) is claim
    assert with_metadata(claim, annotations=dict(meta.annotations)) is claim
    assert with_metadata(claim, finalizers=()).metadata.finalizers == ()


@pytest.mark.parametrize(
    ("period", "mode"), [(None, "graceful"), ("0s", "forceful"), ("1s", "eventual")]
)
def test_the_mode_of_a_termination_is_that_of_its_grace_period(period, mode):
    claim = node_claim("web")
    spec = type(claim.spec).model_validate(
        {**claim.spec.model_dump(by_alias=True), "terminationGracePeriod": period}
    )
    labels = disrupted_labels(claim.model_copy(update={"spec": spec}), "Drifted")
    assert labels["termination_mode"] == mode


@pytest.mark.parametrize(
    ("condition", "reason"),
    [(None, "Forceful Termination"), ("False", "Forceful Termination"), ("True", "Drifted")],
)
def test_a_node_is_drained_for_the_reason_of_its_disruption(condition, reason):
    claim = node_claim("web")
    if condition is not None:
        claim = with_condition(
            claim, DISRUPTION_REASON, status=condition, reason="Drifted", message="m", now=EPOCH
        )
    assert drain_reason(node("n"), claim) == reason
    assert drain_reason(None, claim) == drain_reason(node("n"), None) == ""


@pytest.mark.parametrize(
    ("is_terminating", "seconds"), [(None, 0.0), ("False", 0.0), ("True", 60.0)]
)
def test_a_termination_takes_from_its_request_on(is_terminating, seconds):
    claim = node_claim("web")
    claim = claim.model_copy(
        update={"status": claim.status.model_copy(update={"provider_id": "kwok://web"})}
    )
    if is_terminating is not None:
        claim = with_condition(
            claim, INSTANCE_TERMINATING, status=is_terminating, reason="r", message="m", now=EPOCH
        )
    step = finished_step(claim, now=EPOCH + timedelta(minutes=1))
    assert seconds in [each.value for each in step.metric_updates]


@pytest.mark.parametrize(
    ("kind", "error", "count"),
    [
        ("LAUNCH_FAILED", "capacity", 1),
        ("SPOT_RECLAIM", "capacity", 0),
        ("LAUNCH_FAILED", "other", 0),
        ("LAUNCH_FAILED", "class", 0),
        ("LAUNCH_FAILED", None, 0),
    ],
)
def test_a_failed_launch_without_a_claim_closes_what_its_error_names(kind, error, count):
    offerings = [OfferingKey(instance_type="t", zone="a", capacity_type="spot")]
    errors = {
        "capacity": InsufficientCapacityError("none", offerings=offerings),
        "class": InsufficientCapacityError(
            "none", offerings=offerings, scope=ExhaustedScope.NODE_CLASS
        ),
        "other": CloudProviderError("no"),
        None: None,
    }
    announcement = SimpleNamespace(kind=InterruptionKind[kind], error=errors[error])
    assert len(unclaimed_shortage(announcement)) == count


@pytest.mark.parametrize(
    ("is_settled", "is_stuck", "restarted", "action"),
    [
        (False, True, False, SurgeAction.EVICT),
        (True, True, True, SurgeAction.WAIT),
        (True, True, False, SurgeAction.RESTART),
        (False, False, False, SurgeAction.WAIT),
    ],
)
def test_a_rollout_that_is_over_is_not_stuck(monkeypatch, is_settled, is_stuck, restarted, action):
    monkeypatch.setattr("karpenter_core.lifecycle.node.surge_move._refusal", lambda *_: "")
    rollout = SimpleNamespace(replicas=1, is_settled=is_settled, is_stuck=is_stuck, key="web")
    advice = surge_advice(None, rollout, restarted=restarted, elapsed=timedelta())
    assert advice.action is action


def with_requests(**requests):
    claim = node_claim("web")
    resources = claim.spec.resources.model_copy(update={"requests": requests})
    return claim.model_copy(update={"spec": claim.spec.model_copy(update={"resources": resources})})


def test_a_resource_that_a_node_does_not_report_is_missing_and_not_short():
    claim = with_requests(memory="2")
    silent = msgspec.structs.replace(node("n"), allocatable={})
    assert _unmet_requirement(claim, silent) is not None
    assert _shortage(claim, silent) == ""
    assert "memory" in _shortage(claim, node("n", allocatable={"memory": "1"}))
    assert _shortage(claim, node("n", allocatable={"memory": "2"})) == ""


@pytest.mark.parametrize("field", ["_MAX_ANNOTATION_BYTES", "_MAX_TEMPLATE_BYTES"])
@pytest.mark.parametrize(("less", "is_refused"), [(0, False), (1, True)])
def test_a_template_of_the_largest_size_is_accepted(monkeypatch, field, less, is_refused):
    pool = node_pool("web", annotations={"note": "x" * 100})
    sizes = {
        "_MAX_ANNOTATION_BYTES": 104,
        "_MAX_TEMPLATE_BYTES": len(pool.spec.template.model_dump_json(exclude_none=True).encode()),
    }
    assert pool.spec.template.metadata.annotations == {"note": "x" * 100}
    monkeypatch.setattr(validation, field, sizes[field] - less)
    assert bool(list(_size_errors(pool))) is is_refused


@pytest.mark.parametrize(("more", "is_cut"), [(0, False), (1, True)])
def test_messages_of_the_longest_length_are_whole(monkeypatch, more, is_cut):
    monkeypatch.setattr(validation, "_LONGEST_MESSAGE", 10)
    monkeypatch.setattr(status, "_LONGEST_MESSAGE", 10)
    text = "x" * (10 + more)
    assert (joined_errors([text]) != text) is is_cut
    asked = status._with(request(), "Failed", "True", "Why", text, EPOCH)
    assert (asked.condition("Failed").message != text) is is_cut


def test_the_number_of_nodes_is_a_field_of_its_own():
    pool = node_pool("web")
    held = {"cpu": 1000, "nodes": 2}
    snapshot = SimpleNamespace(synced=True)
    sums = SimpleNamespace(resources=lambda _snapshot, _pool: held)
    counted = with_usage(pool, snapshot, sums)
    assert counted.status.nodes == 2
    assert with_usage(counted, snapshot, sums) is counted
    fewer = counted.model_copy(update={"status": counted.status.model_copy(update={"nodes": 1})})
    assert with_usage(fewer, snapshot, sums).status.nodes == 2
    assert with_usage(pool, SimpleNamespace(synced=False), sums) is pool


def condition(kind="Provisioned", message="m", state="False", reason="CapacityIsNotFound"):
    return SimpleNamespace(type=kind, status=state, reason=reason, message=message)


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        (None, condition(), True),
        (condition(), condition(), False),
        (condition(), condition(message="n"), True),
        (condition("Failed"), condition("Failed", message="n"), False),
        (condition(state="True"), condition(), True),
        (None, condition(reason="Other"), False),
    ],
)
def test_attempts_differ_in_the_messages_of_their_provision(before, after, is_changed):
    assert _is_changed(before, after) is is_changed


@pytest.mark.parametrize(
    ("provisioning_class", "parameters", "is_served"),
    [
        (CHECK_CAPACITY, {}, True),
        (CHECK_CAPACITY, {"processorInstance": "x"}, False),
        (ATOMIC_SCALE_UP, {"processorInstance": "x"}, True),
        ("other", {}, False),
    ],
)
def test_only_capacity_checks_name_an_instance_of_another_autoscaler(
    provisioning_class, parameters, is_served
):
    assert is_ours(request(provisioning_class=provisioning_class, **parameters)) is is_served


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_a_request_for_the_most_pods_is_accepted(more, is_refused):
    assert isinstance(parse_parameters(request(MOST_PODS + more)), str) is is_refused


@pytest.mark.parametrize(
    ("state", "message", "text"),
    [
        ("False", "sold out", "sold out"),
        ("True", "sold out", "was deleted before"),
        ("False", "", "was deleted before"),
    ],
)
def test_an_attempt_fails_for_the_reason_of_its_claim(state, message, text):
    bare = node_claim("web")
    bare = bare.model_copy(update={"status": bare.status.model_copy(update={"conditions": ()})})
    claim = with_condition(bare, LAUNCHED, status=state, reason="r", message=message, now=EPOCH)
    meta = claim.metadata.model_copy(update={"deletion_timestamp": EPOCH})
    assert text in _failure([claim.model_copy(update={"metadata": meta})], 1)
    assert "not all 1 NodeClaims could be created" in _failure([claim], 1)


@pytest.mark.parametrize(
    ("cost", "disruption", "savings", "approved"),
    [
        (10.0, 10.0, 5.0, True),
        (10.0, 10.0, 4.9, False),
        (10.0, 1.0, 10.0, True),
        (10.0, 0.5, 10.0, True),
        (10.0, 0.0, 10.0, False),
        (0.0, 10.0, 10.0, False),
        (10.0, 10.0, 0.0, False),
    ],
)
def test_a_move_is_approved_for_half_of_its_disruption(cost, disruption, savings, approved):
    member = SimpleNamespace(reschedule_cost=min(disruption, 10.0))
    totals = SimpleNamespace(cost=cost, disruption=disruption)
    assert _score("web", [member], savings, totals).approved is approved
    assert _score("web", [member], savings, None).approved is False


@pytest.mark.parametrize(
    ("ignored", "unschedulable", "text"),
    [
        ("uid", {}, "it is ignored"),
        ("other", {}, "the pass took too long"),
        ("other", {"uid": SimpleNamespace(message="no room")}, "no room"),
        ("uid", {"uid": SimpleNamespace(message="no room")}, "it is ignored"),
    ],
)
def test_a_pod_of_a_gang_has_no_place_for_a_reason(ignored, unschedulable, text):
    item = SimpleNamespace(pod=SimpleNamespace(uid=ignored), reason="it is ignored")
    reason = _reason(
        SimpleNamespace(uid="uid"),
        SimpleNamespace(ignored=[item]),
        SimpleNamespace(unschedulable=unschedulable),
    )
    assert reason.startswith(text)
