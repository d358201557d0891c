"""Replacements of one node, their price (cases 199-208, 211, 212, 229, 231)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.api.conditions import FALSE, READY
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    RESERVED,
    SPOT,
    ZONE,
)
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.scheduling.problem import MinValuesPolicy, SolveOptions
from karpenter_core.testing.builders import EPOCH, catalogue, offering, requirement_spec
from tests.disruption.small_clusters import (
    EIGHT,
    FOUR,
    GATE,
    MARKET,
    SIXTEEN,
    bought,
    box,
    cluster,
    found,
    gone,
    kind,
    messages,
    multi,
    only,
    pool,
    report,
    runs,
    said,
    single,
)

BOTH = {("Node", "web"), ("NodeClaim", "web")}


def spot_kinds(count, *, cores=4):
    """Types `k01`, `k02` … sold as spot only, each a little dearer than the one before."""
    return tuple(
        kind(f"k{n:02}", cores, offerings=[offering("zone-a", SPOT, 0.1 + n / 100)])
        for n in range(1, count + 1)
    )


def on_spot(types, of, *, minimum=None, **options):
    """One pod on a spot node of this type, where these types are sold."""
    requirements = [requirement_spec(CAPACITY_TYPE, "In", SPOT)]
    if minimum:
        requirements.append(requirement_spec(INSTANCE_TYPE, "Exists", min_values=minimum))
    return cluster(
        pool(requirements=requirements),
        box("web", of, capacity_type=SPOT),
        runs("a", "web"),
        market=types,
        **options,
    )


class TestWhichNodes:
    """Case 199: nodes that are not evaluated get a reason, on Node and claim."""

    def notices(self, *objects, **options):
        outcome = found(cluster(*objects, runs("a", "web", cpu="4"), **options))
        return [n for n in outcome.notices if n.reason == "Unconsolidatable"]

    def test_a_pool_that_consolidates_empty_nodes_only(self):
        notices = self.notices(pool(policy="WhenEmpty"), box("web"))
        assert len(notices) == 4, "by two methods on two objects"
        assert {n.message for n in notices} == {
            'NodePool "default" has consolidation policy WhenEmpty, but node is not empty'
        }

    def test_new_nodes_get_no_unconsolidatable_event(self):
        """A user with a new node has not asked why it stays."""
        new = cluster(pool(policy="WhenEmpty"), box("web"), runs("a", "web", cpu="4"))
        for seconds, count in ((119, 0), (120, 2)):
            assert len(said(found(new, now=EPOCH + timedelta(seconds=seconds)))) == count

    def test_a_pool_that_consolidates_nothing(self):
        notices = self.notices(pool(window="Never"), box("web"))
        assert len(notices) == 6, "emptiness reports it too"
        assert {n.message for n in notices} == {'NodePool "default" has consolidation disabled'}

    @pytest.mark.parametrize(
        ("node_objects", "message"),
        [
            (box("web", without={INSTANCE_TYPE}), 'Instance Type "" not found'),
            (box("web", kind("exotic", 4)), 'Instance Type "exotic" not found'),
            (
                box("web", without={CAPACITY_TYPE}),
                'Node does not have label "karpenter.sh/capacity-type"',
            ),
            (
                box("web", without={ZONE}),
                'Node does not have label "topology.kubernetes.io/zone"',
            ),
        ],
    )
    def test_nodes_without_a_price_get_events(self, node_objects, message):
        notices = self.notices(pool(), node_objects)
        assert len(notices) == 4
        assert {n.message for n in notices} == {message}
        assert {n.window.total_seconds() for n in notices} == {900}

    def test_a_normal_node_gets_events_of_its_evaluation_only(self):
        outcome = found(cluster(box("web", FOUR), runs("a", "web", cpu="4")))
        assert messages(outcome) == ["Can't replace with a cheaper node"]
        assert said(outcome) == [
            (kind_, "web", "Can't replace with a cheaper node") for kind_ in ("Node", "NodeClaim")
        ]

    def test_static_pools_are_passed_over_in_silence(self):
        outcome = found(cluster(pool(replicas=1), box("web", EIGHT), runs("a", "web")))
        assert outcome.commands == ()
        assert said(outcome) == []
        assert report(outcome, "single-node-consolidation").eligible == 0

    def test_uninitialized_nodes_wait(self):
        assert gone(single(cluster(box("web", EIGHT, settled=False), runs("a", "web")))) == []


class TestPrice:
    def test_a_cheaper_node_replaces_the_expensive_one(self):
        """Case 200."""
        outcome = single(cluster(box("web", SIXTEEN), runs("a", "web", cpu="3")))
        command = only(outcome)
        assert (command.decision, gone(outcome)) == (CommandDecision.REPLACE, ["web"])
        assert bought(outcome) == [["four", "eight"]]
        assert command.evidence.savings_per_hour == pytest.approx(1.6 - 0.4)
        assert command.reason == "Underutilized"

    def test_an_equal_price_is_no_improvement(self):
        """Beyond the reference's strictness nothing: equal is not less."""
        twin = kind("twin", 4, 0.4)
        builder = cluster(box("web", FOUR), runs("a", "web", cpu="3"), market=(FOUR, twin))
        outcome = single(builder)
        assert (gone(outcome), messages(outcome)) == ([], ["Can't replace with a cheaper node"])

    def test_the_most_expensive_spot_offering_of_a_type_decides(self):
        """Case 211: a launch may end in any zone."""
        prices = {"zone-a": 1.0, "zone-b": 0.2, "zone-c": 0.4}
        risky = kind("risky", 4, offerings=[offering(z, SPOT, p) for z, p in prices.items()])
        current = kind("current", 4, 0.5)
        builder = cluster(box("web", current), runs("a", "web"), market=(risky, current))
        assert gone(single(builder)) == []
        calm = kind("calm", 4, offerings=[offering(z, SPOT, p / 4) for z, p in prices.items()])
        builder = cluster(box("web", current), runs("a", "web"), market=(calm, current))
        assert bought(single(builder)) == [["calm"]]

    def test_prices_of_forbidden_offerings_do_not_count(self):
        """Case 212: on demand it would cost more, and spot is not allowed."""
        current = kind("current", 4, 0.5)
        other = kind("other", 4, 0.6, spot=0.2)
        on_demand = pool(requirements=[(CAPACITY_TYPE, "In", ON_DEMAND)])
        builder = cluster(on_demand, box("web", current), runs("a", "web"), market=(other, current))
        assert gone(single(builder)) == []
        builder = cluster(pool(), box("web", current), runs("a", "web"), market=(other, current))
        assert bought(single(builder)) == [["other"]]

    def test_a_spot_or_on_demand_replacement_is_ordered_as_spot(self):
        """A launch that fell back to on-demand could cost more than what it replaces."""
        current, other = kind("current", 4, 0.5), kind("other", 4, 0.6, spot=0.2)
        builder = cluster(box("web", current), runs("a", "web"), market=(other, current))
        (planned,) = only(single(builder)).replacements
        asked = {r.key: sorted(r.values) for r in planned.requirements}
        assert asked[CAPACITY_TYPE] == [SPOT]
        assert planned.cheapest.capacity_type == SPOT

    def test_on_demand_is_used_where_spot_is_more_expensive(self):
        current, odd = kind("current", 4, 0.5), kind("odd", 4, 0.3, spot=0.9)
        builder = cluster(box("web", current), runs("a", "web"), market=(odd, current))
        (planned,) = only(single(builder)).replacements
        asked = {r.key: sorted(r.values) for r in planned.requirements}
        assert (asked[CAPACITY_TYPE], planned.instance_types) == ([ON_DEMAND], ("odd",))

    def test_a_node_without_a_price_is_not_replaced(self):
        """Nothing is cheaper than nothing."""
        broken = kind("broken", 8, float("nan"))
        outcome = single(cluster(box("web", broken), runs("a", "web"), market=(*MARKET, broken)))
        assert gone(outcome) == []

    def test_a_price_without_an_exchange_rate_is_reported(self):
        """Its savings are not known, which is no lack of a cheaper node."""
        yen = kind("yen", 8, offerings=[offering("zone-a", ON_DEMAND, 300.0, currency="JPY")])
        outcome = single(cluster(box("web", yen), runs("a", "web"), market=(*MARKET, yen)))
        assert gone(outcome) == []
        assert messages(outcome) == [
            "Can't compare prices: no exchange rate from JPY to USD (--exchange-rates)"
        ]

    def test_a_running_node_is_priced_without_an_available_offering(self):
        sold_out = kind("rare", 8, offerings=[offering("zone-a", ON_DEMAND, 0.8, available=False)])
        builder = cluster(box("web", sold_out), runs("a", "web", cpu="3"), market=(FOUR, sold_out))
        assert bought(single(builder)) == [["four"]]


class TestSpot:
    def test_spot_is_not_replaced_by_spot_by_default(self):
        """Case 202."""
        types = spot_kinds(20)
        outcome = single(on_spot(types, types[-1]))
        assert gone(outcome) == []
        assert messages(outcome) == [
            "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        ]

    def test_only_where_there_is_choice(self):
        """Case 201: all but the node's own type, four of five."""
        types = spot_kinds(5)
        outcome = single(on_spot(types, types[-1]), options=GATE)
        assert gone(outcome) == []
        assert messages(outcome) == [
            (
                "SpotToSpotConsolidation requires 15 cheaper instance type options than the"
                " current candidate to consolidate, got 4"
            )
        ]

    def test_a_spot_node_among_the_fifteen_cheapest_types_is_kept(self):
        """Case 203: so a chain of replacements ends."""
        types = spot_kinds(20)
        outcome = single(on_spot(types, types[14]), options=GATE)
        assert gone(outcome) == []
        assert "got 14" in messages(outcome)[0]
        assert gone(single(on_spot(types, types[15]), options=GATE)) == ["web"]

    def test_the_cheapest_fifteen_are_ordered(self):
        """Case 204: by price, whatever the order of the catalogue."""
        bargain = kind("k99", 4, offerings=[offering("zone-a", SPOT, 0.001)])
        types = (*spot_kinds(17), bargain)
        ((first, *rest),) = bought(single(on_spot(types, types[16]), options=GATE))
        assert first == "k99"
        assert rest == [f"k{n:02}" for n in range(1, 15)]

    @pytest.mark.parametrize(("minimum", "count"), [(16, 16), (10, 15)])
    def test_enough_are_ordered_for_the_pools_minimum(self, minimum, count):
        """Case 205."""
        types = spot_kinds(20)
        (listed,) = bought(single(on_spot(types, types[-1], minimum=minimum), options=GATE))
        assert len(listed) == count

    def test_a_minimum_that_price_leaves_too_few_for(self):
        """Case 206."""
        types = spot_kinds(20)
        outcome = single(on_spot(types, types[15], minimum=16), options=GATE)
        assert gone(outcome) == []
        assert messages(outcome)[0].startswith("Filtering by price: ")

    def test_on_demand_is_replaced_by_spot_without_a_gate(self):
        types = spot_kinds(3)
        current = kind("current", 4, 0.5)
        builder = cluster(box("web", current), runs("a", "web"), market=(*types, current))
        assert bought(single(builder)) == [["k01", "k02", "k03"]]

    def test_several_spot_nodes_become_one_of_few_types(self):
        """Flexibility is asked for where one is exchanged for one."""
        types = (kind("big", 4, 0.5, spot=0.3), kind("small", 2, 0.4, spot=0.2))
        builder = cluster(
            pool(requirements=[(CAPACITY_TYPE, "In", SPOT)]),
            box("a", types[1], capacity_type=SPOT),
            box("b", types[1], capacity_type=SPOT),
            runs("a-pod", "a", cpu="2"),
            runs("b-pod", "b", cpu="2"),
            market=types,
        )
        assert gone(multi(builder)) == []
        assert bought(multi(builder, options=GATE)) == [["big"]]


class TestMinimums:
    def test_best_effort_does_not_relax_them_to_replace(self):
        """Case 231: said on Node and claim."""
        policy = DisruptionOptions(solve=SolveOptions(min_values=MinValuesPolicy.BEST_EFFORT))
        requirement = requirement_spec(INSTANCE_TYPE, "Exists", min_values=10)
        builder = cluster(
            pool(requirements=[requirement]), box("web", SIXTEEN), runs("a", "web", cpu="3")
        )
        outcome = single(builder, options=policy)
        assert gone(outcome) == []
        assert messages(outcome) == ["Can't replace without relaxing minValues"]
        assert {(kind_, name) for kind_, name, _ in said(outcome)} == BOTH

    def test_merging_that_would_break_them_leaves_a_deletion(self):
        """Case 207: three nodes do not become one of too few types; one of them goes."""
        requirement = requirement_spec(INSTANCE_TYPE, "Exists", min_values=5)
        builder = cluster(
            pool(requirements=[requirement]),
            *(box(name, FOUR) for name in "abc"),
            *(runs(f"{name}-pod", name, cpu="2") for name in "abc"),
        )
        assert gone(multi(builder)) == []
        assert len(gone(single(builder))) == 1
        assert only(single(builder)).decision is CommandDecision.DELETE


class TestOtherPools:
    def test_one_without_types_does_not_matter(self):
        """Case 208."""
        builder = cluster(
            pool(),
            pool("bare"),
            box("web", SIXTEEN),
            runs("a", "web", cpu="3"),
            catalogues={"default": catalogue(*MARKET), "bare": catalogue()},
        )
        assert gone(single(builder)) == ["web"]

    def test_one_that_is_not_ready_neither(self):
        """Case 208."""
        bad = pool("bad")
        conditions = tuple(
            c.model_copy(update={"status": FALSE}) if c.type == READY else c
            for c in bad.status.conditions
        )
        bad = bad.model_copy(
            update={"status": bad.status.model_copy(update={"conditions": conditions})}
        )
        builder = cluster(pool(), bad, box("web", SIXTEEN), runs("a", "web", cpu="3"))
        (planned,) = only(single(builder)).replacements
        assert planned.pool == "default"


class TestReserved:
    def reserved(self, name, cores, price, reserved_price, left=1):
        """A type that is sold on demand, and reserved while there is something left."""
        prepaid = offering("zone-a", RESERVED, reserved_price, available=left > 0)
        return kind(name, cores, offerings=[offering("zone-a", ON_DEMAND, price), prepaid])

    def prepaid(self, made, left=1):
        """Count what is left of the reservations."""

        offerings = tuple(
            replace(o, reservation_capacity=left) if o.capacity_type == RESERVED else o
            for o in made.offerings
        )
        return replace(made, offerings=offerings)

    def test_reserved_is_replaced_by_cheaper_reserved(self):
        """Case 229."""
        dear = self.prepaid(self.reserved("dear", 8, 0.8, 0.2))
        cheap = self.prepaid(self.reserved("cheap", 4, 0.4, 0.1))
        builder = cluster(
            box("web", dear, capacity_type=RESERVED), runs("a", "web"), market=(dear, cheap)
        )
        (planned,) = only(single(builder)).replacements
        assert planned.cheapest.capacity_type == RESERVED
        assert planned.instance_types == ("cheap",)

    def test_an_on_demand_node_is_replaced_by_reserved_capacity_of_its_type(self):
        """Case 229."""
        same = self.prepaid(self.reserved("same", 4, 0.4, 0.01))
        builder = cluster(box("web", same), runs("a", "web"), market=(same,))
        (planned,) = only(single(builder)).replacements
        assert (planned.cheapest.capacity_type, planned.instance_types) == (RESERVED, ("same",))

    @pytest.mark.parametrize("left", [0, 1])
    def test_a_reservation_that_is_used_up_offers_nothing(self, left):
        """Then spot is ordered, and never what is sold on demand at ten times the price."""
        booked = self.prepaid(self.reserved("booked", 4, 5.0, 0.01, left=left), left=left)
        other = kind("other", 4, 0.6, spot=0.2)
        current = kind("current", 4, 0.5)
        builder = cluster(box("web", current), runs("a", "web"), market=(booked, other, current))
        (planned,) = only(single(builder)).replacements
        asked = {r.key: sorted(r.values) for r in planned.requirements}
        expected = ([RESERVED], ("booked",)) if left else ([SPOT], ("other",))
        assert (asked[CAPACITY_TYPE], planned.instance_types) == expected
