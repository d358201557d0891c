"""Time `karpenter simulate`: a day of a cluster whose load rises and falls.

Pods of half a core run on nodes of four cores. Their number follows a wave between 85 % and 100 % of what
the nodes take, so that nodes are launched and consolidated all day.

    .venv/bin/python -m benchmarks.simulate --nodes 1000 --hours 24
    .venv/bin/python -m benchmarks.simulate --nodes 100 --hours 2 --json

Real seconds depend on other work of the computer; CPU seconds hardly do.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from karpenter_core.cli.manifests import ManifestEntry
from karpenter_core.cli.simulate.document import simulation_document
from karpenter_core.cli.simulate.run import simulate
from karpenter_core.cli.simulate.scenario import SimulationScenario
from karpenter_core.cli.simulate.workload import ReplicaChange, ScaledDeployment, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.run import Progress

PODS_PER_NODE = 7
"""Half a core each, on four cores less what the system takes."""
HOUR = 3600.0
STEPS = 24
"""Changes of the number of replicas in a day: one an hour."""


def scenario(nodes: int, hours: float) -> SimulationScenario:
    """Return the input: about so many nodes at the peak."""
    pool: JsonObject = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": "default",
                    },
                    "requirements": [
                        _one_of("karpenter.sh/capacity-type", "on-demand"),
                        _one_of("karpenter.kwok.sh/instance-cpu", "4"),
                    ],
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "5m",
            },
        },
    }
    node_class: JsonObject = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {},
    }
    most = nodes * PODS_PER_NODE
    changes = tuple(_wave(most, hours))
    deployment: JsonObject = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": changes[0].replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [
                        {
                            "name": "web",
                            "image": "web",
                            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                        }
                    ]
                },
            },
        },
    }
    scaled = ScaledDeployment(namespace="default", name="web", where="benchmark", changes=changes)
    return SimulationScenario(
        name=f"{nodes} nodes",
        manifests=(_entry(node_class), _entry(pool)),
        workload=Workload(manifests=(_entry(deployment),), deployments=(scaled,)),
        start=datetime(2030, 1, 1, tzinfo=UTC),
        duration=hours * HOUR,
        step=min(HOUR / 4, hours * HOUR),
    )


def _wave(most: int, hours: float) -> Sequence[ReplicaChange]:
    least = round(most * 0.85)
    count = max(1, round(hours * STEPS / 24))
    half = max(1, count / 2)
    levels = [1 - abs(number - half) / half for number in range(count)]
    return [
        ReplicaChange(number * hours * HOUR / count, least + round((most - least) * level))
        for number, level in enumerate(levels)
    ]


def _one_of(key: str, value: str) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": [value]}


def _entry(manifest: JsonObject) -> ManifestEntry:
    return ManifestEntry(where="benchmark", manifest=manifest)


def main() -> None:
    """Run one simulation and print its figures."""
    parser = argparse.ArgumentParser(description="Time a simulated day.")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes at the peak")
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--verbose", action="store_true", help="tell how far it has got")
    options = parser.parse_args()
    real, cpu = time.perf_counter(), time.process_time()

    def tell(progress: Progress) -> None:
        if options.verbose:
            used = time.process_time() - cpu
            line = f"{progress.seconds / HOUR:6.2f} h  {progress.level.nodes:5.0f} nodes  {used:7.1f} s"
            print(line, file=sys.stderr, flush=True)

    result = simulate(scenario(options.nodes, options.hours), tell)
    figures = {
        "nodes": options.nodes,
        "hours": options.hours,
        "seconds": round(time.perf_counter() - real, 1),
        "cpuSeconds": round(time.process_time() - cpu, 1),
        "peakRssMib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    document = simulation_document(result)
    figures |= {
        "meanNodes": document["nodes"]["mean"],
        "launched": document["nodes"]["launched"],
        "removed": document["nodes"]["removed"],
        "evicted": document["pods"]["evicted"],
        "pods": document["pods"]["mean"],
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:12} {value}")


if __name__ == "__main__":
    main()
