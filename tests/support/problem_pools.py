"""Draws random NodePools, catalogues, DaemonSets and existing nodes.

See `tests.support.problems`, which puts them into whole problems.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    ON_DEMAND,
    RESERVED,
    SPOT,
    ZONE,
)
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.testing.builders import (
    EPOCH,
    daemon,
    existing_node,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    requirement_spec,
)
from tests.support.problem_pods import random_shapes
from tests.support.random_choices import (
    CORES,
    FAMILY,
    RACK,
    RACKS,
    TEAM,
    TEAMS,
    ZONES,
    ProblemFeature,
    RandomChoices,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import DaemonPod, ExistingNode

__all__ = [
    "DRIVER",
    "RESERVATION",
    "SHARED_CLAIMS",
    "random_catalogue",
    "random_closed_node",
    "random_daemon",
    "random_node",
    "random_pool",
]

RESERVATION: Final = "example.com/reservation-id"
"""The label by which reserved offerings tell their reservations apart."""
DRIVER: Final = "disk.csi.example.com"
"""The CSI driver of all volumes."""
SHARED_CLAIMS: Final = ("default/data-0", "default/data-1")
"""Volume claims that several pods may use."""

_DEDICATED: Final = "dedicated=blue:NoSchedule"
_SOFT: Final = "soft:PreferNoSchedule"


# -- pools -----------------------------------------------------------------------------------------


def random_pool(choices: RandomChoices, name: str) -> NodePool:
    """Draw a NodePool: weight, taints, labels, requirements, limits."""
    labels: dict[str, str] = {}
    if choices.chance(25):
        labels[TEAM] = choices.one(TEAMS)
    requirements = _pool_requirements(choices)
    if choices.chance(15, ProblemFeature.CUSTOM_KEYS) and all(r.key != RACK for r in requirements):
        labels[RACK] = choices.one(RACKS)
    return node_pool(
        name,
        weight=choices.one((None, None, 1, 10)),
        requirements=requirements,
        labels=labels,
        taints=choices.one(((_DEDICATED,), ("dedicated=green:NoSchedule",), (_SOFT,)))
        if choices.chance(20, ProblemFeature.TAINTS)
        else (),
        limits=choices.one(_LIMITS) if choices.chance(25, ProblemFeature.LIMITS) else {},
    )


_LIMITS: Final = (
    {"cpu": "5"},
    {"cpu": "20"},
    {"cpu": "7", "memory": "40Gi"},
    {"nodes": "2"},
    {"pods": "60", "nodes": "4"},
    {"cpu": "100", "example.com/gpu": "2"},
)


def _pool_requirements(choices: RandomChoices) -> list[RequirementSpec]:
    made: list[RequirementSpec] = []
    if choices.chance(35):
        key, values = choices.one(
            (
                (ZONE, ZONES),
                (ARCH, ("amd64", "arm64")),
                (CAPACITY_TYPE, (SPOT, ON_DEMAND, RESERVED)),
            )
        )
        operator = "NotIn" if choices.chance(20) else "In"
        made.append(requirement_spec(key, operator, *choices.some(values)[:2]))
    if choices.chance(20):
        made.append(requirement_spec(TEAM, "In", *TEAMS))
    if choices.chance(35, ProblemFeature.CUSTOM_KEYS):
        made.append(
            requirement_spec(RACK, "Exists")
            if choices.chance(10)
            else requirement_spec(RACK, "In", *choices.some(RACKS))
        )
    if choices.chance(12, ProblemFeature.BOUNDS):
        made.append(requirement_spec(CORES, choices.one(("Gt", "Gte")), choices.one(("1", "3"))))
    if choices.chance(10, ProblemFeature.MIN_VALUES):
        key = choices.one((INSTANCE_TYPE, INSTANCE_TYPE, FAMILY))
        made.append(requirement_spec(key, "Exists", min_values=choices.number(1, 3)))
    return made


# -- catalogues ------------------------------------------------------------------------------------


def random_catalogue(choices: RandomChoices, version: str) -> Catalogue:
    """Draw up to ten types, the first large; at times only it is sold in the last zone."""
    count = choices.number(1, 10)
    is_thin = count > 1 and choices.chance(25)
    return Catalogue(
        version=version,
        instance_types=tuple(
            _instance_type(choices, number, ZONES[:-1] if is_thin and number else ZONES)
            for number in range(count)
        ),
    )


def _instance_type(choices: RandomChoices, number: int, zones: Sequence[str]) -> InstanceType:
    cores = choices.one((16, 8, 4, 2, 1)) if number else 16
    ratio = choices.one((4, 2, 8, 1))
    extended = {"example.com/gpu": "2"} if choices.chance(15) else {}
    base = cores * 0.03 + cores * ratio * 0.005 + (1.0 if extended else 0.0)
    sold = _offerings(choices, base, cores, zones)
    reservations = sorted({o.requirements.single_value(RESERVATION) for o in sold} - {""})
    made = instance_type(
        f"type-{number}",
        cpu=str(cores),
        memory=f"{cores * ratio}Gi",
        pods=str(choices.one((20, 110, 4))),
        resources=extended,
        arch=choices.one(("amd64", "amd64", "arm64")),
        offerings=sold,
        labels={FAMILY: choices.one(("c", "m", "r")), CORES: str(cores)},
    )
    if not choices.has(ProblemFeature.RESERVED):
        return made
    held = Requirement.of(RESERVATION, "In" if reservations else "DoesNotExist", reservations)
    return replace(made, requirements=made.requirements.add(held))


def _offerings(
    choices: RandomChoices, base: float, cores: int, zones: Sequence[str]
) -> tuple[Offering, ...]:
    """Draw what a type is sold as: uneven prices, some zones, some offerings sold out."""
    kinds = choices.some((ON_DEMAND, SPOT))
    sold: list[Offering] = []
    for zone in choices.some(zones):
        for kind in kinds:
            price = round(base * choices.one((1.0, 0.3, 0.5, 0.9, 1.1)), 6)
            made = offering(zone, kind, price, available=not choices.chance(10))
            if choices.has(ProblemFeature.RESERVED):
                absent = Requirement.of(RESERVATION, "DoesNotExist")
                made = replace(made, requirements=made.requirements.add(absent))
            if choices.chance(8, ProblemFeature.OVERRIDES):
                memory = cores * 2**30 * choices.one((1, 8))
                made = replace(made, capacity_override={"memory": memory})
            sold.append(made)
        if choices.chance(12, ProblemFeature.RESERVED):
            reserved = offering(zone, RESERVED, round(base / 1000, 9))
            number = Requirement.of(RESERVATION, "In", (choices.one(("r-1", "r-2", "r-3")),))
            sold.append(
                replace(
                    reserved,
                    requirements=reserved.requirements.add(number),
                    reservation_capacity=choices.number(1, 3),
                )
            )
    return tuple(sold)


# -- daemons ---------------------------------------------------------------------------------------


def random_daemon(choices: RandomChoices, number: int) -> DaemonPod:
    """Draw a DaemonSet; some run on certain nodes only, some take a port."""
    return daemon(
        f"daemon-{number}",
        shape=pod_shape(
            cpu=choices.one(("50m", "500m")),
            memory=choices.one(("32Mi", "512Mi")),
            node_selector=choices.one(
                ({}, {}, {ARCH: "arm64"}, {FAMILY: "r"}, {TEAM: "blue"}, {ZONE: "zone-b"})
            ),
            tolerations=choices.one(((), ("",))),
            host_ports=(9090,) if choices.chance(30, ProblemFeature.PORTS) else (),
            labels={"app": "daemon", "tier": "back"},
            owner_kind="DaemonSet",
        ),
    )


# -- existing nodes --------------------------------------------------------------------------------


def random_node(choices: RandomChoices, number: int, pools: Sequence[NodePool]) -> ExistingNode:
    """Draw capacity that is there, more or less full, with labels that pools would not make."""
    name = f"node-{number}"
    labels = _node_labels(choices, name)
    pool = choices.one(pools).name if pools and choices.chance(50) else ""
    if pool:
        labels[NODE_POOL] = pool
    bound = _bound_pods(choices, name) if choices.chance(60, ProblemFeature.BOUND) else ()
    node = existing_node(
        name,
        cpu="4",
        available={
            "cpu": choices.one(("3", "4", "500m", "0", "-1")),
            "memory": choices.one(("15Gi", "1Gi", "0")),
            "pods": str(choices.one((50, 2, 0))),
        },
        taints=(_DEDICATED,) if choices.chance(25, ProblemFeature.TAINTS) else (),
        initialized=not choices.chance(40),
        pool=pool,
        bound=bound,
        host_ports=tuple(dict.fromkeys(port for p in bound for port in p.shape.host_ports)),
    )
    node = replace(node, labels=labels)
    if choices.chance(40, ProblemFeature.VOLUMES):
        attached = (*choices.some(SHARED_CLAIMS, 0), "default/other")[: choices.number(0, 2)]
        node = replace(
            node,
            volume_limits={DRIVER: choices.number(0, 3)} if choices.chance(80) else {},
            volumes={DRIVER: frozenset(attached)} if attached else {},
        )
    if choices.chance(20, ProblemFeature.UNDECIDED):
        return _undecided(choices, node)
    return node


def _node_labels(choices: RandomChoices, name: str) -> dict[str, str]:
    labels = {
        HOSTNAME: name,
        ZONE: choices.one((*ZONES, "zone-x")),
        ARCH: choices.one(("amd64", "arm64")),
        CAPACITY_TYPE: choices.one((SPOT, ON_DEMAND)),
    }
    if choices.chance(12):
        del labels[choices.one((ZONE, CAPACITY_TYPE, ARCH))]
    if choices.chance(10):
        labels[HOSTNAME] = f"host-of-{name}"
    if choices.chance(30):
        labels[TEAM] = "blue"
    if choices.chance(50, ProblemFeature.CUSTOM_KEYS):
        labels[RACK] = choices.one((*RACKS, "r9"))
    if choices.chance(30):
        labels |= {FAMILY: "m", CORES: choices.one(("4", "many"))}
    return labels


def _undecided(choices: RandomChoices, node: ExistingNode) -> ExistingNode:
    """Make a launching node of a node: some of its labels are still open."""
    known = {key: value for key, value in node.labels.items() if key != HOSTNAME}
    open_keys = choices.some(
        (
            Requirement.of(ZONE, "In", ZONES[:2]),
            Requirement.of(CAPACITY_TYPE, "In", (SPOT, ON_DEMAND)),
            Requirement.of(ARCH, "In", ("amd64", "arm64")),
        )
    )
    for requirement in open_keys:
        known.pop(requirement.key, None)
    return replace(
        node,
        labels={HOSTNAME: node.name, **known},
        requirements=Requirements.from_labels(known).add(*open_keys),
        initialized=False,
        claim_name=node.name,
        node_name="",
    )


def _bound_pods(choices: RandomChoices, node: str) -> tuple[PodView, ...]:
    bound: list[PodView] = []
    for number, shape in enumerate(random_shapes(choices, choices.number(1, 2))):
        for member in range(choices.number(1, 3)):
            running = pod(
                f"bound-{node}-{number}-{member}", shape=shape, node_name=node, phase="Running"
            )
            if choices.chance(6):
                running = msgspec.structs.replace(running, deletion_timestamp=EPOCH)
            bound.append(running)
    return tuple(bound)


def random_closed_node(
    choices: RandomChoices, shapes: Sequence[PodShape]
) -> tuple[ExistingNode, tuple[PodView, ...]]:
    """Draw a node that is going away, and those of its pods that need another place."""
    name = "node-closed"
    shape = choices.one(shapes)
    leaving = tuple(
        pod(f"leaving-{member}", shape=shape, node_name=name, phase="Running")
        for member in range(choices.number(0, 3))
    )
    staying = _bound_pods(choices, name) if choices.has(ProblemFeature.BOUND) else ()
    node = existing_node(name, bound=(*leaving, *staying))
    return (
        replace(
            node,
            labels=_node_labels(choices, name),
            available={},
            capacity={},
            initialized=False,
            closed=True,
        ),
        leaving,
    )
