"""Conditions and status of CapacityBuffers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.lifecycle.capacity_buffer.status import (
    buffer_status_patch,
    with_provisioning,
    with_resolution,
)
from karpenter_core.scheduling.virtual_pods import VirtualPlacement
from karpenter_core.state.capacity_buffers import BufferFailure, ResolvedBuffer
from karpenter_core.testing.builders import pod_shape

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
FAILURE = BufferFailure(reason="PodTemplateNotFound", message='podtemplates "chunk" not found')


def buffer():
    return CapacityBuffer.model_validate(
        {
            "metadata": {
                "name": "headroom", "namespace": "web", "generation": 3, "resourceVersion": "7",
            },
            "spec": {
                "podTemplateRef": {"name": "chunk"}, "replicas": 3,
                "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
            },
        }
    )  # fmt: skip


def resolved(replicas=3, *, wanted=None):
    return ResolvedBuffer(
        shape=pod_shape(), replicas=replicas, wanted=wanted or replicas, pod_template=None
    )


def conditions(made):
    return {c.type: (c.status, c.reason, c.message) for c in made.status.conditions}


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (VirtualPlacement(wanted=3, on_existing=3, failed=0, on_new=0),
         ("True", "FitsExistingCapacity", "All 3 virtual pods fit on existing capacity")),
        (VirtualPlacement(wanted=3, on_existing=1, on_new=2, failed=0),
         ("False", "RequiresNewCapacity", "2/3 virtual pods required new capacity, 0 failed")),
        (VirtualPlacement(wanted=3, on_existing=2, failed=1, on_new=0),
         ("False", "RequiresNewCapacity", "0/3 virtual pods required new capacity, 1 failed")),
    ],
)  # fmt: skip
def test_the_condition_says_where_the_pods_would_go(placement, expected):
    made = with_provisioning(
        with_resolution(buffer(), resolved(), now=NOW, note=""), placement, now=NOW
    )

    assert conditions(made)["Provisioning"] == expected


@pytest.mark.parametrize(
    "placement",
    [
        None,
        VirtualPlacement(wanted=3, on_existing=2, failed=0, on_new=0),
        VirtualPlacement(wanted=2, on_existing=2, failed=0, on_new=0),
    ],
    ids=["no-pass", "cut-short", "of-other-pods"],
)
def test_without_a_decision_about_all_pods_the_condition_stays(placement):
    made = with_resolution(buffer(), resolved(), now=NOW, note="")

    assert with_provisioning(made, placement, now=NOW) is made


def test_unresolved_and_empty_buffers_have_no_room():
    failed = with_provisioning(with_resolution(buffer(), FAILURE, now=NOW, note=""), None, now=NOW)
    empty = with_provisioning(
        with_resolution(buffer(), resolved(0), now=NOW, note=""), None, now=NOW
    )

    assert conditions(failed) == {
        "ReadyForProvisioning": ("False", "PodTemplateNotFound", FAILURE.message),
        "Provisioning": (
            "False", "NotReadyForProvisioning", "Buffer is not ReadyForProvisioning",
        ),
    }  # fmt: skip
    assert conditions(empty)["Provisioning"] == (
        "False", "BufferEmpty", "Buffer has zero desired replicas",
    )  # fmt: skip


def test_the_status_shows_the_last_resolved_values():
    made = with_resolution(buffer(), resolved(), now=NOW, note="")
    failed = with_resolution(made, FAILURE, now=LATER, note="")

    assert made.status.replicas == failed.status.replicas == 3
    assert made.status.provisioning_strategy == "buffer.x-k8s.io/active-capacity"
    (condition,) = failed.status.conditions
    assert (condition.last_transition_time, condition.observed_generation) == (LATER, 3)


def test_a_condition_keeps_its_time_and_place_while_its_status_stays():
    made = with_provisioning(with_resolution(buffer(), resolved(), now=NOW, note=""), None, now=NOW)
    made = with_provisioning(
        made, VirtualPlacement(wanted=3, on_existing=3, failed=0, on_new=0), now=NOW
    )

    again = with_resolution(made, resolved(), now=LATER, note="")
    noted = with_resolution(made, resolved(), now=LATER, note="sized for bursts")

    assert again is made
    assert [c.type for c in noted.status.conditions] == ["ReadyForProvisioning", "Provisioning"]
    assert noted.status.conditions[0].last_transition_time == NOW
    assert noted.status.conditions[0].message.endswith("; sized for bursts")


def test_a_buffer_that_is_cut_says_so():
    made = with_resolution(buffer(), resolved(10_000, wanted=20_000), now=NOW, note="")

    assert "limited to 10000 of 20000 pods" in conditions(made)["ReadyForProvisioning"][2]


def test_only_changes_are_written_under_the_resource_version():
    made = with_resolution(buffer(), resolved(), now=NOW, note="")

    assert buffer_status_patch(made, made) is None
    patch = buffer_status_patch(buffer(), made)
    assert patch.resource_version == "7"
    assert set(patch.body["status"]) == {"replicas", "provisioningStrategy", "conditions"}
