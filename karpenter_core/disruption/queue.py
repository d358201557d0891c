"""Rules of the command queue: how long a command may take, and what earlier ones left behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find
from karpenter_core.api.labels import DISRUPTED_TAINT
from karpenter_core.api.nodeclaim import DISRUPTION_REASON

if TYPE_CHECKING:
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["StaleMark", "command_timeout", "stale_mark", "stale_marks"]

_PER_NODE: Final = timedelta(milliseconds=80)  # upstream's numbers
_SHORTEST: Final = timedelta(minutes=10)
_LONGEST: Final = timedelta(hours=1)


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
    snapshot: Snapshot, *, queued: frozenset[str] = frozenset()
) -> tuple[StaleMark, ...]:
    """Return what a command left behind that failed or whose process died.

    Machines in the queue, or on their way out for whatever reason, keep their marks.
    """
    return tuple(
        mark
        for machine in snapshot.state_nodes
        if machine.provider_id not in queued and (mark := stale_mark(machine)) is not None
    )


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
