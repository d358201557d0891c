"""The use of commitments by nodes and NodeClaims of all NodePools."""

from __future__ import annotations

import pytest

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import (
    ALIASES,
    CPU,
    INSTANCE_TYPE,
    NODES,
    PRICE_PER_HOUR,
    SPOT,
    WELL_KNOWN,
)
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.state.commitments import commitment_balances, commitment_uses
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import node_claim
from tests.disruption.small_clusters import (
    NOW,
    ONE,
    box,
    cluster,
    gone,
    pass_over,
    pool,
    runs,
    single,
)

ONLY_FOUR = (RequirementSpec(key=INSTANCE_TYPE, operator="In", values=("four",)),)


def committed(amount, *, resource=CPU, requirements=ONLY_FOUR, price=0.05, discount=0.0, name="a"):
    return Commitment(
        name=name,
        requirements=requirements,
        resource=resource,
        amount=amount,
        price=price,
        discount=discount,
    )


def balances(builder, *commitments):
    return commitment_balances(
        builder.snapshot(), commitments, {"USD": 1.0}, well_known=WELL_KNOWN, aliases=ALIASES
    )


def used(builder, *commitments):
    return [each.used for each in balances(builder, *commitments)]


def test_matching_on_demand_nodes_of_all_pools_are_counted():
    """Other types and spot are not."""
    state = cluster(
        pool(),
        box("a"),
        box("b"),
        box("spot", capacity_type=SPOT),
        box("small", of=ONE),
    )

    assert used(state, committed(0), committed(0, resource=NODES)) == [8000, 2]
    assert used(state, committed(0, resource=PRICE_PER_HOUR, price=None, discount=0.5)) == [800_000]
    assert used(state, committed(0, requirements=())) == [9000]


def test_claim_that_may_become_such_a_node_counts_before_it_is_launched():
    """A restart between creation and launch loses none."""
    claim = node_claim(
        "new",
        stage="",
        requirements=(RequirementSpec(key=INSTANCE_TYPE, operator="In", values=("two", "four")),),
    )

    assert used(cluster(pool(), claim), committed(0)) == [4000]


def test_balance_is_part_of_the_scheduling_problem():
    """The remaining units are never below 0."""
    settings = ProblemSettings(commitments=(committed(6000), committed(1000, name="b")))
    state = cluster(pool(), box("a"), pod("waiting"))

    problem = build_provisioning_input(state.snapshot(), now=NOW, problem_settings=settings).problem

    assert [each.remaining for each in problem.commitments] == [2000, 0]


def test_commitment_use_has_the_covered_price_and_the_list_price():
    """One and a half of two nodes; each costs 0.4, and 0.2 where it is covered."""
    state = cluster(pool(), box("a"), box("b"))

    (use,) = commitment_uses(state.snapshot(), balances(state, committed(6000)))

    assert use.list_price == pytest.approx(0.6)
    assert use.covered_price == pytest.approx(0.3)


def options(*commitments):
    return DisruptionOptions(problem_settings=ProblemSettings(commitments=commitments))


@pytest.mark.parametrize(("amount", "taken"), [(4000, []), (0, ["a"]), (2000, [])])
def test_committed_node_is_not_replaced_by_a_cheaper_one(amount, taken):
    """Its price is paid anyway; half of 0.4 is as much as the cheaper node of 0.2 costs."""
    state = cluster(pool(), box("a"), runs("web", "a", cpu="1500m"))

    assert gone(single(state, options=options(committed(amount)))) == taken


def test_nodes_beyond_the_commitment_save_their_price_only_once():
    """Of two nodes one is covered: one may go at its price, both together not at two."""
    state = cluster(pool(), box("a"), box("b"))
    disruption = pass_over(state, options=options(committed(4000)))
    found = disruption.candidates(DisruptionClass.GRACEFUL).candidates

    assert disruption.prices.cost_per_hour(found[:1]) == pytest.approx(0.4)
    assert disruption.prices.cost_per_hour(found) == pytest.approx(0.4)
