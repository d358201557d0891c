"""The policy Balanced compares savings with disruption (cases 237-253)."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, ON_DEMAND, ZONE
from karpenter_core.api.prices import Price
from karpenter_core.disruption.balanced import (
    APPROVAL_THRESHOLD,
    PoolTotals,
    balanced_scores,
    is_approved,
    pool_totals,
)
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import sort_by_savings
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.disruption.plan import plan
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.testing.builders import offering
from tests.disruption.small_clusters import (
    EIGHT,
    FOUR,
    MARKET,
    SIXTEEN,
    TWO,
    ZONES,
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
    said,
    single,
)

BALANCED = "Balanced"
KEPT = {DO_NOT_DISRUPT: "true"}
DEAR = kind("dear", 8, 4.84)


def balanced(name="default", **options):
    return pool(name, policy=BALANCED, **options)


def judged(builder):
    """The candidates of a cluster, the totals of its pools, and the prices."""
    one = pass_over(builder)
    candidates = one.candidates(DisruptionClass.GRACEFUL).candidates
    return candidates, pool_totals(one.snapshot, candidates, one.prices), one.prices


def alike(count, of=DEAR, *, pods=1, prefix="web", **options):
    return [
        (
            box(f"{prefix}-{n}", of, **options),
            [runs(f"{prefix}-{n}-{m}", f"{prefix}-{n}") for m in range(pods)],
        )
        for n in range(count)
    ]


@pytest.fixture
def some():
    """Make candidates of Balanced pools with this price and disturbance."""
    (first,), _, prices = judged(cluster(balanced(), alike(1)))
    (other,), _, _ = judged(cluster(pool("other"), alike(1, pool="other")))

    def made(*pairs, policy=BALANCED):
        template = first if policy == BALANCED else other
        return [
            replace(template, price=Price(price), reschedule_cost=cost) for price, cost in pairs
        ]

    return made, prices


class TestTotals:
    def test_totals_cover_all_nodes(self):
        """Case 237: five at 4.84 with a pod each."""
        _, totals, _ = judged(cluster(balanced(), alike(5), market=(DEAR,)))
        assert totals["default"].cost == pytest.approx(5 * 4.84)
        assert totals["default"].disruption == pytest.approx(10.0)

    @pytest.mark.parametrize("of", [kind("unknown", 8, 1.0), kind("free", 8, nan)])
    def test_a_node_without_a_price_still_counts_disruption(self, of):
        """Cases 238 and 239."""
        market = (DEAR, of) if of.name == "free" else (DEAR,)
        _, totals, _ = judged(cluster(balanced(), alike(3, of), market=market))
        assert totals["default"] == PoolTotals(cost=0.0, disruption=6.0)

    def test_nodes_that_are_no_candidates_count_too(self):
        """They cost and could be disrupted, although something forbids it now."""
        builder = cluster(
            balanced(),
            alike(1),
            box("kept", DEAR, annotations=KEPT),
            runs("k", "kept"),
            market=(DEAR,),
        )
        candidates, totals, _ = judged(builder)
        assert len(candidates) == 1
        assert totals["default"].cost == pytest.approx(2 * 4.84)
        assert totals["default"].disruption == pytest.approx(4.0)

    def test_daemon_pods_cost_no_disruption(self):
        builder = cluster(
            balanced(),
            box("kept", DEAR, annotations=KEPT),
            runs("log", "kept", owner_kind="DaemonSet"),
            market=(DEAR,),
        )
        assert judged(builder)[1]["default"].disruption == pytest.approx(1.0)

    def test_an_unavailable_offering_keeps_its_last_price(self):
        """Case 247: 1.00, not the 5.00 of the offering that is left."""
        prices = [
            offering("zone-a", ON_DEMAND, 1.0, available=False),
            offering("zone-b", ON_DEMAND, 5.0),
        ]
        of = kind("scarce", 8, offerings=prices)
        candidates, totals, _ = judged(cluster(balanced(), alike(1, of), market=(of,)))
        assert candidates[0].price.amount == totals["default"].cost == 1.0


class TestScore:
    @pytest.mark.parametrize(
        ("totals", "saved", "disturbed", "score", "approved"),
        [
            ((58.08, 90), 7.26, 4, 2.81, True),
            ((58.08, 90), 4.84, 5, 1.5, True),
            ((58.08, 90), 2.42, 9, 0.42, False),
            ((58.08, 90), 0.0, 11, 0.0, False),
            ((48.40, 90), 2.42, 9, 0.5, True),
            ((58.08, 117), 4.84, 5, 1.95, True),
            ((58.08, 117), 4.84, 32, 0.30, False),
            ((100, 100), 20, 5, 4.0, True),
            ((100, 100), 10, 10, 1.0, True),
            ((100, 100), 5, 50, 0.1, False),
            ((100, 100), 10, 0, inf, True),
            ((100, 100), 0, 10, 0.0, False),
            ((100, 100), -5, 10, 0.0, False),
        ],
    )
    def test_worked_numbers(self, some, totals, saved, disturbed, score, approved):
        """Cases 240 and 251."""
        made, prices = some
        cost, disruption = totals
        for factor in (1, 10):
            whole = {"default": PoolTotals(cost=cost * factor, disruption=disruption * factor)}
            (found_,) = balanced_scores(
                made((5.0, disturbed * factor)), saved * factor, whole, prices
            )
            assert found_.approved is approved, "for every size of the pool"
            assert found_.score == pytest.approx(score, abs=0.006)

    def test_a_move_of_nothing_is_not_approved(self, some):
        """Case 241."""
        _, prices = some
        assert balanced_scores((), 0.0, {}, prices) == ()
        assert not is_approved(())

    def test_other_policies_approve_always(self, some):
        """Case 242."""
        made, prices = some
        (found_,) = balanced_scores(made((1.0, 100.0), policy="other"), -1.0, {}, prices)
        assert (found_.approved, found_.policy, found_.score) == (
            True,
            "WhenEmptyOrUnderutilized",
            0.0,
        )

    @pytest.mark.parametrize(
        "totals",
        [
            {},
            {"default": PoolTotals(cost=0.0, disruption=5.0)},
            {"default": PoolTotals(cost=5.0, disruption=0.0)},
        ],
    )
    def test_a_pool_without_totals_refuses(self, some, totals):
        """Case 243."""
        made, prices = some
        (found_,) = balanced_scores(made((1.0, 1.0)), 1.0, totals, prices)
        assert (found_.approved, found_.score) == (False, 0.0)

    def test_one_of_ten_alike_scores_one(self):
        """Case 244."""
        candidates, totals, prices = judged(cluster(balanced(), alike(10), market=(DEAR,)))
        (found_,) = balanced_scores(candidates[:1], 4.84, totals, prices)
        assert found_.score == pytest.approx(1.0)

    def test_savings_are_shared_by_price(self):
        """Case 245: each pool is credited with what its own node costs."""
        builder = cluster(
            balanced("blue"),
            pool("green"),
            alike(10, prefix="b", pool="blue"),
            alike(10, prefix="g", pool="green"),
            market=(DEAR,),
        )
        candidates, totals, prices = judged(builder)
        move = [c for c in candidates if c.name in {"b-0", "g-0"}]
        blue, green = balanced_scores(move, 2 * 4.84, totals, prices)
        assert blue.score == pytest.approx(1.0)
        assert (green.approved, green.score) == (True, 0.0)

    def test_every_pool_is_judged_even_if_the_first_refuses(self):
        """Case 246."""
        builder = cluster(
            balanced("blue"),
            balanced("green"),
            alike(1, prefix="b", pool="blue", pods=30),
            alike(1, prefix="bb", pool="blue"),
            alike(2, prefix="g", pool="green"),
            market=(kind("dear", 40, 4.84),),
        )
        candidates, totals, prices = judged(builder)
        move = [c for c in candidates if c.name in {"b-0", "g-0"}]
        blue, green = balanced_scores(move, 4.0, totals, prices)
        assert (blue.approved, green.approved) == (False, False)
        assert not is_approved((blue, green))
        assert green.score > blue.score > 0

    def test_removing_the_only_node_of_a_pool_is_approved(self):
        """Case 248."""
        candidates, totals, prices = judged(cluster(balanced(), alike(1), market=(DEAR,)))
        (found_,) = balanced_scores(candidates, 4.84, totals, prices)
        assert found_.savings_share >= 1
        assert found_.approved

    def test_the_message_has_score_threshold_and_shares(self):
        candidates, totals, prices = judged(cluster(balanced(), alike(10), market=(DEAR,)))
        (found_,) = balanced_scores(candidates[:1], 4.84, totals, prices)
        assert found_.message == (
            "score 1.00 >= threshold 0.50 (k: 2, savings 10.0%, disruption 10.0%)"
        )
        assert APPROVAL_THRESHOLD == 0.5


class TestSavings:
    """Case 249: what replacements cost is their first type's cheapest offering that may be had."""

    def saved(self, offerings, *, requirements=(), price=0.5, cpu="3"):
        current = kind("current", 16, price)
        other = kind("other", 4, offerings=offerings)
        command = only(
            single(
                cluster(
                    pool(requirements=requirements),
                    box("web", current),
                    runs("a", "web", cpu=cpu),
                    market=(current, other),
                )
            )
        )
        return command and command.evidence.savings_per_hour

    def test_of_the_capacity_that_the_pool_allows(self):
        """Spot at 0.10 does not count where only on-demand at 0.40 may be had."""
        sold = [offering("zone-a", "spot", 0.10), offering("zone-a", ON_DEMAND, 0.40)]
        only_demand = [(CAPACITY_TYPE, "In", ON_DEMAND)]
        assert self.saved(sold, requirements=only_demand) == pytest.approx(0.10)
        assert self.saved(sold) == pytest.approx(0.40)

    def test_of_the_zones_that_the_pool_allows(self):
        sold = [offering("zone-a", ON_DEMAND, 0.45), offering("zone-b", ON_DEMAND, 0.10)]
        in_a = [(ZONE, "In", "zone-a")]
        assert self.saved(sold, requirements=in_a) == pytest.approx(0.05)
        assert self.saved(sold) == pytest.approx(0.40)

    def test_of_several_replacements_all(self):
        six, nine = kind("six", 6, 0.5), kind("nine", 9, 0.6)
        nodes = [
            (box(f"w-{n}", six), [runs(f"w-{n}-{m}", f"w-{n}", cpu="3") for m in (0, 1)])
            for n in range(3)
        ]
        command = only(multi(cluster(nodes, market=(six, nine))))
        assert command.evidence.savings_per_hour == pytest.approx(1.5 - 1.2)

    def test_without_a_choice_nothing(self):
        sold_out = [offering("zone-a", ON_DEMAND, 0.1, available=False)]
        assert self.saved(sold_out) is None

    def test_the_order_by_savings(self):
        """Case 250: 4.84/1, 4.84/4, and nothing for what has no price."""
        free = kind("free", 8, nan)
        builder = cluster(
            alike(1, free, pods=1, prefix="a"),
            alike(1, DEAR, pods=3, prefix="b"),
            alike(1, DEAR, pods=0, prefix="c"),
            market=(DEAR, free),
        )
        candidates, _, prices = judged(builder)
        assert [c.name for c in sort_by_savings(candidates, prices)] == ["c-0", "b-0", "a-0"]


class TestCurrencies:
    """Prices in several currencies are compared by their rates."""

    YEN = DisruptionOptions(solve=SolveOptions(exchange_rates={"JPY": 0.01}))

    def two(self):
        """A node at 30 yen (0.30 dollars) and one at 0.40, the pod of either fits on the other."""
        yen = kind("yen", 4, offerings=[offering("zone-a", ON_DEMAND, 30.0, currency="JPY")])
        return cluster(
            box("y", yen),
            box("d", FOUR),
            runs("y-pod", "y"),
            runs("d-pod", "d"),
            market=(yen, FOUR),
        )

    def test_the_more_expensive_node_is_disrupted(self):
        outcome = single(self.two(), options=self.YEN)
        assert gone(outcome) == ["d"]
        assert only(outcome).evidence.savings_per_hour == pytest.approx(0.4)

    def test_a_replacement_may_cost_more_in_its_own_currency_units(self):
        yen = kind("yen", 4, offerings=[offering("zone-a", ON_DEMAND, 30.0, currency="JPY")])
        builder = cluster(box("d", EIGHT), runs("d-pod", "d", cpu="3"), market=(yen, FOUR, EIGHT))
        outcome = single(builder, options=self.YEN)
        assert bought(outcome) == [["yen", "four"]]
        assert only(outcome).evidence.savings_per_hour == pytest.approx(0.5)

    def test_without_a_rate_nothing_is_replaced_by_it(self):
        yen = kind("yen", 4, offerings=[offering("zone-a", ON_DEMAND, 0.03, currency="JPY")])
        builder = cluster(box("d", EIGHT), runs("d-pod", "d", cpu="3"), market=(yen, FOUR, EIGHT))
        assert bought(single(builder)) == [["four"]]

    def test_empty_nodes_are_added_up_in_one_currency(self):
        yen = kind("yen", 4, offerings=[offering("zone-a", ON_DEMAND, 30.0, currency="JPY")])
        outcome = found(
            cluster(box("y", yen), box("d", FOUR), market=(yen, FOUR)), options=self.YEN
        )
        assert outcome.method.name == "emptiness"
        assert only(outcome).evidence.savings_per_hour == pytest.approx(0.7)


class TestMoves:
    def crowd(self, *, pods, policy=BALANCED, nodes="100%"):
        """Nine full nodes, and one of twelve cores that holds this many small pods."""
        twelve = kind("twelve", 12)
        return cluster(
            pool(policy=policy, nodes=nodes),
            [(box(f"full-{n}", FOUR), runs(f"full-{n}", f"full-{n}", cpu="4")) for n in range(9)],
            box("web", twelve),
            [runs(f"p-{n}", "web", cpu="100m") for n in range(pods)],
            market=(*MARKET, kind("ten", 10), twelve),
        )

    def test_a_large_node_with_little_on_it_is_replaced(self):
        """Case 252: reported on Node and claim."""
        outcome = single(self.crowd(pods=1))
        assert (gone(outcome), bought(outcome)[0][0]) == (["web"], "one")
        assert [(kind_, name) for kind_, name, _ in said(outcome, "ConsolidationApproved")] == [
            ("Node", "web"),
            ("NodeClaim", "web"),
        ]
        (_, _, message), _ = said(outcome, "ConsolidationApproved")
        assert "threshold 0.50 (k: 2," in message

    def test_many_pods_for_little_are_not_moved(self):
        """Case 252: the same node under the other policy is."""
        crowded = self.crowd(pods=90)
        outcome = single(crowded)
        assert gone(outcome) == []
        assert said(outcome, "ConsolidationApproved") == []
        refused = [s for s in report(outcome).scores if not s.approved]
        assert {(s.pool, s.policy) for s in refused} == {("default", BALANCED)}
        assert gone(single(self.crowd(pods=90, policy="WhenEmptyOrUnderutilized"))) == ["web"]

    def test_a_candidate_below_the_threshold_is_not_simulated(self):
        """The pre-filter of one node at a time: ended for nothing it would still score too low."""
        one = pass_over(self.crowd(pods=90))
        outcome = plan(one, methods=(SingleNodeConsolidation(),))
        assert gone(outcome) == []
        (score,) = report(outcome).scores
        assert (score.approved, score.savings_share > 0) == (False, True)
        assert "web" not in {name for _, name, _ in said(outcome)}, "it has no obstacle"

    def test_several_nodes_merge(self):
        """Cases 252 and 253: reported on the pool, once."""
        builder = cluster(
            balanced(),
            alike(4, TWO, pods=1),
            alike(2, SIXTEEN, pods=9, prefix="kept", annotations=KEPT),
        )
        outcome = multi(builder)
        assert len(gone(outcome)) >= 2
        ((kind_, name, message),) = said(outcome, "ConsolidationApproved")
        assert (kind_, name) == ("NodePool", "default")
        assert message.startswith("score ")

    def test_a_merger_that_is_refused_says_nothing(self):
        """Case 253: its scores are counted."""
        builder = cluster(
            balanced(), alike(4, TWO), alike(2, SIXTEEN, prefix="kept", annotations=KEPT)
        )
        outcome = multi(builder)
        assert gone(outcome) == []
        assert [(s.pool, s.approved) for s in report(outcome).scores] == [("default", False)]
        assert said(outcome, "ConsolidationApproved") == []

    def test_a_budget_of_nothing(self):
        """Case 252."""
        outcome = found(self.crowd(pods=1, nodes="0%"))
        assert (gone(outcome), said(outcome, "ConsolidationApproved")) == ([], [])

    def test_a_budget_of_one_goes_to_the_empty_node(self):
        """Case 252: emptiness is not scored and comes first."""
        builder = cluster(balanced(nodes="1"), box("empty"), alike(2, TWO), box("rest", SIXTEEN))
        outcome = found(builder)
        assert outcome.method.name == "emptiness"
        assert len(gone(outcome)) == 1
        assert said(outcome, "ConsolidationApproved") == []

    def test_mixed_policies(self):
        """Case 252: both pools consolidate, only the balanced one is scored."""
        builder = cluster(
            balanced("blue"),
            pool("green"),
            box("b", SIXTEEN, pool="blue"),
            box("g", SIXTEEN, pool="green"),
            runs("b-pod", "b", cpu="2", node_selector={"karpenter.sh/nodepool": "blue"}),
            runs("g-pod", "g", cpu="2", node_selector={"karpenter.sh/nodepool": "green"}),
            market=(TWO, SIXTEEN),
        )
        outcome = multi(builder)
        assert sorted(gone(outcome)) == ["b", "g"]
        assert {(s.pool, s.policy, s.approved) for s in report(outcome).scores} == {
            ("blue", BALANCED, True),
            ("green", "WhenEmptyOrUnderutilized", True),
        }
        assert [name for _, name, _ in said(outcome, "ConsolidationApproved")] == ["blue"]

    def test_zones_do_not_matter_to_the_score(self):
        of = kind("of", 8, 1.0, zones=ZONES)
        builder = cluster(
            balanced(), [alike(1, of, prefix=zone, zone=zone) for zone in ZONES], market=(of,)
        )
        assert judged(builder)[1]["default"].cost == pytest.approx(3.0)
