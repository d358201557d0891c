"""Reads and writes the rows of instances and their interruptions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.errors import InsufficientCapacityError, LaunchFailedError, OfferingKey
from karpenter_core.provider.contract import (
    Instance,
    Interruption,
    InterruptionKind,
    LaunchedInstance,
)
from karpenter_provider_kwok.labels import PROVIDER_ID_PREFIX

if TYPE_CHECKING:
    import sqlite3

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.catalogue import Offering
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest

__all__ = [
    "adopt_node",
    "announce_reclaim",
    "fail_launch",
    "insert_instance",
    "live_row",
    "read_instance",
    "read_interruption",
    "repeated_outcome",
]


def live_row(db: sqlite3.Connection, provider_id: str, now: float) -> sqlite3.Row | None:
    """Return the row of an instance that has not ended yet."""
    return db.execute(
        "SELECT * FROM instances WHERE provider_id = ? AND (gone_at IS NULL OR gone_at > ?)",
        (provider_id, now),
    ).fetchone()


def repeated_outcome(row: sqlite3.Row, request: LaunchRequest, now: float) -> LaunchOutcome:
    """Answer a token that was used before: with its instance, or that this one is gone."""
    if row["gone_at"] is not None and row["gone_at"] <= now:
        return LaunchFailedError(
            f"the instance of token {request.token} was terminated", reason="InstanceTerminated"
        )
    return LaunchedInstance(**json.loads(row["answer"]), existed=True)


def insert_instance(
    db: sqlite3.Connection,
    launched: LaunchedInstance,
    token: str,
    offering: Offering,
    *,
    now: float,
    running_at: float,
    node: dict[str, object],
) -> None:
    """Record a launched instance, whose Node is due once it runs."""
    db.execute(
        "INSERT INTO instances (token, provider_id, node_claim, instance_type, zone, "
        "capacity_type, price_per_hour, currency, launched_at, running_at, answer, node, "
        "node_state, node_due_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'due', ?)",
        (
            token,
            launched.provider_id,
            launched.provider_id.removeprefix(PROVIDER_ID_PREFIX),
            launched.instance_type,
            launched.zone,
            launched.capacity_type,
            offering.price.amount,
            offering.price.currency,
            now,
            running_at,
            _answer(launched),
            json.dumps(node),
            running_at,
        ),
    )


def fail_launch(
    db: sqlite3.Connection, launched: LaunchedInstance, token: str, *, at: float
) -> None:
    """Have an accepted launch fail; its Node never appears."""
    db.execute("UPDATE instances SET node_state = 'none' WHERE token = ?", (token,))
    db.execute(
        "INSERT INTO interruptions (id, provider_id, kind, deadline) VALUES (?, ?, ?, ?)",
        (
            f"launch-failed-{token}",
            launched.provider_id,
            InterruptionKind.LAUNCH_FAILED.value,
            at,
        ),
    )


def read_interruption(row: sqlite3.Row) -> Interruption:
    """Read an interruption, joined with its instance."""
    kind = InterruptionKind(row["kind"])
    if kind is not InterruptionKind.LAUNCH_FAILED:
        return Interruption(
            id=row["id"],
            kind=kind,
            provider_id=row["provider_id"],
            deadline=datetime.fromtimestamp(row["deadline"], UTC),
        )
    key = OfferingKey(
        instance_type=row["instance_type"], zone=row["zone"], capacity_type=row["capacity_type"]
    )
    message = f"no capacity for {key.instance_type} {key.capacity_type} in {key.zone}"
    error = InsufficientCapacityError(message, offerings=[key])
    return Interruption(
        id=row["id"],
        kind=kind,
        provider_id=row["provider_id"],
        error=error,
        announced_at=datetime.fromtimestamp(row["deadline"], UTC),
    )


def _answer(launched: LaunchedInstance) -> str:
    """Write down what a launch was answered, to answer the same again."""
    return json.dumps(
        {
            "provider_id": launched.provider_id,
            "instance_type": launched.instance_type,
            "zone": launched.zone,
            "capacity_type": launched.capacity_type,
            "capacity": dict(launched.capacity),
            "allocatable": dict(launched.allocatable),
            "labels": dict(launched.labels),
        }
    )


def adopt_node(db: sqlite3.Connection, node: NodeView, now: float) -> None:
    """Record an instance for a Node that another controller made."""
    owner = next((o for o in node.owners if o.kind == "NodeClaim"), None)
    created = node.created.timestamp() if node.created else now
    launched = LaunchedInstance(
        provider_id=node.provider_id,
        instance_type=node.labels.get(INSTANCE_TYPE, ""),
        zone=node.labels.get(ZONE, ""),
        capacity_type=node.labels.get(CAPACITY_TYPE, ""),
        capacity=node.capacity,
        allocatable=node.allocatable,
        labels=node.labels,
    )
    db.execute(
        "INSERT OR IGNORE INTO instances (token, provider_id, node_claim, instance_type, zone, "
        "capacity_type, price_per_hour, currency, launched_at, running_at, adopted, answer, node, "
        "node_state, node_due_at, node_made_at) "
        "VALUES (?, ?, ?, ?, ?, ?, 0, '', ?, ?, 1, ?, ?, 'made', ?, ?)",
        (
            owner.uid if owner else f"node:{node.uid}",
            node.provider_id,
            owner.name if owner else "",
            launched.instance_type,
            launched.zone,
            launched.capacity_type,
            created,
            created,
            _answer(launched),
            json.dumps({"metadata": {"name": node.name}}),
            created,
            created,
        ),
    )


def announce_reclaim(db: sqlite3.Connection, row: sqlite3.Row, deadline: float) -> None:
    """Reclaim a spot instance at a deadline, and announce it."""
    db.execute("UPDATE instances SET gone_at = ? WHERE token = ?", (deadline, row["token"]))
    db.execute(
        "INSERT OR IGNORE INTO interruptions (id, provider_id, kind, deadline) VALUES (?, ?, ?, ?)",
        (
            f"reclaim-{row['token']}",
            row["provider_id"],
            InterruptionKind.SPOT_RECLAIM.value,
            deadline,
        ),
    )


def read_instance(row: sqlite3.Row) -> Instance:
    """Read an instance as a listing shows it."""
    token: str = row["token"]
    return Instance(
        provider_id=row["provider_id"],
        node_claim=row["node_claim"],
        token="" if token.startswith("node:") else token,
        instance_type=row["instance_type"],
        zone=row["zone"],
        capacity_type=row["capacity_type"],
        created=datetime.fromtimestamp(row["launched_at"], UTC),
        terminating=row["terminating_at"] is not None,
        labels=json.loads(row["answer"])["labels"],
    )
