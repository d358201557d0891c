"""Return of nodes to the capacity type or pool that is preferred."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, INSTANCE_TYPE, ON_DEMAND, SPOT
from karpenter_core.api.returning import return_rule, return_rule_error
from karpenter_core.disruption.method import PassTimeLimit
from karpenter_core.disruption.return_to_preferred import ReturnToPreferred
from karpenter_core.disruption.validation import CommandRejection
from karpenter_core.state.events import CataloguePublished, ObjectObserved
from karpenter_core.testing.builders import catalogue, node_pool, offering, requirement_spec
from tests.disruption.small_clusters import (
    FOUR,
    bought,
    box,
    cluster,
    found,
    gone,
    kind,
    only,
    pool,
    report,
    runs,
    validated,
)

CHEAP_SPOT = kind("spotty", 4, 0.4, spot=0.1)
SOLD_OUT = kind(
    "spotty",
    4,
    offerings=[offering("zone-a", ON_DEMAND, 0.4), offering("zone-a", SPOT, 0.1, available=False)],
)


def returning(name="default", *, after="5m", budget=None, policy="WhenEmpty", **options):
    notes = {"karpenter.sh/return-after": after}
    if budget is not None:
        notes["karpenter.sh/return-budget"] = budget
    return pool(name, policy=policy, notes=notes, **options)


def back(builder):
    return found(builder, ReturnToPreferred())


class TestCapacityType:
    def test_on_demand_returns_to_spot_when_that_is_to_be_had(self):
        outcome = back(
            cluster(returning(), box("a", CHEAP_SPOT), runs("web", "a"), market=[CHEAP_SPOT])
        )
        assert gone(outcome) == ["a"]
        (planned,) = only(outcome).replacements
        assert planned.cheapest.capacity_type == SPOT
        (allowed,) = [r for r in planned.requirements if r.key == "karpenter.sh/capacity-type"]
        assert allowed.values == {SPOT}

    def test_not_while_spot_is_out_of_stock(self):
        outcome = back(
            cluster(returning(), box("a", SOLD_OUT), runs("web", "a"), market=[SOLD_OUT])
        )
        assert gone(outcome) == []

    def test_spot_has_nothing_to_return_to(self):
        node_objects = box("a", CHEAP_SPOT, capacity_type=SPOT)
        outcome = back(cluster(returning(), node_objects, runs("web", "a"), market=[CHEAP_SPOT]))
        assert gone(outcome) == []

    def test_not_if_spot_alone_is_too_little_for_min_values(self):
        """Two types are asked for, and one of them has no spot."""
        two_types = requirement_spec(INSTANCE_TYPE, "Exists", min_values=2)
        objects = (returning(requirements=[two_types]), box("a", CHEAP_SPOT), runs("web", "a"))
        assert gone(back(cluster(*objects, market=[CHEAP_SPOT, FOUR]))) == []
        twin = kind("twin", 4, 0.4, spot=0.1)
        assert gone(back(cluster(*objects, market=[CHEAP_SPOT, FOUR, twin]))) == ["a"]

    def test_nothing_returns_unless_its_pool_wants_it(self):
        outcome = back(cluster(pool(), box("a", CHEAP_SPOT), runs("web", "a"), market=[CHEAP_SPOT]))
        assert gone(outcome) == []

    @pytest.mark.parametrize(("after", "goes"), [("10m", ["a"]), ("10m1s", [])])
    def test_a_node_has_to_reach_the_minimum_age(self, after, goes):
        """It is ten minutes old."""
        objects = (returning(after=after), box("a", CHEAP_SPOT), runs("web", "a"))
        assert gone(back(cluster(*objects, market=[CHEAP_SPOT]))) == goes

    def test_an_empty_node_is_left_to_emptiness(self):
        assert gone(back(cluster(returning(), box("a", CHEAP_SPOT), market=[CHEAP_SPOT]))) == []


class TestPools:
    def test_nodes_return_to_a_heavier_pool_at_a_higher_price(self):
        dear = kind("dear", 4, 0.8)
        builder = cluster(
            returning(), pool("heavy", weight=50), box("a"), runs("web", "a"), market=[dear]
        )
        outcome = back(builder)
        assert gone(outcome) == ["a"]
        assert bought(outcome) == [["dear"]]
        assert only(outcome).replacements[0].pool == "heavy"
        assert only(outcome).evidence.savings_per_hour < 0

    def test_not_to_one_that_is_full(self):
        builder = cluster(
            returning(),
            pool("heavy", weight=50, limits={"cpu": "1"}),
            box("a"),
            runs("web", "a", cpu="2"),
        )
        assert gone(back(builder)) == []


class TestBudgets:
    def spot_nodes(self, count):
        return [
            item
            for n in range(count)
            for item in (box(f"m{n}", CHEAP_SPOT), runs(f"web-{n}", f"m{n}", cpu="3"))
        ]

    def test_the_oldest_node_is_disrupted_first_and_one_at_a_time(self):
        outcome = back(cluster(returning(), self.spot_nodes(3), market=[CHEAP_SPOT]))
        assert gone(outcome) == ["m0"]

    @pytest.mark.parametrize(
        ("budget", "of_pool", "goes"),
        [("0", "100%", 0), ("0%", "100%", 0), ("10%", "100%", 1), ("5", "0", 0), ("5", "1", 1)],
    )
    def test_both_budgets_have_to_allow_it(self, budget, of_pool, goes):
        objects = (returning(budget=budget, nodes=of_pool), self.spot_nodes(3))
        assert len(gone(back(cluster(*objects, market=[CHEAP_SPOT])))) == goes

    def test_a_pass_without_time_left_is_cut_short(self):
        builder = cluster(returning(), self.spot_nodes(1), market=[CHEAP_SPOT])
        outcome = found(builder, ReturnToPreferred(), time_limit=PassTimeLimit(is_reached=True))
        assert (gone(outcome), report(outcome).is_cut_short) == ([], True)
        assert not report(outcome).is_idle


class TestSecondLook:
    def builder(self):
        return cluster(returning(), box("a", CHEAP_SPOT), runs("web", "a"), market=[CHEAP_SPOT])

    def test_a_still_valid_command_is_executed(self):
        builder = self.builder()
        verdict = validated(builder, back(builder))
        assert verdict.rejection is None
        assert [item.name for item in verdict.command.candidates] == ["a"]

    def test_a_newly_sold_out_move_is_abandoned(self):
        builder = self.builder()
        outcome = back(builder)
        builder.apply_event(CataloguePublished("default", catalogue(SOLD_OUT, version="2")))
        assert validated(builder, outcome).rejection is CommandRejection.SCHEDULING

    def test_a_former_candidate_is_kept(self):
        builder = self.builder()
        outcome = back(builder)
        builder.apply_event(ObjectObserved(runs("web", "a", annotations={DO_NOT_DISRUPT: "true"})))
        verdict = validated(builder, outcome)
        assert (verdict.rejection, verdict.failed_candidates, verdict.command) == (
            CommandRejection.CHURN,
            1,
            None,
        )

    def test_a_budget_that_is_used_up_meanwhile_keeps_it(self):
        builder = self.builder()
        outcome = back(builder)
        builder.apply_event(ObjectObserved(returning(nodes="0")))
        verdict = validated(builder, outcome)
        assert (verdict.rejection, verdict.failed_candidates, verdict.command) == (
            CommandRejection.BUDGET,
            1,
            None,
        )


class TestRule:
    def ruled(self, **notes):
        bare = node_pool()
        annotations = {f"karpenter.sh/{key.replace('_', '-')}": v for key, v in notes.items()}
        metadata = bare.metadata.model_copy(update={"annotations": annotations})
        return bare.model_copy(update={"metadata": metadata})

    @pytest.mark.parametrize(
        ("notes", "text"),
        [
            ({"return_after": "soon"}, '"soon" is not a duration'),
            ({"return_after": "1h", "return_budget": "some"}, '"some" is neither'),
            ({"return_after": "1h", "return_budget": "-1"}, '"-1" is neither'),
        ],
    )
    def test_an_unreadable_rule_is_reported_and_has_no_effect(self, notes, text):
        assert text in return_rule_error(self.ruled(**notes))
        assert return_rule(self.ruled(**notes)) is None

    def test_no_annotation_is_no_rule(self):
        assert return_rule_error(self.ruled()) == ""
        assert return_rule(self.ruled()) is None

    def test_a_share_rounds_up(self):
        rule = return_rule(self.ruled(return_after="1h", return_budget="10%"))
        assert (rule.allowed(0), rule.allowed(1), rule.allowed(11)) == (0, 1, 2)
