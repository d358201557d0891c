"""The writes that controllers share ask the API server no more than they have to."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.object_writer import ObjectWriter
from karpenter_core.errors import NotFoundError
from karpenter_core.operator.clock import SystemClock
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim, synced_state


class DeletionServer:
    """An API server that keeps which objects it was asked to delete."""

    def __init__(self, refusal=None):
        self.asked = []
        self._refusal = refusal

    async def delete(self, kind, name, *, uid):
        self.asked.append((kind.kind, name, uid))
        if self._refusal is not None:
            raise self._refusal


def deleted(made, server):
    """Delete an object; return whether the writer says that it did."""
    writer = ObjectWriter(
        kube_writer=server,
        cluster_state=ClusterState(synced_state(), SystemClock()),
        publish=print,
        metrics=Metrics(),
        owns_nodes=True,
    )
    delete = writer.delete_claim if isinstance(made, NodeClaim) else writer.delete_node
    return asyncio.run(delete(made))


both = pytest.mark.parametrize("make", [node, node_claim], ids=["Node", "NodeClaim"])


@both
def test_the_answer_to_a_deletion_shows_that_this_call_deleted(make):
    server = DeletionServer()
    made = make("one", uid="u-1")

    assert deleted(made, server) is True
    assert server.asked == [("NodeClaim" if make is node_claim else "Node", "one", "u-1")]


@both
def test_an_object_that_is_being_deleted_is_not_deleted_again(make):
    """Each wait for a finalizer would send a request otherwise, and count a deletion."""
    server = DeletionServer()

    assert deleted(make("one", deleted=EPOCH), server) is False
    assert server.asked == []


@both
def test_the_deletion_of_a_missing_object_is_not_claimed(make):
    """Somebody else has deleted it, and has counted that."""
    server = DeletionServer(NotFoundError("gone", status=404))

    assert deleted(make("one"), server) is False
