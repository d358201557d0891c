"""Nodes are registered at once when they are ready, others after a short while."""

from __future__ import annotations

import pytest

from karpenter_core.controllers.nodeclaim.registration_gates import is_ready_to_register
from karpenter_core.testing.state_builders import node, node_claim

NOT_READY = "node.kubernetes.io/not-ready:NoSchedule"
UNREGISTERED = "karpenter.sh/unregistered:NoExecute"


@pytest.mark.parametrize(
    ("ready", "taints", "expected"),
    [
        ("True", [], True),
        ("True", ["team:NoSchedule", UNREGISTERED], True),
        ("True", ["team:NoSchedule", NOT_READY], False),
        ("False", ["team:NoSchedule"], False),
    ],
)
def test_a_node_is_ready_without_a_taint_that_only_startup_explains(ready, taints, expected):
    """Taints of users stay, and registration removes its own."""
    claim = node_claim("web", stage="Launched")
    found = node("web", claim=claim, stage="", ready=ready, taints=taints)
    assert is_ready_to_register(claim, found) is expected
