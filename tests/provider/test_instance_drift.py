"""Drift of instances: the first reason of each claim; the unknown is no drift."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import DriftFinding
from karpenter_core.provider.kit.instances.drift import (
    detect_drift,
    has_left_reservation,
    require_resolved,
)
from karpenter_core.testing.state_builders import node_claim
from tests.provider.small_cloud import PREFIX, SmallCloud, SmallInstance


@pytest.fixture
def cloud():
    return SmallCloud()


def claim(name, provider_id, **fields):
    return node_claim(name, uid=f"uid-{name}", provider_id=provider_id, **fields)


def image_reason(_, instance):
    if instance.image_id == "broken":
        raise CloudProviderError("the image cannot be read")
    return "ImageDrift" if instance.image_id != "image-1" else None


def detect(cloud, *claims):
    return detect_drift(claims, cloud.instances, image_reason)


def test_each_claim_gets_its_outcome_by_one_reading(cloud):
    current = claim("current", cloud.launch("i-1"))
    drifted = claim("drifted", cloud.launch("i-2", image_id="image-0"))
    broken = claim("broken", cloud.launch("i-3", image_id="broken"))

    outcomes = detect(cloud, drifted, current, broken)

    assert outcomes[:2] == [DriftFinding(reason="ImageDrift"), None]
    assert isinstance(outcomes[2], CloudProviderError)
    assert cloud.reads == ["of_ids"]


def test_a_new_instance_that_is_not_shown_yet_has_not_drifted(cloud):
    new = claim("new", cloud.launch("i-1", image_id="image-0", is_recent=True))
    cloud.unseen.add("i-1")

    assert detect(cloud, new) == [None]
    cloud.clock.seconds = 60
    assert isinstance(detect(cloud, new)[0], NodeClaimNotFoundError)


@pytest.mark.parametrize("said", ["", "kwok://one"])
def test_a_claim_that_names_no_instance_is_an_error(cloud, said):
    (outcome,) = detect(cloud, claim("lost", said))

    assert isinstance(outcome, CloudProviderError)
    assert not isinstance(outcome, NodeClaimNotFoundError)
    assert "providerID" in str(outcome)


def test_a_claim_of_no_node_pool_never_drifts(cloud):
    drifted = claim("drifted", cloud.launch("i-1", image_id="image-0"))
    alone = drifted.model_copy(
        update={"metadata": drifted.metadata.model_copy(update={"labels": {}})}
    )

    assert detect(cloud, alone) == [None]
    assert cloud.reads == []


def test_an_unresolved_field_is_named(cloud):
    require_resolved('Kind "default"', images=["image-1"])
    with pytest.raises(CloudProviderError, match=r'Kind "default": status.subnets is empty'):
        require_resolved('Kind "default"', images=["image-1"], subnets=[])


@pytest.mark.parametrize(
    ("claimed", "described", "reservation", "expected"),
    [
        ("reserved", "reserved", "paid", False),
        ("reserved", "reserved", "other", True),
        ("reserved", "on-demand", "", False),
        ("on-demand", "reserved", "other", False),
    ],
)
def test_only_a_reserved_instance_leaves_a_reservation(claimed, described, reservation, expected):
    mine = claim("mine", f"{PREFIX}i-1", labels={CAPACITY_TYPE: claimed})
    instance = SmallInstance(id="i-1", capacity_type=described, reservation_id=reservation)

    assert has_left_reservation(mine, instance, {"paid"}) is expected
