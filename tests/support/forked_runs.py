"""Continues a run in virtual time once for each of many faults, without its beginning.

The run is played once, without a fault. Wherever one can happen, the process forks: the child has the
fault, plays the run to its end and puts back the files of the run, while the parent waits; then the
parent plays on, to the place of the next fault. Nothing of a run in virtual time is outside of its
process and its folder: it has no threads and no sockets.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Final, final

import structlog

from tests.support.log_lines import LogLines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["ForkedRuns"]

LOGGED_CHARACTERS: Final = 20_000
"""Length of the end of the log that is shown of a child that fails."""


@final
class ForkedRuns:
    """The children of one run whose files are in a folder.

    `play` plays the run; in between, `fork` begins a child.
    """

    def __init__(
        self, folder: Path, is_drawn: Callable[[int], bool] = lambda _number: True
    ) -> None:
        """Begin with no child; `is_drawn` tells which numbers of faults have one."""
        self._folder: Final = folder
        self._is_drawn: Final = is_drawn
        self.names: Final[list[str]] = []
        """Names of the faults so far, with a child or without."""
        self.played: Final[list[str]] = []
        """Names of those that had a child."""
        self.failures: Final[list[str]] = []
        """Name, error and log of each child that failed."""
        self._writing: int | None = None
        """The end of the pipe to the parent, in a child."""
        self._files: dict[Path, bytes] = {}
        """Contents of the files of the run when this child began."""
        self._unraisable: Final[list[str]] = []

    @property
    def is_child(self) -> bool:
        """Whether this process is a child; it has one fault, and forks no more."""
        return self._writing is not None

    def play(self, run: Callable[[], object]) -> None:
        """Play a run; a child ends here, with its own part of it.

        Raises:
            AssertionError: a child failed.
        """
        try:
            run()
        except BaseException:
            if self.is_child:
                self._end(traceback.format_exc())
            raise
        if self.is_child:
            self._end("\n".join(self._unraisable))
        assert not self.failures, "\n\n".join(self.failures)

    def fork(self, name: str) -> bool:
        """Return True in a new child; and False in this process, when the child has ended.

        A fault that was not drawn has no child.
        """
        assert not self.is_child, "a child has one fault"
        self.names.append(name)
        if not self._is_drawn(len(self.names) - 1):
            return False
        self.played.append(name)
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._writing = writing
            gc.freeze()  # collecting what is the parent's would copy all of its memory
            self._files = self._contents()
            asyncio._set_running_loop(loop)  # asyncio forgets it in a child
            # pytest would report these at the end of the test, which a child does not reach
            sys.unraisablehook = lambda error: self._unraisable.append(
                f"unraisable: {error.exc_value!r} in {error.object!r}"
            )
            return True
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as pipe:
                failure = pipe.read().decode()
        except BaseException:  # the time limit of the test, say
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
        if status != 0:  # and has not put back the files
            code = os.waitstatus_to_exitcode(status)
            raise ChildProcessError(f"{name}: the process ended with {code}; {failure}")
        if failure:
            self.failures.append(f"{name}: {failure}")
        return False

    def _contents(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self._folder.rglob("*") if path.is_file()}

    def _put_back_files(self) -> None:
        """Write the contents into the same files, which the parent may have open, or even in memory.

        The parent must not do it: a process that closes a file loses its locks of it, and the
        databases of a run would be without.
        """
        for path in self._contents().keys() - self._files.keys():
            path.unlink()
        for path, content in self._files.items():
            if not path.exists():
                raise FileNotFoundError(f"{path}: the child removed a file that its parent uses")
            if path.read_bytes() != content:
                path.write_bytes(content)

    def _end(self, failure: str) -> None:
        """Tell the parent how it went, and end this process at once."""
        assert self._writing is not None
        if failure:
            lines = structlog.get_config()["processors"][-1]
            log = lines.text() if isinstance(lines, LogLines) else ""
            failure = f"{failure}\n{log[-LOGGED_CHARACTERS:]}\n"
        self._put_back_files()
        with os.fdopen(self._writing, "wb") as pipe:
            pipe.write(failure.encode())
        sys.stdout.flush()
        os._exit(0)
