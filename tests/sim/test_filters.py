"""The embedded scheduler's filters accept and refuse nodes."""

from __future__ import annotations

import pytest

from karpenter_core.sim.filters import (
    affinity_refusal,
    host_ports,
    port_refusal,
    requests_of,
    taint_refusal,
)
from karpenter_core.sim.topology import PlacementView
from tests.sim.objects import node, pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def container(cpu: str, **more):
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1"), container("500m")]}, 1500),
        ({"containers": [container("1")], "initContainers": [container("3")]}, 3000),
        (
            {
                "containers": [container("1")],
                "initContainers": [
                    container("1", restartPolicy="Always"),
                    container("2"),
                ],
            },
            3000,
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}, 4000),
    ],
    ids=["sum", "init peak", "sidecar beside init", "overhead", "pod level"],
)
def test_requests_count_containers_that_run_at_the_same_time(spec, cpu):
    """KEP-753 and KEP-2837; every pod also takes one of the node's places."""
    assert requests_of({"spec": spec}) == {"cpu": cpu, "pods": 1}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "team", "value": "web", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "db"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_are_tolerated_by_key_value_and_effect(toleration, tolerated):
    """An empty key with Exists tolerates everything."""
    tainted = node("n", taints=[{"key": "team", "value": "web", "effect": "NoSchedule"}])

    refusal = taint_refusal(pod("p", tolerations=[toleration]), tainted)

    assert refusal == (None if tolerated else "node(s) had untolerated taint {team: web}")


def test_preferred_taints_refuse_no_pod():
    """PreferNoSchedule is a wish."""
    tainted = node("n", taints=[{"key": "team", "effect": "PreferNoSchedule"}])

    assert taint_refusal(pod("p"), tainted) is None


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": ZONE, "operator": "In", "values": ["a", "b"]}, True),
        ({"key": ZONE, "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "absent", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "absent", "operator": "DoesNotExist"}, True),
        ({"key": "cores", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "cores", "operator": "Lt", "values": ["8"]}, False),
        ({"key": ZONE, "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_node_affinity_operators(expression, matches):
    """Every operator, and labels that are no numbers."""
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    wanting = pod("p", affinity={"nodeAffinity": required})

    assert (affinity_refusal(wanting, node("n", zone="a", cores="8")) is None) is matches


def test_host_ports_clash_by_address_and_protocol():
    """A port on every address clashes with the port on one."""
    everywhere = host_ports(with_port(8080))
    local = host_ports(with_port(8080, hostIP="127.0.0.1"))
    other = host_ports(with_port(8080, hostIP="10.0.0.1"))
    datagrams = host_ports(with_port(8080, protocol="UDP"))

    assert port_refusal(everywhere, local)
    assert port_refusal(local, everywhere)
    assert not port_refusal(local, other)
    assert not port_refusal(datagrams, everywhere)


def with_port(number: int, **more):
    made = pod("p")
    made["spec"]["containers"][0]["ports"] = [{"hostPort": number, "containerPort": 1, **more}]
    return made


def view_of(*nodes, placed=()):
    view = PlacementView()
    for each in nodes:
        view.set_node(each)
    for each, name in placed:
        view.add_pod(each, name)
    return view


def allowed(view: PlacementView, wanting) -> set[str]:
    return {name for name in view.nodes if view.refusal(wanting, name) is None}


def test_resources_of_placed_pods_are_taken():
    """And given back when a pod goes."""
    view = view_of(node("n", cpu="2"), placed=[(pod("a"), "n"), (pod("b"), "n")])

    before = view.refusal(pod("c"), "n")
    view.remove_pod("a")

    assert before == "Insufficient cpu"
    assert view.refusal(pod("c"), "n") is None


def spread(skew: int = 1, key: str = ZONE, **more):
    constraint = {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def web(name: str, **spec):
    return pod(name, labels={"app": "web"}, **spec)


def test_spread_keeps_zones_level():
    """With one pod in zone a, the next has to go elsewhere; unlabelled nodes never."""
    view = view_of(
        node("a", zone="a"), node("b", zone="b"), node("bare"), placed=[(web("one"), "a")]
    )

    assert allowed(view, web("two", **spread())) == {"b"}
    assert allowed(view, web("two", **spread(skew=2))) == {"a", "b"}


def test_spread_counts_only_domains_the_pod_may_use():
    """A zone that the pod's selector excludes does not hold the others down."""
    view = view_of(node("a", zone="a", pool="x"), node("b", zone="b"), placed=[(web("one"), "a")])

    honoured = web("two", nodeSelector={"pool": "x"}, **spread())
    ignored = web("two", nodeSelector={"pool": "x"}, **spread(nodeAffinityPolicy="Ignore"))

    assert allowed(view, honoured) == {"a"}
    assert allowed(view, ignored) == set()


def test_spread_wants_its_minimum_of_domains():
    """With fewer domains than that, the least count is taken as zero."""
    view = view_of(node("a", zone="a"), placed=[(web("one"), "a")])

    assert allowed(view, web("two", **spread())) == {"a"}
    assert allowed(view, web("two", **spread(minDomains=2))) == set()


def test_spread_ignores_pods_that_are_leaving():
    """A terminating pod makes room at once."""
    leaving = web("one")
    view = view_of(node("a", zone="a"), node("b", zone="b"), placed=[(leaving, "a")])
    marked = leaving | {"metadata": leaving["metadata"] | {"deletionTimestamp": "now"}}

    view.add_pod(marked, "a")

    assert allowed(view, web("two", **spread())) == {"a", "b"}


def test_spread_by_match_label_keys_counts_revisions_separately():
    """Pods of another revision do not count."""
    old = pod("one", labels={"app": "web", "rev": "1"})
    view = view_of(node("a", zone="a"), node("b", zone="b"), placed=[(old, "a")])
    new = pod("two", labels={"app": "web", "rev": "2"}, **spread(matchLabelKeys=["rev"]))

    assert allowed(view, new) == {"a", "b"}


def affinity(kind: str, app: str, key: str = ZONE, **more):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_affinity_follows_and_anti_affinity_flees():
    """Both by the domain of the topology key, not by the node."""
    view = view_of(
        node("a1", zone="a"), node("a2", zone="a"), node("b", zone="b"), placed=[(web("one"), "a1")]
    )

    assert allowed(view, pod("two", **affinity("podAffinity", "web"))) == {"a1", "a2"}
    assert allowed(view, pod("two", **affinity("podAntiAffinity", "web"))) == {"b"}


def test_the_first_of_pods_that_want_each_other_may_start_anywhere():
    """Only if it matches its own selector, and where the key exists."""
    view = view_of(node("a", zone="a"), node("bare"))

    assert allowed(view, web("one", **affinity("podAffinity", "web"))) == {"a"}
    assert allowed(view, pod("one", **affinity("podAffinity", "web"))) == set()


def test_a_placed_pod_keeps_others_away():
    """Anti-affinity is symmetric: the newcomer need not mind for the other to mind."""
    loner = pod("loner", **affinity("podAntiAffinity", "web", key=HOST))
    view = view_of(node("a"), node("b"), placed=[(loner, "a")])

    assert allowed(view, web("two")) == {"b"}
    view.remove_pod("loner")
    assert allowed(view, web("two")) == {"a", "b"}


def test_affinity_covers_the_namespaces_it_names():
    """By name, by the namespaces' labels, or else its own only."""
    stranger = web("one")
    stranger["metadata"]["namespace"] = "other"
    view = PlacementView({"other": {"team": "x"}, "default": {}})
    view.set_node(node("a", zone="a"))
    view.add_pod(stranger, "a")
    selector = {"matchLabels": {"team": "x"}}

    assert allowed(view, pod("p", **affinity("podAffinity", "web"))) == set()
    assert allowed(view, pod("p", **affinity("podAffinity", "web", namespaces=["other"])))
    assert allowed(view, pod("p", **affinity("podAffinity", "web", namespaceSelector=selector)))
