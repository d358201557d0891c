"""The plans and verdicts of some hundred generated problems are those that are recorded.

Nothing says that a recorded plan is right: other tests do. This one says that a change which is meant
to change no plan changes none, and which plans any other change does.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from karpenter_core.scheduling.problem import PackingPolicy, ReservationPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from tests.scheduling.whatif_cases import asked, seeded_cluster, verdict_facts
from tests.support.canonical_text import canonical_text
from tests.support.problems import seeded_problem
from tests.support.recorded_digests import assert_digests
from tests.support.run_selection import others_as_cluster_runs

RECORDED = Path(__file__).with_name("recorded_plans.json")
BATCHES = 12
PROBLEMS = 240
CLUSTERS = 120
OPTIONS = (
    SolveOptions(),
    SolveOptions(packing=PackingPolicy.FIRST_FIT),
    SolveOptions(reservations=ReservationPolicy.FALLBACK),
)


@pytest.mark.recorded
@pytest.mark.parametrize("batch", others_as_cluster_runs(range(BATCHES), first=6))
def test_plans_are_the_recorded_ones(batch):
    texts = {}
    for seed in range(batch, PROBLEMS, BATCHES):
        plan = solve(seeded_problem(seed), OPTIONS[seed // BATCHES % len(OPTIONS)])
        texts[f"plan-{seed:03}"] = canonical_text(plan)
    assert_digests(texts, RECORDED)


def verdict_text(verdict):
    return canonical_text((*verdict_facts(verdict), verdict.removed, verdict.moves, verdict.claims))


@pytest.mark.recorded
@pytest.mark.parametrize("batch", others_as_cluster_runs(range(BATCHES), first=6))
def test_verdicts_of_what_ifs_equal_the_recorded_ones(batch):
    texts = {}
    for seed in range(batch, CLUSTERS, BATCHES):
        random, cluster = Random(seed), seeded_cluster(seed)
        whatif = asked(cluster)
        names = [node.name for node in cluster.nodes]
        said = []
        for _ in range(4 if names else 0):
            chosen = random.sample(names, random.choice((1, 1, random.randrange(len(names)) + 1)))
            limits = random.choice(({}, {"below_price": 0.2, "max_claims": 1}, {"max_claims": 0}))
            said.append(whatif.evaluate(chosen, **limits))
        if names:
            said.append(whatif.push(names[:1]))
            said.append(whatif.evaluate(names[1:2]))
        texts[f"verdict-{seed:03}"] = canonical_text(list(map(verdict_text, said)))
    assert_digests(texts, RECORDED)
