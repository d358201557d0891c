"""Memory of a whole controller beside a large cluster that it has built itself (gate M1).

The pods are Deployments of eight sizes with what pods usually carry: variables, limits, spread over
zones for some. Instances are bound to one size of CPU, which sets how many nodes there are. When all
pods run, consolidation looks at the nodes for a while; then memory is read: what is resident, and
the most that ever was (VmHWM of Linux).

    python -m benchmarks.footprint                  1,000 nodes, 30,000 pods; the gate is 400 MiB
    python -m benchmarks.footprint --size large     5,000 nodes, 50,000 pods; the gate is 700 MiB
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.scale_up import create, install
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.kube import resources
from karpenter_core.testing.cluster import ClusterClient, ClusterMirror
from karpenter_core.testing.scenarios import InitialObjects, ScenarioDeployment, ScenarioNodePool
from tests.support.controller import ControllerProcess
from tests.support.local_clusters import EmbeddedLocalCluster

__all__ = ["SIZES", "ClusterSize", "Footprint", "measure"]

ROOT: Final = Path(__file__).resolve().parents[1]
LIMIT_SECONDS: Final = 3600.0
CONSOLIDATING: Final = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "30s",
    "budgets": [{"nodes": "1"}],
}
"""Everything is looked at; little is moved."""
MEMORY_PER_CPU_GIB: Final = 2
ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """A cluster: its pods, the CPUs of its instances, and what the controller may need."""

    pods: int
    pod_cpu_milli: int
    machine_cpu: int
    gate_mib: float


SIZES: Final = {
    "tiny": ClusterSize(400, 500, 16, 400.0),
    "small": ClusterSize(30_000, 500, 16, 400.0),
    "large": ClusterSize(50_000, 1500, 16, 700.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The resources that one controller needed."""

    pods: int
    nodes: int
    ready_seconds: float
    resident_mib: float
    """After the cluster has been looked at for a while."""
    peak_mib: float
    mean_cores: float
    """While nothing happened but looks at what might be consolidated."""


def workloads(size: ClusterSize) -> list[ScenarioDeployment]:
    """Return eight Deployments; a pod's mean CPU is the size's."""
    each = size.pods // 8
    parts = (0.25, 0.5, 0.75, 1.0, 1.0, 1.25, 1.5, 1.75)
    found: list[ScenarioDeployment] = []
    for number, part in enumerate(parts):
        cpu_milli = round(size.pod_cpu_milli * part)
        found.append(
            ScenarioDeployment(
                name=f"app-{number}",
                replicas=each,
                cpu=f"{cpu_milli}m",
                memory=f"{cpu_milli * MEMORY_PER_CPU_GIB}Mi",
                pod=_spread(f"app-{number}") if number in {0, 3} else {},
            )
        )
    return found


def _spread(app: str) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"topologySpreadConstraints": [constraint]}


def _with_variables(manifest: dict[str, Any]) -> dict[str, Any]:
    """Give each container what makes real pods large."""
    for container in manifest["spec"]["template"]["spec"]["containers"]:
        container["env"] = [{"name": f"VARIABLE_{n}", "value": f"value-{n}"} for n in range(10)]
        container["resources"]["limits"] = container["resources"]["requests"]
    return manifest


async def measure(size: ClusterSize, idle_seconds: float) -> Footprint:
    """Build a cluster through the controller and weigh it."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        local_cluster = await stack.enter_async_context(EmbeddedLocalCluster())
        client = await stack.enter_async_context(ClusterClient(local_cluster.kubeconfig))
        await install(client, [ROOT / "crds"])
        sized = {
            "key": "karpenter.kwok.sh/instance-cpu",
            "operator": "In",
            "values": [str(size.machine_cpu)],
        }
        pool = ScenarioNodePool(name="general", disruption=CONSOLIDATING, requirements=[sized])
        for manifest in InitialObjects(node_pools=[pool]).objects():
            await create(client, manifest)
        controller = ControllerProcess(
            "karpenter",
            kubeconfig=local_cluster.kubeconfig,
            folder=folder,
            options={
                "providers": "kwok",
                "disable-leader-election": "true",  # the embedded server is too busy for a lease
                "kwok-state-file": str(folder / "cloud.sqlite3"),
            },
            environment=os.environ,
        )
        await controller.start()
        stack.push_async_callback(controller.process.stop)
        begun = loop.time()
        mirror = await stack.enter_async_context(
            ClusterMirror(client, [resources.PODS, resources.NODES])
        )
        deployments = workloads(size)
        for deployment in deployments:
            await create(client, _with_variables(deployment.manifest()))
        wanted = sum(deployment.replicas for deployment in deployments)

        async def all_run() -> bool:
            return _running(mirror) == wanted

        await controller.process.ready(all_run, seconds=LIMIT_SECONDS)
        ready = loop.time() - begun
        await asyncio.sleep(idle_seconds)
        cpu_before = controller.process.cpu_seconds()
        await asyncio.sleep(idle_seconds)
        return Footprint(
            pods=_running(mirror),
            nodes=len(_nodes(mirror)),
            ready_seconds=ready,
            resident_mib=controller.process.memory_bytes() / 2**20,
            peak_mib=controller.process.peak_memory_bytes() / 2**20,
            mean_cores=(controller.process.cpu_seconds() - cpu_before) / idle_seconds,
        )


def _running(mirror: ClusterMirror) -> int:
    phases = Counter(pod.get("status", {}).get("phase") for pod in mirror.objects(resources.PODS))
    return phases["Running"]


def _nodes(mirror: ClusterMirror) -> list[dict[str, Any]]:
    return [
        node
        for node in mirror.objects(resources.NODES)
        if NODE_POOL in node["metadata"].get("labels", {})
    ]


def main() -> None:
    """Build, weigh, print; fail when the gate is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to look at it, twice")
    options = parser.parse_args()
    size = SIZES[options.size]
    found = asyncio.run(measure(size, options.idle))
    holds = found.peak_mib < size.gate_mib
    print(json.dumps({**asdict(found), "gate_mib": size.gate_mib, "holds": holds}, indent=2))
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
