"""Prints the simulated cloud's instances and launch counts.

`launches` counts for each token how many instances were really launched, out of a log that is
written apart from the instances: it must be 1 for every token, or a claim was launched twice.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from karpenter_provider_kwok.instance_store import InstanceStore

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from datetime import datetime

__all__ = ["dump_file", "dump_store"]


def dump_file(path: str, *, now: datetime) -> dict[str, object]:
    """Read a state file without changing it, whether or not a process uses it.

    Raises:
        SettingsError: there is no such file, or it is none of ours.
    """
    store = InstanceStore(path, read_only=True)
    try:
        return dump_store(store, now=now)
    finally:
        store.close()


def dump_store(store: InstanceStore, *, now: datetime) -> dict[str, object]:
    """Return instances, gone ones, launches by token and the calls made, as plain JSON values."""
    at = now.timestamp()
    with store.reading() as db:
        rows = db.execute("SELECT * FROM instances ORDER BY launched_at, token").fetchall()
        launches = db.execute(
            "SELECT subject, count(*) AS made FROM calls "
            "WHERE operation = 'launch' AND result = 'launched' GROUP BY subject ORDER BY subject"
        ).fetchall()
        calls = db.execute("SELECT * FROM calls ORDER BY id").fetchall()
    instances = [_described(row, at) for row in rows]
    return {
        "instances": [each for each in instances if each["state"] != "terminated"],
        "terminated": [each for each in instances if each["state"] == "terminated"],
        "launches": {row["subject"]: row["made"] for row in launches},
        "calls": [
            {
                "at": row["at"],
                "process": row["process"],
                "operation": row["operation"],
                "subject": row["subject"],
                "result": row["result"],
            }
            for row in calls
        ],
    }


def _described(row: sqlite3.Row, now: float) -> Mapping[str, object]:
    return {
        "providerID": row["provider_id"],
        "token": row["token"],
        "nodeClaim": row["node_claim"],
        "state": _state(row, now),
        "instanceType": row["instance_type"],
        "zone": row["zone"],
        "capacityType": row["capacity_type"],
        "pricePerHour": row["price_per_hour"],
        "currency": row["currency"],
        "launchedAt": row["launched_at"],
        "adopted": bool(row["adopted"]),
        "node": json.loads(row["node"])["metadata"]["name"],
        "nodeState": row["node_state"],
    }


def _state(row: sqlite3.Row, now: float) -> str:
    if row["gone_at"] is not None and row["gone_at"] <= now:
        return "terminated"
    if row["terminating_at"] is not None:
        return "shutting-down"
    return "running" if row["running_at"] <= now else "pending"
