"""Measures `karpenter plan --offline`: CPU time to read instance types and pods, and to plan.

    python -m benchmarks.offline_plan                          800 types; 0, 1,000 and 20,000 pods
    python -m benchmarks.offline_plan --pods 5000 --yaml       pods as `kubectl get -o yaml` writes them
    python -m benchmarks.offline_plan --runs 5

Files hold the types of the realistic catalogue and pods of the diverse mix as `kubectl get -o json` writes
pods that wait: with owner, tolerations, the volume of a service account, and status. Each run is a process of its own, started as a user starts it; the row is the run of
median CPU time. `read` and `solve` are the timings of the command's document, in seconds of wall time;
the first row, one type and no pods, is what a start costs. Karpenter has no such command to compare with.

Unset PYTHONDONTWRITEBYTECODE, or each run compiles 700 modules anew: 0.8 s of CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from benchmarks.catalogues import real
from benchmarks.mixes import diverse
from karpenter_core.api.quantities import format_amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.scheduling.instance_types import InstanceType

__all__ = ["OfflineRun", "catalogue_entries", "main", "measure", "pod_list", "write_inputs"]

PODS: Final = (0, 1000, 20000)
_PROGRAM: Final = "from karpenter_core.cli.entry import main; main()"
_MOMENT: Final = "2026-03-01T10:00:00Z"
_POOL: Final = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh",
                    "kind": "KWOKNodeClass",
                    "name": "default",
                },
                "requirements": [
                    {
                        "key": "karpenter.sh/capacity-type",
                        "operator": "In",
                        "values": ["spot", "on-demand"],
                    }
                ],
            }
        }
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRun:
    """One run of the command; CPU time of the process, wall time of its two parts."""

    cpu_seconds: float
    read_seconds: float
    solve_seconds: float
    claims: int
    pending: int


def catalogue_entries(types: Sequence[InstanceType]) -> list[dict[str, Any]]:
    """Return instance types as an instance types file holds them."""
    return [
        {
            "name": it.name,
            "architecture": next(iter(it.requirements.get("kubernetes.io/arch").values)),
            "operatingSystems": ["linux"],
            "resources": {name: format_amount(name, value) for name, value in it.capacity.items()},
            "offerings": [
                {
                    "Price": offering.price.amount,
                    "Available": offering.available,
                    "Requirements": [
                        {"key": key, "operator": "In", "values": [value]}
                        for key, value in (
                            ("karpenter.sh/capacity-type", offering.capacity_type),
                            ("topology.kubernetes.io/zone", offering.zone),
                        )
                    ],
                }
                for offering in it.offerings
            ],
        }
        for it in types
    ]


def pod_list(count: int) -> dict[str, Any]:
    """Return pods of the diverse mix that no node has room for, as a server stores them."""
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            _stored_pod(number, template.manifest())
            for number, template in enumerate(diverse(count) if count else ())
        ],
    }


def _stored_pod(number: int, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of a workload as a server stores it while the pod waits for a node."""
    labels = manifest["metadata"]["labels"]
    owner = f"app-{labels.get('my-label', number % 200)}"
    (container,) = manifest["spec"]["containers"]
    token = f"kube-api-access-{number:05d}"
    mount = {
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": token, "readOnly": True,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **manifest["metadata"],
            "name": f"{owner}-{number:05d}",
            "generateName": f"{owner}-",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": _MOMENT,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": f"rs-{owner}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            **manifest["spec"],
            "containers": [
                {
                    **container,
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "volumeMounts": [mount],
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "volumes": [{"name": token, "projected": {"defaultMode": 420, "sources": []}}],
        },
        "status": {
            "phase": "Pending",
            "qosClass": "Burstable",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "no nodes available to schedule pods",
                    "lastProbeTime": None,
                    "lastTransitionTime": _MOMENT,
                }
            ],
        },
    }


def write_inputs(folder: Path, *, pods: int, types: int, as_yaml: bool) -> tuple[Path, Path]:
    """Write the objects and the instance types of a plan; return both paths."""
    objects = folder / f"cluster-{pods}.{'yaml' if as_yaml else 'json'}"
    document = pod_list(pods)
    document["items"].insert(0, _POOL)
    if as_yaml:
        dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        without_aliases = json.loads(json.dumps(document))
        objects.write_text(yaml.dump(without_aliases, Dumper=dumper))
    else:
        objects.write_text(json.dumps(document, indent=4))
    catalogue = folder / f"types-{types}.json"
    catalogue.write_text(json.dumps(catalogue_entries(real()[:types]), indent=2))
    return objects, catalogue


def measure(objects: Path, catalogue: Path) -> OfflineRun:
    """Run the command once in a process of its own."""
    command = [sys.executable, "-c", _PROGRAM, "plan", "--offline", str(objects), "-o", "json"]
    before = os.times()
    ended = subprocess.run(
        [*command, "--instance-types-file", str(catalogue)], check=True, capture_output=True
    )
    after = os.times()
    document = json.loads(ended.stdout)
    return OfflineRun(
        cpu_seconds=after.children_user
        + after.children_system
        - before.children_user
        - before.children_system,
        read_seconds=document["timings"]["readSeconds"],
        solve_seconds=document["timings"]["solveSeconds"],
        claims=len(document["nodeClaims"]),
        pending=len(document["unschedulable"]),
    )


def _median_run(runs: Sequence[OfflineRun]) -> OfflineRun:
    middle = statistics.median_low([run.cpu_seconds for run in runs])
    return next(run for run in runs if run.cpu_seconds == middle)


def main() -> None:
    """Measure each number of pods, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=list(PODS))
    parser.add_argument("--types", type=int, default=800)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--yaml", action="store_true", help="write the pods as YAML")
    given = parser.parse_args()
    print(
        f"{'types':>6}{'pods':>7}{'MB':>8}{'CPU s':>8}{'read':>8}{'solve':>8}{'nodes':>7}{'pending':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for types, pods in ((1, 0), *((given.types, pods) for pods in given.pods)):
            objects, catalogue = write_inputs(
                Path(folder), pods=pods, types=types, as_yaml=given.yaml
            )
            run = _median_run([measure(objects, catalogue) for _ in range(given.runs)])
            print(
                f"{types:>6}{pods:>7}{objects.stat().st_size / 1e6:>8.1f}{run.cpu_seconds:>8.2f}"
                f"{run.read_seconds:>8.2f}{run.solve_seconds:>8.2f}{run.claims:>7}{run.pending:>9}",
                flush=True,
            )


if __name__ == "__main__":
    main()
