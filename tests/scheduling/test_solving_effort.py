"""Cost of computing a plan, in work units and compiled catalogues."""

from __future__ import annotations

import subprocess
import sys

from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.placement.engine import HaltRequest
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve, solve_steps
from karpenter_core.testing.builders import (
    existing_node,
    node_pool,
    pod,
    pods,
    problem,
    standard_catalogue,
)

DOLLARS = {"currency": "USD", "exchange_rates": {}}


def units(asked):
    """Return how much work a problem was."""
    return sum(solve_steps(asked, options=None))


def test_identical_pods_are_placed_as_one():
    """Ten times the pods are hardly more work, and pods of equal templates are one class."""
    few, many = units(problem(pods(300))), units(problem(pods(3000)))
    templates = [pod(f"p{n}", labels={"pod-template-hash": str(n)}) for n in range(300)]

    assert many <= few + 3 * 5 + 10
    assert units(problem(templates)) == few


def test_equal_nodes_are_compared_once():
    """Hundreds of nodes that differ in name only add next to nothing."""
    nodes = [existing_node(f"n{n}") for n in range(400)]

    assert units(problem(pods(10), nodes=nodes)) < units(problem(pods(10))) + 10


def test_a_catalogue_is_compiled_once_a_version():
    """The cache shares columns among pools, forgets old versions and pools that are gone."""
    cache = CatalogueCache()
    first, second = standard_catalogue("1"), standard_catalogue("2")
    compiled = cache.compiled("a", first, **DOLLARS)

    assert cache.compiled("a", standard_catalogue("1"), **DOLLARS) is compiled
    assert cache.compiled("b", first, **DOLLARS) is compiled
    newer = cache.compiled("a", second, **DOLLARS)
    assert newer is not compiled
    rated = cache.compiled("a", second, currency="USD", exchange_rates={"EUR": 1.1})
    assert rated is not newer
    cache.retain({"b"})
    assert cache.compiled("a", second, currency="USD", exchange_rates={"EUR": 1.1}) is not rated
    assert cache.compiled("b", first, **DOLLARS) is compiled


def test_a_cache_changes_no_plan():
    """Cold or warm, with pools in between."""
    cache = CatalogueCache()
    asked = problem(pods(40, cpu="1"))
    cold = solve(asked)
    solve(problem(pods(3), pools=[node_pool("other", weight=5)]), cache=cache)

    for _ in range(2):
        warm = solve(asked, cache=cache)
        assert [c.instance_types for c in warm.claims] == [c.instance_types for c in cold.claims]
        assert warm.cost == cold.cost


def test_types_and_requirements_load_without_numpy():
    """Code that only reads plans, prices or labels imports no array library."""
    code = (
        "import sys\n"
        "import karpenter_core.scheduling.problem, karpenter_core.scheduling.offerings\n"
        "import karpenter_core.scheduling.requirements, karpenter_core.cli.plan\n"
        "sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_first_plan_of_a_process_loads_nothing_more():
    """Some functions of numpy import much of it when first called: as long as a whole plan takes."""
    script = (
        "import sys; from karpenter_core.scheduling.solve import solve; "
        "from tests.support.problems import ALL_FEATURES, seeded_problem; "
        "problems = [seeded_problem(seed, ALL_FEATURES) for seed in range(12)]; "
        "before = {name for name in sys.modules if name.startswith('numpy')}; "
        "plans = [solve(problem) for problem in problems]; "
        "assert any(plan.claims for plan in plans); "
        "print(sorted(name for name in sys.modules if name.startswith('numpy') "
        "and name not in before))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )

    assert ended.stdout.strip() == "[]"


def test_a_halted_pass_keeps_its_placements():
    """Pods it did not reach are neither placed nor called unschedulable."""
    sizes = [pod(f"p{n:02}", cpu=f"{100 + n}m") for n in range(40)]
    halt = HaltRequest()
    steps = solve_steps(problem(sizes), halt=halt, options=None)
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan = end.value
            break
        taken += 1
        halt.requested = taken > 20
    placed = len(plan.sequence)
    assert plan.partial
    assert 0 < placed < 40
    assert plan.unschedulable == {}
    assert sum(len(claim.pods) for claim in plan.claims) == placed


def test_a_halt_after_the_first_whole_plan_gives_that_plan():
    halt = HaltRequest()
    sizes = [pod(f"p{n:02}", cpu=f"{100 + n}m") for n in range(40)]
    whole = len(list(solve_steps(problem(sizes), SolveOptions(packing=PackingPolicy.FIRST_FIT))))
    steps = solve_steps(problem(sizes), halt=halt, options=None)
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan = end.value
            break
        taken += 1
        halt.requested = taken >= whole
    assert not plan.partial
    assert len(plan.sequence) == 40
