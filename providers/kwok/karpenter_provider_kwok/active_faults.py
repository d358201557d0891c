"""Counts the active faults in the store that all processes share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import AuthError, BadInputError, ThrottledError
from karpenter_provider_kwok.faults import CloudOperation, KwokFault, KwokFaultKind, load_faults

if TYPE_CHECKING:
    import sqlite3

    from karpenter_provider_kwok.instance_store import InstanceStore

__all__ = ["ActiveFaults", "CallFault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """The fault that applies to one call."""

    before: timedelta = timedelta()
    after: timedelta = timedelta()
    reply_lost: bool = False


@final
class ActiveFaults:
    """Reads, counts and ends faults."""

    def __init__(self, store: InstanceStore) -> None:
        self._store: Final = store
        self._file: Path | None = None
        self._file_state: tuple[int, int] | None = None

    def read_file(self, path: Path) -> None:
        """Take faults from a file from now on; it need not exist yet.

        Raises:
            BadInputError: it exists and cannot be used.
        """
        self._file = path
        self._refresh()

    def inject(self, fault: KwokFault) -> None:
        """Put a fault in force; alike ones strike one after the other."""
        with self._store.transaction() as db:
            number = db.execute("SELECT count(*) FROM faults").fetchone()[0]
            _put(db, f"program:{number}:{fault.to_json()}", "program", fault)

    def clear(self) -> None:
        """End every fault that a program put in force."""
        with self._store.transaction() as db:
            db.execute("UPDATE faults SET remaining = 0 WHERE source = 'program'")

    def disturb(self, operation: CloudOperation) -> CallFault:
        """Say what befalls a call that is about to be made.

        Raises:
            ThrottledError, AuthError: it is refused.
        """
        self.refresh()
        if not self._any_active():
            return CallFault()
        with self._store.transaction() as db:
            struck = {
                kind: self._first(db, kind, operation)
                for kind in (
                    KwokFaultKind.SLOW_CALL,
                    KwokFaultKind.SLOW_REPLY,
                    KwokFaultKind.LOST_REPLY,
                )
            }
            throttle = self._first(db, KwokFaultKind.THROTTLE, operation)
            refusal = self._first(db, KwokFaultKind.AUTH_FAILURE, operation)
        if refusal is not None:
            action = f"kwok:{operation.value}"
            raise AuthError(f"the credentials do not permit {action}", action=action)
        if throttle is not None:
            raise ThrottledError(
                f"too many requests: {operation.value}", retry_after=throttle.retry_after
            )
        slow_call, slow_reply = struck[KwokFaultKind.SLOW_CALL], struck[KwokFaultKind.SLOW_REPLY]
        return CallFault(
            before=slow_call.delay if slow_call else timedelta(),
            after=slow_reply.delay if slow_reply else timedelta(),
            reply_lost=struck[KwokFaultKind.LOST_REPLY] is not None,
        )

    def is_node_failing(self, node_claim: str) -> bool:
        """Whether the creation of a claim's Node is to fail this time."""
        if not self._any_active():
            return False
        with self._store.transaction() as db:
            for fault_id, fault in self.active(db, KwokFaultKind.FAILED_NODE):
                if fault.matches_claim(node_claim):
                    return self.use_up(db, fault_id)
        return False

    def prices(self) -> tuple[KwokFault, ...]:
        """Return the faults that move prices now."""
        self.refresh()
        with self._store.reading() as db:
            return tuple(fault for _, fault in self.active(db, KwokFaultKind.PRICE))

    def active(self, db: sqlite3.Connection, kind: KwokFaultKind) -> list[tuple[str, KwokFault]]:
        """Return the faults of a kind that still strike, with their ids."""
        rows = db.execute(
            "SELECT id, fault FROM faults WHERE remaining IS NULL OR remaining > 0 ORDER BY id"
        ).fetchall()
        faults = [(row["id"], _stored_fault(row["fault"])) for row in rows]
        return [(fault_id, fault) for fault_id, fault in faults if fault.kind is kind]

    def use_up(self, db: sqlite3.Connection, fault_id: str) -> bool:
        """Count one strike of a fault; False when it had none left."""
        done = db.execute(
            "UPDATE faults SET remaining = remaining - 1 "
            "WHERE id = ? AND (remaining IS NULL OR remaining > 0)",
            (fault_id,),
        )
        return done.rowcount > 0

    def refresh(self) -> None:
        """Read the file again if it changed; half-written text waits for the next time."""
        try:
            self._refresh()
        except BadInputError as error:
            structlog.get_logger("kwok").warning(
                "the faults file cannot be used, the previous faults stay", error=str(error)
            )

    def _any_active(self) -> bool:
        """Whether any fault is in force; asked first, as it takes no lock."""
        with self._store.reading() as db:
            active_row = db.execute(
                "SELECT 1 FROM faults WHERE remaining IS NULL OR remaining > 0 LIMIT 1"
            ).fetchone()
        return active_row is not None

    def _first(
        self, db: sqlite3.Connection, kind: KwokFaultKind, operation: CloudOperation
    ) -> KwokFault | None:
        for fault_id, fault in self.active(db, kind):
            if fault.operation is operation:
                self.use_up(db, fault_id)
                return fault
        return None

    def _refresh(self) -> None:
        if self._file is None:
            return
        try:
            file_status = self._file.stat()
            seen = (file_status.st_mtime_ns, file_status.st_size)
            text = self._file.read_text(encoding="utf-8") if seen != self._file_state else None
        except OSError:
            seen, text = None, "[]" if self._file_state is not None else None
        if text is None:
            return
        faults = load_faults(text, file=str(self._file))
        self._file_state = seen
        ids = {f"file:{index}:{fault.to_json()}": fault for index, fault in enumerate(faults)}
        with self._store.transaction() as db:
            for row in db.execute("SELECT id FROM faults WHERE source = 'file'").fetchall():
                if row["id"] not in ids:
                    db.execute("DELETE FROM faults WHERE id = ?", (row["id"],))
            for fault_id, fault in ids.items():
                _put(db, fault_id, "file", fault)


@lru_cache(maxsize=256)
def _stored_fault(text: str) -> KwokFault:
    return load_faults(f"[{text}]", file="state")[0]


def _put(db: sqlite3.Connection, fault_id: str, source: str, fault: KwokFault) -> None:
    db.execute(
        "INSERT OR IGNORE INTO faults (id, source, fault, remaining) VALUES (?, ?, ?, ?)",
        (fault_id, source, json.dumps(json.loads(fault.to_json())), fault.count),
    )
