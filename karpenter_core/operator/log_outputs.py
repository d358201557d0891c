"""Writes log lines to files and pipes from its own thread.

A pipe whose reader stands still, or a disk that hangs, blocks the thread that writes to it. On the
event loop this would hold up the renewal of the leader lease too; here lines wait in a queue, and are
lost when it is full.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import SettingsError
from karpenter_core.operator.writer_thread import WriterThread

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["QUEUE_LINES", "LogOutputs"]

QUEUE_LINES: Final = 10_000
"""Lines that wait to be written; more are lost."""
_STANDARD: Final = {"stdout": 1, "stderr": 2}


@final
class _Output:
    """An open file descriptor and the path it was given by."""

    def __init__(self, path: str, option: str) -> None:
        """Open a path, or take over the process's own output.

        Raises:
            SettingsError: it cannot be opened.
        """
        self.path: Final = path
        self._is_own = path not in _STANDARD
        """Whether the descriptor is to be closed."""
        self.descriptor: Final = self._opened(option) if self._is_own else _STANDARD[path]

    def _opened(self, option: str) -> int:
        try:
            return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            message = f'{option}: cannot open "{self.path}": {error.strerror}'
            raise SettingsError(message) from error

    def write(self, rest: bytes) -> None:
        """Write all bytes; waits as long as the file or pipe takes none."""
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def close(self) -> None:
        if self._is_own:
            self._is_own = False
            with suppress(OSError):
                os.close(self.descriptor)


@final
class LogOutputs:
    """Writes every line to several outputs; a line that one cannot take goes to the error outputs.

    Neither a full disk nor an output that blocks ends or holds up the work that is logged.
    """

    def __init__(self, paths: Sequence[str], error_paths: Sequence[str]) -> None:
        """Open the outputs, paths of files, `stdout` or `stderr`, and start to write.

        Raises:
            SettingsError: a file cannot be opened.
        """
        self._outputs: Final = [_Output(path, "log-output-paths") for path in paths]
        self._errors: Final = [_Output(path, "log-error-output-paths") for path in error_paths]
        self._lost = 0
        self._lost_lock: Final = threading.Lock()
        self._thread: Final = WriterThread("log", self._write_queued, size=QUEUE_LINES)
        self._thread.start()

    @property
    def is_terminal(self) -> bool:
        """Whether all outputs are terminals."""
        return all(os.isatty(output.descriptor) for output in self._outputs)

    def write(self, line: str) -> None:
        """Write a line soon; never raises, and waits in the thread of the outputs only."""
        if self._thread.is_current:  # the report below: a full queue loses it
            self._write_now(line)
            return
        if not self._thread.put(line):
            with self._lost_lock:
                self._lost += 1

    def close(self) -> None:
        """Write the lines that wait, for a short time at most, and close the files.

        Later lines are lost. Files stay open if one still takes no line.
        """
        if self._thread.close():
            for output in (*self._outputs, *self._errors):
                output.close()

    # -- in the thread -----------------------------------------------------------------------------

    def _write_queued(self, line: str) -> None:
        self._write_now(line)
        if lost := self._take_lost():
            structlog.get_logger("log").error(
                "log lines were lost because an output took none", lines=lost
            )

    def _take_lost(self) -> int:
        with self._lost_lock:
            lost, self._lost = self._lost, 0
        return lost

    def _write_now(self, line: str) -> None:
        encoded = f"{line}\n".encode(errors="backslashreplace")
        for output in self._outputs:
            try:
                output.write(encoded)
            except OSError as error:
                self._report(output, error, encoded)

    def _report(self, failed: _Output, error: OSError, line: bytes) -> None:
        report = f"cannot write to log {failed.path}: {error.strerror}: ".encode() + line
        for output in self._errors:
            with suppress(OSError):
                output.write(report)
