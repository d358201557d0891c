"""Deleted claims are terminated (cases 61-70)."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import TERMINATION_FINALIZER, TERMINATION_TIMESTAMP
from karpenter_core.api.nodeclaim import INSTANCE_TERMINATING
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.changes import metadata_patch
from karpenter_core.lifecycle.node.drain import needs_force
from karpenter_core.lifecycle.nodeclaim.launch import launched_claim
from karpenter_core.lifecycle.nodeclaim.termination import (
    TerminationAction,
    claim_termination,
    finished_step,
    instance_terminating_step,
)
from karpenter_core.state.events import LaunchCallFinished, LaunchCallStarted
from karpenter_core.state.termination_deadline import deadline_of
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.lifecycle.nodeclaim.test_launch import Launched

LATER = EPOCH + timedelta(seconds=30)


def deleted(stage: str, **options):
    return node_claim("web", stage=stage, deleted=EPOCH, **options)


def step_of(claim, *nodes, builder=None):
    ledger = (builder or synced_state(claim)).snapshot().ledger
    return claim_termination(claim, nodes, ledger, now=LATER)


def test_claim_without_our_finalizer_is_ignored():
    assert step_of(deleted("Launched", finalizers=("foreign/x",))).action is TerminationAction.NONE


def test_all_nodes_of_a_registered_claim_are_deleted_first():
    """Cases 61, 65, 66."""
    claim = deleted("Initialized")
    nodes = [node(name, claim=claim) for name in ("a", "b")]
    going = node("c", claim=claim, deleted=EPOCH)
    step = step_of(claim, *nodes, going)
    assert (step.action, step.delete_nodes) == (TerminationAction.AWAIT_NODES, ("a", "b"))


def test_the_instance_does_not_wait_for_a_node_that_only_a_foreign_finalizer_keeps():
    """It has been drained; the claim waits for it once the instance is gone."""
    claim = deleted("Initialized")
    let_go = node("a", claim=claim, deleted=EPOCH, finalizers=("foreign/x",))
    step = step_of(claim, let_go)
    assert (step.action, step.kept_nodes) == (TerminationAction.TERMINATE_INSTANCE, ("a",))
    ours = node("b", claim=claim, deleted=EPOCH, finalizers=("foreign/x", TERMINATION_FINALIZER))
    assert step_of(claim, let_go, ours).action is TerminationAction.AWAIT_NODES
    untouched = node("c", claim=claim, finalizers=("foreign/x",))
    assert step_of(claim, untouched).delete_nodes == ("c",)


def test_the_node_of_an_unregistered_claim_is_ignored():
    """Case 69."""
    claim = deleted("Launched")
    step = step_of(claim, node("a", claim=claim, stage=""))
    assert (step.action, step.delete_nodes) == (TerminationAction.TERMINATE_INSTANCE, ())


def test_registered_node_is_drained_although_the_claim_is_not_registered():
    """The claim was deleted, or the process died, between the two writes; pods may run there."""
    claim = deleted("Launched")
    step = step_of(claim, node("a", claim=claim, stage="Registered"))
    assert (step.action, step.delete_nodes) == (TerminationAction.AWAIT_NODES, ("a",))


def test_instance_is_terminated_after_the_nodes():
    claim = deleted("Initialized")
    assert step_of(claim).action is TerminationAction.TERMINATE_INSTANCE


def test_claim_that_was_never_launched_is_finished_at_once():
    """Case 67."""
    assert step_of(deleted("")).action is TerminationAction.FINISH


def test_claim_waits_for_its_open_launch():
    """Or its instance would have no claim."""
    claim = deleted("")
    builder = synced_state(claim)
    builder.apply_event(LaunchCallStarted(claim.uid, EPOCH))
    assert step_of(claim, builder=builder).action is TerminationAction.AWAIT_LAUNCH


def test_a_launch_that_came_back_late_is_terminated():
    claim = deleted("")
    builder = synced_state(claim)
    result = launched_claim(claim, Launched())
    builder.apply_event(LaunchCallFinished(claim_uid=claim.uid, launched=result, at=EPOCH))
    step = step_of(claim, builder=builder)
    assert step.action is TerminationAction.TERMINATE_INSTANCE
    assert step.step.claim.status.provider_id == "kwok://x"


def test_terminating_is_set_and_polled_without_changing_ready():
    """Cases 62 and 64."""
    claim = deleted("Initialized")
    step = instance_terminating_step(claim, now=LATER)
    assert is_true(step.claim.status.conditions, INSTANCE_TERMINATING, "Ready")
    assert step.requeue_after == timedelta(seconds=5)
    again = instance_terminating_step(step.claim, now=LATER + timedelta(seconds=5))
    assert again.claim is step.claim


def test_finish_removes_the_finalizer_and_is_measured():
    """Case 61: both histograms have one sample."""
    claim = deleted("Initialized", finalizers=("foreign/x", TERMINATION_FINALIZER))
    terminating = instance_terminating_step(claim, now=LATER).claim
    step = finished_step(terminating, now=LATER + timedelta(seconds=12))
    assert step.claim.metadata.finalizers == ("foreign/x",)
    seconds = {metric_update.metric: metric_update.value for metric_update in step.metric_updates}
    assert seconds == {
        "nodeclaims_terminated": 1.0,
        "nodeclaims_instance_termination_duration": 12.0,
        "nodeclaims_termination_duration": 42.0,
    }
    patch = metadata_patch(claim, step.claim)
    assert patch is not None
    assert patch.body == {"metadata": {"finalizers": ["foreign/x"]}}


def test_the_termination_time_of_an_already_removed_instance_is_measured():
    """Case 61: a sample for each instance, none for a claim that never had one."""
    metric = "nodeclaims_instance_termination_duration"
    samples = {
        f.metric: f.value for f in finished_step(deleted("Initialized"), now=LATER).metric_updates
    }
    assert samples[metric] == 0.0
    assert metric not in {
        metric_update.metric
        for metric_update in finished_step(deleted(""), now=LATER).metric_updates
    }


def test_a_deadline_is_written_under_a_lock():
    """Repair writes one too, a much tighter one; neither overwrites the other unseen."""
    claim = deleted("Initialized", termination_grace_period="5m", resource_version=7)
    patch = metadata_patch(claim, step_of(claim).step.claim)
    assert patch is not None
    assert patch.resource_version == "7"


def test_a_grace_period_becomes_a_deadline_once():
    """Case 70."""
    assert (
        TERMINATION_TIMESTAMP not in step_of(deleted("Initialized")).step.claim.metadata.annotations
    )
    claim = deleted("Initialized", termination_grace_period="5m")
    step = step_of(claim)
    written = step.step.claim
    assert written.metadata.annotations[TERMINATION_TIMESTAMP] == "2026-01-01T00:05:00Z"
    assert deadline_of(written) == EPOCH + timedelta(minutes=5)
    assert [notice.reason for notice in step.step.notices] == ["TerminationGracePeriodExpiring"]
    kept = step_of(
        deleted(
            "Initialized",
            termination_grace_period="5m",
            annotations={TERMINATION_TIMESTAMP: "2026-01-01T00:00:01Z"},
        )
    )
    assert kept.step.claim.metadata.annotations[TERMINATION_TIMESTAMP] == "2026-01-01T00:00:01Z"
    assert kept.step.notices == ()


@pytest.mark.parametrize(
    "text",
    ["soon", "", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"],
)
def test_a_deadline_that_cannot_be_read_is_named(text):
    """The last two are instants of RFC 3339 outside the years 1 to 9999 in UTC."""
    claim = node_claim("web", annotations={TERMINATION_TIMESTAMP: text})
    with pytest.raises(
        BadInputError, match=rf'NodeClaim web: annotation .* is "{re.escape(text)}"'
    ):
        deadline_of(claim)


def test_a_deadline_at_the_zero_time_of_go_has_passed():
    """Grace periods are subtracted from a deadline, and there is no instant before that one."""
    claim = node_claim("web", annotations={TERMINATION_TIMESTAMP: "0001-01-01T00:00:00Z"})
    deadline = deadline_of(claim)
    assert deadline is not None
    assert needs_force(pod("web", node_name="n"), deadline, EPOCH)
