"""NodePools get NodeClassReady from their NodeClass."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.conditions import Condition, find_condition, is_true
from karpenter_core.api.nodeclass import NodeClass, NodeClassStatus
from karpenter_core.lifecycle.nodepool.readiness import with_readiness
from karpenter_core.lifecycle.nodepool.validation import with_validation
from karpenter_core.testing.builders import EPOCH, node_pool

NOW = EPOCH + timedelta(minutes=1)


def node_class(*conditions: Condition, deleting: bool = False) -> NodeClass:
    return NodeClass(
        metadata=ObjectMeta(name="default", deletion_timestamp=NOW if deleting else None),
        status=NodeClassStatus(conditions=conditions),
    )


def ready(status: str, reason: str = "", message: str = "") -> Condition:
    return Condition(type="Ready", status=status, reason=reason, message=message)


CASES = [
    ("missing", None, "False", "NodeClassNotFound", "NodeClass not found on cluster"),
    (
        "terminating",
        node_class(ready("True"), deleting=True),
        "False",
        "NodeClassTerminating",
        "NodeClass is Terminating",
    ),
    (
        "no conditions",
        node_class(),
        "False",
        "NodeClassReadinessUnknown",
        "Node Class Readiness Unknown",
    ),
    (
        "unknown",
        node_class(ready("Unknown", "Resolving")),
        "False",
        "NodeClassReadinessUnknown",
        "Node Class Readiness Unknown",
    ),
    (
        "not ready",
        node_class(ready("False", "SubnetsNotFound", "no subnet matches")),
        "False",
        "SubnetsNotFound",
        "no subnet matches",
    ),
    ("not ready without reason", node_class(ready("False")), "False", "NodeClassReady", ""),
    ("ready", node_class(ready("True", "Ready")), "True", "NodeClassReady", ""),
]


@pytest.mark.parametrize(
    ("name", "subject", "status", "reason", "message"), CASES, ids=[case[0] for case in CASES]
)
def test_condition_copies_the_node_class_state(name, subject, status, reason, message):
    """Cases 143 and 81."""
    pool = with_readiness(node_pool(), subject, now=NOW)

    condition = find_condition(pool.status.conditions, "NodeClassReady")
    assert (condition.status, condition.reason, condition.message) == (status, reason, message), (
        name
    )


def test_ready_needs_both():
    validated = with_validation(node_pool(), now=NOW, rules=None)
    assert not is_true(validated.status.conditions, "Ready")

    pool = with_readiness(validated, node_class(ready("True")), now=NOW)

    assert is_true(pool.status.conditions, "Ready")


def test_nothing_new_is_the_same_pool():
    pool = with_readiness(node_pool(), None, now=NOW)

    assert with_readiness(pool, None, now=NOW + timedelta(hours=1)) is pool
