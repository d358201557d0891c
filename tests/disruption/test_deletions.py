"""Deletions and where pods go (cases 209-219, 225-228, 230, 235, 236)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT, HOSTNAME, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    TopologySpread,
    VolumeView,
    WeightedAffinityTerm,
)
from karpenter_core.api.storage_records import PersistentVolumeClaimView, PersistentVolumeView
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.method import DisruptionOptions, PassTimeLimit
from karpenter_core.scheduling.problem import PreferencePolicy, SolveOptions
from karpenter_core.state.events import DeletionMarked, NodesNominated, ObjectObserved
from karpenter_core.testing.builders import node_term, pod
from karpenter_core.testing.state_builders import disruption_budget, node, node_claim
from tests.disruption.small_clusters import (
    EIGHT,
    FOUR,
    MARKET,
    NOW,
    SIXTEEN,
    ZONES,
    bought,
    box,
    cluster,
    found,
    gone,
    kind,
    messages,
    multi,
    only,
    pass_over,
    pool,
    report,
    runs,
    single,
)

WEB = LabelSelector(match_labels={"app": "web"})


def two(**options):
    """Two nodes with a pod each, both of which would fit on either; `a` is the first choice."""
    return [
        box("a"),
        box("b"),
        runs("a-pod", "a", labels={"app": "a"}, **options),
        runs("b-pod", "b", cpu="2", priority=2**24, labels={"app": "b"}),
    ]


def shaped(item, **changes):
    """A pod with a shape that differs in these fields."""
    return msgspec.structs.replace(item, shape=msgspec.structs.replace(item.shape, **changes))


class TestWhoIsChosen:
    def test_the_node_with_the_least_disruption_per_saving_is_chosen(self):
        """Case 225: of two nodes of a price the one with fewer pods."""
        builder = cluster(
            box("a"), box("b"), *(runs(f"a-{n}", "a") for n in range(3)), runs("b-0", "b")
        )
        assert gone(single(builder)) == ["b"]

    def test_costs_are_compared_as_numbers(self):
        """Case 235: 1, 5 and 20 in this order."""
        counts = {"one": 1, "five": 5, "twenty": 20}
        builder = cluster(
            *(box(name, kind("roomy", 40, 4.0)) for name in counts),
            *(runs(f"{name}-{n}", name) for name, count in counts.items() for n in range(count)),
            market=(kind("roomy", 40, 4.0),),
        )
        assert gone(single(builder)) == ["one"]

    def test_every_node_of_every_pool_is_evaluated(self):
        """Case 235's point: no pool starves, since none waits for its turn.

        Only the last node by order can go; all before it are evaluated in the same pass.
        """
        six = kind("six", 6)
        names = [f"{letter}-{n}" for letter in "xyz" for n in range(3)]
        objects = [pool(letter) for letter in "xyz"]
        for name in names:
            last = name == "z-2"
            objects.append(box(name, six if last else FOUR, pool=name[0]))
            objects.append(runs(f"{name}-pod", name, cpu="3.5", priority=2**27 if last else 0))
        assert gone(single(cluster(*objects, market=(*MARKET, six)))) == ["z-2"]

    def test_an_interrupted_pass_resumes_where_it_ended(self):
        """Case 235: pools that were not reached come first in the next pass."""
        builder = cluster(
            pool("first"),
            pool("second"),
            box("a", SIXTEEN, pool="first"),
            box("b", EIGHT, pool="second"),
            runs("a-pod", "a", cpu="3"),
            runs("b-pod", "b", cpu="3"),
        )
        spent = PassTimeLimit(is_reached=True)
        cut = single(builder, time_limit=spent)
        assert (gone(cut), report(cut).is_cut_short, report(cut).is_idle) == ([], True, False)
        assert report(cut).unexamined_pools == {"first", "second"}
        whole = single(builder)
        assert (gone(whole), report(whole).unexamined_pools) == (["a"], frozenset())


class TestPlaces:
    def test_pods_go_to_a_node_that_is_there(self):
        """Case 213."""
        outcome = single(cluster(two()))
        command = only(outcome)
        assert (command.decision, gone(outcome)) == (CommandDecision.DELETE, ["a"])
        assert {name: [p.name for p in pods] for name, pods in command.moves.items()} == {
            "b": ["a-pod"]
        }
        assert command.evidence.savings_per_hour == pytest.approx(0.4)

    def test_pods_may_move_to_an_unmanaged_node(self):
        """Case 213."""
        builder = cluster(pool(), box("web"), runs("a", "web"), node("foreign"))
        outcome = single(builder)
        assert (gone(outcome), list(only(outcome).moves)) == (["web"], ["foreign"])

    def test_pods_without_an_owner_are_moved_too(self):
        """Case 217."""
        assert gone(single(cluster(two(owner_kind="")))) == ["a"]

    def test_a_pod_that_fits_nowhere_does_not_block(self):
        """Case 214."""
        assert gone(single(cluster(*two(), pod("giant", cpu="500")))) == ["a"]

    def test_a_pod_that_would_wait_does(self):
        """Case 214: it fits where it is, and on nothing that could be bought."""
        stuck = shaped(runs("a", "web"), node_selector={"disk": "there-is-none"})
        builder = cluster(box("web", SIXTEEN), stuck, box("rest"))
        (message,) = messages(single(builder))
        assert message.startswith("Not all pods would schedule, default/a => ")

    def test_the_pods_that_would_wait_are_named_up_to_five(self):
        builder = cluster(
            box("web", SIXTEEN),
            *(
                shaped(runs(f"p-{n}", "web"), node_selector={"disk": "there-is-none"})
                for n in range(7)
            ),
        )
        (message,) = messages(single(builder))
        assert message.count("=>") == 5
        assert message.endswith(" and 2 other(s)")

    def test_a_node_that_is_still_booting_is_no_place(self):
        """Case 215: it may never come up."""
        builder = cluster(
            box("web", FOUR), runs("a", "web", cpu="3"), box("new", FOUR, stage="Registered")
        )
        outcome = single(builder)
        assert gone(outcome) == []
        assert messages(outcome) == ["Would schedule against uninitialized nodeclaim/new, node/new"]

    def test_nodes_that_are_up_are_preferred(self):
        """Case 216."""
        builder = cluster(
            box("web", FOUR),
            runs("a", "web", cpu="2"),
            box("up", FOUR, settled=False),
            runs("b", "up", cpu="2"),
            *(box(f"booting-{n:03}", FOUR, stage="Registered") for n in range(100)),
        )
        outcome = single(builder)
        assert (gone(outcome), list(only(outcome).moves)) == (["web"], ["up"])

    def test_a_leaving_node_takes_no_pod_of_a_candidate(self):
        builder = cluster(two())
        builder.apply_event(DeletionMarked(names=("b",), cause="x"))
        assert gone(single(builder)) == []

    @pytest.mark.parametrize(("is_local", "goes"), [(True, ["web"]), (False, [])])
    def test_a_disk_of_the_node_does_not_hold_its_pods(self, is_local, goes):
        """Case 236: a local volume is lost with its node in any case."""
        disk = PersistentVolumeView(
            uid="uid-pv",
            name="pv",
            node_terms=(node_term((HOSTNAME, "In", "web")),),
            is_local=is_local,
        )
        asked = PersistentVolumeClaimView(
            uid="uid-pvc",
            namespace="default",
            name="data",
            volume_name="pv",
            phase="Bound",
            bind_completed=True,
        )
        writes = shaped(
            runs("a", "web", cpu="3"), volumes=(VolumeView(name="data", claim_name="data"),)
        )
        assert gone(single(cluster(box("web", EIGHT), writes, disk, asked))) == goes

    def test_a_pod_that_wants_this_very_node_holds_it(self):
        here = node_term((HOSTNAME, "In", "web"))
        stuck = shaped(runs("a", "web", cpu="3"), required_node_terms=(here,))
        assert gone(single(cluster(box("web", EIGHT), stuck))) == []


class TestProtection:
    @pytest.mark.parametrize(
        "hold",
        [
            disruption_budget(labels={"app": "a"}),
            disruption_budget(labels={"app": "a"}, min_available="1"),
        ],
    )
    def test_a_blocking_budget_leaves_the_other_node(self, hold):
        """Case 209."""
        outcome = single(cluster(*two(), hold))
        assert gone(outcome) == ["b"]
        assert messages(outcome, "DisruptionBlocked") == [
            "Pdb prevents pod evictions (PodDisruptionBudget=[default/budget])"
        ]

    def test_a_budget_of_another_namespace_means_nothing(self):
        """Case 209."""
        hold = disruption_budget(labels={"app": "a"}, namespace="other")
        assert gone(single(cluster(*two(), hold))) == ["a"]

    def test_an_unready_pod_may_go_where_its_budget_says_so(self):
        """Case 209."""
        hold = disruption_budget(labels={"app": "a"}, unhealthy_policy="AlwaysAllow")
        assert gone(single(cluster(*two(ready=False), hold))) == ["a"]

    @pytest.mark.parametrize(
        ("value", "goes"), [("true", "b"), ("2m", "a"), ("invalid-format", "a")]
    )
    def test_a_protected_pod_leaves_the_other_node(self, value, goes):
        """Cases 210 and 218: `2m` of the pod's first ten minutes are long past."""
        assert gone(single(cluster(two(annotations={DO_NOT_DISRUPT: value})))) == [goes]

    def test_protection_for_a_while_ends(self):
        """Case 218."""
        builder = cluster(two(annotations={DO_NOT_DISRUPT: "2m"}, start=NOW))
        assert gone(single(builder, now=NOW + timedelta(minutes=1))) == ["b"]
        assert gone(single(builder, now=NOW + timedelta(minutes=3))) == ["a"]

    def test_a_protected_node_leaves_the_other_one(self):
        """Case 210."""
        (its_node, claim), *rest = two()
        held = msgspec.structs.replace(its_node, annotations={DO_NOT_DISRUPT: "true"})
        assert gone(single(cluster((held, claim), *rest))) == ["b"]

    @pytest.mark.parametrize(
        "hold", [{"annotations": {DO_NOT_DISRUPT: "true"}}, {"labels": {"app": "held"}}]
    )
    def test_a_grace_period_does_not_outweigh_preferences_of_pods(self, hold):
        """Case 218: saving money is no reason to override them."""
        builder = cluster(
            box("web", EIGHT, termination_grace_period="300s"),
            runs("a", "web", **hold),
            disruption_budget(labels={"app": "held"}),
        )
        assert gone(found(builder)) == []


class TestPeace:
    def window(self, settled, window="1m", *rest):
        """Pods of `web` fit only on `calm`, whose pool leaves nodes in peace for a while."""
        return cluster(
            pool("lively"),
            pool("calm", window=window),
            box("web", FOUR, pool="lively"),
            runs("a", "web", cpu="3"),
            box("calm", FOUR, pool="calm", settled=settled),
            runs("b", "calm", annotations={DO_NOT_DISRUPT: "true"}),
            *rest,
        )

    @pytest.mark.parametrize(
        ("settled", "window", "goes"),
        [
            (False, "1m", []),
            (True, "1m", ["web"]),
            (False, "Never", ["web"]),
            (False, "0s", ["web"]),
        ],
    )
    def test_a_node_inside_its_window_takes_no_pods(self, settled, window, goes):
        """Case 219: `Never` is no window, and neither is none."""
        outcome = single(self.window(settled, window))
        assert gone(outcome) == goes
        if goes:
            assert list(only(outcome).moves) == ["calm"]

    def test_a_replacement_ignores_consolidate_after_of_other_nodes(self):
        """Case 219."""
        builder = cluster(
            pool("lively"),
            pool("calm", window="1m"),
            box("web", SIXTEEN, pool="lively"),
            runs("a", "web", cpu="3"),
            box("calm", FOUR, pool="calm", settled=False),
            runs("b", "calm"),
        )
        outcome = single(builder)
        assert gone(outcome) == ["web"]
        assert bought(outcome) == [["four", "eight"]]

    def test_a_node_may_take_pods_of_nodes_that_are_being_removed(self):
        """Case 219's exception: no pod is disturbed in vain."""
        builder = self.window(False, "1m", box("leaving", FOUR, pool="lively"))
        builder.apply_event(ObjectObserved(runs("c", "leaving", cpu="3")))
        builder.apply_event(DeletionMarked(names=("leaving",), cause="x"))
        assert gone(single(builder)) == []


class TestConstraints:
    def spread(self, name, on, zone_key=ZONE):
        constraint = TopologySpread(
            max_skew=1,
            topology_key=zone_key,
            when_unsatisfiable="DoNotSchedule",
            selector=WEB,
        )
        return shaped(runs(name, on, labels={"app": "web"}), topology_spread=(constraint,))

    def test_a_spread_over_zones_is_kept_by_the_replacement(self):
        """Case 226: (1, 1, 1) before and after."""
        market = tuple(
            kind(it.name, it.capacity["cpu"] // 1000, zones=ZONES) for it in (FOUR, EIGHT)
        )
        builder = cluster(
            box("a", market[0], zone="zone-a"),
            box("b", market[1], zone="zone-b"),
            box("c", market[0], zone="zone-c"),
            *(self.spread(f"p-{name}", name) for name in "abc"),
            market=market,
        )
        outcome = single(builder)
        assert gone(outcome) == ["b"]
        (planned,) = only(outcome).replacements
        asked = {r.key: sorted(r.values) for r in planned.requirements}
        assert asked[ZONE] == ["zone-b"]

    def test_anti_affinity_keeps_nodes_apart(self):
        """Case 226."""
        apart = AffinityTerm(topology_key=HOSTNAME, selector=WEB)
        pods = [
            shaped(runs(f"p-{name}", name, labels={"app": "web"}), pod_anti_affinity=(apart,))
            for name in "ab"
        ]
        assert gone(found(cluster(box("a", kind("one", 1)), box("b", kind("one", 1)), *pods))) == []

    @pytest.mark.parametrize(
        ("policy", "goes"), [(PreferencePolicy.RESPECT, []), (PreferencePolicy.IGNORE, ["a"])]
    )
    def test_preferred_anti_affinity_counts_unless_preferences_are_ignored(self, policy, goes):
        """Case 230."""
        wish = WeightedAffinityTerm(
            weight=1, term=AffinityTerm(topology_key=HOSTNAME, selector=WEB)
        )
        one = kind("one", 1)
        pods = [
            shaped(
                runs(f"p-{name}", name, cpu="100m", labels={"app": "web"}),
                preferred_pod_anti_affinity=(wish,),
            )
            for name in "ab"
        ]
        builder = cluster(box("a", one), box("b", one), *pods, market=(one,))
        options = DisruptionOptions(solve=SolveOptions(preferences=policy))
        assert gone(single(builder, options=options)) == goes


class TestOthersOnTheWay:
    def test_a_nominated_node_is_not_disrupted(self):
        """Case 228: launched for pods of a node that goes, it is still empty."""
        builder = cluster(box("new", EIGHT), box("old", FOUR), runs("a", "old"))
        builder.apply_event(DeletionMarked(names=("old",), cause="x"))
        builder.apply_event(NodesNominated(names=("new",), until=NOW + timedelta(seconds=20)))
        assert gone(found(builder)) == []
        assert gone(found(builder, now=NOW + timedelta(seconds=21))) == ["new"]

    def test_a_negative_result_due_to_a_nomination_is_evaluated_again(self):
        """The promise ends without a change of any object."""
        builder = cluster(box("new", EIGHT), runs("a", "new", cpu="3"))
        builder.apply_event(NodesNominated(names=("new",), until=NOW + timedelta(seconds=20)))
        outcome = found(builder)
        assert not any(r.is_idle for r in outcome.reports if r.method.skips_unchanged_state)

    def test_pods_of_leaving_nodes_may_go_to_a_node_that_boots(self):
        """Case 265: it was made for them; others may be consolidated meanwhile."""
        builder = cluster(
            box("old", FOUR),
            runs("o", "old", cpu="3.9"),
            box("new", FOUR, stage="Registered"),
            box("web", FOUR),
            runs("w", "web", cpu="3"),
            box("rest", EIGHT, settled=False),
            runs("r", "rest", cpu="4.5"),
        )
        builder.apply_event(DeletionMarked(names=("old",), cause="x"))
        outcome = single(builder)
        assert (gone(outcome), list(only(outcome).moves)) == (["web"], ["rest"])

    def test_a_claim_under_way_does_not_stop_the_pass(self):
        """Its zone is known after the launch; others need not wait for it (case 152)."""
        assert gone(single(cluster(*two(), node_claim("new")))) == ["a"]

    def test_places_of_pods_that_wait_are_not_given_away(self):
        builder = cluster(*two(), pod("waits", cpu="2"))
        outcome = multi(builder)
        assert gone(outcome) == []
        assert gone(single(cluster(*two(), pod("waits", cpu="1")))) == ["a"]

    def test_a_pass_keeps_its_simulation(self):
        one = pass_over(cluster(two()))
        assert one.simulation is one.simulation
