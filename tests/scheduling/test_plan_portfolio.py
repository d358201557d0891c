"""Plans of the portfolio, and the choice among them."""

from __future__ import annotations

from dataclasses import replace as changed
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.inputs import load
from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.records import LabelSelector, TopologySpread
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.engine import PlacementEngine
from karpenter_core.scheduling.portfolio import plan_portfolio, plan_profiles, repacked_plan
from karpenter_core.scheduling.portfolio.cost_bound import CostBound
from karpenter_core.scheduling.portfolio.finished_plan import FinishedPlan
from karpenter_core.scheduling.portfolio.repacked_plan import repacked_steps
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    ZONES,
    catalogue,
    instance_type,
    node_pool,
    pod,
    pod_shape,
    problem,
)
from tests.properties import with_examples
from tests.scheduling.handmade_plans import spread
from tests.scheduling.plan_checks import FIRST_FIT, left_behind
from tests.support.problems import seeded_problem
from tests.verifier import violations

UNEVEN = catalogue(
    *(
        instance_type(
            f"{family}-{cpu}",
            cpu=str(cpu),
            memory=f"{cpu * ratio}Gi",
            price=round(cpu * price, 4),
            capacity_types=(ON_DEMAND,),
        )
        for family, ratio, price in (("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063))
        for cpu in (2, 4, 8, 16, 32)
    )
)


def free_pods(count, *, seed=0):
    random = Random(seed)
    return [
        pod(
            f"free-{number}",
            cpu=random.choice(("100m", "250m", "500m", "1", "1500m")),
            memory=random.choice(("256Mi", "512Mi", "1Gi", "2Gi", "4Gi")),
        )
        for number in range(count)
    ]


def spread_pods(count):
    spread = TopologySpread(
        topology_key=ZONE,
        max_skew=1,
        when_unsatisfiable="DoNotSchedule",
        selector=LabelSelector(match_labels={"app": "web"}),
    )
    return [
        pod(
            f"web-{n}",
            shape=replace(
                pod_shape(labels={"app": "web"}, cpu="700m", memory="1Gi"),
                topology_spread=(spread,),
            ),
        )
        for n in range(count)
    ]


def test_pods_that_mix_freely_end_near_the_bound():
    plan = solve(problem(free_pods(400), catalogue=UNEVEN))
    assert plan.cost.lower_bound is not None
    assert plan.cost.hourly <= plan.cost.lower_bound * 1.05


@pytest.mark.parametrize(("options", "most"), [("", 1.05), ("/on-demand", 1.06)])
def test_free_pods_beside_those_that_avoid_each_other_end_near_the_bound(options, most):
    """No pod is bound to a zone; 4 and 5 % above it, 13 % if nodes are opened as pods come."""
    case = load(f"diverse-500/real{options}")
    free = {
        id(one): one if one.line.startswith("anti") else changed(one, spec={}) for one in case.pods
    }
    plan = solve(changed(case, pods=[free[id(one)] for one in case.pods]).problem)

    assert plan.cost.hourly <= plan.cost.lower_bound * most
    assert not plan.unschedulable


@pytest.mark.parametrize(("pods", "plans"), [(100, 2), (250, 4)])
def test_few_mixed_pods_have_no_second_value_plan(pods, plans, monkeypatch):
    """Their cost is far above the bound whatever the plan; a pass of a hundred pods took half as long again."""
    made = []

    def counted(*arguments):
        made.append(PlacementEngine(*arguments))
        return made[-1]

    monkeypatch.setattr(plan_portfolio, "PlacementEngine", counted)
    solve(load(f"diverse-{pods}/real").problem)

    assert len(made) == plans


def test_nodes_of_several_pools_are_chosen_in_other_ways_than_first_fits():
    """Of a cluster with reservations, limits, DaemonSets and nodes in use; 0.53 times in fact."""
    asked = load("deployments-40/real/cluster").problem
    plan = solve(asked)
    assert plan.cost.hourly < 0.7 * plan.cost.first_fit_hourly
    assert not plan.unschedulable
    assert violations(asked, plan) == []


def test_no_plan_is_made_twice(monkeypatch):
    """A share of few nodes, rounded down, is often that of another profile."""
    made = []
    plan_steps = plan_portfolio._plan_steps

    def noting(compiled, profile, halt):
        how = (
            profile.measure,
            profile.fullest_first,
            profile.late,
            profile.order,
            profile.fee_share,
            profile.fewest_first,
            profile.uneven_domains,
        )
        made.append((*how, profile.free_groups, openings_of(profile)))
        return plan_steps(compiled, profile, halt)

    def openings_of(profile):
        recorded = profile.recorded
        openings = profile.mix if recorded is None else [one.opening for one in recorded.nodes]
        return tuple((one.pool, one.row, one.signature, one.count) for one in openings)

    monkeypatch.setattr(plan_portfolio, "_plan_steps", noting)
    for count in (1, 5, 40, 400):
        made.clear()
        solve(problem(free_pods(count), catalogue=UNEVEN))
        assert len(made) == len(set(made)) > 1


def test_patterns_use_no_capacity_twice():
    """The plan stands before the judge, with pods of other kinds beside."""
    asked = problem([*free_pods(150), *spread_pods(20)], catalogue=UNEVEN)
    plan = solve(asked)
    assert not plan.unschedulable
    assert violations(asked, plan) == []


@pytest.mark.parametrize("cores", [10, 40])
def test_patterns_are_launched_within_the_limits_of_the_pool(cores):
    asked = problem(
        free_pods(100), pools=[node_pool("default", limits={"cpu": str(cores)})], catalogue=UNEVEN
    )
    plan = solve(asked)
    assert plan.unschedulable
    assert sum(claim.capacity_max["cpu"] for claim in plan.claims) <= cores * 1000


def test_more_work_never_makes_a_plan_more_expensive():
    asked = problem([*free_pods(60), *spread_pods(40)], catalogue=UNEVEN)
    few, many = (solve(asked, SolveOptions(work_units=units)) for units in (0, 10**6))
    fee = SolveOptions().node_fee_per_hour
    costs = [plan.cost.hourly + fee * len(plan.claims) for plan in (few, many)]
    assert costs[1] <= costs[0] + 1e-9
    assert (
        many.cost.hourly <= solve(asked, SolveOptions(packing=PackingPolicy.FIRST_FIT)).cost.hourly
    )


def test_a_pod_that_fits_no_node_does_not_change_the_plan_of_others():
    """The others cost what they cost without it; they are still bought as whole nodes."""
    pods = free_pods(300)
    giant = pod("giant", cpu="1000", memory="1Gi")
    alone = solve(problem(pods, catalogue=UNEVEN))
    beside = solve(problem([giant, *pods], catalogue=UNEVEN))

    assert list(beside.unschedulable) == [giant.uid]
    assert beside.cost.hourly <= alone.cost.hourly * 1.01
    assert beside.cost.hourly < beside.cost.first_fit_hourly * 0.95


@pytest.mark.parametrize(
    ("own", "other", "no_worse"),
    [
        (1.0, 1.0, True),
        (1.0, 2.0, True),
        (2.0, 1.0, False),
        (1.000000004, 1.000000004, True),
        (1.000000004, 1.0, False),
        (1.0000000001, 1.0, True),
    ],
)
def test_of_plans_with_equal_placements_the_cheaper_one_is_better(own, other, no_worse):
    """To the billionth: sums of the same prices in another order may differ by less."""
    first, second = (
        FinishedPlan(engine=None, cost_per_hour=cost, left={}) for cost in (own, other)
    )
    assert first.is_no_worse_than(second) is no_worse


@pytest.mark.parametrize(
    ("own", "other", "no_worse"),
    [({}, {0: 1}, True), ({0: 1}, {}, False), ({0: 1}, {0: 2}, True), ({0: 1}, {1: 1}, False)],
)
def test_a_plan_that_leaves_a_pod_that_another_places_is_worse_at_any_price(own, other, no_worse):
    first = FinishedPlan(engine=None, left=own, cost_per_hour=9.0 if no_worse else 1.0)
    second = FinishedPlan(engine=None, left=other, cost_per_hour=5.0)
    assert first.is_no_worse_than(second) is no_worse


@pytest.mark.parametrize(
    ("seed", "share"), [(14, 0.5), (83, 0.2), (155, 0.9), (368, 0.5), (465, 0.3)]
)
def test_few_pods_get_a_cheaper_plan_in_another_order(seed, share, monkeypatch):
    """The problems are drawn; `share` is what they cost of what they would without other orders."""
    asked = seeded_problem(seed)
    found = solve(asked)
    monkeypatch.setattr(plan_portfolio, "_FEW_PODS", 0)
    usual = solve(asked)
    assert len(found.unschedulable) == len(usual.unschedulable)
    assert float(found.cost.hourly) < share * float(usual.cost.hourly)
    assert violations(asked, found) == []


@given(st.integers(0, 10**6))
@example(186)
@example(234)
@with_examples(60)
def test_plans_in_other_orders_make_no_plan_worse(seed):
    asked = seeded_problem(seed)
    found = solve(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_portfolio, "_FEW_PODS", 0)
        usual = solve(asked)
    assert facts(found) <= facts(usual)
    if facts(found) == facts(usual):
        assert [claim.pods for claim in found.claims] == [claim.pods for claim in usual.claims]


CHEAP_SPOT = catalogue(instance_type("one", cpu="4", price=1.0, spot_discount=0.7))


def test_of_pods_spread_over_capacity_types_the_odd_one_is_spot():
    """On-demand comes first by name, but costs three times as much."""
    shape = replace(
        pod_shape(cpu="3", labels={"app": "web"}), topology_spread=spread(CAPACITY_TYPE)
    )

    plan = solve(problem([pod(f"web-{n}", shape=shape) for n in range(3)], catalogue=CHEAP_SPOT))

    bought = sorted(claim.cheapest.capacity_type for claim in plan.claims)
    assert bought == [ON_DEMAND, SPOT, SPOT]


@pytest.mark.parametrize(("skew", "bought"), [(1, [ON_DEMAND, SPOT]), (2, [SPOT, SPOT])])
def test_few_pods_are_as_uneven_as_their_spread_allows_if_that_is_cheaper(skew, bought):
    shape = replace(
        pod_shape(cpu="3", labels={"app": "web"}), topology_spread=spread(CAPACITY_TYPE, skew)
    )
    asked = problem([pod(f"web-{n}", shape=shape) for n in range(2)], catalogue=CHEAP_SPOT)

    plan = solve(asked)

    assert sorted(claim.cheapest.capacity_type for claim in plan.claims) == bought
    assert violations(asked, plan) == []


def test_of_equally_full_domains_one_with_room_comes_before_one_with_cheap_nodes():
    """The large pod needs a node in the dearest zone, and nodes are planned for such pods first."""
    types = catalogue(
        instance_type("large", cpu="4", price=1.0, zones=ZONES[-1:]),
        instance_type("small", cpu="1", price=0.5, zones=ZONES[:-1]),
    )
    small = replace(pod_shape(cpu="500m", labels={"app": "web"}), topology_spread=spread())
    apart = spread(HOSTNAME, selector=LabelSelector(match_labels={"app": "db"}))
    large = replace(pod_shape(cpu="3", labels={"app": "db"}), topology_spread=apart)
    asked = problem([pod("large", shape=large), pod("small", shape=small)], catalogue=types)
    assert [claim.cheapest.instance_type for claim in solve(asked).claims] == ["large"]


def test_a_plan_that_counts_as_first_fit_and_leaves_pods_is_not_taken():
    """Of few pods, another plan would leave two that a node takes, as it leaves zones open."""
    asked = seeded_problem(2318)
    assert list(left_behind(asked, solve(asked), solve(asked, FIRST_FIT))) == []


def facts(plan):
    """Return what plans are compared by: pods left, and cost with the fee of nodes."""
    fee = SolveOptions().node_fee_per_hour * len(plan.claims)
    return len(plan.unschedulable), round(float(plan.cost.hourly) + fee, 6)


def repackings(asked, monkeypatch):
    """Return how many plans a solve packs better, and how many of those are found."""
    found = []

    def noted(plan):
        placements = yield from repacked_steps(plan)
        found.append(len(placements))
        return placements

    monkeypatch.setattr(plan_portfolio, "repacked_steps", noted)
    plan = solve(asked)
    assert violations(asked, plan) == []
    return found, plan


def test_the_best_plan_is_packed_better_in_its_own_order(monkeypatch):
    asked = problem(spread_pods(90) + free_pods(30), catalogue=UNEVEN)
    found, _ = repackings(asked, monkeypatch)
    assert found


@pytest.mark.parametrize("least", [None, 3])
def test_nodes_whose_types_must_be_many_are_not_packed_into_others(monkeypatch, least):
    """The types that such a claim may become were chosen together."""
    packed = []

    steps = repacked_plan._Repacker._nodes_steps

    def noted(self, kind, there, now):
        packed.append(kind.claim.has_min_values)
        return steps(self, kind, there, now)

    monkeypatch.setattr(repacked_plan._Repacker, "_nodes_steps", noted)
    its_pool = node_pool(
        requirements=[RequirementSpec(key=INSTANCE_TYPE, operator="Exists", min_values=least)]
    )
    asked = problem(spread_pods(90) + free_pods(30), pools=[its_pool], catalogue=UNEVEN)
    plan = solve(asked)
    assert violations(asked, plan) == []
    assert not plan.unschedulable
    assert all(len(claim.instance_types) >= (least or 1) for claim in plan.claims)
    assert bool(packed) is (least is None)


APART = LabelSelector(match_labels={"app": "apart"})


def apart_pods(count, *, cpu="100m"):
    """Make pods of which no node takes two."""
    shape = pod_shape(labels={"app": "apart"}, cpu=cpu, memory="128Mi")
    alone = replace(shape, topology_spread=spread(HOSTNAME, selector=APART))
    return [pod(f"apart-{number}", shape=alone) for number in range(count)]


def test_a_repacked_plan_that_saves_nothing_is_not_placed(monkeypatch):
    """Pods that avoid each other are on the cheapest nodes, however far above the bound that is."""
    asked = problem(apart_pods(30, cpu="2500m"), catalogue=UNEVEN)
    found, plan = repackings(asked, monkeypatch)
    assert plan.cost.hourly > 1.06 * plan.cost.lower_bound
    assert set(found) == {0}


@pytest.mark.parametrize("apart", [0, 16])
def test_like_pods_change_places_only_if_room_decides_how_many_nodes_there_are(monkeypatch, apart):
    """New nodes for them are planned without knowledge of pods that avoid each other."""
    searched = []

    def noted(problem):
        searched.append(problem)
        return patterns_steps(problem)

    patterns_steps = repacked_plan._patterns_steps
    monkeypatch.setattr(repacked_plan, "_patterns_steps", noted)
    monkeypatch.setattr(repacked_plan._Repacker, "_nodes_steps", kept_steps)
    waiting = [
        pod(
            f"{cpu}-{number}",
            shape=replace(
                pod_shape(cpu=cpu, memory="2Gi", labels={"app": "web"}),
                topology_spread=spread(CAPACITY_TYPE),
            ),
        )
        for cpu in ("1500m", "250m")
        for number in range(12)
    ]
    solve(problem(waiting + apart_pods(apart)))
    assert bool(searched) is not bool(apart)


def kept_steps(repacker, kind, contents, now):
    """Keep the contents of claims."""
    yield 1
    return (now,)


def test_few_large_nodes_are_bought_where_many_small_ones_save_less_than_their_fees():
    """Otherwise nobody would want the nodes: 294 instead of 7, for a sixth less."""
    types = [
        instance_type(name, cpu=cpu, memory="999Gi", price=price, capacity_types=(ON_DEMAND,))
        for name, cpu, price in (("small", "2", 0.03), ("large", "64", 1.53), ("huge", "96", 9.0))
    ]
    shape = pod_shape(cpu="1500m")
    waiting = [pod(f"pod-{number}", shape=shape) for number in range(294)]
    asked = problem(waiting, catalogue=catalogue(*types))
    plan, without = solve(asked), solve(asked, SolveOptions(node_fee_per_hour=0.0))

    assert violations(asked, plan) == []
    assert [claim.cheapest.instance_type for claim in plan.claims] == ["large"] * 7
    assert [claim.cheapest.instance_type for claim in without.claims] == ["small"] * 294


def test_few_kinds_of_pods_get_the_larger_nodes_that_they_would_have_together():
    """Nodes opened one after another, as classes need them, cost a twentieth more."""
    types = [
        instance_type(
            f"{family}-{cpu}", cpu=str(cpu), memory=f"{cpu * ratio}Gi", price=round(cpu * price, 4)
        )
        for family, ratio, price in (("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063))
        for cpu in (2, 4, 8, 16, 32, 64)
    ]
    free = pod_shape(cpu="3", memory="6000Mi", labels={"app": "free"})
    zonal = replace(
        pod_shape(cpu="2", memory="2000Mi", labels={"app": "zonal"}),
        topology_spread=spread(selector=LabelSelector(match_labels={"app": "zonal"})),
    )
    waiting = [pod(f"free-{number}", shape=free) for number in range(48)]
    waiting += [pod(f"zonal-{number}", shape=zonal) for number in range(70)]
    asked = problem(waiting, catalogue=catalogue(*types))
    plan = solve(asked)

    assert violations(asked, plan) == []
    assert plan.cost.hourly + 0.01 * len(plan.claims) < 5.3


def relaxation_step(*, host=(), zonal=(), grows=()):
    groups = tuple(SimpleNamespace(kind=kind, index=number) for number, kind in enumerate(host))
    return SimpleNamespace(host=groups, zonal=zonal, grows=frozenset(grows))


FREE = relaxation_step()
ZONAL = relaxation_step(zonal=("zone",))


@pytest.mark.parametrize(
    ("steps", "tier"),
    [
        ([relaxation_step(host=[TopologyKind.SPREAD], grows=[0], zonal=("zone",))], 0),
        ([relaxation_step(host=[TopologyKind.SPREAD], grows=[1], zonal=("zone",))], 1),
        ([relaxation_step(host=[TopologyKind.AFFINITY], grows=[0])], 2),
        ([relaxation_step(host=[TopologyKind.SPREAD])], 2),
        ([ZONAL], 1),
        ([FREE], 3),
        ([FREE, ZONAL], 1),
        ([], 3),
    ],
)
def test_pods_that_force_nodes_are_placed_first_and_free_ones_last(steps, tier):
    """Between them come those with zones, then those that share or avoid nodes of others."""
    assert plan_profiles.constraint_tier(steps) == tier


def test_the_closer_bound_is_looked_for_once(monkeypatch):
    """It takes as long as a plan, and further plans would hardly raise it."""
    genuine, looks = CostBound.closer_steps, []

    def counted(bound, nodes):
        looks.append(nodes)
        return genuine(bound, nodes)

    monkeypatch.setattr(CostBound, "closer_steps", counted)
    solve(problem(free_pods(60), catalogue=UNEVEN), SolveOptions(work_units=10**6))
    assert len(looks) == 1
