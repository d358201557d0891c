"""Logs each entry of the decision journal in one line.

The line has the entry's id (`decision`), by which `/debug/decisions` and the annotations of NodeClaims have
the details. Controllers log actions and errors beside it, at most at level debug if the line tells the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from karpenter_core.api.decisions import OBSERVE, PROVISION

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import Decision
    from karpenter_core.api.prices import Price

__all__ = ["DECISION_MESSAGES", "log_decision"]

PLANNED: Final = "computed a plan"
COMPARED: Final = "compared the cluster with a fresh plan"
STARTED: Final = "disrupting node(s)"  # upstream's message
REJECTED: Final = "disruption command rejected"
FAILED: Final = "disruption command failed"
DECISION_MESSAGES: Final = frozenset({PLANNED, COMPARED, STARTED, REJECTED, FAILED})
"""The messages of these lines; no other line has one of them."""
MAX_NAMES: Final = 20
"""Names in one field of a line; the journal has more."""

_log: FilteringBoundLogger = structlog.get_logger("decisions")


def log_decision(decision: Decision) -> None:
    """Write the line of a decision; a command that was rolled back is an error."""
    message = _message(decision)
    write = _log.error if message == FAILED else _log.info
    write(message, **_fields(decision))


def _message(decision: Decision) -> str:
    if decision.kind == PROVISION:
        return PLANNED
    if decision.kind == OBSERVE:
        return COMPARED
    if decision.failure:
        return FAILED
    return REJECTED if decision.rejection else STARTED


def _fields(decision: Decision) -> dict[str, object]:
    """Return the fields of a line; empty ones are left out."""
    nodes = [candidate.node for candidate in decision.candidates if candidate.node]
    claims = [candidate.node_claim for candidate in decision.candidates]
    moving = sum(candidate.pods for candidate in decision.candidates)
    launches = _count(decision, "launches", len(decision.launches))
    is_pass = decision.kind == PROVISION
    fields: dict[str, object] = {
        "decision": decision.id,
        "command-id": "" if is_pass else decision.id,  # upstream's name of the field
        "kind": decision.kind,
        "method": decision.method,
        "reason": decision.reason,
        "cause": decision.cause,
        "command": decision.summary,
        "rejection": decision.rejection,
        "error": decision.failure,
        "disrupted-node-count": _count(decision, "candidates", len(decision.candidates)),
        "disrupted-nodes": nodes[:MAX_NAMES],
        "disrupted-nodeclaims": claims[:MAX_NAMES],
        "pod-count": moving,
        "nodeclaims": launches if is_pass else 0,
        "replacement-node-count": 0 if is_pass else launches,
        "new-nodeclaims": [launch.node_claim for launch in decision.launches if launch.node_claim][
            :MAX_NAMES
        ],
        "existing-nodes": _count(decision, "placements", len(decision.placements)),
        "price-per-hour-before": _amount(decision.price_per_hour_before),
        "price-per-hour-after": _amount(decision.price_per_hour_after),
        "obstacles": sum(obstacle.count for obstacle in decision.obstacles),
        "obstacle": decision.obstacles[0].message if decision.obstacles else "",
    }
    return {name: value for name, value in fields.items() if value not in ("", 0, [], None)}


def _count(decision: Decision, field: str, listed: int) -> int:
    return listed + decision.omitted.get(field, 0)


def _amount(price: Price | None) -> str | None:
    return None if price is None else str(price)
