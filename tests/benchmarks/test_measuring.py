"""Benchmarks report what they measured, and gates fail below their figures."""

from dataclasses import replace

import pytest

from benchmarks.gates import GATES, CaseRunner
from benchmarks.inputs import load
from benchmarks.interference import summarize
from benchmarks.measure import CaseResult, kth_cheapest_cost, measure
from benchmarks.solver_bench import SolverBench, median, read_peer
from karpenter_core.scheduling.solve import solve

ROW = CaseResult(
    case="diverse-1000/real",
    pods=1000,
    seconds=0.5,
    cpu_seconds=0.5,
    pending=0,
    nodes=200,
    cost=6.0,
    cost_5th=8.0,
    cost_15th=10.0,
    peak_rss_mib=90.0,
    bound=5.8,
    first_fit=9.0,
)


class StubBench(SolverBench):
    """Answers with rows made up."""

    def ours(self, case, *, runs=1, work_units=0):
        return replace(ROW, case=case, pods=pods_of(case))

    def peers(self, case, *, runs=1):
        return [replace(ROW, case=case, seconds=16.0, cost=10.0, cost_5th=12.0, cost_15th=14.0)]


def pods_of(case):
    return int(case.partition("/")[0].partition("-")[2] or 0)


def test_row_describes_the_plan():
    asked = load("generic-40/real")
    plan = solve(asked.problem, asked.options)

    row = measure(asked)

    assert (row.pods, row.pending, row.nodes) == (40, 0, len(plan.claims))
    assert row.cost == plan.cost.hourly
    assert 0 < row.cost < row.cost_5th < row.cost_15th
    assert row.input_rss_mib <= row.peak_rss_mib


def test_the_first_type_of_a_claim_has_the_price_of_the_plan():
    asked = load("generic-40/real")
    plan = solve(asked.problem, asked.options)

    assert kth_cheapest_cost(asked.problem, plan, 1) == pytest.approx(plan.cost.hourly)


def test_claims_with_few_types_are_priced_at_their_last():
    asked = load("generic-40/real")
    plan = solve(asked.problem, asked.options)

    assert kth_cheapest_cost(asked.problem, plan, 10_000) >= kth_cheapest_cost(
        asked.problem, plan, 15
    )


def test_plans_of_one_problem_have_one_digest():
    assert measure(load("diverse-40/real")).digest == measure(load("diverse-40/real")).digest


def test_plans_of_two_problems_differ_in_digest():
    assert measure(load("diverse-40/real")).digest != measure(load("diverse-41/real")).digest


def test_median_is_a_row_that_was_measured():
    rows = [replace(ROW, seconds=seconds) for seconds in (3.0, 1.0, 2.0, 9.0)]

    assert median(rows).seconds == 2.0


def test_rows_of_the_peer_may_say_more_than_ours():
    answer = {
        "case": "generic-1/real", "pods": 1, "pending": 0, "nodes": 1, "cost": 1.0,
        "cost_5th": 1.0, "cost_15th": 1.0, "seconds": 2.0, "cpu_seconds": 3.0,
        "peak_rss_mib": 4.0, "workers": 5, "setup_seconds": 0.1,
    }  # fmt: skip

    assert read_peer(answer).pods_per_second == 0.5


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("S1", [False]),  # 32 times as fast: enough for 1,000 pods, not for 5,000
        ("S2", [True]),
        ("C2", [True, True]),
        ("C3", [False]),  # 3.4 % above the bound
        ("C4", [True, True, True]),
        ("C6", [True, True]),
    ],
)
def test_gates_compare_with_the_peer(name, holds):
    assert [gate.holds for gate in GATES[name](CaseRunner(StubBench(), runs=1))] == holds


@pytest.mark.parametrize(
    "worse",
    [{"pending": 1}, {"cost": 10.5}, {"violations": ("pod-1 has no place",)}, {"seconds": 4.0}],
)
def test_a_plan_of_a_cluster_must_be_valid_whole_cheap_and_fast(worse):
    class WorseBench(StubBench):
        def ours(self, case, *, runs=1, work_units=0):
            return replace(super().ours(case), **worse)

    gates = GATES["C6"](CaseRunner(WorseBench(), runs=1))
    assert [gate.holds for gate in gates] == [False, False]


def test_cost_of_a_trace_needs_its_paths():
    assert [gate.holds for gate in GATES["C5"](CaseRunner(StubBench(), runs=1))] == [None]


def test_late_renewals_count_as_missed():
    phase = summarize(
        "solving",
        seconds=10.0,
        passes=[4.0],
        ages=[0.001] * 5000,
        lags=[0.002] * 98 + [0.03, 0.04],
        renewed=[90.0, 99.0, 101.0, 103.1, 107.0, 109.0],
        started=100.0,
    )

    assert (phase.renewals, phase.renewals_missed) == (4, 1)
    assert phase.longest_renewal_gap_seconds == pytest.approx(3.9)
    assert phase.events_per_second == 500
    assert phase.loop_lag_p99_ms == pytest.approx(40.0)
