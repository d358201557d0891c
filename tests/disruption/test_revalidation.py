"""Validation of a consolidation, and idle passes that are not repeated.

Cases 153, 220, 224, 233 and 269.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.durations import Duration
from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodepool import Budget
from karpenter_core.api.records import Taint
from karpenter_core.disruption.consolidation import rejection_notices
from karpenter_core.disruption.fingerprint import (
    FingerprintBuilder,
    consolidation_fingerprint,
    is_stale,
)
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.disruption.validation import CommandRejection
from karpenter_core.state.events import (
    CataloguePublished,
    DeletionMarked,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    PodsDecided,
)
from karpenter_core.testing.builders import catalogue, pod
from karpenter_core.testing.state_builders import disruption_budget
from tests.disruption.small_clusters import (
    EIGHT,
    FOUR,
    NOW,
    SIXTEEN,
    box,
    cluster,
    found,
    gone,
    kind,
    multi,
    only,
    pool,
    report,
    runs,
    single,
    validated,
)

KEPT = {DO_NOT_DISRUPT: "true"}


def replaced(*more):
    """A node of sixteen cores that a smaller one is to replace."""
    return cluster(pool(), box("web", SIXTEEN), runs("a", "web", cpu="3"), more)


def deleted(*more):
    """Two nodes whose pods are to go to a third."""
    return cluster(
        pool(),
        box("a"),
        box("b"),
        runs("a-pod", "a"),
        runs("b-pod", "b"),
        box("roomy", SIXTEEN),
        runs("kept", "roomy", annotations=KEPT),
        more,
    )


def refused(builder, outcome, rejection, *, failed):
    verdict = validated(builder, outcome)
    assert (verdict.command, verdict.rejection, verdict.failed_candidates) == (
        None,
        rejection,
        failed,
    )


def tainted(node):
    return msgspec.structs.replace(node, taints=(Taint(key="team", effect="NoSchedule"),))


class TestWhatStillHolds:
    @pytest.mark.parametrize(("make", "ask"), [(replaced, single), (deleted, multi)])
    def test_an_unchanged_cluster_gives_the_same_command(self, make, ask):
        builder = make()
        outcome = ask(builder)
        command, again = only(outcome), validated(builder, outcome).command
        assert again.id == command.id
        assert [c.name for c in again.candidates] == gone(outcome)
        assert [p.instance_types for p in again.replacements] == [
            p.instance_types for p in command.replacements
        ]
        assert again.moves.keys() == command.moves.keys()

    def test_pods_that_came_elsewhere_do_not_matter(self):
        builder = deleted()
        outcome = multi(builder)
        builder.apply_event(ObjectObserved(runs("late", "roomy", cpu="2")))
        assert validated(builder, outcome).command is not None

    def test_a_cheaper_offer_does_not_either(self):
        """The planned types are among those allowed now."""
        builder = replaced()
        outcome = single(builder)
        bargain = kind("bargain", 4, 0.05)
        builder.apply_event(CataloguePublished("default", catalogue(FOUR, EIGHT, SIXTEEN, bargain)))
        verdict = validated(builder, outcome)
        assert verdict.command.replacements[0].instance_types[0] == "bargain"


class TestChurn:
    """Case 220: a node protected or gone meanwhile is no candidate any more; nothing goes."""

    @pytest.mark.parametrize(
        "event",
        [
            ObjectObserved(runs("a-pod", "a", annotations=KEPT)),
            ObjectObserved(disruption_budget()),
            DeletionMarked(names=("a",), cause="x"),
            NodesNominated(names=("a",), until=NOW + timedelta(minutes=5)),
            ObjectObserved(box("a", annotations=KEPT)[0]),
            ObjectObserved(box("a", settled=False)[1]),
        ],
        ids=["pod", "budget", "marked", "nominated", "node", "unsettled"],
    )
    def test_one_failed_candidate_ends_the_command(self, event):
        builder = deleted()
        outcome = multi(builder)
        assert sorted(gone(outcome)) == ["a", "b"]
        builder.apply_event(event)
        refused(builder, outcome, CommandRejection.CHURN, failed=2)

    def test_a_node_that_is_gone(self):
        builder = replaced()
        outcome = single(builder)
        for item in box("web", SIXTEEN):
            builder.apply_event(ObjectRemoved(item))
        refused(builder, outcome, CommandRejection.CHURN, failed=1)

    def test_a_node_that_became_empty(self):
        """It is emptiness' then, which needs no replacement."""
        builder = replaced()
        outcome = single(builder)
        builder.apply_event(ObjectRemoved(runs("a", "web")))
        refused(builder, outcome, CommandRejection.CHURN, failed=1)

    def test_a_nomination_invalidates_the_command(self):
        waiting = pod("waits")
        builder = replaced(waiting)
        outcome = single(builder)
        builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=NOW))
        refused(builder, outcome, CommandRejection.CHURN, failed=1)


class TestLargeCommands:
    """Of four nodes or more something has nearly always changed: what is left is judged anew."""

    def merger(self, count=6, *, nodes="100%", policy="WhenEmptyOrUnderutilized"):
        return cluster(
            pool(nodes=nodes, policy=policy),
            [(box(f"w-{n}"), runs(f"w-{n}-pod", f"w-{n}")) for n in range(count)],
            box("roomy", SIXTEEN),
            runs("kept", "roomy", annotations=KEPT, cpu="2"),
        )

    def shortened(self, builder, *events):
        outcome = multi(builder)
        assert len(gone(outcome)) == 6
        for event in events:
            builder.apply_event(event)
        return validated(builder, outcome)

    def test_a_dropped_candidate_is_left_out(self):
        verdict = self.shortened(
            self.merger(), ObjectObserved(runs("w-2-pod", "w-2", annotations=KEPT))
        )
        assert [c.name for c in verdict.command.candidates] == ["w-0", "w-1", "w-3", "w-4", "w-5"]
        assert (verdict.failed_candidates, verdict.rejection) == (1, None)
        assert verdict.command.evidence.savings_per_hour == pytest.approx(5 * 0.4)

    def test_it_is_shortened_until_the_pods_fit(self):
        verdict = self.shortened(self.merger(), ObjectObserved(runs("late", "roomy", cpu="11")))
        assert 2 <= len(verdict.command.candidates) < 6
        assert len(verdict.command.moves["roomy"]) <= 3, "of sixteen cores thirteen are taken"

    def test_a_smaller_budget_makes_it_smaller(self):
        verdict = self.shortened(self.merger(), ObjectObserved(pool(nodes="2")))
        assert (len(verdict.command.candidates), verdict.failed_candidates) == (2, 4)

    def test_a_budget_of_one_rejects_the_command(self):
        verdict = self.shortened(self.merger(), ObjectObserved(pool(nodes="1")))
        assert (verdict.command, verdict.rejection, verdict.failed_candidates) == (
            None,
            CommandRejection.BUDGET,
            6,
        )

    def test_the_policy_of_the_pool_applies_to_the_remaining_nodes(self):
        """Six nodes reach the threshold; without the least disruptive one they do not."""
        market = (FOUR, SIXTEEN, kind("gem", 4, 8.0))
        builder = cluster(
            pool(policy="Balanced"),
            [(box(f"w-{n}"), runs(f"w-{n}-pod", f"w-{n}")) for n in range(5)],
            box("gem", market[2]),
            runs("gem-pod", "gem"),
            box("roomy", SIXTEEN),
            runs("kept", "roomy", annotations=KEPT, cpu="2"),
            market=market,
        )
        outcome = multi(builder)
        assert len(gone(outcome)) == 6
        builder.apply_event(ObjectObserved(runs("gem-pod", "gem", annotations=KEPT)))
        refused(builder, outcome, CommandRejection.SCHEDULING, failed=6)


class TestBudgets:
    @pytest.mark.parametrize(
        ("make", "ask", "failed"), [(replaced, single, 1), (deleted, multi, 2)]
    )
    def test_turned_to_nothing(self, make, ask, failed):
        builder = make()
        outcome = ask(builder)
        builder.apply_event(ObjectObserved(pool(nodes="0%")))
        refused(builder, outcome, CommandRejection.BUDGET, failed=failed)

    def test_too_small_for_all_is_too_small(self):
        """A part of a merger is another move, with unknown savings."""
        builder = deleted()
        outcome = multi(builder)
        builder.apply_event(ObjectObserved(pool(nodes="1")))
        refused(builder, outcome, CommandRejection.BUDGET, failed=2)


class TestPlaces:
    def test_missing_capacity_invalidates_the_command(self):
        """A deletion that would need a new node now is another move."""
        builder = deleted()
        outcome = multi(builder)
        builder.apply_event(ObjectObserved(runs("late", "roomy", cpu="14.5")))
        refused(builder, outcome, CommandRejection.SCHEDULING, failed=2)

    def test_new_capacity_invalidates_the_replacement(self):
        """A replacement that is not needed any more is not ordered."""
        builder = replaced()
        outcome = single(builder)
        for item in (*box("new", FOUR), runs("there", "new")):
            builder.apply_event(ObjectObserved(item))
        refused(builder, outcome, CommandRejection.SCHEDULING, failed=1)

    def test_sold_out_types_invalidate_the_replacement(self):
        """Case 220: what was to be launched must be allowed still."""
        builder = replaced()
        outcome = single(builder)
        builder.apply_event(CataloguePublished("default", catalogue(EIGHT, SIXTEEN)))
        refused(builder, outcome, CommandRejection.SCHEDULING, failed=1)

    def test_prices_that_have_risen(self):
        builder = replaced()
        outcome = single(builder)
        dear = [kind("four", 4, 2.0), kind("eight", 8, 2.0), SIXTEEN]
        builder.apply_event(CataloguePublished("default", catalogue(*dear)))
        refused(builder, outcome, CommandRejection.SCHEDULING, failed=1)

    def test_a_node_that_stopped_being_a_place(self):
        builder = deleted()
        outcome = multi(builder)
        builder.apply_event(DeletionMarked(names=("roomy",), cause="x"))
        refused(builder, outcome, CommandRejection.SCHEDULING, failed=2)


class TestWhatIsSaid:
    @pytest.mark.parametrize("rejection", list(CommandRejection))
    def test_every_object_gets_the_reason(self, rejection):
        """Case 269: the category is part of the Event."""
        command = only(multi(deleted()))
        notices = rejection_notices(command, str(rejection))
        assert {(n.regarding.kind, n.regarding.name) for n in notices} == {
            (kind_, name) for kind_ in ("Node", "NodeClaim") for name in "ab"
        }
        for notice in notices:
            assert notice.reason == "ConsolidationRejected"
            assert notice.message == (
                f"Consolidation rejected: delete: [{notice.regarding.name}] (part of 2-node"
                f" consolidation), reason: {rejection} (savings: $0.80)"
            )

    def test_a_refused_pass_is_not_idle(self):
        """Case 233: it found something, so it is asked again."""
        for ask, make in ((single, replaced), (multi, deleted)):
            assert not report(ask(make())).is_idle

    def test_the_next_method_runs_after_a_refusal(self):
        """Case 224: what several nodes cannot do, one can."""
        builder = deleted()
        outcome = multi(builder)
        builder.apply_event(ObjectObserved(runs("b-pod", "b", annotations=KEPT)))
        assert validated(builder, outcome).command is None
        assert gone(found(builder, SingleNodeConsolidation())) == ["a"]


class TestRest:
    """Case 153: a pass without a command is repeated when something has changed."""

    def quiet(self):
        return cluster(pool(), box("web", FOUR), runs("a", "web", cpu="4"))

    def test_a_pass_without_a_command_is_idle(self):
        outcome = found(self.quiet(), MultiNodeConsolidation(), SingleNodeConsolidation())
        assert report(outcome).is_idle

    def test_an_idle_method_is_skipped(self):
        before = single(replaced())
        assert (gone(before), report(before).remaining_budgets) == (["web"], (("default", 1),))
        outcome = single(
            replaced(), idle_methods={SingleNodeConsolidation().name: (("default", 1),)}
        )
        assert gone(outcome) == []
        assert report(outcome).is_idle

    def test_a_changed_budget_ends_idleness(self):
        """By the clock alone: no object has changed."""
        closed = Budget(nodes="0", schedule="0 0 * * *", duration=Duration("8h"))
        builder = cluster(pool(budgets=[closed]), box("web", SIXTEEN), runs("a", "web", cpu="3"))
        inside = single(builder)
        assert (gone(inside), report(inside).is_idle) == ([], True)
        idle = {SingleNodeConsolidation().name: report(inside).remaining_budgets}
        assert gone(single(builder, idle_methods=idle)) == []
        assert gone(single(builder, idle_methods=idle, now=NOW + timedelta(hours=9))) == ["web"]

    @pytest.mark.parametrize(
        "event",
        [
            ObjectObserved(runs("new", "web", cpu="100m")),
            ObjectRemoved(runs("a", "web")),
            DeletionMarked(names=("web",), cause="x"),
            ObjectObserved(pool(notes={"karpenter.sh/savings-floor": "5%"})),
            ObjectObserved(box("web", settled=False)[1]),
            ObjectObserved(box("other")[1]),
            ObjectObserved(pod("waits")),
            ObjectObserved(disruption_budget(allowed=1)),
            CataloguePublished("default", catalogue(FOUR, version="2")),
            ObjectObserved(runs("a", "web", cpu="4", annotations=KEPT)),
            ObjectObserved(box("web", annotations=KEPT)[0]),
            ObjectObserved(runs("a", "web", cpu="3")),
            ObjectObserved(tainted(box("web")[0])),
        ],
        ids=[
            "bound",
            "ended",
            "marked",
            "pool",
            "settled",
            "claim",
            "pending",
            "budget",
            "prices",
            "pod-protected",
            "node-protected",
            "pod-resized",
            "node-tainted",
        ],
    )
    def test_until_something_changes(self, event):
        builder = self.quiet()
        before = consolidation_fingerprint(builder.snapshot())
        builder.apply_event(event)
        assert consolidation_fingerprint(builder.snapshot()) != before

    def test_a_repeated_object_keeps_the_fingerprint(self):
        builder = self.quiet()
        before = consolidation_fingerprint(builder.snapshot())
        builder.apply_event(ObjectObserved(runs("a", "web", cpu="4")))
        assert consolidation_fingerprint(builder.snapshot()) == before

    def test_incremental_fingerprints_equal_recomputed_ones(self):
        """Unchanged objects are not read again; deleted ones are forgotten."""
        builder, stamps = self.quiet(), FingerprintBuilder()
        for event in (
            ObjectObserved(runs("new", "web", cpu="100m")),
            ObjectObserved(box("other")[1]),
            ObjectRemoved(box("other")[1]),
            ObjectObserved(pod("waits")),
        ):
            builder.apply_event(event)
            snapshot = builder.snapshot()
            assert stamps.fingerprint(snapshot) == consolidation_fingerprint(snapshot)

    def test_or_five_minutes_pass(self):
        assert not is_stale(NOW, NOW + timedelta(minutes=4, seconds=59))
        assert is_stale(NOW, NOW + timedelta(minutes=5))
