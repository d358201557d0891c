"""Claims of a static NodePool are deleted in the order of the reference."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, POD_DELETION_COST
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.disruption.static_scale_down import scale_down_order
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node_claim, with_claim_conditions
from tests.disruption.small_clusters import NOW, box, cluster, pool, runs


def order(*objects):
    snapshot = cluster(pool(replicas=1), *objects).snapshot()
    return [
        item.name for item in scale_down_order(snapshot, snapshot.node_claims.values(), now=NOW)
    ]


def daemon(name, on, **options):
    return runs(name, on, owner_kind="DaemonSet", **options)


def test_nodes_go_by_launch_then_emptiness_then_cost_and_protected_ones_last():
    """Case 320: names say the expected order."""
    objects = [
        box("7-protected-cheap"),
        runs("a", "7-protected-cheap", annotations={DO_NOT_DISRUPT: "true"}),
        box("6-protected-daemon"),
        daemon("b", "6-protected-daemon", annotations={DO_NOT_DISRUPT: "true"}),
        box("5-two-pods"),
        runs("c", "5-two-pods"),
        runs("d", "5-two-pods"),
        box("4-one-pod"),
        runs("e", "4-one-pod"),
        box("2-empty"),
        box("3-daemons-only"),
        daemon("f", "3-daemons-only"),
        node_claim("1-unlaunched"),
    ]

    found = order(*objects)

    assert found[0] == "1-unlaunched"
    assert set(found[1:3]) == {"2-empty", "3-daemons-only"}
    assert found[3:5] == ["4-one-pod", "5-two-pods"]
    assert set(found[5:]) == {"6-protected-daemon", "7-protected-cheap"}


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_node_that_its_user_protects_goes_last(value):
    """Even an empty one: operators protect a node whose instance they inspect."""
    objects = [
        box("protected", annotations={DO_NOT_DISRUPT: value}),
        box("two-pods"),
        runs("a", "two-pods"),
        runs("b", "two-pods"),
    ]

    assert (order(*objects)[-1] == "protected") is (value == "true")


def test_eight_nodes_of_four_kinds_are_reduced_kind_by_kind():
    """Case 320: 8 to 6 drops daemons only, to 4 low cost, to 2 high cost, to 0 do-not-disrupt."""
    objects = []
    for n in range(2):
        objects += [
            *(box(f"{kind}-{n}") for kind in ("low", "high", "dnd", "daemons")),
            runs(f"a{n}", f"low-{n}"),
            runs(f"b{n}", f"high-{n}"),
            runs(f"c{n}", f"high-{n}"),
            runs(f"d{n}", f"dnd-{n}", annotations={DO_NOT_DISRUPT: "true"}),
            daemon(f"e{n}", f"daemons-{n}"),
        ]

    found = [name.partition("-")[0] for name in order(*objects)]

    assert found == ["daemons", "daemons", "low", "low", "high", "high", "dnd", "dnd"]


def test_a_shorter_remaining_lifetime_lowers_the_cost():
    hour = timedelta(hours=1)
    objects = [
        box("young", created=NOW, expire_after="2h"),
        box("old", created=NOW - hour, expire_after="2h"),
        runs("a", "young"),
        runs("b", "old"),
    ]
    assert order(*objects) == ["old", "young"]


def test_pods_that_are_cheap_to_evict_lower_the_cost():
    objects = [
        box("usual"),
        box("cheap"),
        runs("a", "usual"),
        runs("b", "cheap", annotations={POD_DELETION_COST: "-100000000"}),
    ]
    assert order(*objects) == ["cheap", "usual"]


def test_a_protection_that_has_ended_protects_nothing():
    ended = {DO_NOT_DISRUPT: "1m"}
    objects = [box("a-busy"), runs("a", "a-busy"), box("b-was-kept"), daemon("b", "b-was-kept")]
    objects[-1] = daemon("b", "b-was-kept", annotations=ended, start=EPOCH)
    assert order(*objects) == ["b-was-kept", "a-busy"]


@pytest.mark.parametrize("stage", ["", "Initialized"])
def test_among_equals_drifted_claims_go_first_and_then_the_youngest(stage):
    def claim(name, minutes, *conditions):
        made = node_claim(name, stage=stage, created=EPOCH + timedelta(minutes=minutes))
        return with_claim_conditions(made, *conditions, now=EPOCH)

    found = order(claim("old", 0), claim("young", 5), claim("drifted", 1, DRIFTED))

    assert found == ["drifted", "young", "old"]


@pytest.mark.parametrize(
    ("minutes", "stage", "first"),
    [
        (10, "Registered", "late"),
        (10, "Initialized", "drifted"),
        (9, "Registered", "drifted"),
    ],
)
def test_a_claim_that_should_be_usable_by_now_goes_before_drifted_ones(minutes, stage, first):
    """It may be a failed replacement of the drifted node, which works."""
    late = node_claim("late", stage=stage, created=NOW - timedelta(minutes=minutes))
    drifted = with_claim_conditions(node_claim("drifted", stage="Initialized"), DRIFTED, now=EPOCH)

    assert order(late, drifted)[0] == first
