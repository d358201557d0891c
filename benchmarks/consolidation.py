"""Consolidation on a real control plane: how long until a cluster that has shrunk is quiet again.

    python -m benchmarks.consolidation                      1,000 pods become 700
    python -m benchmarks.consolidation --story cycle        500 mixed pods, up and down: API calls
    python -m benchmarks.consolidation --story idle         CPU of a controller that has nothing to do
    python -m benchmarks.consolidation --peer ./controller --crds FOLDER     another controller

The first story: half of the pods ask for 900m and 3100Mi, half for 3500m and 28Gi, on demand, on
instances below 32 CPUs, consolidateAfter 30s, a budget of 100 %. When all run, both Deployments
shrink to 350. Quiet means that no node has come or gone for `--quiet` seconds; those do not count.
What decisions cost by themselves is measured by `benchmarks/whatif.py` (gates W1, W2, M1).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.scale_up import (
    USER,
    Prices,
    add_control_plane_arguments,
    audited,
    bound,
    count_calls,
    create,
    install,
    labels,
    offering_of,
    pool_is_ready,
    read_prices,
    start_of,
    total,
    until,
    with_catalogue,
)
from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, ZONE
from karpenter_core.kube import resources
from karpenter_core.testing.cluster import ClusterClient, ClusterMirror
from karpenter_core.testing.scenarios import InitialObjects, ScenarioDeployment, ScenarioNodePool
from tests.support.local_clusters import RealLocalCluster
from tests.support.runner import NODE_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.processes import ChildProcess

LIMIT_SECONDS: Final = 1800
POLL_SECONDS: Final = 0.5
LARGEST_CPU: Final = 32
INSTANCE_CPU: Final = "karpenter.kwok.sh/instance-cpu"
BUDGET: Final = [{"nodes": "100%"}]
CONSOLIDATING: Final = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "30s",
    "budgets": BUDGET,
}
NEVER: Final = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
WHEN_EMPTY: Final = {
    "consolidationPolicy": "WhenEmpty",
    "consolidateAfter": "0s",
    "budgets": BUDGET,
}


@dataclass(kw_only=True)
class ConsolidationReport:
    """The figures of a story."""

    story: str
    up_seconds: float = 0.0
    """Until all pods had a node."""
    nodes_before: int = 0
    price_before: float = 0.0
    quiet_seconds: float = 0.0
    """From the change until the last node came or went."""
    nodes_after: int = 0
    price_after: float = 0.0
    commands: int = 0
    """Commands that disrupted nodes, by the controller's own count."""
    cpu_seconds: float = 0.0
    """Of the controller, from the change on (idle: mean cores)."""
    peak_mib: float = 0.0
    calls: dict[str, int] = field(default_factory=dict[str, int])
    calls_by_resource: dict[str, int] = field(default_factory=dict[str, int])


class ConsolidationBench:
    """A control plane with a controller and what can be seen of it."""

    def __init__(
        self,
        local_cluster: RealLocalCluster,
        client: ClusterClient,
        mirror: ClusterMirror,
        controller: ChildProcess,
        prices: Prices,
    ) -> None:
        self.local_cluster = local_cluster
        self.client = client
        self.mirror = mirror
        self.controller = controller
        self._prices = prices

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of NodePools."""
        return [n for n in self.mirror.objects(resources.NODES) if NODE_POOL in labels(n)]

    @property
    def price(self) -> float:
        """The price of the nodes per hour."""
        return sum(self._prices[offering_of(node)] for node in self.nodes)

    async def scale(self, name: str, replicas: int) -> None:
        """Change a Deployment."""
        await self.client.patch(resources.DEPLOYMENTS, name, {"spec": {"replicas": replicas}})

    async def all_bound(self, count: int) -> None:
        """Wait until so many pods have nodes, and no others are left."""
        await until(
            lambda: bound(self.mirror) == count == len(self.mirror.objects(resources.PODS)),
            self.controller,
        )

    async def quiet(self, seconds: float) -> float:
        """Wait until nodes have neither come nor gone for a while; return when the last one did."""
        loop = asyncio.get_running_loop()
        begun = changed = loop.time()
        seen: object = None
        while loop.time() - changed < seconds:
            if loop.time() - begun > LIMIT_SECONDS:
                raise TimeoutError(f"not quiet after {LIMIT_SECONDS} s")
            names = sorted(
                (node["metadata"]["name"], bool(node["spec"].get("taints"))) for node in self.nodes
            )
            if names != seen:
                seen, changed = names, loop.time()
            await asyncio.sleep(POLL_SECONDS)
        return changed - begun


async def shrink(bench: ConsolidationBench, options: argparse.Namespace) -> ConsolidationReport:
    """1,000 pods of two sizes become 700."""
    begun = asyncio.get_running_loop().time()
    half = options.pods // 2
    for name, cpu, memory in (("small", "900m", "3100Mi"), ("large", "3500m", "28Gi")):
        await create(
            bench.client,
            ScenarioDeployment(name=name, replicas=half, cpu=cpu, memory=memory).manifest(),
        )
    await bench.all_bound(2 * half)
    report = ConsolidationReport(
        story="shrink", up_seconds=asyncio.get_running_loop().time() - begun
    )
    await bench.quiet(options.quiet)
    report.nodes_before, report.price_before = len(bench.nodes), bench.price
    cpu_before = bench.controller.cpu_seconds()
    calls_before = len(await audited(bench.local_cluster))
    for name in ("small", "large"):
        await bench.scale(name, half * 7 // 10)
    report.quiet_seconds = await bench.quiet(options.quiet)
    report.nodes_after, report.price_after = len(bench.nodes), bench.price
    report.cpu_seconds = bench.controller.cpu_seconds() - cpu_before
    report.peak_mib = bench.controller.peak_memory_bytes() / 2**20
    report.calls = count_calls((await audited(bench.local_cluster))[calls_before:])
    return report


async def cycle(bench: ConsolidationBench, options: argparse.Namespace) -> ConsolidationReport:
    """500 mixed pods come and go, and their nodes with them."""
    cpu_before = bench.controller.cpu_seconds()
    calls_before = len(await audited(bench.local_cluster))
    begun = asyncio.get_running_loop().time()
    deployments = list(mixed(options.pods))
    for deployment in deployments:
        await create(bench.client, deployment.manifest())
    await bench.all_bound(sum(deployment.replicas for deployment in deployments))
    report = ConsolidationReport(
        story="cycle", up_seconds=asyncio.get_running_loop().time() - begun
    )
    report.nodes_before, report.price_before = len(bench.nodes), bench.price
    for deployment in deployments:
        await bench.scale(deployment.name, 0)
    begun = asyncio.get_running_loop().time()
    await until(lambda: not bench.nodes and not bench.mirror.objects(NODE_CLAIMS))
    report.quiet_seconds = asyncio.get_running_loop().time() - begun
    report.cpu_seconds = bench.controller.cpu_seconds() - cpu_before
    report.peak_mib = bench.controller.peak_memory_bytes() / 2**20
    made = (await audited(bench.local_cluster))[calls_before:]
    report.calls = count_calls(made)
    report.calls_by_resource = dict(Counter(map(_named, made)).most_common())
    return report


def _named(event: dict[str, Any]) -> str:
    """Name a call by verb, resource and subresource; refused ones say so."""
    about = event.get("objectRef", {})
    name = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
    code = int(event.get("responseStatus", {}).get("code", 0))
    return f"{event['verb']} {name}" + (f" ({code})" if code >= 400 else "")


async def idle(bench: ConsolidationBench, options: argparse.Namespace) -> ConsolidationReport:
    """Nodes with one pod each, and then nothing happens."""
    keeper = ScenarioDeployment(
        name="keeper", replicas=options.pods, cpu="100m", memory="64Mi", pod=_alone("keeper")
    )
    begun = asyncio.get_running_loop().time()
    await create(bench.client, keeper.manifest())
    await bench.all_bound(options.pods)
    report = ConsolidationReport(story="idle", up_seconds=asyncio.get_running_loop().time() - begun)
    await bench.quiet(options.quiet)
    report.nodes_before = report.nodes_after = len(bench.nodes)
    report.price_before = report.price_after = bench.price
    cpu_before = bench.controller.cpu_seconds()
    await asyncio.sleep(options.idle)
    report.cpu_seconds = (bench.controller.cpu_seconds() - cpu_before) / options.idle
    report.peak_mib = bench.controller.peak_memory_bytes() / 2**20
    return report


def mixed(pods: int) -> Iterator[ScenarioDeployment]:
    """Eight Deployments of eight sizes, some with wishes about where they run."""
    each = pods // 8
    sizes = (
        ("100m", "256Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"),
        ("1500m", "3Gi"), ("2", "4Gi"), ("3", "6Gi"), ("4", "8Gi"),
    )  # fmt: skip
    for number, (cpu, memory) in enumerate(sizes):
        name = f"mixed-{number}"
        replicas = each if number else pods - 7 * each
        yield ScenarioDeployment(
            name=name, replicas=replicas, cpu=cpu, memory=memory, pod=_constraints(number, name)
        )


def _constraints(number: int, name: str) -> dict[str, Any]:
    match number:
        case 0 | 1:
            return _spread(name, ZONE, "DoNotSchedule")
        case 2:
            return _spread(name, "kubernetes.io/hostname", "ScheduleAnyway")
        case 3:
            return {"nodeSelector": {CAPACITY_TYPE: "on-demand"}}
        case 4:
            term = {"key": ZONE, "operator": "In", "values": ["test-zone-a", "test-zone-b"]}
            required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            return {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                }
            }
        case _:
            return {}


def _spread(name: str, key: str, when_unsatisfiable: str) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {"topologySpreadConstraints": [constraint]}


def _alone(name: str) -> dict[str, Any]:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


STORIES: Final = {"shrink": shrink, "cycle": cycle, "idle": idle}
PODS: Final = {"shrink": 1000, "cycle": 500, "idle": 1000}
DISRUPTION: Final = {"shrink": CONSOLIDATING, "cycle": WHEN_EMPTY, "idle": CONSOLIDATING}


async def measure(options: argparse.Namespace) -> ConsolidationReport:
    """Play one story on a fresh control plane."""
    prices = read_prices(options.catalogue)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        local_cluster = await stack.enter_async_context(
            RealLocalCluster(options.kubernetes, audited_users=[USER])
        )
        client = await stack.enter_async_context(ClusterClient(local_cluster.kubeconfig))
        await install(client, options.crds)
        requirements = [
            {"key": CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
            {"key": INSTANCE_CPU, "operator": "Lt", "values": [str(LARGEST_CPU)]},
        ]
        pool = ScenarioNodePool(
            name="general",
            disruption=DISRUPTION[options.story],
            requirements=[] if options.story == "cycle" else requirements,
        )
        for manifest in InitialObjects(node_pools=[pool]).objects():
            await create(client, manifest)
        controller = start_of(options, local_cluster.control_plane.write_kubeconfig(USER), folder)
        await controller.start()
        stack.push_async_callback(controller.stop)
        await controller.ready(lambda: pool_is_ready(client), seconds=60)
        kinds = [resources.PODS, resources.NODES, NODE_CLAIMS]
        mirror = await stack.enter_async_context(ClusterMirror(client, kinds))
        bench = ConsolidationBench(local_cluster, client, mirror, controller, prices)
        report = await STORIES[options.story](bench, options)
        if options.keep_log is not None:
            options.keep_log.write_bytes(controller.log.read_bytes())
        report.commands = controller.log.read_text(errors="replace").count("disrupting node(s)")
        return report


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--story", choices=sorted(STORIES), default="shrink")
    parser.add_argument("--pods", type=int, help="how many; default by story")
    parser.add_argument("--quiet", type=float, default=120.0, help="seconds without a change")
    parser.add_argument("--idle", type=float, default=120.0, help="seconds to look at an idle one")
    add_control_plane_arguments(parser)
    parser.add_argument("--keep-log", type=Path, help="copy the controller's log here")
    options = parser.parse_args()
    options.pods = options.pods or PODS[options.story]
    return options


def main() -> None:
    """Play a story and print what it showed."""
    options = parse_arguments()
    with with_catalogue(options):
        report = asyncio.run(measure(options))
    print(json.dumps(asdict(report) | {"all_calls": total(report.calls)}, indent=2))


if __name__ == "__main__":
    main()
