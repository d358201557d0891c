"""Drift: replaced nodes, their order, back-off (cases 176-182, 184-186)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, DRIFT
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.api.nodepool import Budget
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.drift_backoff import DriftBackoff, backoff_duration
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.state.events import DeletionMarked
from karpenter_core.state.launch_limits import LaunchLimits
from karpenter_core.state.provisioning_input import ProblemSettings
from karpenter_core.testing.builders import EPOCH, pod
from karpenter_core.testing.state_builders import disruption_budget, with_claim_conditions
from tests.disruption.small_clusters import (
    EIGHT,
    FOUR,
    NOW,
    SIXTEEN,
    bought,
    box,
    cluster,
    drift,
    found,
    gone,
    kind,
    messages,
    only,
    pool,
    report,
    runs,
    said,
)

KEPT = {DO_NOT_DISRUPT: "true"}


def drifted(name, of=FOUR, *, since=EPOCH, **options):
    """A node that has drifted."""
    its_node, claim = box(name, of, **options)
    return its_node, with_claim_conditions(claim, DRIFTED, now=since)


def after(minutes):
    return EPOCH + timedelta(minutes=minutes)


class TestWhatComes:
    def test_a_drifted_node_is_replaced_at_any_price(self):
        """Case 176: at any price."""
        outcome = drift(cluster(drifted("web", FOUR), runs("a", "web", cpu="3")))
        command = only(outcome)
        assert (gone(outcome), command.decision, command.reason) == (
            ["web"],
            CommandDecision.REPLACE,
            "Drifted",
        )
        assert bought(outcome) == [["four", "eight", "sixteen"]]
        assert command.evidence.savings_per_hour == pytest.approx(0.0)

    def test_nothing_where_the_pods_fit_elsewhere(self):
        """Case 176."""
        outcome = drift(cluster(drifted("web"), runs("a", "web"), box("rest")))
        assert (only(outcome).decision, list(only(outcome).moves)) == (
            CommandDecision.DELETE,
            ["rest"],
        )

    def test_an_empty_drifted_node_is_disrupted_regardless_of_consolidation(self):
        """Case 176."""
        outcome = found(cluster(pool(window="Never"), drifted("web", settled=False)))
        assert (gone(outcome), outcome.method.name) == (["web"], "drift")
        assert only(outcome).decision is CommandDecision.DELETE

    def test_several_replacements_for_one_node(self):
        """Case 182: no single node would hold its pods."""
        three = kind("three", 3)
        builder = cluster(
            drifted("web", EIGHT),
            *(runs(f"p-{n}", "web", cpu="2") for n in range(3)),
            market=(three,),
        )
        outcome = drift(builder)
        assert bought(outcome) == [["three"]] * 3

    @pytest.mark.parametrize(("most", "goes"), [(2, []), (3, ["web"])])
    def test_no_more_replacements_than_the_cluster_may_have(self, most, goes):
        """The old node counts until it is gone, which is after they have come."""
        builder = cluster(
            drifted("web", EIGHT),
            runs("a", "web", cpu="3"),
            runs("b", "web", cpu="3"),
            market=(FOUR,),
        )
        options = DisruptionOptions(
            problem_settings=ProblemSettings(launch_limits=LaunchLimits(max_nodes_total=most))
        )
        assert gone(drift(builder, options=options)) == goes

    @pytest.mark.parametrize("hold", [{"annotations": KEPT}, {"labels": {"app": "held"}}])
    def test_undisruptable_pods_get_no_place_elsewhere(self, hold):
        """Case 178: with a grace period the node may go, and no replacement is launched for pods
        that stay on it to the end.
        """
        builder = cluster(
            drifted("web", termination_grace_period="300s"),
            runs("a", "web", **hold),
            disruption_budget(labels={"app": "held"}, max_unavailable="0"),
        )
        outcome = drift(builder)
        assert (gone(outcome), only(outcome).decision) == (["web"], CommandDecision.DELETE)

    def test_disruptable_pods_of_the_same_node_get_a_place(self):
        builder = cluster(
            drifted("web", EIGHT, termination_grace_period="300s"),
            runs("kept", "web", annotations=KEPT),
            runs("free", "web", cpu="3"),
        )
        ((first, *_),) = bought(drift(builder))
        assert first == "four"


class TestWho:
    def test_nodes_without_the_condition_are_no_candidates(self):
        """Case 177."""
        assert gone(drift(cluster(box("web"), runs("a", "web")))) == []

    @pytest.mark.parametrize(("value", "goes"), [("true", []), ("false", ["web"])])
    def test_a_node_may_be_protected(self, value, goes):
        """Case 177."""
        builder = cluster(drifted("web", annotations={DO_NOT_DISRUPT: value}), runs("a", "web"))
        assert gone(drift(builder)) == goes

    @pytest.mark.parametrize(("grace", "goes"), [(None, []), ("300s", ["web"])])
    @pytest.mark.parametrize("hold", [{"annotations": KEPT}, {"labels": {"app": "held"}}])
    def test_pods_may_protect_it_unless_there_is_a_grace_period(self, grace, goes, hold):
        """Case 178."""
        builder = cluster(
            drifted("web", termination_grace_period=grace),
            runs("a", "web", **hold),
            disruption_budget(labels={"app": "held"}),
        )
        assert gone(drift(builder)) == goes

    @pytest.mark.parametrize(
        ("values", "blocked_at", "free_at"),
        [(["2m"], 1, 3), (["1m", "3m"], 2, 4)],
    )
    def test_for_a_while(self, values, blocked_at, free_at):
        """Case 179."""
        pods = [
            runs(f"p-{n}", "web", annotations={DO_NOT_DISRUPT: value}, start=NOW)
            for n, value in enumerate(values)
        ]
        builder = cluster(drifted("web"), pods)
        assert gone(drift(builder, now=NOW + timedelta(minutes=blocked_at))) == []
        assert gone(drift(builder, now=NOW + timedelta(minutes=free_at))) == ["web"]

    def test_an_invalid_protection_value_has_no_effect(self):
        """Case 179."""
        builder = cluster(drifted("web"), runs("a", "web", annotations={DO_NOT_DISRUPT: "soon"}))
        assert gone(drift(builder)) == ["web"]

    def test_static_pools_are_left_to_their_own_method(self):
        """Case 186."""
        outcome = drift(cluster(pool(replicas=1), drifted("web"), runs("a", "web")))
        assert (gone(outcome), report(outcome).eligible) == ([], 0)

    def test_a_pool_may_only_show_it(self):
        """Beyond the reference: the condition is set, and nothing follows from it."""
        shown = pool(notes={DRIFT: "detect-only"})
        outcome = drift(cluster(shown, drifted("web"), runs("a", "web")))
        assert (gone(outcome), report(outcome).eligible) == ([], 0)
        assert gone(found(cluster(shown, drifted("web", SIXTEEN), runs("a", "web", cpu="3"))))

    def test_leaving_nodes_are_not_candidates_for_drift(self):
        builder = cluster(drifted("web"), runs("a", "web"))
        builder.apply_event(DeletionMarked(names=("web",), cause="x"))
        assert gone(drift(builder)) == []


class TestOrder:
    def test_a_node_with_unplaceable_pods_is_skipped(self):
        """Case 180: it says so, and the next one goes."""
        builder = cluster(
            drifted("huge", kind("huge", 160), since=after(1)),
            runs("giant", "huge", cpu="150"),
            drifted("web", since=after(2)),
            runs("a", "web", cpu="3"),
        )
        outcome = drift(builder)
        assert gone(outcome) == ["web"]
        (message,) = messages(outcome, "DisruptionBlocked")
        assert message.startswith("not all pods would schedule, default/giant => ")
        assert {kind_ for kind_, *_ in said(outcome, "DisruptionBlocked")} == {"Node", "NodeClaim"}

    def test_a_node_that_is_not_initialised_takes_no_pod_of_a_candidate(self):
        builder = cluster(drifted("web"), runs("a", "web", cpu="3"), box("new", stage="Registered"))
        outcome = drift(builder)
        assert gone(outcome) == []
        assert messages(outcome, "DisruptionBlocked") == [
            "Node isn't initialized",
            "would schedule against uninitialized nodeclaim/new, node/new",
        ]

    def test_empty_ones_first_then_the_oldest_drift(self):
        """Case 181: one at a time."""
        nodes = {
            "newer": (drifted("newer", since=after(3)), runs("n", "newer")),
            "older": (drifted("older", since=after(2)), runs("o", "older")),
            "empty": drifted("empty", since=after(4)),
        }
        orders = []
        while nodes:
            (name,) = gone(drift(cluster(*nodes.values())))
            orders.append(name)
            del nodes[name]
        assert orders == ["empty", "older", "newer"]

    def test_pods_that_wait_are_not_moved_for(self):
        """Their nodes are launched by provisioning, not by drift."""
        builder = cluster(drifted("web"), runs("a", "web", cpu="3"), pod("waits", cpu="8"))
        assert len(bought(drift(builder))) == 1


class TestBudgets:
    def nodes(self, count, **options):
        return [
            (drifted(f"web-{n}", **options), runs(f"p-{n}", f"web-{n}", cpu="3"))
            for n in range(count)
        ]

    def test_commands_under_way_count(self):
        """Cases 184 and 185: three of ten."""
        builder = cluster(pool(nodes="30%"), self.nodes(10))
        allowed = []
        for _ in range(5):
            outcome = drift(builder)
            budget = report(outcome).budgets["default"]
            allowed.append((budget.allowed, budget.consuming))
            builder.apply_event(DeletionMarked(names=tuple(gone(outcome)), cause="x"))
        assert allowed == [(3, 0), (3, 1), (3, 2), (3, 3), (3, 3)]
        assert report(outcome).constrained

    def test_every_pool_has_its_own(self):
        """Case 184: ten pools with one each."""
        objects = []
        for p in range(10):
            objects.append(pool(f"p{p}", nodes="1"))
            for n in range(3):
                name = f"p{p}-{n}"
                objects.append((drifted(name, pool=f"p{p}"), runs(name, name, cpu="3")))
        builder = cluster(*objects)
        taken = []
        for _ in range(12):
            names = gone(drift(builder))
            taken += names
            builder.apply_event(DeletionMarked(names=tuple(names), cause="x"))
        assert sorted(name.split("-")[0] for name in taken) == sorted(f"p{p}" for p in range(10))

    def test_a_budget_of_another_reason_does_not_hold(self):
        budgets = [Budget(nodes="0", reasons=("Empty", "Underutilized"))]
        assert gone(drift(cluster(pool(budgets=budgets), self.nodes(1)))) == ["web-0"]


class TestRest:
    """Beyond the reference: a pool whose replacements fail does not hold up the others."""

    def test_a_pool_in_back_off_is_skipped(self):
        builder = cluster(
            pool("broken"),
            pool("sound"),
            drifted("a", pool="broken", since=after(1)),
            drifted("b", pool="sound", since=after(2)),
            runs("a-pod", "a", cpu="3"),
            runs("b-pod", "b", cpu="3"),
        )
        assert gone(drift(builder)) == ["a"]
        assert gone(drift(builder, drift_backoff_pools=frozenset({"broken"}))) == ["b"]

    @pytest.mark.parametrize(
        ("failures", "window"), [(1, 60), (2, 120), (3, 240), (4, 480), (5, 600), (50, 600)]
    )
    def test_back_off_is_jittered_and_repeatable_per_command(self, failures, window):
        rests = {backoff_duration(failures, f"command-{n}").total_seconds() for n in range(50)}
        assert all(window / 2 <= rest < window for rest in rests)
        assert len(rests) > 40, "back-offs of pools differ"
        assert min(rests) < 0.6 * window, "the whole window is used"
        assert max(rests) > 0.9 * window
        assert backoff_duration(failures, "command-1") == backoff_duration(failures, "command-1")

    def test_until_when(self):
        backoff = DriftBackoff().with_failure("broken", NOW, "command-1")
        assert backoff.active_pools(NOW) == {"broken"}
        assert backoff.active_pools(NOW + timedelta(seconds=29)) == {"broken"}
        assert backoff.active_pools(NOW + timedelta(seconds=60)) == frozenset()

    def test_a_failure_while_it_rests_makes_it_no_longer(self):
        backoff = DriftBackoff().with_failure("broken", NOW, "command-1")
        assert backoff.with_failure("broken", NOW, "command-2") is backoff

    def test_each_failure_after_a_rest_doubles_it(self):
        backoff, now = DriftBackoff(), NOW
        for _ in range(3):
            backoff = backoff.with_failure("broken", now, "command")
            now += timedelta(minutes=10)
        assert backoff.entries["broken"][0] == 3
        assert backoff.with_success("broken").active_pools(now) == frozenset()
        assert (
            backoff.with_success("broken").with_failure("broken", now, "c").entries["broken"][0]
            == 1
        )


def test_resources_of_a_leaving_stateful_set_pod_count_until_it_is_gone():
    """It comes back, so its node is not empty and comes after those that are."""
    ending = runs("db-0", "db", owner_kind="StatefulSet", deleted=EPOCH)
    done = msgspec.structs.replace(runs("job", "web"), phase="Succeeded")
    builder = cluster(drifted("db", since=after(1)), ending, drifted("web", since=after(2)), done)
    assert gone(drift(builder)) == ["web"]
