"""Measures the CPU time of a pass under the same churn in clusters of different sizes.

Full nodes of one pool run twenty pods each. Between two passes twenty pods are replaced, wherever the
cluster is as large as it may be. Printed is the median CPU time of each part of a provisioning pass and of
a disruption pass in which every node is a candidate of every method, and how it grows with the size.

    python -m benchmarks.passes                         100, 1,000 and 5,000 nodes
    python -m benchmarks.passes --nodes 100 1000 --rounds 20
    python -m benchmarks.passes --write                 also the picture in docs/images (`make growth`)
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from contextlib import contextmanager
from datetime import timedelta
from math import ceil, log10
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.disruption.fingerprint import FingerprintBuilder
from karpenter_core.disruption.method import DisruptionOptions, DisruptionPass
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.disruption.plan import METHODS, plan
from karpenter_core.kube.garbage_collector import freeze_after_sync, tune_gc
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    CataloguePublished,
    InformersSynced,
    ObjectObserved,
    ObjectRemoved,
)
from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod, pod_shape, standard_catalogue
from karpenter_core.testing.state_builders import (
    MANAGED_KINDS,
    node_and_claim,
    ready_node_pool,
    with_claim_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from karpenter_core.api.records import PodView

__all__ = ["PassCosts", "measure"]

PODS_PER_NODE: Final = 20
CHURN: Final = 20
"""Pods that are replaced between two passes."""
NOW: Final = EPOCH + timedelta(hours=3)
PASSES: Final = {"provisioning": "#1a7f37", "disruption": "#0969da"}
"""The kinds of passes, with their colours in the picture."""
LEFT, RIGHT, BASE, HEIGHT = 70, 600, 270, 230  # of the area of the curves
PICTURE: Final = Path(__file__).parents[1] / "docs" / "images" / "passes.svg"

PassCosts = dict[str, float]
"""Milliseconds of CPU time by part."""


class _Cluster:
    """A full cluster whose pods are replaced."""

    def __init__(self, nodes: int) -> None:
        self._random = random.Random(7)
        self._version = 0
        self._shape = pod_shape(cpu="780m", memory="2560Mi")
        self.builder = StateBuilder(MANAGED_KINDS)
        pool = node_pool(
            requirements=[("kubernetes.io/arch", "In", "amd64"), (CAPACITY_TYPE, "In", ON_DEMAND)]
        )
        self._observe(ready_node_pool(pool))
        self._running: list[PodView] = []
        self._waiting: list[tuple[int, str]] = []
        """Places of pods that wait, and the nodes to which they will be bound."""
        for number in range(nodes):
            name = f"general-{number:05d}"
            view, claim = node_and_claim(
                name, instance_type="m-16x", capacity={"cpu": "16", "memory": "64Gi"}
            )
            self._observe(view)
            self._observe(with_claim_conditions(claim, CONSOLIDATABLE, now=EPOCH))
            for _ in range(PODS_PER_NODE):
                self._running.append(self._start(name))
        self.builder.apply_event(CataloguePublished("default", standard_catalogue()))
        self.builder.apply_event(InformersSynced())

    def _observe(self, made: object) -> None:
        self.builder.apply_event(ObjectObserved(made))  # pyright: ignore[reportArgumentType] - any object of the state

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _start(self, node_name: str) -> PodView:
        version = self._next_version()
        phase = "Running" if node_name else "Pending"
        made = pod(f"web-{version:07d}", shape=self._shape, node_name=node_name, phase=phase)
        made = replace(made, resource_version=version)
        self._observe(made)
        return made

    def churn(self) -> None:
        """Bind the pods that wait, and replace others, whose successors wait now."""
        for place, node_name in self._waiting:
            bound = replace(
                self._running[place],
                node_name=node_name,
                phase="Running",
                unschedulable=False,
                resource_version=self._next_version(),
            )
            self._observe(bound)
            self._running[place] = bound
        self._waiting.clear()
        for place in self._random.sample(range(len(self._running)), CHURN):
            gone = self._running[place]
            self.builder.apply_event(ObjectRemoved(gone))
            self._running[place] = self._start("")
            self._waiting.append((place, gone.node_name))


class _Stopwatch:
    """Collects CPU times by part."""

    def __init__(self) -> None:
        self._found: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def timed(self, part: str) -> Generator[None]:
        """Add the CPU time of the block to a part."""
        begun = time.process_time()
        yield
        self._found[part].append(1000 * (time.process_time() - begun))

    def medians(self) -> PassCosts:
        """Return the median of each part and their sums by pass."""
        costs = {part: median(values) for part, values in self._found.items()}
        for name in ("provisioning", "disruption"):
            costs[name] = sum(v for part, v in costs.items() if part.startswith(f"{name}: "))
        return costs


def measure(nodes: int, *, rounds: int = 9) -> PassCosts:
    """Return the CPU milliseconds of passes over a cluster of so many nodes."""
    cluster, watch = _Cluster(nodes), _Stopwatch()
    options, caches = SolveOptions(), (CatalogueCache(), CatalogueCache())
    fingerprints, memory, remembered = FingerprintBuilder(), NodeMemory(), DisruptionMemory()
    undo = tune_gc()
    freeze_after_sync()
    try:
        for number in range(rounds + 1):
            if number == 1:
                watch = _Stopwatch()  # the first pass compiles everything
            cluster.churn()
            with watch.timed("snapshot"):
                snapshot = cluster.builder.snapshot()
            with watch.timed("provisioning: input"):
                asking = build_provisioning_input(snapshot, now=NOW, memory=memory)
            with watch.timed("provisioning: solve"):
                found = solve(asking.problem, options, cache=caches[0])
            if found.unschedulable:
                raise ValueError("pods are left: the cluster is not what is to be measured")
            with watch.timed("disruption: fingerprint"):
                fingerprint = fingerprints.fingerprint(snapshot)
            pass_ = DisruptionPass(
                snapshot=snapshot,
                now=NOW,
                command_id=f"pass-{number}",
                options=DisruptionOptions(solve=options),
                cache=caches[1],
                memory=remembered,
                fingerprint=fingerprint,
            )
            with watch.timed("disruption: candidates"):
                for method in METHODS:
                    pass_.candidates(method.disruption_class)
            with watch.timed("disruption: prepare"):
                for _ in pass_.simulation.prepare_steps(avoid_unsettled=True):
                    pass
            with watch.timed("disruption: methods"):
                made = plan(pass_)
            eligible = {report.method.name: report.eligible for report in made.reports}
            if made.commands or set(eligible.values()) - {0} != {nodes}:
                raise ValueError(
                    f"not all nodes were candidates in vain: {eligible}, {made.commands}"
                )
    finally:
        undo()
    return watch.medians()


def picture(costs: Mapping[int, PassCosts]) -> str:
    """Return an SVG of the CPU time of each kind of pass by the number of nodes, both as logarithms."""
    sizes = sorted(costs)
    top = ceil(log10(max(costs[nodes][name] for nodes in sizes for name in PASSES)))
    span = log10(sizes[-1] / sizes[0]) or 1.0

    def across(nodes: int) -> int:
        return round(LEFT + (RIGHT - LEFT) * log10(nodes / sizes[0]) / span)

    def down(milliseconds: float) -> int:
        return round(BASE - HEIGHT * log10(max(milliseconds, 1.0)) / top)

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 330" font-size="13">',
        '<rect width="720" height="330" fill="white"/>',
        _text(LEFT, 22, "CPU ms of a pass; 20 pods are replaced between two passes"),
        _text((LEFT + RIGHT) // 2, 316, "nodes", anchor="middle"),
    ]
    for exponent in range(top + 1):
        level = down(10**exponent)
        parts.append(f'<path d="M{LEFT} {level}H{RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, level + 4, str(10**exponent), anchor="end"))
    parts += [_text(across(nodes), 292, f"{nodes:,}", anchor="middle") for nodes in sizes]
    for name, colour in PASSES.items():
        points = [(across(nodes), down(costs[nodes][name])) for nodes in sizes]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), nodes in zip(points, sizes, strict=True):
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
            parts.append(_text(x, y - 8, f"{costs[nodes][name]:.1f}", anchor="middle"))
        parts.append(_text(RIGHT + 22, points[-1][1] + 4, name, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: int, y: int, text: str, *, anchor: str = "start", colour: str = "black") -> str:
    where = f'x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text {where} font-family="sans-serif">{text}</text>'


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000, 5_000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="write the picture, too")
    options = parser.parse_args()
    costs = {nodes: measure(nodes, rounds=options.rounds) for nodes in options.nodes}
    first = options.nodes[0]
    print("CPU ms".ljust(26), *(f"{nodes:>9} nodes" for nodes in costs), " growth")
    for part in costs[first]:
        values = [found[part] for found in costs.values()]
        growth = values[-1] / max(values[0], 0.01)
        print(part.ljust(26), *(f"{value:15.1f}" for value in values), f"{growth:6.1f} x")
    if options.write:
        PICTURE.write_text(picture(costs))


if __name__ == "__main__":
    main()
