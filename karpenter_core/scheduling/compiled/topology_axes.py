"""Finds the domains of every topology key.

A key other than the host name has an axis of domains: the values that pools can make, those that
nodes have, and those that pods ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.records import Taint
    from karpenter_core.scheduling.compiled.pod_classes import PodClass
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.topology import TopologyGroup, TopologyGroups
    from karpenter_core.scheduling.problem import ExistingNode

__all__ = ["TopologyAxis", "find_topology_axes"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopologyAxis:
    """The domains of one topology key, by name; `groups` are its groups in the order of rows."""

    number: int
    key: str
    names: tuple[str, ...]
    index: Mapping[str, int]
    groups: tuple[TopologyGroup, ...]
    reachable: tuple[tuple[frozenset[int], tuple[Taint, ...]], ...]
    """The domains that each pool can make, with the pool's taints."""


def find_topology_axes(
    groups: TopologyGroups,
    pools: Sequence[CompiledPool],
    nodes: Sequence[ExistingNode],
    classes: Iterable[PodClass],
    aliases: Mapping[str, str],
) -> tuple[TopologyAxis, ...]:
    """Return the axes of all topology keys in play, by key."""
    keys = sorted(key for key, of_key in groups.keys.items() if not of_key[0].is_host)
    if not keys:
        return ()
    requirement_sets = {
        alternative
        for pod_class in classes
        for relaxation_step in pod_class.relaxation_steps
        for alternative in relaxation_step.node_constraints.alternatives
    }
    axes: list[TopologyAxis] = []
    for number, key in enumerate(keys):
        made = [_reachable_values(pool, key) for pool in pools]
        names = {name for values in made for name in values}
        for requirements in requirement_sets:
            if key in requirements and not requirements.get(key).complement:
                names |= requirements.get(key).values
        names |= {value for node in nodes if (value := _label(node, key, aliases))}
        ordered = tuple(sorted(names))
        index = {name: position for position, name in enumerate(ordered)}
        axes.append(
            TopologyAxis(
                number=number,
                key=key,
                names=ordered,
                index=index,
                groups=tuple(groups.keys[key]),
                reachable=tuple(
                    (frozenset(index[name] for name in values), pool.taints)
                    for pool, values in zip(pools, made, strict=True)
                ),
            )
        )
    return tuple(axes)


def _reachable_values(pool: CompiledPool, key: str) -> frozenset[str]:
    """Return the values of a label that a pool's nodes may have (spec 14.2).

    A zone whose offerings the pool's other requirements exclude is none of them: pods that spread over
    zones would wait for nodes there.
    """
    pool_requirement = pool.requirements.get(key)
    values = {value for value in pool.catalogue.values_of(key) if pool_requirement.has(value)}
    values -= pool.catalogue.unsold_values(key, pool.requirements, pool.well_known)
    if not pool_requirement.complement and not pool.catalogue.defines(key):
        values |= pool_requirement.values
    return frozenset(values)


def _label(node: ExistingNode, key: str, aliases: Mapping[str, str]) -> str:
    if node.requirements is not None:
        return node.requirements.single_value(key)
    value = node.labels.get(key)
    if value is None:
        for alias, canonical in aliases.items():
            if canonical == key and alias in node.labels:
                return node.labels[alias]
    return value or ""
