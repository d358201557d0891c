"""Compiles a scheduling problem into the data that all plans share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from karpenter_core.api.labels import ALIASES, PODS
from karpenter_core.scheduling.compiled.class_topology import find_class_topologies
from karpenter_core.scheduling.compiled.daemons import read_daemons
from karpenter_core.scheduling.compiled.domain_counts import count_steps
from karpenter_core.scheduling.compiled.node_table import ExistingNodeReader
from karpenter_core.scheduling.compiled.pod_classes import classify_pods_steps
from karpenter_core.scheduling.compiled.pod_constraints import MOST_RESOURCES
from karpenter_core.scheduling.compiled.pools import compile_pool_steps
from karpenter_core.scheduling.compiled.signatures import SignatureTable
from karpenter_core.scheduling.compiled.topology_axes import find_topology_axes
from karpenter_core.scheduling.compiled.volumes import (
    NO_LIMIT,
    is_attach_resource,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from karpenter_core.scheduling.arrays import Amounts, Numbers
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
    from karpenter_core.scheduling.compiled.class_topology import ClassTopology
    from karpenter_core.scheduling.compiled.domain_counts import InitialCounts
    from karpenter_core.scheduling.compiled.pod_classes import (
        ClassRelaxationStep,
        NodeConstraints,
        PodClass,
        PodClassifier,
    )
    from karpenter_core.scheduling.compiled.pools import CompiledPool
    from karpenter_core.scheduling.compiled.reservations import AvailableReservations
    from karpenter_core.scheduling.compiled.topology import TopologyGroups
    from karpenter_core.scheduling.compiled.topology_axes import TopologyAxis
    from karpenter_core.scheduling.devices.inventory import DeviceInventory
    from karpenter_core.scheduling.problem import ExistingNode, SchedulingProblem, SolveOptions

__all__ = ["CompiledProblem", "PlacementTask", "compile_steps"]


class PlacementTask(Struct, frozen=True, kw_only=True, eq=False):
    """A class at one relaxation step, to be placed."""

    index: int
    pod_class: PodClass
    relaxation_step: ClassRelaxationStep
    topology: ClassTopology
    request: Amounts
    """resources: what one pod asks for."""
    requested_lines: tuple[tuple[int, int], ...]
    """The lines of `request` that are not zero, each with its amount."""
    lines: list[int]
    """The lines of `request` that are not zero."""
    reserved_only: bool = False
    """New claims are opened for reserved capacity alone."""

    @property
    def node_constraints(self) -> NodeConstraints:
        """The requirements on the node."""
        return self.relaxation_step.node_constraints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledProblem:
    """Classes, pools and existing nodes of one pass; `resources` name the lines of all amounts."""

    options: SolveOptions
    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    requests: Amounts
    """resources x classes: what one pod of each class asks for."""
    pools: tuple[CompiledPool, ...]
    pool_free: tuple[Amounts, ...]
    """By pool, resources x rows: what pods may use on each row of its catalogue."""
    reservations: AvailableReservations
    """The reserved capacity left when the pass begins."""
    signatures: SignatureTable
    pool_signatures: tuple[int, ...]
    nodes: Sequence[ExistingNode]
    """In the order in which they are filled: initialised ones first, then by name."""
    node_free: Amounts
    """resources x nodes: what is left on each existing node."""
    node_signatures: Numbers
    """nodes: the number of each existing node's signature."""
    axes: tuple[TopologyAxis, ...]
    initial_counts: InitialCounts
    topologies: tuple[tuple[ClassTopology, ...], ...]
    """The topology groups of every class at every relaxation step."""
    topology_groups: TopologyGroups
    classifier: PodClassifier
    reader: ExistingNodeReader
    max_new_nodes: int | None
    devices: DeviceInventory | None
    """Devices from which the pods' ResourceClaims are allocated; such pods are classes of their own."""
    _tasks: dict[tuple[int, int], PlacementTask] = field(
        init=False, default_factory=dict["tuple[int, int]", PlacementTask]
    )

    def placement_task(self, index: int, relaxation_step: int) -> PlacementTask:
        """Return the task of placing a class at one relaxation step."""
        task = self._tasks.get((index, relaxation_step))
        if task is None:
            pod_class, request = self.classes[index], self.requests[:, index]
            amounts: list[int] = request.tolist()
            requested = tuple([pair for pair in enumerate(amounts) if pair[1]])
            task = self._tasks[index, relaxation_step] = PlacementTask(
                index=index,
                pod_class=pod_class,
                relaxation_step=pod_class.relaxation_steps[relaxation_step],
                topology=self.topologies[index][relaxation_step],
                request=request,
                requested_lines=requested,
                lines=[line for line, _ in requested],
            )
        return task


def compile_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    cache: CatalogueCache,
    *,
    devices: DeviceInventory | None = None,
) -> Generator[int, None, CompiledProblem]:
    """Compile a problem; yields units of work done.

    With `devices`, each pod is a class of its own; without, pods with ResourceClaims are refused.
    """
    classes, classifier = yield from classify_pods_steps(
        problem,
        options,
        repelling=cache.nodes.repelling_shapes(problem.nodes),
        with_devices=devices is not None,
    )
    groups = classifier.groups
    cache.retain({pool.name for pool in problem.pools})
    pools, reservations = yield from compile_pool_steps(problem, options, cache)
    daemons = read_daemons(problem)
    # No node has room for a DaemonSet that requests more.
    small = (d.requests for d in daemons if len(d.requests) <= MOST_RESOURCES)
    named = (*(c.requests for c in classes), *small)
    shared = (resource for c in classes for resource, _ in c.shared_volumes)
    resources = tuple(sorted({PODS, *(name for requests in named for name in requests), *shared}))
    pool_free = tuple(_pool_free(pool, resources) for pool in pools)
    yield 5
    aliases = {**ALIASES, **problem.aliases}
    nodes = cache.nodes.ordered(problem.nodes)
    axes = find_topology_axes(groups, pools, nodes, classes, aliases)
    signatures = SignatureTable(pools, pool_free, axes, options)
    pool_signatures = tuple(signatures.number_of_pool(pool) for pool in pools)
    reader = cache.nodes.reader(
        ExistingNodeReader(problem, classes, (axis.key for axis in axes), resources)
    )
    node_free, node_signatures = yield from cache.nodes.column_steps(
        reader, nodes, signatures.number_of_node
    )
    first_counts = yield from count_steps(problem, groups, axes, nodes, signatures, node_signatures)
    yield 5
    return CompiledProblem(
        options=options,
        resources=resources,
        classes=classes,
        requests=_table(resources, classes),
        pools=pools,
        pool_free=pool_free,
        reservations=reservations,
        signatures=signatures,
        pool_signatures=pool_signatures,
        nodes=nodes,
        node_free=node_free,
        node_signatures=node_signatures,
        axes=axes,
        initial_counts=first_counts,
        topologies=find_class_topologies(classes, axes),
        topology_groups=groups,
        classifier=classifier,
        reader=reader,
        max_new_nodes=problem.max_new_nodes,
        devices=devices,
    )


def _pool_free(pool: CompiledPool, resources: Sequence[str]) -> Amounts:
    """Return what pods may use, resources x rows; new nodes attach any number of volumes."""
    free = pool.free(resources)
    for line, name in enumerate(resources):
        if is_attach_resource(name):
            free[line] = NO_LIMIT
    return free


def _table(resources: Sequence[str], classes: Sequence[PodClass]) -> Amounts:
    """Return what one pod of each class asks for: resources x classes."""
    table = np.zeros((len(resources), len(classes)), dtype=np.int64)
    for number, pod_class in enumerate(classes):
        table[:, number] = [pod_class.requests.get(name, 0) for name in resources]
    return table
