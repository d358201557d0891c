"""Rules of the command queue: how long a command may take, and what earlier ones left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find
from karpenter_core.api.interruptions import INTERRUPTION_REASONS
from karpenter_core.api.labels import DISRUPTED_TAINT
from karpenter_core.api.nodeclaim import DISRUPTION_REASON

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "INTERRUPTION_GRACE",
    "StaleMark",
    "command_timeout",
    "is_being_interrupted",
    "stale_mark",
    "stale_marks",
]

_PER_NODE: Final = timedelta(milliseconds=80)  # upstream's numbers
_SHORTEST: Final = timedelta(minutes=10)
_LONGEST: Final = timedelta(hours=1)

INTERRUPTION_GRACE: Final = timedelta(minutes=10)
"""How long the deletion of an interrupted claim may come after its reason; it is tried for less."""


def command_timeout(queued: int) -> timedelta:
    """Return how long commands may take while so many machines are queued."""
    return min(max(_PER_NODE * queued, _SHORTEST), _LONGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleMark:
    """A machine that bears the marks of a disruption which nobody carries out any more."""

    node: str = ""
    """The node with the taint; empty when it has none."""
    claim: str = ""
    """The claim with the condition `DisruptionReason`; empty when it has none."""


def stale_marks(
    snapshot: Snapshot, *, now: datetime, queued: frozenset[str] = frozenset()
) -> tuple[StaleMark, ...]:
    """Return what a command left behind that failed or whose process died.

    Machines in the queue, or on their way out for whatever reason, keep their marks. A claim that
    is being interrupted keeps its reason: no command put it there, and the deletion follows.
    """
    found: list[StaleMark] = []
    for machine in snapshot.state_nodes:
        mark = None if machine.provider_id in queued else stale_mark(machine)
        if mark is None:
            continue
        if mark.claim and machine.claim is not None and is_being_interrupted(machine.claim, now):
            mark = replace(mark, claim="")
        if mark.node or mark.claim:
            found.append(mark)
    return tuple(found)


def is_being_interrupted(claim: NodeClaim, now: datetime) -> bool:
    """Tell whether an interruption has set a claim's reason and is about to delete the claim."""
    reason = find(claim.status.conditions, DISRUPTION_REASON)
    if reason is None or reason.status != TRUE or reason.reason not in INTERRUPTION_REASONS:
        return False
    since = reason.last_transition_time
    return since is not None and now - since < INTERRUPTION_GRACE


def stale_mark(machine: StateNode) -> StaleMark | None:
    """Return the marks of a machine that stays, so that no command in the queue put them there."""
    claim, node = machine.claim, machine.node
    if claim is None or machine.marked_for_deletion:
        return None
    is_tainted = (
        node is not None
        and not node.is_deleting
        and any(taint.key == DISRUPTED_TAINT for taint in node.taints)
    )
    has_reason = find(claim.status.conditions, DISRUPTION_REASON) is not None
    if not is_tainted and not has_reason:
        return None
    return StaleMark(
        node=node.name if is_tainted and node is not None else "",
        claim=claim.name if has_reason else "",
    )
