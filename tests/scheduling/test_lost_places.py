"""Placed pods lose their places when others are bound where their constraints forbid it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from msgspec.structs import replace as replaced

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm
from karpenter_core.scheduling.lost_places import pods_without_domain
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.taints import taint_of
from karpenter_core.testing.builders import existing_node, problem
from tests.properties import with_examples
from tests.scheduling.handmade_plans import DB, WEB, pod, spread, term
from tests.support.strategies import problems


def webs(count, *, start=0, **options):
    """Make pods with a hard spread over zones, unless they have other constraints."""
    options.setdefault("topology_spread", spread())
    return [pod(f"web-{number}", **options) for number in range(start, start + count)]


def in_zone(letter, *bound, name="", labels=None):
    """Make a node with pods that are bound to it."""
    name = name or f"node-{letter}"
    pods = [replaced(each, node_name=name) for each in bound]
    return existing_node(name, labels={ZONE: f"zone-{letter}", **(labels or {})}, bound=pods)


def claim_in(*zones, **labels):
    """Make a claim that may be launched in these zones, with these values of other labels."""
    requirements = Requirements(
        Requirement.of(key, "In", values) for key, values in {ZONE: zones, **labels}.items()
    )
    return replace(existing_node("claim"), node_name="", labels={}, requirements=requirements)


def lost(*nodes, placed, waiting=(), is_judged=lambda _: True):
    """Return the names of pods without domain; `placed` are pods by the name of their node."""
    found = pods_without_domain(problem(waiting, pools=(), nodes=nodes), placed, is_judged)
    return sorted(each.name for pods in placed.values() for each in pods if each.uid in found)


def test_a_pod_whose_zone_others_have_filled_has_lost_its_place():
    """Planned were two in each zone; one that was planned in zone a was bound in zone b."""
    first, second, third, fourth = webs(4)
    nodes = in_zone("a"), in_zone("b", first, second)
    assert lost(*nodes, placed={"node-a": [third], "node-b": [fourth]}) == [fourth.name]


def test_pods_keep_their_places_while_pods_with_places_can_make_up_for_others():
    pods = webs(4)
    placed = {"node-a": pods[:2], "node-b": pods[2:]}
    assert lost(in_zone("a"), in_zone("b"), placed=placed) == []
    bound = in_zone("a"), in_zone("b", *pods[2:])
    assert lost(*bound, placed={"node-a": pods[:2]}) == []


def test_pods_keep_their_places_while_pods_without_a_place_can_make_up_for_others():
    """They are planned in this pass, and may go where there are the fewest."""
    pods = webs(4)
    nodes = in_zone("a"), in_zone("b", *pods[:2])
    placed = {"node-b": pods[2:3]}
    assert lost(*nodes, placed=placed) == ["web-2"]
    assert lost(*nodes, placed=placed, waiting=pods[3:]) == ["web-2"]
    assert lost(*nodes, placed=placed, waiting=webs(2, start=3)) == []


def test_of_pods_in_each_others_way_only_as_many_lose_their_places_as_must():
    """Each of them goes where there are fewer, which makes room for the others."""
    pods = webs(10)
    nodes = in_zone("a", *pods[:2]), in_zone("b", *pods[2:4])
    assert len(lost(*nodes, placed={"node-a": pods[4:10]})) == 3


def test_pods_that_are_not_judged_count_and_stay():
    pods = webs(4)
    nodes = in_zone("a"), in_zone("b", *pods[:2])
    assert lost(*nodes, placed={"node-b": pods[2:]}, is_judged=lambda each: each is pods[3]) == [
        "web-3"
    ]


def test_a_spread_that_prefers_takes_no_place():
    pods = webs(3, topology_spread=spread(hard=False))
    nodes = in_zone("a"), in_zone("b", *pods[:2])
    assert lost(*nodes, placed={"node-b": pods[2:]}) == []


def test_the_skew_decides_at_its_limit():
    pods = webs(4, topology_spread=spread(max_skew=2))
    assert lost(in_zone("a"), in_zone("b", pods[0]), placed={"node-b": pods[1:2]}) == []
    assert lost(in_zone("a"), in_zone("b", *pods[:2]), placed={"node-b": pods[2:3]}) == ["web-2"]


def test_only_zones_that_the_pod_may_be_in_are_measured_by():
    for policy in ("Honor", "Ignore"):
        pods = webs(
            3,
            node_selector={ZONE: "zone-b"},
            topology_spread=spread(node_affinity_policy=policy),
        )
        assert lost(in_zone("a"), in_zone("b", *pods[:2]), placed={"node-b": pods[2:]}) == []


def test_one_of_several_alternatives_for_the_node_is_enough():
    """Of each other alternative no zone would count."""
    pods = webs(
        3,
        required_node_terms=tuple(
            NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=ZONE, operator=each),))
            for each in ("Exists", "DoesNotExist")
        ),
        topology_spread=spread(min_domains=2),
    )
    nodes = in_zone("a", pods[0]), in_zone("b", pods[1])
    assert lost(*nodes, placed={"node-b": pods[2:]}) == []


def test_too_few_zones_are_measured_by_none():
    pods = webs(4, topology_spread=spread(min_domains=2))
    assert lost(in_zone("b", *pods[:1]), placed={"node-b": pods[1:2]}) == ["web-1"]
    for enough in (None, 1):
        pods = webs(4, topology_spread=spread(min_domains=enough))
        assert lost(in_zone("b", *pods[:1]), placed={"node-b": pods[1:2]}) == []


def test_a_node_that_others_have_filled_up_to_the_skew_is_lost():
    pods = webs(4, topology_spread=spread(HOSTNAME, max_skew=2))
    nodes = in_zone("a"), in_zone("b", *pods[:2])
    assert lost(*nodes, placed={"node-b": pods[2:3], "node-a": pods[3:]}) == []
    assert lost(*nodes, placed={"node-b": pods[2:]}) == ["web-2"]
    assert lost(*nodes, placed={"node-b": pods[2:3]}) == ["web-2"]


def test_nodes_that_are_not_there_yet_are_no_hosts_to_measure_by():
    pods = webs(4, topology_spread=spread(HOSTNAME, max_skew=2))
    nodes = in_zone("a", pods[0]), in_zone("b", *pods[1:3])
    assert lost(*nodes, placed={"node-b": pods[3:]}) == []
    assert lost(*nodes, in_zone("a", name="new"), placed={"node-b": pods[3:]}) == ["web-3"]
    assert lost(*nodes, claim_in("zone-a"), placed={"node-b": pods[3:]}) == []


def test_a_pod_loses_its_place_to_one_that_it_avoids():
    """Also to one that avoids it."""
    lonely, other = pod("lonely", "db", pod_anti_affinity=term(ZONE, WEB)), pod("web")
    assert lost(in_zone("a", other), placed={"node-a": [lonely]}) == ["lonely"]
    assert lost(in_zone("a", lonely), placed={"node-a": [other]}) == ["web"]
    assert lost(in_zone("a"), in_zone("b", other), placed={"node-a": [lonely]}) == []


def test_pods_that_avoid_each_other_keep_a_node_each():
    pods = webs(2, topology_spread=(), pod_anti_affinity=term(HOSTNAME))
    nodes = in_zone("a", name="a-1"), in_zone("a", name="a-2")
    assert lost(*nodes, placed={"a-1": pods[:1], "a-2": pods[1:]}) == []
    assert lost(in_zone("a", pods[0], name="a-1"), placed={"a-1": pods[1:]}) == ["web-1"]


def test_a_pod_that_follows_another_loses_its_place_when_that_was_bound_elsewhere():
    follower, target = pod("follower", pod_affinity=term(ZONE, DB)), pod("target", "db")
    nodes = in_zone("a"), in_zone("b")
    assert lost(*nodes, placed={"node-a": [follower, target]}) == []
    assert lost(in_zone("a"), in_zone("b", target), placed={"node-a": [follower]}) == ["follower"]
    assert lost(*nodes, placed={"node-a": [follower]}, waiting=[target]) == []
    assert lost(*nodes, placed={"node-a": [follower]}) == ["follower"]


def test_the_first_of_pods_that_follow_each_other_keeps_its_place():
    pods = webs(2, topology_spread=(), pod_affinity=term(ZONE, WEB))
    nodes = in_zone("a"), in_zone("b")
    assert lost(*nodes, placed={"node-a": pods[:1]}) == []
    assert lost(in_zone("a"), in_zone("b", pods[1]), placed={"node-a": pods[:1]}) == ["web-0"]


def test_pods_on_a_claim_whose_zone_is_open_keep_their_places():
    pods = webs(4)
    nodes = claim_in("zone-a", "zone-b"), in_zone("a"), in_zone("b", *pods[:2])
    assert lost(*nodes, placed={"claim": pods[2:]}) == []


def test_a_claim_is_lost_to_a_pod_when_one_that_it_avoids_is_wherever_the_claim_may_be():
    lonely, others = pod("lonely", "db", pod_anti_affinity=term(ZONE, WEB)), webs(2)
    here, there = in_zone("a", others[0]), in_zone("b", others[1])
    claim, placed = claim_in("zone-a", "zone-b"), {"claim": [lonely]}
    assert lost(claim, here, in_zone("b"), placed=placed) == []
    assert lost(claim, here, there, placed=placed) == ["lonely"]


def test_a_pod_keeps_its_place_while_the_one_that_it_follows_may_come_there():
    follower, target = pod("follower", pod_affinity=term(ZONE, DB)), pod("target", "db")
    nodes = in_zone("a"), claim_in("zone-a", "zone-b")
    placed = {"node-a": [follower], "claim": [target]}
    assert lost(*nodes, in_zone("b", pod("other", "db")), placed=placed) == []


def test_the_zone_of_a_claim_counts_once_a_pod_is_placed_there():
    pods = webs(4)
    nodes = claim_in("zone-a"), in_zone("b", *pods[:2])
    assert lost(*nodes, placed={"node-b": pods[2:3]}) == []
    assert lost(*nodes, placed={"claim": pods[3:], "node-b": pods[2:3]}) == ["web-2"]


def test_pods_on_nodes_that_do_not_count_change_nothing():
    """Those on nodes that the pod may not be on are not counted for its spread."""
    mine, plain = webs(3, node_selector={"team": "a"}), webs(2, start=3, topology_spread=())
    labels = {"team": "a"}
    nodes = (
        in_zone("a", name="theirs"),
        in_zone("a", labels=labels),
        in_zone("b", *mine[:2], labels=labels),
    )
    assert lost(*nodes, placed={"node-b": mine[2:], "theirs": plain}) == ["web-2"]
    assert lost(*nodes, placed={"node-b": mine[2:], "node-a": plain}) == []
    may_count = claim_in("zone-a", team=("a", "b"))
    assert lost(*nodes, may_count, placed={"node-b": mine[2:], "claim": plain}) == []


def test_a_pod_whose_node_is_in_no_zone_for_it_is_lost_only_to_others_of_its_kind():
    """Other reasons that keep it from there are found when it is planned."""
    pods = webs(2, node_selector={ZONE: "zone-c"})
    assert lost(in_zone("a"), placed={"node-a": pods[:1]}) == []


@with_examples(200)
@given(problems())
def test_no_pod_of_a_new_plan_has_lost_its_place(asked):
    """Else a pass would plan pods anew without end that the pass before has placed."""
    moving = {each.uid for each in asked.pods}
    plan = solve(asked)
    pools = {pool.name: pool for pool in asked.pools}
    nodes = [
        replace(node, pods=tuple(each for each in node.pods if each.uid not in moving))
        for node in asked.nodes
    ]
    placed = dict(plan.existing)
    for number, claim in enumerate(plan.claims):
        name = f"planned-{number}"
        placed[name] = claim.pods
        nodes.append(
            replace(
                existing_node(name, initialized=False),
                node_name="",
                labels={},
                taints=tuple(map(taint_of, pools[claim.pool].spec.template.spec.taints)),
                requirements=Requirements(claim.requirements).merge(
                    Requirements.from_labels(claim.labels, aliases=asked.aliases)
                ),
            )
        )
    left = tuple(each for each in asked.pods if each.uid in plan.unschedulable)
    again = replace(asked, nodes=tuple(nodes), pods=left, pools=(), catalogues={}, devices=None)
    assert pods_without_domain(again, placed, lambda _: True) == frozenset()
