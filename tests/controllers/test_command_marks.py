"""A candidate is marked only while its node and its claim are those that were chosen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.controllers.disruption.execution import CommandQueue
from karpenter_core.controllers.reconciling.passes import PassHealth
from karpenter_core.disruption.command_queue import StaleDisruptionMark
from karpenter_core.lifecycle.changes import NodePatch
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.controllers.clocks import TwoClocks

CHOSEN = node_claim("web")
AGAIN = CHOSEN.model_copy(
    update={"metadata": CHOSEN.metadata.model_copy(update={"uid": "another"})}
)


class Writer:
    """Takes writes of nodes and claims, and notes what was written."""

    def __init__(self, nodes, claims):
        snapshot = SimpleNamespace(nodes=nodes, node_claims=claims)
        self.cluster_state = SimpleNamespace(snapshot=lambda: snapshot)
        self.written = []

    async def write_node(self, found, patch):
        self.written.append(("Node", found.name, patch))

    async def write_claim(self, found, changed):
        (reason,) = (each.reason for each in changed.status.conditions if each.reason == "drifted")
        self.written.append(("NodeClaim", found.name, reason))


def make_queue(writer):
    return CommandQueue(
        writer=writer,
        creator=None,
        runtime=SimpleNamespace(clock=TwoClocks(), passes=PassHealth()),
        freshness=None,
        options=None,
        records=None,
    )


@pytest.mark.parametrize(
    ("nodes", "claims", "is_marked"),
    [
        ({"n": node("n")}, {"web": CHOSEN}, True),
        ({}, {"web": CHOSEN}, False),
        ({"n": node("n")}, {}, False),
        ({"n": node("n")}, {"web": AGAIN}, False),
    ],
    ids=["there", "no node", "no claim", "another claim"],
)
async def test_a_candidate_is_marked_while_it_is_the_chosen_one(nodes, claims, is_marked):
    writer = Writer(nodes, claims)
    queue = make_queue(writer)
    candidate = SimpleNamespace(name="web", node=node("n"), claim=CHOSEN)
    patch = NodePatch(labels={"marked": "yes"})

    assert await queue._taint_candidate(candidate, "drifted", lambda _: patch) is is_marked
    written = [("Node", "n", patch), ("NodeClaim", "web", "drifted")]
    assert writer.written == (written if is_marked else [])


@pytest.mark.parametrize("queued", [(), ("node", "other"), ("chosen",)])
async def test_marks_that_another_command_has_set_meanwhile_stay(queued):
    """A command that is rolled back removes the marks of its nodes one after the other."""
    claim = node_claim("web", stage="Initialized")
    tainted = node("web", claim=claim, taints=("karpenter.sh/disrupted:NoSchedule",))
    state = synced_state(claim, tainted)
    ids = {"chosen": tainted.provider_id}
    writer = Writer({}, {})
    writer.cluster_state = SimpleNamespace(snapshot=state.snapshot)
    queue = make_queue(writer)
    queue._starting.update(ids.get(name, name) for name in queued)

    await queue.remove_stale_marks([StaleDisruptionMark(node="web", claim="")])

    assert bool(writer.written) is ("chosen" not in queued)
