"""Solves one case and measures time, pods, nodes, price and memory.

What is timed: the whole of `solve`, cold: an empty cache of compiled catalogues, pods whose classes
nobody has seen, the plans, their choice and the emission of claims. Not timed: the interpreter's
start, imports (a controller loads the solver before the first pods come) and the reading of
manifests, as neither is on the other side.
"""

from __future__ import annotations

import gc
import hashlib
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.scheduling.problem import PackingPolicy, SchedulingProblem, SolveOptions
from karpenter_core.scheduling.solve import solve, solve_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.inputs import BenchmarkCase
    from karpenter_core.scheduling.problem import (
        PlannedNodeClaim,
        SchedulingPlan,
    )

__all__ = ["DEFAULT_WORK_UNITS", "CaseResult", "kth_cheapest_cost", "measure", "quantile", "timed"]

DEFAULT_WORK_UNITS: Final = SolveOptions().work_units
ROBUST: Final = (5, 15)
"""At which of its cheapest types each claim is priced besides the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The figures of one case. Seconds are of the wall clock, prices per hour.

    `cost_5th` and `cost_15th` price each claim at its fifth and fifteenth cheapest type (the last
    one when it has fewer). `peak_rss_mib` is the whole process', of which `input_rss_mib` was there
    before. There is no `bound` where reserved instances make it next to nothing. `longest_step_ms` is CPU time, the longest the planner keeps its thread.
    """

    case: str
    pods: int
    seconds: float
    cpu_seconds: float
    pending: int
    nodes: int
    cost: float
    cost_5th: float
    cost_15th: float
    peak_rss_mib: float
    bound: float | None = None
    first_fit: float | None = None
    on_running_nodes: int = 0
    longest_step_ms: float = 0.0
    input_rss_mib: float = 0.0
    digest: str = ""
    violations: tuple[str, ...] = ()

    @property
    def pods_per_second(self) -> float:
        """Throughput."""
        return self.pods / self.seconds

    @property
    def above_bound(self) -> float | None:
        """By how much the cost exceeds its lower bound, as a share of the bound."""
        return self.cost / self.bound - 1 if self.bound else None


def measure(
    asked: BenchmarkCase,
    *,
    packing: PackingPolicy = PackingPolicy.VALUE,
    work_units: int = DEFAULT_WORK_UNITS,
    verify: Callable[[SchedulingProblem, SchedulingPlan], list[str]] | None = None,
) -> CaseResult:
    """Solve a case, cold."""
    options = replace(asked.options, packing=packing, work_units=work_units)
    problem = asked.problem
    solve(SchedulingProblem(pods=()))
    gc.collect()
    input_rss_mib = _current_rss_mib()
    plan, seconds, cpu_seconds, longest = timed(problem, options)
    # The kernel counts the peak in batches: it may lie a little below what is there.
    peak_rss_mib = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, input_rss_mib)
    return CaseResult(
        case=asked.case,
        pods=len(problem.pods),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        pending=len(plan.unschedulable),
        nodes=len(plan.claims),
        on_running_nodes=sum(map(len, plan.existing.values())),
        cost=plan.cost.hourly,
        cost_5th=kth_cheapest_cost(problem, plan, ROBUST[0]),
        cost_15th=kth_cheapest_cost(problem, plan, ROBUST[1]),
        bound=None if asked.has_cluster else plan.cost.lower_bound,
        first_fit=plan.cost.first_fit_hourly,
        longest_step_ms=1000 * longest,
        peak_rss_mib=peak_rss_mib,
        input_rss_mib=input_rss_mib,
        digest=_digest(plan),
        violations=tuple(verify(problem, plan)) if verify else (),
    )


def timed(
    problem: SchedulingProblem, options: SolveOptions, **keywords: Any
) -> tuple[SchedulingPlan, float, float, float]:
    """Solve; return the plan, seconds, CPU seconds and the CPU seconds of the longest step."""
    longest = 0.0
    started, cpu_started = time.perf_counter(), time.thread_time()
    steps = solve_steps(problem, options, **keywords)
    before = cpu_started
    while True:
        try:
            next(steps)
        except StopIteration as end:
            now = time.thread_time()
            seconds = time.perf_counter() - started
            return end.value, seconds, now - cpu_started, max(longest, now - before)
        now = time.thread_time()
        longest, before = max(longest, now - before), now


def kth_cheapest_cost(problem: SchedulingProblem, plan: SchedulingPlan, k: int) -> float:
    """Add up what the claims cost if each becomes its k-th cheapest type (or its last)."""
    prices: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, float]] = {}
    sold = {pool: _sold(problem, pool) for pool in problem.catalogues}
    total = 0.0
    for claim in plan.claims:
        allowed = frozenset(
            (zone, kind)
            for zone, kind in sold[claim.pool]
            if _allows(claim, ZONE, zone) and _allows(claim, CAPACITY_TYPE, kind)
        )
        known = prices.get((claim.pool, allowed))
        if known is None:
            known = prices[claim.pool, allowed] = _cheapest(problem, claim.pool, allowed)
        listed = sorted(known[name] for name in claim.instance_types)
        total += listed[min(k, len(listed)) - 1]
    return total


def _sold(problem: SchedulingProblem, pool: str) -> set[tuple[str, str]]:
    types = problem.catalogues[pool].instance_types
    return {(o.zone, o.capacity_type) for it in types for o in it.offerings if o.available}


def _allows(claim: PlannedNodeClaim, key: str, value: str) -> bool:
    return all(r.has(value) for r in claim.requirements if r.key == key)


def _cheapest(
    problem: SchedulingProblem, pool: str, allowed: frozenset[tuple[str, str]]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for instance_type in problem.catalogues[pool].instance_types:
        prices = [
            offering.price.amount
            for offering in instance_type.offerings
            if offering.available and (offering.zone, offering.capacity_type) in allowed
        ]
        if prices:
            found[instance_type.name] = min(prices)
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of all lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _digest(plan: SchedulingPlan) -> str:
    """Return a digest of the plan, which no run of the same problem may change."""
    claims = [(c.pool, c.instance_types, [pod.key for pod in c.pods]) for c in plan.claims]
    running = [(name, [pod.key for pod in pods]) for name, pods in plan.existing.items()]
    text = repr((claims, running, list(plan.unschedulable)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _current_rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20
