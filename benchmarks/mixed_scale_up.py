"""Scale a mix of workloads up, and down again, on a real control plane, beside Karpenter's controller.

Eight Deployments of eight sizes share the pods: some spread over zones, one over nodes, one runs on
on-demand capacity only and one in two zones. Their pods appear in waves, as the cluster's own
controllers create them. Three things are measured, on a fresh control plane each time:

* the scale-up: seconds until every pod has a node, nodes, price per hour, CPU time and memory;
* its floor: the same pods on nodes that are there already (those of half as many pods more), with no
  autoscaler running: what scheduler and API server take by themselves. Pods may be left for which the
  scheduler has left no room there; the time until the last binding counts then;
* with `--shrink`: all Deployments are scaled to 7/10. Measured are the seconds until the nodes cost at
  most 5 % more than a fresh cluster of so many pods, and what they cost a minute after the change.

Runs of both controllers take turns; medians and their ratios are printed.

    python -m benchmarks.mixed_scale_up                          3,000 pods, three runs of each
    python -m benchmarks.mixed_scale_up --pods 500 --runs 1
    python -m benchmarks.mixed_scale_up --pods 1000 --shrink     1,000 -> 700 pods
    python -m benchmarks.mixed_scale_up --pods 500 --calls       with the API calls, by their answers
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.scale_up import (
    NEVER,
    POLL_SECONDS,
    BenchCluster,
    add_control_plane_arguments,
    audited,
    bound,
    count_answers,
    count_calls,
    create,
    fresh_cluster,
    labels,
    offering_of,
    read_prices,
    total,
    until,
    with_catalogue,
)
from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, ZONE
from karpenter_core.kube import resources
from karpenter_core.testing.scenarios import ScenarioDeployment
from tests.e2e.reference import reference_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.scale_up import Prices

__all__ = ["ScaleUp", "Shrink", "summary", "workloads"]

OURS: Final = "karpenter-core"
PEER: Final = "Karpenter"
FLOOR_SHARE: Final = 1.5
"""Pods for which the nodes of the floor were launched, per pod that is measured."""
QUIET_SECONDS: Final = 30.0
"""Three times the scheduler's longest back-off: a pod that it has not bound by then does not fit."""
KEPT_SHARE: Final = 0.7
"""Part of the pods that is left after a scale-down."""
NEAR: Final = 1.05
"""A cluster costs as much as a fresh one up to this ratio."""
SHRINK_SECONDS: Final = 180.0
MINUTE: Final = 60.0
ALWAYS: Final = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """The figures of one scale-up; seconds count from the creation of the first Deployment."""

    all_bound_seconds: float
    nodes: int
    price_per_hour: float
    cpu_seconds: float
    memory_mib: float
    """Resident when every pod has a node."""
    calls: float
    """API calls until then, watches and leases not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """The figures of one scale-down; seconds count from the change of the first Deployment."""

    fresh_price_per_hour: float
    """The price of a fresh cluster of the pods that are left, by the same controller."""
    near_seconds: float
    """Until every pod has a node and the nodes cost at most 5 % more; infinite if they never did."""
    price_after_a_minute: float
    last_price: float
    """After three minutes."""


def workloads(pods: int, zones: Sequence[str]) -> list[ScenarioDeployment]:
    """Return eight Deployments of eight sizes that have so many pods together."""

    def spread(key: str, skew: int) -> dict[str, Any]:
        return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}

    selectors: dict[str, dict[str, Any]] = {
        "on-demand": {"nodeSelector": {CAPACITY_TYPE: "on-demand"}},
        "two-zones": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": ZONE, "operator": "In", "values": list(zones[:2])}
                                ]
                            }
                        ]
                    }
                }
            }
        },
    }
    spreads = {
        "zone-small": spread(ZONE, 1),
        "zone-large": spread(ZONE, 1),
        "hostname": spread("kubernetes.io/hostname", 10),
    }
    sizes = {
        "tiny": ("100m", "128Mi"),
        "zone-small": ("250m", "512Mi"),
        "hostname": ("500m", "1Gi"),
        "on-demand": ("1", "2Gi"),
        "two-zones": ("1", "4Gi"),
        "zone-large": ("2", "4Gi"),
        "memory": ("2", "8Gi"),
        "large": ("4", "8Gi"),
    }
    made: list[ScenarioDeployment] = []
    for number, (name, (cpu, memory)) in enumerate(sizes.items()):
        pod = dict(selectors.get(name, {}))
        if name in spreads:
            term = {**spreads[name], "labelSelector": {"matchLabels": {"app": name}}}
            pod["topologySpreadConstraints"] = [term]
        replicas = pods * (number + 1) // len(sizes) - pods * number // len(sizes)
        made.append(
            ScenarioDeployment(name=name, replicas=replicas, cpu=cpu, memory=memory, pod=pod)
        )
    return made


@dataclass(slots=True)
class _MixedCluster(BenchCluster):
    """A fresh control plane on which the mix runs."""

    prices: Prices

    @classmethod
    def of(cls, made: BenchCluster, prices: Prices) -> _MixedCluster:
        return cls(made.local_cluster, made.client, made.mirror, made.controller, prices)

    async def scale_to(self, deployments: Sequence[ScenarioDeployment]) -> None:
        """Create Deployments, or change their replicas, and wait until every pod has a node."""
        await self.change(deployments)
        pods = sum(each.replicas for each in deployments)
        running = self.controller if self.controller.is_running else None
        await until(lambda: self.settled(pods), running)

    async def change(self, deployments: Sequence[ScenarioDeployment]) -> None:
        """Create Deployments, or change their replicas."""
        listed = await self.client.list(resources.DEPLOYMENTS)
        there = {each["metadata"]["name"] for each in listed}
        for each in deployments:
            if each.name in there:
                scale = {"spec": {"replicas": each.replicas}}
                await self.client.patch(resources.DEPLOYMENTS, each.name, scale)
            else:
                await create(self.client, each.manifest())

    def settled(self, pods: int) -> bool:
        """Return whether there are so many pods, all of them with a node."""
        return len(self.mirror.objects(resources.PODS)) == pods == bound(self.mirror)

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the NodePool."""
        return [node for node in self.mirror.objects(resources.NODES) if NODE_POOL in labels(node)]

    def price_per_hour(self) -> float:
        """Return what the nodes cost."""
        return sum(self.prices[offering_of(node)] for node in self.nodes())

    async def remove_pods(self, deployments: Sequence[ScenarioDeployment]) -> None:
        """Delete the Deployments and wait until their pods are gone."""
        for each in deployments:
            await self.client.delete(resources.DEPLOYMENTS, each.name)
        await until(lambda: not self.mirror.objects(resources.PODS))


def _now() -> float:
    return asyncio.get_running_loop().time()


async def measure_scale_up(pods: int, options: argparse.Namespace, prices: Prices) -> ScaleUp:
    """Let one controller launch nodes for all pods."""
    async with fresh_cluster(options, NEVER) as made:
        cluster = _MixedCluster.of(made, prices)
        before = await audited(cluster.local_cluster)
        begun, cpu = _now(), cluster.controller.cpu_seconds()
        await cluster.scale_to(workloads(pods, zones_of(prices)))
        seconds = _now() - begun
        figures: dict[str, Any] = {
            "nodes": len(cluster.nodes()),
            "price_per_hour": cluster.price_per_hour(),
            "cpu_seconds": cluster.controller.cpu_seconds() - cpu,
            "memory_mib": cluster.controller.memory_bytes() / 2**20,
        }
        events = (await audited(cluster.local_cluster))[len(before) :]
        if options.calls:
            for answer, count in count_answers(events).items():
                print(f"{count:8} {answer}", file=sys.stderr, flush=True)
        return ScaleUp(
            all_bound_seconds=seconds,
            calls=total(count_calls(events)),
            **figures,
        )


async def measure_floor(pods: int, options: argparse.Namespace, prices: Prices) -> float:
    """Return the seconds until all pods run on nodes that are there, without an autoscaler."""
    zones = zones_of(prices)
    async with fresh_cluster(options, NEVER) as made:
        cluster = _MixedCluster.of(made, prices)
        more = workloads(round(FLOOR_SHARE * pods), zones)
        await cluster.scale_to(more)
        await cluster.remove_pods(more)
        await cluster.controller.stop()
        begun = _now()
        await cluster.change(workloads(pods, zones))
        last, left = await last_binding(lambda: bound(cluster.mirror), pods)
        if left:
            print(f"floor: {left} of {pods} pods found no room", file=sys.stderr, flush=True)
        return last - begun


async def last_binding(bound_pods: Callable[[], int], pods: int) -> tuple[float, int]:
    """Wait until so many pods are bound, or none is any more; return the time of the last binding.

    The second figure is the number of pods that are left.
    """
    count, last = 0, _now()
    while count < pods and _now() < last + QUIET_SECONDS:
        await asyncio.sleep(POLL_SECONDS)
        if (now_bound := bound_pods()) != count:
            count, last = now_bound, _now()
    return last, pods - count


async def measure_shrink(pods: int, options: argparse.Namespace, prices: Prices) -> Shrink:
    """Let one controller follow a scale-down."""
    zones = zones_of(prices)
    fewer = workloads(round(KEPT_SHARE * pods), zones)
    async with fresh_cluster(options, NEVER) as made:
        cluster = _MixedCluster.of(made, prices)
        await cluster.scale_to(fewer)
        fresh = cluster.price_per_hour()
    left = sum(each.replicas for each in fewer)
    async with fresh_cluster(options, ALWAYS) as made:
        cluster = _MixedCluster.of(made, prices)
        await cluster.scale_to(workloads(pods, zones))
        begun = _now()
        await cluster.change(fewer)
        near, minute = float("inf"), 0.0
        while _now() - begun < SHRINK_SECONDS:
            price = cluster.price_per_hour()
            if near == float("inf") and cluster.settled(left) and price <= NEAR * fresh:
                near = _now() - begun
            if not minute and _now() - begun >= MINUTE:
                minute = price
            await asyncio.sleep(0.5)
        return Shrink(
            fresh_price_per_hour=fresh,
            near_seconds=near,
            price_after_a_minute=minute,
            last_price=cluster.price_per_hour(),
        )


def zones_of(prices: Prices) -> list[str]:
    """Return the zones that are sold."""
    return sorted({zone for _type, zone, _capacity_type in prices})


def medians(rows: Sequence[ScaleUp | Shrink]) -> dict[str, float]:
    """Return the median of each figure."""
    names = asdict(rows[0])
    return {name: statistics.median(getattr(row, name) for row in rows) for name in names}


def summary(results: dict[str, dict[str, float]], floor_seconds: float | None) -> list[str]:
    """Return lines with the figures of each controller, and how ours compare."""
    lines = [
        f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in figures.items())
        for name, figures in results.items()
    ]
    ours = results[OURS]
    if floor_seconds is not None:
        ratio = ours["all_bound_seconds"] / floor_seconds
        lines.append(f"floor: all_bound_seconds {floor_seconds:.2f}; {OURS} takes {ratio:.2f} x it")
    if PEER in results:
        peer = results[PEER]
        ratios = [f"{key} {ours[key] / peer[key]:.2f} x" for key in ours if peer[key]]
        lines.append(f"{OURS} beside {PEER}: {', '.join(ratios)}")
    return lines


async def run_all(options: argparse.Namespace) -> list[str]:
    """Measure in turns and return the lines to print."""
    prices = read_prices(options.catalogue)
    peers: dict[str, argparse.Namespace] = {OURS: options}
    if not options.no_peer:
        peers[PEER] = argparse.Namespace(**{**vars(options), "peer": reference_program()})
    measured: Callable[..., Any] = measure_shrink if options.shrink else measure_scale_up
    rows: dict[str, list[Any]] = {name: [] for name in peers}
    floors: list[float] = []
    for number in range(1, options.runs + 1):
        for name, each in peers.items():
            rows[name].append(await measured(options.pods, each, prices))
            print(f"run {number}, {name}: {rows[name][-1]}", file=sys.stderr, flush=True)
        if not options.shrink:
            floors.append(await measure_floor(options.pods, options, prices))
            print(f"run {number}, floor: {floors[-1]:.2f} s", file=sys.stderr, flush=True)
    results = {name: medians(each) for name, each in rows.items()}
    if options.json is not None:
        document = {"pods": options.pods, "medians": results, "floors": floors}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return summary(results, statistics.median(floors) if floors else None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=3000, metavar="N")
    parser.add_argument("--runs", type=int, default=3, help="runs of each; medians are printed")
    parser.add_argument("--shrink", action="store_true", help="scale to 7/10 of the pods, and wait")
    parser.add_argument("--no-peer", action="store_true", help=f"leave {PEER}'s controller out")
    parser.add_argument("--calls", action="store_true", help="list the API calls of every scale-up")
    add_control_plane_arguments(parser)
    parser.add_argument("--json", type=Path, help="write the medians to this file too")
    options = parser.parse_args()
    with with_catalogue(options):
        lines = asyncio.run(run_all(options))
    print(f"{options.pods} pods, median of {options.runs}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
