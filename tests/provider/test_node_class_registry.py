"""The registry holds NodeClasses of hook calls for parts without them."""

from __future__ import annotations

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
from karpenter_core.testing.builders import node_pool
from tests.provider.fakes import WebNodeClass, node_class


def test_the_last_one_of_a_name_counts_until_it_is_gone():
    known = NodeClassRegistry[WebNodeClass]()
    assert known.node_class("default") is None

    known.note(node_class(WebNodeClass))
    newer = node_class(WebNodeClass)
    known.note(newer)

    assert known.node_class("default") is newer
    known.forget(newer)
    assert known.node_class("default") is None


def test_node_pools_are_those_that_refer_to_the_node_class():
    known = NodeClassRegistry[WebNodeClass]()
    for name, referred in (("b", "default"), ("a", "default"), ("c", "other")):
        ref = NodeClassRef(group="web.example.com", kind="WebNodeClass", name=referred)
        known.note(node_class(WebNodeClass, referred), node_pool(name, node_class_ref=ref))

    assert [pool.name for pool in known.node_pools(node_class(WebNodeClass))] == ["a", "b"]
