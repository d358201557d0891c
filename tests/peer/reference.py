"""Builds the reference program and asks it for plans.

Built and kept like the peer of the benchmarks.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from benchmarks.peer import build

MODULE = Path(__file__).parent / "reference"


class Reference:
    """A running program that answers one document after the other."""

    def __init__(self):
        self._process = subprocess.Popen(
            [str(build(MODULE))],
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
