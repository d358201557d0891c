"""Solving keeps columns of existing nodes from one problem to the next, and none of removed ones."""

from __future__ import annotations

import gc

from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.node_signature import NodeSignature
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import existing_node, pod, problem

RACK = "example.com/rack"


def kept_signatures() -> int:
    gc.collect()
    return sum(isinstance(item, NodeSignature) for item in gc.get_objects())


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
