"""Runs `karpenter run`, and tells what it holds when it is asked by SIGUSR1.

Resident memory also grows when a peak leaves pages that are used in part. What is in use does not: the
number of blocks that Python's allocator has handed out, and the bytes that the C library has. Items
of every container are counted beside (tests.support.object_sizes): they name what grows.

    KARPENTER_SOAK_FILE=FILE python -m tests.e2e.soak_process run ...      FILE has the last figures

With KARPENTER_SOAK_BOUNDS=small what the process keeps for the sake of the past is full in minutes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

from tests.support.small_bounds import cap_cached_calls, small_bounds

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
    from tests.support.object_sizes import count_held

    gc.unfreeze()  # a controller freezes what it holds after its start, and that is not counted
    gc.collect()
    found = {"pid": os.getpid(), **memory_in_use()}  # before counting needs memory of its own
    part = file.with_suffix(".part")
    part.write_text(json.dumps({**found, "held": count_held()}))
    part.replace(file)
    gc.freeze()


def _run() -> None:
    file = Path(os.environ["KARPENTER_SOAK_FILE"])
    signal.signal(signal.SIGUSR1, lambda *_: _write(file))
    if os.environ.get("KARPENTER_SOAK_BOUNDS") == "small":
        cap_cached_calls()
        from karpenter_core.cli.entry import main

        with small_bounds():
            main()
    else:
        from karpenter_core.cli.entry import main

        main()


if __name__ == "__main__":
    _run()
