"""Virtual pods of a plan are counted by the claim of their node."""

from __future__ import annotations

import msgspec

from karpenter_core.api.records import VirtualSource
from karpenter_core.state.virtual_pods import count_virtual_pods
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
