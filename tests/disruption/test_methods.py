"""The built-in methods: their order, and how the controller treats each."""

from __future__ import annotations

from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.plan import METHODS
from karpenter_core.disruption.shutdown import ShutdownMethod
from karpenter_core.disruption.static_drift import StaticDriftMethod

EVENTUAL, GRACEFUL = DisruptionClass.EVENTUAL, DisruptionClass.GRACEFUL
EMPTY, DRIFTED = DisruptionReason.EMPTY, DisruptionReason.DRIFTED
UNDERUTILIZED = DisruptionReason.UNDERUTILIZED


def labels(method):
    return method.name, method.reason, method.consolidation_type


def test_methods_are_tried_in_this_order_with_these_labels():
    told = [labels(method) for method in METHODS]
    assert told == [
        ("emptiness", EMPTY, "empty"),
        ("drift", DRIFTED, ""),
        ("multi-node-consolidation", UNDERUTILIZED, "multi"),
        ("single-node-consolidation", UNDERUTILIZED, "single"),
        ("return", UNDERUTILIZED, "return"),
    ]


def test_methods_of_features_have_these_labels():
    assert labels(StaticDriftMethod()) == ("static-drift", DRIFTED, "")
    assert labels(ShutdownMethod()) == ("shutdown", DisruptionReason.SHUTDOWN, "")


def test_only_drift_and_shutdown_are_eventual_and_run_without_validation_or_changes():
    """Others found it, or the time has come; a back-off of its own says when drift is tried again."""
    for method in (*METHODS, StaticDriftMethod(), ShutdownMethod()):
        is_eventual = method.name in {"drift", "static-drift", "shutdown"}
        assert method.disruption_class is (EVENTUAL if is_eventual else GRACEFUL)
        assert method.is_validated is not is_eventual
        assert method.skips_unchanged_state is not is_eventual
