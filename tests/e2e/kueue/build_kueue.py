#!/usr/bin/env python3
"""Builds Kueue from its pinned Go module, and copies the CRDs that it works with, once.

The CRDs are those of Kueue's own module and of `k8s.io/autoscaler/cluster-autoscaler/apis` in the
version that Kueue is built with. The result is kept under
`~/.cache/karpenter-core/controlplane/kueue-<version>/`, as is all that `controlplane/build.py` builds.

    python build_kueue.py      build what is missing, print the folder

`go.sum` began as that of Kueue's module, which vouches for a module that the checksum database lacks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "controlplane"))

from build import CACHE, BuildError, build, go, write  # noqa: E402 - found by the line above

VERSION = "v0.19.0"
KUEUE = "sigs.k8s.io/kueue"
REQUESTS = "k8s.io/autoscaler/cluster-autoscaler/apis"
CRDS = {
    KUEUE: "config/components/crd/bases/*.yaml",
    REQUESTS: "config/crd/*provisioningrequests.yaml",
}
"""Paths of the CRDs in the modules."""


def build_kueue() -> Path:
    """Return the folder with the binary `kueue` and the folder `crds`."""
    folder = CACHE / f"kueue-{VERSION}"
    build(HERE, folder, {"kueue": f"{KUEUE}/cmd/kueue"}, link_flags=[])
    crds = folder / "crds"
    if not crds.exists():
        found = {
            path.name: path.read_text()
            for module, pattern in CRDS.items()
            for path in Path(go(HERE, "list", "-m", "-f", "{{.Dir}}", module).strip()).glob(pattern)
        }
        crds.mkdir()
        for name, text in found.items():
            write(crds / name, text)
    return folder


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build_kueue()}\n")
    except (BuildError, subprocess.CalledProcessError) as error:
        sys.exit(f"build_kueue.py: {error}")
