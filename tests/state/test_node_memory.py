"""Nodes that may take pods are the same, in the same order, with the memory of earlier passes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.testing.state_builders import node_and_claim, synced_state
from tests.properties import with_examples

(JOINED,) = synced_state(*node_and_claim("node")).snapshot().state_nodes
BOOTING, LOST = replace(JOINED, node=None, claim=None), replace(JOINED, node=None)
"""A state node whose Node is yet to come, and one whose Node is gone."""


@st.composite
def state_nodes(draw):
    return replace(
        draw(st.sampled_from((JOINED, JOINED, BOOTING, LOST))),
        name=draw(st.sampled_from("abc")),
        initialized=draw(st.booleans()),
        marked_for_deletion=draw(st.integers(0, 3)) == 0,
    )


@st.composite
def passes(draw):
    """Successive state nodes, sorted by name, each with some replaced, and those that launch."""
    now, found = draw(st.lists(state_nodes(), max_size=5)), []
    for _ in range(draw(st.integers(2, 5))):
        launching = frozenset(each for each in now if draw(st.integers(0, 9)) == 0)
        found.append((tuple(sorted(now, key=lambda each: each.name)), launching))
        now = [draw(state_nodes()) if draw(st.booleans()) else each for each in now]
        if draw(st.integers(0, 3)) == 0:
            now = now[1:] if draw(st.booleans()) else [*now, draw(state_nodes())]
    return found


def placeable(found, launching):
    """Return the nodes that may take pods, from the rule itself."""
    able = [
        each
        for each in found
        if not each.marked_for_deletion
        and (each.node is not None or each.claim is None)
        and each not in launching
    ]
    return sorted(able, key=lambda each: (not each.initialized, each.name))


@given(passes())
@with_examples(200)
def test_placeable_nodes_with_memory_are_those_without(found):
    memory = NodeMemory()
    for each, launching in found:
        kept = memory.placeable(SimpleNamespace(state_nodes=each), launching)
        wanted = placeable(each, launching)
        assert list(map(id, kept.state_nodes)) == list(map(id, wanted))
        assert kept.node_count == sum(item.node is not None for item in wanted)
