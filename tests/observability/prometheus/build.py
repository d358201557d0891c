#!/usr/bin/env python3
"""Builds Prometheus and promtool from a pinned Go module, once.

The module beside this file only pins what is built; `go.sum` vouches for every byte. The programs are kept
under `~/.cache/karpenter-core/prometheus/<version>/`. They are built without service discovery and without
the pages of the web server, which halves the CPU time; the HTTP API is complete. Only Python's standard
library is needed here, and `go` for what is not yet built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache",
) / "karpenter-core" / "prometheus"  # fmt: skip

MODULE = "github.com/prometheus/prometheus"
VERSION = "v0.316.0"  # of the module; the program calls itself 3.16.0
PROGRAMS = ("prometheus", "promtool")
BUILD_TAGS = "remove_all_sd,netgo"


class BuildError(Exception):
    """The programs cannot be built here."""


def main() -> int:
    """Build what is missing and print the folder."""
    try:
        print(build())
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


def programs_folder() -> Path:
    """Return the folder that holds the programs, once they are built."""
    return CACHE / VERSION


def build() -> Path:
    """Build each program unless it is there already; return their folder.

    Raises:
        BuildError: there is no `go` to build a missing one with.
    """
    folder = programs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        if (folder / name).exists():
            continue
        if shutil.which("go") is None:
            raise BuildError(
                f"{name} is not in {folder}, and there is no `go` to build it with (the Go version is "
                f"in {HERE / 'go.mod'})"
            )
        begun = time.monotonic()
        print(f"building {name} {VERSION} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            target = Path(scratch) / name
            command = ["go", "build", "-trimpath", "-buildvcs=false", f"-tags={BUILD_TAGS}"]
            command += ["-ldflags=-s -w", "-o", str(target), f"{MODULE}/cmd/{name}"]
            flags = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
            subprocess.run(command, cwd=HERE, env=os.environ | flags, check=True)
            target.rename(folder / name)
        print(f"  {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
