"""Explanations of pending pods, NodePool by NodePool."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec.structs import replace as replaced

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    RESERVED,
    ZONE,
)
from karpenter_core.api.records import (
    AffinityTerm,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorTerm,
)
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.explain import final_checks
from karpenter_core.scheduling.problem import PodVolumes, PoolConstraint, SolveOptions
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
    requirement_spec,
)
from karpenter_core.testing.builders import pod as make_pod
from tests.scheduling.handmade_plans import DB, WEB, pod, spread, term
from tests.scheduling.plan_checks import FIRST_FIT

CATALOGUE = catalogue(instance_type("large", cpu="16", memory="64Gi", price=1.0))
DRIVER = "disk.csi.example.com"
RESERVATION = "example.com/reservation-id"

both_packings = pytest.mark.parametrize(
    "options", [SolveOptions(), FIRST_FIT], ids=["value", "first-fit"]
)


def why(*pending, pool="default", options=None, volumes=None, **more):
    """Solve a problem and return why the pool does not take the first pod."""
    asked = problem(pending, **{"catalogue": CATALOGUE, **more})
    plan = solve(replace(asked, volumes=volumes or {}), options)
    return plan.unschedulable[pending[0].uid].pools[pool]


def in_zones(*zones, **more):
    """Make the pool of some zones."""
    return [node_pool(requirements=[requirement_spec(ZONE, "In", *zones)], **more)]


def running(*names, app="web", node="node-0", **constraints):
    """Make pods that run."""
    return [replaced(pod(n, app, **constraints), node_name=node, phase="Running") for n in names]


# -- other pods ------------------------------------------------------------------------------------


@both_packings
def test_spread_names_its_key_skew_pods_and_the_counts_of_the_domains(options):
    """And where the next pod may go, which the pool cannot."""
    nodes = [
        existing_node("node-0", cpu="0", bound=running("web-1", "web-2")),
        existing_node("node-1", cpu="0", labels={ZONE: "zone-x"}),
    ]
    reason = why(
        pod("web-0", topology_spread=spread()), pools=in_zones("zone-a"), nodes=nodes,
        options=options,
    )  # fmt: skip

    assert (reason.constraint, reason.closest) == (PoolConstraint.TOPOLOGY, "large")
    assert reason.detail == (
        "topology spread over topology.kubernetes.io/zone (maxSkew 1, pods app=web): the next pod "
        "may only go to zone-x, the nodepool can make nodes for it in zone-a; "
        "pods now: zone-a 2, zone-x 0"
    )
    assert "raise maxSkew" in reason.remedy


@both_packings
def test_spread_over_too_few_domains_says_so(options):
    """With minDomains the lowest count is none as long as domains are missing."""
    nodes = [existing_node("node-0", cpu="0", bound=running("web-1"))]
    reason = why(
        pod("web-0", topology_spread=spread(min_domains=2)), pools=in_zones("zone-a"), nodes=nodes,
        options=options,
    )  # fmt: skip

    assert reason.constraint is PoolConstraint.TOPOLOGY
    assert "minDomains 2" in reason.detail
    assert "there are only 1 of these domains, and each is full" in reason.detail
    assert reason.remedy.startswith("lower minDomains")


def test_spread_over_a_label_that_the_pool_cannot_give_says_so():
    """For every counted set of pods."""
    reason = why(pod("web-0", topology_spread=spread("example.com/rack")))

    assert reason.constraint is PoolConstraint.TOPOLOGY
    assert reason.detail.endswith("no node of the nodepool has the label example.com/rack")


def test_affinity_to_pods_elsewhere_says_where_they_are():
    """And where the pool could make nodes."""
    nodes = [existing_node("node-0", cpu="0", bound=running("db-0", app="db"))]
    reason = why(
        pod("web-0", pod_affinity=term(selector=DB)), pools=in_zones("zone-b"), nodes=nodes
    )

    assert reason.constraint is PoolConstraint.AFFINITY
    assert reason.detail == (
        "required pod affinity over topology.kubernetes.io/zone to pods app=db: such pods are in "
        "zone-a 1, the nodepool can make nodes for it in zone-b"
    )


def test_affinity_to_pods_on_nodes_without_the_label_says_so():
    """The pod is not the first of its kind, as one runs, which counts by another label."""
    nodes = [existing_node("node-0", cpu="0", bound=running("web-1"))]
    pools = [node_pool("default", requirements=[("example.com/rack", "In", "r1")])]
    near = (*term(), *term("example.com/rack"))
    reason = why(pod("web-0", pod_affinity=near), pools=pools, nodes=nodes)

    assert reason.constraint is PoolConstraint.AFFINITY
    assert "such pods are only on nodes without the label example.com/rack" in reason.detail


def test_affinity_to_pods_on_a_full_node_names_the_node():
    """A new node has none of these pods."""
    nodes = [existing_node("node-0", cpu="0", bound=running("db-0", app="db"))]
    reason = why(pod("web-0", pod_affinity=term(HOSTNAME, DB)), nodes=nodes)

    assert reason.constraint is PoolConstraint.AFFINITY
    assert "such pods are on node-0 without room for it" in reason.detail


def test_affinity_names_its_namespaces():
    """Namespaces other than the pod's are named."""
    reason = why(pod("web-0", pod_affinity=term(selector=DB, namespaces=("shop", "lab"))))

    assert "to pods app=db in namespaces lab, shop: no such pod is anywhere" in reason.detail


def test_affinity_with_several_terms_names_the_pods_that_meet_them_all():
    """Two pods that meet one term each are none of them; a pod may have any number of terms."""
    nodes = [
        existing_node("n", cpu="0", bound=(*running("db-0", app="db"), *running("ui-0", app="ui")))
    ]
    apps = [
        term(selector=LabelSelector(match_labels={"app": name}))
        for name in ("db", "ui", "x", "y", "z")
    ]
    detail = why(pod("web-0", pod_affinity=(*apps[0], *apps[1])), nodes=nodes).detail
    assert detail.endswith("to pods app=db that are also pods app=ui: no such pod is anywhere")
    for count, text in ((4, "meet 1 more term:"), (5, "meet 2 more terms:")):
        many = tuple(each for (each,) in apps[:count])
        detail = why(pod("web-0", pod_affinity=many), nodes=nodes).detail
        assert f"pods app=ui that are also pods app=x and {text}" in detail


def test_anti_affinity_says_in_which_domains_the_others_are():
    """Every one that the pool has."""
    nodes = [
        existing_node(
            f"node-{zone}", cpu="0", labels={ZONE: f"zone-{zone}"},
            bound=running(f"web-{zone}", node=f"node-{zone}"),
        )
        for zone in "ab"
    ]  # fmt: skip
    reason = why(
        pod("db-0", "db", pod_anti_affinity=term()), pools=in_zones("zone-a", "zone-b"), nodes=nodes
    )

    assert reason.constraint is PoolConstraint.AFFINITY
    assert "pod anti-affinity over topology.kubernetes.io/zone to pods app=web" in reason.detail
    assert "in zone-a 1, zone-b 1" in reason.detail


def test_anti_affinity_of_others_names_these_pods():
    """The pod itself says nothing of it."""
    bound = running("db-2", "db-1", app="db", pod_anti_affinity=term())
    nodes = [existing_node("node-0", cpu="0", bound=bound)]
    reason = why(pod("web-0"), pools=in_zones("zone-a"), nodes=nodes)

    assert reason.constraint is PoolConstraint.AFFINITY
    assert "anti-affinity over topology.kubernetes.io/zone of pods default/db-1, default/db-2" in (
        reason.detail
    )


def test_pods_that_have_ended_or_move_are_no_reason():
    """Their anti-affinity binds nobody; the one that runs is named alone."""
    constraints = {"app": "db", "pod_anti_affinity": term()}
    ended = [replaced(each, phase="Failed") for each in running("db-1", **constraints)]
    bound = [*ended, *running("db-2", **constraints)]
    nodes = [existing_node("node-0", cpu="0", bound=bound)]
    reason = why(pod("web-0"), pools=in_zones("zone-a"), nodes=nodes)

    assert "anti-affinity over topology.kubernetes.io/zone of pods default/db-2" in reason.detail
    assert "db-1" not in reason.detail


def test_the_reason_offering_names_the_domain_that_affinity_leaves():
    """Nothing is available there only."""
    sold = [offering("zone-a", available=False), offering("zone-b")]
    nodes = [existing_node("node-0", cpu="0", bound=running("db-0", app="db"))]
    reason = why(
        pod("web-0", pod_affinity=term(selector=DB)), nodes=nodes,
        catalogue=catalogue(instance_type("small", offerings=sold)),
    )  # fmt: skip

    assert (reason.constraint, reason.closest) == (PoolConstraint.OFFERING, "small")
    assert "small is sold out (zone-a on-demand)" in reason.detail
    assert reason.detail.endswith("to pods app=db leaves topology.kubernetes.io/zone zone-a")


def test_types_within_the_limits_are_checked_for_further_reasons():
    """The small type is within the limit and sold out; that the large one is beyond is a remark."""
    types = catalogue(
        instance_type("small", cpu="4", offerings=(offering("zone-a", available=False),)),
        instance_type("large", cpu="16"),
    )
    reason = why(
        make_pod("web-0", cpu="1"), catalogue=types, pools=[node_pool(limits={"cpu": "8"})]
    )

    assert (reason.constraint, reason.closest) == (PoolConstraint.OFFERING, "small")
    assert "limits of the nodepool rule out other instance types" in reason.detail


# -- nodes ----------------------------------------------------------------------------------------


def test_volume_reasons_name_their_topology_and_the_pods_requirement():
    """Two zones that exclude each other."""
    asking = make_pod("web-0", node_selector={ZONE: "zone-b"})
    places = (Requirements.from_labels({ZONE: "zone-a"}),)
    reason = why(asking, volumes={asking.uid: PodVolumes(alternatives=places)})

    assert (reason.constraint, reason.closest) == (PoolConstraint.VOLUME, "large")
    assert reason.detail == (
        "its volumes need topology.kubernetes.io/zone In [zone-a], which no node of the "
        "nodepool can have (the pod itself asks for topology.kubernetes.io/zone In [zone-b])"
    )


def test_an_unreachable_volume_is_the_reason_for_a_pod_with_preferences():
    """Preferences are ignored."""
    wish = preferred_node_term(1, (INSTANCE_TYPE, "NotIn", "large"))
    asking = make_pod("web-0", node_selector={ZONE: "zone-b"}, preferred=[wish])
    places = (Requirements.from_labels({ZONE: "zone-a"}),)
    reason = why(asking, volumes={asking.uid: PodVolumes(alternatives=places)})

    assert reason.constraint is PoolConstraint.VOLUME


def test_a_new_node_attaches_any_volume():
    """Limits of nodes that are there are not a lack of resources in a pool."""
    asking = make_pod("web-0", cpu="100")
    full = replace(existing_node("node-0", cpu="0"), volume_limits={DRIVER: 0})
    attached = {DRIVER: frozenset({"default/data"})}
    reason = why(asking, nodes=[full], volumes={asking.uid: PodVolumes(attached=attached)})

    assert reason.constraint is PoolConstraint.RESOURCE
    assert reason.detail == (
        "no instance type has enough resources (cpu: 100 asked, large has 15900m)"
    )


def test_a_limit_says_how_far_it_would_have_to_be_raised():
    """By the type that needs the least."""
    types = catalogue(instance_type("huge", cpu="64"), instance_type("large", cpu="16"))
    reason = why(
        make_pod("web-0", cpu="10"), catalogue=types, pools=[node_pool(limits={"cpu": "20"})],
        pool_usage={"default": {"cpu": 10_000}},
    )  # fmt: skip

    assert (reason.constraint, reason.closest) == (PoolConstraint.LIMIT, "large")
    assert "(cpu: 10 of 20 left)" in reason.detail
    assert reason.remedy == "raise spec.limits.cpu to 26 or more"


def test_the_number_of_nodes_may_be_the_limit():
    """For any other pending pods."""
    reason = why(
        make_pod("web-0"), pools=[node_pool(limits={"nodes": "3", "cpu": "1000"})],
        pool_usage={"default": {"nodes": 3}},
    )  # fmt: skip

    assert reason.constraint is PoolConstraint.LIMIT
    assert "(nodes: 3 allowed)" in reason.detail
    assert reason.remedy == "raise spec.limits.nodes of the nodepool"


def test_daemons_that_leave_too_little_are_named():
    """They alone are the reason."""
    reason = why(make_pod("web-0", cpu="10"), daemons=[daemon("logs", cpu="7"), daemon("probe")])

    assert (reason.constraint, reason.closest) == (PoolConstraint.DAEMON, "large")
    assert "cpu: 10 asked, large has 8800m; daemons: logs, probe" in reason.detail


def test_a_port_taken_on_every_node_names_the_daemon():
    """And something else would do."""
    taking = daemon("proxy", shape=pod_shape(host_ports=[8080], owner_kind="DaemonSet"))
    reason = why(make_pod("web-0", host_ports=[8080]), daemons=[taking])

    assert (reason.constraint, reason.closest) == (PoolConstraint.PORT, "large")
    assert reason.detail == "IP=0.0.0.0 Port=8080 Proto=TCP is taken by daemon proxy"
    assert reason.remedy


def test_a_port_that_is_free_on_some_node_is_no_reason():
    """A later constraint that rules these out is named."""
    taking = daemon("proxy", shape=pod_shape(host_ports=[9090], owner_kind="DaemonSet"))
    sold_out = instance_type("small", offerings=[offering("zone-a", available=False)])
    reason = why(
        make_pod("web-0", host_ports=[8080]), daemons=[taking], catalogue=catalogue(sold_out)
    )

    assert (reason.constraint, reason.closest) == (PoolConstraint.OFFERING, "small")


def test_an_offering_in_other_zones_only_names_them():
    """It is not out of stock."""
    sold = [offering("zone-a", "spot"), offering("zone-b", "on-demand")]
    reason = why(
        make_pod("web-0", node_selector={ZONE: "zone-a", CAPACITY_TYPE: "on-demand"}),
        catalogue=catalogue(instance_type("small", offerings=sold)),
    )

    assert (reason.constraint, reason.closest) == (PoolConstraint.OFFERING, "small")
    assert reason.detail.endswith("small is only sold as zone-a spot, zone-b on-demand")


def test_unmet_min_values_name_the_available_number():
    """And to what they would have to be lowered."""
    pool = node_pool(requirements=[requirement_spec(INSTANCE_TYPE, "Exists", min_values=2)])
    types = catalogue(instance_type("large", cpu="16"), instance_type("small", cpu="2"))
    reason = why(make_pod("web-0", cpu="10"), catalogue=types, pools=[pool])

    assert reason.constraint is PoolConstraint.MIN_VALUES
    assert "node.kubernetes.io/instance-type: 1 available" in reason.detail
    assert reason.remedy == "lower minValues of node.kubernetes.io/instance-type to 1"


NARROW = requirement_spec(INSTANCE_TYPE, "In", "nothing")
UNREADABLE = requirement_spec(INSTANCE_TYPE, "Gt", "many")
FILTERED = "nodepool requirements filtered out all available instance types"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (
            {"shape": replaced(pod_shape(), resource_claims=("gpu", "nic"))},
            (
                PoolConstraint.DEVICE,
                (
                    "pod has Dynamic Resource Allocation requirements that are not yet supported "
                    "(resource claim gpu, nic)"
                ),
                "",
                "remove the resource claims from the pod, or set --ignore-dra-requests=false",
            ),
        ),
        (
            {"pools": [node_pool(taints=["team=blue:NoSchedule"])]},
            (
                PoolConstraint.TAINT,
                'did not tolerate taint "team=blue:NoSchedule"',
                "",
                'add a toleration for "team=blue:NoSchedule"',
            ),
        ),
        (
            {"pools": [node_pool(requirements=[NARROW])]},
            (PoolConstraint.REQUIREMENT, FILTERED, "", "change the NodePool's requirements"),
        ),
        (
            {"catalogue": catalogue(instance_type("full", cpu="1", overhead={"cpu": "2"}))},
            (
                PoolConstraint.RESOURCE,
                "every instance type reserves all its capacity for the system and the kubelet",
                "full",
                "lower the reservations for the system and the kubelet",
            ),
        ),
        (
            {"max_new_nodes": 0},
            (
                PoolConstraint.LIMIT,
                (
                    "the cluster's nodes and those of this plan reach the limit of nodes in the cluster "
                    "(--max-nodes-total)"
                ),
                "large",
                "raise --max-nodes-total",
            ),
        ),
    ],
)
def test_a_reason_comes_with_its_remedy(asked, reason):
    pending = make_pod("web-0", shape=asked.get("shape", pod_shape()))
    more = {key: value for key, value in asked.items() if key in {"pools", "catalogue"}}
    question = problem([pending], **{"catalogue": CATALOGUE, **more})
    plan = solve(replace(question, max_new_nodes=asked.get("max_new_nodes")))
    result = plan.unschedulable[pending.uid].pools["default"]
    assert (result.constraint, result.detail, result.closest, result.remedy) == reason


@pytest.mark.parametrize(
    ("shape", "detail"),
    [
        (
            replaced(pod_shape(), required_node_terms=(NodeSelectorTerm(),)),
            "a node selector term without expressions matches no node",
        ),
        (
            pod_shape(required=[node_term((NODE_POOL, "DoesNotExist"))]),
            "the pod asks for nodes outside of every NodePool",
        ),
        (
            pod_shape(required=[node_term((ZONE, "Near", "zone-a"))]),
            "Near",
        ),
    ],
)
def test_an_unsupported_constraint_is_refused_for_any_catalogue(shape, detail):
    reason = why(make_pod("web-0", shape=shape))

    assert reason.constraint is PoolConstraint.REQUIREMENT
    assert detail in reason.detail


def test_requirements_of_a_pool_that_cannot_be_read_are_quoted():
    reason = why(make_pod("web-0"), pools=[node_pool(requirements=[UNREADABLE])])

    assert reason.constraint is PoolConstraint.REQUIREMENT
    assert reason.detail.startswith(f"{FILTERED}: ")
    assert "many" in reason.detail


def test_remedies_of_volumes_and_ports_name_the_field_to_change():
    asking = make_pod("web-0", node_selector={ZONE: "zone-b"})
    places = (Requirements.from_labels({ZONE: "zone-a"}),)
    volumes = {asking.uid: PodVolumes(alternatives=places)}
    taking = daemon("proxy", shape=pod_shape(host_ports=[8080], owner_kind="DaemonSet"))

    assert why(asking, volumes=volumes).remedy == (
        "allow the topology of the volumes in the nodepool and the pod"
    )
    assert why(make_pod("web-0", host_ports=[8080]), daemons=[taking]).remedy == (
        "use another host port, or keep the DaemonSet off some nodes"
    )


def test_remedies_of_affinity_depend_on_where_the_pods_are():
    wishes = {key: pod("web-0", pod_affinity=term(key, DB)) for key in (HOSTNAME, ZONE)}
    full = [existing_node("node-0", cpu="0", bound=running("db-0", app="db"))]
    relax = "or make the affinity preferred"

    assert why(wishes[HOSTNAME]).remedy == f"start such a pod first, {relax}"
    assert why(wishes[ZONE]).remedy == f"start such a pod first, {relax}"
    assert why(wishes[HOSTNAME], nodes=full).remedy == f"make room on these nodes, {relax}"
    assert why(wishes[ZONE], nodes=full, pools=in_zones("zone-b")).remedy == (
        f"let the nodepool make nodes in zone-a, {relax}"
    )


def test_remedies_of_spread_name_the_constraint_to_relax():
    relax = "raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway"
    full = [existing_node("node-0", cpu="0", bound=running("web-1", "web-2"))]
    other = existing_node("node-1", cpu="0", labels={ZONE: "zone-x"})
    zonal, racks = spread(), spread("example.com/rack")
    few = spread(min_domains=2)

    def remedy(rule, **more):
        return why(pod("web-0", topology_spread=rule), **more).remedy

    zone_a = {"pools": in_zones("zone-a")}
    assert remedy(zonal, nodes=[*full, other], **zone_a) == (
        f"let the nodepool make nodes in zone-x, {relax}"
    )
    assert remedy(few, nodes=full, **zone_a) == f"lower minDomains, {relax}"
    assert remedy(racks) == "give the nodepool's nodes the label example.com/rack"


# -- what is asked for in the end ------------------------------------------------------------------


def test_preferences_are_relaxed_before_there_is_a_reason():
    """A preference is never the named constraint."""
    asking = make_pod(
        "web-0", cpu="100", preferred=[preferred_node_term(1, (ZONE, "In", "nowhere"))]
    )
    assert why(asking).constraint is PoolConstraint.RESOURCE


def test_an_irrelevant_preference_is_not_the_last_constraint():
    """The first wish is met by all, so the second is the only one that is really given up."""
    asking = make_pod(
        "web-0",
        cpu="100",
        preferred=[
            preferred_node_term(100, (ARCH, "NotIn", "mips"), (ARCH, "Exists")),
            preferred_node_term(1, (ZONE, "In", "nowhere")),
        ],
        node_selector={ARCH: "amd64"},
    )
    assert why(asking).constraint is PoolConstraint.RESOURCE


def test_a_label_that_has_to_be_there_is_missed_whatever_values_are_refused():
    """Exists and NotIn together ask for a label; NotIn alone does not."""
    rack = "example.com/rack"
    reason = why(make_pod("web-0", required=[node_term((rack, "NotIn", "r1"), (rack, "Exists"))]))

    assert reason.constraint is PoolConstraint.REQUIREMENT
    assert reason.detail.endswith(f"a label that no node of the nodepool has: {rack}")


def test_of_alternative_terms_the_last_one_counts():
    """The reason says that there are others."""
    terms = [node_term((ZONE, "In", "nowhere")), node_term((ZONE, "In", "zone-x"))]
    reason = why(make_pod("web-0", required=terms))

    assert reason.constraint is PoolConstraint.REQUIREMENT
    assert "zone-x" in reason.detail
    assert "(last of 2 node affinity terms; no other found a place)" in reason.detail


# -- reservations ----------------------------------------------------------------------------------


def reserved_type(name, count):
    """Make a type that is sold out of one reservation alone."""
    made = instance_type(name, cpu="4", offerings=[offering("zone-a", RESERVED, 0.001)])
    held = Requirement.of(RESERVATION, "In", ("r-1",))
    sold = tuple(
        replace(one, requirements=one.requirements.add(held), reservation_capacity=count)
        for one in made.offerings
    )
    return replace(made, requirements=made.requirements.add(held), offerings=sold)


@both_packings
def test_lighter_pools_wait_for_the_reservations_of_heavier_ones(options):
    """Rather than pay for what the next pass may have for nothing."""
    plan = solve(
        problem(
            [make_pod(f"web-{n}", cpu="3") for n in range(2)],
            pools=[node_pool("paid", weight=10), node_pool("bought")],
            catalogues={
                "paid": catalogue(reserved_type("reserved", 1)),
                "bought": catalogue(instance_type("large", cpu="16", zones=("zone-b",))),
            },
            well_known=[RESERVATION],
        ),
        options,
    )
    (left,) = plan.unschedulable.values()

    assert {r.constraint for r in left.pools.values()} == {PoolConstraint.RESERVATION}
    taken = f"are taken in this pass ({RESERVATION}=r-1)"
    assert left.pools["paid"].detail == f"all fitting reserved instances {taken}"
    assert (
        left.pools["bought"].detail == f'all fitting reserved instances of nodepool "paid" {taken}'
    )


def test_a_preference_kept_while_waiting_for_reservations_is_no_reason():
    """The heavier pool would do, were it not for what the pod only wishes for."""
    wish = preferred_node_term(1, (ZONE, "In", "zone-a"))
    plan = solve(
        problem(
            [make_pod(f"web-{n}", cpu="3", preferred=[wish]) for n in range(2)],
            pools=[node_pool("paid"), node_pool("bought", weight=10)],
            catalogues={
                "paid": catalogue(reserved_type("reserved", 1)),
                "bought": catalogue(instance_type("large", cpu="16", zones=("zone-b",))),
            },
            well_known=[RESERVATION],
        )
    )
    (left,) = plan.unschedulable.values()

    assert {r.constraint for r in left.pools.values()} == {PoolConstraint.RESERVATION}
    assert 'of nodepool "paid"' in left.pools["bought"].detail


def test_reservations_that_are_used_up_are_no_reason_to_wait():
    """Nothing is going to be free in the next pass."""
    sold = [replace(offering("zone-a", RESERVED), reservation_capacity=0), offering("zone-b")]
    reason = why(
        make_pod("web-0", node_selector={ZONE: "zone-a"}),
        catalogue=catalogue(instance_type("small", offerings=sold)),
    )

    assert reason.constraint is PoolConstraint.OFFERING
    assert "the pod needs reserved capacity, and none is left (small)" in reason.detail


def test_the_same_problem_in_another_order_has_the_same_reasons():
    """To the letter."""
    owners = running("db-1", "db-2", "db-3", "db-4", app="db", pod_anti_affinity=term())
    pending = [pod("web-0"), pod("web-1", topology_spread=spread(selector=WEB)), pod("ui-0", "ui")]

    def reasons(pods, bound):
        nodes = [existing_node("node-0", cpu="0", bound=bound)]
        asked = problem(pods, pools=in_zones("zone-a"), catalogue=CATALOGUE, nodes=nodes)
        return {uid: left.message for uid, left in solve(asked).unschedulable.items()}

    result = reasons(pending, owners)
    assert result == reasons(pending[::-1], owners[::-1])
    assert "default/db-1, default/db-2, default/db-3 and 1 more" in result[pending[0].uid]


@pytest.mark.parametrize(
    ("kinds", "constraint"),
    [
        ([], PoolConstraint.TOPOLOGY),
        ([TopologyKind.SPREAD, TopologyKind.SPREAD], PoolConstraint.TOPOLOGY),
        ([TopologyKind.SPREAD, TopologyKind.AFFINITY], PoolConstraint.AFFINITY),
        ([TopologyKind.ANTI, TopologyKind.SPREAD], PoolConstraint.AFFINITY),
        ([TopologyKind.INVERSE], PoolConstraint.AFFINITY),
    ],
)
def test_a_pod_that_is_not_tried_again_waits_for_affinity_unless_only_spread_binds_it(
    kinds, constraint
):
    """No plan is known that ends so; if one does, the reason is right."""
    step = SimpleNamespace(bound=[SimpleNamespace(kind=kind) for kind in kinds])
    rejection = final_checks._not_retried(SimpleNamespace(relaxation_step=step))
    assert rejection.constraint is constraint
    assert rejection.remedy == "wait for the next pass"


MANY = 500
NUMBERED = tuple(f"value-{number}" for number in range(MANY))


def shape_of(**changes):
    return replaced(pod_shape(), **changes)


def of_selector(**selector):
    term = AffinityTerm(topology_key=ZONE, selector=LabelSelector(**selector))
    return shape_of(labels={"a": NUMBERED[0]}, pod_affinity=(term,))


HUGE_SHAPES = {
    "resources": shape_of(requests={f"example.com/{value}": 1 for value in NUMBERED[:90]}),
    "values": pod_shape(required=[node_term(("kind", "In", *NUMBERED))]),
    "labels of a selector": of_selector(match_labels=dict.fromkeys(NUMBERED, "x")),
    "values of a selector": of_selector(
        match_expressions=(LabelSelectorRequirement(key="b", operator="In", values=NUMBERED),)
    ),
    "excluded values of a selector": of_selector(
        match_expressions=(LabelSelectorRequirement(key="a", operator="NotIn", values=NUMBERED),)
    ),
    "namespaces": shape_of(
        pod_affinity=(
            AffinityTerm(topology_key=ZONE, selector=LabelSelector(), namespaces=NUMBERED),
        )
    ),
}


@pytest.mark.parametrize("kind", HUGE_SHAPES)
def test_an_explanation_of_a_huge_pod_is_short(kind):
    """It is in a log line, an Event and the journal each time that the pod is tried again."""
    waiting = make_pod("huge", shape=HUGE_SHAPES[kind])

    (unschedulable,) = solve(problem([waiting])).unschedulable.values()

    assert len(unschedulable.message) < 1000
    assert all(len(each.remedy) < 1000 for each in unschedulable.pools.values())
