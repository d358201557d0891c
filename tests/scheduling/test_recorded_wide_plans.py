"""The plans of problems that use everything at once are those that are recorded.

As in `test_recorded_plans`, nothing says that they are right; here with quotas, commitments, devices,
virtual pods and options, and with the record that the journal gets of each plan. The units of work
are recorded as well, as they say when a pass is cut short.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from karpenter_core.scheduling.journal import plan_decision
from karpenter_core.scheduling.solve import solve_steps
from karpenter_core.testing.builders import EPOCH
from tests.support.canonical_text import canonical_text
from tests.support.counted_steps import run_counted
from tests.support.recorded_digests import assert_digests
from tests.support.run_selection import telling_first
from tests.support.wide_problems import wide_options, wide_problem

RECORDED = Path(__file__).with_name("recorded_wide_plans.json")
BATCHES = 24
TELLING = (8, 15, 2, 18, 17, 14, 6, 0, 16, 20)
"""Batches that run all but 7 of 2,103 blocks of code that all run together; `cluster_runs` have the others."""
PROBLEMS = 240


def plan_text(seed):
    """Solve the problem of a seed; return its plan, its work, and the journal's record of it."""
    asked, options = wide_problem(seed), wide_options(seed)
    plan, units = run_counted(solve_steps(asked, options))
    names = [f"claim-{number}" for number in range(len(plan.claims) // 2)]
    refused = {0: "limits are reached"} if plan.claims and seed % 5 == 0 else {}
    decision = plan_decision(
        plan,
        asked,
        options=options,
        id="decision-1",
        cause="test",
        at=EPOCH,
        names=names,
        refused=refused,
    )
    return canonical_text((plan, decision, units))


@pytest.mark.recorded
@pytest.mark.parametrize("batch", telling_first(BATCHES, TELLING))
def test_plans_are_the_recorded_ones(batch):
    texts = {f"wide-{seed:03}": plan_text(seed) for seed in range(batch, PROBLEMS, BATCHES)}
    assert_digests(texts, RECORDED)
