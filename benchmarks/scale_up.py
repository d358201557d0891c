"""Scale one Deployment up on a real control plane and measure what a node autoscaler makes of it.

For each number of replicas (1 CPU and 1Gi each): when the first and the last NodeClaim appear, when
every pod is bound, how many nodes there are and what they cost an hour, the controller's CPU time
and peak memory, its API calls by verb (out of the API server's audit log, so counted alike for every
controller), and how long the removal of everything takes. Every run has a control plane of its own.

    make bench                                      karpenter-core
    make bench ARGS="--peer ./controller --crds D"  another controller on the same terms

A peer is started with the environment variables of Karpenter's kwok controller (KUBECONFIG,
DISABLE_LEADER_ELECTION, METRICS_PORT, HEALTH_PROBE_PORT, INSTANCE_TYPES_FILE_PATH). `--crds` names
folders with the CRDs that it needs, in place of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console
from rich.table import Table

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.kube import resources
from karpenter_core.testing.cluster import ClusterClient, ClusterMirror
from karpenter_core.testing.scenarios import InitialObjects, ScenarioDeployment, ScenarioNodePool
from tests.support.controller import ControllerProcess
from tests.support.local_clusters import RealLocalCluster
from tests.support.processes import ChildProcess, free_ports, wait_until
from tests.support.runner import NODE_CLAIMS, NODE_POOLS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

ROOT = Path(__file__).resolve().parents[1]
USER = "karpenter"
LIMIT_SECONDS = 900
POLL_SECONDS = 0.05
AUDIT_FLUSH_SECONDS = 1.5
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}

Prices = dict[tuple[str, str, str], float]
"""By instance type, zone and capacity type, an hour."""


@dataclass(kw_only=True)
class ScaleUpResult:
    """The figures of one run; seconds count from the creation of the Deployment."""

    pods: int
    first_claim_seconds: float
    last_claim_seconds: float
    all_bound_seconds: float
    nodes: int
    price_per_hour: float
    cpu_seconds: float
    peak_mib: float
    calls: dict[str, int] = field(default_factory=dict)
    """API calls by verb until all pods were bound."""
    removal_seconds: float = 0.0
    removal_calls: dict[str, int] = field(default_factory=dict)

    @property
    def calls_per_node(self) -> float:
        """Writes and reads, watches not counted, for each node brought up."""
        return total(self.calls) / max(1, self.nodes)


def total(calls: dict[str, int]) -> int:
    """Sum up calls that are answered and done with."""
    return sum(count for verb, count in calls.items() if verb != "watch")


@dataclass(slots=True)
class BenchCluster:
    """A control plane with one controller, which has found its NodePool ready."""

    local_cluster: RealLocalCluster
    client: ClusterClient
    mirror: ClusterMirror
    controller: ChildProcess


@asynccontextmanager
async def fresh_cluster(
    options: argparse.Namespace, disruption: dict[str, Any]
) -> AsyncGenerator[BenchCluster]:
    """Run the controller that the options name on a control plane of its own, and end both."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        local_cluster = await stack.enter_async_context(
            RealLocalCluster(options.kubernetes, audited_users=[USER])
        )
        client = await stack.enter_async_context(ClusterClient(local_cluster.kubeconfig))
        await install(client, options.crds)
        pool = ScenarioNodePool(name="general", disruption=disruption)
        for manifest in InitialObjects(node_pools=[pool]).objects():
            await create(client, manifest)
        controller = start_of(options, local_cluster.control_plane.write_kubeconfig(USER), folder)
        await controller.start()
        stack.push_async_callback(controller.stop)
        await controller.ready(lambda: pool_is_ready(client), seconds=60)
        kinds = [resources.PODS, resources.NODES, NODE_CLAIMS]
        mirror = await stack.enter_async_context(ClusterMirror(client, kinds))
        yield BenchCluster(local_cluster, client, mirror, controller)


async def measure(replicas: int, options: argparse.Namespace, prices: Prices) -> ScaleUpResult:
    """Run once, on a fresh control plane."""
    async with fresh_cluster(options, NEVER) as cluster:
        before = await audited(cluster.local_cluster)
        result = await scale_up(
            cluster.client, cluster.mirror, cluster.controller, replicas, prices
        )
        up = await audited(cluster.local_cluster)
        result.removal_seconds = await remove_all(cluster.client, cluster.mirror)
        result.calls = count_calls(up[len(before) :])
        result.removal_calls = count_calls((await audited(cluster.local_cluster))[len(up) :])
        return result


async def scale_up(
    client: ClusterClient,
    mirror: ClusterMirror,
    controller: ChildProcess,
    replicas: int,
    prices: Prices,
) -> ScaleUpResult:
    """Create the Deployment and wait until every pod has a node."""
    begun = asyncio.get_running_loop().time()
    cpu = controller.cpu_seconds()
    await create(client, ScenarioDeployment(name="web", replicas=replicas).manifest())
    await until(lambda: bound(mirror) == replicas, controller)
    all_bound = asyncio.get_running_loop().time() - begun
    claims = [record.first_seen - begun for record in mirror.ever(NODE_CLAIMS)]
    nodes = [node for node in mirror.objects(resources.NODES) if NODE_POOL in labels(node)]
    return ScaleUpResult(
        pods=replicas,
        first_claim_seconds=min(claims),
        last_claim_seconds=max(claims),
        all_bound_seconds=all_bound,
        nodes=len(nodes),
        price_per_hour=sum(prices[offering_of(node)] for node in nodes),
        cpu_seconds=controller.cpu_seconds() - cpu,
        peak_mib=controller.peak_memory_bytes() / 2**20,
    )


async def remove_all(client: ClusterClient, mirror: ClusterMirror) -> float:
    """Delete the Deployment, then the NodeClaims; return how long until no node is left.

    In this order: a pod that a drain evicts from under a living Deployment comes back, and gets
    another node.
    """
    begun = asyncio.get_running_loop().time()
    await client.delete(resources.DEPLOYMENTS, "web")
    await until(lambda: not mirror.objects(resources.PODS))
    for claim in mirror.objects(NODE_CLAIMS):
        await client.delete(NODE_CLAIMS, claim["metadata"]["name"])
    kinds = (resources.PODS, resources.NODES, NODE_CLAIMS)
    await until(lambda: not any(mirror.objects(kind) for kind in kinds))
    return asyncio.get_running_loop().time() - begun


async def until(check: Callable[[], bool], controller: ChildProcess | None = None) -> None:
    """Look often, but not at every event: the machine has other work to do."""

    async def holds() -> bool:
        return check()

    if controller is None:
        await wait_until(holds, seconds=LIMIT_SECONDS, interval_seconds=POLL_SECONDS)
    else:
        await controller.ready(holds, seconds=LIMIT_SECONDS)


def start_of(options: argparse.Namespace, kubeconfig: Path, folder: Path) -> ChildProcess:
    """Return the controller under test, not started yet."""
    if options.peer is None:
        flags = {
            "providers": "kwok",
            "disable-leader-election": "true",
            "instance-types-file": str(options.catalogue),
            "kwok-state-file": str(folder / "cloud.sqlite3"),
        }
        return ControllerProcess(
            "karpenter-core",
            kubeconfig=kubeconfig,
            folder=folder,
            options=flags,
            environment=os.environ,
        ).process
    metrics, probe = free_ports(2)
    return ChildProcess(
        "peer",
        [options.peer],
        log=folder / "peer.log",
        environment={
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(metrics),
            "HEALTH_PROBE_PORT": str(probe),
            "INSTANCE_TYPES_FILE_PATH": str(options.catalogue),
            "SYSTEM_NAMESPACE": "kube-system",
        },
    )


async def install(client: ClusterClient, folders: list[Path]) -> None:
    """Create the CRDs of these folders and wait until they are served."""
    kind = resources.CUSTOM_RESOURCE_DEFINITIONS
    paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    for path in paths:
        await client.create(kind, yaml.safe_load(path.read_text()))

    async def served() -> bool:
        crds = await client.list(kind)
        conditions = [crd.get("status", {}).get("conditions") or [] for crd in crds]
        good = ("Established", "True")
        return all(any((c["type"], c["status"]) == good for c in each) for each in conditions)

    await wait_until(served, seconds=30)


async def create(client: ClusterClient, manifest: dict[str, Any]) -> None:
    """Create an object by its kind."""
    from tests.support.runner import KINDS

    await client.create(KINDS[manifest["kind"]], manifest)


async def pool_is_ready(client: ClusterClient) -> bool:
    """Tell whether the controller has found the NodePool good."""
    pools = await client.list(NODE_POOLS)
    conditions = pools[0].get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def bound(mirror: ClusterMirror) -> int:
    """Count pods that have a node."""
    return sum("nodeName" in pod["spec"] for pod in mirror.objects(resources.PODS))


def labels(node: dict[str, Any]) -> dict[str, str]:
    """Return a node's labels."""
    return node["metadata"].get("labels") or {}


def offering_of(node: dict[str, Any]) -> tuple[str, str, str]:
    """Return what a node was bought as."""
    found = labels(node)
    return found[INSTANCE_TYPE], found[ZONE], found[CAPACITY_TYPE]


async def audited(local_cluster: RealLocalCluster) -> list[dict[str, Any]]:
    """Return the requests that the controller has made so far, those for leases left out."""
    await asyncio.sleep(AUDIT_FLUSH_SECONDS)
    events = [
        json.loads(line) for line in local_cluster.control_plane.audit_log.read_text().splitlines()
    ]
    return [event for event in events if resource_of(event) != "leases"]


def resource_of(event: dict[str, Any]) -> str:
    """Return what a request was about."""
    return str(event.get("objectRef", {}).get("resource", ""))


def count_calls(events: list[dict[str, Any]]) -> dict[str, int]:
    """Count requests by verb; those that write Events stand for themselves."""
    calls = Counter(
        "event" if resource_of(event) == "events" else str(event["verb"]) for event in events
    )
    return dict(sorted(calls.items()))


def count_answers(events: list[dict[str, Any]]) -> dict[str, int]:
    """Count requests by verb, resource and status of the answer, the most frequent ones first."""
    answers = Counter(
        f"{event['verb']} {_resource_path(event)} {event.get('responseStatus', {}).get('code', 0)}"
        for event in events
    )
    return dict(answers.most_common())


def _resource_path(event: dict[str, Any]) -> str:
    subresource = event.get("objectRef", {}).get("subresource", "")
    return f"{resource_of(event)}/{subresource}" if subresource else resource_of(event)


def read_prices(catalogue: Path) -> Prices:
    """Return the price of every offering of a catalogue file."""
    prices: Prices = {}
    for instance_type in json.loads(catalogue.read_text()):
        for offering in instance_type["offerings"]:
            values = {each["key"]: each["values"][0] for each in offering["Requirements"]}
            key = (instance_type["name"], values[ZONE], values[CAPACITY_TYPE])
            prices[key] = float(offering["Price"])
    return prices


def median(results: list[ScaleUpResult]) -> dict[str, Any]:
    """Return the median of every figure over the runs of one size."""
    rows = [asdict(result) | {"calls_per_node": result.calls_per_node} for result in results]
    merged: dict[str, Any] = {}
    for name, value in rows[0].items():
        if isinstance(value, dict):
            verbs = sorted({verb for row in rows for verb in row[name]})
            merged[name] = {
                verb: statistics.median(row[name].get(verb, 0) for row in rows) for verb in verbs
            }
        else:
            merged[name] = round(statistics.median(row[name] for row in rows), 3)
    return merged


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print the table."""
    table = Table(title=title, title_justify="left")
    headings = ("pods", "first / last claim s", "all bound s", "nodes", "price/h", "CPU s")
    for heading in (*headings, "peak MiB", "removal s", "calls", "calls/node", "by verb"):
        table.add_column(heading, justify="left" if heading == "by verb" else "right")
    for row in rows:
        verbs = ", ".join(f"{verb} {count:g}" for verb, count in row["calls"].items())
        table.add_row(
            f"{row['pods']:g}",
            f"{row['first_claim_seconds']:.1f} / {row['last_claim_seconds']:.1f}",
            f"{row['all_bound_seconds']:.1f}",
            f"{row['nodes']:g}",
            f"{row['price_per_hour']:.2f}",
            f"{row['cpu_seconds']:.2f}",
            f"{row['peak_mib']:.0f}",
            f"{row['removal_seconds']:.1f}",
            f"{total(row['calls']):g}",
            f"{row['calls_per_node']:.1f}",
            verbs,
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def add_control_plane_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which controller runs on which control plane."""
    parser.add_argument("--kubernetes", default="1.36", help="minor of the control plane")
    parser.add_argument("--peer", type=Path, help="another controller's binary")
    parser.add_argument("--crds", type=Path, nargs="+", default=[ROOT / "crds"], metavar="FOLDER")
    parser.add_argument("--catalogue", type=Path, help="instance types (JSON); default: shipped")


@contextmanager
def with_catalogue(options: argparse.Namespace) -> Generator[None]:
    """Give options without a catalogue the shipped one, in a file that is there meanwhile."""
    with tempfile.TemporaryDirectory(prefix="catalogue-") as folder:
        if options.catalogue is None:
            options.catalogue = Path(folder) / "catalogue.json"
            shipped = [sys.executable, "-m", "karpenter_provider_kwok", "catalogue"]
            options.catalogue.write_bytes(subprocess.check_output(shipped))
        yield


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[50, 500, 3000], metavar="N")
    parser.add_argument("--runs", type=int, default=3, help="runs of each size; the median counts")
    add_control_plane_arguments(parser)
    parser.add_argument("--json", type=Path, help="write all results to this file too")
    return parser.parse_args()


async def run_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every size and return the medians."""
    prices = read_prices(options.catalogue)
    rows: list[dict[str, Any]] = []
    for pods in options.pods:
        results: list[ScaleUpResult] = []
        for number in range(1, options.runs + 1):
            results.append(await measure(pods, options, prices))
            print(f"{pods} pods, run {number}: {results[-1]}", file=sys.stderr, flush=True)
        rows.append(median(results))
    return rows


def main() -> None:
    """Measure, print the table, then the same as JSON."""
    options = parse_arguments()
    with with_catalogue(options):
        rows = asyncio.run(run_all(options))
    name = "karpenter-core" if options.peer is None else options.peer.name
    show(rows, f"{name}, Kubernetes {options.kubernetes}, median of {options.runs}")
    report = {
        "controller": name,
        "kubernetes": options.kubernetes,
        "runs": options.runs,
        "at": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "results": rows,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
