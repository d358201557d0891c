"""Dead nodes are tainted out-of-service, so that their volumes move."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.nodeclaim import DRAINED, VOLUMES_DETACHED
from karpenter_core.api.records import VolumeView
from karpenter_core.api.storage_records import PersistentVolumeClaimView, VolumeAttachmentView
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.lifecycle.node.out_of_service import OUT_OF_SERVICE
from karpenter_core.lifecycle.node.termination import (
    InstanceState,
    NodeTerminationAction,
    node_termination,
)
from karpenter_core.state.taints import has_taint
from karpenter_core.testing.builders import EPOCH, pod, pod_shape, toleration
from karpenter_core.testing.state_builders import node, node_claim, synced_state

SIX_MINUTES = timedelta(minutes=6)
"""After them the attach/detach controller of Kubernetes detaches volumes by force."""

WAIT, FINISH = NodeTerminationAction.WAIT, NodeTerminationAction.FINISH
ATTACHED = VolumeAttachmentView(uid="va-1", name="va-1", node_name="web", volume_name="pv-1")


def after(**delta: float):
    return EPOCH + timedelta(**delta)


def dying(*, ready="Unknown", **options):
    """A deleted claim that has been empty for long enough, with its node."""
    claim = node_claim("web", stage="Initialized", deleted=EPOCH)
    drained = with_condition(claim, DRAINED, status="Unknown", reason="Draining", now=EPOCH)
    return drained, node("web", claim=claim, deleted=EPOCH, ready=ready, **options)


def step_of(*objects, instance, now=None, out_of_service=True):
    snapshot = synced_state(*objects).snapshot()
    return node_termination(
        snapshot,
        snapshot.nodes["web"],
        now=now or after(seconds=10),
        instance=instance,
        out_of_service=out_of_service,
    )


def marked(found, view):
    if found.node is None:
        return False
    return has_taint(found.node.applied_to(view).taints, OUT_OF_SERVICE)


@pytest.mark.parametrize(
    ("ready", "instance", "out_of_service", "expected"),
    [
        ("Unknown", InstanceState.GONE, True, True),
        ("False", InstanceState.TERMINATING, True, True),
        ("Unknown", InstanceState.ENDING, True, True),
        ("Unknown", InstanceState.PRESENT, True, False),  # a partition: it may still write
        ("True", InstanceState.TERMINATING, True, False),  # the kubelet speaks
        ("Unknown", InstanceState.GONE, False, False),
        ("Unknown", InstanceState.TERMINATING, False, False),
    ],
)
def test_only_an_unresponsive_node_without_an_instance_is_tainted(
    ready, instance, out_of_service, expected
):
    claim, view = dying(ready=ready)
    step = step_of(claim, view, ATTACHED, instance=instance, out_of_service=out_of_service)
    assert marked(step, view) is expected


def test_taint_is_the_one_of_kubernetes():
    claim, view = dying()
    step = step_of(claim, view, ATTACHED, instance=InstanceState.GONE)
    (taint,) = [t for t in step.node.applied_to(view).taints if t.key == OUT_OF_SERVICE.key]
    assert (taint.key, taint.value, taint.effect) == (
        "node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute",
    )  # fmt: skip
    assert taint.time_added


def test_node_without_instance_stays_until_its_volumes_are_detached():
    """Without the node the cluster would not know that they may be detached at once."""
    claim, view = dying()
    step = step_of(claim, view, ATTACHED, instance=InstanceState.GONE)
    assert (step.action, step.requeue_after) == (WAIT, timedelta(seconds=5))
    assert find_condition(step.claim.status.conditions, VOLUMES_DETACHED).reason == (
        "AwaitingVolumeDetachment"
    )
    assert [notice.reason for notice in step.notices] == ["AwaitingVolumeDetachment"]
    assert step_of(claim, view, instance=InstanceState.GONE).action is FINISH


def test_wait_for_volumes_ends_after_the_limit():
    """From its taint on; volumes attached then stay attached."""
    claim, view = dying()
    start = after(seconds=10)
    there = step_of(claim, view, ATTACHED, instance=InstanceState.GONE, now=start).node.applied_to(
        view
    )
    late = start + SIX_MINUTES
    early = late - timedelta(seconds=1)
    assert step_of(claim, there, ATTACHED, instance=InstanceState.GONE, now=early).action is WAIT
    assert step_of(claim, there, ATTACHED, instance=InstanceState.GONE, now=late).action is FINISH


def test_taint_without_a_time_counts_from_the_deletion():
    claim, view = dying(taints=("node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",))
    late = EPOCH + SIX_MINUTES
    assert step_of(claim, view, ATTACHED, instance=InstanceState.GONE).action is WAIT
    assert step_of(claim, view, ATTACHED, instance=InstanceState.GONE, now=late).action is FINISH


def test_a_taint_of_the_same_key_and_another_effect_is_no_mark():
    """Somebody else's: the node is not out of service, and the limit does not count from it."""
    claim, view = dying(taints=("node.kubernetes.io/out-of-service:NoSchedule",))
    found = step_of(claim, view, ATTACHED, instance=InstanceState.GONE, now=EPOCH + 2 * SIX_MINUTES)
    assert found.action is WAIT
    assert marked(found, view)


def test_a_node_is_marked_once():
    claim, view = dying()
    first = step_of(claim, view, ATTACHED, instance=InstanceState.GONE)
    there = first.node.applied_to(view)
    again = step_of(claim, there, ATTACHED, instance=InstanceState.GONE, now=after(seconds=60))
    assert again.node.operations_for(there) == []


def test_volumes_of_pods_that_stay_are_not_waited_for():
    """A pod that tolerates the mark is not deleted."""
    shape = msgspec.structs.replace(
        pod_shape(), tolerations=(toleration(""),), volumes=(VolumeView(name="d", claim_name="d"),)
    )
    stays = pod("stays", shape=shape, node_name="web", phase="Running")
    volume = PersistentVolumeClaimView(
        uid="c", namespace="default", name="d", volume_name="pv-1", bind_completed=True
    )
    claim, view = dying()
    assert (
        step_of(claim, view, ATTACHED, stays, volume, instance=InstanceState.GONE).action is FINISH
    )


def test_a_reclaimed_instance_is_still_terminated():
    """It may be only stopping."""
    claim, view = dying()
    step = step_of(claim, view, instance=InstanceState.ENDING)
    assert step.action is NodeTerminationAction.TERMINATE_INSTANCE
