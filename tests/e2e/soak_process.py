"""Runs `karpenter run`, and tells how much memory is in use beside how much is resident.

Resident memory also grows when a peak leaves pages that are used in part. What is in use does not: the
number of blocks that Python's allocator has handed out, and the bytes that the C library has.

    KARPENTER_SOAK_FILE=FILE python -m tests.e2e.soak_process run ...      FILE has the last figures
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from karpenter_core.cli.entry import main

PERIOD_SECONDS: Final = 5.0
_FIELDS: Final = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Mallinfo(ctypes.Structure):
    """The structure `mallinfo2` of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def memory_in_use() -> dict[str, float]:
    """Return what is in use, by name."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return {
        "blocks": float(sys.getallocatedblocks()),
        "c_heap_mib": (info.uordblks + info.hblkhd) / 2**20,
    }


def _write(file: Path) -> None:
    while True:
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"pid": os.getpid(), **memory_in_use()}))
        part.replace(file)
        time.sleep(PERIOD_SECONDS)


if __name__ == "__main__":
    threading.Thread(
        target=_write, args=(Path(os.environ["KARPENTER_SOAK_FILE"]),), daemon=True
    ).start()
    main()
