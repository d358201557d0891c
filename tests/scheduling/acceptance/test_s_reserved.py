"""Cases 291 to 297: capacity that is reserved, and so much of it only."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.quantities import parse_resources
from karpenter_core.scheduling.problem import PackingPolicy, PoolConstraint, ReservationPolicy
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.testing.builders import offering, preferred_node_term, requirement_spec
from tests.scheduling.acceptance.catalogues import (
    RESERVATION_ID,
    ZONES,
    default_pool,
    fake_price,
    fake_type,
    minimum,
    reserved_offering,
)
from tests.scheduling.acceptance.cluster import Cluster
from tests.scheduling.acceptance.workloads import term

APP = {"app": "test"}
SMALL, MEDIUM, LARGE = "small-instance-type", "medium-instance-type", "large-instance-type"
SIZES = {SMALL: 2, MEDIUM: 3, LARGE: 6}


def unreserved(offer):
    """Mark an offering as one without a reservation."""
    none = Requirement.of(RESERVATION_ID, "DoesNotExist")
    return replace(offer, requirements=offer.requirements.add(none))


def sized_type(name, **reservations):
    """Make a type of as many GiB as cores, with so many instances of each reservation in z1."""
    cores = SIZES[name]
    memory = f"{cores}Gi"
    price = fake_price(cores, parse_resources({"memory": memory})["memory"])
    offerings = [unreserved(offering(zone, "spot", price)) for zone in ZONES[:2]]
    offerings += [unreserved(offering(zone, "on-demand", price)) for zone in ZONES]
    offerings += [
        reserved_offering("z1", reservation.replace("_", "-"), count, price / 100_000)
        for reservation, count in reservations.items()
    ]
    return fake_type(name, str(cores), memory, offerings=offerings)


def three_types():
    return [
        sized_type(LARGE),
        sized_type(MEDIUM, r_medium_instance_type=1),
        sized_type(SMALL, r_small_instance_type=1),
    ]


@pytest.fixture
def cluster(empty_cluster):
    """A cluster with a pool that sells three sizes, one of each of the smaller two reserved."""
    empty_cluster.use(default_pool("np-1"), types=three_types())
    return empty_cluster


def labels_of_placed(cluster, pods):
    """Make a pass for the pods without a place; return the labels of the nodes of new places."""
    waiting = [
        pod for pod in pods if pod.uid not in cluster.snapshot.pods or cluster.is_unscheduled(pod)
    ]
    cluster.provision(*waiting)
    return [cluster.labels_of(pod) for pod in cluster.scheduled(waiting)]


def labels_by_pass(cluster, pods):
    """Make passes until no pod waits; return the labels of new places for each."""
    passes = []
    while any(p.uid not in cluster.snapshot.pods or cluster.is_unscheduled(p) for p in pods):
        passes.append(labels_of_placed(cluster, pods))
        assert passes[-1], "a pass without a new place"
    return passes


def alone(cluster, number, *where, **options):
    """Make pods that share no node with each other."""
    return cluster.pods(number, labels=APP, away=[term(APP, HOSTNAME)], where=where, **options)


def is_reserved(labels, reservation):
    return labels[CAPACITY_TYPE] == "reserved" and labels[RESERVATION_ID] == reservation


def is_bought(labels):
    return labels[CAPACITY_TYPE] in {"spot", "on-demand"} and RESERVATION_ID not in labels


def test_case_291_reserved_capacity_is_used_up_before_other_offerings(cluster, packing):
    placed_labels = labels_by_pass(cluster, cluster.pods(3, cpu="1800m"))
    # First-fit holds all that a claim could use, and so has one claim for both of them.
    together = {PackingPolicy.FIRST_FIT: [1, 1, 1], PackingPolicy.VALUE: [2, 1]}[packing]
    assert [len(of_pass) for of_pass in placed_labels] == together
    first, second, third = [labels for of_pass in placed_labels for labels in of_pass]
    assert is_reserved(first, "r-small-instance-type")
    assert first[INSTANCE_TYPE] == SMALL
    assert is_reserved(second, "r-medium-instance-type")
    assert second[INSTANCE_TYPE] == MEDIUM
    assert is_bought(third)
    assert third[INSTANCE_TYPE] == SMALL


def one_per_pool(cluster):
    """Make a pod for each of two pools, on small nodes."""
    return [
        pod
        for name in ("np-1", "np-2")
        for pod in alone(cluster, 1, (INSTANCE_TYPE, "In", SMALL), (NODE_POOL, "In", name))
    ]


def test_case_292_two_pools_that_share_a_reservation(cluster):
    cluster.use(default_pool("np-1"), default_pool("np-2"))
    pods = one_per_pool(cluster)
    (first,) = labels_of_placed(cluster, pods)
    assert is_reserved(first, "r-small-instance-type")
    (second,) = labels_of_placed(cluster, pods)
    assert is_bought(second)
    assert second[INSTANCE_TYPE] == SMALL


def test_case_293_two_pools_with_a_reservation_each(cluster):
    cluster.use(default_pool("np-1"), default_pool("np-2"))
    cluster.sell(sized_type(SMALL, r_distinct=1), pool="np-2")
    placed_labels = labels_of_placed(cluster, one_per_pool(cluster))
    assert {labels[RESERVATION_ID] for labels in placed_labels} == {
        "r-small-instance-type",
        "r-distinct",
    }
    assert {labels[CAPACITY_TYPE] for labels in placed_labels} == {"reserved"}


def test_case_294_two_reservations_for_one_type(cluster, packing):
    types = three_types()
    types[-1] = sized_type(SMALL, r_small_instance_type=1, r_small_instance_type_2=2)
    cluster.use(default_pool("np-1"), types=types)
    placed_labels = labels_by_pass(cluster, alone(cluster, 4, (INSTANCE_TYPE, "In", SMALL)))
    together = {PackingPolicy.FIRST_FIT: [2, 1, 1], PackingPolicy.VALUE: [3, 1]}[packing]
    assert [len(of_pass) for of_pass in placed_labels] == together
    *reserved, last = [labels for of_pass in placed_labels for labels in of_pass]
    assert Counter(labels[RESERVATION_ID] for labels in reserved) == {
        "r-small-instance-type": 1,
        "r-small-instance-type-2": 2,
    }
    assert is_bought(last)


def test_case_295_no_lighter_pool_while_a_reservation_is_only_taken_for_now(cluster):
    cluster.use(default_pool("np-primary", weight=100), default_pool("np-fallback", weight=50))
    cluster.sell(sized_type(SMALL, r_fallback=1), pool="np-fallback")
    pods = alone(cluster, 2, (INSTANCE_TYPE, "In", SMALL))
    (first,) = labels_of_placed(cluster, pods)
    assert is_reserved(first, "r-small-instance-type")
    assert first[NODE_POOL] == "np-primary"
    (second,) = labels_of_placed(cluster, pods)
    assert is_bought(second)
    assert second[NODE_POOL] == "np-primary"


def test_case_296_no_preference_is_given_up_for_it(cluster):
    cluster.use(default_pool("np-1"), default_pool("np-2"))
    cluster.sell(sized_type(SMALL, r_distinct=1), pool="np-2")
    wish = preferred_node_term(1, (NODE_POOL, "In", "np-1"))
    pods = alone(cluster, 2, (INSTANCE_TYPE, "In", SMALL), preferred=[wish])
    (first,) = labels_of_placed(cluster, pods)
    assert is_reserved(first, "r-small-instance-type")
    assert first[NODE_POOL] == "np-1"
    (second,) = labels_of_placed(cluster, pods)
    assert is_bought(second)
    assert second[NODE_POOL] == "np-1"


def test_case_297_pods_that_fit_one_reserved_node_share_it(cluster):
    where = [
        (INSTANCE_TYPE, "In", SMALL),
        (NODE_POOL, "In", "np-1"),
        (CAPACITY_TYPE, "In", "reserved"),
        (ZONE, "In", "z1"),
    ]
    pods = cluster.pods(2, labels=APP, near=[term(APP, ZONE)], where=where)
    cluster.provision(*pods)
    assert len({cluster.node_of(pod).name for pod in pods}) == 1
    assert is_reserved(cluster.labels_of(pods[0]), "r-small-instance-type")


def test_case_298_a_reservation_that_two_pools_show_differently_counts_with_the_least(cluster):
    cluster.use(default_pool("np-1"), default_pool("np-2"))
    cluster.sell(sized_type(SMALL, r_shared=2), pool="np-1")
    cluster.sell(sized_type(SMALL, r_shared=1), pool="np-2")
    placed_labels = labels_of_placed(cluster, alone(cluster, 2))
    assert len(placed_labels) == 1
    assert is_reserved(placed_labels[0], "r-shared")


def test_case_298_an_exhausted_reservation_blocks_no_pod(cluster):
    used_up = three_types()
    used_up[1:] = [
        replace(
            item,
            offerings=tuple(
                replace(o, available=o.capacity_type != "reserved") for o in item.offerings
            ),
        )
        for item in used_up[1:]
    ]
    cluster.use(default_pool("np-1"), types=used_up)
    placed_labels = labels_of_placed(cluster, alone(cluster, 3))
    assert [is_bought(labels) for labels in placed_labels] == [True] * 3


def test_pods_that_wait_for_reserved_capacity_have_that_reason(cluster):
    """Provisioning says nothing of pods with this reason: they wait for the next pass."""
    made = cluster.provision(*alone(cluster, 3, (INSTANCE_TYPE, "In", SMALL)))
    taken = "all fitting reserved instances are taken in this pass"
    assert len(made.plan.claims) == 1
    reasons = [reason.pools["np-1"] for reason in made.plan.unschedulable.values()]
    assert [reason.constraint for reason in reasons] == [PoolConstraint.RESERVATION] * 2
    assert {reason.detail for reason in reasons} == {
        f"{taken} ({RESERVATION_ID}=r-small-instance-type)"
    }


def test_pods_use_reservations_of_another_pool_before_they_wait_for_the_next_pass():
    """Of pools of equal weight, one whose reservations are taken does not hold up the other."""
    cluster = Cluster(PackingPolicy.VALUE)
    cluster.use(
        default_pool("np-1", requirements=[requirement_spec(INSTANCE_TYPE, "In", SMALL)]),
        default_pool("np-2", requirements=[requirement_spec(INSTANCE_TYPE, "In", MEDIUM)]),
        types=three_types(),
    )
    (found,) = labels_by_pass(cluster, alone(cluster, 2))
    assert sorted(labels[NODE_POOL] for labels in found) == ["np-1", "np-2"]
    assert {labels[CAPACITY_TYPE] for labels in found} == {"reserved"}


def test_claims_for_reserved_capacity_require_their_reservations_only(cluster, packing):
    made = cluster.provision(*cluster.pods(2, cpu="1800m"))
    asked = [{s.key: tuple(s.values) for s in claim.spec.requirements} for claim in made.claims]
    assert {of_claim[CAPACITY_TYPE] for of_claim in asked} == {("reserved",)}
    # First-fit holds whatever a claim may become, the default packing the one that it means.
    held = {
        PackingPolicy.FIRST_FIT: [("r-medium-instance-type", "r-small-instance-type")],
        PackingPolicy.VALUE: [("r-small-instance-type",), ("r-medium-instance-type",)],
    }
    assert [of_claim[RESERVATION_ID] for of_claim in asked] == held[packing]


def test_pods_that_fit_no_reserved_type_do_not_wait_for_one(cluster):
    placed_labels = labels_of_placed(cluster, alone(cluster, 2, cpu="5"))
    assert [is_bought(labels) for labels in placed_labels] == [True] * 2


def test_simulations_use_reservations_as_far_as_they_go(cluster):
    cluster.options = replace(cluster.options, reservations=ReservationPolicy.FALLBACK)
    placed_labels = labels_of_placed(cluster, alone(cluster, 3, (INSTANCE_TYPE, "In", SMALL)))
    kinds = sorted(labels[CAPACITY_TYPE] for labels in placed_labels)
    assert (len(kinds), kinds.count("reserved")) == (3, 1)


def fallback_claim(cluster, **pool):
    """Plan one pod, reservations being used as far as they go; return what its claim asks for."""
    cluster.options = replace(cluster.options, reservations=ReservationPolicy.FALLBACK)
    if pool:
        cluster.use(default_pool("np-1", **pool), types=three_types())
    (claim,) = cluster.provision(*cluster.pods(1, cpu="1800m")).claims
    return {spec.key: set(spec.values) for spec in claim.spec.requirements}


def test_a_simulated_claim_for_one_reservation_is_reserved_only(cluster):
    assert fallback_claim(cluster)[CAPACITY_TYPE] == {"reserved"}


def test_a_simulated_claim_with_min_values_is_reserved_only(cluster):
    asked = fallback_claim(cluster, requirements=[minimum(2, INSTANCE_TYPE)])
    assert asked[CAPACITY_TYPE] == {"reserved"}
    assert asked[INSTANCE_TYPE] == {SMALL, MEDIUM}
