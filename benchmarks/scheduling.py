"""Measures the speed of the solver and the cost of its plans.

    python benchmarks/scheduling.py                            the usual cases
    python benchmarks/scheduling.py diverse-5000/real --runs 5
    python benchmarks/scheduling.py --peer --peer-pods 5000    beside Karpenter's own scheduler
    python benchmarks/scheduling.py --gates [S1 C2 ...]        what a release must hold

A case is MIX-COUNT/CATALOGUE[/OPTION...] (benchmarks/inputs.py). Every run is a process of its own, so
that nothing is warm and memory is that run's; shown is the run of median time. Plans of one case must
be the same in all of them. Beside the peer, ours and its runs alternate. What is timed stands in
benchmarks/measure.py, for the peer in benchmarks/peer/main.go: both solve cold, from pods and instance
types in memory to claims.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks import gates, peer
from benchmarks.inputs import CASE_FORM, load
from benchmarks.measure import DEFAULT_WORK_UNITS, CaseResult, measure
from benchmarks.solver_bench import SolverBench, median
from karpenter_core.scheduling.problem import PackingPolicy, SchedulingPlan, SchedulingProblem

__all__ = ["main"]

CASES: Final = (
    *(f"diverse-{count}/fake400" for count in (1, 50, 100, 500, 1000, 2000, 5000, 10000, 20000)),
    "respect-4000/fake400", "ignore-4000/fake400",
    *(f"diverse-{count}/real" for count in (100, 1000, 5000, 20000, 50000)),
    "diverse-5000/real/on-demand", "diverse-5000/real/daemons", "diverse-100/real/nodes",
    *(f"generic-{count}/real" for count in (1000, 5000, 50000)),
    "generic-5000/real/on-demand", "generic-5000/fake400",
    "deployments-500/real", "deployments-2000/real", "deployments-40/real/cluster",
)  # fmt: skip
OPENB: Final = "openb/aws"
PEER_PODS: Final = 1000

COLUMNS: Final = (
    ("pods", 6, "{row.pods}"),
    ("seconds", 9, "{row.seconds:.3f}"),
    ("cpu", 8, "{row.cpu_seconds:.3f}"),
    ("pods/s", 8, "{row.pods_per_second:.0f}"),
    ("step ms", 8, "{row.longest_step_ms:.1f}"),
    ("pending", 8, "{row.pending}"),
    ("nodes", 6, "{row.nodes}"),
    ("$/h", 9, "{row.cost:.2f}"),
    ("bound", 9, "{row.bound:.2f}"),
    ("above", 7, "{row.above_bound:.1%}"),
    ("1st fit", 9, "{row.first_fit:.2f}"),
    ("5th", 9, "{row.cost_5th:.2f}"),
    ("15th", 9, "{row.cost_15th:.2f}"),
    ("MiB", 6, "{row.peak_rss_mib:.0f}"),
)
"""Head, width and text of a row's columns; what a row does not have stays empty."""


def main() -> int:
    """Measure, print a table or JSON lines; with gates, fail when one does not hold."""
    arguments = _arguments()
    bench = SolverBench(
        trace=arguments.trace,
        prices=arguments.prices,
        daemons=arguments.daemons,
        packing=PackingPolicy(arguments.packing),
        verify=arguments.verify,
    )
    if arguments.inside:
        print(json.dumps(asdict(_inside(arguments))))
        return 0
    if arguments.gates:
        return gates.run(bench, arguments.cases, runs=arguments.runs, as_json=arguments.json)
    cases = arguments.cases or (*CASES, *([OPENB] if bench.trace and bench.prices else []))
    for number, case in enumerate(cases):
        _show(bench, bench.named(case), arguments, head=number == 0)
    return 0


def _show(bench: SolverBench, case: str, arguments: argparse.Namespace, *, head: bool) -> None:
    asked = load(case, trace=arguments.trace, prices=arguments.prices)
    with_peer = arguments.peer and len(asked.pods) <= arguments.peer_pods and asked.has_document
    ours, theirs = (
        bench.pairs(case, runs=arguments.runs, work_units=arguments.work_units)
        if with_peer
        else (bench.ours(case, runs=arguments.runs, work_units=arguments.work_units), [])
    )
    if arguments.json:
        record = {"solver": "karpenter-core", **asdict(ours), "load": os.getloadavg()[0]}
        print(json.dumps(record), flush=True)
        for row in theirs:
            print(json.dumps({"solver": peer.PEER, **asdict(row)}), flush=True)
        return
    if head:
        print(f"{CASE_FORM:32}" + "".join(f"{name:>{width}}" for name, width, _ in COLUMNS))
    print(f"{case:32}" + _cells(ours), flush=True)
    for text in ours.violations[:3]:
        print(f"  VIOLATION {text}", flush=True)
    if theirs:
        other = median(theirs)
        cost = statistics.median(row.cost for row in theirs)
        print(f"{'  ' + peer.PEER:32}" + _cells(other))
        print(
            f"{'  against it':32}  {other.seconds / ours.seconds:.1f} times as fast, "
            f"{ours.cost / cost - 1:+.1%} cost (5th {_change(ours, theirs, 'cost_5th')}, "
            f"15th {_change(ours, theirs, 'cost_15th')}), "
            f"{ours.nodes / max(other.nodes, 1):.2f} times the nodes, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def _change(ours: CaseResult, theirs: list[CaseResult], name: str) -> str:
    usual = statistics.median(getattr(row, name) for row in theirs)
    return f"{getattr(ours, name) / usual - 1:+.1%}"


def _cells(row: CaseResult) -> str:
    texts: list[str] = []
    for _, width, form in COLUMNS:
        try:
            text = form.format(row=row)
        except TypeError:  # a column that this row does not have
            text = ""
        texts.append(f"{text:>{width}}")
    return "".join(texts)


def _inside(arguments: argparse.Namespace) -> CaseResult:
    return measure(
        load(arguments.cases[0], trace=arguments.trace, prices=arguments.prices),
        packing=PackingPolicy(arguments.packing),
        work_units=arguments.work_units,
        verify=_verify if arguments.verify else None,
    )


def _verify(problem: SchedulingProblem, plan: SchedulingPlan) -> list[str]:
    """Judge a plan by code that shares nothing with the solver."""
    from tests import verifier

    return verifier.violations(problem, plan)  # pyright: ignore[reportUnknownMemberType] - tests have no types


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="case", help="cases, or with --gates gates")
    parser.add_argument("--runs", type=int, default=1, help="runs of each case (median shown)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--packing", choices=[*PackingPolicy], default=PackingPolicy.VALUE)
    parser.add_argument(
        "--work-units", type=int, default=DEFAULT_WORK_UNITS, help="for plans beyond the default"
    )
    parser.add_argument("--daemons", action="store_true", help="four DaemonSets in every case")
    parser.add_argument("--peer", action="store_true", help=f"run {peer.PEER} too (needs go)")
    parser.add_argument("--peer-pods", type=int, default=PEER_PODS, help="only up to this size")
    parser.add_argument("--verify", action="store_true", help="judge every plan independently")
    parser.add_argument("--gates", action="store_true", help="check the release gates")
    parser.add_argument("--trace", type=Path, help="folder of the openb trace")
    parser.add_argument("--prices", type=Path, help="list of on-demand prices, for `aws`")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
