"""No plan is cheaper than its bound, and the value of a content is never underestimated."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from karpenter_core.api.labels import ARCH, HOSTNAME, ON_DEMAND, ZONE
from karpenter_core.api.records import AffinityTerm, LabelSelector, WeightedAffinityTerm
from karpenter_core.scheduling.packing.knapsacks import KnapsackSolver
from karpenter_core.scheduling.packing.whole_pods import WholePodsProblem, whole_pods_steps
from karpenter_core.scheduling.portfolio import cost_bound
from karpenter_core.scheduling.problem import PodVolumes, SolveOptions
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
)
from tests.properties import with_examples
from tests.scheduling.plan_checks import FIRST_FIT
from tests.support.problems import seeded_problem
from tests.support.strategies import problems
from tests.verifier import violations

thorough = with_examples(120)

amounts = st.integers(0, 12)
sizes = st.tuples(amounts, amounts).filter(any)
rooms = st.tuples(st.integers(0, 40), st.integers(0, 40))
prices = st.integers(1, 50).map(float)


def bound_of(problem, contents=None, rounds=10):
    """Run the search to its end."""
    nothing = np.zeros((len(problem.count), 0))
    steps = whole_pods_steps(problem, nothing if contents is None else contents, rounds=rounds)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@st.composite
def whole_pods(draw, most_pods=6):
    """Few pods of two or three sizes, few shapes of which one holds every size."""
    distinct = draw(st.lists(sizes, min_size=1, max_size=3, unique=True))
    count = draw(st.lists(st.integers(1, 3), min_size=len(distinct), max_size=len(distinct)))
    shapes = draw(st.lists(st.tuples(rooms, prices), min_size=0, max_size=3))
    shapes.append(((draw(st.integers(12, 40)), draw(st.integers(12, 40))), draw(prices)))
    count = np.array(count)
    while count.sum() > most_pods:
        count[count.argmax()] -= 1
    return WholePodsProblem(
        request=np.array(distinct).T,
        count=count,
        capacity=np.array([room for room, _ in shapes]).T,
        price=np.array([price for _, price in shapes]),
        nodes=draw(st.integers(0, int(count.sum()))),
    )


def cheapest(problem):
    """Return what the pods cost at best on at least so many nodes, by trying all ways."""
    request, room = problem.request.T.tolist(), problem.capacity.T.tolist()
    contents = [
        (content, min(prices))
        for content in product(*(range(most + 1) for most in problem.count.tolist()))
        if (
            prices := [
                price
                for shape, price in zip(room, problem.price.tolist(), strict=True)
                if all(
                    sum(n * size[line] for n, size in zip(content, request, strict=True))
                    <= shape[line]
                    for line in (0, 1)
                )
            ]
        )
    ]

    @cache
    def best(left, nodes):
        if not any(left):
            return nodes * contents[0][1]  # nodes that stay empty
        return min(
            price
            + best(tuple(a - b for a, b in zip(left, content, strict=True)), max(nodes - 1, 0))
            for content, price in contents
            if any(content) and all(a >= b for a, b in zip(left, content, strict=True))
        )

    return best(tuple(problem.count.tolist()), problem.nodes)


@given(whole_pods(), st.integers(0, 12))
@thorough
def test_the_optimum_by_brute_force_is_never_below_the_bound(problem, rounds):
    """After any number of rounds."""
    assert bound_of(problem, rounds=rounds) <= cheapest(problem)


def test_pods_that_no_shape_holds_have_no_bound():
    request, room = np.array([[5], [5]]), np.array([[1], [1]])
    problem = WholePodsProblem(
        request=request, count=np.array([2]), capacity=room, price=np.array([1.0]), nodes=0
    )
    assert bound_of(problem) == 0.0


@given(whole_pods())
@thorough
def test_a_bound_holds_for_any_initial_contents(problem):
    """Contents of no plan, even absurd ones, prove nothing wrong."""
    absurd = np.eye(len(problem.count)) * 3
    assert bound_of(problem, absurd) <= cheapest(problem)


@given(
    st.lists(sizes, min_size=1, max_size=4, unique=True),
    st.lists(rooms, min_size=1, max_size=4),
    st.data(),
)
@thorough
def test_no_content_exceeds_the_value_of_its_shape(distinct, shapes, data):
    """Against contents that are drawn: pod after pod until nothing fits."""
    request, room = np.array(distinct).T, np.array(shapes).T
    values = np.array([data.draw(st.integers(0, 30)) / 7 for _ in distinct])
    knapsacks = KnapsackSolver(request, room)
    values = values * knapsacks.is_exact_for
    worths = knapsacks.value_bounds(values)
    for shape in range(len(shapes)):
        left, worth = room[:, shape].copy(), 0.0
        for size in data.draw(st.permutations(range(len(distinct)))):
            fit = min(int(r // a) for r, a in zip(left, request[:, size], strict=True) if a)
            taken = data.draw(st.integers(0, fit))
            left -= taken * request[:, size]
            worth += taken * float(values[size])
        assert worth <= worths.most[shape] * (1 + 1e-12) + 1e-12


def test_whole_pods_cost_more_than_their_shares_of_a_node():
    """Two pods of 1.5 cores do not share a node of 2.9; divisible ones nearly would."""
    problem = WholePodsProblem(
        request=np.array([[1500], [100]]),
        count=np.array([10]),
        capacity=np.array([[2900], [8000]]),
        price=np.array([1.0]),
        nodes=0,
    )
    assert bound_of(problem) == pytest.approx(10.0)


def test_nodes_that_must_be_there_are_counted():
    """A node for each pod, although one would hold them all."""
    problem = WholePodsProblem(
        request=np.array([[100], [100]]),
        count=np.array([10]),
        capacity=np.array([[2000], [2000]]),
        price=np.array([1.0]),
        nodes=10,
    )
    assert bound_of(problem) == pytest.approx(10.0)


@pytest.mark.parametrize("options", [SolveOptions(), FIRST_FIT], ids=["value", "first-fit"])
@given(asked=problems())
@thorough
def test_no_verified_plan_is_cheaper_than_its_bound(asked, options):
    """For every problem and both packings, also where pods give wishes up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_bound, "_PODS_PER_ROUND", 1)
        plan = solve(asked, options)
    if plan.cost.lower_bound is not None and violations(asked, plan) == []:
        assert plan.cost.lower_bound <= plan.cost.hourly + 1e-9


def test_the_bound_is_about_the_pods_that_the_plan_places():
    """Limits leave pods here; first-fit and the value plan leave different ones."""
    asked = seeded_problem(288)
    plan = solve(asked)
    assert plan.unschedulable
    assert violations(asked, plan) == []
    assert 0 < plan.cost.lower_bound <= plan.cost.hourly + 1e-9


@given(asked=problems(), data=st.data())
@thorough
def test_no_verified_plan_of_fewer_nodes_is_cheaper_than_the_bound(asked, data):
    """Plans are not optimal: what they miss is often found where there is less to choose from."""
    fewer = {
        name: dataclasses.replace(listed, instance_types=_some(listed.instance_types, data))
        for name, listed in sorted(asked.catalogues.items())
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_bound, "_PODS_PER_ROUND", 1)
        bound = solve(asked).cost.lower_bound
    plan = solve(dataclasses.replace(asked, catalogues=fewer))
    if bound is not None and not plan.unschedulable and violations(asked, plan) == []:
        assert bound <= plan.cost.hourly + 1e-9


def _some(items, data):
    return tuple(item for item in items if data.draw(st.booleans()))


def test_preferred_anti_affinity_adds_no_node_per_pod_to_the_bound():
    """Limits leave room for one node: the wish is given up, and the plan is as cheap as it is."""
    apart = AffinityTerm(topology_key=HOSTNAME, selector=LabelSelector(match_labels={"app": "web"}))
    wish = WeightedAffinityTerm(weight=1, term=apart)
    shape = replace(
        pod_shape(labels={"app": "web"}, cpu="100m"), preferred_pod_anti_affinity=(wish,)
    )
    types = catalogue(instance_type("m", cpu="4", memory="16Gi", price=1.0))
    pool = node_pool(limits={"cpu": "7"})
    plan = solve(
        problem([pod(f"web-{n}", shape=shape) for n in range(4)], pools=[pool], catalogue=types)
    )

    assert not plan.unschedulable
    assert plan.cost.lower_bound is not None
    assert plan.cost.lower_bound <= plan.cost.hourly


ONLY_AMD = {ARCH: "amd64"}


def on_demand(name, price, **described):
    """Make an instance type that is not sold as spot."""
    return instance_type(name, price=price, capacity_types=[ON_DEMAND], **described)


def test_pods_of_dominated_types_need_no_larger_ones():
    """The arm type is as large and cheaper, so only it and the large one count as shapes."""
    types = catalogue(
        on_demand("arm", 1.0, cpu="4", arch="arm64"),
        on_demand("amd", 1.2, cpu="4"),
        on_demand("amd-large", 20.0, cpu="16", memory="64Gi"),
    )
    pods = [pod(f"web-{n}", cpu="1", node_selector=ONLY_AMD) for n in range(3)]
    cost = solve(problem(pods, catalogue=types)).cost

    assert cost.hourly == pytest.approx(1.2)
    assert cost.lower_bound is not None
    assert 0 < cost.lower_bound <= cost.hourly


def test_a_bound_respects_the_types_that_pods_may_use():
    """Arm costs a third, but has less memory and is not for them."""
    types = catalogue(
        on_demand("arm", 1.0, memory="16Gi", arch="arm64"),
        on_demand("amd", 3.0, memory="32Gi"),
    )
    pods = [pod(f"web-{n}", cpu="1", node_selector=ONLY_AMD) for n in range(3)]
    cost = solve(problem(pods, catalogue=types)).cost

    assert cost.lower_bound is not None
    assert 2.0 < cost.lower_bound <= cost.hourly


def test_volumes_that_may_be_in_several_zones_are_bounded_by_the_cheapest():
    """Their second zone has the cheap types."""
    types = catalogue(
        instance_type("large", cpu="8", offerings=[offering("zone-a", ON_DEMAND, 10.0)]),
        instance_type("small", cpu="4", offerings=[offering("zone-b", ON_DEMAND, 1.0)]),
    )
    pods = [pod(f"web-{n}", cpu="1") for n in range(3)]
    in_a, in_b = (Requirements.from_labels({ZONE: zone}) for zone in ("zone-a", "zone-b"))
    asked = problem(pods, catalogue=types)

    def cost(*alternatives):
        volumes = {item.uid: PodVolumes(alternatives=alternatives) for item in pods}
        return solve(dataclasses.replace(asked, volumes=volumes)).cost

    bound = cost(in_a, in_b).lower_bound
    assert bound is not None
    assert 0 < bound <= cost(in_b).hourly


def test_hundreds_of_pods_without_requests_have_a_bound():
    """Only their number counts, which is one resource."""
    pods = [pod(f"web-{n}", cpu="", memory="") for n in range(250)]
    plan = solve(problem(pods, catalogue=catalogue(on_demand("m", 1.0, pods="100"))))

    assert not plan.unschedulable
    assert plan.cost.lower_bound is not None
    assert 2.0 < plan.cost.lower_bound <= plan.cost.hourly


@pytest.mark.parametrize(
    ("count", "rounds"), [(1, []), (199, []), (200, [2]), (699, [6]), (700, [7]), (3000, [7])]
)
def test_the_bound_of_whole_pods_takes_more_rounds_for_more_pods(count, rounds, monkeypatch):
    asked = []

    def noting(*arguments, rounds):
        asked.append(rounds)
        return whole_pods_steps(*arguments, rounds=0)

    monkeypatch.setattr(cost_bound, "whole_pods_steps", noting)
    waiting = [pod(f"web-{number}", cpu="900m") for number in range(count)]
    solve(problem(waiting), SolveOptions())
    assert asked == rounds


def test_a_free_shape_that_holds_nothing_proves_nothing():
    """Only a node without a price that holds pods makes them free."""
    pods = {"request": np.array([[2], [2]]), "count": np.array([3]), "nodes": 0}
    sold = {"capacity": np.array([[4], [4]]), "price": np.array([5.0])}
    free = np.array([[1], [1]])

    alone = bound_of(WholePodsProblem(**pods, **sold))
    beside = bound_of(
        WholePodsProblem(
            **pods,
            capacity=np.hstack((sold["capacity"], free)),
            price=np.append(sold["price"], 0.0),
        )
    )

    assert alone == pytest.approx(7.5)
    assert beside == pytest.approx(alone)
