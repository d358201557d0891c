"""The rules by which a rollout replaces a drained pod, and how Deployments are read for them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from karpenter_core.api.labels import SURGE_MOVE
from karpenter_core.api.records import VolumeView
from karpenter_core.errors import BadInputError
from karpenter_core.kube.wire.rollouts import read_rollout
from karpenter_core.lifecycle.node.surge_move import (
    MOVE_TIMEOUT,
    SurgeAction,
    asks_for_surge,
    early_refusal,
    restart_patch,
    surge_advice,
)
from karpenter_core.state.workload_names import deployment_name
from karpenter_core.testing.builders import pod

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SETTLED = {
    "observedGeneration": 3,
    "replicas": 1,
    "updatedReplicas": 1,
    "availableReplicas": 1,
}


def deployed(*, annotations=None, volumes=(), **changes):
    """The ready pod of a Deployment `web`."""
    built = pod("web-5d4f-abcde", labels={"app": "web", "pod-template-hash": "5d4f"})
    shape = msgspec.structs.replace(
        built.shape,
        annotations={SURGE_MOVE: "true"} if annotations is None else annotations,
        volumes=tuple(volumes),
    )
    changes = {"ready": True, "owner_name": "web-5d4f", **changes}
    return msgspec.structs.replace(built, shape=shape, **changes)


def deployment(*, status=None, metadata=None, **spec):
    """The JSON of a Deployment `web` of one pod."""
    return json.dumps(
        {
            "metadata": {
                "name": "web",
                "namespace": "default",
                "uid": "u1",
                "resourceVersion": "7",
                "generation": 3,
                **(metadata or {}),
            },
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, **spec},
            "status": SETTLED | (status or {}),
        }
    ).encode()


def advice(body, *, item=None, restarted=False, elapsed=timedelta()):
    rollout = None if body is None else read_rollout(body)
    return surge_advice(item or deployed(), rollout, restarted=restarted, elapsed=elapsed)


@pytest.mark.parametrize(
    ("value", "asked"), [("true", True), ("false", False), ("", False), ("True", False)]
)
def test_only_the_value_true_requests_a_rollout(value, asked):
    assert asks_for_surge(deployed(annotations={SURGE_MOVE: value})) is asked


def test_the_deployment_is_named_by_the_replica_set_and_the_hash_of_the_template():
    assert deployment_name(deployed()) == "web"
    assert deployment_name(deployed(owner_name="other-77")) == ""
    assert deployment_name(pod("a", owner_kind="StatefulSet")) == ""
    assert deployment_name(pod("a")) == ""


def test_a_pod_that_a_replica_set_no_longer_controls_is_of_no_deployment():
    """Someone has released it by its labels: a rollout replaces it no more."""
    released = deployed()
    shape = msgspec.structs.replace(released.shape, owner_controls=False)
    assert deployment_name(msgspec.structs.replace(released, shape=shape)) == ""


@pytest.mark.parametrize(
    "owner", [{"owner_kind": "StatefulSet"}, {"owner_api_version": "argoproj.io/v1alpha1"}]
)
def test_a_pod_of_another_kind_of_set_is_of_no_deployment(owner):
    """Whatever its name: other kinds may name their sets after a hash, too."""
    made = deployed()
    shape = msgspec.structs.replace(made.shape, **owner)
    assert deployment_name(msgspec.structs.replace(made, shape=shape)) == ""


def test_a_pod_without_the_hash_of_a_template_is_of_no_deployment():
    bare = deployed(owner_name="web-")
    shape = msgspec.structs.replace(bare.shape, labels={"app": "web"})
    assert deployment_name(msgspec.structs.replace(bare, shape=shape)) == ""


def test_a_settled_rollout_is_restarted_once():
    assert advice(deployment()).action is SurgeAction.RESTART
    assert advice(deployment(), restarted=True).action is SurgeAction.WAIT


@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 2},
        {"updatedReplicas": 0},
        {"replicas": 2},
        {"availableReplicas": 0},
    ],
    ids=str,
)
def test_a_rollout_in_progress_is_waited_for(status):
    """A restart would end the pod that is about to be ready."""
    assert advice(deployment(status=status)).action is SurgeAction.WAIT


def test_a_rollout_is_waited_for_within_its_deadline_and_ten_minutes():
    stuck = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    found = advice(deployment(status={"updatedReplicas": 0, "conditions": stuck}))
    assert found.action is SurgeAction.EVICT
    assert "progress deadline" in found.refusal

    late = advice(deployment(status={"replicas": 2}), elapsed=MOVE_TIMEOUT)
    assert late.action is SurgeAction.EVICT
    assert "within 10 minutes" in late.refusal


def test_a_deployment_of_several_pods_is_drained_as_ever():
    found = advice(deployment(replicas=2, strategy={"type": "Recreate"}))
    assert (found.action, found.refusal) == (SurgeAction.EVICT, "")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "there is no Deployment default/web"),
        (deployment(selector={"matchLabels": {"app": "other"}}), "there is no Deployment"),
        (deployment(metadata={"deletionTimestamp": "2026-05-04T11:00:00Z"}), "is no Deployment"),
        (deployment(paused=True), "is paused"),
        (deployment(strategy={"type": "Recreate"}), "maxSurge"),
        (deployment(strategy={"rollingUpdate": {"maxSurge": 0}}), "maxSurge"),
        (
            deployment(strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}}),
            "maxUnavailable",
        ),
    ],
)
def test_a_deployment_that_cannot_replace_the_pod_first_is_refused(body, text):
    found = advice(body)
    assert found.action is SurgeAction.EVICT
    assert text in found.refusal


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, (1, 0)),
        ({"maxSurge": "25%", "maxUnavailable": "25%"}, (1, 0)),
        ({"maxSurge": 0, "maxUnavailable": 0}, (0, 1)),
        ({"maxSurge": "0%", "maxUnavailable": "50%"}, (0, 1)),
        ({"maxSurge": 2, "maxUnavailable": 1}, (2, 1)),
    ],
    ids=str,
)
def test_percentages_of_a_strategy_are_resolved_as_its_controller_does(limits, expected):
    rollout = read_rollout(deployment(strategy={"rollingUpdate": limits}))
    assert (rollout.surge, rollout.unavailable) == expected


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", deployment(strategy={"rollingUpdate": {"maxSurge": "many"}})]
)
def test_a_deployment_that_cannot_be_read_is_an_error(body):
    with pytest.raises(BadInputError, match="Deployment"):
        read_rollout(body)


@pytest.mark.parametrize(
    ("item", "deadline", "text"),
    [
        (pod("a", owner_kind="StatefulSet"), None, "StatefulSet owns the pod"),
        (deployed(ready=False), None, "not ready"),
        (deployed(volumes=[VolumeView(name="data", claim_name="data-0")]), None, "data-0"),
        (deployed(), NOW + MOVE_TIMEOUT + timedelta(seconds=29), "deadline of its node"),
    ],
)
def test_a_pod_that_a_rollout_would_not_help_is_refused(item, deadline, text):
    assert text in early_refusal(item, deadline=deadline, now=NOW)


def test_a_pod_may_wait_if_it_keeps_its_grace_period_before_the_deadline():
    ephemeral = VolumeView(name="scratch", ephemeral=True)
    item = deployed(volumes=[ephemeral])
    assert early_refusal(item, deadline=None, now=NOW) == ""
    assert early_refusal(item, deadline=NOW + MOVE_TIMEOUT + timedelta(seconds=30), now=NOW) == ""


def test_a_pod_without_a_grace_period_may_wait_until_the_deadline():
    item = deployed()
    item = msgspec.structs.replace(
        item, shape=msgspec.structs.replace(item.shape, termination_grace_period_seconds=None)
    )
    assert early_refusal(item, deadline=NOW + MOVE_TIMEOUT, now=NOW) == ""
    assert "deadline" in early_refusal(item, deadline=NOW + MOVE_TIMEOUT / 2, now=NOW)


def test_a_restart_is_the_patch_of_kubectl_under_optimistic_lock():
    patch = restart_patch(read_rollout(deployment()), NOW)
    stamp = {"kubectl.kubernetes.io/restartedAt": "2026-05-04T12:00:00Z"}
    assert patch.body == {"spec": {"template": {"metadata": {"annotations": stamp}}}}
    assert patch.resource_version == "7"
