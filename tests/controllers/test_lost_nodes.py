"""Before a claim is deleted for its lost Node, the API server is asked for the Node."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.nodeclaim.lost_nodes import LostNodes
from karpenter_core.state.events import ObjectObserved
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.controllers.clocks import TwoClocks

GRACE = timedelta(minutes=15)
BARE = node_claim("web", stage="Initialized")
STATUS = BARE.status.model_copy(update={"node_name": "node-web"})
CLAIM = BARE.model_copy(update={"status": STATUS})
NODE = node("node-web", claim=CLAIM)


class ApiServer:
    """A live reader whose answer the watch has not shown."""

    def __init__(self, state, *, shows=(), unreadable=()):
        self.asked = []
        self._state, self._shows, self._unreadable = state, shows, unreadable

    async def read_now(self, field_selector):
        self.asked.append(field_selector)
        for found in self._shows:
            self._state.fold(ObjectObserved(found))
        return list(self._shows), list(self._unreadable)


class Steady:
    def __init__(self, clock):
        self._clock = clock

    def now(self):
        return self._clock.now()


def after_grace(**answer):
    """Return the step for a claim whose Node has been missing for the whole grace, and the calls."""
    clock = TwoClocks()
    state = ClusterState(synced_state(CLAIM), clock)
    server = ApiServer(state, **answer)
    lost = LostNodes(cluster_state=state, nodes=server, steady=Steady(clock), grace=GRACE)

    async def steps():
        first = await lost.step(CLAIM)
        assert (first.delete, first.requeue_after, server.asked) == ("", GRACE, [])
        clock.passes(GRACE.total_seconds())
        return await lost.step(CLAIM)

    return asyncio.run(steps()), server.asked


def test_a_claim_whose_node_is_gone_everywhere_is_deleted():
    step, asked = after_grace()
    assert step.delete
    assert asked == ["metadata.name=node-web"]


@pytest.mark.parametrize(
    "answer", [{"shows": (NODE,)}, {"unreadable": ("node-web",)}], ids=["there", "unreadable"]
)
def test_a_claim_whose_node_the_api_server_has_is_kept(answer):
    """A watch that lags, or an object that cannot be read, must not end an instance."""
    step, _ = after_grace(**answer)
    assert not step.delete
    assert step.requeue_after == timedelta(minutes=5)
