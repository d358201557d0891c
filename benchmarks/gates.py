"""Checks the speed, cost and load figures of a release against gate and goal.

S gates are about time, C gates about cost. Ours and the peer's runs of one case alternate, so that
both see the same machine; seconds are of the clock on the wall, medians over the runs. A cost of
the peer is the median of its runs, as its plans differ from run to run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from benchmarks import peer
from benchmarks.inputs import load
from benchmarks.measure import DEFAULT_WORK_UNITS
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.problem import PackingPolicy
from karpenter_core.scheduling.solve import solve

if TYPE_CHECKING:
    from benchmarks.measure import CaseResult
    from benchmarks.solver_bench import SolverBench

__all__ = ["GATES", "Gate", "run"]

HERE: Final = Path(__file__).parent
TANGLED_PROBLEMS: Final = 500
PEER_RUNS: Final = 5
CLUSTER_PAIRS: Final = 3
ALL_VARIANTS: Final = 10**9
"""Work units that no portfolio uses up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One line of the table of gates; `holds` is None for what is only shown."""

    name: str
    what: str
    gate: str
    goal: str
    measured: str
    holds: bool | None


@final
class CaseRunner:
    """Runs cases once, whichever gates ask for them."""

    def __init__(self, bench: SolverBench, runs: int) -> None:
        self.bench = bench
        self.runs = runs
        self._pairs: dict[tuple[str, int], tuple[CaseResult, list[CaseResult]]] = {}
        self._ours: dict[tuple[str, int], CaseResult] = {}

    def pair(self, case: str, runs: int = PEER_RUNS) -> tuple[CaseResult, list[CaseResult]]:
        """Run ours and the peer in turn; return our run of median time and all of theirs."""
        if (case, runs) not in self._pairs:
            self._pairs[case, runs] = self.bench.pairs(case, runs=runs)
        return self._pairs[case, runs]

    def ours(self, case: str, work_units: int = DEFAULT_WORK_UNITS) -> CaseResult:
        """Run ours; return the run of median time."""
        if (case, work_units) not in self._ours:
            row = self.bench.ours(case, runs=self.runs, work_units=work_units)
            self._ours[case, work_units] = row
        return self._ours[case, work_units]

    @cached_property
    def tangled(self) -> list[str]:
        """The faults in our plans of small problems full of constraints (C1)."""
        cases = [f"tangled-{seed}/real" for seed in range(TANGLED_PROBLEMS)]
        wrong: list[str] = []
        cache = CatalogueCache()
        for case, other in zip(cases, peer.run(map(load, cases)), strict=True):
            asked = load(case)
            problem, by_first_fit = (
                asked.problem,
                replace(asked.options, packing=PackingPolicy.FIRST_FIT),
            )
            value = solve(problem, asked.options, cache=cache)
            first_fit = solve(problem, by_first_fit, cache=cache)
            left = [len(plan.unschedulable) for plan in (value, first_fit)]
            if left[0] > left[1]:
                wrong.append(f"{asked.case}: {left[0]} pods left, first-fit {left[1]}")
            if left[0] > other["pending"]:
                wrong.append(f"{asked.case}: {left[0]} pods left, peer {other['pending']}")
            if left[0] == left[1] and value.cost.hourly > first_fit.cost.hourly + 1e-9:
                costs = f"{value.cost.hourly:.4f} > {first_fit.cost.hourly:.4f}"
                wrong.append(f"{asked.case}: dearer than first-fit, {costs}")
        return wrong


# -- speed -----------------------------------------------------------------------------------------


def _speed(lab: CaseRunner, name: str, catalogue: str, gates: tuple[int, int], goals: str) -> Gate:
    """Compare the times of 1,000 and 5,000 diverse pods."""
    ratios, loaded = [
        [_ratio(lab, f"diverse-{count}/{catalogue}{option}", runs) for count in (1000, 5000)]
        for option, runs in (("", PEER_RUNS), ("/daemons", 1))
    ]
    texts = [" / ".join(f"{ratio:.0f} x" for ratio in found) for found in (ratios, loaded)]
    return Gate(
        name=name,
        what=f"times as fast as {peer.PEER}, {catalogue}, 1,000 / 5,000 diverse pods",
        gate=" / ".join(f"{gate} x" for gate in gates),
        goal=goals,
        measured=f"{texts[0]} (with DaemonSets {texts[1]})",
        holds=all(ratio >= gate for ratio, gate in zip(ratios, gates, strict=True)),
    )


def _ratio(lab: CaseRunner, case: str, runs: int) -> float:
    ours, theirs = lab.pair(case, runs)
    return statistics.median(row.seconds for row in theirs) / ours.seconds


def _s1(lab: CaseRunner) -> Iterator[Gate]:
    yield _speed(lab, "S1", "real", (20, 40), "25 x / 50 x")


def _s2(lab: CaseRunner) -> Iterator[Gate]:
    yield _speed(lab, "S2", "fake400", (5, 15), "8 x / 20 x")


def _s3(lab: CaseRunner) -> Iterator[Gate]:
    for catalogue in ("real", "fake400"):
        one = lab.ours(f"diverse-20000/{catalogue}")
        every = lab.ours(f"diverse-20000/{catalogue}", ALL_VARIANTS)
        daemons = lab.ours(f"diverse-20000/{catalogue}/daemons")
        peak_mib = max(one.peak_rss_mib, every.peak_rss_mib)
        yield Gate(
            name="S3",
            what=f"20,000 diverse pods, {catalogue}: default / all variants; peak RSS",
            gate="3 s / 6 s; 512 MiB",
            goal="1.5 s / 4 s; 300 MiB",
            measured=f"{one.seconds:.2f} s / {every.seconds:.2f} s; {peak_mib:.0f} MiB "
            f"(with DaemonSets {daemons.seconds:.2f} s)",
            holds=one.seconds <= 3 and every.seconds <= 6 and peak_mib <= 512,
        )


def _s4(lab: CaseRunner) -> Iterator[Gate]:
    row = lab.ours("deployments-2000/real")
    daemons = lab.ours("deployments-2000/real/daemons")
    yield Gate(
        name="S4",
        what=f"{row.pods:,} pods in 2,000 deployments, real",
        gate="4 s",
        goal="2.5 s",
        measured=f"{row.seconds:.2f} s, {row.peak_rss_mib:.0f} MiB "
        f"(with DaemonSets {daemons.seconds:.2f} s)",
        holds=row.seconds <= 4,
    )


def _s5(_lab: CaseRunner) -> Iterator[Gate]:
    empty, nodes = _script("latency.py", "diverse-100/real", "diverse-100/real/nodes")
    yield Gate(
        name="S5",
        what="100 mixed pods, catalogue compiled, p95: no nodes / 1,000 nodes",
        gate="40 / 80 ms",
        goal="30 / 50 ms",
        measured=f"{empty['p95_ms']:.0f} / {nodes['p95_ms']:.0f} ms "
        f"(CPU {empty['cpu_p95_ms']:.0f} / {nodes['cpu_p95_ms']:.0f} ms)",
        holds=empty["p95_ms"] <= 40 and nodes["p95_ms"] <= 80,
    )


def _s6(_lab: CaseRunner) -> Iterator[Gate]:
    idle, solving = _script("interference.py", "--json")
    yield Gate(
        name="S6",
        what="while 20,000 pods are solved: events/s, loop lag p99, lease renewals missed",
        gate="1,000, 25 ms, 0",
        goal="",
        measured=f"{solving['events_per_second']:.0f}, {solving['loop_lag_p99_ms']:.1f} ms, "
        f"{solving['renewals_missed']} (idle {idle['loop_lag_p99_ms']:.1f} ms)",
        holds=solving["events_per_second"] >= 990
        and solving["loop_lag_p99_ms"] <= 25
        and solving["renewals_missed"] == 0,
    )


def _script(name: str, *arguments: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, str(HERE / name), *arguments], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


# -- cost ------------------------------------------------------------------------------------------


def _c1(lab: CaseRunner) -> Iterator[Gate]:
    wrong = lab.tangled
    yield Gate(
        name="C1",
        what="never dearer than first-fit, never more pods left than first-fit or peer",
        gate=f"{TANGLED_PROBLEMS} random problems",
        goal="",
        measured="holds" if not wrong else f"{len(wrong)} do not: {'; '.join(wrong[:3])}",
        holds=not wrong,
    )


def _c2(lab: CaseRunner) -> Iterator[Gate]:
    for count in (1000, 5000):
        ours, theirs = lab.pair(f"diverse-{count}/real")
        change = ours.cost / _usual(theirs, "cost") - 1
        above = ours.above_bound
        yield Gate(
            name="C2",
            what=f"{count:,} diverse pods, real: against the peer; above the bound",
            gate="-30 %; 5 %",
            goal="-37 %; 3 %",
            measured=f"{_percent(change)}; {_percent(above)} ({ours.nodes} nodes, peer "
            f"{_usual(theirs, 'nodes'):.0f})",
            holds=change <= -0.30 and above is not None and above <= 0.05,
        )


def _c3(lab: CaseRunner) -> Iterator[Gate]:
    ours, theirs = lab.pair("generic-5000/real/on-demand")
    above, nodes = ours.above_bound, ours.nodes / _usual(theirs, "nodes")
    yield Gate(
        name="C3",
        what="5,000 plain pods on demand, real: above the bound; nodes against the peer",
        gate="3 %; 3 x",
        goal="1 %; 2 x",
        measured=f"{_percent(above)}; {nodes:.1f} x ({ours.nodes} nodes)",
        holds=above is not None and above <= 0.03 and nodes <= 3,
    )


def _c4(lab: CaseRunner) -> Iterator[Gate]:
    for case, most, goal in (
        ("diverse-5000/real", 1.00, "-25 %"),
        ("generic-5000/real/on-demand", 1.00, ""),
        ("generic-5000/real", 1.03, ""),
    ):
        ours, theirs = lab.pair(case)
        changes = [getattr(ours, k) / _usual(theirs, k) - 1 for k in ("cost_5th", "cost_15th")]
        yield Gate(
            name="C4",
            what=f"{case}: at the 5th / 15th cheapest type, against the peer",
            gate=f"{_percent(most - 1)}",
            goal=goal,
            measured=" / ".join(map(_percent, changes)),
            holds=all(change <= most - 1 for change in changes),
        )


def _c5(lab: CaseRunner) -> Iterator[Gate]:
    if lab.bench.trace is None or lab.bench.prices is None:
        yield _not_run("C5", "needs --trace and --prices")
        return
    row = lab.ours("openb/aws")
    change = row.cost / row.first_fit - 1 if row.first_fit else 0.0
    yield Gate(
        name="C5",
        what="openb as CPU and memory, common on-demand types: against first-fit-descending",
        gate="-10 %",
        goal="-12.6 %",
        measured=f"{_percent(change)} ({row.nodes} nodes, {row.pending} pods fit no type)",
        holds=change <= -0.10,
    )


def _c6(lab: CaseRunner) -> Iterator[Gate]:
    verifying = replace(lab.bench, verify=True)
    for case in ("deployments-40/real/cluster", "deployments-80/real/cluster"):
        ours, theirs = verifying.pairs(case, runs=CLUSTER_PAIRS)
        times = _usual(theirs, "seconds") / ours.seconds
        change, left = ours.cost / _usual(theirs, "cost") - 1, _usual(theirs, "pending")
        yield Gate(
            name="C6",
            what=f"{ours.pods:,} pods, 3 NodePools, reservations, DaemonSets, nodes 60 % full: cost "
            "against the peer; pods left; faults found by the verifier; times as fast",
            gate="0 %; no more; 0; 5 x",
            goal="-20 %; no more; 0; 20 x",
            measured=f"{_percent(change)}; {ours.pending}, peer {left:.0f}; {len(ours.violations)}; "
            f"{times:.0f} x ({1000 * ours.seconds:.0f} ms; on running nodes {ours.on_running_nodes} "
            f"pods, peer {_usual(theirs, 'on_running_nodes'):.0f}; at the 15th type "
            f"{_percent(ours.cost_15th / _usual(theirs, 'cost_15th') - 1)})",
            holds=ours.pending <= left
            and (ours.pending < left or change <= 0)
            and not ours.violations
            and times >= 5,
        )


def _usual(rows: list[CaseResult], name: str) -> float:
    return statistics.median(getattr(row, name) for row in rows)


def _percent(share: float | None) -> str:
    return "no bound" if share is None else f"{100 * share:+.1f} %"


def _not_run(name: str, why: str) -> Gate:
    return Gate(name=name, what="not run", gate="", goal="", measured=why, holds=None)


# -- the table -------------------------------------------------------------------------------------

GATES: Final[dict[str, Callable[[CaseRunner], Iterator[Gate]]]] = {
    "S1": _s1, "S2": _s2, "S3": _s3, "S4": _s4, "S5": _s5, "S6": _s6,
    "C1": _c1, "C2": _c2, "C3": _c3, "C4": _c4, "C5": _c5, "C6": _c6,
}  # fmt: skip


def run(bench: SolverBench, names: list[str], *, runs: int, as_json: bool) -> int:
    """Check the gates named, or all; print each as it is known; return 1 if one does not hold."""
    unknown = set(names) - set(GATES)
    if unknown:
        print(f"no gates {sorted(unknown)}; there are {', '.join(GATES)}", file=sys.stderr)
        return 2
    lab, failed = CaseRunner(bench, runs), False
    for name in names or GATES:
        for gate in GATES[name](lab):
            failed = failed or gate.holds is False
            if as_json:
                print(json.dumps({**asdict(gate), "load": os.getloadavg()[0]}), flush=True)
                continue
            verdict = {True: "holds", False: "FAILS", None: "-"}[gate.holds]
            print(
                f"{gate.name}  {verdict:6} {gate.what}\n"
                f"            gate {gate.gate or '-'}; goal {gate.goal or '-'}; "
                f"measured {gate.measured}; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    return int(failed)
