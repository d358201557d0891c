"""Emptiness, from the pass to the validated command (cases 164-175)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.durations import NillableDuration
from karpenter_core.api.labels import DO_NOT_DISRUPT, TERMINATION_TIMESTAMP
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, DRIFTED
from karpenter_core.api.nodepool import Budget, Disruption
from karpenter_core.disruption import command_queue
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.command_queue import (
    INTERRUPTION_GRACE,
    StaleMarkFinder,
    command_timeout,
    find_stale_marks,
)
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.method import DisruptionPass
from karpenter_core.disruption.plan import plan
from karpenter_core.disruption.validation import CommandRejection
from karpenter_core.lifecycle.claim_status import with_condition
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    DeletionMarked,
    NodesNominated,
    ObjectObserved,
    ObjectRemoved,
    PodsDecided,
)
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import EPOCH, node_pool, pod, pod_shape, standard_catalogue
from karpenter_core.testing.state_builders import (
    MANAGED_KINDS,
    node,
    node_and_claim,
    node_claim,
    ready_node_pool,
    synced_state,
    with_claim_conditions,
)
from tests.properties import with_examples

NOW = EPOCH + timedelta(minutes=10)


def pool(name="default", *, nodes="100%", window="0s", policy="WhenEmpty", **options):
    disruption = Disruption(
        budgets=(Budget(nodes=nodes),),
        consolidate_after=NillableDuration(window),
        consolidation_policy=policy,
    )
    return ready_node_pool(node_pool(name, disruption=disruption, **options))


def pass_over(builder, *, now=NOW, **options):
    return DisruptionPass(
        snapshot=builder.snapshot(), now=now, command_id="command-1", cause="test", **options
    )


def only(found):
    """Return the one command of a plan, if it has any."""
    return found.commands[0] if found.commands else None


def empty(builder, **options):
    """Return the names of the claims that would go."""
    command = only(plan(pass_over(builder, **options)))
    return [] if command is None else sorted(item.name for item in command.candidates)


def bound(name="a", *, on="web", owner_kind="ReplicaSet", deleted=None):
    built = pod(name, node_name=on, phase="Running", owner_kind=owner_kind)
    return msgspec.structs.replace(built, deletion_timestamp=deleted)


def claims_with_nodes(count, *, pool_name="default", prefix="web"):
    return [h for n in range(count) for h in node_and_claim(f"{prefix}-{n}", pool=pool_name)]


class TestWhatGoes:
    def test_an_empty_node_is_disrupted(self):
        assert empty(synced_state(pool(), *node_and_claim("web"))) == ["web"]

    @pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"])
    def test_under_every_policy(self, policy):
        assert empty(synced_state(pool(policy=policy), *node_and_claim("web"))) == ["web"]

    def test_an_empty_drifted_node_is_deleted_by_emptiness(self):
        """Case 164: emptiness comes before drift."""
        its_node, claim = node_and_claim("web")
        drifted = with_claim_conditions(claim, DRIFTED, now=EPOCH)
        document = plan(pass_over(synced_state(pool(), its_node, drifted)))
        assert document.commands
        assert (document.commands[0].method, document.commands[0].reason) == ("emptiness", "Empty")
        assert document.reports[0].eligible == 1

    def test_an_uninitialized_node_is_kept(self):
        """Case 165."""
        assert empty(synced_state(pool(), *node_and_claim("web", consolidatable=False))) == []

    @pytest.mark.parametrize(("value", "goes"), [("true", []), ("false", ["web"])])
    def test_do_not_disrupt_on_the_node(self, value, goes):
        """Case 165."""
        assert (
            empty(synced_state(pool(), *node_and_claim("web", annotations={DO_NOT_DISRUPT: value})))
            == goes
        )

    def test_a_node_with_pods_is_kept(self):
        """Case 166."""
        assert empty(synced_state(pool(), *node_and_claim("web"), bound())) == []

    def test_several_go_in_one_command(self):
        """Case 167."""
        assert empty(synced_state(pool(), *claims_with_nodes(2))) == ["web-0", "web-1"]

    @pytest.mark.parametrize(
        ("item", "goes"),
        [
            (bound(owner_kind="DaemonSet"), True),
            (bound(owner_kind="Node"), True),
            (bound(deleted=EPOCH), True),
            (bound(owner_kind="StatefulSet", deleted=EPOCH), False),
        ],
    )
    def test_nodes_without_reschedulable_pods_are_empty(self, item, goes):
        """Case 170."""
        assert bool(empty(synced_state(pool(), *node_and_claim("web"), item))) is goes

    def test_static_pools_are_ignored(self):
        """Case 172."""
        assert empty(synced_state(pool(replicas=1), *node_and_claim("web"))) == []

    def test_consolidate_after_never_keeps_the_node_with_a_notice(self):
        document = plan(pass_over(synced_state(pool(window="Never"), *node_and_claim("web"))))
        assert not document.commands
        assert [(n.reason, n.regarding.kind, n.message) for n in document.notices] == [
            ("Unconsolidatable", kind, 'NodePool "default" has consolidation disabled')
            for _ in ("emptiness", "multi", "single")
            for kind in ("Node", "NodeClaim")
        ]

    def test_a_pending_pod_that_fits_the_empty_node_keeps_it(self):
        """Case 169: the pass that places the pod nominates the node."""
        builder = synced_state(pool(), *node_and_claim("web"), pod("waits", cpu="3"))
        result = solve(build_provisioning_input(builder.snapshot(), now=NOW).problem)
        assert list(result.existing) == ["web"]
        placed = {p.uid: name for name, pods in result.existing.items() for p in pods}
        builder.apply_event(PodsDecided(placed=placed, at=NOW))
        assert empty(builder) == []

    def test_before_everything_is_seen_nothing_is_judged(self):
        builder = StateBuilder(MANAGED_KINDS)
        for obj in (pool(), *node_and_claim("web")):
            builder.apply_event(ObjectObserved(obj))
        assert plan(pass_over(builder)).reports == ()

    def test_nodes_of_a_command_are_not_chosen_twice(self):
        builder = synced_state(pool(), *node_and_claim("web"))
        assert empty(builder, queued=frozenset({"kwok://web"})) == []


class TestBudgets:
    @pytest.mark.parametrize(("nodes", "gone"), [("100%", 10), ("0%", 0), ("30%", 3)])
    def test_one_pool(self, nodes, gone):
        """Case 168."""
        assert len(empty(synced_state(pool(nodes=nodes), *claims_with_nodes(10)))) == gone

    def test_ten_pools(self):
        """Case 168: 3 nodes in each, 50 %: two of each go, ten are left."""
        names = [f"pool-{n}" for n in range(10)]
        builder = synced_state(
            *(pool(name, nodes="50%") for name in names),
            *(h for name in names for h in claims_with_nodes(3, pool_name=name, prefix=name)),
            catalogues={name: standard_catalogue() for name in names},
        )
        gone = empty(builder)
        assert len(gone) == 20
        assert {name: sum(g.startswith(f"{name}-") for g in gone) for name in names} == dict.fromkeys(names, 2)  # fmt: skip

    def test_a_tight_budget_is_spent_on_the_most_expensive_node(self):
        builder = synced_state(
            pool(nodes="1"),
            *node_and_claim("cheap", instance_type="c-1x"),
            *node_and_claim("dear", instance_type="r-32x"),
        )
        document = plan(pass_over(builder))
        assert document.commands
        assert [item.name for item in document.commands[0].candidates] == ["dear"]
        assert document.commands[0].evidence.spared_by_budget == ("cheap",)
        assert document.reports[0].constrained

    def test_nodes_that_are_leaving_use_it_up(self):
        builder = synced_state(pool(nodes="1"), *claims_with_nodes(3))
        builder.apply_event(DeletionMarked(names=("web-0",), cause="drifted/1"))
        assert empty(builder) == []

    def test_a_blocking_budget_is_reported(self):
        document = plan(pass_over(synced_state(pool(nodes="0"), *node_and_claim("web"))))
        assert "NodePool" in {notice.regarding.kind for notice in document.notices}
        assert document.reports[0].budgets["default"].allowed == 0

    @given(
        st.dictionaries(
            st.sampled_from(["a", "b", "c"]),
            st.tuples(
                st.integers(0, 6),
                st.one_of(st.integers(0, 7).map(str), st.integers(0, 100).map(lambda n: f"{n}%")),
            ),
            min_size=1,
        ),
        st.sets(st.integers(0, 5)),
    )
    @with_examples(60)
    def test_no_command_ever_exceeds_a_budget(self, pools, busy):
        """For every set of pools, budgets and busy nodes."""
        objects = []
        for name, (count, nodes) in pools.items():
            objects += [
                pool(name, nodes=nodes),
                *claims_with_nodes(count, pool_name=name, prefix=name),
            ]
            objects += [bound(f"{name}-{n}", on=f"{name}-{n}") for n in busy if n < count]
        builder = synced_state(*objects, catalogues={name: standard_catalogue() for name in pools})
        document = plan(pass_over(builder))
        gone = (
            [] if not document.commands else [item.name for item in document.commands[0].candidates]
        )
        for name, (count, nodes) in pools.items():
            allowed = -(-count * int(nodes[:-1]) // 100) if nodes.endswith("%") else int(nodes)
            idle = count - sum(n < count for n in busy)
            assert sum(g.startswith(f"{name}-") for g in gone) == min(allowed, idle)


class TestCommand:
    def test_the_command_names_its_action_and_reason(self):
        """Case 270: the text of a command."""
        builder = synced_state(pool(), *claims_with_nodes(2))
        command = only(plan(pass_over(builder)))
        assert command is not None
        assert (command.id, command.cause, command.decision) == (
            "command-1", "test", CommandDecision.DELETE,
        )  # fmt: skip
        assert (command.pools, command.created) == (("default",), NOW)
        assert not any(candidate.reschedulable_pods for candidate in command.candidates)
        price = 2 * command.candidates[0].price.amount
        assert str(command) == (
            f"Empty/command-1: delete: nodepools=[default]: [web-0, web-1] (savings: ${price:.2f})"
        )
        assert command.evidence.savings_per_hour == pytest.approx(price)
        assert [item.claim for item in command.evidence.candidates] == ["web-0", "web-1"]
        assert command.evidence.snapshot_version == builder.snapshot().version

    def test_the_same_snapshot_gives_the_same_command(self):
        builder = synced_state(pool(nodes="3"), *claims_with_nodes(9))
        assert str(only(plan(pass_over(builder)))) == str(only(plan(pass_over(builder))))

    def test_the_timeout_grows_with_the_queue(self):
        """Case 262."""
        minutes = [
            command_timeout(n).total_seconds() / 60
            for n in (100, 4000, 10_000, 40_000, 80_000, 100_000)
        ]
        assert minutes == pytest.approx([10, 10, 13 + 1 / 3, 53 + 1 / 3, 60, 60])


class TestValidation:
    def command(self, builder):
        command = only(plan(pass_over(builder)))
        assert command is not None
        return command

    def validate(self, builder, command, *, seconds=15.0, **options):
        again = pass_over(builder, now=NOW + timedelta(seconds=seconds), **options)
        return run_steps(EmptinessMethod().validate_steps(command, again))

    def test_a_still_valid_command_is_executed(self):
        builder = synced_state(pool(), *claims_with_nodes(2))
        command = self.command(builder)
        verdict = self.validate(builder, command)
        assert (verdict.rejection, verdict.failed_candidates) == (None, 0)
        assert [item.name for item in verdict.command.candidates] == ["web-0", "web-1"]
        assert verdict.command.id == command.id

    def test_a_node_that_got_a_pod_drops_out(self):
        """Case 174."""
        builder = synced_state(pool(), *claims_with_nodes(2))
        command = self.command(builder)
        builder.apply_event(ObjectObserved(bound(on="web-0")))
        verdict = self.validate(builder, command)
        assert [item.name for item in verdict.command.candidates] == ["web-1"]
        assert [item.claim for item in verdict.command.evidence.candidates] == ["web-1"]

    def test_churn_ends_the_command(self):
        """Case 175."""
        builder = synced_state(pool(), *node_and_claim("web"))
        command = self.command(builder)
        builder.apply_event(ObjectObserved(bound()))
        verdict = self.validate(builder, command)
        assert (verdict.command, verdict.rejection, verdict.failed_candidates) == (
            None,
            CommandRejection.CHURN,
            1,
        )

    def test_a_vanished_node_is_churn(self):
        its_node, claim = node_and_claim("web")
        builder = synced_state(pool(), its_node, claim)
        command = self.command(builder)
        builder.apply_event(ObjectRemoved(claim))
        builder.apply_event(ObjectRemoved(its_node))
        assert self.validate(builder, command).rejection is CommandRejection.CHURN

    def test_a_node_that_is_protected_meanwhile_is_churn(self):
        """No pods are expected on it, so no budget or nomination is to blame."""
        its_node, claim = node_and_claim("web")
        builder = synced_state(pool(), its_node, claim)
        command = self.command(builder)
        kept = {**its_node.annotations, DO_NOT_DISRUPT: "true"}
        builder.apply_event(ObjectObserved(msgspec.structs.replace(its_node, annotations=kept)))
        verdict = self.validate(builder, command)
        assert (verdict.rejection, verdict.failed_candidates) == (CommandRejection.CHURN, 1)

    def test_a_recreated_node_of_the_same_name_is_another_candidate(self):
        builder = synced_state(pool(), *node_and_claim("web"))
        command = self.command(builder)
        reborn = node_claim("web", stage="Initialized", consolidatable=True, uid="new")
        builder.apply_event(ObjectObserved(reborn))
        assert self.validate(builder, command).rejection is CommandRejection.CHURN

    def test_a_nomination_ends_it(self):
        """Case 175."""
        builder = synced_state(pool(), *node_and_claim("web"))
        command = self.command(builder)
        builder.apply_event(NodesNominated(names=("web",), until=NOW + timedelta(seconds=60)))
        verdict = self.validate(builder, command)
        assert (verdict.rejection, verdict.failed_candidates) == (CommandRejection.BUDGET, 1)

    def test_a_nomination_ends_the_command(self):
        waiting = pod("waits")
        builder = synced_state(pool(), *node_and_claim("web"), waiting)
        command = self.command(builder)
        builder.apply_event(PodsDecided(placed={waiting.uid: "web"}, at=NOW))
        assert self.validate(builder, command).rejection is CommandRejection.BUDGET

    def test_a_budget_turned_to_zero_ends_it(self):
        """Case 175."""
        builder = synced_state(pool(), *node_and_claim("web"))
        command = self.command(builder)
        builder.apply_event(ObjectObserved(pool(nodes="0%")))
        verdict = self.validate(builder, command)
        assert (verdict.rejection, verdict.failed_candidates) == (CommandRejection.BUDGET, 1)

    def test_a_smaller_budget_makes_it_smaller(self):
        builder = synced_state(pool(), *claims_with_nodes(3))
        command = self.command(builder)
        builder.apply_event(ObjectObserved(pool(nodes="1")))
        verdict = self.validate(builder, command)
        assert (len(verdict.command.candidates), verdict.failed_candidates) == (1, 2)


class TestStaleMarks:
    TAINT = "karpenter.sh/disrupted:NoSchedule"

    def tainted(self, name="web", **options):
        its_node, claim = node_and_claim(name, taints=(self.TAINT,), **options)
        return its_node, with_claim_conditions(claim, DISRUPTION_REASON, now=EPOCH)

    def found(self, *objects, **options):
        builder = synced_state(*objects)
        options.setdefault("now", EPOCH)
        return [(mark.node, mark.claim) for mark in find_stale_marks(builder.snapshot(), **options)]

    def test_marks_of_a_dead_command_are_recovered(self):
        """Case 263."""
        assert self.found(*self.tainted(), *node_and_claim("clean")) == [("web", "web")]

    def test_a_partial_mark_is_removed_too(self):
        its_node, claim = self.tainted()
        assert self.found(its_node, node_claim("web", stage="Initialized")) == [("web", "")]
        assert self.found(node("web", claim=claim), claim) == [("", "web")]

    def test_marks_of_active_commands_and_leaving_nodes_are_kept(self):
        assert self.found(*self.tainted(), queued=frozenset({"kwok://web"})) == []
        builder = synced_state(*self.tainted())
        builder.apply_event(DeletionMarked(names=("web",), cause="empty/1"))
        assert find_stale_marks(builder.snapshot(), now=EPOCH) == ()

    @pytest.mark.parametrize("reason", ["SpotInterruption", "RebalanceRecommendation"])
    def test_an_interruption_keeps_its_reason_until_the_claim_is_deleted(self, reason):
        """No command put it there; it says that protected pods need a stand-in in time."""
        its_node, claim = node_and_claim("web", taints=(self.TAINT,))
        claim = with_condition(claim, DISRUPTION_REASON, now=EPOCH, reason=reason)

        soon = EPOCH + INTERRUPTION_GRACE - timedelta(seconds=1)
        assert self.found(its_node, claim, now=soon) == [("web", "")]
        assert self.found(its_node, claim, now=EPOCH + INTERRUPTION_GRACE) == [("web", "web")]

    @pytest.mark.parametrize("is_tainted", [True, False])
    def test_the_deadline_of_a_forced_deletion_that_did_not_happen_is_a_mark(self, is_tainted):
        """Repair and interruptions write it first; the deletion follows at once, or never."""
        its_node, claim = self.with_deadline("2024-01-01T00:00:00Z", is_tainted=is_tainted)
        at = datetime(2024, 1, 1, tzinfo=UTC)

        soon = at + timedelta(minutes=10) - timedelta(seconds=1)
        place = "web" if is_tainted else ""
        assert self.found(its_node, claim, now=soon) == ([(place, "")] if is_tainted else [])
        assert self.found(its_node, claim, now=at + timedelta(minutes=10)) == [(place, "web")]

    @pytest.mark.parametrize("deadline", ["2024-01-02T00:00:00Z", "soon"])
    def test_a_deadline_to_come_or_an_unreadable_one_is_kept(self, deadline):
        its_node, claim = self.with_deadline(deadline)
        assert self.found(its_node, claim, now=datetime(2024, 1, 1, tzinfo=UTC)) == []

    def test_a_claim_that_is_being_deleted_keeps_its_deadline(self):
        its_node, claim = self.with_deadline("2024-01-01T00:00:00Z")
        at = datetime(2024, 1, 2, tzinfo=UTC)
        metadata = claim.metadata.model_copy(update={"deletion_timestamp": at})
        leaving = claim.model_copy(update={"metadata": metadata})
        assert self.found(its_node, leaving, now=at) == []

    def with_deadline(self, text, *, is_tainted=False):
        its_node, claim = node_and_claim("web", taints=(self.TAINT,) if is_tainted else ())
        annotations = {**claim.metadata.annotations, TERMINATION_TIMESTAMP: text}
        metadata = claim.metadata.model_copy(update={"annotations": annotations})
        return its_node, claim.model_copy(update={"metadata": metadata})

    def test_successive_snapshots_are_read_by_change(self, monkeypatch):
        """A mark is found when it comes, not when it is gone, and only changed nodes are read."""
        (clean, claim), marked = node_and_claim("clean"), self.tainted()
        builder = synced_state(*marked, clean, claim)
        finder, read = StaleMarkFinder(), []

        def found():
            snapshot = builder.snapshot()
            marks = finder.find(snapshot, now=EPOCH)
            assert marks == find_stale_marks(snapshot, now=EPOCH)
            return [mark.node for mark in marks]

        assert found() == ["web"]
        monkeypatch.setattr(
            command_queue,
            "find_stale_mark",
            lambda each, find=command_queue.find_stale_mark: read.append(each.name) or find(each),
        )
        taints = marked[0].taints
        changed = msgspec.structs.replace(clean, taints=taints, resource_version=9)
        builder.apply_event(ObjectObserved(changed))
        assert finder.find(builder.snapshot(), now=EPOCH)
        assert read.count("clean") == 1
        assert found() == ["clean", "web"]
        read.clear()
        finder.find(builder.snapshot(), now=EPOCH)
        assert read == []
        builder.apply_event(ObjectRemoved(changed))
        assert found() == ["web"]

    def test_unmanaged_nodes_keep_their_taints(self):
        assert self.found(node("static", taints=(self.TAINT,))) == []


def test_a_negative_deletion_cost_does_not_keep_a_node_busy():
    """Upstream's rule, kept: pods with a negative eviction cost do not make a node busy."""
    shape = msgspec.structs.replace(
        pod_shape(), annotations={"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}
    )
    eager = pod("eager", shape=shape, node_name="web", phase="Running")
    assert empty(synced_state(pool(), *node_and_claim("web"), eager)) == ["web"]
