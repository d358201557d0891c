"""The metric of pending pods by effective zone (cases 300 to 302)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    TopologySpread,
    WeightedAffinityTerm,
)
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.placement.effective_zone import pending_pods_by_zone
from karpenter_core.scheduling.problem import PodVolumes, PreferencePolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.testing.builders import (
    ZONES,
    existing_node,
    node_term,
    pod,
    pod_shape,
    pods,
    preferred_node_term,
    problem,
)

A, B, C = ZONES
APP = {"app": "web"}
WEB = LabelSelector(match_labels=APP)


def zones(asked, **options):
    steps = compile_steps(asked, SolveOptions(**options), CatalogueCache())
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return pending_pods_by_zone(asked, end.value)


def shape(labels=None, **fields):
    return msgspec.structs.replace(pod_shape(labels=labels), **fields)


def term(key=ZONE):
    return AffinityTerm(topology_key=key, selector=WEB)


def nodes(*bound_per_zone):
    """One node a zone, each with so many pods of the app."""
    return [
        existing_node(
            f"node-{zone}",
            labels={ZONE: zone},
            bound=[
                pod(f"there-{zone}-{number}", labels=APP, node_name=f"node-{zone}")
                for number in range(count)
            ],
        )
        for zone, count in zip(ZONES, bound_per_zone, strict=True)
    ]


def spread(**options):
    return TopologySpread(
        topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=WEB, **options
    )


class TestLabels:
    """Case 300."""

    def test_a_pod_without_a_zone_requirement_is_flexible(self):
        assert zones(problem([pod("a")])) == {"flexible": 1}

    def test_pods_count_in_the_zone_they_select(self):
        assert zones(problem(pods(3, node_selector={ZONE: B}))) == {B: 3}
        both = [pod("a", node_selector={ZONE: A}), pod("b", required=[node_term((ZONE, "In", B))])]
        assert zones(problem(both)) == {A: 1, B: 1}

    def test_two_zones_are_flexible_and_a_preferred_one_ties_nothing(self):
        two = pod("a", required=[node_term((ZONE, "In", A, B))])
        wishes = pod("b", preferred=[preferred_node_term(1, (ZONE, "In", A))])
        assert zones(problem([two, wishes])) == {"flexible": 2}

    def test_only_pending_pods_count(self):
        """Pods of nodes that go are placed too, but they run."""
        moving = pod("a", node_name="old", phase="Running", node_selector={ZONE: A})
        assert zones(problem([moving, pod("b")])) == {"flexible": 1}


class TestTopology:
    """Case 301."""

    @pytest.mark.parametrize(
        ("fields", "bound", "expected"),
        [
            ({"pod_affinity": (term(),)}, (1, 0, 0), A),
            ({"pod_affinity": (term(),)}, (1, 1, 0), "flexible"),
            ({"pod_affinity": (term(),)}, (0, 0, 0), "none"),
            ({"pod_anti_affinity": (term(),)}, (1, 1, 0), C),
            ({"pod_anti_affinity": (term(),)}, (1, 1, 1), "none"),
            ({"pod_anti_affinity": (term(HOSTNAME),)}, (1, 1, 1), "flexible"),
        ],
    )
    def test_affinity_ties_to_where_others_are_or_are_not(self, fields, bound, expected):
        asked = problem([pod("a", shape=shape(**fields))], nodes=nodes(*bound))
        assert zones(asked) == {expected: 1}

    def test_spread_ties_to_the_zones_that_are_behind(self):
        asked = problem(
            [pod("a", shape=shape(APP, topology_spread=(spread(),)))], nodes=nodes(1, 1, 0)
        )
        assert zones(asked) == {C: 1}

    def test_too_few_domains_leave_no_zone(self):
        """`minDomains` 4 with two pods in each of three zones."""
        constrained = shape(APP, topology_spread=(spread(min_domains=4),))
        assert zones(problem([pod("a", shape=constrained)], nodes=nodes(2, 2, 2))) == {"none": 1}

    def test_all_constraints_hold_together(self):
        fields = {"topology_spread": (spread(),), "node_selector": {ZONE: A}}
        asked = problem([pod("a", shape=shape(APP, **fields))], nodes=nodes(1, 1, 0))
        assert zones(asked) == {A: 1}  # spread is measured over the zones the pod may be in
        lonely = {"pod_anti_affinity": (term(),), "node_selector": {ZONE: A}}
        assert zones(problem([pod("a", shape=shape(**lonely))], nodes=nodes(1, 0, 0))) == {
            "none": 1
        }

    def test_preferences_hold_until_they_are_relaxed(self):
        wish = WeightedAffinityTerm(weight=1, term=term())
        asked = problem(
            [pod("a", shape=shape(preferred_pod_affinity=(wish,)))], nodes=nodes(0, 1, 0)
        )
        assert zones(asked) == {B: 1}
        assert zones(asked, preferences=PreferencePolicy.IGNORE) == {"flexible": 1}

    def test_pods_kept_away_by_others_are_not_tied_by_themselves(self):
        """Only constraints of the pod's own count, as upstream."""
        guard = pod("guard", shape=shape(pod_anti_affinity=(term(),)), node_name="node-a")
        there = existing_node("node-a", labels={ZONE: A}, bound=[guard])
        assert zones(problem([pod("a", labels=APP)], nodes=[there])) == {"flexible": 1}


class TestVolumes:
    """Case 302."""

    @pytest.mark.parametrize(
        ("alternatives", "selector", "expected"),
        [
            ([{ZONE: (A, B)}], {}, "flexible"),
            ([{ZONE: (A,)}, {ZONE: (B,)}], {}, "flexible"),
            ([{ZONE: (A,)}], {}, A),
            ([{ZONE: (B,)}], {ZONE: A}, "none"),
            ([{ZONE: (A,)}, {}], {}, "flexible"),
            ([{ZONE: (A,)}, {ZONE: (B,)}], {ZONE: B}, B),
        ],
    )
    def test_volumes_tie_to_the_zones_that_all_alternatives_name(
        self, alternatives, selector, expected
    ):
        waiting = pod("a", node_selector=selector)
        read = tuple(
            Requirements(Requirement.of(key, "In", values) for key, values in one.items())
            for one in alternatives
        )
        asked = replace(problem([waiting]), volumes={waiting.uid: PodVolumes(alternatives=read)})
        assert zones(asked) == {expected: 1}
