"""Pods that run, and whose volume claims could not be used on another node, keep their node."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.state.events import ObjectObserved
from karpenter_core.testing.builders import EPOCH
from tests.disruption.small_clusters import (
    FOUR,
    box,
    cluster,
    drift,
    gone,
    messages,
    runs,
    single,
)
from tests.disruption.test_drift import drifted
from tests.state.test_pod_volumes import bound, claim, mounting, volume

USABLE = (bound(), volume("pv"))


def database(on, *, ephemeral=False):
    """Make a pod with one claim on a node."""
    made = runs("db", on)
    volumes = mounting("data", ephemeral=ephemeral).volumes
    return msgspec.structs.replace(made, shape=msgspec.structs.replace(made.shape, volumes=volumes))


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ([], 'persistentvolumeclaim "default/data" not found'),
        (
            [claim(deletion_timestamp=EPOCH), volume("pv")],
            'persistentvolumeclaim "default/data" is being deleted',
        ),
        ([bound()], 'persistentvolume "pv" of "default/data" not found'),
    ],
    ids=["missing", "being deleted", "without its volume"],
)
def test_a_pod_whose_claim_could_not_be_used_again_keeps_its_node(objects, problem):
    """It would be pending for ever, and a claim that is being deleted would take its data along."""
    text = f"ot all pods would schedule, default/db => {problem}"
    outcome = single(cluster(box("web", FOUR), box("rest", FOUR), database("web"), *objects))
    assert (gone(outcome), messages(outcome)) == ([], [f"N{text}"])
    outcome = drift(cluster(drifted("web"), box("rest", FOUR), database("web"), *objects))
    assert (gone(outcome), messages(outcome, "DisruptionBlocked")) == ([], [f"n{text}"])


def test_a_pod_with_a_usable_claim_moves():
    assert gone(single(cluster(box("web"), database("web"), *USABLE))) == ["web"]
    assert gone(drift(cluster(drifted("web"), database("web"), *USABLE))) == ["web"]


def test_a_pod_with_an_ephemeral_volume_moves_since_its_successor_gets_another_claim():
    builder = cluster(box("web"), database("web", ephemeral=True))
    assert gone(single(builder)) == ["web"]


def test_a_claim_that_becomes_unusable_between_two_passes_keeps_the_node():
    builder, memory = cluster(box("web"), database("web"), *USABLE), DisruptionMemory()
    assert gone(single(builder, memory=memory)) == ["web"]
    leaving = claim(
        volume_name="pv", phase="Bound", bind_completed=True, resource_version=2,
        deletion_timestamp=EPOCH,
    )  # fmt: skip
    builder.apply_event(ObjectObserved(leaving))
    assert gone(single(builder, memory=memory)) == []
