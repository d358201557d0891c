"""Several nodes at once: prefixes, growth, repacking, budgets (cases 221-224, 232, 234)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, SPOT
from karpenter_core.api.nodepool import Budget
from karpenter_core.api.prices import Price
from karpenter_core.disruption import multi_node
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.consolidation import DisruptionMove, MoveRefusal
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.method import DisruptionOptions, PassTimeLimit
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.plan import plan_steps
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.state.events import DeletionMarked
from tests.disruption.small_clusters import (
    FOUR,
    GATE,
    MARKET,
    SIXTEEN,
    TWO,
    bought,
    box,
    cluster,
    found,
    gone,
    kind,
    multi,
    only,
    pass_over,
    pool,
    report,
    runs,
    single,
    validated,
)

KEPT = {DO_NOT_DISRUPT: "true"}


def boxes(count, of=FOUR, *, cpu="1", prefix="web", pods=1, **options):
    """Nodes `web-00` … with pods that ask for so much each."""
    return [
        (
            box(f"{prefix}-{n:02}", of, **options),
            [runs(f"{prefix}-{n:02}-{m}", f"{prefix}-{n:02}", cpu=cpu) for m in range(pods)],
        )
        for n in range(count)
    ]


class TestMerging:
    @pytest.mark.parametrize("capacity_type", ["on-demand", "spot"])
    def test_three_nodes_become_one(self, capacity_type):
        """Case 221."""
        market = tuple(
            kind(it.name, it.capacity["cpu"] // 1000, spot=0.04 * it.capacity["cpu"] / 1000)
            for it in MARKET
        )
        requirements = [(CAPACITY_TYPE, "In", capacity_type)]
        builder = cluster(
            pool(requirements=requirements),
            boxes(3, market[2], cpu="2.5", capacity_type=capacity_type),
            market=(*market, kind("eight-off", 8, 0.5, spot=0.2)),
        )
        outcome = multi(builder, options=GATE)
        assert gone(outcome) == ["web-00", "web-01", "web-02"]
        assert only(outcome).decision is CommandDecision.REPLACE
        assert bought(outcome) == [["eight-off", "eight"]]
        without_gate = gone(multi(builder))
        assert without_gate == ([] if capacity_type == SPOT else gone(outcome))

    def test_mixed_capacity_becomes_one_spot(self):
        """Case 221: a set that is not all spot needs no gate."""
        small, large = kind("small", 4, 0.4, spot=0.2), kind("large", 8, 0.7, spot=0.3)
        builder = cluster(
            box("a", small, capacity_type="spot"),
            box("b", small),
            runs("a-pod", "a", cpu="3"),
            runs("b-pod", "b", cpu="3"),
            market=(small, large),
        )
        outcome = multi(builder)
        assert (sorted(gone(outcome)), bought(outcome)) == (["a", "b"], [["large"]])

    def test_nodes_of_the_cheapest_type_are_not_exchanged_for_one_of_them(self):
        """Case 222: one of them goes instead."""
        builder = cluster(boxes(2, TWO, cpu="500m"), market=(TWO, FOUR))
        assert gone(multi(builder)) == []
        outcome = single(builder)
        assert (only(outcome).decision, len(gone(outcome))) == (CommandDecision.DELETE, 1)

    def test_a_type_that_is_there_already_is_no_option_of_the_merger(self):
        """Of `[small, xl, 2xl]` for `[2xl, 2xl, small]` only what is cheaper than small is new."""
        nano, small, xl = kind("nano", 8, 0.1), kind("small", 8, 0.2), kind("xl", 8, 0.3)
        double = kind("2xl", 8, 0.6)
        objects = [
            box("a", double),
            box("b", double),
            box("c", small),
            *(runs(f"{name}-pod", name, cpu="3", annotations=None) for name in "ab"),
            runs("c-pod", "c", cpu="2"),
        ]
        with_nano = multi(cluster(*objects, market=(nano, small, xl, double)))
        assert bought(with_nano) == [["nano"]]
        without = multi(cluster(*objects, market=(small, xl, double)))
        assert bought(without) == [], "a and b could only move to c"
        assert sorted(gone(without)) == ["a", "b"]

    def test_several_go_for_nothing(self):
        builder = cluster(boxes(5), box("roomy", SIXTEEN), runs("kept", "roomy", annotations=KEPT))
        outcome = multi(builder)
        assert only(outcome).decision is CommandDecision.DELETE
        assert len(gone(outcome)) == 5
        assert set(only(outcome).moves) == {"roomy"}

    def test_empty_ones_are_left_to_emptiness(self):
        """Case 223."""
        builder = cluster(*(box(name) for name in "abc"))
        outcome = found(builder)
        assert (outcome.method.name, sorted(gone(outcome))) == ("emptiness", ["a", "b", "c"])
        assert gone(multi(builder)) == []

    def test_one_node_is_not_several(self):
        assert gone(multi(cluster(boxes(1, SIXTEEN)))) == []

    def test_every_prefix_is_evaluated(self):
        """Only the first two of six can go: halving from the middle would try four first."""
        builder = cluster(
            boxes(2, cpu="500m", prefix="a"),
            *(
                (box(f"z-{n}"), [runs(f"z-{n}-{m}", f"z-{n}", cpu="900m") for m in range(4)])
                for n in range(4)
            ),
            box("roomy", TWO),
            runs("kept", "roomy", annotations=KEPT),
        )
        assert sorted(gone(multi(builder))) == ["a-00", "a-01"]


class TestGrowth:
    def scattered(self):
        """Of six nodes every other one fits on what stays; the others have pods of four cores."""
        stuck = [
            (box(f"s-{n}", kind("five", 5, 5.0)), runs(f"s-{n}", f"s-{n}", cpu="4.5"))
            for n in range(3)
        ]
        return cluster(
            *stuck,
            boxes(3, FOUR, cpu="1"),
            box("roomy", FOUR),
            runs("kept", "roomy", annotations=KEPT),
            market=(kind("five", 5, 5.0), FOUR),
        )

    def test_nodes_that_fit_are_chosen_around_those_that_do_not(self):
        """No prefix of the order by savings would do: its first three cannot go."""
        outcome = multi(self.scattered())
        assert sorted(gone(outcome)) == ["web-00", "web-01", "web-02"]
        assert only(outcome).decision is CommandDecision.DELETE

    def test_a_blocked_node_uses_up_no_budget(self):
        """The first two by savings would fill the budget, and none of them can go."""
        dear = kind("dear", 5, 5.0)
        builder = cluster(
            pool(nodes="2"),
            [(box(f"s-{n}", dear), runs(f"s-{n}", f"s-{n}", cpu="4.5")) for n in range(3)],
            boxes(3),
            box("roomy", FOUR),
            runs("kept", "roomy", annotations=KEPT),
            market=(dear, FOUR),
        )
        outcome = multi(builder)
        assert gone(outcome) == ["web-00", "web-01"]
        assert sorted(only(outcome).evidence.spared_by_budget) == ["s-2", "web-02"]

    def test_a_search_costs_work_units_and_stops_without_them(self):
        options = DisruptionOptions(work_units=0)
        outcome = multi(self.scattered(), options=options)
        assert gone(outcome) == []
        assert report(outcome).is_idle, "the same work units would again find nothing"

    def test_a_search_takes_no_more_work_units_than_it_may_have(self):
        """Else a large cluster would be searched for as long as it is large."""

        def taken(units, count=12):
            options = DisruptionOptions(work_units=units)
            one = pass_over(cluster(boxes(count)), options=options)
            return sum(plan_steps_of(one))

        without, whole = taken(0), taken(10**6)
        assert without == taken(0, count=6)
        assert whole > without + 12
        assert all(taken(units) <= without + units for units in range(1, 16))

    def test_an_interrupted_search_is_reported_and_continued(self):
        """Case 234: nothing is taken, the time-out counts."""
        outcome = multi(self.scattered(), time_limit=PassTimeLimit(is_reached=True))
        assert gone(outcome) == []
        assert (report(outcome).is_cut_short, report(outcome).is_idle) == (True, False)


def packed(count, *, spot=None, **options):
    """Nodes at 0.5 that are full with two pods each; a node at 0.6 would hold three. None can go

    alone, two are too much for one node; but three of them fit on two.
    """
    six = kind("six", 6, 0.5, spot=None if spot is None else spot * 0.5)
    nine = kind("nine", 9, 0.6, spot=None if spot is None else spot * 0.6)
    return boxes(count, six, cpu="3", pods=2, **options), (six, nine)


def with_large_ones(count):
    """Four nodes that are full, and some of sixteen cores of which thirteen are used."""
    fourteen = kind("fourteen", 14, 1.4)
    return cluster(
        [(box(f"fit-{n}", FOUR), runs(f"fit-{n}", f"fit-{n}", cpu="4")) for n in range(4)],
        [
            (
                box(f"fat-{n}", SIXTEEN),
                [runs(f"fat-{n}-{m}", f"fat-{n}", cpu="6.5") for m in (0, 1)],
            )
            for n in range(count)
        ],
        market=(FOUR, fourteen, SIXTEEN),
    )


def plan_steps_of(one):
    """Yield the work units of each step of a search for several nodes."""
    yield from plan_steps(one, methods=(MultiNodeConsolidation(),))


def cut_after(builder, steps):
    """Return the result of a search with a time limit of so many steps."""
    one = pass_over(builder)
    work = plan_steps(one, methods=(MultiNodeConsolidation(),))
    try:
        for _ in range(steps):
            next(work)
        one.time_limit.is_reached = True
        while True:
            next(work)
    except StopIteration as done:
        return done.value


def test_a_search_that_is_cut_short_ends_with_the_best_that_it_has():
    """Case 234: whenever time runs out, what comes of it holds."""
    builder = cluster(boxes(6), box("roomy", SIXTEEN), runs("kept", "roomy", annotations=KEPT))
    found_counts = set()
    for steps in range(60):
        outcome = cut_after(builder, steps)
        names = gone(outcome)
        found_counts.add(len(names))
        if names:
            assert validated(builder, outcome).command is not None
        else:
            assert report(outcome).is_cut_short
    assert {0, 2, 6} <= found_counts, "nothing, then some, then all"


class TestRepacking:
    """Beyond the reference: m nodes become n, for less."""

    def test_several_become_several_that_cost_less(self):
        nodes, market = packed(3)
        builder = cluster(nodes, market=market)
        outcome = multi(builder)
        command = only(outcome)
        assert (len(command.candidates), bought(outcome)) == (3, [["nine"], ["nine"]])
        assert command.evidence.savings_per_hour == pytest.approx(3 * 0.5 - 2 * 0.6)
        assert gone(single(builder)) == []

    def test_an_equal_price_is_no_reason(self):
        nodes, (six, _) = packed(3)
        assert gone(found(cluster(nodes, market=(six, kind("nine", 9, 0.75))))) == []

    def test_a_node_without_a_further_saving_is_left_out(self):
        """Two of six nodes are far too large; the others are not exchanged for their likes."""
        outcome = multi(with_large_ones(2))
        assert sorted(gone(outcome)) == ["fat-0", "fat-1"]
        assert bought(outcome) == [["fourteen"], ["fourteen"]]

    def test_one_large_node_among_others_is_left_to_the_next_method(self):
        builder = with_large_ones(1)
        assert gone(multi(builder)) == []
        assert gone(single(builder)) == ["fat-0"]

    @pytest.mark.parametrize("count", [1, 2, 3, 12])
    @pytest.mark.parametrize("needed", [0, 1, 2, None])
    def test_a_move_that_needs_one_new_node_is_evaluated_for_one(self, monkeypatch, count, needed):
        """As its validation does it, which would refuse another move."""
        asked = []

        def evaluated(_pass, members, *, max_claims=1):
            asked.append((len(members), max_claims))
            if needed is None:
                return MoveRefusal("no")
            return DisruptionMove(
                candidates=tuple(members),
                verdict=None,
                replacements=(object(),) * needed,
                savings_per_hour=max_claims,
            )

        monkeypatch.setattr(multi_node, "evaluate_move", evaluated)
        search = multi_node._MoveSearch(pass_over(cluster(boxes(1))))
        move = run_steps(search._repacked_steps(["web"] * count))

        again = count > 1 and needed in (0, 1)
        assert asked == [(count, min(count, 10))] + [(count, 1)] * again
        if needed is not None:
            assert move.savings_per_hour == asked[-1][1], "the last move is the result"

    def test_several_new_nodes_may_be_free(self):
        """Then each may cost as much as all of the old ones."""
        nodes, (six, nine) = packed(3)
        free = replace(nine, offerings=tuple(replace(o, price=Price(0.0)) for o in nine.offerings))
        command = only(multi(cluster(nodes, market=(six, free))))
        assert len(command.candidates) == 3
        assert [each.cheapest.price_per_hour for each in command.replacements] == [0.0, 0.0]

    def test_never_more_than_ten_for_ten(self):
        nodes, market = packed(30)
        command = only(multi(cluster(nodes, market=market)))
        assert 3 <= len(command.candidates) <= 10
        assert 2 <= len(command.replacements) < len(command.candidates)

    def test_budgets_hold_for_it_as_well(self):
        nodes, market = packed(6)
        outcome = multi(cluster(pool(nodes="3"), nodes, market=market))
        assert (len(gone(outcome)), len(bought(outcome))) == (3, 2)
        outcome = multi(cluster(pool(nodes="2"), nodes, market=market))
        assert gone(outcome) == []

    def test_limits_hold_for_it_as_well(self):
        nodes, market = packed(3)
        assert gone(multi(cluster(pool(limits={"cpu": "18"}), nodes, market=market)))
        assert gone(multi(cluster(pool(limits={"cpu": "9"}), nodes, market=market))) == []

    def test_spot_is_not_repacked_without_the_gate(self):
        nodes, market = packed(3, spot=0.1, capacity_type="spot")
        assert gone(multi(cluster(nodes, market=market))) == []
        assert len(gone(multi(cluster(nodes, market=market), options=GATE))) == 3


class TestBudgets:
    def test_several_nodes_stay_within_the_budget(self):
        """Case 232: three of ten."""
        builder = cluster(
            pool(nodes="30%"),
            boxes(10),
            box("roomy", SIXTEEN, pool="default"),
            runs("k", "roomy", annotations=KEPT),
        )
        outcome = multi(builder)
        assert len(gone(outcome)) == 4, "30 % of eleven nodes, rounded up"
        assert report(outcome).constrained
        assert len(only(outcome).evidence.spared_by_budget) == 6

    @pytest.mark.parametrize(
        "method", [EmptinessMethod(), MultiNodeConsolidation(), SingleNodeConsolidation()]
    )
    @pytest.mark.parametrize("pools", [1, 10])
    def test_a_pass_without_a_command_is_idle_for_its_own_budgets_only(self, method, pools):
        """Case 232: a pass is idle for its own budgets, no others."""
        objects = []
        for p in range(pools):
            objects.append(pool(f"p{p}", nodes="0%"))
            objects.append(boxes(3, prefix=f"p{p}", pool=f"p{p}"))
            objects.append(box(f"p{p}-empty", pool=f"p{p}"))
        outcome = found(cluster(*objects), method)
        assert gone(outcome) == []
        assert report(outcome).eligible
        assert {left for _, left in report(outcome).remaining_budgets} == {0}

    def test_single_nodes_stay_within_the_budget_over_passes(self):
        """Case 232: three of ten over five passes, since those that leave count."""
        builder = cluster(pool(nodes="30%"), boxes(10))
        taken = []
        for _ in range(5):
            names = gone(single(builder))
            taken += names
            builder.apply_event(DeletionMarked(names=tuple(names), cause="x"))
        assert len(taken) == 3

    def test_every_pool_has_its_own(self):
        builder = cluster(
            pool("one", nodes="1"),
            pool("two", nodes="2"),
            boxes(3, prefix="one", pool="one"),
            boxes(3, prefix="two", pool="two"),
            box("roomy", SIXTEEN, pool="one"),
            runs("k", "roomy", annotations=KEPT),
        )
        goes = gone(multi(builder))
        assert sorted(name.split("-")[0] for name in goes) == ["one", "two", "two"]

    def test_a_budget_of_another_reason_does_not_hold(self):
        budgets = [Budget(nodes="0", reasons=("Drifted", "Empty")), Budget(nodes="100%")]
        builder = cluster(
            pool(budgets=budgets), boxes(2), box("roomy"), runs("k", "roomy", annotations=KEPT)
        )
        assert len(gone(multi(builder))) == 2
