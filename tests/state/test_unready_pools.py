"""Pods that wait are told which NodePools are not ready, of those that could launch nodes for them."""

from __future__ import annotations

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.state.unusable_pools import unready_pools
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import ready_node_pool, synced_state

FOREIGN = NodeClassRef(group="other.example.com", kind="OtherClass", name="default")


def unready(*pools):
    return unready_pools(synced_state(*pools).snapshot())


def test_only_pools_that_could_launch_nodes_are_named():
    """Not those that are ready, static, being deleted, or another controller's."""
    deleted = node_pool("deleted")
    deleted = deleted.model_copy(
        update={"metadata": deleted.metadata.model_copy(update={"deletion_timestamp": EPOCH})}
    )
    foreign = node_pool("foreign", node_class_ref=FOREIGN)
    pools = (
        ready_node_pool(node_pool("ready")),
        node_pool("new"),
        node_pool("static", replicas=3),
        deleted,
        foreign,
    )
    assert unready(*pools) == {"new": "it has no condition Ready yet"}
