"""Sets the condition ConsistentStateFound: compares node and claim.

A node that has far less memory or fewer devices than its instance type points to a fault of the
image, the kubelet's settings or the catalogue. The condition and an Event report it; nothing else is
done.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE, is_true
from karpenter_core.api.nodeclaim import (
    CONSISTENCY_CHECK_FAILED,
    CONSISTENT_STATE_FOUND,
    INITIALIZED,
)
from karpenter_core.api.notices import Notice
from karpenter_core.api.quantities import format_resources, parse_resources
from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.claim_status import with_condition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView

__all__ = ["consistency_step", "shape_issues"]

MIN_SHARE: Final = 0.9
"""The share of an expected resource that a node must have (upstream default)."""
REPEAT_INTERVAL: Final = timedelta(minutes=10)
"""The interval after which the same Event is repeated; upstream checks every ten minutes."""


def consistency_step(
    claim: NodeClaim, nodes: Sequence[NodeView], *, now: datetime
) -> LifecycleStep:
    """Compare an initialised claim with its node.

    Claims with no node or several nodes are reported elsewhere.
    """
    if claim.is_deleting or len(nodes) != 1 or not is_true(claim.status.conditions, INITIALIZED):
        return LifecycleStep(claim=claim)
    issues = shape_issues(claim, nodes[0])
    if not issues:
        return LifecycleStep(claim=with_condition(claim, CONSISTENT_STATE_FOUND, now=now))
    return LifecycleStep(
        claim=with_condition(
            claim,
            CONSISTENT_STATE_FOUND,
            status=FALSE,
            reason=CONSISTENCY_CHECK_FAILED,
            message="Consistency Check Failed",
            now=now,
        ),
        notices=tuple(_notice(claim, issue) for issue in issues),
    )


def shape_issues(claim: NodeClaim, node: NodeView) -> tuple[str, ...]:
    """Return a message for each requested resource that the node has far too little of."""
    requested = parse_resources(claim.spec.resources.requests)
    expected = parse_resources(claim.status.capacity)
    issues: list[str] = []
    for name in sorted(requested):
        amount = expected.get(name, 0)
        if not requested[name] or not amount:
            continue
        share = node.capacity.get(name, 0) / amount
        if share < MIN_SHARE:
            actual = format_resources({name: node.capacity.get(name, 0)})[name]
            issues.append(
                f"expected {claim.status.capacity[name]} of resource {name}, but found {actual} "
                f"({100 * share:.1f}% of expected)"
            )
    return tuple(issues)


def _notice(claim: NodeClaim, issue: str) -> Notice:
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason="FailedConsistencyCheck",
        message=issue,
        dedupe=(claim.uid, issue),
        window=REPEAT_INTERVAL,
    )
