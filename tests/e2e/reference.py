"""Runs Karpenter's own controller, with its kwok provider, built from its module.

python -m tests.e2e.reference    build it, if it is not there, and print its path
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from benchmarks.peer import build
from tests.support.processes import ChildProcess, free_ports

__all__ = ["reference_controller", "reference_program"]

MODULE: Final = Path(__file__).parent / "upstream" / "suite"
PACKAGE: Final = "sigs.k8s.io/karpenter/kwok"
GATES: Final = "StaticCapacity=true,NodeOverlay=true"


def reference_program() -> Path:
    """Return the path of the program, built if it is not there."""
    return build(MODULE, command=PACKAGE, link_flags="-s -w")


def reference_controller(
    kubeconfig: Path, folder: Path, catalogue: Path, *, name: str
) -> ChildProcess:
    """Return Karpenter's kwok controller, not started yet."""
    metrics, probe = free_ports(2)
    return ChildProcess(
        name,
        [str(reference_program())],
        log=folder / f"{name}.log",
        environment={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(metrics),
            "HEALTH_PROBE_PORT": str(probe),
            "INSTANCE_TYPES_FILE_PATH": str(catalogue),
            "SYSTEM_NAMESPACE": "kube-system",
            "FEATURE_GATES": GATES,
        },
    )


if __name__ == "__main__":
    print(reference_program())  # noqa: T201
