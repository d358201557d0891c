"""The verifier rejects every corrupted plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import ARCH, INSTANCE_TYPE, ZONE
from karpenter_core.api.records import HostPort, Toleration
from karpenter_core.scheduling.problem import PodVolumes, SchedulingPlan, UnschedulablePod
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    daemon,
    existing_node,
    instance_type,
    node_pool,
    node_term,
    offering,
    pod,
    pod_shape,
    pods,
    problem,
    requirement_spec,
)
from tests.scheduling.handmade_plans import TYPE, WEB, claim, judged, term
from tests.scheduling.handmade_plans import pod as by_hand
from tests.verifier import hosts_alone, leftovers, violations

RESERVATION = "example.com/reservation-id"
PODS = (*pods(4, "web", cpu="3", node_selector={ARCH: "amd64"}), pod("port", host_ports=[80]))
ASKED = problem(
    PODS,
    pools=[node_pool(limits={"cpu": "64"})],
    nodes=[existing_node("old", available={"cpu": "150m"}), existing_node("used", cpu="1")],
    daemons=[daemon(cpu="200m")],
)
PLAN = solve(ASKED)


def with_claim(**changes):
    return replace(PLAN, claims=(replace(PLAN.claims[0], **changes), *PLAN.claims[1:]))


def listing(*names):
    """List other types, in the requirement too."""
    kept = tuple(r for r in PLAN.claims[0].requirements if r.key != INSTANCE_TYPE)
    listed = Requirement.of(INSTANCE_TYPE, "In", names)
    return with_claim(instance_types=names, requirements=(*kept, listed))


def test_the_unmodified_plan_is_valid():
    """Otherwise the cases below would prove nothing."""
    assert violations(ASKED, PLAN) == []
    assert PLAN.claims
    assert PLAN.existing


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (replace(PLAN, claims=PLAN.claims[1:]), "not each in one place"),
        (with_claim(pods=(*PLAN.claims[0].pods, PODS[-1])), "not each in one place"),
        (listing("c-1x", *PLAN.claims[0].instance_types), "c-1x: cpu"),
        (listing(*PLAN.claims[0].instance_types[::-1]), "not sorted by price"),
        (listing("cg-32x"), "cg-32x cannot be bought"),
        (with_claim(instance_types=PLAN.claims[0].instance_types[:1]), "list of instance types"),
        (
            with_claim(cheapest=replace(PLAN.claims[0].cheapest, price_per_hour=0.0)),
            "cheapest is 0.0",
        ),
        (replace(PLAN, cost=replace(PLAN.cost, hourly=1.0)), "is not the sum"),
        (replace(PLAN, existing={"old": PODS}), "node old: cpu"),
        (
            replace(PLAN, claims=tuple(replace(c, pool="default") for c in PLAN.claims) * 9),
            "exceeds the limit",
        ),
    ],
)
def test_a_corrupted_plan_is_refused(spoilt, said):
    """Each kind of mistake is found and named."""
    assert any(said in text for text in violations(ASKED, spoilt))


def test_taints_ports_and_min_values_are_judged():
    """Rules that the plan above does not touch."""
    tainted = replace(ASKED, pools=(node_pool(taints=["team:NoSchedule"]),))
    assert any("does not tolerate" in text for text in violations(tainted, PLAN))
    wanting = node_pool(requirements=[requirement_spec(INSTANCE_TYPE, "Exists", min_values=40)])
    greedy = replace(ASKED, pools=(wanting,))
    assert any("minValues 40" in text for text in violations(greedy, PLAN))
    twice = problem(pods(2, shape=pod_shape(host_ports=[80])))
    plan = solve(twice)
    together = replace(plan, claims=(replace(plan.claims[0], pods=twice.pods),))
    assert any("port 80 is taken" in text for text in violations(twice, together))


def test_ports_exclude_each_other_on_overlapping_addresses_only():
    """Same number and protocol, and the same address or any."""

    def pair(first, second):
        ports = [HostPort(port=80, **how) for how in (first, second)]
        return judged(claim(*(by_hand(f"p{n}", host_ports=[p]) for n, p in enumerate(ports))))

    assert pair({"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}) == []
    assert pair({"protocol": "UDP"}, {}) == []
    assert pair({"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}) != []
    assert pair({"ip": "10.0.0.1"}, {}) != []


def test_daemons_take_resources_and_ports_on_planned_claims():
    """Daemons count where they may run."""
    taking = pod_shape(cpu="15900m", host_ports=[80], owner_kind="DaemonSet")
    elsewhere = pod_shape(cpu="15900m", node_selector={ARCH: "arm64"}, owner_kind="DaemonSet")
    web = by_hand("web", host_ports=[80])
    texts = judged(claim(web), daemons=[daemon(shape=taking)])
    assert any("cpu: 16000 on 15900" in text for text in texts)
    assert any("port 80 is taken" in text for text in texts)
    assert judged(claim(web), daemons=[daemon(shape=elsewhere)]) == []


def test_a_claim_must_match_its_pool():
    """Its requirements, whatever the operator, and its labels."""
    web = by_hand("web")
    for requirement, good in (
        ((ZONE, "In", "zone-a"), True),
        ((ZONE, "NotIn", "zone-a"), False),
        ((ZONE, "In", "zone-b"), False),
        (("example.com/rack", "In", "r1"), False),
        (("example.com/rack", "DoesNotExist"), True),
    ):
        texts = judged(claim(web), pools=[node_pool(requirements=[requirement])])
        assert (texts == []) == good, requirement
    labelled = node_pool(labels={"example.com/team": "blue"})
    wrong = claim(web, **{"example.com/team": "green"})
    assert any("the pool says" in text for text in judged(wrong, pools=[labelled]))


def test_limits_hold_for_the_largest_type_and_count_nodes():
    """One claim less is fine; so is a limit that nothing reaches."""
    claims = [claim(by_hand(f"web-{n}")) for n in range(2)]
    for limits, usage, good in (
        ({"nodes": "2"}, {}, True),
        ({"nodes": "2"}, {"nodes": 1}, False),
        ({"cpu": "32"}, {}, True),
        ({"cpu": "32"}, {"cpu": 1}, False),
        ({"cpu": "31"}, {}, False),
    ):
        texts = judged(*claims, pools=[node_pool(limits=limits)], pool_usage={"default": usage})
        assert (texts == []) == good, (limits, usage)
    larger = replace(offering(price=2.0), capacity_override={"cpu": 32000})
    both = replace(TYPE, offerings=(offering(price=1.0), larger))
    texts = judged(claim(by_hand("web")), types=(both,), pools=[node_pool(limits={"cpu": "16"})])
    assert any("cpu 32000 exceeds the limit 16000" in text for text in texts)


def test_one_offering_with_other_capacity_must_fit():
    """The provider launches one that holds the pods; when there is none, it says so."""
    small = replace(offering(price=0.5), capacity_override={"cpu": 100})
    both = replace(TYPE, offerings=(small, offering(price=1.0)))
    assert judged(claim(by_hand("web")), types=(both,)) == []
    only = replace(TYPE, offerings=(small,))
    assert any("large: cpu" in text for text in judged(claim(by_hand("web")), types=(only,)))


# -- volumes ---------------------------------------------------------------------------------------


def in_zone(*zones):
    return tuple(Requirements.from_labels({ZONE: f"zone-{zone}"}) for zone in zones)


def test_volumes_must_be_mountable_wherever_the_claim_may_launch():
    """One of their alternatives, for each type; none means anywhere."""
    web = by_hand("web")
    for zones, alternatives, good in (
        ("a", in_zone("a"), True),
        ("ab", in_zone("a", "b"), True),
        ("ab", in_zone("a"), False),
        ("a", in_zone("b", "c"), False),
        ("abc", (Requirements(),), True),
        ("abc", (), True),
    ):
        volumes = {web.uid: PodVolumes(alternatives=alternatives)}
        assert (judged(claim(web, zones=zones), volumes=volumes) == []) == good
    old = existing_node("old")
    on_old = {"existing": {"old": (web,)}, "nodes": [old]}
    assert judged(**on_old, volumes={web.uid: PodVolumes(alternatives=in_zone("a"))}) == []
    texts = judged(**on_old, volumes={web.uid: PodVolumes(alternatives=in_zone("b"))})
    assert any("volumes of web are not to be had here" in text for text in texts)


def test_a_node_attaches_so_many_volumes_and_a_shared_one_once():
    """By driver, with those that are attached already."""
    one, two = by_hand("one"), by_hand("two")

    def attached(limits, *claims, there=()):
        volumes = {
            pod.uid: PodVolumes(attached={"disk": frozenset({name})})
            for pod, name in zip((one, two), claims, strict=True)
        }
        node = replace(existing_node("old"), volume_limits=limits, volumes={"disk": {*there}})
        return judged(existing={"old": (one, two)}, nodes=[node], volumes=volumes)

    assert attached({"disk": 2}, "x", "y") == []
    assert attached({"disk": 1}, "x", "x") == []
    assert attached({"disk": 1}, "x", "x", there=("x",)) == []
    assert attached({"tape": 1}, "x", "y") == []
    texts = attached({"disk": 1}, "x", "y")
    assert any("disk attaches 2 volumes, the limit is 1" in text for text in texts)
    assert any("disk attaches 3" in text for text in attached({"disk": 2}, "x", "y", there=("z",)))


# -- reservations ----------------------------------------------------------------------------------


def reserved_type(**reservations):
    """Make the large type with reserved offerings in zone-a beside an on-demand one."""
    plain = offering(price=2.0)
    absent = Requirement.of(RESERVATION, "DoesNotExist")
    sold = [replace(plain, requirements=plain.requirements.add(absent))]
    for name, count in reservations.items():
        held = offering(capacity_type="reserved", price=1.0)
        requirements = held.requirements.add(Requirement.of(RESERVATION, "In", (name,)))
        sold.append(replace(held, requirements=requirements, reservation_capacity=count))
    return replace(TYPE, offerings=tuple(sold))


def reserved_claim(name, *reservations, kinds=("reserved",)):
    more = (Requirement.of(RESERVATION, "In", reservations),) if reservations else ()
    return claim(by_hand(name), kinds=kinds, more=more)


@pytest.mark.parametrize(
    ("wishes", "good"),
    [
        (["r1"], True),
        (["r1", "r1"], False),
        (["r1", "r2", "r2"], True),
        (["r1 r2", "r1", "r2"], True),
        (["r1 r2", "r1 r2", "r1 r2"], True),
        (["r1 r2", "r1", "r2", "r2"], False),
        (["", "", "", ""], False),
    ],
)
def test_reservations_are_not_overcommitted(wishes, good):
    """r1 is there once, r2 twice; who may have either takes what is left."""
    claims = [reserved_claim(f"web-{n}", *wish.split()) for n, wish in enumerate(wishes)]
    texts = judged(*claims, types=(reserved_type(r1=1, r2=2),), well_known=[RESERVATION])
    assert (texts == []) == good


def test_claims_that_may_be_something_else_need_no_reservation():
    """Two claims of one reservation, but on demand will do."""
    claims = [reserved_claim(f"web-{n}", kinds=("reserved", "on-demand")) for n in range(2)]
    types = (reserved_type(r1=1),)
    assert judged(*claims, types=types, well_known=[RESERVATION]) == []


# -- taints and selectors --------------------------------------------------------------------------


def test_tolerations_compare_numbers_too():
    """Gt and Lt of numeric taints; preferences never matter."""
    pools = [node_pool(taints=["risk=5:NoSchedule", "soft:PreferNoSchedule"])]
    for operator, value, good in (("Lt", "6", True), ("Lt", "5", False), ("Gt", "4", True)):
        tolerating = by_hand(
            "web", tolerations=[Toleration(key="risk", operator=operator, value=value)]
        )
        assert (judged(claim(tolerating), pools=pools) == []) == good


def test_node_affinity_is_read_as_kubernetes_does():
    """Numbers, deprecated names of labels, terms without expressions."""
    cores = "example.com/cores"
    for expressions, good in (
        ([(cores, "Gt", "15")], True),
        ([(cores, "Lt", "16")], False),
        ([("failure-domain.beta.kubernetes.io/zone", "In", "zone-a")], True),
        ([("failure-domain.beta.kubernetes.io/zone", "In", "zone-b")], False),
        ([], False),
    ):
        web = by_hand("web", required=(node_term(*expressions),))
        counted = instance_type("large", cpu="16", price=1.0, labels={cores: "16"})
        texts = judged(claim(web), types=(counted,))
        assert (texts == []) == good, expressions


def test_pending_pods_that_a_node_would_take_are_reported():
    """A further claim, or an existing node; not beyond limits, nor against anti-affinity."""
    web = by_hand("web")
    left = SchedulingPlan(unschedulable={web.uid: UnschedulablePod(message="left")})
    old = existing_node("old")

    def leftover_texts(**how):
        return list(leftovers(problem([web], **how), left))

    assert leftover_texts() == ["web is left, c-1x of default in zone-a spot would take it"]
    assert leftover_texts(pools=[], nodes=[old]) == ["web is left, node old would take it"]
    assert leftover_texts(pools=[node_pool(limits={"nodes": "0"})]) == []
    assert leftover_texts(pools=[node_pool(taints=["team:NoSchedule"])]) == []
    objector = by_hand("objector", node_name="old", pod_anti_affinity=term(selector=WEB))
    kept_away = replace(old, pods=(objector,))
    assert leftover_texts(pools=[], nodes=[kept_away]) == []
    assert "zone-b" in leftover_texts(nodes=[kept_away])[0]
    assert list(leftovers(ASKED, PLAN)) == []


@pytest.mark.parametrize("type_key", [INSTANCE_TYPE, "beta.kubernetes.io/instance-type"])
def test_a_launching_node_takes_no_pod_that_avoids_what_it_may_turn_out_to_be(type_key):
    """It has no instance type yet; a node that will never have the label is safe."""
    avoids = by_hand("avoids", required=(node_term((type_key, "NotIn", "large")),))
    left = SchedulingPlan(unschedulable={avoids.uid: UnschedulablePod(message="left")})
    bare = replace(existing_node("new"), labels={ZONE: "zone-a"})
    launching = replace(bare, requirements=Requirements.from_labels({ZONE: "zone-a"}))
    small = Requirements.from_labels({ZONE: "zone-a", INSTANCE_TYPE: "small"})

    def takers(node):
        asked = problem([avoids], pools=[], nodes=[node])
        return list(leftovers(asked, left)), list(solve(asked).unschedulable)

    assert takers(launching) == ([], [avoids.uid])
    for node in (bare, replace(launching, requirements=small)):
        assert takers(node) == (["avoids is left, node new would take it"], [])


def test_brute_force_finds_a_node_or_none():
    """The other direction: what could be launched for a pod alone."""
    assert hosts_alone(ASKED, PODS[0]) is not None
    assert hosts_alone(ASKED, pod(cpu="1000")) is None
    assert hosts_alone(ASKED, pod(node_selector={ARCH: "mips"})) is None
