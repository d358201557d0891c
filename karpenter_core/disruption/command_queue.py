"""Sets time limits of commands and finds marks of abandoned ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.interruptions import INTERRUPTION_REASONS
from karpenter_core.api.labels import DISRUPTED_TAINT, TERMINATION_TIMESTAMP
from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.state.termination_deadline import has_stale_deadline

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "INTERRUPTION_GRACE",
    "StaleDisruptionMark",
    "StaleMarkFinder",
    "command_timeout",
    "find_stale_mark",
    "find_stale_marks",
    "is_being_interrupted",
]

_PER_NODE: Final = timedelta(milliseconds=80)  # upstream's numbers
_MIN_DURATION: Final = timedelta(minutes=10)
_MAX_DURATION: Final = timedelta(hours=1)

INTERRUPTION_GRACE: Final = timedelta(minutes=10)
"""Time between an interrupted claim's reason and its deletion; retries end before that."""


def command_timeout(queued: int) -> timedelta:
    """Return the time limit of commands while `queued` nodes are being disrupted."""
    return min(max(_PER_NODE * queued, _MIN_DURATION), _MAX_DURATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleDisruptionMark:
    """Marks on a node and its claim of a disruption that is no longer carried out."""

    node: str
    """The node with the taint; empty when it has none."""
    claim: str
    """The claim with the condition `DisruptionReason` or a stale deadline; empty when it has none."""


_NO_MARK: Final = StaleDisruptionMark(node="", claim="")


def find_stale_marks(
    snapshot: Snapshot, *, now: datetime, queued: frozenset[str] = frozenset()
) -> tuple[StaleDisruptionMark, ...]:
    """Return the marks of commands that failed or whose process died.

    Nodes in the queue, and nodes marked for deletion for any reason, keep their marks. A claim
    that is being interrupted keeps its reason: no command set it, and the deletion follows. The
    deadline of a forced deletion that did not happen is a mark, too.
    """
    return StaleMarkFinder().find(snapshot, now=now, queued=queued)


@final
class StaleMarkFinder:
    """Finds stale marks in successive snapshots; reads only the changed nodes again.

    Nearly every node has no mark, and every pass asks for all of them.
    """

    __slots__ = ("_marked", "_read", "_snapshot")

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._read: dict[str, StateNode] = {}
        self._marked: list[tuple[StateNode, StaleDisruptionMark]] = []

    def find(
        self, snapshot: Snapshot, *, now: datetime, queued: frozenset[str] = frozenset()
    ) -> tuple[StaleDisruptionMark, ...]:
        """Return the stale marks, as `find_stale_marks` does."""
        if snapshot is not self._snapshot:
            self._read_nodes(snapshot)
        stale_marks: list[StaleDisruptionMark] = []
        for state_node, found in self._marked:
            claim, mark = state_node.claim, found
            if state_node.provider_id in queued:
                continue
            if mark.claim and claim is not None and is_being_interrupted(claim, now):
                mark = replace(mark, claim="")
            elif claim is not None and has_stale_deadline(claim, now):
                mark = replace(mark, claim=claim.name)
            if mark.node or mark.claim:
                stale_marks.append(mark)
        return tuple(stale_marks)

    def _read_nodes(self, snapshot: Snapshot) -> None:
        """Remember which nodes have marks; those without keep none until they change."""
        before, unmarked = self._read, dict[str, "StateNode"]()
        self._marked = []
        for state_node in snapshot.state_nodes:
            if before.get(state_node.name) is state_node:
                unmarked[state_node.name] = state_node
                continue
            mark = find_stale_mark(state_node)
            if mark is None and _may_have_stale_deadline(state_node):
                mark = _NO_MARK
            if mark is None:
                unmarked[state_node.name] = state_node
            else:
                self._marked.append((state_node, mark))
        self._read, self._snapshot = unmarked, snapshot


def is_being_interrupted(claim: NodeClaim, now: datetime) -> bool:
    """Tell whether an interruption has set a claim's reason and is about to delete the claim."""
    reason = find_condition(claim.status.conditions, DISRUPTION_REASON)
    if reason is None or reason.status != TRUE or reason.reason not in INTERRUPTION_REASONS:
        return False
    since = reason.last_transition_time
    return since is not None and now - since < INTERRUPTION_GRACE


def _may_have_stale_deadline(state_node: StateNode) -> bool:
    """Tell whether a claim that is not being deleted has a deadline, which may become stale."""
    claim = state_node.claim
    return (
        claim is not None
        and not state_node.marked_for_deletion
        and TERMINATION_TIMESTAMP in claim.metadata.annotations
    )


def find_stale_mark(state_node: StateNode) -> StaleDisruptionMark | None:
    """Return the marks of a node that is not being deleted; None without marks."""
    claim, node = state_node.claim, state_node.node
    if claim is None or state_node.marked_for_deletion:
        return None
    is_tainted = (
        node is not None
        and not node.is_deleting
        and any(taint.key == DISRUPTED_TAINT for taint in node.taints)
    )
    has_reason = find_condition(claim.status.conditions, DISRUPTION_REASON) is not None
    if not is_tainted and not has_reason:
        return None
    return StaleDisruptionMark(
        node=node.name if is_tainted and node is not None else "",
        claim=claim.name if has_reason else "",
    )
