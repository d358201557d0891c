"""A problem as integers and columns: everything that all plans of one pass share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.api.labels import ALIASES, HOSTNAME, PODS, WELL_KNOWN
from karpenter_core.scheduling.classes import classify_steps
from karpenter_core.scheduling.pools import compile_pool_steps, read_daemons
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.signatures import NodeSignature, Signatures

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from karpenter_core.scheduling.catalogue import CatalogueCache
    from karpenter_core.scheduling.classes import PodClass
    from karpenter_core.scheduling.columns import Amounts
    from karpenter_core.scheduling.pools import CompiledPool
    from karpenter_core.scheduling.problem import ExistingNode, Problem, SolveOptions

__all__ = ["CompiledProblem", "compile_steps"]

NODES_PER_STEP: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledProblem:
    """Classes, pools and existing nodes of one pass; `resources` name the lines of all amounts."""

    options: SolveOptions
    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    requests: Amounts
    """A column per class."""
    pools: tuple[CompiledPool, ...]
    pool_free: tuple[Amounts, ...]
    """What pods may use on each row of each pool's catalogue."""
    signatures: Signatures
    pool_signatures: tuple[int, ...]
    nodes: tuple[ExistingNode, ...]
    """In the order in which they are filled: initialised ones first, then by name."""
    node_free: Amounts
    node_signatures: Amounts


def compile_steps(
    problem: Problem, options: SolveOptions, cache: CatalogueCache
) -> Generator[int, None, CompiledProblem]:
    """Compile a problem; yields units of work done."""
    classes = yield from classify_steps(problem, options)
    cache.retain({pool.name for pool in problem.pools})
    pools = yield from compile_pool_steps(problem, options, cache)
    daemons = read_daemons(problem)
    named = (*(c.requests for c in classes), *(daemon.requests for daemon in daemons))
    resources = tuple(sorted({PODS, *(name for requests in named for name in requests)}))
    pool_free = tuple(pool.free(resources) for pool in pools)
    signatures = Signatures(pools, pool_free)
    pool_signatures = tuple(signatures.of_pool(pool) for pool in pools)
    nodes = tuple(sorted(problem.nodes, key=lambda node: (not node.initialized, node.name)))
    reader = _NodeReader(problem, classes)
    node_free = np.zeros((len(resources), len(nodes)), dtype=np.int64)
    node_signatures = np.zeros(len(nodes), dtype=np.int64)
    for number, node in enumerate(nodes):
        node_signatures[number] = signatures.of_node(reader.signature(node))
        node_free[:, number] = [node.available.get(name, 0) for name in resources]
        if min(node.available.values(), default=0) < 0:
            node_free[:, number] = -1  # nothing fits on an overdrawn node
        if number % NODES_PER_STEP == 0:
            yield 1
    return CompiledProblem(
        options=options,
        resources=resources,
        classes=classes,
        requests=_table(resources, classes),
        pools=pools,
        pool_free=pool_free,
        signatures=signatures,
        pool_signatures=pool_signatures,
        nodes=nodes,
        node_free=node_free,
        node_signatures=node_signatures,
    )


def _table(resources: Sequence[str], classes: Sequence[PodClass]) -> Amounts:
    table = np.zeros((len(resources), len(classes)), dtype=np.int64)
    for number, pod_class in enumerate(classes):
        table[:, number] = [pod_class.requests.get(name, 0) for name in resources]
    return table


class _NodeReader:
    """Reads existing nodes: of their labels only those that somebody asks for."""

    def __init__(self, problem: Problem, classes: Sequence[PodClass]) -> None:
        rungs = (rung for pod_class in classes for rung in pod_class.rungs)
        self._asked: Final = tuple(sorted({key for rung in rungs for key in rung.requirements}))
        self._aliases: Final = {**ALIASES, **problem.aliases}
        self._well_known: Final = WELL_KNOWN | problem.well_known

    def signature(self, node: ExistingNode) -> NodeSignature:
        ports = {*node.host_ports, *(port for pod in node.pods for port in pod.shape.host_ports)}
        return NodeSignature(
            requirements=self._requirements(node),
            taints=node.taints,
            host_ports=tuple(sorted(ports, key=str)),
            undecided=None if node.requirements is None else self._well_known,
        )

    def _requirements(self, node: ExistingNode) -> Requirements:
        if node.requirements is not None:
            known: Iterable[Requirement] = node.requirements.values()
            return Requirements(r for r in known if r.key in self._asked)
        labels = {self._aliases.get(key, key): value for key, value in node.labels.items()}
        labels = {HOSTNAME: node.name, **labels}
        return Requirements.from_labels(
            {key: labels[key] for key in self._asked if key in labels}, aliases=self._aliases
        )
