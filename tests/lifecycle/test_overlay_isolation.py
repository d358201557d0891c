"""An overlay whose evaluation fails is not applied, and stops no other one."""

from __future__ import annotations

import pytest

from karpenter_core.lifecycle.nodeoverlay import evaluation
from karpenter_core.lifecycle.nodeoverlay.evaluation import OverlayPool, evaluate_overlays
from karpenter_core.testing.builders import catalogue, instance_type, node_overlay, node_pool

POOLS = [OverlayPool(node_pool(), catalogue(instance_type("t1")))]


def failing_with(genuine, name):
    """Return a function that fails with an overlay of this name among its arguments."""

    def changed(*arguments):
        if any(getattr(each, "name", "") == name for each in arguments):
            raise RuntimeError("a bug")
        return genuine(*arguments)

    return changed


@pytest.mark.parametrize("part", ["_parse", "_PoolGroup.selection", "_PoolGroup.conflict"])
def test_an_overlay_that_cannot_be_evaluated_stops_no_other_one(monkeypatch, part):
    """Without an evaluation no NodePool has a catalogue, and no pod would get a node."""
    owner, _, name = part.rpartition(".")
    place = getattr(evaluation, owner) if owner else evaluation
    monkeypatch.setattr(place, name, failing_with(getattr(place, name), "odd"))
    overlays = [node_overlay("odd", price="1", weight=2), node_overlay("sound", price="2")]
    found = evaluate_overlays(overlays, POOLS, rules=None)
    ((name, (problem,)),) = found.errors.items()
    assert name == "odd"
    assert "RuntimeError: a bug" in problem
    changes = found.store.pools["default"].types["t1"].offerings.values()
    assert {each.changed_by for each in changes} == {"sound"}
