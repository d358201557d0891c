"""A limit of cost holds launches back while a node of the pool has no known price."""

from __future__ import annotations

import pytest

from karpenter_core.state.events import DeletionMarked
from karpenter_core.state.node_pool_usage import unpriced_node
from karpenter_core.testing.builders import catalogue, instance_type, node_pool
from karpenter_core.testing.state_builders import node_and_claim, ready_node_pool, synced_state

POOL = ready_node_pool(node_pool())


def unpriced(*objects, marked=()):
    types = catalogue(instance_type("known", zones=("zone-a",)))
    builder = synced_state(POOL, *objects, catalogues={"default": types})
    if marked:
        builder.apply_event(DeletionMarked(names=tuple(marked), cause="empty/1"))
    return unpriced_node(builder.snapshot(), "default", {"USD": 1.0})


def test_a_node_of_a_type_that_the_catalogue_lists_has_a_price():
    assert unpriced(*node_and_claim("a", instance_type="known")) == ""


@pytest.mark.parametrize("marked", [(), ("a",)])
def test_a_node_of_another_type_is_named_unless_it_goes(marked):
    """One that goes cannot cost more for long."""
    objects = (
        *node_and_claim("a", instance_type="gone"),
        *node_and_claim("b", instance_type="known"),
    )
    assert unpriced(*objects, marked=marked) == ("" if marked else "a")


def test_nodes_of_other_pools_do_not_count():
    assert unpriced(*node_and_claim("a", instance_type="gone", pool="other")) == ""
