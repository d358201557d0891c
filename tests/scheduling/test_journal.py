"""Plans as entries of the decision journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from karpenter_core.scheduling.journal import inputs_digest, plan_decision
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import catalogue, instance_type, node_pool, pod, problem

AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def asked():
    """Three pods, of which one is too large."""
    pods = [pod("a", cpu="1"), pod("b", cpu="1"), pod("huge", cpu="100")]
    types = catalogue(instance_type("small", cpu="2"), instance_type("large", cpu="4"))
    return problem(pods, pools=[node_pool("general")], catalogues={"general": types})


def record(asked, **fields):
    options = SolveOptions()
    return plan_decision(
        solve(asked, options),
        asked,
        options=options,
        id="id-1",
        cause="three pods",
        at=AT,
        **fields,
    )


def test_a_pass_is_on_record_with_its_claims_and_prices(asked):
    """Those that could not be created have no name."""
    plan = solve(asked, SolveOptions())
    made = record(asked, names=("general-x",))

    assert (made.kind, made.method, made.id, made.cause, made.at, made.inputs) == (
        "provision", "value", "id-1", "three pods", AT, inputs_digest(asked),
    )  # fmt: skip
    assert [item.node_claim for item in made.launches] == ["general-x"]
    assert sum(item.pods for item in made.launches) == 2
    assert made.price_per_hour_before.amount == 0
    assert made.price_per_hour_after.amount == pytest.approx(plan.cost.hourly)
    assert made.alternatives["lower-bound"] <= made.price_per_hour_after.amount + 1e-9
    assert [ref.name for ref in made.objects] == ["general-x"]
    assert [item.node_claim for item in record(asked, names=(None,)).launches] == [""]


def test_pods_without_a_place_are_on_record_with_the_constraint(asked):
    """By what keeps them."""
    (obstacle,) = record(asked).obstacles

    assert (obstacle.kind, obstacle.reason, obstacle.count) == ("Pod", "resource", 1)
    assert obstacle.names == ("default/huge",)


def test_the_digest_depends_on_the_request_and_not_on_order(asked):
    """Pods, pools and catalogues count."""
    backwards = replace(asked, pods=asked.pods[::-1])
    fewer = replace(asked, pods=asked.pods[:2])
    other = replace(
        asked, catalogues={"general": catalogue(instance_type("small", cpu="2"), version="2")}
    )

    assert inputs_digest(asked) == inputs_digest(backwards)
    assert len({inputs_digest(item) for item in (asked, fewer, other)}) == 3


def test_the_summary_names_only_what_there_is(asked):
    """A pass that launches nothing has no "0 nodeclaim(s)"."""
    assert record(asked).summary == "1 nodeclaim(s) for 2 pod(s), 1 pod(s) pending"
    only_huge = replace(asked, pods=[each for each in asked.pods if each.name == "huge"])
    assert record(only_huge).summary == "1 pod(s) pending"


def test_a_plan_with_nothing_to_say_is_empty(asked):
    """Such a decision is no news for anybody."""
    assert record(replace(asked, pods=[])).is_empty
    assert not record(asked).is_empty
