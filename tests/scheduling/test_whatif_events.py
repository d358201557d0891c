"""What is told of a cluster later is as good as what it was made of."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karpenter_core.api.labels import HOSTNAME, ZONE
from karpenter_core.api.records import LabelSelector, TopologySpread
from karpenter_core.scheduling.problem import PodVolumes
from karpenter_core.scheduling.whatif import WhatIf
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    pod,
    pod_shape,
    problem,
)
from tests.properties import examples
from tests.scheduling.whatif_cases import OPTIONS, asked, drawn_cluster, told

EXAMPLES = max(examples(200) // 16, 1)

brief = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
clusters = st.randoms(use_true_random=False)


def made_anew(whatif):
    """Return a `WhatIf` of the same facts that nobody has told or asked anything."""
    cluster = whatif._cluster
    facts = cluster.framed(cluster.pending.values(), cluster.nodes.values(), cluster.usage)
    anew = WhatIf(facts, cluster.movable, OPTIONS)
    anew.bar(whatif._barred)
    return anew


def take_back_pushes(whatif):
    """Leave nothing that is not a fact."""
    while whatif._pushes:
        whatif.pop()


def answers(whatif):
    """Return what is said of every node alone, and of all but the first."""
    names = sorted(whatif._cluster.nodes)
    questions = [(name,) for name in names] + [tuple(names[1:])]
    return {names: told(whatif.evaluate(names)) for names in questions}


def happen(random, whatif, number):
    """Tell of something random; return what it was."""
    cluster = whatif._cluster
    nodes = sorted(cluster.nodes)
    running = [(p, name) for name in nodes for p in cluster.nodes[name].pods if p.is_active]
    kind = random.choice(
        ("bind", "bind", "unbind", "unbind", "pend", "unpend", "drop", "copy", "bar")
    )
    if kind == "bind" and running and nodes:
        like, _ = random.choice(running)
        more = pod(f"more-{number}", shape=like.shape, node_name="x", phase="Running")
        whatif.bind(more, random.choice(nodes), movable=random.random() < 0.8)
    elif kind == "unbind" and running:
        gone, name = random.choice(running)
        whatif.unbind(gone.uid, name)
    elif kind == "pend" and running:
        like, _ = random.choice(running)
        whatif.pend(pod(f"waiting-{number}", shape=like.shape))
    elif kind == "unpend" and cluster.pending:
        waiting = cluster.pending[random.choice(sorted(cluster.pending))]
        if nodes and random.random() < 0.5:
            whatif.bind(msgspec.structs.replace(waiting, node_name="x"), random.choice(nodes))
        else:
            whatif.drop_pending(waiting.uid)
    elif kind == "drop" and len(nodes) > 1:
        whatif.drop_node(random.choice(nodes))
    elif kind == "copy" and nodes:
        like = cluster.nodes[random.choice(nodes)]
        name = f"copy-{number}"
        labels = {**like.labels, HOSTNAME: name}
        whatif.put_node(
            replace(like, name=name, labels=labels, pods=(), initialized=not like.initialized), ()
        )
    elif kind == "bar":
        whatif.bar(nodes[: random.randrange(3)])


@given(clusters)
@brief
def test_a_cluster_that_was_told_of_changes_answers_like_one_made_anew(random):
    """Nodes, pods and pending pods come and go, with questions, pushes and pops in between."""
    whatif = asked(drawn_cluster(random))
    for number in range(8):
        happen(random, whatif, number)
        names = sorted(whatif._cluster.nodes)
        if names and random.random() < 0.5:
            whatif.evaluate(random.sample(names, random.randrange(1, len(names) + 1)))
        if names and random.random() < 0.5 and whatif.push((random.choice(names),)).fits:
            whatif.evaluate((random.choice(names),))

    take_back_pushes(whatif)

    assert answers(whatif) == answers(made_anew(whatif))


# -- one at a time ---------------------------------------------------------------------------------

TYPES = catalogue(instance_type("small", cpu="4", price=1.0, spot_discount=0.0))


def node(name, *bound, free="0", **more):
    """Make a node of four CPUs with so many left."""
    return existing_node(name, bound=bound, available={"cpu": free}, **more)


def web(name, on="", cpu="1"):
    """Make a pod that runs on a node, or waits."""
    return pod(name, cpu=cpu, node_name=on, phase="Running" if on else "Pending")


def ask(*nodes, waiting=(), pools=None):
    """Make a `WhatIf` of nodes whose pods may all move."""
    return asked(problem(waiting, nodes=nodes, catalogue=TYPES, pools=pools))


def test_a_pod_that_is_bound_takes_room_and_moves():
    """What it requests is not free any more."""
    whatif = ask(node("a", web("one", "a")), node("b", free="1"), node("c", free="1"))
    whatif.bind(web("two", "b"), "b")

    assert whatif.evaluate(("a",)).fits
    assert [name for name, _ in whatif.evaluate(("a",)).placements] == ["c"]
    assert not whatif.evaluate(("a", "b")).fits


def test_a_pod_that_is_gone_leaves_its_room():
    """And does not move."""
    whatif = ask(node("a", web("one", "a")), node("b", web("two", "b")))
    assert not whatif.evaluate(("a",)).fits

    whatif.unbind("uid-default-two", "b")

    assert whatif.evaluate(("a",)).fits
    assert whatif.evaluate(("b",)).placements == ()


def test_a_pending_pod_that_is_bound_elsewhere_frees_the_place_meant_for_it():
    """Its place was only a plan."""
    whatif = ask(
        node("a", web("one", "a")), node("b", free="1"), node("c", free="1"), waiting=(web("w"),)
    )
    assert [name for name, _ in whatif.evaluate(("a",)).placements] == ["c"]

    whatif.bind(web("w", "c"), "c")

    assert [name for name, _ in whatif.evaluate(("a",)).placements] == ["b"]


def test_pods_of_a_kind_that_nobody_has_seen_are_known_once_told():
    """Everything is compiled anew then."""
    whatif = ask(node("a"), node("b", free="1"))
    assert whatif.evaluate(("a",)).placements == ()

    whatif.bind(pod("new", cpu="500m", labels={"app": "new"}, node_name="a", phase="Running"), "a")

    assert [name for name, _ in whatif.evaluate(("a",)).placements] == ["b"]


def test_a_node_in_a_zone_that_nobody_has_seen_is_known_once_told():
    """Spreads over zones see it."""
    even = TopologySpread(
        topology_key=ZONE,
        max_skew=1,
        when_unsatisfiable="DoNotSchedule",
        selector=LabelSelector(match_labels={"app": "web"}),
    )
    shape = msgspec.structs.replace(
        pod_shape(cpu="1", labels={"app": "web"}), topology_spread=(even,)
    )
    one = pod("one", shape=shape, node_name="a", phase="Running")
    whatif = ask(node("a", one, labels={ZONE: "zone-q"}), pools=())
    assert not whatif.evaluate(("a",)).fits

    whatif.put_node(node("b", free="1", labels={ZONE: "zone-new"}), ())

    assert [name for name, _ in whatif.evaluate(("a",)).placements] == ["b"]


def test_volumes_of_a_pod_that_is_bound_count_against_the_limit_of_its_node():
    """Until the pod is gone."""
    facts = problem((), nodes=(node("a"), node("b", free="3")), catalogue=TYPES)
    nodes = tuple(replace(one, volume_limits={"disk": 1}) for one in facts.nodes)
    whatif = asked(replace(facts, nodes=nodes))
    for name, on in (("one", "a"), ("two", "b")):
        attached = PodVolumes(attached={"disk": frozenset({f"default/{name}"})})
        whatif.bind(web(name, on), on, volumes=attached)
    assert not whatif.evaluate(("a",)).fits

    whatif.unbind("uid-default-two", "b")

    assert whatif.evaluate(("a",)).fits


def test_what_is_not_there_cannot_be_gone():
    """A caller mixed something up."""
    whatif = ask(node("a"))

    with pytest.raises(KeyError):
        whatif.drop_node("b")
    with pytest.raises(KeyError):
        whatif.unbind("uid-default-one", "a")
    with pytest.raises(KeyError):
        whatif.drop_pending("uid-default-one")
