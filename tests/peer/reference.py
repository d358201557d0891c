"""The reference as a program: build `reference/`, and ask it about clusters.

The program is kept under `~/.cache/karpenter-core/peer/`, by a digest of its sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).parent / "reference"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "karpenter-core"


def build():
    """Build the program unless it is there; return its path."""
    sources = [MODULE / name for name in ("go.mod", "go.sum", "main.go")]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    program = CACHE / "peer" / digest / "reference"
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise RuntimeError(f"no `go` to build the reference with (see {MODULE / 'go.mod'})")
    sys.stderr.write("building the reference ...\n")
    program.parent.mkdir(parents=True, exist_ok=True)
    scratch = program.with_suffix(f".{os.getpid()}")
    ended = subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(scratch), "."],
        cwd=MODULE,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOWORK": "off"},
        check=False,
    )
    if ended.returncode:
        raise RuntimeError("the reference cannot be built")
    scratch.rename(program)
    return program


class Reference:
    """A running program that answers one document after the other."""

    def __init__(self):
        self._process = subprocess.Popen(
            [str(build())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"GOMAXPROCS": "1"},
        )

    def ask(self, cluster, types, *, runs=1, name=""):
        """Return the plans of so many runs; ties are broken by chance in each."""
        document = {"name": name, "cluster": cluster, "instanceTypes": types, "runs": runs}
        print(json.dumps(document), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name}: the reference has ended")
        return json.loads(line)["runs"]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
