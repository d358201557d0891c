"""The verifier of topology rules: each broken rule is reported, each kept one is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, ON_DEMAND, SPOT, ZONE
from karpenter_core.api.records import LabelSelector, LabelSelectorRequirement, WeightedAffinityTerm
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.testing.builders import EPOCH, existing_node, node_pool, node_term
from tests.scheduling.handmade_plans import DB, WEB, claim, judged, pod, spread, term

TEAMS = {"default": {}, "shop": {"team": "a"}, "lab": {"team": "b"}}
RACK = "example.com/rack"


def spread_pods(count, **how):
    constraint = spread(**how)
    return [pod(f"web-{number}", topology_spread=constraint) for number in range(count)]


def running(name, app="web", **more):
    return replaced(pod(name, app, node_name="old", **more), phase="Running")


def said(texts, part):
    return any(part in text for text in texts)


# -- the order -------------------------------------------------------------------------------------


def test_the_sequence_must_hold_exactly_the_placed_pods():
    """No pod missing, none twice; pending pods are not in it."""
    one, two = pod("one"), pod("two")
    assert judged(claim(one, two)) == []
    assert said(judged(claim(one, two), sequence=(one,)), "is not what was placed")
    assert said(judged(claim(one, two), sequence=(one, two, two)), "is not what was placed")
    assert said(judged(claim(one), pods=(one, two), sequence=(one, two)), "not what was placed")


# -- topology spread -------------------------------------------------------------------------------


def test_spread_counts_pods_in_the_order_of_the_plan():
    """The same places in another order may not be allowed."""
    one, two, three, four = spread_pods(4)
    claims = (claim(one, four, zones="a"), claim(two, zones="b"), claim(three, zones="c"))
    assert judged(*claims, sequence=(one, two, three, four)) == []
    assert said(judged(*claims, sequence=(one, four, two, three)), "web-3: spread over")


def test_a_zone_that_pools_could_make_counts_as_empty():
    """It keeps the minimum at 0 although no node is there."""
    pods = spread_pods(3)
    claims = (claim(pods[0], pods[2], zones="a"), claim(pods[1], zones="b"))
    order = {"sequence": pods}
    assert said(judged(*claims, **order), "skew 2 in zone-a exceeds 1")
    two_zones = node_pool(requirements=[(ZONE, "In", "zone-a", "zone-b")])
    assert judged(*claims, pools=[two_zones], **order) == []


def test_a_zone_that_only_an_existing_node_has_counts_too():
    """An empty node in zone-x keeps the minimum at 0."""
    pods = spread_pods(2)
    pool = node_pool(requirements=[(ZONE, "In", "zone-a")])
    assert judged(claim(*pods), pools=[pool]) == []
    far = existing_node("far", labels={ZONE: "zone-x"})
    assert said(judged(claim(*pods), pools=[pool], nodes=[far]), "skew 2 in zone-a")
    gone = replace(far, closed=True)
    assert judged(claim(*pods), pools=[pool], nodes=[gone]) == []


def test_a_pods_own_selector_leaves_out_zones():
    """Only the zones it may go to count for the minimum."""
    pods = [
        pod(f"web-{n}", topology_spread=spread(), node_selector={ZONE: "zone-a"}) for n in range(3)
    ]
    assert judged(claim(*pods)) == []


@pytest.mark.parametrize(("skew", "good"), [(1, False), (2, True)])
def test_max_skew_is_the_difference_that_is_allowed(skew, good):
    """Two in one zone, none in the others."""
    assert (judged(claim(*spread_pods(2, max_skew=skew))) == []) == good


def test_too_few_domains_keep_the_minimum_at_zero():
    """minDomains 3 with two zones: the third pod has no place."""
    pool = node_pool(requirements=[(ZONE, "In", "zone-a", "zone-b")])
    for least, good in ((2, True), (3, False)):
        one, two, three = spread_pods(3, min_domains=least)
        texts = judged(
            claim(one, three), claim(two, zones="b"), pools=[pool], sequence=(one, two, three)
        )
        assert (texts == []) == good


def test_the_minimum_over_hostnames_is_zero():
    """A node more can always be made, so at most maxSkew pods share one."""
    one, two = spread_pods(2, key=HOSTNAME)
    assert judged(claim(one), claim(two)) == []
    assert said(judged(claim(one, two)), f"spread over {HOSTNAME}: skew 2")


def test_existing_pods_count_unless_they_leave_or_end():
    """Running ones do; terminating ones, and those being placed anew, do not."""
    (new,) = spread_pods(1)

    def on_old(*bound, **more):
        old = existing_node("old", bound=bound)
        return judged(claim(new), nodes=[old], sequence=more.pop("sequence", None), **more)

    assert on_old() == []
    assert said(on_old(running("there")), "web-0: spread over")
    assert on_old(running("there", app="db")) == []
    assert on_old(running("there", namespace="shop")) == []
    assert on_old(replaced(running("there"), deletion_timestamp=EPOCH)) == []
    leaving = running("there")
    assert on_old(leaving, pods=(new, leaving)) == []


def test_pods_without_the_constraint_are_counted():
    """A pod without a constraint counts for one that has it, and one may not count itself."""
    plain, strict = pod("plain"), pod("strict", topology_spread=spread())
    assert said(judged(claim(plain, strict)), "strict: spread over")
    assert judged(claim(strict, plain)) == []
    other = pod("other", app="db", topology_spread=spread())
    assert judged(claim(plain, other)) == []


def test_no_selector_selects_no_pod_and_an_empty_one_every_pod():
    """Of the pod's namespace."""
    assert judged(claim(*spread_pods(3, selector=None))) == []
    texts = judged(claim(pod("other", app="db"), *spread_pods(1, selector=LabelSelector())))
    assert said(texts, "web-0: spread over")


def test_match_label_keys_separate_revisions():
    """Only pods of the same value count; a key that the pod lacks changes nothing."""
    how = spread(match_label_keys=("version",))
    old = pod("old", labels={"version": "1"}, topology_spread=how)
    new = pod("new", labels={"version": "2"}, topology_spread=how)
    bare = pod("bare", topology_spread=how)
    assert judged(claim(old, new)) == []
    assert said(judged(claim(old, bare)), "bare: spread over")


def test_nodes_that_the_pod_may_not_use_count_by_policy():
    """Affinity: Honor leaves them out; taints: Ignore leaves them in."""
    arm = existing_node("old", labels={ARCH: "arm64"}, bound=[running("there")])
    tainted = existing_node("old", taints=["dedicated:NoSchedule"], bound=[running("there")])
    for nodes, honours, ignores in (
        ([arm], {}, {"node_affinity_policy": "Ignore"}),
        ([tainted], {"node_taints_policy": "Honor"}, {}),
    ):
        for how, good in ((honours, True), (ignores, False)):
            new = pod("new", topology_spread=spread(**how), node_selector={ARCH: "amd64"})
            assert (judged(claim(new), nodes=nodes) == []) == good


def test_domains_behind_taints_count_by_policy():
    """A zone that only a tainted pool makes is one the pod cannot reach."""
    pools = [
        node_pool(requirements=[(ZONE, "In", "zone-a")]),
        node_pool("guarded", requirements=[(ZONE, "In", "zone-b")], taints=["team:NoSchedule"]),
    ]
    assert judged(claim(*spread_pods(2, node_taints_policy="Honor")), pools=pools) == []
    assert said(judged(claim(*spread_pods(2)), pools=pools), "web-1: spread over")


def test_a_node_needs_all_keys_of_the_pods_constraints_to_be_chosen():
    """And to be counted by any of them."""
    both = (*spread(), *spread(key=RACK))
    pools = [node_pool(requirements=[(RACK, "In", "r1", "r2")])]
    new = pod("new", topology_spread=both)
    assert said(judged(claim(new), pools=[node_pool()]), f"spread over {RACK}")
    first = claim(new, more=(Requirement.of(RACK, "In", ("r1",)),), **{RACK: "r1"})
    assert judged(first, pools=pools) == []
    bare, racked = (
        existing_node("old", labels=labels, bound=[running("there")])
        for labels in ({}, {RACK: "r2"})
    )
    assert judged(first, pools=pools, nodes=[bare]) == []
    assert said(judged(first, pools=pools, nodes=[racked]), f"new: spread over {ZONE}")


def test_a_launching_node_adds_no_domain():
    """Its pods count where it will be, but an empty one is no minimum."""
    ordered = existing_node("old", labels={ZONE: "zone-x"})
    ordered = replace(ordered, requirements=Requirements.from_labels({ZONE: "zone-x"}))
    pools = [node_pool(requirements=[(ZONE, "In", "zone-a")])]
    two = spread_pods(2)
    assert judged(claim(*two), nodes=[ordered], pools=pools) == []
    there = replace(ordered, requirements=None)
    assert said(judged(claim(*two), nodes=[there], pools=pools), "web-1: spread over")


def test_terms_of_the_pods_affinity_decide_which_zones_count():
    """Of several terms, the one by which it is here."""
    either = (node_term((ZONE, "In", "zone-a")), node_term((ZONE, "In", "zone-b")))
    pods = [pod(f"web-{n}", topology_spread=spread(), required=either) for n in range(2)]
    assert judged(claim(*pods)) == []
    there = existing_node("there", labels={ZONE: "zone-b"})
    assert judged(claim(*pods), nodes=[there]) == []
    wider = [pod(f"wide-{n}", topology_spread=spread()) for n in range(2)]
    assert said(judged(claim(*wider), nodes=[there]), "wide-1: spread over")


def test_zones_where_a_pod_may_not_go_never_hold_it_back():
    """For every policy: an empty domain counts no pods, and is no minimum."""
    there = existing_node("there", labels={ZONE: "zone-b"})
    for policy in ("Honor", "Ignore"):
        pods = [
            pod(
                f"web-{n}",
                topology_spread=spread(node_affinity_policy=policy),
                node_selector={ZONE: "zone-a"},
            )
            for n in range(2)
        ]
        assert judged(claim(*pods), nodes=[there]) == []


# -- pod affinity ----------------------------------------------------------------------------------


def test_affinity_needs_a_pod_in_the_same_domain():
    """Already there, in the plan's order."""
    db, web = pod("db", app="db"), pod("web", pod_affinity=term(selector=DB))
    assert judged(claim(db), claim(web)) == []
    assert said(judged(claim(db), claim(web), sequence=(web, db)), "web: affinity over")
    assert said(judged(claim(db), claim(web, zones="b")), "web: affinity over")
    assert said(judged(claim(web)), "web: affinity over")
    bound = existing_node("old", bound=[running("there", app="db")])
    assert judged(claim(web), nodes=[bound]) == []
    close = pod("close", pod_affinity=term(HOSTNAME, DB))
    assert judged(claim(db, close)) == []
    assert said(judged(claim(db), claim(close)), "close: affinity over")


def test_the_first_pod_of_an_affinity_group_may_use_any_domain():
    """And the next ones go there; but only if it matches its own selector."""
    one, two = (pod(name, pod_affinity=term()) for name in ("one", "two"))
    assert judged(claim(one), claim(two)) == []
    assert said(judged(claim(one), claim(two, zones="b")), "two: affinity over")
    alone = pod("alone", app="db", pod_affinity=term())
    assert said(judged(claim(alone)), "alone: affinity over")


def test_no_pod_is_the_first_where_its_selector_keeps_it_from_the_others():
    """kube-scheduler counts the others of the kind wherever they are."""
    old = existing_node("old", labels={ZONE: "zone-c"}, bound=[running("there")])
    free, held = (
        pod("free", pod_affinity=term()),
        pod("held", pod_affinity=term(), node_selector={ZONE: "zone-a"}),
    )
    assert said(judged(claim(free), nodes=[old]), "free: affinity over")
    assert said(judged(claim(held), nodes=[old]), "held: affinity over")
    hosts = pod("hosts", pod_affinity=term(HOSTNAME), node_selector={ZONE: "zone-a"})
    assert said(judged(claim(hosts), nodes=[old]), "hosts: affinity over")


def test_pods_on_nodes_without_the_label_of_any_term_do_not_count():
    bare = existing_node("bare", labels={}, bound=[running("there")])
    free = pod("free", pod_affinity=term())
    both = pod("both", pod_affinity=(*term(), *term(HOSTNAME)))
    assert judged(claim(free), nodes=[bare]) == []
    assert said(judged(claim(both), nodes=[bare]), "both: affinity over")


def test_several_terms_are_met_by_pods_that_meet_all_of_them():
    """As kube-scheduler 1.36 counts: a database and a front end are no pod that is both."""
    front = LabelSelector(match_labels={"tier": "front"})
    web = pod("web", pod_affinity=(*term(selector=DB), *term(HOSTNAME, front)))
    both = pod("both", app="db", labels={"tier": "front"})
    db, face = pod("db", app="db"), pod("face", labels={"tier": "front"})
    assert judged(claim(both, web)) == []
    assert said(judged(claim(both), claim(web)), f"affinity over {HOSTNAME}")
    assert said(judged(claim(db, face, web)), f"affinity over {ZONE}")
    assert said(judged(claim(db, face, web)), f"affinity over {HOSTNAME}")


def test_pods_that_meet_one_of_several_terms_need_no_fixed_zone():
    """No term counts them, wherever their node will be."""
    front = LabelSelector(match_labels={"tier": "front"})
    web = pod("web", pod_affinity=(*term(selector=DB), *term(selector=front)))
    both = pod("both", app="db", labels={"tier": "front"})
    db = pod("db", app="db")
    assert judged(claim(both, web), claim(db, zones="ab")) == []
    assert said(judged(claim(both, web), claim(both, zones="ab")), "web counts both")


@pytest.mark.parametrize(
    ("namespace", "more", "good"),
    [
        ("default", {}, True),
        ("shop", {}, False),
        ("shop", {"namespaces": ("shop", "lab")}, True),
        ("default", {"namespaces": ("shop",)}, False),
        ("shop", {"namespace_selector": LabelSelector(match_labels={"team": "a"})}, True),
        ("lab", {"namespace_selector": LabelSelector(match_labels={"team": "a"})}, False),
        ("lab", {"namespace_selector": LabelSelector()}, True),
        (
            "lab",
            {
                "namespaces": ("lab",),
                "namespace_selector": LabelSelector(match_labels={"team": "a"}),
            },
            True,
        ),
    ],
)
def test_affinity_and_anti_affinity_respect_namespaces(namespace, more, good):
    """Their own, listed ones, selected ones; what affinity finds, anti-affinity objects to."""
    there = pod("there", app="db", namespace=namespace)
    drawn = pod("drawn", pod_affinity=term(selector=DB, **more))
    repelled = pod("repelled", pod_anti_affinity=term(selector=DB, **more))
    assert (judged(claim(there, drawn), namespaces=TEAMS) == []) == good
    assert (judged(claim(there, repelled), namespaces=TEAMS) == []) != good
    assert (judged(claim(repelled, there), namespaces=TEAMS) == []) != good


# -- pod anti-affinity -----------------------------------------------------------------------------


def test_anti_affinity_holds_in_both_directions():
    """Against who is there, and by who is there."""
    db, web = pod("db", app="db"), pod("web", pod_anti_affinity=term(selector=DB))
    assert judged(claim(db), claim(web, zones="b")) == []
    assert said(judged(claim(db), claim(web)), "web: anti-affinity over")
    assert said(judged(claim(web), claim(db)), "db: anti-affinity over")
    objector = running("there", pod_anti_affinity=term(selector=DB))
    old = existing_node("old", bound=[objector])
    assert said(judged(claim(db), nodes=[old]), "there on node old does not want it")
    assert judged(claim(db, zones="b"), nodes=[old]) == []
    assert judged(claim(db, zones="bc"), nodes=[old]) == []
    assert said(judged(claim(db, zones="ab"), nodes=[old]), "does not want it")
    assert judged(claim(db), nodes=[old], pods=(db, objector)) == []


def test_anti_affinity_over_hostnames_and_of_nodes_without_the_label():
    """Two claims are two hosts; who has no such label is in no domain."""
    one, two = (pod(name, pod_anti_affinity=term(HOSTNAME)) for name in ("one", "two"))
    assert judged(claim(one), claim(two)) == []
    assert said(judged(claim(one, two)), "two: anti-affinity over")
    lone = [pod(name, pod_anti_affinity=term(RACK)) for name in ("one", "two")]
    assert judged(claim(*lone)) == []


def test_closed_nodes_count_and_take_nothing():
    """Their pods are there until they are gone."""
    objector = running("there", pod_anti_affinity=term(selector=DB))
    closed = replace(existing_node("old", bound=[objector]), closed=True)
    db = pod("db", app="db")
    assert said(judged(claim(db), nodes=[closed]), "does not want it")
    assert said(judged(existing={"old": (pod("web"),)}, nodes=[closed]), "takes no more pods")


def test_preferences_are_never_violated():
    """Soft spread, and preferred affinity and anti-affinity."""
    wish = (WeightedAffinityTerm(weight=100, term=term()[0]),)
    pods = (
        *(pod(f"soft-{n}", topology_spread=spread(hard=False)) for n in range(3)),
        pod("drawn", preferred_pod_affinity=(replaced(wish[0], term=term(selector=DB)[0]),)),
        pod("repelled", preferred_pod_anti_affinity=wish),
    )
    assert judged(claim(*pods, zones="ab", kinds=(SPOT, ON_DEMAND))) == []


# -- true domains ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constraint",
    [
        {"topology_spread": spread()},
        {"pod_affinity": term()},
        {"pod_anti_affinity": term(selector=DB)},
    ],
    ids=["spread", "affinity", "anti-affinity"],
)
def test_zones_are_fixed_where_they_are_counted(constraint):
    """On the claim of the pod that cares, and on the claims of the pods that it counts."""
    cares = pod("cares", **constraint)
    assert judged(claim(cares)) == []
    assert said(judged(claim(cares, zones="ab")), f"{ZONE} not fixed: cares cares")
    counted = pod("counted", app="db" if "pod_anti_affinity" in constraint else "web")
    texts = judged(claim(cares), claim(counted, zones="bc"))
    assert said(texts, f"{ZONE} not fixed: cares counts counted")
    assert judged(claim(cares), claim(pod("free", app="ui"), zones="abc")) == []


def test_any_key_is_fixed_where_it_is_counted():
    """Capacity types too, while zones stay open."""
    pods = spread_pods(1, key=CAPACITY_TYPE)
    assert judged(claim(*pods, zones="abc", kinds=(SPOT,))) == []
    texts = judged(claim(*pods, kinds=(SPOT, ON_DEMAND)))
    assert said(texts, f"{CAPACITY_TYPE} not fixed")


def test_a_launching_node_counts_in_every_possible_zone():
    """An undecided zone counts as the worst case."""
    node = existing_node("old", requirements=Requirements())
    labels = {key: value for key, value in node.labels.items() if key != ZONE}
    open_zone = Requirement.of(ZONE, "In", ("zone-a", "zone-b"))
    node = replace(node, labels=labels, requirements=Requirements((open_zone,)))
    objector = pod("objector", pod_anti_affinity=term(selector=DB))
    db = pod("db", app="db")
    for zone, good in (("a", False), ("b", False), ("c", True)):
        texts = judged(
            claim(objector, zones=zone), existing={"old": (db,)}, nodes=[node], pods=(objector, db)
        )
        assert (texts == []) == good
    picky = pod("picky", node_selector={ZONE: "zone-a"})
    assert said(judged(existing={"old": (picky,)}, nodes=[node]), "does not select")


def test_selectors_by_expressions_are_read():
    """In, NotIn, Exists and DoesNotExist of labels."""

    def by(operator, *values):
        expression = LabelSelectorRequirement(key="tier", operator=operator, values=values)
        return LabelSelector(match_expressions=(expression,))

    front, bare = pod("front", labels={"tier": "front"}), pod("bare")
    for selector, selected in (
        (by("In", "front", "back"), (True, False)),
        (by("NotIn", "front"), (False, True)),
        (by("Exists"), (True, False)),
        (by("DoesNotExist"), (False, True)),
        (WEB, (True, True)),
    ):
        repelled = pod("repelled", pod_anti_affinity=term(selector=selector))
        for there, is_selected in zip((front, bare), selected, strict=True):
            assert (judged(claim(there, repelled)) == []) != is_selected
