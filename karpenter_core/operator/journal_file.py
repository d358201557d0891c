"""Appends the decision journal to a size-limited file from its own thread.

Problems of the file never reach the controllers: if the disk is full or hangs, entries are lost, a
metric counts them, and one log line reports it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from karpenter_core.api.decisions import decision_document
from karpenter_core.operator.writer_thread import WriterThread

if TYPE_CHECKING:
    from prometheus_client import Counter
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.decisions import Decision

__all__ = ["QUEUE_SIZE", "JournalFile"]

QUEUE_SIZE: Final = 1_000
"""Decisions that wait to be written; more are lost, as with a disk that hangs."""


@final
class JournalFile:
    """Appends decisions to a file; at `max_bytes` it is moved to `FILE.1` and started anew.

    `lost` counts entries that could not be written, by label `reason`.
    """

    def __init__(self, path: Path, *, max_bytes: int, lost: Counter) -> None:
        self._path: Final = path
        self._max_bytes: Final = max_bytes
        self._lost_counter: Final = lost
        self._file: int | None = None
        self._size = 0
        self._is_regular = True
        """Whether it is a file that grows, and no pipe or terminal."""
        self._is_broken = False
        self._log: FilteringBoundLogger = structlog.get_logger("journal")
        self._thread: Final = WriterThread("journal", self._write_now, size=QUEUE_SIZE)

    def start(self) -> None:
        """Start to write queued entries."""
        self._thread.start()

    def write(self, decision: Decision) -> None:
        """Write a decision soon; never waits, never raises."""
        if not self._thread.put(decision):
            self._lost_counter.labels(reason="queue_full").inc()

    def close(self) -> None:
        """Write queued entries, for a short time at most."""
        if self._thread.close():
            self._close_file()

    # -- in the thread -----------------------------------------------------------------------------

    def _write_now(self, decision: Decision) -> None:
        try:
            self._append(msgspec.json.encode(decision_document(decision)) + b"\n")
        except OSError as error:
            self._failed(error)
        else:
            self._succeeded()

    def _append(self, line: bytes) -> None:
        if self._file is not None and not self._is_in_place(self._file):
            self._close_file()
        file = self._open() if self._file is None else self._file
        if self._is_regular and self._size and self._size + len(line) > self._max_bytes:
            self._close_file()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            file = self._open()
        rest = line
        while rest:
            written = os.write(file, rest)
            self._size += written
            rest = rest[written:]

    def _is_in_place(self, file: int) -> bool:
        """Tell whether the open file still has its name; others may have moved or removed it."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        """Open the file; end a line that a full disk cut off, so that the next one is whole."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        status = os.fstat(file)
        self._size, self._is_regular = status.st_size, stat.S_ISREG(status.st_mode)
        if self._size and os.pread(file, 1, self._size - 1) != b"\n":
            self._size += os.write(file, b"\n")
        return file

    def _close_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _failed(self, error: OSError) -> None:
        self._close_file()
        self._lost_counter.labels(reason="write_failed").inc()
        if not self._is_broken:
            self._is_broken = True
            self._log.error(
                "decision journal cannot be written, entries are lost",
                file=str(self._path),
                error=error.strerror or str(error),
            )

    def _succeeded(self) -> None:
        if self._is_broken:
            self._is_broken = False
            self._log.info("decision journal is written again", file=str(self._path))
