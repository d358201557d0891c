"""Measures what a scrape of `/metrics` costs in a large cluster.

Holds a cluster in memory, with the controllers that show it as metrics and the HTTP server, while a
hundred pods a second change. A process of its own scrapes, as Prometheus would. Printed are the
series and bytes of a scrape, how long it takes, and how late the event loop is for a timer that is due
every millisecond: during scrapes, and between them while the gauges are kept up to date.

    python -m benchmarks.metrics                              5,000 nodes, 100,000 pods
    python -m benchmarks.metrics --nodes 500 --pods 10000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from benchmarks.measure import quantile
from karpenter_core.api.records import NodeConditionView, PodView
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observability.cluster import ClusterMetricsController
from karpenter_core.controllers.observability.conditions import ConditionObserver
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.kube.garbage_collector import freeze_after_sync, tune_gc
from karpenter_core.operator.clock import SystemClock, random_id
from karpenter_core.operator.servers import HttpServers
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import CataloguePublished, InformersSynced, ObjectObserved
from karpenter_core.testing.builders import (
    EPOCH,
    node_pool,
    pod,
    pod_shape,
    standard_catalogue,
)
from karpenter_core.testing.state_builders import (
    MANAGED_KINDS,
    node_and_claim,
    ready_node_pool,
    with_claim_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView

__all__ = ["ScrapeCost", "measure"]

CHANGES_PER_SECOND: Final = 100
BURST: Final = 10
SAMPLE_SECONDS: Final = 0.001
WARM_UP_SECONDS: Final = 15.0
QUIET_SECONDS: Final = 25.0
"""Two updates of the gauges and more."""
NODE_CLASS_LABEL: Final = "karpenter.kwok.sh/kwoknodeclass"
SCRAPER: Final = """
import sys, time, urllib.request
begun = time.perf_counter()
body = urllib.request.urlopen(sys.argv[1], timeout=120).read()
seconds = time.perf_counter() - begun
series = sum(not line.startswith(b"#") for line in body.splitlines())
print(seconds, len(body), series)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeCost:
    """The figures of the benchmark."""

    nodes: int
    pods: int
    series: int
    mebibytes: float
    first_scrape_seconds: float
    scrape_seconds: float
    """The median of the scrapes after the first."""
    cpu_seconds: float
    """CPU time of the process for one scrape, what it does meanwhile included."""
    lag_of_scrapes_ms: float
    """The longest time that the loop was held during a scrape."""
    lag_p99_of_scrapes_ms: float
    lag_of_updates_ms: float
    """The longest, while gauges were kept up to date and nobody scraped."""


class _LoopLag:
    """Samples how late the event loop is."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_SECONDS
            await asyncio.sleep(SAMPLE_SECONDS)
            self.late.append(loop.time() - due)

    def take(self) -> list[float]:
        late, self.late = self.late, []
        return late or [0.0]


def cluster(nodes: int, pods: int) -> Iterator[NodeView | NodeClaim | PodView]:
    """Yield instances of one pool, with the conditions that Nodes have, and pods on them."""
    healthy = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    names = [f"general-{number:05d}" for number in range(nodes)]
    for name in names:
        view, claim = node_and_claim(name, capacity={"cpu": "16", "ephemeral-storage": "100Gi"})
        others = tuple(
            NodeConditionView(type=kind, status="False", last_transition_time=EPOCH)
            for kind in healthy
        )
        yield replace(view, conditions=(*view.conditions, *others))
        yield with_claim_conditions(claim, "ConsistentStateFound", now=EPOCH)
    shape = pod_shape(cpu="500m", memory="512Mi")
    shape = replace(shape, limits={name: shape.requests[name] for name in ("cpu", "memory")})
    for number, name in zip(range(pods), cycle(names), strict=False):
        workload = f"web-{number % 50}-7c5ddbdf54"
        yield pod(f"{workload}-{number:06d}", shape=shape, node_name=name, phase="Running")


async def measure(nodes: int, pods: int, *, scrapes: int = 5) -> ScrapeCost:
    """Hold a cluster and scrape it."""
    clock = SystemClock()
    metrics = Metrics(node_class_labels=[NODE_CLASS_LABEL], now=clock.monotonic)
    runtime = ControllerRuntime(clock=clock, new_id=random_id, metrics=metrics)
    cluster_state = ClusterState(StateBuilder(MANAGED_KINDS), clock)
    cluster_state.fold(ObjectObserved(ready_node_pool(node_pool())))
    running: list[PodView] = []
    for made in cluster(nodes, pods):
        cluster_state.fold(ObjectObserved(made))
        if isinstance(made, PodView):
            running.append(made)
    cluster_state.fold(CataloguePublished("default", standard_catalogue()))
    cluster_state.fold(InformersSynced())
    undo = tune_gc()
    freeze_after_sync()
    servers = HttpServers(
        registry=metrics.registry, checks=(), address="127.0.0.1", metrics_port=0, probe_port=0
    )
    await servers.start()
    lag = _LoopLag()
    observability = ClusterMetricsController(
        cluster_state=cluster_state,
        runtime=runtime,
        detailed=True,
        solve=None,
        problem_settings=None,
    )
    observer = ConditionObserver(
        cluster_state=cluster_state, publish=lambda _: None, runtime=runtime
    )
    jobs = (observability.run(), observer.run(), lag.run(), _change(cluster_state, running))
    work = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.sleep(WARM_UP_SECONDS)
        lag.take()
        await asyncio.sleep(QUIET_SECONDS)
        updates = lag.take()
        url = f"http://127.0.0.1:{servers.metrics_port}/metrics"
        cpu_before = time.process_time()
        found = [await _scrape(url) for _ in range(scrapes)]
        cpu_seconds = (time.process_time() - cpu_before) / scrapes
        during = lag.take()
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await servers.stop()
        undo()
    seconds = [each[0] for each in found]
    return ScrapeCost(
        nodes=nodes,
        pods=pods,
        series=found[-1][2],
        mebibytes=found[-1][1] / 2**20,
        first_scrape_seconds=seconds[0],
        scrape_seconds=quantile(seconds[1:] or seconds, 0.5),
        cpu_seconds=cpu_seconds,
        lag_of_scrapes_ms=1000 * max(during),
        lag_p99_of_scrapes_ms=1000 * quantile(during, 0.99),
        lag_of_updates_ms=1000 * max(updates),
    )


async def _change(cluster_state: ClusterState, running: Sequence[PodView]) -> None:
    """Fold in changes of pods at an even rate."""
    for version, changed in enumerate(cycle(running), start=1):
        cluster_state.fold(ObjectObserved(replace(changed, resource_version=version, ready=True)))
        if not version % BURST:
            cluster_state.snapshot()  # as the other controllers do, all the time
            await asyncio.sleep(BURST / CHANGES_PER_SECOND)


async def _scrape(url: str) -> tuple[float, int, int]:
    scraper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRAPER, url, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await scraper.communicate()
    seconds, size, series = printed.split()
    return float(seconds), int(size), int(series)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--scrapes", type=int, default=5)
    options = parser.parse_args()
    found = asyncio.run(measure(options.nodes, options.pods, scrapes=options.scrapes))
    print(json.dumps(asdict(found), indent=2))


if __name__ == "__main__":
    main()
