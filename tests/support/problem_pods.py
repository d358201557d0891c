"""Draws random pods with every constraint for scheduling problems.

See `tests.support.problems`, which puts them into whole problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from msgspec.structs import replace

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from karpenter_core.api.records import (
    AffinityTerm,
    HostPort,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorTerm,
    PodShape,
    PreferredNodeTerm,
    TopologySpread,
    WeightedAffinityTerm,
)
from karpenter_core.testing.builders import node_term, pod_shape, preferred_node_term
from tests.support.random_choices import (
    CORES,
    FAMILY,
    NAMESPACES,
    RACK,
    RACKS,
    TEAM,
    TEAMS,
    ZONES,
    ProblemFeature,
    RandomChoices,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["random_shapes"]

_APPS: Final = ("web", "db", "cache", "ui")
_TIERS: Final = ("front", "back")
_VERSIONS: Final = ("1", "2")


def random_shapes(choices: RandomChoices, count: int) -> tuple[PodShape, ...]:
    """Draw the shapes of so many deployments; some form a chain of affinities."""
    shapes = [_shape(choices) for _ in range(count)]
    if count > 1 and choices.chance(15, ProblemFeature.AFFINITY):
        key = choices.one((HOSTNAME, HOSTNAME, ZONE))
        for number in range(1, min(count, len(_APPS))):
            before = _APPS[number - 1]
            shapes[number - 1] = _relabelled(shapes[number - 1], before)
            term = AffinityTerm(
                topology_key=key, selector=LabelSelector(match_labels={"app": before})
            )
            shapes[number] = replace(
                _relabelled(shapes[number], _APPS[number]),
                namespace=shapes[number - 1].namespace,
                pod_affinity=(term,),
            )
    return tuple(shapes)


def _relabelled(shape: PodShape, app: str) -> PodShape:
    return replace(shape, labels={**shape.labels, "app": app})


def _shape(choices: RandomChoices) -> PodShape:
    namespace = "default"
    if choices.chance(35, ProblemFeature.NAMESPACES):
        namespace = choices.one(tuple(NAMESPACES))
    labels = _labels(choices)
    node_selector, required = _node_wishes(choices)
    shape = pod_shape(
        **_amounts(choices),
        namespace=namespace,
        labels=labels,
        node_selector=node_selector,
        required=required,
        preferred=_preferred_nodes(choices),
        tolerations=choices.one(_TOLERATIONS) if choices.chance(50, ProblemFeature.TAINTS) else (),
        host_ports=choices.one(_PORTS) if choices.chance(15, ProblemFeature.PORTS) else (),
        priority=choices.one((0, 0, 0, 1000)),
    )
    affinity = _terms(choices, ProblemFeature.AFFINITY, 14, labels)
    anti_affinity = _terms(choices, ProblemFeature.ANTI_AFFINITY, 18, labels)
    return replace(
        shape,
        topology_spread=_spreads(choices, labels),
        pod_affinity=affinity,
        pod_anti_affinity=anti_affinity,
        preferred_pod_affinity=_wished(choices, ProblemFeature.AFFINITY, labels),
        preferred_pod_anti_affinity=_wished(choices, ProblemFeature.ANTI_AFFINITY, labels),
    )


_TOLERATIONS: Final = (
    ("dedicated",),
    ("dedicated=blue:NoSchedule",),
    ("",),
    ("soft:PreferNoSchedule", "dedicated=green:NoSchedule"),
)
_PORTS: Final = (
    (8080,),
    (8080, 9090),
    (HostPort(port=8080, protocol="UDP"),),
    (HostPort(port=8080, ip="10.0.0.1"),),
    (HostPort(port=8080, ip="10.0.0.2"), 9090),
)
_CPUS: Final = ("50m", "100m", "250m", "500m", "1", "1500m", "2", "4")
_MEMORIES: Final = ("16Mi", "128Mi", "512Mi", "1Gi", "3Gi", "7Gi")


def _labels(choices: RandomChoices) -> dict[str, str]:
    labels: dict[str, str] = {}
    if not choices.chance(8):
        labels["app"] = choices.one(_APPS)
    if choices.chance(40):
        labels["tier"] = choices.one(_TIERS)
    if choices.chance(40):
        labels["version"] = choices.one(_VERSIONS)
    return labels


class _Amounts(TypedDict):
    cpu: str
    memory: str
    requests: Mapping[str, str]


def _amounts(choices: RandomChoices) -> _Amounts:
    """Draw requests: all sizes, also nothing at all, and only one of cpu and memory."""
    cpu, memory = choices.one(_CPUS), choices.one(_MEMORIES)
    match choices.number(0, 24):
        case 19:
            cpu = "12"
        case 20:
            memory = "30Gi"
        case 21:
            cpu, memory = "", ""
        case 22:
            cpu = ""
        case 23:
            memory = ""
        case 24:
            return _Amounts(cpu=cpu, memory=memory, requests={"example.com/gpu": "1"})
        case _:
            pass
    return _Amounts(cpu=cpu, memory=memory, requests={})


# -- what pods want of nodes -----------------------------------------------------------------------


def _node_wishes(choices: RandomChoices) -> tuple[dict[str, str], tuple[NodeSelectorTerm, ...]]:
    match choices.number(0, 11):
        case 6 | 7:
            return {ZONE: choices.one(ZONES)}, ()
        case 8:
            return {ARCH: choices.one(("amd64", "arm64", "amd64", "arm64", "mips"))}, ()
        case 9:
            key, value = choices.one(
                ((CAPACITY_TYPE, "spot"), (CAPACITY_TYPE, "on-demand"), (TEAM, "blue"))
            )
            return {key: value}, ()
        case 10:
            if choices.has(ProblemFeature.TERMS):
                terms = tuple(_node_term(choices) for _ in range(choices.number(1, 3)))
                return ({ZONE: choices.one(ZONES)} if choices.chance(15) else {}), terms
            return {}, (_node_term(choices),)
        case 11 if choices.has(ProblemFeature.BOUNDS):
            return {}, (_bounded(choices),)
        case _:
            return {}, ()


def _node_term(choices: RandomChoices) -> NodeSelectorTerm:
    keys: list[tuple[str, tuple[str, ...]]] = [
        (ZONE, (*ZONES, "nowhere")),
        (ARCH, ("amd64", "arm64")),
        (FAMILY, ("c", "m", "r")),
        (TEAM, TEAMS),
        (INSTANCE_TYPE, ("type-0", "type-1", "type-2", "type-3")),
        (CAPACITY_TYPE, ("spot", "on-demand")),
    ]
    if choices.has(ProblemFeature.CUSTOM_KEYS):
        keys.append((RACK, RACKS))
    expressions: list[tuple[str, ...]] = []
    for _ in range(choices.one((1, 1, 2))):
        key, values = choices.one(keys)
        operator = choices.one(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        chosen = choices.some(values)[:2] if operator in {"In", "NotIn"} else ()
        expressions.append((key, operator, *chosen))
    return node_term(*expressions)


def _bounded(choices: RandomChoices) -> NodeSelectorTerm:
    match choices.number(0, 2):
        case 0:
            return node_term((CORES, "Gt", choices.one(("1", "3", "8"))))
        case 1:
            return node_term((CORES, "Lt", choices.one(("3", "9", "100"))))
        case _:
            return node_term((CORES, "Gt", "1"), (CORES, "Lt", choices.one(("2", "9"))))


def _preferred_nodes(choices: RandomChoices) -> tuple[PreferredNodeTerm, ...]:
    if not choices.chance(12, ProblemFeature.PREFERENCES):
        return ()
    return tuple(
        preferred_node_term(
            choices.one((1, 50, 100)),
            *((e.key, e.operator, *e.values) for e in _node_term(choices).match_expressions),
        )
        for _ in range(choices.number(1, 3))
    )


# -- what pods want of pods ------------------------------------------------------------------------


def _selector(choices: RandomChoices, own: Mapping[str, str]) -> LabelSelector | None:
    """Draw a selector: of the pod itself, of other ones, of overlapping sets, of all or none."""
    match choices.number(0, 29):
        case 12 | 13:
            return LabelSelector(match_labels={"tier": choices.one(_TIERS)})
        case 14 | 15:
            return _expression("app", "In", *choices.some(_APPS))
        case 16:
            return _expression("app", "NotIn", choices.one(_APPS))
        case 17:
            return _expression("tier", choices.one(("Exists", "DoesNotExist")))
        case 18:
            return LabelSelector()
        case 19:
            return None
        case 8 | 9 | 10 | 11:
            return LabelSelector(match_labels={"app": choices.one(_APPS)})
        case _:
            return LabelSelector(match_labels=dict(own))


def _expression(key: str, operator: str, *values: str) -> LabelSelector:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=values)
    return LabelSelector(match_expressions=(requirement,))


def _topology_key(choices: RandomChoices) -> str:
    if choices.chance(2):
        return "example.com/unknown"
    keys = [ZONE, HOSTNAME, ZONE, HOSTNAME, ZONE, CAPACITY_TYPE, ARCH]
    if choices.has(ProblemFeature.CUSTOM_KEYS):
        keys += [RACK, RACK]
    return choices.one(keys)


def _spreads(choices: RandomChoices, own: Mapping[str, str]) -> tuple[TopologySpread, ...]:
    if not choices.chance(40, ProblemFeature.SPREAD):
        return ()
    made: dict[tuple[str, str], TopologySpread] = {}
    for _ in range(choices.one((1, 1, 1, 2, 3))):
        hard = not choices.chance(20, ProblemFeature.PREFERENCES)
        selector = _selector(choices, own)
        keyed = selector is not None and choices.chance(15)
        spread = TopologySpread(
            topology_key=_topology_key(choices),
            max_skew=choices.one((1, 1, 1, 2, 3, 5)),
            when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
            selector=selector,
            min_domains=choices.number(1, 4) if hard and choices.chance(15) else None,
            node_affinity_policy="Ignore" if choices.chance(15) else "Honor",
            node_taints_policy="Honor" if choices.chance(20) else "Ignore",
            match_label_keys=choices.one((("version",), ("version", "absent"))) if keyed else (),
        )
        made.setdefault((spread.topology_key, spread.when_unsatisfiable), spread)
    return tuple(made.values())


def _terms(
    choices: RandomChoices, feature: ProblemFeature, percent: int, own: Mapping[str, str]
) -> tuple[AffinityTerm, ...]:
    if not choices.chance(percent, feature):
        return ()
    return tuple(_term(choices, own) for _ in range(choices.one((1, 1, 1, 1, 2))))


def _term(choices: RandomChoices, own: Mapping[str, str]) -> AffinityTerm:
    term = AffinityTerm(topology_key=_topology_key(choices), selector=_selector(choices, own))
    if choices.chance(30, ProblemFeature.NAMESPACES):
        term = replace(
            term,
            namespaces=choices.some(tuple(NAMESPACES), 0),
            namespace_selector=choices.one(
                (
                    None,
                    LabelSelector(),
                    LabelSelector(match_labels={"team": "a"}),
                    _expression("stage", "DoesNotExist"),
                )
            ),
        )
    if term.selector is not None and "version" in own and choices.chance(12):
        return _with_label_keys(term, term.selector, own["version"], same=choices.chance(50))
    return term


def _with_label_keys(
    term: AffinityTerm, selector: LabelSelector, value: str, *, same: bool
) -> AffinityTerm:
    """Add `matchLabelKeys` the way the API server stores them: merged into the selector."""
    requirement = LabelSelectorRequirement(
        key="version", operator="In" if same else "NotIn", values=(value,)
    )
    return replace(
        term,
        selector=replace(selector, match_expressions=(*selector.match_expressions, requirement)),
        match_label_keys=("version",) if same else (),
        mismatch_label_keys=() if same else ("version",),
    )


def _wished(
    choices: RandomChoices, feature: ProblemFeature, own: Mapping[str, str]
) -> tuple[WeightedAffinityTerm, ...]:
    if not choices.has(feature) or not choices.chance(8, ProblemFeature.PREFERENCES):
        return ()
    return tuple(
        WeightedAffinityTerm(weight=choices.one((1, 50, 100)), term=_term(choices, own))
        for _ in range(choices.number(1, 2))
    )
