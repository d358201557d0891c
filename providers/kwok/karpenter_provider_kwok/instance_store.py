"""Stores instances in an SQLite file that processes share.

A real cloud outlives the controller that uses it, and so must this one: a process killed at any
moment leaves the file as it was after its last whole transaction, and the next process (or another
one at the same time) goes on from there. A test can read afterwards from the file which instances
exist and how often each call was made.

Only rows pass this module's border: `cloud` interprets them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["MEMORY", "InstanceStore"]

MEMORY: Final = ":memory:"
"""A store that is gone with the process."""

_FORMAT: Final = 1
_BUSY_SECONDS: Final = 30.0
_KEPT_CALLS: Final = 20_000
_KEPT_GONE: Final = 10_000

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS instances (
    token TEXT PRIMARY KEY,
    provider_id TEXT NOT NULL,
    node_claim TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    zone TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    price_per_hour REAL NOT NULL,
    currency TEXT NOT NULL,
    launched_at REAL NOT NULL,
    running_at REAL NOT NULL,
    terminating_at REAL,
    gone_at REAL,
    adopted INTEGER NOT NULL DEFAULT 0,
    answer TEXT NOT NULL,
    node TEXT NOT NULL,
    node_state TEXT NOT NULL,
    node_due_at REAL NOT NULL,
    node_made_at REAL,
    node_attempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS instances_by_provider_id ON instances (provider_id);
CREATE INDEX IF NOT EXISTS instances_by_node_state ON instances (node_state);
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    process INTEGER NOT NULL,
    operation TEXT NOT NULL,
    subject TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_by_subject ON calls (operation, subject);
CREATE TABLE IF NOT EXISTS interruptions (
    id TEXT PRIMARY KEY,
    provider_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    deadline REAL NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS faults (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    fault TEXT NOT NULL,
    remaining INTEGER
);
"""


@final
class InstanceStore:
    """One connection to the file, used by one thread at a time."""

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        self.path: Final = path
        self._lock: Final = threading.RLock()
        self._is_closed = False
        try:
            self._connection: Final = _connect(path, read_only=read_only)
        except sqlite3.Error as error:
            raise SettingsError(f"kwok state file {path} cannot be used: {error}") from error

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection, None, None]:
        """Do several statements as one, alone among all threads and processes.

        Raises:
            CloudProviderError: the store is closed.
        """
        with self._lock:
            self._check_open()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection, None, None]:
        """Read without keeping others from writing.

        Raises:
            CloudProviderError: the store is closed.
        """
        with self._lock:
            self._check_open()
            yield self._connection

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _check_open(self) -> None:
        """Refuse calls that were made before the provider stopped, and reach the store after it."""
        if self._is_closed:
            raise CloudProviderError("the kwok provider has stopped")


def record_call(
    db: sqlite3.Connection, *, at: float, operation: str, subject: str, result: str
) -> None:
    """Write down that something was asked of the cloud; the oldest entries go."""
    cursor = db.execute(
        "INSERT INTO calls (at, process, operation, subject, result) VALUES (?, ?, ?, ?, ?)",
        (at, os.getpid(), operation, subject, result),
    )
    if cursor.lastrowid is not None and cursor.lastrowid % 1000 == 0:
        db.execute("DELETE FROM calls WHERE id <= ?", (cursor.lastrowid - _KEPT_CALLS,))
        db.execute(
            "DELETE FROM instances WHERE node_state = 'removed' AND token IN (SELECT token FROM "
            "instances WHERE node_state = 'removed' ORDER BY gone_at DESC LIMIT -1 OFFSET ?)",
            (_KEPT_GONE,),
        )
        db.execute("DELETE FROM interruptions WHERE acknowledged AND deadline < ?", (at,))


def _check_format(file_format: int, path: str) -> None:
    if file_format not in {0, _FORMAT}:
        raise SettingsError(
            f"kwok state file {path} has format {file_format}, this version reads {_FORMAT}"
        )


def _connect(path: str, *, read_only: bool) -> sqlite3.Connection:
    target = f"{Path(path).absolute().as_uri()}?mode=ro" if read_only else path
    connection = sqlite3.connect(
        target,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=read_only,
    )
    try:
        connection.row_factory = sqlite3.Row
        file_format = connection.execute("PRAGMA user_version").fetchone()[0]
        _check_format(file_format, path)
        if not read_only:
            # Survives the death of any process. A machine that loses power loses its simulated nodes too.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;"
            )
    except BaseException:
        connection.close()
        raise
    return connection
