#!/usr/bin/env python3
"""Builds Helm from a pinned Go module, once, into `~/.cache/karpenter-core/helm/<version>/`.

The folder `helm` beside this file is a small Go module which only pins what is built; its `go.sum`
vouches for every byte.

    python build_helm.py               build it if it is missing, print its folder
    python build_helm.py --regenerate  write go.mod and go.sum anew after changing the version (network)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e" / "controlplane"))

from build import CACHE, BuildError, build, write_module  # noqa: E402 - in the folder above

VERSION = "v4.3.1"
MODULE = "helm.sh/helm/v4"
COMMAND = f"{MODULE}/cmd/helm"
FOLDER = CACHE.parent / "helm" / VERSION


def main() -> int:
    """Build, or regenerate the module."""
    if "--regenerate" in sys.argv[1:]:
        write_module(HERE / "helm", [f"require {MODULE} {VERSION}"], [COMMAND])
        return 0
    flags = [f"-X {MODULE}/internal/version.version={VERSION}"]
    try:
        build(HERE / "helm", FOLDER, {"helm": COMMAND}, link_flags=flags)
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f"build_helm.py: {error}", file=sys.stderr)
        return 1
    print(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
