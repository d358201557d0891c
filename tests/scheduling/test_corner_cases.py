"""Corner cases of placement found by random problems: each was an invalid plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    ON_DEMAND,
    RESERVED,
    SPOT,
    ZONE,
)
from karpenter_core.api.records import LabelSelector, WeightedAffinityTerm
from karpenter_core.scheduling.problem import PackingPolicy, PodVolumes, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    daemon,
    existing_node,
    instance_type,
    node_pool,
    node_term,
    offering,
    pod_shape,
    preferred_node_term,
    problem,
)
from tests.scheduling.handmade_plans import DB, pod, spread, term
from tests.verifier import violations

RACK = "example.com/rack"
SIZE = "example.com/size"
RESERVATION = "example.com/reservation-id"


@pytest.fixture(params=list(PackingPolicy), ids=lambda packing: packing.value)
def options(request):
    """Each packing in turn."""
    return SolveOptions(packing=request.param)


def planned(asked, options):
    """Solve, and have the plan judged."""
    plan = solve(asked, options)
    assert violations(asked, plan) == []
    return plan


def left(plan):
    return sorted(uid.rpartition("-")[2] for uid in plan.unschedulable)


def running(name, node, **how):
    return replaced(pod(name, node_name=node, **how), phase="Running")


def under_way(name, *, bound=(), zones=("zone-a", "zone-b")):
    """Make a launching node of an unknown zone."""
    node = existing_node(name, bound=bound, available={"cpu": "0"})
    return replace(
        node,
        labels={HOSTNAME: name},
        requirements=Requirements([Requirement.of(ZONE, "In", zones)]),
        initialized=False,
    )


def test_a_pod_with_host_ports_is_not_the_first_where_another_term_keeps_it_away(options):
    """Of two terms over host names one selects pods like itself, the other none there."""
    lonely = pod("lonely", pod_affinity=(*term(HOSTNAME), *term(HOSTNAME, DB)), host_ports=(80,))
    other = pod("other", app="ui")
    assert left(planned(problem([lonely, other]), options)) == ["lonely"]


def test_exists_and_not_in_of_one_label_still_require_the_label(options):
    """`Exists` and `NotIn` of one label are no licence for nodes without the label."""
    wish = (preferred_node_term(1, ("example.com/team", "NotIn", "blue")),)
    one = pod("wishing", required=(node_term(("example.com/team", "Exists")),))
    one = replaced(one, shape=replaced(one.shape, preferred_node_terms=wish))
    two = pod(
        "asking",
        required=(
            node_term(("example.com/team", "Exists"), ("example.com/team", "NotIn", "blue")),
        ),
    )
    assert left(planned(problem([one, two]), options)) == ["asking", "wishing"]
    green = node_pool(labels={"example.com/team": "green"})
    assert left(planned(problem([one, two], pools=[green]), options)) == []


def test_a_bound_and_not_in_of_one_label_require_the_label(options):
    """A node without the label has no number; seen with kube-scheduler 1.36."""
    sized = pod("sized", required=(node_term((RACK, "Gt", "1"), (RACK, "NotIn", "3")),))
    nodes = [existing_node("bare")]
    assert left(planned(problem([sized], pools=[], nodes=nodes), options)) == ["sized"]
    assert left(planned(problem([sized]), options)) == ["sized"]
    racked = node_pool(labels={RACK: "2"})
    assert left(planned(problem([sized], pools=[racked]), options)) == []


def test_pod_affinity_terms_are_met_by_pods_that_meet_all_of_them(options):
    """Seen with kube-scheduler 1.36: a cache and a database in the zone are no place for a pod that
    asks for both, a pod that is both is."""
    apart = [running("cache", "there", app="cache"), running("db", "there", app="db")]
    cache = term(selector=LabelSelector(match_labels={"app": "cache"}))
    web = pod("web", pod_affinity=(*cache, *term(selector=DB)))
    nodes = [existing_node("there", bound=apart)]
    assert left(planned(problem([web], nodes=nodes), options)) == ["web"]

    role = term(HOSTNAME, LabelSelector(match_labels={"role": "primary"}))
    near = pod("near", pod_affinity=(*term(selector=DB), *role))
    primary = running("primary", "here", app="db", labels={"role": "primary"})
    nodes.append(existing_node("here", bound=[primary]))
    plan = planned(problem([near], nodes=nodes), options)
    assert list(plan.existing) == ["here"]


def test_the_first_pod_with_several_affinity_terms_meets_all_of_them(options):
    """A pod that meets one of its terms only is not the first of its group."""
    own = term(HOSTNAME, LabelSelector(match_labels={"role": "worker"}))
    both = pod("both", labels={"role": "worker"}, pod_affinity=(*term(), *own))
    assert left(planned(problem([both]), options)) == []
    half = pod("half", pod_affinity=(*term(), *own))
    assert left(planned(problem([half]), options)) == ["half"]


def test_a_preferred_affinity_term_is_met_on_its_own(options):
    """It adds to the score of a node; only the required terms are taken together."""
    wish = WeightedAffinityTerm(weight=1, term=term(HOSTNAME, DB)[0])
    wishing = pod("wishing", pod_affinity=term(), preferred_pod_affinity=(wish,))
    nodes = [
        existing_node("bare", bound=[running("web", "bare")]),
        existing_node("data", bound=[running("db", "data", app="db")]),
    ]
    plan = planned(problem([wishing], nodes=nodes), options)
    assert list(plan.existing) == ["data"]


def test_pods_that_exclude_label_values_are_not_spread_over_an_undefined_label(options):
    """The heavier pool has no rack label, so its nodes have none."""
    pools = [
        node_pool("racked", requirements=[(RACK, "In", "r1")]),
        node_pool("bare", weight=10),
    ]
    web = pod(
        "web",
        required=(node_term((RACK, "NotIn", "r2")),),
        topology_spread=spread(RACK, node_affinity_policy="Ignore"),
    )
    plan = planned(problem([web], pools=pools), options)
    assert [claim.pool for claim in plan.claims] == ["racked"]


def test_pods_that_count_once_their_claim_is_narrowed_count_already(options):
    """The spread counts nodes in zone-a; the first pod's claim is one as soon as both are there."""
    sold = [offering(zone, ON_DEMAND) for zone in ("zone-a", "zone-b")]
    sold.append(offering("zone-a", SPOT, price=5.0))
    types = catalogue(instance_type("c-4x", cpu="4", offerings=sold))
    large = pod("large", requests={"cpu": 2000})
    small = pod(
        "small",
        requests={"cpu": 100},
        node_selector={ZONE: "zone-a"},
        topology_spread=spread(CAPACITY_TYPE),
    )
    assert left(planned(problem([large, small], catalogue=types), options)) == []


def test_a_pod_is_not_the_first_of_its_kind_while_one_is_on_a_launching_node(options):
    """Its zone is unknown, so the pod waits."""
    node = under_way("coming", bound=[running("there", "coming")])
    web = pod("web", pod_affinity=term())
    assert left(planned(problem([web], nodes=[node]), options)) == ["web"]
    settled = under_way("coming", bound=[running("there", "coming")], zones=("zone-b",))
    plan = planned(problem([web], nodes=[settled]), options)
    assert [claim.cheapest.zone for claim in plan.claims] == ["zone-b"]


def test_pods_keep_clear_of_each_rack_that_a_launching_node_may_be_in(options):
    """A label of the users counts like a zone; a launching node that never gets it is in no rack."""
    coming, bare = (under_way(name, bound=[running(f"db-{name}", name, app="db")]) for name in "ab")
    racks = Requirement.of(RACK, "In", ["r1", "r2"])
    coming = replace(coming, requirements=Requirements([*coming.requirements.values(), racks]))
    ready = [existing_node(rack, labels={RACK: rack}) for rack in ("r1", "r2", "r3")]
    webs = [pod(f"web-{n}", requests={"cpu": 3000}, pod_anti_affinity=term(RACK, DB)) for n in "12"]
    plan = planned(problem(webs, pools=[], nodes=[coming, bare, *ready]), options)
    assert list(plan.existing) == ["r3"]
    assert len(left(plan)) == 1


def test_no_pod_is_the_first_of_its_kind_beside_open_claims_of_first_fit():
    """The zone of the claim will be known in the next pass."""
    large = pod("large", requests={"cpu": 6000})
    web = pod("web", pod_affinity=term(), node_selector={ZONE: "zone-c"})
    plan = planned(problem([large, web]), SolveOptions(packing=PackingPolicy.FIRST_FIT))
    assert left(plan) == ["web"]


def test_a_node_that_attaches_too_much_already_takes_pods_that_attach_nothing_new(options):
    """They use a volume that is attached."""
    disks = frozenset({"default/one", "default/two"})
    node = replace(existing_node("old"), volume_limits={"disk": 1}, volumes={"disk": disks})
    web = pod("web")
    asked = replace(
        problem([web], pools=[], nodes=[node]),
        volumes={web.uid: PodVolumes(attached={"disk": frozenset({"default/one"})})},
    )
    assert list(planned(asked, options).existing) == ["old"]


def test_domains_are_filled_in_order_on_limited_capacity(options):
    """A spread over racks, and one over capacity types that counts others only."""
    absent = Requirement.of(RESERVATION, "DoesNotExist")
    plain = offering("zone-a", ON_DEMAND, price=1.0)
    paid = offering("zone-a", RESERVED, price=0.001)
    sold = (
        replace(plain, requirements=plain.requirements.add(absent)),
        replace(
            paid,
            requirements=paid.requirements.add(Requirement.of(RESERVATION, "In", ("r-1",))),
            reservation_capacity=1,
        ),
    )
    held = Requirement.of(RESERVATION, "In", ("r-1",))
    sized = instance_type("c-16x", cpu="16", offerings=sold)
    sized = replace(sized, requirements=sized.requirements.add(held))
    asked = problem(
        [
            pod(
                f"web-{number}",
                topology_spread=(*spread(RACK), *spread(CAPACITY_TYPE, 5, selector=DB)),
            )
            for number in range(4)
        ],
        pools=[node_pool(requirements=[(RACK, "In", "r1", "r2", "r3")])],
        catalogue=catalogue(sized),
        well_known=[RESERVATION],
    )
    plan = planned(asked, options)
    assert len(plan.claims) == 1
    assert len(plan.claims[0].pods) == 1


def test_a_node_in_one_of_the_zones_of_volumes_takes_the_pod(options):
    """It has to be in one of them, not in all."""
    web = pod("web")
    places = tuple(Requirements.from_labels({ZONE: zone}) for zone in ("zone-a", "zone-b"))
    for zone, homeless in (("zone-a", []), ("zone-b", []), ("zone-c", ["web"])):
        node = existing_node("old", labels={ZONE: zone})
        asked = replace(
            problem([web], pools=[], nodes=[node]),
            volumes={web.uid: PodVolumes(alternatives=places)},
        )
        assert left(planned(asked, options)) == homeless


@pytest.mark.parametrize("driver_is_first", [True, False])
def test_a_node_is_in_its_zone_however_a_csi_driver_spells_it(options, driver_is_first):
    """A driver may label a node outside zones with an empty zone."""
    alias = "csi.example/zone"
    node = existing_node("old")
    own, of_driver = {**node.labels, ZONE: "0"}, {alias: ""}
    both = of_driver | own if driver_is_first else own | of_driver
    web = pod("web", node_selector={ZONE: "0"})
    asked = replace(
        problem([web], pools=[], nodes=[replace(node, labels=both)]), aliases={alias: ZONE}
    )
    assert left(planned(asked, options)) == []


def test_a_zone_of_volumes_and_another_of_the_pod_are_not_met_by_having_none(options):
    """The node has no zone, so neither."""
    node = existing_node("bare")
    node = replace(node, labels={k: v for k, v in node.labels.items() if k != ZONE})
    web = pod("web", node_selector={ZONE: "zone-a"})
    zone_b = PodVolumes(alternatives=(Requirements.from_labels({ZONE: "zone-b"}),))
    asked = replace(problem([web], pools=[], nodes=[node]), volumes={web.uid: zone_b})
    assert left(planned(asked, options)) == ["web"]


def test_relaxed_terms_still_limit_the_nodes_that_a_spread_counts(options):
    """Five find room by the first term; the sixth may not ignore them when it goes by the second."""
    types = catalogue(
        instance_type("small", cpu="1", arch="amd64", price=0.1),
        instance_type("large", cpu="16", arch="amd64", pods="2", price=1.0),
        instance_type("arm", cpu="16", arch="arm64", price=1.0),
    )
    terms = (
        node_term((INSTANCE_TYPE, "In", "large")),
        node_term((INSTANCE_TYPE, "In", "small")),
    )
    webs = [
        pod(f"web-{n}", required=terms, topology_spread=spread(ARCH, max_skew=2)) for n in range(3)
    ]
    pool = node_pool(limits={"cpu": "17"})
    plan = planned(problem(webs, pools=[pool], catalogue=types), options)
    assert len(left(plan)) == 1


def test_claims_count_for_spreads_as_far_as_all_their_types_do(options):
    """The claim may be of either architecture by its labels, but what holds its pods is arm64."""
    types = catalogue(
        instance_type("small", cpu="2", arch="amd64", price=0.1),
        instance_type("large", cpu="16", arch="arm64", price=1.0),
    )
    pools = [
        node_pool("racked", requirements=[(RACK, "In", "r1", "r2")], weight=10, taints=["own"]),
        node_pool("mixed", labels={RACK: "r3"}, requirements=[(ARCH, "In", "amd64", "arm64")]),
    ]
    large = pod("large", app="db", requests={"cpu": 12000}, labels={"tier": "back"})
    webs = [
        pod(
            f"web-{n}",
            requests={"cpu": 10},
            labels={"tier": "back"},
            node_selector={ARCH: "amd64"},
            tolerations=("own",),
            topology_spread=spread(RACK, 3, LabelSelector(match_labels={"tier": "back"})),
        )
        for n in range(8)
    ]
    planned(problem([large, *webs], pools=pools, catalogue=types), options)


def test_pods_of_terminating_nodes_add_a_domain(options):
    """As long as they are there, theirs is the domain with the fewest."""
    old = existing_node("old", labels={RACK: "r2"}, bound=[running("there", "old")])
    webs = [pod(f"web-{n}", topology_spread=spread(RACK, 3)) for n in range(5)]
    asked = problem(webs, pools=[node_pool(labels={RACK: "r1"})], nodes=[replace(old, closed=True)])
    assert len(left(planned(asked, options))) == 1


def test_taints_that_are_preferences_keep_no_node_out_of_a_count(options):
    """The one that is there counts, so only one more goes to its zone."""
    there = [running(f"there-{n}", "old") for n in range(2)]
    old = existing_node(
        "old", taints=["soft:PreferNoSchedule"], bound=there, available={"cpu": "0"}
    )
    webs = [
        pod(f"web-{n}", topology_spread=spread(max_skew=2, node_taints_policy="Honor"))
        for n in range(2)
    ]
    pools = [node_pool(requirements=[(ZONE, "In", "zone-a", "zone-b")])]
    plan = planned(problem(webs, nodes=[old], pools=pools), options)
    assert {claim.cheapest.zone for claim in plan.claims} == {"zone-b"}


@pytest.mark.parametrize(("zones", "fits"), [("ab", True), ("a", False), ("bc", False)])
def test_a_launching_node_takes_a_pod_whose_volume_suits_each_zone_that_it_may_be_in(
    zones, fits, options
):
    """No single alternative of the volume holds for sure, but one of them will."""
    alternatives = tuple(Requirements.from_labels({ZONE: f"zone-{zone}"}) for zone in zones)
    there = Requirement.of(ZONE, "In", ["zone-a", "zone-b"])
    node = existing_node("new", initialized=False, requirements=Requirements((there,)))
    one = pod("stores")
    asked = replace(
        problem([one], pools=[], nodes=[node]),
        volumes={one.uid: PodVolumes(alternatives=alternatives)},
    )

    assert set(planned(asked, options).existing) == ({"new"} if fits else set())


def test_a_pod_is_not_the_first_of_its_kind_where_others_run_out_of_its_reach(options):
    """kube-scheduler looks at all nodes: one that is launched for the pod would not be used."""
    here = existing_node("here", labels={ZONE: "zone-a"}, bound=[running("there", "here")])
    beside = existing_node("beside", labels={ZONE: "zone-b"})
    web = pod("web", pod_affinity=term(), node_selector={ZONE: "zone-b"})
    plan = planned(problem([web], nodes=[here, beside]), options)
    assert left(plan) == ["web"]
    assert plan.claims == ()


@pytest.mark.parametrize("others", [True, False])
def test_a_pod_is_the_first_of_its_kind_if_none_is_beside_any_of_its_labels(options, others):
    """A pod on a node without the one label counts by the other: it is there all the same."""
    bound = [running("there", "bare")] if others else []
    bare = existing_node("bare", labels={ZONE: "zone-a"}, bound=bound)
    racked = existing_node("racked", labels={ZONE: "zone-a", RACK: "r1"})
    web = pod("web", pod_affinity=(*term(), *term(RACK)))
    plan = planned(problem([web], pools=[], nodes=[bare, racked]), options)
    assert left(plan) == (["web"] if others else [])


def test_nodes_without_the_label_of_one_spread_count_for_none(options):
    """kube-scheduler counts nodes that have the labels of all constraints of the pod."""
    bound = [running(name, "bare") for name in ("one", "two")]
    bare = existing_node("bare", labels={ZONE: "zone-b"}, bound=bound)
    racked = [
        existing_node(name, labels={ZONE: zone, RACK: rack})
        for name, zone, rack in (("here", "zone-a", "r1"), ("there", "zone-b", "r2"))
    ]
    here = replace(racked[0], pods=(running("three", "here"),))
    web = pod("web", topology_spread=(*spread(), *spread(RACK)))
    plan = planned(problem([web], pools=[], nodes=[bare, here, racked[1]]), options)
    assert list(plan.existing) == ["there"]


@pytest.mark.parametrize("operator", ["Exists", "Gt"])
def test_nodes_without_a_label_that_must_be_there_do_not_count(options, operator):
    """`Exists` or `Gt`, and `NotIn`, on one label: together they are no `NotIn`."""
    values = ("1",) if operator == "Gt" else ()
    sized = node_term((SIZE, operator, *values), (SIZE, "NotIn", "5"))
    here = existing_node("here", labels={SIZE: "3"}, bound=[running("one", "here")])
    other = existing_node("other", labels={ZONE: "zone-b"})
    web = pod("web", required=(sized,), topology_spread=spread())
    plan = planned(problem([web], pools=[], nodes=[here, other]), options)
    assert list(plan.existing) == ["here"]


def test_a_label_that_one_of_the_terms_wants_is_missed_by_that_term(options):
    """Each term has its own labels that must be there: `Exists` and `NotIn` are no `NotIn`."""
    sized = node_term((SIZE, "Exists"), (SIZE, "NotIn", "5"))
    racked = node_term((RACK, "In", "r1"))
    here = existing_node("here", labels={SIZE: "3"}, bound=[running("one", "here")])
    bare = existing_node("bare", labels={ZONE: "zone-b"}, bound=[running("two", "bare")])
    other = existing_node("other", labels={ZONE: "zone-b", RACK: "r1"}, cpu="3")
    near = existing_node("near", labels={RACK: "r1"}, cpu="2")
    web = pod("web", required=(sized, racked), topology_spread=spread())
    plan = planned(problem([web], pools=[], nodes=[here, bare, near, other]), options)
    assert list(plan.existing) == ["other"]


def test_no_pod_is_the_first_of_its_kind_beside_one_planned_for_an_open_zone(options):
    """The launched node may be in either zone: in zone-a, the second pod could never join it."""
    zones = Requirements((Requirement.of(ZONE, "In", ("zone-a", "zone-b")),))
    coming = existing_node("coming", requirements=zones, cpu="2", pods="1")
    large = pod("large", requests={"cpu": 1500, "pods": 1})
    near = pod("near", pod_affinity=term(), node_selector={ZONE: "zone-b"})
    asked = problem([large, near], nodes=[replace(coming, labels={HOSTNAME: "coming"})])
    plan = planned(asked, options)
    assert "coming" in plan.existing
    assert not plan.claims


@pytest.mark.parametrize(("labels", "claims"), [({}, 1), ({SIZE: "3"}, 2)])
def test_a_daemon_that_wants_a_label_to_be_there_takes_no_room_without_it(options, labels, claims):
    """`Exists` and `NotIn` of a label that the NodePool has, or has not."""
    large = daemon(
        shape=pod_shape(cpu="3", required=[node_term((SIZE, "Exists"), (SIZE, "NotIn", "5"))])
    )
    pods = [pod(name, requests={"cpu": 1500, "pods": 1}) for name in ("one", "two")]
    types = catalogue(instance_type("only", cpu="5", offerings=[offering(price=1.0)]))
    asked = problem(pods, pools=[node_pool(labels=labels)], catalogue=types, daemons=[large])
    assert len(planned(asked, options).claims) == claims


@pytest.mark.parametrize("operator", ["DoesNotExist", "In"])
def test_terms_that_exclude_themselves_count_no_nodes(options, operator):
    """`In` and `DoesNotExist` of one label, or two values: together they are no `DoesNotExist`.

    Were the node without the label counted, both zones would have one pod, and a second pod could
    join the one in zone-b.
    """
    excluded = node_term((SIZE, "In", "1"), (SIZE, operator, *(("2",) if operator == "In" else ())))
    sized = node_term((SIZE, "In", "2"))
    nodes = [
        existing_node("bare", bound=[running("one", "bare")]),
        existing_node(
            "full", labels={ZONE: "zone-b", SIZE: "2"}, bound=[running("two", "full")], cpu="1"
        ),
        existing_node("there", labels={ZONE: "zone-b", SIZE: "2"}, cpu="2"),
        existing_node("here", labels={SIZE: "2"}),
    ]
    web = pod("web", required=(excluded, sized), topology_spread=spread())
    plan = planned(problem([web], pools=[], nodes=nodes), options)
    assert list(plan.existing) == ["here"]
