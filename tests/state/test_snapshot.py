"""A snapshot of which nothing is said holds no objects."""

from __future__ import annotations

from dataclasses import fields

from karpenter_core.state.ledger_view import LedgerView
from karpenter_core.state.snapshot import Snapshot


def test_a_snapshot_without_objects_is_empty_in_every_field():
    snapshot = Snapshot(version=1, synced=False, ledger=LedgerView())
    filled = {each.name for each in fields(snapshot) if getattr(snapshot, each.name)}
    assert filled == {"version", "ledger"}
