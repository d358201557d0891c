"""Evaluating overlays asks few questions: it runs between all other work of the event loop."""

from __future__ import annotations

from karpenter_core.api.labels import INSTANCE_TYPE, NODE_POOL
from karpenter_core.lifecycle.nodeoverlay.evaluation import OverlayPool, evaluate_overlays
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.testing.builders import catalogue, instance_type, node_overlay, node_pool


def test_an_overlay_of_one_pool_asks_nothing_of_instance_types_for_the_others(monkeypatch):
    sold = catalogue(*(instance_type(f"t{n}") for n in range(50)))
    pools = [OverlayPool(node_pool(f"p{n}"), sold) for n in range(10)]
    overlays = [
        node_overlay(f"o{n}", (INSTANCE_TYPE, "In", "t1"), (NODE_POOL, "In", f"p{n}"), price="0.5")
        for n in range(10)
    ]
    genuine, asked = Requirements.compatible, []

    def counted(self, other, **options):
        asked.append(other)
        return genuine(self, other, **options)

    monkeypatch.setattr(Requirements, "compatible", counted)
    evaluation = evaluate_overlays(overlays, pools, rules=None)
    assert evaluation.conflicts == {}
    assert [sorted(found.types) for found in evaluation.store.pools.values()] == [["t1"]] * 10
    assert len(asked) < 10 * 50 + 10 * 10 + 100
