"""Virtual pods of a plan are counted by the claim of their node."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from karpenter_core.api.records import VirtualSource
from karpenter_core.state.virtual_pods import count_virtual_pods, hosts_virtual_pods
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import node, node_and_claim, synced_state

SOURCE = VirtualSource(
    api_version="v1", kind="CapacityBuffer", namespace="default", name="b", uid="uid-b"
)


def virtual(name):
    built = pod(name)
    return msgspec.structs.replace(
        built, shape=msgspec.structs.replace(built.shape, virtual_source=SOURCE)
    )


def test_nodes_without_virtual_pods_and_nodes_that_are_gone_are_left_out():
    snapshot = synced_state(*node_and_claim("ours"), *node_and_claim("real"), node("theirs"))
    counts = count_virtual_pods(
        snapshot.snapshot(),
        {
            "ours": [virtual("a"), virtual("b"), pod("c")],
            "real": [pod("d")],
            "theirs": [virtual("e")],
            "gone": [virtual("f")],
        },
    )
    assert counts == {"ours": 2, "theirs": 1}


@pytest.mark.parametrize(
    ("pods", "counts", "hosts"),
    [
        ([virtual("a")], None, {"ours": True, "theirs": True}),
        ([], None, {"ours": False, "theirs": False}),
        ([virtual("a")], {}, {"ours": False, "theirs": False}),
        ([virtual("a")], {"ours": 1, "theirs": 0}, {"ours": True, "theirs": False}),
        ([], {"theirs": 2}, {"ours": False, "theirs": True}),
    ],
    ids=["before the first pass", "no virtual pods at all", "none placed", "one", "gone since"],
)
def test_before_the_first_pass_any_node_may_hold_virtual_pods(pods, counts, hosts):
    """Afterwards those that the last pass chose, by the claim or the name of the node."""
    built = synced_state(*node_and_claim("ours"), node("theirs")).snapshot()
    snapshot = replace(built, virtual_pods={SOURCE: tuple(pods)}, virtual_pod_counts=counts)
    assert {
        state_node.name: hosts_virtual_pods(snapshot, state_node)
        for state_node in snapshot.state_nodes
    } == hosts
