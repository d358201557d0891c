"""Counts the calls of a controller: at its start, for launches, and in an idle hour.

The whole controller runs in virtual time, with the real provider and its SDK against the provider's
simulated cloud on 127.0.0.1, which logs every call. kwok has no cloud: its requests to the API server
are counted. No call fails, so there are no retries, unless the machine is too busy to answer the SDK
within seconds.

    start     from the start of the process to two minutes after the NodeClass is ready, without pods
    launch    two minutes from the moment at which N pods are pending that need a node each
    idle      an hour in which nothing changes; it begins when the tags of all nodes are written

    python -m benchmarks.api_calls                       all providers; 0, 1, 100 and 1,000 nodes
    python -m benchmarks.api_calls --provider aws --nodes 0 100
    python -m benchmarks.api_calls --json                a line for each provider and number of nodes

Without nodes (0) nothing is launched, and what remains is what the controller does by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.measured_clouds import CLOUDS, CPUS, ClusterTime, MeasuredCloud
from karpenter_core.kube.resources import custom_kind
from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_core.testing.provider_cluster import node_pool_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.kube.transport import ApiRequest, ApiResponse

__all__ = ["CLOUDS", "CallCounts", "count_calls"]

SIZES: Final = (0, 1, 100, 1000)
READY_SECONDS: Final = 300.0
START_SECONDS: Final = 120.0
LAUNCH_SECONDS: Final = 120.0
REST_SECONDS: Final = 480.0
REST_SECONDS_PER_NODE: Final = 1.2
"""Between the end of the launch and the idle hour; tags are written for one node a second."""
IDLE_SECONDS: Final = 3600.0
POD_REQUESTS: Final = {"cpu": "1500m", "memory": "1Gi"}
"""Of 2 CPUs no two such pods share a node."""


# -- a run -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCounts:
    """Numbers of calls by name, for each part of a run.

    `requests_…` are requests of the controller to the API server, by method and resource, without
    those for its lease.
    """

    provider: str
    nodes: int
    start: Mapping[str, int]
    launch: Mapping[str, int]
    idle: Mapping[str, int]
    """In an hour."""
    requests_start: Mapping[str, int]
    requests_launch: Mapping[str, int]
    requests_idle: Mapping[str, int]
    seconds: float
    """Real time that the run took."""


class _RequestCounter:
    """Counts the requests that the API server answers."""

    def __init__(self, harness: ControllerHarness) -> None:
        self.counts: Final[Counter[str]] = Counter()
        front = harness.cluster.frontend
        respond = front.respond

        async def counted(request: ApiRequest) -> ApiResponse:
            resource = _resource(request.path)
            if resource != "leases":
                self.counts[f"{request.method} {resource}"] += 1
            return await respond(request)

        vars(front)["respond"] = counted


def _resource(path: str) -> str:
    """Return the resource of a path, with the subresource if there is one."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts and parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join(parts[::2]) or "discovery"


class _Recorder:
    """Takes the counts of one part of a run after the other."""

    def __init__(self, cloud: MeasuredCloud, requests: Counter[str]) -> None:
        self._cloud: Final = cloud
        self._requests: Final = requests
        self._before: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the calls and the requests since the last time."""
        now = (Counter(self._cloud.calls() or {}), Counter(self._requests))
        calls, requests = (new - old for new, old in zip(now, self._before, strict=True))
        self._before = now
        return dict(calls if self._cloud.calls() is not None else requests), dict(requests)


async def _register(cloud: MeasuredCloud, harness: ControllerHarness) -> None:
    """Register the Nodes of new instances until cancelled."""
    known: set[str] = set()
    while True:
        for provider_id, node in cloud.nodes().items():
            if provider_id not in known:
                known.add(provider_id)
                harness.cluster.apply([node])
        await harness.cluster.clock.sleep(1)


def _pod(number: int) -> dict[str, Any]:
    container = {"name": "app", "image": "app", "resources": {"requests": POD_REQUESTS}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{number:04}", "namespace": "default"},
        "spec": {"containers": [container]},
    }


def _objects(cloud: MeasuredCloud) -> list[dict[str, Any]]:
    """Return a NodeClass, and a NodePool that keeps its nodes."""
    resource = cloud.model.resource
    node_class = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "default"},
        "spec": dict(cloud.node_class_spec),
    }
    pool = node_pool_manifest(
        cloud.model,
        requirements={cloud.cpu_label: [CPUS]},
        template={"expireAfter": "Never"},
        disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    )
    return [node_class, pool]


def _is_ready(harness: ControllerHarness, model: type[NodeClass]) -> bool:
    found = harness.cluster.find(custom_kind(model.resource), "default") or {}
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _run(
    provider: str, nodes: int, cloud: MeasuredCloud, harness: ControllerHarness
) -> CallCounts:
    recorder = _Recorder(cloud, _RequestCounter(harness).counts)
    clock = harness.cluster.clock
    began = time.perf_counter()
    harness.start()
    harness.cluster.apply(_objects(cloud))
    await harness.settle(lambda: _is_ready(harness, cloud.model), seconds=READY_SECONDS)
    await clock.sleep(START_SECONDS)
    start = recorder.take()
    registration = asyncio.create_task(_register(cloud, harness))
    harness.cluster.apply([_pod(number) for number in range(nodes)])
    await clock.sleep(LAUNCH_SECONDS)
    launch = recorder.take()
    registration.cancel()
    with suppress(asyncio.CancelledError):
        await registration
    _check(harness, nodes)
    await clock.sleep(REST_SECONDS + REST_SECONDS_PER_NODE * nodes)
    recorder.take()
    await clock.sleep(IDLE_SECONDS)
    idle = recorder.take()
    _check(harness, nodes)
    return CallCounts(
        provider=provider,
        nodes=nodes,
        start=start[0],
        launch=launch[0],
        idle=idle[0],
        requests_start=start[1],
        requests_launch=launch[1],
        requests_idle=idle[1],
        seconds=time.perf_counter() - began,
    )


def _check(harness: ControllerHarness, nodes: int) -> None:
    """Compare the number of running pods and of claims with that of nodes.

    Raises:
        RuntimeError: they differ, so the counts are not of what they are taken for.
    """
    counts = len(harness.pods("Running")), len(harness.claims())
    if counts != (nodes, nodes):
        raise RuntimeError(f"{counts[0]} pods run and there are {counts[1]} claims, not {nodes}")


def count_calls(provider: str, nodes: int, *, types: Sequence[str] = ()) -> CallCounts:
    """Run a controller with so many nodes; `types` are instance types by name, all if empty.

    Raises:
        RuntimeError: other than `nodes` nodes were launched or kept.
    """
    random.seed(0)  # providers spread periods by it
    time_of_cluster = ClusterTime()

    async def run(cloud: MeasuredCloud, folder: str) -> CallCounts:
        harness = ControllerHarness(
            cloud.plugins,
            folder=Path(folder),
            # A renewal of the lease every two seconds says nothing about a provider.
            arguments=(*cloud.arguments, "--disable-leader-election"),
            facts=cloud.facts,
        )
        async with harness:
            time_of_cluster.now = harness.cluster.clock.now
            return await _run(provider, nodes, cloud, harness)

    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        CLOUDS[provider](time_of_cluster, types) as cloud,
    ):
        try:
            return run_virtual(run(cloud, folder))
        finally:
            time_of_cluster.now = utc_now


# -- the program -----------------------------------------------------------------------------------


def shown(all_counts: Sequence[CallCounts], *, requests: bool = False) -> Table:
    """Return the counts of one provider as a table; `requests` are those to the API server."""
    prefix = "requests_" if requests else ""
    title = f"{all_counts[0].provider}{', requests to the API server' if requests else ''}"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    table.add_column("call", no_wrap=True)
    columns = [("start", getattr(all_counts[-1], f"{prefix}start"))]
    columns += [(f"launch {c.nodes}", getattr(c, f"{prefix}launch")) for c in all_counts]
    columns += [(f"idle hour {c.nodes}", getattr(c, f"{prefix}idle")) for c in all_counts]
    for name, _ in columns:
        table.add_column(name, justify="right")
    for call in sorted({name for _, counts in columns for name in counts}):
        table.add_row(call, *(str(counts.get(call, 0) or "") for _, counts in columns))
    table.add_row("all", *(str(sum(counts.values())) for _, counts in columns))
    return table


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--provider", choices=[*CLOUDS], nargs="+", default=[*CLOUDS])
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log", default="critical", help="what the controller logs")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(options.log))
    console = Console(width=160)
    for provider in options.provider:
        all_counts = [count_calls(provider, nodes) for nodes in options.nodes]
        if options.json:
            for counts in all_counts:
                print(json.dumps(asdict(counts)))
            continue
        console.print(shown(all_counts))
        if provider != "kwok":
            console.print(shown(all_counts, requests=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
