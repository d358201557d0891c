"""Taints that ACK's script puts on too late: acceptance case 105."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from karpenter_core.api.labels import REGISTERED
from karpenter_core.api.records import NodeConditionView, NodeView, Taint
from karpenter_core.errors import ApiError, ConflictError
from karpenter_provider_alibabacloud.labels import NODE_CLASS
from karpenter_provider_alibabacloud.late_taints import LateTaintRemover
from providers.alibabacloud.tests.manual_clock import NOON, HandClock

LATE = Taint(key="karpenter.sh/unregistered", effect="NoExecute")
OTHER = Taint(key="dedicated", value="gpu", effect="NoSchedule", time_added="2026-03-01T11:00:00Z")


def node(name="n1", *, taints=(LATE,), ready="True", seconds=16, deleted=False, **labels):
    known = {NODE_CLASS: "default", REGISTERED: "true", **labels}
    since = NOON - timedelta(seconds=seconds)
    return NodeView(
        uid=name,
        name=name,
        resource_version=7,
        labels={key: value for key, value in known.items() if value is not None},
        taints=taints,
        conditions=(NodeConditionView(type="Ready", status=ready, last_transition_time=since),),
        deletion_timestamp=NOON if deleted else None,
    )


class Server:
    """Takes patches of Nodes, and refuses some."""

    def __init__(self, *nodes):
        self.nodes = {each.name: each for each in nodes}
        self.patches = {}
        self.refused = {}

    async def patch(self, name, patch):
        if name in self.refused:
            raise self.refused[name]
        self.patches[name] = patch
        return self.nodes[name]

    def look(self):
        late = LateTaintRemover(HandClock(), nodes=self, read_nodes=lambda: self.nodes)
        asyncio.run(late.run())
        return self.patches


def test_the_late_taint_is_removed_and_others_are_kept():
    patches = Server(node(taints=(LATE, OTHER)), node("n2")).look()

    kept = {
        "key": "dedicated",
        "value": "gpu",
        "effect": "NoSchedule",
        "timeAdded": "2026-03-01T11:00:00Z",
    }
    assert patches["n1"]["spec"] == {"taints": [kept]}
    assert patches["n2"]["spec"] == {"taints": []}


def test_a_conflicting_node_change_defers_to_the_next_pass():
    """Its taints are written as a whole: an added taint must not be lost."""
    server = Server(node(), node("n2"))
    server.refused["n1"] = ConflictError("changed", status=409)

    assert list(server.look()) == ["n2"]
    assert server.patches["n2"]["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    "other",
    [
        node(seconds=15),
        node(ready="False"),
        node(taints=(OTHER,)),
        node(deleted=True),
        node(**{REGISTERED: None}),
        node(**{NODE_CLASS: None}),
        NodeView(uid="n", name="n", taints=(LATE,), labels=node().labels),
    ],
    ids=["ready too short", "not ready", "well", "going", "unregistered", "foreign", "silent"],
)
def test_other_nodes_are_ignored(other):
    assert Server(other).look() == {}


def test_a_failed_write_is_raised_after_the_other_nodes():
    server = Server(node(), node("n2"))
    server.refused["n1"] = ApiError("down", status=500)

    with pytest.raises(ApiError, match="down"):
        server.look()
    assert list(server.patches) == ["n2"]
