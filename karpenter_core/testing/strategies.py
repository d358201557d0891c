"""Hypothesis strategies: random scheduling problems, small enough to shrink, nasty on purpose.

Public: whoever writes another packing or provider can draw from them. Everything derives from
`karpenter_core.testing.builders`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, SPOT, ZONE
from karpenter_core.scheduling.problem import Catalogue, Problem
from karpenter_core.testing.builders import (
    daemon,
    existing_node,
    instance_type,
    node_pool,
    node_term,
    offering,
    pod,
    pod_shape,
    preferred_node_term,
    requirement_spec,
)

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import NodeSelectorTerm, PodShape, PodView
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import DaemonPod, ExistingNode

__all__ = [
    "catalogues",
    "daemons",
    "existing_nodes",
    "instance_types",
    "node_pools",
    "pod_shapes",
    "problems",
]

ZONES = ("zone-a", "zone-b", "zone-c")
TEAMS = ("blue", "green")
TEAM = "example.com/team"
FAMILY = "example.com/family"
CPUS = ("50m", "100m", "250m", "500m", "1", "1500m", "2", "4", "12")
MEMORIES = ("16Mi", "128Mi", "512Mi", "1Gi", "3Gi", "7Gi", "30Gi")


@st.composite
def offerings(draw: st.DrawFn, base: float) -> tuple[Offering, ...]:
    """Draw what a type is sold as: some zones, some capacity types, uneven prices, some sold out."""
    zones = draw(st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True))
    kinds = draw(st.lists(st.sampled_from((SPOT, ON_DEMAND)), min_size=1, max_size=2, unique=True))
    factor = st.sampled_from((0.3, 0.5, 0.9, 1.0, 1.1))
    return tuple(
        offering(
            zone,
            kind,
            round(base * draw(factor), 6),
            available=draw(st.integers(0, 9)) > 0,
        )
        for zone in zones
        for kind in kinds
    )


@st.composite
def instance_types(draw: st.DrawFn, number: int) -> InstanceType:
    """Draw an instance type; `number` makes its name unique."""
    cores = draw(st.sampled_from((1, 2, 4, 8, 16)))
    ratio = draw(st.sampled_from((1, 2, 4, 8)))
    extended = {"example.com/gpu": "2"} if draw(st.integers(0, 5)) == 0 else {}
    base = cores * 0.03 + cores * ratio * 0.005 + (1.0 if extended else 0.0)
    return instance_type(
        f"type-{number}",
        cpu=str(cores),
        memory=f"{cores * ratio}Gi",
        pods=str(draw(st.sampled_from((4, 20, 110)))),
        resources=extended,
        arch=draw(st.sampled_from(("amd64", "arm64"))),
        offerings=draw(offerings(base)),
        labels={FAMILY: draw(st.sampled_from(("c", "m", "r")))},
    )


@st.composite
def catalogues(draw: st.DrawFn, prefix: str = "") -> Catalogue:
    """Draw a catalogue of up to ten types."""
    count = draw(st.integers(1, 10))
    return Catalogue(
        version=prefix,
        instance_types=tuple(draw(instance_types(number)) for number in range(count)),
    )


@st.composite
def pod_shapes(draw: st.DrawFn) -> PodShape:
    """Draw what the pods of a template ask for; half of them ask for nothing special."""
    requests = {"example.com/gpu": "1"} if draw(st.integers(0, 11)) == 0 else {}
    node_selector: dict[str, str] = {}
    required = ()
    preferred = ()
    if draw(st.booleans()):
        match draw(st.integers(0, 5)):
            case 0:
                node_selector = {ARCH: draw(st.sampled_from(("amd64", "arm64", "mips")))}
            case 1:
                node_selector = {ZONE: draw(st.sampled_from(ZONES))}
            case 2:
                node_selector = {TEAM: draw(st.sampled_from(TEAMS))}
            case 3:
                terms = st.lists(_terms(), min_size=1, max_size=3)
                required = tuple(draw(terms))
            case 4:
                weights = st.sampled_from((1, 50, 100))
                preferred = tuple(
                    preferred_node_term(draw(weights), *_expressions(draw(_terms())))
                    for _ in range(draw(st.integers(1, 3)))
                )
            case _:
                node_selector = {CAPACITY_TYPE: draw(st.sampled_from((SPOT, ON_DEMAND)))}
    return pod_shape(
        cpu=draw(st.sampled_from(CPUS)),
        memory=draw(st.sampled_from(MEMORIES)),
        requests=requests,
        node_selector=node_selector,
        required=required,
        preferred=preferred,
        tolerations=draw(
            st.sampled_from(((), (), ("dedicated",), ("dedicated=blue:NoSchedule",), ("",)))
        ),
        host_ports=draw(st.sampled_from(((), (), (), (8080,), (8080, 9090)))),
    )


@st.composite
def _terms(draw: st.DrawFn) -> NodeSelectorTerm:
    key, values = draw(
        st.sampled_from(
            (
                (ZONE, (*ZONES, "nowhere")),
                (ARCH, ("amd64", "arm64")),
                (FAMILY, ("c", "m", "r")),
                (TEAM, TEAMS),
                (INSTANCE_TYPE, tuple(f"type-{number}" for number in range(4))),
            )
        )
    )
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")))
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
    return node_term((key, operator, *(chosen if operator in {"In", "NotIn"} else ())))


def _expressions(term: NodeSelectorTerm) -> list[tuple[str, ...]]:
    return [(e.key, e.operator, *e.values) for e in term.match_expressions]


@st.composite
def node_pools(draw: st.DrawFn, name: str) -> NodePool:
    """Draw a NodePool: weight, taints, labels, requirements, limits."""
    requirements: list[RequirementSpec] = []
    if draw(st.booleans()):
        key, values = draw(
            st.sampled_from(
                ((ARCH, ("amd64", "arm64")), (ZONE, ZONES), (CAPACITY_TYPE, (SPOT, ON_DEMAND)))
            )
        )
        chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
        requirements.append(requirement_spec(key, "In", *chosen))
    if draw(st.integers(0, 3)) == 0:
        requirements.append(requirement_spec(TEAM, "In", *TEAMS))
    if draw(st.integers(0, 4)) == 0:
        requirements.append(
            requirement_spec(INSTANCE_TYPE, "Exists", min_values=draw(st.integers(1, 3)))
        )
    limits = draw(
        st.sampled_from(
            ({}, {}, {"cpu": "20"}, {"cpu": "7", "memory": "40Gi"}, {"nodes": "2"}, {"pods": "60"})
        )
    )
    return node_pool(
        name,
        weight=draw(st.sampled_from((None, 1, 10))),
        requirements=requirements,
        labels=draw(st.sampled_from(({}, {TEAM: "blue"}))),
        taints=draw(
            st.sampled_from(
                ((), (), (), ("dedicated=blue:NoSchedule",), ("soft:PreferNoSchedule",))
            )
        ),
        limits=limits,
    )


@st.composite
def existing_nodes(draw: st.DrawFn, number: int) -> ExistingNode:
    """Draw capacity that is there, more or less full."""
    bound = ()
    if draw(st.integers(0, 3)) == 0:
        bound = (pod(f"bound-{number}", host_ports=(8080,), node_name=f"node-{number}"),)
    return existing_node(
        f"node-{number}",
        cpu="4",
        available={
            "cpu": draw(st.sampled_from(("-1", "0", "500m", "3", "4"))),
            "memory": draw(st.sampled_from(("0", "1Gi", "15Gi"))),
            "pods": str(draw(st.sampled_from((0, 2, 50)))),
        },
        labels=draw(st.sampled_from(({}, {TEAM: "blue"}, {ZONE: "zone-b"}))),
        taints=draw(st.sampled_from(((), (), ("dedicated=blue:NoSchedule",)))),
        initialized=draw(st.booleans()),
        bound=bound,
    )


@st.composite
def daemons(draw: st.DrawFn, number: int) -> DaemonPod:
    """Draw a DaemonSet; some run on certain nodes only, some take a port."""
    return daemon(
        f"daemon-{number}",
        shape=pod_shape(
            cpu=draw(st.sampled_from(("50m", "500m"))),
            memory=draw(st.sampled_from(("32Mi", "512Mi"))),
            node_selector=draw(
                st.sampled_from(({}, {}, {ARCH: "arm64"}, {FAMILY: "r"}, {TEAM: "blue"}))
            ),
            tolerations=draw(st.sampled_from(((), ("",)))),
            host_ports=draw(st.sampled_from(((), (), (9090,)))),
            owner_kind="DaemonSet",
        ),
    )


@st.composite
def problems(draw: st.DrawFn, *, max_shapes: int = 6, max_pods: int = 12) -> Problem:
    """Draw a whole problem: pools with catalogues, nodes, daemons, and pods of a few shapes."""
    names = [f"pool-{number}" for number in range(draw(st.integers(0, 3)))]
    shapes = [draw(pod_shapes()) for _ in range(draw(st.integers(0, max_shapes)))]
    pods: list[PodView] = [
        pod(f"pod-{number}-{member}", shape=shape)
        for number, shape in enumerate(shapes)
        for member in range(draw(st.integers(1, max_pods)))
    ]
    pools = tuple(draw(node_pools(name)) for name in names)
    usage = {
        pool.name: draw(st.sampled_from(({}, {}, {"cpu": 5000, "nodes": 1, "memory": 2**33})))
        for pool in pools
    }
    return Problem(
        pods=tuple(pods),
        pools=pools,
        catalogues={name: draw(catalogues(name)) for name in names},
        nodes=tuple(draw(existing_nodes(n)) for n in range(draw(st.integers(0, 3)))),
        daemons=tuple(draw(daemons(n)) for n in range(draw(st.integers(0, 2)))),
        pool_usage=usage,
        well_known=frozenset({FAMILY}),
    )
