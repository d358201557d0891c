"""Lets judging processes end with the tool, however it ends: a mutant may compute forever."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
"""Linux, prctl(2): the signal that a process gets when its parent dies."""


def end_with(parent: int) -> None:
    """End this process when its parent does; at once, if that has ended already."""
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def end_group(leader: int) -> None:
    """End a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def run_in_group(
    command: Sequence[str], *, folder: str, environment: Mapping[str, str], seconds: float
) -> tuple[int, str, str]:
    """Run a program in a process group that ends with it; return its code and both outputs.

    Raises:
        subprocess.TimeoutExpired: It took too long, and was ended.
    """
    parent = os.getpid()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: end_with(parent),  # noqa: PLW1509 - the tool has one thread
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        finally:
            end_group(process.pid)
    return process.returncode, output, errors
