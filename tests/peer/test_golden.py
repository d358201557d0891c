"""Pods stay pending exactly when Karpenter's own scheduler leaves them.

The clusters and its answers are those of `golden.py`; `compare.py` asks it anew.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from karpenter_core.scheduling.problem import PoolConstraint
from tests.peer import golden
from tests.peer.our_plans import plans

CASES = golden.read()
PARTS = 8


@pytest.fixture(scope="module", params=range(PARTS))
def answers(request):
    """Some of the clusters, with our plans in both packings."""
    return [
        (case, *plans(case["cluster"], case["types"], "first-fit", "value"))
        for case in CASES[request.param :: PARTS]
    ]


def test_first_fit_leaves_the_pods_that_the_reference_leaves(answers):
    """Or those that an explained difference makes it leave."""
    for case, first_fit, _ in answers:
        expected = case["ours"] if "difference" in case else case["unschedulable"]
        assert sorted(first_fit["unschedulable"]) == expected, case.get("difference")


def test_the_default_packing_leaves_fewer_pods_or_the_same(answers):
    for _, first_fit, value in answers:
        left, left_by_first_fit = set(value["unschedulable"]), set(first_fit["unschedulable"])
        assert len(left) < len(left_by_first_fit) or left == left_by_first_fit


def test_the_summary_says_how_the_clusters_were_chosen():
    """Seeds follow each other: none is missing but those that were dropped."""
    document = json.loads(golden.CHOSEN.read_text())
    drawn = range(document["firstSeed"], document["firstSeed"] + document["drawn"])
    seeds = [case["seed"] for case in CASES]
    assert seeds == sorted(set(seeds) & set(drawn))
    assert len(drawn) - len(seeds) == sum(document["dropped"].values())
    assert document == golden.summary(CASES, Counter(document["dropped"]), drawn=len(drawn))


def test_every_difference_is_explained_and_is_one():
    for case in CASES:
        if "difference" in case:
            assert case["difference"]
            assert case["ours"] != case["unschedulable"]


def test_every_pending_pod_has_a_constraint_for_each_pool(answers):
    known = {constraint.value for constraint in PoolConstraint}
    for case, first_fit, value in answers:
        pools = {pool["metadata"]["name"] for pool in case["cluster"]["nodePools"]}
        for why in (*first_fit["unschedulable"].values(), *value["unschedulable"].values()):
            assert why["message"]
            assert set(why["pools"]) == pools
            assert all(pool["constraint"] in known for pool in why["pools"].values())
            assert all(pool["detail"] for pool in why["pools"].values())
