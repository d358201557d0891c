"""The built-in methods: their order, and how the controller treats each."""

from __future__ import annotations

from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.plan import METHODS

EVENTUAL, GRACEFUL = DisruptionClass.EVENTUAL, DisruptionClass.GRACEFUL
EMPTY, DRIFTED = DisruptionReason.EMPTY, DisruptionReason.DRIFTED
UNDERUTILIZED = DisruptionReason.UNDERUTILIZED


def test_methods_are_tried_in_this_order_with_these_labels():
    told = [(method.name, method.reason, method.consolidation_type) for method in METHODS]
    assert told == [
        ("emptiness", EMPTY, "empty"),
        ("drift", DRIFTED, ""),
        ("multi-node-consolidation", UNDERUTILIZED, "multi"),
        ("single-node-consolidation", UNDERUTILIZED, "single"),
        ("return", UNDERUTILIZED, "return"),
    ]


def test_only_drift_is_eventual_and_runs_without_validation_or_changes():
    """Drift was found by others, and a back-off of its own says when it is tried again."""
    for method in METHODS:
        is_drift = method.name == "drift"
        assert method.disruption_class is (EVENTUAL if is_drift else GRACEFUL)
        assert method.is_validated is not is_drift
        assert method.skips_unchanged_state is not is_drift
