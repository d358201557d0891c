"""Plans do not depend on the numbers of signatures.

What-ifs share one table of signatures, which grows in the order of the questions: the same question
has other numbers after others. Nothing may be decided by them.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.compiled.signatures import SignatureTable
from karpenter_core.scheduling.portfolio.plan_portfolio import portfolio_steps
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.steps import run_steps
from tests.properties import with_examples
from tests.support.strategies import problems
from tests.support.wide_problems import wide_options, wide_problem


def with_other_numbers(compiled, *, known):
    """Return a compiled problem in which the signatures found later came up in reverse order.

    The first `known` are those of the problem itself.
    """
    found = compiled.signatures
    fresh = SignatureTable(compiled.pools, compiled.pool_free, compiled.axes, compiled.options)
    later = range(len(found) - 1, known - 1, -1)
    for number in (*range(known), *later):
        if found.is_claim(number):
            claim = found.claim(number)
            fresh.number_of_claim(
                claim.pool,
                claim.requirements,
                claim.host_ports,
                claim.bits,
                held=claim.held,
                min_values_relaxed=claim.min_values_relaxed,
            )
        else:
            fresh.number_of_node(found._nodes[number])
    event(f"{min(len(later), 5)} signatures or more")
    return replace(compiled, signatures=fresh)


def placed(compiled):
    """Return what all plans put where, and what the best one costs."""
    plans = run_steps(portfolio_steps(compiled))
    return [(plan.engine.nodes.log, plan.cost_per_hour) for plan in (plans.first_fit, plans.best)]


def assert_same_with_other_numbers(asked, options):
    compiled = run_steps(compile_steps(asked, options, CatalogueCache()))
    known = len(compiled.signatures)
    before = placed(compiled)

    assert placed(with_other_numbers(compiled, known=known)) == before


@given(problems())
@with_examples(40)
def test_plans_do_not_depend_on_the_numbers_of_signatures(asked):
    assert_same_with_other_numbers(asked, SolveOptions())


@given(st.integers(0, 10**6))
@with_examples(30)
def test_plans_of_everything_at_once_do_not_depend_on_the_numbers_of_signatures(seed):
    assert_same_with_other_numbers(wide_problem(seed), wide_options(seed))
