"""Pods are nominated for the nodes planned for them, or for equal pods."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, REGION, ZONE
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.api.records import LabelSelector, TopologySpread
from karpenter_core.lifecycle.nodeclaim.nomination import (
    choose_nominations,
    depends_on_other_pods,
    planned_pods,
    pods_compete,
    pods_of_scarce_nodes,
)
from karpenter_core.state.events import ObjectObserved, PodsDecided
from karpenter_core.testing.builders import EPOCH, node_term, pod, pod_shape
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from tests.properties import with_examples

PLAIN = pod_shape(labels={"app": "plain"})
NODES = {"a-1": "zone-a", "a-2": "zone-a", "b-1": "zone-b", "c-1": "zone-c"}


def spread(*keys, when="DoNotSchedule", skew=1):
    """The shape of pods that are spread by topology keys."""
    constraints = tuple(
        TopologySpread(
            topology_key=key,
            max_skew=skew,
            when_unsatisfiable=when,
            selector=LabelSelector(match_labels={"app": "even"}),
        )
        for key in keys
    )
    shape = pod_shape(labels={"app": "even"})
    return msgspec.structs.replace(shape, topology_spread=constraints)


def waiting(shape, plan):
    """Pods in the order of the scheduler's queue, and the nodes they were planned for."""
    return [
        (msgspec.structs.replace(pod(f"p{n}", shape=shape), resource_version=n + 1), name)
        for n, name in enumerate(plan)
    ]


def cluster(meant, *more):
    """A snapshot with these pods waiting and all nodes there."""
    nodes = [node(name, labels={ZONE: zone}) for name, zone in NODES.items()]
    return synced_state(*nodes, *(item for item, _ in meant), *more)


def changed(meant, index, **fields):
    """A pod as it is later on."""
    old = meant[index][0]
    return msgspec.structs.replace(old, resource_version=100 + index, **fields)


def nominated_nodes(builder, meant):
    return [(item.name, name) for item, name in choose_nominations(builder.snapshot(), meant)]


class TestPlainPods:
    def test_each_pod_is_nominated_for_its_planned_node(self):
        meant = waiting(PLAIN, ["a-1", "b-1", "a-1"])
        assert nominated_nodes(cluster(meant), meant) == [
            ("p0", "a-1"),
            ("p1", "b-1"),
            ("p2", "a-1"),
        ]

    def test_nominated_pod_is_not_nominated_again(self):
        meant = waiting(PLAIN, ["a-1", "b-1"])
        builder = cluster(meant)
        builder.apply_event(ObjectObserved(changed(meant, 0, nominated_node_name="a-1")))
        assert nominated_nodes(builder, meant) == [("p1", "b-1")]

    def test_pod_whose_nominated_node_is_gone_is_nominated_again(self):
        meant = waiting(PLAIN, ["a-1"])
        builder = cluster(meant)
        builder.apply_event(ObjectObserved(changed(meant, 0, nominated_node_name="gone")))
        assert nominated_nodes(builder, meant) == [("p0", "a-1")]

    def test_pod_that_loses_its_place_gets_the_place_of_the_equal_pod(self):
        meant = waiting(PLAIN, ["a-1", "b-1"])
        builder = cluster(meant)
        builder.apply_event(ObjectObserved(changed(meant, 0, node_name="b-1")))
        assert nominated_nodes(builder, meant) == [("p1", "a-1")]

    def test_a_place_that_an_equal_pod_has_been_nominated_for_is_taken(self):
        """By the scheduler, against the plan: the other one gets the place that is left."""
        meant = waiting(PLAIN, ["a-1", "b-1"])
        builder = cluster(meant)
        builder.apply_event(ObjectObserved(changed(meant, 0, nominated_node_name="b-1")))
        assert nominated_nodes(builder, meant) == [("p1", "a-1")]

    def test_a_place_is_given_to_one_of_its_pods_and_the_rest_get_what_is_left(self):
        meant = waiting(PLAIN, ["a-1", "b-1", "b-1"])
        builder = cluster(meant)
        builder.apply_event(ObjectObserved(changed(meant, 0, node_name="b-1")))
        assert nominated_nodes(builder, meant) == [("p1", "b-1"), ("p2", "a-1")]

    def test_deleted_pods_are_not_nominated(self):
        meant = waiting(PLAIN, ["a-1", "b-1"])
        builder = cluster(meant[1:])
        assert nominated_nodes(builder, meant) == [("p1", "b-1")]


class TestSpreadPods:
    def test_the_first_of_the_queue_get_places_in_different_domains(self):
        """For every plan: the scheduler would refuse the second one of a zone."""
        plan = ["a-1", "a-2", "b-1", "b-1", "c-1", "c-1"]
        meant = waiting(spread(ZONE, skew=2), plan)
        nominations = dict(nominated_nodes(cluster(meant), meant))
        zones = [NODES[nominations[f"p{n}"]] for n in range(6)]
        assert set(zones[:3]) == set(zones[3:]) == {"zone-a", "zone-b", "zone-c"}
        assert Counter(nominations.values()) == Counter(plan)

    def test_a_domain_with_more_to_come_is_first(self):
        """It has fewer pods now, since in the end all have as many."""
        meant = waiting(spread(ZONE), ["b-1", "a-1", "a-2"])
        assert NODES[nominated_nodes(cluster(meant), meant)[0][1]] == "zone-a"

    def test_the_places_of_all_nodes_of_a_domain_are_to_come_there(self):
        """More than on the one node with the most places."""
        meant = waiting(spread(ZONE), ["b-1"] * 3 + ["a-1"] * 2 + ["a-2"] * 2)
        assert NODES[nominated_nodes(cluster(meant), meant)[0][1]] == "zone-a"

    def test_a_domain_that_has_got_its_lead_back_waits_for_the_others(self):
        meant = waiting(spread(ZONE, skew=9), ["a-1"] * 3 + ["b-1"] * 2)
        nominations = nominated_nodes(cluster(meant), meant)
        assert [name for _, name in nominations] == ["a-1", "a-1", "b-1", "a-1", "b-1"]

    def test_a_node_gets_no_more_pods_than_it_has_places(self):
        """Though its capacity type is behind: the other nodes of that type are of other zones."""
        types = {"a-1": "spot", "a-2": "on-demand", "b-1": "spot", "c-1": "spot", "d-1": "spot"}
        meant = waiting(
            spread(ZONE, CAPACITY_TYPE, skew=9), ["a-1", "a-2", "a-2", "b-1", "c-1", "d-1"]
        )
        nodes = [
            node(name, labels={ZONE: f"zone-{name[0]}", CAPACITY_TYPE: kind})
            for name, kind in types.items()
        ]
        builder = synced_state(*nodes, *(item for item, _ in meant))
        nominations = nominated_nodes(builder, meant)
        assert Counter(name for _, name in nominations) == Counter(name for _, name in meant)

    def test_a_planned_node_that_does_not_exist_yet_is_a_domain_of_its_own(self):
        meant = waiting(spread(ZONE), ["later", "later", "a-1"])
        assert nominated_nodes(cluster(meant), meant)[0] == ("p0", "later")

    def test_no_more_pods_than_the_skew_are_nominated_for_a_node(self):
        """Nominated pods count on the evaluated node and would refuse each other."""
        meant = waiting(spread(ZONE), ["a-1", "a-1", "a-1", "b-1"])
        builder = cluster(meant)
        first = nominated_nodes(builder, meant)
        assert sorted(name for _, name in first) == ["a-1", "b-1"]
        index = next(int(pod_name[1:]) for pod_name, name in first if name == "a-1")
        builder.apply_event(ObjectObserved(changed(meant, index, node_name="a-1")))
        assert [name for _, name in nominated_nodes(builder, meant)].count("a-1") == 1

    def test_the_strictest_spread_limits_the_pods_nominated_for_a_node(self):
        wide, strict = spread(REGION, skew=3), spread(ZONE, skew=1)
        both = (*wide.topology_spread, *strict.topology_spread)
        shape = msgspec.structs.replace(strict, topology_spread=both)
        meant = waiting(shape, ["a-1", "a-1", "a-1"])
        assert nominated_nodes(cluster(meant), meant) == [("p0", "a-1")]

    def test_pods_spread_over_hosts_alone_are_nominated_together(self):
        meant = waiting(spread(HOSTNAME, skew=2), ["a-1", "a-1", "b-1", "b-1"])
        assert len(nominated_nodes(cluster(meant), meant)) == 4

    def test_soft_spread_delays_no_nomination(self):
        meant = waiting(spread(ZONE, when="ScheduleAnyway"), ["a-1", "a-1"])
        assert nominated_nodes(cluster(meant), meant) == [("p0", "a-1"), ("p1", "a-1")]

    @given(
        plan=st.lists(st.sampled_from(sorted(NODES)), min_size=1, max_size=12),
        keys=st.sampled_from([(), (ZONE,), (HOSTNAME,), (ZONE, HOSTNAME)]),
        bound=st.lists(st.sampled_from(sorted(NODES)), max_size=6),
    )
    @with_examples(100)
    def test_no_capacity_is_nominated_twice(self, plan, keys, bound):
        """Places that were taken, by whomever of them, are not there any more."""
        meant = waiting(spread(*keys), plan)
        builder = cluster(meant)
        for index, name in enumerate(bound[: len(meant)]):
            builder.apply_event(ObjectObserved(changed(meant, index, node_name=name)))
        nominations = nominated_nodes(builder, meant)
        left = Counter(plan) - Counter(bound[: len(meant)])
        assert Counter(name for _, name in nominations) <= left
        assert len({name for name, _ in nominations}) == len(nominations)


class TestFullNodes:
    """Nodes have 4 CPUs here; pods that other plans, or the scheduler, put there use them."""

    HALF = pod_shape(labels={"app": "half"}, cpu="2")
    FILLER = pod_shape(labels={"app": "filler"}, cpu="3")

    def test_a_place_that_other_pods_have_filled_is_not_nominated(self):
        meant = waiting(self.HALF, ["a-1", "a-1", "b-1"])
        builder = cluster(meant, pod("other", shape=self.HALF, node_name="a-1"))
        assert nominated_nodes(builder, meant) == [("p0", "a-1"), ("p2", "b-1")]

    def test_pods_that_are_nominated_for_a_node_use_its_capacity(self):
        meant = waiting(self.HALF, ["a-1"])
        other = msgspec.structs.replace(pod("other", shape=self.FILLER), nominated_node_name="a-1")
        assert nominated_nodes(cluster(meant, other), meant) == []

    def test_different_pods_are_nominated_up_to_the_capacity(self):
        meant = [
            *waiting(self.FILLER, ["a-1"]),
            (pod("half", shape=self.HALF), "a-1"),
            (pod("plain", shape=PLAIN), "a-1"),
        ]
        assert nominated_nodes(cluster(meant), meant) == [("p0", "a-1"), ("plain", "a-1")]

    def test_a_pod_gets_the_place_of_an_equal_pod_instead_of_a_full_node(self):
        meant = waiting(self.FILLER, ["a-1", "b-1"])
        builder = cluster(meant, pod("other", shape=self.HALF, node_name="a-1"))
        builder.apply_event(ObjectObserved(changed(meant, 1, node_name="c-1")))
        assert nominated_nodes(builder, meant) == [("p0", "b-1")]

    def test_spread_pods_are_not_nominated_for_full_nodes(self):
        meant = waiting(spread(ZONE), ["a-1", "b-1"])
        filled = pod("other", cpu="4", node_name="b-1")
        assert nominated_nodes(cluster(meant, filled), meant) == [("p0", "a-1")]

    def test_a_node_that_may_not_show_all_of_its_resources_yet_is_not_full(self):
        booting = node_claim("booting", stage=REGISTERED)
        meant = waiting(pod_shape(requests={"example.com/gpu": "1"}), ["booting"])
        builder = cluster(meant, booting, node("booting", claim=booting, stage=REGISTERED))
        assert nominated_nodes(builder, meant) == [("p0", "booting")]


class TestWhoCompetes:
    def test_equal_pods_do_not_compete(self):
        meant = waiting(PLAIN, ["a-1", "b-1"])
        assert not pods_compete(cluster(meant).snapshot())

    def test_different_pods_compete(self):
        meant = waiting(PLAIN, ["a-1"])
        assert pods_compete(cluster(meant, pod("other", cpu="2")).snapshot())
        nominations = msgspec.structs.replace(pod("other", cpu="2"), nominated_node_name="b-1")
        assert pods_compete(cluster(meant, nominations).snapshot())

    def test_bound_pods_do_not_compete(self):
        meant = waiting(PLAIN, ["a-1"])
        bound = pod("other", cpu="2", node_name="b-1")
        assert not pods_compete(cluster(meant, bound).snapshot())


def test_pods_are_planned_for_the_claim_or_its_node():
    plan = ["claim", "node", "elsewhere"]
    meant = waiting(PLAIN, plan)
    builder = cluster(meant)
    placed = {item.uid: target for item, target in meant}
    builder.apply_event(PodsDecided(placed=placed, at=EPOCH))
    result = planned_pods(builder.snapshot(), claim="claim", node="node")
    assert [item.name for item in result] == ["p0", "p1"]


def test_only_hard_constraints_depend_on_other_pods():
    assert depends_on_other_pods(pod("a", shape=spread(ZONE)))
    assert not depends_on_other_pods(pod("a", shape=spread(ZONE, when="ScheduleAnyway")))
    assert not depends_on_other_pods(pod("a", shape=PLAIN))


ON_DEMAND_PODS = pod_shape(labels={"app": "paid"}, node_selector={CAPACITY_TYPE: "on-demand"})
IN_TWO_ZONES = msgspec.structs.replace(
    PLAIN,
    required_node_terms=(node_term((ZONE, "In", "zone-a", "zone-b")),),
)
ON_GPU = msgspec.structs.replace(PLAIN, requests={**PLAIN.requests, "nvidia.com/gpu": 1})
ON_ARM = msgspec.structs.replace(PLAIN, required_node_terms=(node_term((ARCH, "In", "arm64")),))


def scarce(*shapes):
    """Return which of waiting pods of these shapes need nodes that others may take."""
    meant = [(pod(f"p{n}", shape=shape), "a-1") for n, shape in enumerate(shapes)]
    chosen = pods_of_scarce_nodes(cluster(meant).snapshot(), meant)
    return [each.name for each, _ in chosen]


@pytest.mark.parametrize("shape", [ON_DEMAND_PODS, ON_GPU, ON_ARM])
def test_pods_need_scarce_nodes_if_others_require_less(shape):
    assert scarce(PLAIN, shape) == ["p1"]
    assert scarce(shape, ON_DEMAND_PODS, IN_TWO_ZONES)[:1] == ["p0"]


def test_pods_that_require_the_same_labels_share_their_nodes_with_their_equals_only():
    assert scarce(ON_DEMAND_PODS, ON_DEMAND_PODS) == []
    assert scarce(ON_GPU, ON_ARM) == ["p0", "p1"]


def test_zones_make_no_node_scarce():
    """Plans of many pods are even over zones."""
    assert scarce(PLAIN, IN_TWO_ZONES) == []


def test_no_node_is_scarce_while_the_scheduler_has_refused_no_pod():
    meant = [(pod("p0", shape=ON_DEMAND_PODS), "a-1")]
    assert pods_of_scarce_nodes(synced_state().snapshot(), meant) == []
