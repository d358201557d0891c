"""Answers of what-ifs: those of `solve`, within limits, and without a trace."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from karpenter_core.api.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.portfolio import plan_portfolio
from karpenter_core.scheduling.problem import PackingPolicy, PodVolumes
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.scheduling.whatif import what_if_question
from karpenter_core.scheduling.whatif.base_state import BaseState
from karpenter_core.scheduling.whatif.what_if import WhatIf, WhatIfOutcome
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    pod,
    pod_shape,
    problem,
    requirement_spec,
)
from tests.properties import examples, with_examples
from tests.scheduling.handmade_plans import DB, WEB, spread, term
from tests.scheduling.whatif_cases import (
    OPTIONS,
    asked,
    drawn_cluster,
    movable,
    plan_of,
    verdict_facts,
)
from tests.verifier import violations

often = with_examples(200)
EXACT = examples(90)
randoms = st.randoms(use_true_random=False)

SMALL = instance_type("small", cpu="4", memory="16Gi", price=1.0, spot_discount=0.0)
LARGE = instance_type("large", cpu="8", memory="32Gi", price=1.9, spot_discount=0.0)
TYPES = catalogue(SMALL, LARGE)


def node(name, *bound, free="0", zone="zone-a", **more):
    """Make a node of four CPUs on which pods run, with so many CPUs left."""
    return existing_node(name, bound=bound, available={"cpu": free}, labels={ZONE: zone}, **more)


def web(name, on="", cpu="1", **constraints):
    """Make a pod of an app; on a node it runs."""
    shape = replaced(pod_shape(cpu=cpu, labels={"app": "web"}), **constraints)
    return pod(name, shape=shape, node_name=on, phase="Running" if on else "Pending")


def ask(*nodes, waiting=(), leaving=None, **more):
    """Make a `WhatIf` of nodes whose pods may all move, or `leaving` (names) only."""
    facts = problem(waiting, nodes=nodes, catalogue=TYPES, **more)
    uids = movable(facts)
    if leaving is not None:
        uids = {n.name: [p.uid for p in n.pods if p.name in leaving] for n in nodes}
    return WhatIf(facts, uids, OPTIONS)


def moves(verdict):
    """Return where pods go, by names."""
    return {name: [p.name for p in pods] for name, pods in verdict.moves.items()}


# -- single nodes ----------------------------------------------------------------------------------


def test_pods_go_to_the_first_nodes_with_free_resources():
    """Initialised nodes first, then by name."""
    whatif = ask(
        node("going", web("one", "going"), web("two", "going")),
        node("a-new", free="2", initialized=False),
        node("full"),
        node("roomy", free="1"),
        node("spare", free="4"),
    )

    verdict = whatif.evaluate(("going",))

    assert verdict.outcome is WhatIfOutcome.FITS
    assert moves(verdict) == {"roomy": ["one"], "spare": ["two"]}
    assert verdict.claims == ()
    assert verdict.cost_per_hour == 0.0


def test_an_empty_node_needs_nothing():
    """Nothing moves."""
    verdict = ask(node("empty", free="4"), node("other")).evaluate(("empty",))

    assert verdict.fits
    assert verdict.placements == ()


def test_pods_that_fit_no_node_need_a_claim():
    """With every type that would do, cheapest first."""
    verdict = ask(node("going", web("one", "going", cpu="3")), node("full")).evaluate(("going",))

    assert verdict.outcome is WhatIfOutcome.CLAIMS
    assert [claim.instance_types for claim in verdict.claims] == [("small", "large")]
    assert verdict.cost_per_hour == 1.0


def test_some_pods_go_to_nodes_and_the_others_to_a_claim():
    """No claim is made for pods that fit."""
    verdict = ask(
        node("going", *(web(f"pod-{n}", "going") for n in range(3))), node("spare", free="2")
    ).evaluate(("going",))

    assert moves(verdict) == {"spare": ["pod-0", "pod-1"]}
    assert [[p.name for p in claim.pods] for claim in verdict.claims] == [["pod-2"]]


@pytest.mark.parametrize(
    ("below_price", "outcome"), [(1.0, WhatIfOutcome.TOO_DEAR), (1.01, WhatIfOutcome.CLAIMS)]
)
def test_a_claim_has_to_cost_less_than_the_limit(below_price, outcome):
    """The same price is no saving."""
    whatif = ask(node("going", web("one", "going")), node("full"))

    assert whatif.evaluate(("going",), below_price=below_price).outcome is outcome


@pytest.mark.parametrize(
    ("max_claims", "outcome"),
    [
        (0, WhatIfOutcome.TOO_MANY),
        (1, WhatIfOutcome.TOO_MANY),
        (2, WhatIfOutcome.CLAIMS),
        (None, WhatIfOutcome.CLAIMS),
    ],
)
def test_there_may_be_no_more_claims_than_the_limit(max_claims, outcome):
    """Pods that keep apart need one each."""
    apart = {"pod_anti_affinity": term("kubernetes.io/hostname", WEB)}
    whatif = ask(node("one", web("one", "one", **apart)), node("two", web("two", "two", **apart)))

    verdict = whatif.evaluate(("one", "two"), max_claims=max_claims)

    assert verdict.outcome is outcome


def test_pods_that_fit_no_type_stay_pending():
    """The answer names them."""
    verdict = ask(node("going", web("huge", "going", cpu="64"))).evaluate(("going",))

    assert verdict.outcome is WhatIfOutcome.LEFT
    assert [p.name for p in verdict.left] == ["huge"]


def test_pods_that_may_not_move_stay_and_still_count():
    """A pod of a DaemonSet goes with its node; until then others keep away from it."""
    apart = {"pod_anti_affinity": term(ZONE, WEB)}
    keeps_away = web("keeps-away", "going", **apart)
    staying = web("staying", "going")
    whatif = ask(
        node("going", keeps_away, staying),
        node("same-zone", free="4"),
        node("other-zone", free="4", zone="zone-b"),
        leaving=("keeps-away",),
    )

    assert moves(whatif.evaluate(("going",))) == {"other-zone": ["keeps-away"]}


def test_a_pod_of_a_zonal_spread_stays_in_the_zone_that_needs_it():
    """The first node with free resources would break the spread."""
    even = {"topology_spread": spread(ZONE, 1, WEB)}
    whatif = ask(
        node("a-zone-b", web("b", "a-zone-b", **even), zone="zone-b", free="4"),
        node("going", web("a", "going", **even)),
        node("spare", free="1"),
        node("third", web("c", "third", **even), zone="zone-c"),
    )

    assert moves(whatif.evaluate(("going",))) == {"spare": ["a"]}


@pytest.mark.parametrize(("there", "fits"), [(1, True), (2, False)])
def test_a_pod_that_its_spread_does_not_count_moves_beside_as_many_as_the_skew_allows(there, fits):
    """It makes no skew larger."""
    watcher = pod(
        "watcher",
        shape=replaced(pod_shape(cpu="1"), topology_spread=spread(HOSTNAME, 1, WEB)),
        node_name="going",
        phase="Running",
    )
    bound = [web(f"web-{n}", "crowded") for n in range(there)]
    whatif = ask(node("going", watcher), node("crowded", *bound, free="2"), node("full"))

    assert whatif.evaluate(("going",), max_claims=0).fits is fits


def test_pods_that_belong_together_move_to_one_zone():
    """The first decides, though none of its kind is anywhere else."""
    together = {"pod_affinity": term(ZONE, WEB)}
    going = [web(f"web-{n}", "going", **together) for n in range(3)]
    whatif = ask(
        node("going", *going),
        node("a", free="2"),
        node("b", free="2", zone="zone-b"),
        node("c", free="2"),
    )

    verdict = whatif.evaluate(("going",), max_claims=0)

    assert moves(verdict) == {"a": ["web-0", "web-1"], "c": ["web-2"]}
    assert dict(solve(whatif.problem_without(("going",)), OPTIONS).existing) == verdict.moves


def test_no_pod_moves_to_an_excluded_node():
    """Until it is not any more."""
    whatif = ask(node("going", web("one", "going")), node("a", free="4"), node("b", free="4"))

    whatif.exclude_nodes(("a",))
    assert moves(whatif.evaluate(("going",))) == {"b": ["one"]}

    whatif.exclude_nodes(())
    assert moves(whatif.evaluate(("going",))) == {"a": ["one"]}


def test_volumes_of_pods_that_run_count_against_the_limit_of_their_node():
    """One more does not fit where the limit is reached."""
    nodes = [
        replace(node("a", web("one", "a")), volume_limits={"disk": 1}),
        replace(node("b", web("two", "b"), free="3"), volume_limits={"disk": 1}),
        replace(node("c", free="3"), volume_limits={"disk": 1}),
    ]
    attached = {
        f"uid-default-{name}": PodVolumes(attached={"disk": frozenset({f"default/{name}"})})
        for name in ("one", "two")
    }
    nodes[1] = replace(nodes[1], volumes={"disk": frozenset({"default/two"})})

    full, spare = (
        asked(replace(problem((), nodes=some, catalogue=TYPES), volumes=attached))
        for some in (nodes[:2], nodes)
    )

    assert not full.evaluate(("a",)).fits
    assert moves(spare.evaluate(("a",))) == {"c": ["one"]}


def test_a_spread_counts_zones_that_only_nodes_have():
    """No pool makes any there."""
    even = {"topology_spread": spread(ZONE, 1, WEB)}
    whatif = ask(
        node("a", web("one", "a", **even), zone="zone-q"),
        node("b", free="1", zone="zone-new"),
        pools=(),
    )

    assert moves(whatif.evaluate(("a",))) == {"b": ["one"]}


def test_an_unknown_node_is_an_error():
    """A caller mixed something up."""
    with pytest.raises(KeyError):
        ask(node("one")).evaluate(("two",))


# -- sets ------------------------------------------------------------------------------------------


def test_pods_are_not_moved_to_nodes_that_are_removed_with_them():
    """All go at once."""
    whatif = ask(
        node("a", web("one", "a"), free="3"),
        node("b", web("two", "b"), free="3"),
        node("c", free="1"),
    )

    assert whatif.evaluate(("a",)).fits
    assert whatif.evaluate(("b",)).fits
    assert whatif.evaluate(("a", "b"), max_claims=0).outcome is WhatIfOutcome.TOO_MANY


def test_several_nodes_become_one_that_holds_their_pods():
    """Two small nodes for the price of one large."""
    whatif = ask(
        *(node(f"node-{n}", *(web(f"{n}-{m}", f"node-{n}") for m in range(3))) for n in range(2))
    )

    verdict = whatif.evaluate(("node-0", "node-1"), below_price=2.0, max_claims=1)

    assert verdict.outcome is WhatIfOutcome.CLAIMS
    assert [claim.instance_types for claim in verdict.claims] == [("large",)]


def test_nodes_that_go_free_their_part_of_the_limits():
    """Or nothing could be replaced in a pool that is at its limit."""
    pool = node_pool(limits={"cpu": "4"})
    whatif = ask(
        node("going", web("one", "going", cpu="3"), pool="default"),
        pools=(pool,),
        pool_usage={"default": {"cpu": 4000}},
    )

    assert whatif.evaluate(("going",)).outcome is WhatIfOutcome.CLAIMS


@pytest.fixture
def plans_made(monkeypatch):
    """Return a list that grows with every question that all plans are made for."""
    made = []
    run_plans = what_if_question.run_plans

    def counted(*arguments):
        made.append(arguments)
        return run_plans(*arguments)

    monkeypatch.setattr(what_if_question, "run_plans", counted)
    return made


def full_nodes(*names, pods=2, **more):
    return [
        node(name, *(web(f"{name}-{n}", name, cpu="1500m") for n in range(pods)), **more)
        for name in names
    ]


def test_a_refusal_holds_for_nodes_with_as_many_pods_of_the_same_kind(plans_made):
    whatif = ask(*full_nodes("a", "b", "c", "d"), *full_nodes("e", pods=1))

    def outcome(*names):
        return whatif.evaluate(names, below_price=1.8, max_claims=2).outcome

    assert [outcome("a", "b"), len(plans_made)] == [WhatIfOutcome.TOO_DEAR, 1]
    assert [outcome("c", "d"), len(plans_made)] == [WhatIfOutcome.TOO_DEAR, 1]
    assert [outcome("d", "e"), len(plans_made)] == [WhatIfOutcome.TOO_DEAR, 2]


def test_a_refusal_does_not_hold_for_nodes_that_free_more_of_a_limit():
    """A cheap pool at its limit can replace its own nodes only."""
    cheap = catalogue(instance_type("cheap", cpu="4", memory="16Gi", price=0.5, spot_discount=0.0))
    limited, other = node_pool("limited", limits={"cpu": "8"}), node_pool("other")
    facts = problem(
        (),
        nodes=(
            *full_nodes("a", "b", pool="other"),
            *full_nodes("c", "d", pool="limited"),
        ),
        pools=(limited, other),
        catalogues={"limited": cheap, "other": TYPES},
        pool_usage={"limited": {"cpu": 8000}},
    )
    whatif = WhatIf(facts, movable(facts), OPTIONS)

    def outcome(*names):
        return whatif.evaluate(names, below_price=1.8, max_claims=2).outcome

    assert outcome("a", "b") is WhatIfOutcome.TOO_DEAR
    assert outcome("c", "d") is WhatIfOutcome.CLAIMS
    assert outcome("a", "b") is WhatIfOutcome.TOO_DEAR


@pytest.mark.parametrize(("skew", "fits"), [(1, False), (2, True)])
def test_a_pod_that_its_own_spread_does_not_count_moves_within_the_skew(skew, fits):
    """It never raises a count itself, so it may go where the count is exactly maxSkew above the least."""
    mover = web("mover", "going", topology_spread=spread(ZONE, skew, DB))
    databases = [pod(f"db-{n}", labels={"app": "db"}, node_name="spare") for n in range(2)]
    going = node("going", mover, zone="zone-b")
    spare = node("spare", *databases, free="1", zone="zone-a")

    assert ask(going, spare, leaving=("mover",)).push(("going",)).fits is fits


# -- pending pods ----------------------------------------------------------------------------------


def test_the_place_that_a_pending_pod_will_take_is_not_given_away():
    """Pending pods come first."""
    going, spare = node("going", web("one", "going")), node("spare", free="1")

    assert ask(going, spare).evaluate(("going",)).fits
    assert not ask(going, spare, waiting=(web("waits"),)).evaluate(("going",)).fits


def test_a_node_that_a_pending_pod_will_go_to_is_not_empty():
    """The pod moves with the others."""
    whatif = ask(node("a", free="1"), node("b", free="1"), waiting=(web("waits"),))

    assert moves(whatif.evaluate(("a",))) == {"b": ["waits"]}
    assert moves(whatif.evaluate(("b",))) == {}


def test_pending_pods_that_need_a_claim_do_not_count_as_moved():
    """They get one whatever happens to the nodes."""
    whatif = ask(
        node("going", web("one", "going")), node("b", free="1"), waiting=(web("big", cpu="3"),)
    )

    verdict = whatif.evaluate(("going",))

    assert verdict.fits
    assert moves(verdict) == {"b": ["one"]}


def test_a_pending_pod_keeps_its_place_while_another_one_fits_nowhere():
    """Pods without any place must not make those with one lose it."""
    going, spare = node("going", web("one", "going")), node("spare", free="1")
    whatif = ask(going, spare, waiting=(web("waits"), web("huge", cpu="900")))

    assert not whatif.evaluate(("going",)).fits
    assert moves(whatif.evaluate(("spare",))) == {}


def test_pending_pods_are_placed_in_one_order_and_no_other_plan_is_made(plans_made):
    """They are bound without us; their places are only kept free, which must stay cheap."""
    ask(node("a", free="1"), waiting=(web("waits"), web("big", cpu="3"))).settle()
    assert plans_made == []


# -- growing a set ---------------------------------------------------------------------------------


def test_a_push_is_there_for_the_questions_that_follow_until_it_is_taken_back():
    """Room that is taken is taken."""
    whatif = ask(node("a", web("one", "a")), node("b", web("two", "b")), node("spare", free="1"))
    before = verdict_facts(whatif.evaluate(("b",)))

    assert whatif.push(("a",)).fits
    assert not whatif.push(("b",)).fits
    assert not whatif.evaluate(("b",)).fits
    whatif.pop()

    assert verdict_facts(whatif.evaluate(("b",))) == before


def test_pods_that_were_moved_to_a_node_move_on_with_it():
    """A push is only a plan."""
    whatif = ask(
        node("a", web("one", "a")), node("b", web("two", "b"), free="1"), node("c", free="2")
    )

    assert moves(whatif.push(("a",))) == {"b": ["one"]}
    assert moves(whatif.push(("b",))) == {"c": ["one", "two"]}


def test_a_resumed_long_growth_fills_the_first_nodes_with_free_resources():
    """Two hundred nodes of one pod each, as counted by hand; some pushes are taken back."""
    names = [f"n{number:03}" for number in range(200)]
    cpus = {name: 1 + number % 3 for number, name in enumerate(names)}
    room = {name: number * 7 % 4 for number, name in enumerate(names)}
    whatif = ask(
        *(
            node(name, web(f"pod-{name}", name, cpu=str(cpus[name])), free=str(room[name]))
            for name in names
        )
    )
    on = {name: [f"pod-{name}"] for name in names}
    asks = {f"pod-{name}": cpus[name] for name in names}
    pushes = []
    for step, gone in enumerate(reversed(names)):
        before = (dict(room), {name: [*pods] for name, pods in on.items()})
        leaving, expected = on.pop(gone), {}
        del room[gone]
        for one in sorted(leaving, key=lambda one: (-asks[one], one)):
            target = next((name for name in names if room.get(name, 0) >= asks[one]), None)
            if target is not None:
                room[target] -= asks[one]
                on[target].append(one)
                expected.setdefault(target, []).append(one)
        fits = sum(map(len, expected.values())) == len(leaving)
        verdict = whatif.push((gone,))
        assert verdict.fits == fits, gone
        if fits:
            assert {name: sorted(to) for name, to in moves(verdict).items()} == {
                name: sorted(to) for name, to in expected.items()
            }
            pushes.append(before)
        else:
            room, on = before
        for _ in range({2: len(pushes), 100: 30}.get(step, 0)):
            whatif.pop()
            room, on = pushes.pop()
    assert len(pushes) > 64


def test_a_node_with_pods_that_fit_nowhere_is_known_not_to_fit_once_anything_was_asked():
    """Other nodes may fit or not; barring nodes makes it unknown until the next question."""
    whatif = ask(
        node("a", web("one", "a", cpu="3")), node("b", web("two", "b")), node("spare", free="1")
    )
    assert not whatif.is_known_not_to_fit("a")
    whatif.settle()
    assert [whatif.is_known_not_to_fit(name) for name in ("a", "b", "spare")] == [
        True,
        False,
        False,
    ]
    assert set(whatif.names_known_not_to_fit()) == {"a"}

    whatif.exclude_nodes(("spare",))
    assert not whatif.is_known_not_to_fit("b")
    assert not whatif.names_known_not_to_fit()
    whatif.settle()
    assert whatif.is_known_not_to_fit("b")
    assert set(whatif.names_known_not_to_fit()) == {"a", "b"}
    assert not whatif.push(("b",)).fits


def test_pods_that_one_node_cannot_hold_are_known_to_need_several():
    """Eight CPUs are the most; the pods of a and b ask for nine."""
    whatif = ask(*full_nodes("a", "b", pods=3), *full_nodes("c", pods=1), node("d", web("w", "d")))

    assert not whatif.need_several_nodes(("a", "b"))
    whatif.settle()
    assert whatif.need_several_nodes(("a", "b"))
    assert not whatif.need_several_nodes(("a", "c"))
    assert whatif.evaluate(("a", "b", "d"), below_price=9.0, max_claims=1).outcome is (
        WhatIfOutcome.TOO_MANY
    )


def test_a_pop_without_a_push_is_an_error():
    """Nor after other nodes are barred."""
    whatif = ask(node("a", web("one", "a")), node("b", free="1"))
    whatif.push(("a",))
    whatif.exclude_nodes(("b",))

    with pytest.raises(IndexError):
        whatif.pop()


# -- properties ------------------------------------------------------------------------------------


def questions(random, whatif_of, most=3):
    """Draw some sets of nodes, single ones among them."""
    names = [n.name for n in whatif_of.nodes]
    for _ in range(most if names else 0):
        yield tuple(random.sample(names, random.choice((1, 1, random.randrange(len(names)) + 1))))


@given(randoms)
@often
def test_verdicts_agree_with_solving_the_same_problem(random):
    """As many pods are left; claims are needed, or not; they are no dearer than first-fit's.

    That is, as by those plans of a pass that what-ifs make: the further ones, for few pods and of
    larger nodes, may leave fewer pods, never more. First-fit's price says nothing where it leaves pods:
    then the verdict is no dearer than the best of the plans that what-ifs make.
    """
    facts = drawn_cluster(random)
    whatif = asked(facts)
    for names in questions(random, facts):
        verdict = whatif.evaluate(names)
        without = whatif.problem_without(names)
        plans = _plans_of_what_ifs(without)
        assert len(verdict.left) == sum(plans.best.left.values())
        assert len(verdict.left) >= len(solve(without, OPTIONS).unschedulable)
        if not verdict.left:
            assert verdict.fits == (not plans.best.sized_claims)
            dearest = plans.best if plans.first_fit.left else plans.first_fit
            assert verdict.cost_per_hour <= dearest.cost_per_hour + 1e-9


def _plans_of_what_ifs(asked):
    compiled = run_steps(compile_steps(asked, OPTIONS, CatalogueCache()))
    return run_steps(plan_portfolio.portfolio_steps(compiled, reported=False))


@given(randoms)
@often
def test_every_verdict_passes_the_verifier(random):
    """Pods in the order of placing, on nodes and claims, also after pushes.

    A node that a push has removed is not asked about: it has no pods left.
    """
    facts = drawn_cluster(random)
    whatif, gone = asked(facts), set()
    for drawn in questions(random, facts):
        names = [name for name in drawn if name not in gone]
        verdict = whatif.evaluate(names)
        if verdict.is_possible:
            without = whatif.problem_without(names)
            assert violations(without, plan_of(verdict)) == []
        if whatif.push(names[:1]).fits:
            gone.update(names[:1])


@given(randoms)
@often
def test_answers_do_not_depend_on_earlier_questions(random):
    """Nor on pushes that were taken back, nor on nodes that were barred for a while."""
    facts = drawn_cluster(random)
    asked_much = asked(facts)
    sets = list(questions(random, facts))
    pushed = [names for names in sets if asked_much.push(names).fits]
    for names in sets:
        asked_much.evaluate(names)
    for _ in pushed:
        asked_much.pop()
    for names in sets:
        asked_much.exclude_nodes(names)
        asked_much.evaluate(sets[0])
    asked_much.exclude_nodes(())

    for names in reversed(sets):
        assert verdict_facts(asked_much.evaluate(names)) == verdict_facts(
            asked(facts).evaluate(names)
        )


@given(randoms)
@often
def test_limits_refuse_only_plans_that_exceed_them(random):
    """Accepted claims keep the limits; pods that fit without claims are never refused."""
    facts = drawn_cluster(random)
    whatif = asked(facts)
    for names in questions(random, facts):
        free = whatif.evaluate(names)
        limited = whatif.evaluate(names, below_price=0.2, max_claims=1)
        without_claims = whatif.evaluate(names, max_claims=0)
        if free.fits:
            assert limited.fits
            assert without_claims.fits
        assert without_claims.fits or not without_claims.is_possible
        if limited.outcome is WhatIfOutcome.CLAIMS:
            assert len(limited.claims) == 1
            assert limited.cost_per_hour < 0.2


LIMITS = ((inf, 0), *((below, 1) for below in (0.05, 0.1, 0.2, 0.4, 1.0)))


def refused_in_vain(seed):
    """Yield what limits refuse on the cluster of a seed although first-fit keeps them."""
    random = Random(seed)
    facts = drawn_cluster(random)
    first_fit = asked(facts, replace(OPTIONS, packing=PackingPolicy.FIRST_FIT))
    default = asked(facts)
    for names in questions(random, facts, most=8):
        free = first_fit.evaluate(names)
        for below, most in LIMITS:
            keeps = free.is_possible and len(free.claims) <= most and free.cost_per_hour < below
            limited = first_fit.evaluate(names, below_price=below, max_claims=most)
            assert keeps or not limited.is_possible, "accepted claims keep the limits"
            if keeps and not limited.is_possible:
                yield names, below, limited.outcome
            if free.fits and not default.evaluate(names, below_price=below, max_claims=most).fits:
                yield names, below, "by the default packing"


@pytest.mark.timeout(max(300, EXACT))
@pytest.mark.parametrize("batch", range(6))
def test_first_fit_is_refused_exactly_when_it_does_not_keep_the_limits(batch):
    """However early the refusal is found; what it fits without claims the default packing fits too.

    Claims are judged by first-fit alone: within limits, a cheaper claim of another plan is not found.
    """
    for seed in range(batch, EXACT, 6):
        assert list(refused_in_vain(seed)) == [], seed


@pytest.mark.parametrize("seed", [69, 171, 243, 400])
def test_pods_fill_the_first_nodes_whose_domains_may_take_them(seed):
    """These clusters have pods that the emptiest domain has no node for, and the skew leaves a choice."""
    assert list(refused_in_vain(seed)) == []


def test_a_spread_with_slack_fills_the_first_nodes_in_any_zone():
    """As a pass does: zone-b has fewer, but the first node with room is in zone-a."""
    slack = {"topology_spread": spread(ZONE, 3, WEB)}
    whatif = ask(
        node("a", web("there", "a", **slack), free="1"),
        node("b", free="4", zone="zone-b"),
        node("c", free="4", zone="zone-c"),
        node("going", web("one", "going", **slack), web("two", "going", **slack), zone="zone-d"),
    )

    verdict = whatif.evaluate(("going",), max_claims=0)

    assert moves(verdict) == {"a": ["one"], "b": ["two"]}
    assert dict(solve(whatif.problem_without(("going",)), OPTIONS).existing) == verdict.moves


@pytest.mark.parametrize(
    ("leaving", "fits"),
    [
        ({"topology_spread": spread(ZONE, 1, WEB)}, True),
        ({"pod_anti_affinity": term(ZONE, WEB)}, False),
    ],
)
def test_a_pod_that_ends_counts_for_its_anti_affinity_but_for_no_spread(leaving, fits):
    """As in a pass: the kube-scheduler does so."""
    even = {"topology_spread": spread(ZONE, 1, WEB)}
    ending = replaced(web("ending", "a", **leaving), deletion_timestamp=EPOCH)
    whatif = ask(
        node("a", ending, free="1"),
        node("b", zone="zone-b"),
        node("going", web("one", "going", **even), zone="zone-c"),
        leaving={"one"},
    )

    verdict = whatif.evaluate(("going",), max_claims=0)

    assert verdict.fits is fits


def test_nodes_take_pods_of_a_spread_again_once_claims_let_their_zones_have_more():
    """Two pods open a claim in zone-a, the first; the last pod then has room on a node: one SMALL will do."""
    even = {"topology_spread": spread(ZONE, 1, WEB)}
    going = [web(f"pod-{number}", "going", cpu="1500m", **even) for number in range(7)]
    whatif = ask(
        node("b", free="6", zone="zone-b"),
        node("c", free="6", zone="zone-c"),
        node("going", *going, zone="zone-d"),
        pools=[node_pool(requirements=[(ZONE, "In", "zone-a", "zone-b", "zone-c")])],
    )

    verdict = whatif.evaluate(("going",), max_claims=1, below_price=1.5)

    assert moves(verdict) == {"b": ["pod-0", "pod-3", "pod-6"], "c": ["pod-1", "pod-4"]}
    assert [[pod.name for pod in claim.pods] for claim in verdict.claims] == [["pod-2", "pod-5"]]


def test_a_pod_that_follows_a_later_one_is_not_refused_before_that_one_is_placed():
    """The large pod wants the zone of the small one, which moves too and finds a node."""
    near = {"pod_affinity": term(ZONE, DB)}
    leader = replaced(web("leader", "going"), shape=pod_shape(cpu="1", labels={"app": "db"}))
    whatif = ask(
        node("going", web("follower", "going", cpu="2", **near), leader), node("spare", free="3")
    )

    assert whatif.evaluate(("going",), max_claims=0).fits


@pytest.mark.parametrize("limits", [{"max_claims": 0}, {"max_claims": 1, "below_price": 1.5}])
def test_a_small_pod_gets_the_only_node_it_may_use_before_a_large_one_takes_it(limits):
    """First-fit alone puts the large pod there, and buys a node for the small one."""
    even = {"topology_spread": spread(ZONE, 1, WEB)}
    large = replaced(web("large", "going"), shape=pod_shape(cpu="2"))
    nodes = (
        node("first", free="2", zone="zone-c"),
        node("second", web("there-a", "second", **even), free="2", zone="zone-a"),
        node("third", web("there-b", "third", **even), zone="zone-b"),
        node("going", large, web("small", "going", **even), zone="zone-c"),
    )
    facts = problem((), nodes=nodes, catalogue=TYPES)
    first_fit = asked(facts, replace(OPTIONS, packing=PackingPolicy.FIRST_FIT))

    assert moves(asked(facts).evaluate(("going",), **limits)) == {
        "first": ["small"],
        "second": ["large"],
    }
    assert not first_fit.evaluate(("going",), **limits).fits


def test_a_pod_that_belongs_beside_others_of_its_kind_opens_no_node_where_theirs_is_full():
    """Only the first of its kind may; here one runs, on a node that holds nothing more."""
    together = {"pod_affinity": term(HOSTNAME, WEB)}
    whatif = ask(
        node("full", web("there", "full", **together)),
        node("going", web("one", "going", cpu="2", **together)),
    )

    assert whatif.evaluate(("going",)).outcome is WhatIfOutcome.LEFT
    assert whatif.evaluate(("full", "going")).outcome is WhatIfOutcome.CLAIMS


def test_a_spread_counts_a_zone_once_a_claim_there_has_a_counted_pod():
    """No node and no pool is in zone-z: the large pod, which nothing spreads, makes the zone known."""
    even = {"topology_spread": spread(ZONE, 1, WEB)}
    there = [web(f"there-{n}", "full", **even) for n in range(3)]
    whatif = ask(
        node("full", *there, free="1"),
        node("starting", free="4", requirements=Requirements.from_labels({ZONE: "zone-z"})),
        node(
            "going",
            web("large", "going", cpu="2"),
            web("small", "going", **even),
            zone="zone-d",
        ),
        pools=[node_pool(requirements=[(ZONE, "In", "zone-a")])],
    )

    verdict = whatif.evaluate(("going",), max_claims=0)

    assert moves(verdict) == {"starting": ["large", "small"]}
    assert dict(solve(whatif.problem_without(("going",)), OPTIONS).existing) == verdict.moves


# -- odd pods --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hard", "outcome"), [(False, WhatIfOutcome.FITS), (True, WhatIfOutcome.LEFT)]
)
def test_a_spread_over_an_absent_key_has_a_verdict(hard, outcome):
    """No node and no pool has the key, so there is no domain to level."""
    odd = web("odd", "going", topology_spread=spread("example.com/nowhere", hard=hard))
    whatif = ask(node("going", odd), node("spare", free="2"))

    assert whatif.evaluate(("going",)).outcome is outcome
    assert bool(solve(whatif.problem_without(("going",)), OPTIONS).unschedulable) is hard


def test_excluded_nodes_take_no_pods_until_others_are_excluded():
    """Lists of fitting nodes are kept between questions."""
    clusters = problem(
        [web("new")], nodes=[node(name, free="2") for name in "abc"], catalogue=TYPES
    )
    base = BaseState(run_steps(compile_steps(clusters, OPTIONS, CatalogueCache())), {})

    def fitting():
        slots = base.fitting_nodes.fitting_slots(base.plans[0].anywhere)
        return {name for name, slot in base.slots.items() if slot in slots}

    assert fitting() == {"a", "b", "c"}
    for excluded in ("a", "bc", "bc", "c", ""):
        base.exclude(excluded)
        assert fitting() == {"a", "b", "c"} - set(excluded)


@pytest.mark.parametrize(
    ("requirements", "limits", "max_new_nodes", "domains"),
    [
        ([], {}, None, "abc"),
        ([], {"cpu": "100000"}, 5000, "abc"),
        ([], {"cpu": "40"}, None, ""),
        ([], {}, 100, ""),
        ([requirement_spec(ZONE, "In", "zone-a", "zone-c")], {}, None, "ac"),
        ([requirement_spec(INSTANCE_TYPE, "Exists", min_values=2)], {}, None, ""),
        ([requirement_spec(INSTANCE_TYPE, "In", "small")], {}, None, ""),
    ],
)
def test_a_domain_is_open_without_a_question_only_where_nothing_can_run_out(
    requirements, limits, max_new_nodes, domains
):
    """Neither limits nor the number of nodes come into it, and a node takes the pod whatever it is."""
    facts = replace(
        problem(
            [web("new", cpu="5", topology_spread=spread(ZONE))],
            pools=[node_pool(requirements=requirements, limits=limits)],
            catalogue=TYPES,
        ),
        max_new_nodes=max_new_nodes,
    )
    base = BaseState(run_steps(compile_steps(facts, OPTIONS, CatalogueCache())), {})
    ((number, axis),) = [
        (number, axis) for number, axis in enumerate(base.compiled.axes) if axis.key == ZONE
    ]
    expected = {f"zone-{letter}" for letter in domains}
    names = enumerate(axis.names)
    assert {name for domain, name in names if base.can_open(0, number, domain)} == expected
