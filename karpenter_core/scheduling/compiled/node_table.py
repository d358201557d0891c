"""Reads existing nodes into columns, and keeps the columns between passes.

Of the thousands of nodes of a pass a few have changed since the last one: only these are read.
"""

from __future__ import annotations

from itertools import islice
from operator import le
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.api.labels import ALIASES, HOSTNAME, WELL_KNOWN
from karpenter_core.scheduling.compiled.node_signature import NodeSignature
from karpenter_core.scheduling.compiled.volumes import VolumeAttachments, is_attach_resource
from karpenter_core.scheduling.identity_memo import IdentityMemo
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from karpenter_core.api.records import PodShape
    from karpenter_core.scheduling.arrays import Amounts, Numbers
    from karpenter_core.scheduling.compiled.pod_classes import PodClass
    from karpenter_core.scheduling.problem import ExistingNode, SchedulingProblem

__all__ = ["ExistingNodeReader", "NodeTable"]

NODES_PER_STEP: Final = 200
"""The number of nodes read between two yields."""
_SPARE_SIGNATURES: Final = 64
_SIGNATURES_PER_NODE: Final = 2
"""A reader lives as long as pods ask for the same labels; nodes with names of their own come and go."""


class ExistingNodeReader:
    """Reads existing nodes: of their labels only those that pods or topology keys refer to."""

    def __init__(
        self,
        problem: SchedulingProblem,
        classes: Sequence[PodClass],
        topology_keys: Iterable[str],
        resources: Sequence[str],
    ) -> None:
        asks = {
            relaxation_step.node_constraints
            for pod_class in classes
            for relaxation_step in pod_class.relaxation_steps
        }
        required_keys = {
            key
            for node_constraints in asks
            for labels in node_constraints.alternatives
            for key in labels
        }
        self._required_keys: Final = tuple(sorted(required_keys.union(topology_keys)))
        self._aliases: Final = {**ALIASES, **problem.aliases}
        self._names: Final = frozenset(self._required_keys).union(
            alias for alias, key in self._aliases.items() if key in self._required_keys
        )
        """The labels to read, as a node may have them."""
        self._well_known: Final = WELL_KNOWN | problem.well_known
        self._resources: Final = tuple((name, is_attach_resource(name)) for name in resources)
        self._node_signatures: Final = dict[object, NodeSignature]()
        self.settings: Final = (
            self._required_keys,
            self._aliases,
            self._well_known,
            self._resources,
        )
        """Everything that the reading of a node depends on; compared by value."""

    def free(self, node: ExistingNode) -> list[int]:
        """Return how much of each resource pods may still use; -1 where no pod may be added.

        That is on closed nodes and on overdrawn ones.
        """
        available = node.available
        if node.closed or min(available.values(), default=0) < 0:
            return [-1] * len(self._resources)
        return [
            VolumeAttachments.free(node, name) if attaches else available.get(name, 0)
            for name, attaches in self._resources
        ]

    def signature(self, node: ExistingNode) -> NodeSignature:
        """Return the signature of a node: everything but its free resources."""
        ports = {*node.host_ports}
        for pod in node.pods:
            if pod.shape.host_ports:
                ports.update(pod.shape.host_ports)
        host_ports = tuple(sorted(ports, key=str)) if ports else ()
        if node.requirements is not None:
            return NodeSignature(
                requirements=Requirements(
                    r for r in node.requirements.values() if r.key in self._required_keys
                ),
                taints=node.taints,
                host_ports=host_ports,
                undecided=self._well_known,
                is_planned=node.is_planned,
            )
        labels = tuple([pair for pair in node.labels.items() if pair[0] in self._names])
        name = node.name if HOSTNAME in self._names else ""
        key = (labels, name, node.taints, host_ports)
        node_signature = self._node_signatures.get(key)
        if node_signature is None:
            node_signature = self._node_signatures[key] = NodeSignature(
                requirements=self._requirements(node), taints=node.taints, host_ports=host_ports
            )
        return node_signature

    def forget_signatures(self, *, nodes: int) -> None:
        """Forget the signatures if most of them are of nodes that are gone."""
        if len(self._node_signatures) > _SIGNATURES_PER_NODE * (nodes + NODES_PER_STEP):
            self._node_signatures.clear()

    def _requirements(self, node: ExistingNode) -> Requirements:
        # A CSI driver spells some values of an alias in its own way: the canonical label counts.
        labels = {self._aliases.get(key, key): value for key, value in node.labels.items()}
        labels = {HOSTNAME: node.name, **labels, **node.labels}
        return Requirements.from_labels(
            {key: labels[key] for key in self._required_keys if key in labels},
            aliases=self._aliases,
        )


@final
class NodeTable:
    """The existing nodes of the last problem as columns; holds nothing of earlier ones."""

    def __init__(self) -> None:
        self._reader: ExistingNodeReader | None = None
        self._orders: Final = IdentityMemo["ExistingNode", tuple[bool, str]]()
        self._is_ordered = False
        self._repelling: Final = IdentityMemo["ExistingNode", "tuple[PodShape, ...]"]()
        self._read: Final = IdentityMemo["ExistingNode", tuple[NodeSignature, list[int]]]()
        self._columns: Amounts = np.zeros((0, 0), dtype=np.int64)
        self._distinct: Final = list["NodeSignature"]()
        """Signatures of nodes, each once; some may have no node any more."""
        self._positions: Final = dict[int, int]()
        """The position of each signature in `_distinct`, by its id."""
        self._of_nodes: Numbers = np.zeros(0, dtype=np.int64)
        """The position of the signature of each node."""

    def reader(self, reader: ExistingNodeReader) -> ExistingNodeReader:
        """Return the reader of the last problem if it reads nodes in the same way."""
        if self._reader is None or self._reader.settings != reader.settings:
            self._reader = reader
        return self._reader

    def ordered(self, nodes: Sequence[ExistingNode]) -> tuple[ExistingNode, ...]:
        """Return nodes in the order in which they are filled: initialised ones first, by name."""
        keys = self._orders.values(nodes, _order)
        changed = self._orders.changed
        if changed is None or not self._is_ordered:
            self._is_ordered = all(map(le, keys, islice(keys, 1, None)))
        else:
            self._is_ordered = all(
                keys[place - 1] <= keys[place]
                for number in changed
                for place in (number, number + 1)
                if 0 < place < len(keys)
            )
        return tuple(nodes) if self._is_ordered else tuple(sorted(nodes, key=_order))

    def repelling_shapes(self, nodes: Sequence[ExistingNode]) -> Iterator[PodShape]:
        """Yield the shapes with anti-affinity of the pods on nodes."""
        for shapes in filter(None, self._repelling.values(nodes, _repelling_shapes)):
            yield from shapes

    def column_steps(
        self,
        reader: ExistingNodeReader,
        nodes: Sequence[ExistingNode],
        number_of_node: Callable[[NodeSignature], int],
    ) -> Generator[int, None, tuple[Amounts, Numbers]]:
        """Return what is left on each node (resources x nodes), and the numbers of signatures."""
        made: dict[int, tuple[NodeSignature, list[int]]] = {}
        reader.forget_signatures(nodes=len(nodes))

        def read_node(node: ExistingNode) -> tuple[NodeSignature, list[int]]:
            found = made.get(id(node))
            return found or (reader.signature(node), reader.free(node))

        for number, node in enumerate(self._read.missing(nodes, equal=reader.settings)):
            made[id(node)] = read_node(node)
            if number % NODES_PER_STEP == 0:
                yield 1
        read = self._read.values(nodes, read_node, equal=reader.settings)
        shape = (len(reader.settings[3]), len(nodes))
        if self._read.changed is None or self._columns.shape != shape:
            rows = np.array([free for _, free in read], dtype=np.int64)
            self._columns = rows.reshape(shape[::-1]).T.copy()
        else:
            for number in self._read.changed:
                self._columns[:, number] = read[number][1]
        self._note_signatures(read)
        return self._columns.copy(), self._numbers(number_of_node)

    def _note_signatures(self, read: Sequence[tuple[NodeSignature, list[int]]]) -> None:
        """Bring the positions of signatures up to date with the nodes read last."""
        changed = self._read.changed
        gone = len(self._distinct) > 2 * len(read) + _SPARE_SIGNATURES
        if changed is None or gone or len(self._of_nodes) != len(read):
            self._distinct.clear()
            self._positions.clear()
            positions = [self._position(signature) for signature, _ in read]
            self._of_nodes = np.array(positions, dtype=np.int64)
            return
        for place in changed:
            self._of_nodes[place] = self._position(read[place][0])

    def _position(self, signature: NodeSignature) -> int:
        position = self._positions.get(id(signature))
        if position is None:
            position = self._positions[id(signature)] = len(self._distinct)
            self._distinct.append(signature)
        return position

    def _numbers(self, number_of_node: Callable[[NodeSignature], int]) -> Numbers:
        """Return the number of each node's signature; asks once for each, in the order of nodes."""
        found, first = np.unique(self._of_nodes, return_index=True)
        numbers = np.zeros(len(self._distinct), dtype=np.int64)
        order: list[int] = found[np.argsort(first)].tolist()
        for position in order:
            numbers[position] = number_of_node(self._distinct[position])
        return numbers[self._of_nodes]


def _order(node: ExistingNode) -> tuple[bool, str]:
    return (not node.initialized, node.name)


def _repelling_shapes(node: ExistingNode) -> tuple[PodShape, ...]:
    return tuple(
        {id(pod.shape): pod.shape for pod in node.pods if pod.shape.pod_anti_affinity}.values()
    )
