#!/usr/bin/env python3
"""Builds cosign and crane from pinned Go modules, once, into `~/.cache/karpenter-core/release/`.

The versions are those that the workflow of a release installs. cosign takes five minutes.

    python build_tools.py               build them if they are missing, print their folder
    python build_tools.py --regenerate  write go.mod and go.sum anew after changing a version (network)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e" / "controlplane"))

from build import CACHE, BuildError, build, write_module  # noqa: E402 - in the folder above

COSIGN = ("github.com/sigstore/cosign/v3", "v3.1.3")
CRANE = ("github.com/google/go-containerregistry", "v0.21.7")
COMMANDS = {"crane": f"{CRANE[0]}/cmd/crane", "cosign": f"{COSIGN[0]}/cmd/cosign"}
TOOLS = {"COSIGN": f"{COMMANDS['cosign']}@{COSIGN[1]}", "CRANE": f"{COMMANDS['crane']}@{CRANE[1]}"}
"""As the workflow names them."""
FOLDER = CACHE.parent / "release" / f"cosign-{COSIGN[1]}-crane-{CRANE[1]}"


def main() -> int:
    """Build, or regenerate the module."""
    if "--regenerate" in sys.argv[1:]:
        requirements = [f"require {module} {version}" for module, version in (COSIGN, CRANE)]
        write_module(HERE / "tools", requirements, list(COMMANDS.values()))
        return 0
    try:
        build(HERE / "tools", FOLDER, COMMANDS, link_flags=[])
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f"build_tools.py: {error}", file=sys.stderr)
        return 1
    print(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
