"""Plans of more pods than are nominated, which kube-scheduler binds in all zones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from msgspec.structs import replace as changed

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    TopologySpread,
)
from karpenter_core.scheduling.portfolio import even_zones
from karpenter_core.scheduling.portfolio.even_zones import MOST_COST
from karpenter_core.scheduling.problem import PackingPolicy, PodVolumes, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
)
from tests.properties import with_examples
from tests.scheduling.plan_checks import FIRST_FIT, compared
from tests.support.strategies import problems
from tests.verifier import violations

ZONES = ("zone-a", "zone-b", "zone-c")


def spread_over(key):
    return TopologySpread(
        topology_key=key,
        max_skew=1,
        when_unsatisfiable="DoNotSchedule",
        selector=LabelSelector(match_labels={"app": "web"}),
    )


def replicas(name, count, *, cpu="1", memory="2Gi", **more):
    shape = changed(pod_shape(cpu=cpu, memory=memory, labels={"app": name}), **more)
    return [pod(f"{name}-{number:03d}", shape=shape) for number in range(count)]


def in_zones(*zones):
    expression = NodeSelectorRequirement(key=ZONE, operator="In", values=zones)
    return NodeSelectorTerm(match_expressions=(expression,))


def bound_to_zones(count=30):
    return replicas("web", count, topology_spread=(spread_over(ZONE),))


def types(*, dearer=0.001, zones=ZONES):
    """Each zone is dearer than the one before."""
    return catalogue(
        *(
            instance_type(
                f"m-{cpus}",
                cpu=str(cpus),
                memory=f"{4 * cpus}Gi",
                offerings=[
                    offering(zone=zone, price=cpus * (0.05 + dearer * number))
                    for number, zone in enumerate(zones)
                ],
            )
            for cpus in (4, 16)
        )
    )


def unnominated(pods, **more):
    return replace(problem(pods, **({"catalogue": types(dearer=0.0)} | more)), is_unnominated=True)


def planned(asked, options=None):
    """Solve, and have the plan judged."""
    plan = solve(asked, options or SolveOptions())
    assert violations(asked, plan) == []
    return plan


@pytest.fixture
def at_any_cost(monkeypatch):
    """Few pods are divided as they are at whatever it costs; of many, the rest decides little."""
    monkeypatch.setattr(even_zones, "MOST_COST", 10.0)


def zones_of(plan, name):
    """Return the number of pods of a Deployment in each zone."""
    return Counter(
        claim.cheapest.zone
        for claim in plan.claims
        for each in claim.pods
        if each.name.startswith(f"{name}-")
    )


def even(pods_in_zone):
    return dict.fromkeys(ZONES, pods_in_zone)


def is_cheapest(asked, options=None):
    """Tell whether the plan is the one that is made of pods that are nominated."""
    plain = solve(replace(asked, is_unnominated=False), options or SolveOptions())
    plan = planned(asked, options)
    return [c.requirements for c in plan.claims] == [c.requirements for c in plain.claims]


def test_pods_that_are_not_nominated_are_planned_in_all_zones():
    asked = unnominated([*bound_to_zones(), *replicas("job", 60)])
    plain = solve(replace(asked, is_unnominated=False))
    assert max(zones_of(plain, "job").values()) > 30

    plan = planned(asked)

    assert zones_of(plan, "job") == even(20)
    assert zones_of(plan, "web") == even(10)
    assert plan.cost.hourly <= MOST_COST * plain.cost.hourly
    assert plan.cost.lower_bound == plain.cost.lower_bound
    assert plan.cost.first_fit_hourly == plain.cost.first_fit_hourly
    assert plan.pending_by_zone == plain.pending_by_zone


@pytest.mark.usefixtures("at_any_cost")
def test_the_plan_has_the_pods_that_were_asked_about():
    asked = unnominated(
        [*bound_to_zones(), *replicas("job", 60)],
        nodes=[existing_node("old", cpu="2", memory="8Gi")],
    )
    plan = planned(asked)
    placed = [each for claim in plan.claims for each in claim.pods]
    placed += [each for pods in plan.existing.values() for each in pods]
    assert len(plan.existing["old"]) == 2
    assert {id(each) for each in placed} == {id(each) for each in asked.pods}
    assert sorted(plan.sequence) == sorted(each.uid for each in asked.pods)


@pytest.mark.usefixtures("at_any_cost")
def test_the_rest_of_a_division_goes_where_the_fewest_cpus_are():
    asked = unnominated(
        [*bound_to_zones(), *replicas("large", 10, cpu="3"), *replicas("small", 11)]
    )
    plan = planned(asked)
    assert zones_of(plan, "large") == {"zone-a": 4, "zone-b": 3, "zone-c": 3}
    assert zones_of(plan, "small") == {"zone-a": 3, "zone-b": 4, "zone-c": 4}


@pytest.mark.usefixtures("at_any_cost")
def test_a_small_class_is_not_divided():
    asked = unnominated([*bound_to_zones(), *replicas("large", 8, cpu="3"), *replicas("small", 7)])
    plan = planned(asked)
    assert zones_of(plan, "large") == {"zone-a": 3, "zone-b": 3, "zone-c": 2}
    assert zones_of(plan, "small") == {"zone-c": 7}


@pytest.mark.usefixtures("at_any_cost")
def test_pods_that_may_be_in_two_zones_are_divided_between_these():
    in_two = (in_zones("zone-a", "zone-c"),)
    asked = unnominated([*bound_to_zones(), *replicas("job", 20, required_node_terms=in_two)])
    assert zones_of(planned(asked), "job") == {"zone-a": 10, "zone-c": 10}


@pytest.mark.usefixtures("at_any_cost")
def test_pods_are_not_divided_over_zones_in_which_no_node_is_sold_that_takes_them():
    sold = types(dearer=0.0).instance_types
    large = instance_type(
        "m-64",
        cpu="64",
        memory="256Gi",
        offerings=[offering(zone=zone, price=3.2) for zone in ZONES[:2]],
    )
    asked = unnominated(
        [*bound_to_zones(), *replicas("job", 8, cpu="40")], catalogue=catalogue(large, *sold)
    )
    assert zones_of(planned(asked), "job") == {"zone-a": 4, "zone-b": 4}


def test_the_even_plan_is_taken_only_if_it_costs_little_more():
    pods = [*bound_to_zones(), *replicas("job", 60)]
    assert not is_cheapest(unnominated(pods, catalogue=types(dearer=0.001)))
    assert is_cheapest(unnominated(pods, catalogue=types(dearer=0.02)))


@pytest.mark.usefixtures("at_any_cost")
def test_the_even_plan_never_costs_more_than_first_fit():
    """Here each pod has a node of its own, and no plan is cheaper than first-fit's."""
    types_of_one = catalogue(
        instance_type(
            "m-2",
            cpu="2",
            memory="8Gi",
            offerings=[offering(zone=zone, price=0.1 + n / 1000) for n, zone in enumerate(ZONES)],
        )
    )
    asked = unnominated([*bound_to_zones(), *replicas("job", 60)], catalogue=types_of_one)
    assert is_cheapest(asked)


def test_pods_that_nothing_binds_to_zones_are_planned_where_they_are_cheapest():
    """Bound elsewhere than planned, they take no other's place."""
    asked = unnominated([*replicas("web", 30), *replicas("job", 60)], catalogue=types())
    assert is_cheapest(asked)
    assert zones_of(planned(asked), "job") == {"zone-a": 60}


@pytest.mark.usefixtures("at_any_cost")
def test_pods_that_must_be_in_one_zone_are_bound_to_it_too():
    in_c = {"node_selector": {ZONE: "zone-c"}}
    asked = unnominated([*replicas("web", 45, **in_c), *replicas("job", 90)])
    assert zones_of(planned(asked), "job") == even(30)


JOBS = LabelSelector(match_labels={"app": "job"})
ON_OWN_NODES = (AffinityTerm(topology_key=HOSTNAME, selector=JOBS),)
PREFERRED = (PreferredNodeTerm(weight=1, term=in_zones("zone-b")),)


@pytest.mark.usefixtures("at_any_cost")
@pytest.mark.parametrize(
    "more",
    [
        {"topology_spread": (spread_over(HOSTNAME),)},
        {"pod_anti_affinity": ON_OWN_NODES},
        {"preferred_node_terms": PREFERRED},
    ],
    ids=["spread", "anti-affinity", "preference"],
)
def test_pods_that_others_bind_or_that_prefer_nodes_are_not_divided(more):
    assert is_cheapest(unnominated([*bound_to_zones(), *replicas("job", 12, **more)]))


@pytest.mark.usefixtures("at_any_cost")
def test_pods_with_volumes_are_not_divided():
    jobs = replicas("job", 12)
    here = Requirements((Requirement.of(ZONE, "In", ("zone-a", "zone-b")),))
    asked = replace(
        unnominated([*bound_to_zones(), *jobs]),
        volumes={each.uid: PodVolumes(alternatives=(here,)) for each in jobs},
    )
    assert is_cheapest(asked)


def test_with_many_classes_the_second_plan_is_not_made(monkeypatch):
    pods = [*bound_to_zones(), *replicas("job", 60)]
    monkeypatch.setattr(even_zones, "_MOST_CLASSES", 2)
    assert not is_cheapest(unnominated(pods))
    monkeypatch.setattr(even_zones, "_MOST_CLASSES", 1)
    assert is_cheapest(unnominated(pods))


def test_first_fit_packing_is_left_as_it_is():
    first_fit = SolveOptions(packing=PackingPolicy.FIRST_FIT)
    assert is_cheapest(unnominated([*bound_to_zones(), *replicas("job", 60)]), first_fit)


def test_a_plan_that_leaves_other_pods_is_not_taken():
    """Divided, the last large pod of each zone would find no room within the limit."""
    pool = node_pool(limits={"cpu": "80"})
    asked = unnominated([*bound_to_zones(), *replicas("job", 60)], pools=[pool])
    plain = solve(replace(asked, is_unnominated=False))
    assert plain.unschedulable
    assert planned(asked).unschedulable.keys() == plain.unschedulable.keys()


@given(problems())
@with_examples(120)
def test_even_plans_are_valid_and_within_the_bound(asked):
    """Of problems with everything; they leave the same pods and cost little more."""
    plain = solve(asked)
    plan = planned(replace(asked, is_unnominated=True))
    assert plan.unschedulable == plain.unschedulable
    assert list(compared(plan, solve(asked, FIRST_FIT))) == []
    fee = SolveOptions().node_fee_per_hour
    most = MOST_COST * (plain.cost.hourly + fee * len(plain.claims))
    assert plan.cost.hourly + fee * len(plan.claims) <= most + 1e-9
