"""The reference scheduler as a peer: build `peer/`, a program on Karpenter's module, and run it.

Programs are kept under `~/.cache/karpenter-core/peer/`, by a digest of their sources. This one reads
documents (`BenchmarkCase.document`) and answers with one row for each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.inputs import BenchmarkCase

__all__ = ["GO_ENVIRONMENT", "PEER", "build", "run"]

PEER: Final = "Karpenter v1.14.0"
MODULE: Final = Path(__file__).parent / "peer"
GO_ENVIRONMENT: Final = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "karpenter-core"


def build(
    module: Path = MODULE, *, suite: str = "", command: str = "", link_flags: str = ""
) -> Path:
    """Build the program of a Go module, named like its folder, unless it is there; return its path.

    With `command`, the path of a package that the module requires, it is the program of this
    package; with `suite`, the one that runs its tests.

    Raises:
        RuntimeError: there is no `go`, or the build failed (its output is on stderr).
    """
    package = suite or command
    name = package.rpartition("/")[2] + ".test" * bool(suite) if package else module.name
    files = ("go.mod", "go.sum", *(() if package else ("main.go",)))
    inputs = [*((module / file).read_bytes() for file in files), (package + link_flags).encode()]
    digest = hashlib.sha256(b"".join(inputs)).hexdigest()[:12]
    program = CACHE / "peer" / digest / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise RuntimeError(
            f"no `go` to build the {name} with (its version is in {module / 'go.mod'})"
        )
    print(f"building the {name} ...", file=sys.stderr, flush=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    scratch = program.with_suffix(f".{os.getpid()}")
    ended = subprocess.run(
        [
            "go",
            *(("test", "-c") if suite else ("build",)),
            "-trimpath",
            "-buildvcs=false",
            f"-ldflags={link_flags}",
            "-o",
            str(scratch),
            package or ".",
        ],
        cwd=module,
        env=os.environ | GO_ENVIRONMENT,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"the {name} cannot be built")
    scratch.rename(program)
    return program


def run(inputs: Iterable[BenchmarkCase]) -> Iterator[dict[str, Any]]:
    """Solve problems one after the other in one process; yield a row for each.

    Raises:
        RuntimeError: the peer failed; the reason is in the message.
    """
    with subprocess.Popen(
        [str(build())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("the peer has no pipes")
        for asked in inputs:
            try:
                print(json.dumps(asked.document()), file=process.stdin, flush=True)
                yield json.loads(process.stdout.readline())
            except (BrokenPipeError, json.JSONDecodeError) as error:
                process.kill()
                raise RuntimeError(f"{asked.case}: {process.stderr.read().strip()}") from error
        process.stdin.close()
