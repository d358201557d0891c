"""Sets the wall clock of one process, and leaves its other clocks alone."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

__all__ = ["WallClock"]

SOURCE: Final = Path(__file__).with_name("wall_clock.c")
_OFFSET: Final = struct.Struct("=q")


@final
class WallClock:
    """The wall clock of the processes that are started with `environment`.

    A library that is loaded before all others answers for the kernel: Python, OpenSSL and SQLite all get the
    time that was set. The monotonic clocks go on, as they do when somebody sets the clock of a host.
    """

    def __init__(self, folder: Path) -> None:
        """Build the library, for which a C compiler has to be there."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("no C compiler `cc` is there; `.ci/run` installs one")
        library = folder / "wall_clock.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, SOURCE],
            check=True,
        )
        file = folder / "wall_clock_offset"
        file.write_bytes(_OFFSET.pack(0))
        with file.open("r+b") as opened:
            self._offset: Final = mmap.mmap(opened.fileno(), _OFFSET.size)
        self.environment: Final[Mapping[str, str]] = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "WALL_CLOCK_OFFSET": str(file),
        }

    def set_ahead(self, by: timedelta) -> None:
        """Set it ahead of the true time, or behind with a negative difference."""
        _OFFSET.pack_into(self._offset, 0, round(by.total_seconds()))
