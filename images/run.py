"""Runs the program of an image in its file system, restricted as a pod restricts it.

As under a container engine with the security settings of the chart: the root is an overlay of base and
layer and is read-only, the user is 65532, no capability can be had, no new privileges, and /tmp and the
cache are empty file systems in memory. Unlike there: the host's network, process ids and memory limit are
seen, and no system call is filtered. Needs root on Linux, and overlayfs.

    python -m images.run --base FOLDER --layer FOLDER --root FOLDER [--mount PATH ...] -- run --providers kwok

The process is replaced by the program, so that signals reach it; the mounts end with it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from images.layer import CACHE, USER

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ENVIRONMENT", "enter", "main", "prepare_root"]

PROGRAM: Final = "/usr/local/bin/karpenter"
ENVIRONMENT: Final = {
    "HOME": "/home/nonroot",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}
"""Variables that the base image sets."""

_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_HOST_FILES: Final = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
"""Files that an engine mounts into each container."""
_CLONE_NEWNS: Final = 0x00020000
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_LAST_CAPABILITY: Final = Path("/proc/sys/kernel/cap_last_cap")


def prepare_root(base: Path, layer: Path, root: Path, mounts: Sequence[Path]) -> None:
    """Mount the file systems of a container at a folder, in a mount namespace of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare: mount namespaces need root")
    _mount("--make-rprivate", "/")
    root.mkdir(parents=True, exist_ok=True)
    # Without an upper folder an overlay cannot be written to; mount points must be there beforehand.
    points = root.with_name(f"{root.name}-mount-points")
    for name in ("dev", "proc", "tmp", "etc"):
        (points / name).mkdir(parents=True, exist_ok=True)
    for name in _HOST_FILES:
        (points / name.removeprefix("/")).touch()
    _mount("-t", "overlay", "overlay", "-o", f"ro,lowerdir={layer}:{points}:{base}", root)
    _mount("-t", "proc", "-o", "ro,nosuid,nodev,noexec", "proc", root / "proc")
    _mount("-t", "tmpfs", "-o", "mode=755,nosuid", "tmpfs", root / "dev")
    for name in _DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", root / "dev" / name)
    owner = f"uid={USER},gid={USER},nosuid,nodev"
    _mount("-t", "tmpfs", "-o", f"mode=1777,{owner}", "tmpfs", root / "tmp")
    _mount("-t", "tmpfs", "-o", f"mode=700,{owner}", "tmpfs", root / CACHE)
    for name in _HOST_FILES:
        if Path(name).exists():
            _mount("--bind", "-o", "ro", name, root / name.removeprefix("/"))
    for path in mounts:
        point = root / str(path.resolve()).removeprefix("/")
        if path.is_dir():
            point.mkdir(parents=True, exist_ok=True)
        else:
            point.parent.mkdir(parents=True, exist_ok=True)
            point.touch()
        _mount("--bind", "-o", "ro", path, point)


def enter(root: Path) -> None:
    """Make a folder the root of this process, and give up all rights."""
    libc = ctypes.CDLL(None, use_errno=True)
    last = int(_LAST_CAPABILITY.read_text())
    os.chroot(root)
    os.chdir("/")
    for capability in range(last + 1):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"cannot drop capability {capability}")
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot give up new privileges")


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the program of the image; variables named by --env are handed on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--layer", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True, help="an empty folder")
    parser.add_argument(
        "--mount", type=Path, action="append", default=[], help="seen inside, to read"
    )
    parser.add_argument("--env", action="append", default=[], help="name of a variable to hand on")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    environment = {**ENVIRONMENT, **{name: os.environ[name] for name in options.env}}
    prepare_root(options.base, options.layer, options.root, options.mount)
    enter(options.root)
    # Memory used before belongs to the same process: a measurement of the program subtracts it.
    print(
        f"entered the image after {time.process_time():.3f} s of CPU", file=sys.stderr, flush=True
    )
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    os.execve(options.program, [options.program, *words], environment)


if __name__ == "__main__":
    sys.exit(main())
