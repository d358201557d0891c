"""Solving keeps columns of existing nodes from one problem to the next, and none of removed ones."""

from __future__ import annotations

import gc
from random import Random

from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.node_signature import NodeSignature
from karpenter_core.scheduling.compiled.node_table import NodeTable
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import existing_node, pod, problem

RACK = "example.com/rack"


def kept_signatures() -> int:
    gc.collect()
    return sum(isinstance(item, NodeSignature) for item in gc.get_objects())


def test_nodes_are_in_order_whatever_the_order_before():
    """Initialised nodes first, then by name; a few nodes differ from those of the last problem."""
    draw, table = Random(3), NodeTable()

    def node(number):
        return existing_node(f"node-{number:02d}", initialized=draw.random() < 0.95)

    nodes = [node(number) for number in range(12)]
    found = set()
    for _ in range(200):
        expected = sorted(nodes, key=lambda node: (not node.initialized, node.name))
        assert list(table.ordered(nodes)) == expected
        found.add(nodes == expected)
        for place in draw.sample(range(len(nodes)), draw.randrange(3)):
            nodes[place] = node(int(nodes[place].name[5:]))
    assert found == {True, False}


def test_signatures_of_removed_nodes_are_not_kept():
    cache = CatalogueCache()
    before = kept_signatures()
    for generation in range(20):
        nodes = [
            existing_node(
                f"node-{generation}-{number}", labels={RACK: f"rack-{generation}-{number}"}
            )
            for number in range(100)
        ]
        asked = problem([pod("local", node_selector={RACK: "rack-0-0"})], nodes=nodes)
        run_steps(compile_steps(asked, SolveOptions(), cache))
        del asked, nodes
    assert kept_signatures() - before < 1_000
