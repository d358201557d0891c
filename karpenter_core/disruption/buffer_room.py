"""Tells whether pods of removed nodes would take the room of capacity buffers.

A what-if puts these pods where the virtual pods of buffers find room beside them. Kubernetes' scheduler
knows nothing of buffers, and binds pods to the nodes where most is free: these are the nodes with the
room of buffers. A buffer that lost its room gets a new node, the next what-if finds again that one node
is too many, and so on without end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CPU, HOSTNAME, MEMORY
from karpenter_core.api.records import LabelSelector
from karpenter_core.scheduling.least_allocated import free_share
from karpenter_core.scheduling.node_pods import on_nodes_alone, with_pods
from karpenter_core.scheduling.problem import ExistingNode
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import element_min, fits, merge, subtract
from karpenter_core.scheduling.selectors import PodSelector
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.taints import first_untolerated
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.existing_nodes import required_terms, selects_node
from karpenter_core.state.taints import taint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView, Resources
    from karpenter_core.scheduling.problem import PlannedNodeClaim, SchedulingProblem
    from karpenter_core.scheduling.whatif.what_if import WhatIfVerdict
    from karpenter_core.state.node_memory import NodeMemory
    from karpenter_core.state.provisioning_input import ProblemSettings
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["BufferRoom"]

_PREFERENCE: Final = "PreferNoSchedule"
_REPLACEMENT: Final = "replacement/"
"""Before the number of a planned claim: no Node has such a name."""


@final
class BufferRoom:
    """The room of the virtual pods of one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        problem_settings: ProblemSettings,
        memory: NodeMemory,
    ) -> None:
        """`memory` is that of earlier passes."""
        self._snapshot: Final = snapshot
        self._now: Final = now
        self._problem_settings: Final = problem_settings
        self._memory: Final = memory

    def lost_by(self, verdict: WhatIfVerdict) -> int:
        """Return how many virtual pods have no room once the pods of removed nodes are bound."""
        if not self._snapshot.has_virtual_pods:
            return 0
        problem, movable = self._problem
        removed = frozenset(verdict.removed)
        pods = {
            pod.uid: pod
            for node in problem.nodes
            if node.name in removed
            for pod in node.pods
            if pod.uid in movable.get(node.name, ())
        }
        moving = [pod for pod in pods.values() if not pod.is_virtual]
        if not moving:
            return 0
        planned = {pod.uid: name for name, placed in verdict.placements for pod in placed}
        nodes = {node.name: node for node in problem.nodes if node.name not in removed}
        allocatable: dict[str, Resources] = {}
        for number, claim in enumerate(verdict.claims):
            name = f"{_REPLACEMENT}{number}"
            nodes[name], allocatable[name] = self._replacement(name, claim)
            planned.update((pod.uid, name) for pod in claim.pods)
        virtual = [
            *(pod for pod in problem.pods if pod.is_virtual),
            *(pod for pod in pods.values() if pod.is_virtual),
        ]
        moving.sort(key=_largest_first)

        def as_planned(_choices: _NodeChoices, pod: PodView) -> str:
            return planned.get(pod.uid, "")

        def emptiest_admitted(choices: _NodeChoices, pod: PodView) -> str:
            name = choices.best(pod)
            return name if self._admits(name, pod, choices.nodes) else as_planned(choices, pod)

        def lost(bound_to: Callable[[_NodeChoices, PodView], str]) -> int:
            return self._lost_after(
                moving, virtual, _NodeChoices(nodes, problem, self._ranks, allocatable), bound_to
            )

        if not any(map(_is_bound_by_others, moving)):
            return lost(as_planned)
        # The scheduler may bind such a pod elsewhere than a what-if does. To ask the solver is dear, and
        # needless where nothing is lost on the emptiest nodes, whether they admit the pods or not.
        return lost(as_planned) or (lost(_NodeChoices.best) and lost(emptiest_admitted))

    def _lost_after(
        self,
        moving: Iterable[PodView],
        virtual: Collection[PodView],
        choices: _NodeChoices,
        bound_to: Callable[[_NodeChoices, PodView], str],
    ) -> int:
        """Return how many virtual pods lose their room; `bound_to` binds pods that depend on others."""
        for pod in moving:
            choose = bound_to if _is_bound_by_others(pod) else _NodeChoices.best
            choices.bind(pod, choose(choices, pod))
        left = self._without_room(virtual, choices.nodes.values())
        return max(len(left) - len(self._left_before), 0)

    def _admits(self, name: str, pod: PodView, nodes: Mapping[str, ExistingNode]) -> bool:
        """Tell whether a node takes a pod that depends on other pods, as they are on the nodes."""
        problem, _ = self._problem
        alone = [
            node if node.name == name else replace(node, closed=True) for node in nodes.values()
        ]
        return name in nodes and not solve(on_nodes_alone(problem, [pod], alone)).unschedulable

    def _replacement(self, name: str, claim: PlannedNodeClaim) -> tuple[ExistingNode, Resources]:
        """Return a planned claim as a node without pods, and its allocatable resources.

        Both are as small as any of its instance types.
        """
        pool, catalogue = (
            self._snapshot.node_pools[claim.pool],
            self._snapshot.catalogues[claim.pool],
        )
        listed = frozenset(claim.instance_types)
        types = [item for item in catalogue.instance_types if item.name in listed]
        daemons = subtract(claim.requests, merge(pod.shape.requests for pod in claim.pods))
        allocatable = element_min(item.allocatable() for item in types)
        aliases = self._problem_settings.aliases
        node = ExistingNode(
            name=name,
            labels={HOSTNAME: name, **claim.labels},
            taints=tuple(map(taint_of, pool.spec.template.spec.taints)),
            available=subtract(allocatable, daemons),
            capacity=element_min(item.capacity for item in types),
            initialized=False,
            requirements=Requirements(claim.requirements).merge(
                Requirements.from_labels(claim.labels, aliases=aliases)
            ),
        )
        return node, allocatable

    @cached_property
    def _problem(self) -> tuple[SchedulingProblem, Mapping[str, frozenset[str]]]:
        return build_disruption_problem(
            self._snapshot,
            now=self._now,
            problem_settings=self._problem_settings,
            memory=self._memory,
        )

    @cached_property
    def _left_before(self) -> Collection[str]:
        problem, _ = self._problem
        return self._without_room([pod for pod in problem.pods if pod.is_virtual], problem.nodes)

    @cached_property
    def _ranks(self) -> _NodeRanks:
        problem, _ = self._problem
        allocatable = {node.name: node.allocatable for node in self._snapshot.state_nodes}
        return _NodeRanks(problem, allocatable, self._problem_settings.aliases)

    def _without_room(
        self, virtual: Collection[PodView], nodes: Collection[ExistingNode]
    ) -> Collection[str]:
        """Return the UIDs of the virtual pods that find no room on some nodes."""
        problem, _ = self._problem
        if not any(map(_is_bound_by_others, virtual)):
            if not any(map(self._may_be_repelled, virtual)) and self._have_room(virtual, nodes):
                return ()
            asked_for = {id(pod.shape): pod.shape.requests for pod in virtual}.values()
            nodes = [n for n in nodes if any(fits(requests, n.available) for requests in asked_for)]
        return solve(on_nodes_alone(problem, virtual, nodes)).unschedulable.keys()

    def _may_be_repelled(self, pod: PodView) -> bool:
        """Tell whether a pod on a node, of whichever namespace, wants to be without such pods."""
        return any(selector.matches(pod.shape.labels) for selector in self._repelling)

    @cached_property
    def _repelling(self) -> list[PodSelector]:
        problem, _ = self._problem
        shapes = {id(pod.shape): pod.shape for node in problem.nodes for pod in node.pods}
        terms = [term for shape in shapes.values() for term in shape.pod_anti_affinity]
        found = [PodSelector.read(term.selector or LabelSelector()) for term in terms]
        return [selector for selector in found if selector is not None]

    def _have_room(self, virtual: Collection[PodView], nodes: Collection[ExistingNode]) -> bool:
        """Tell whether the first nodes that take them have room for all; False if that is not clear."""
        problem, _ = self._problem
        left = list(nodes)
        first = dict[int, int]()
        for pod in sorted(virtual, key=_largest_first):
            for place in range(first.get(id(pod.shape), 0), len(left)):
                node = left[place]
                if fits(pod.shape.requests, node.available) and self._ranks.takes(node, pod):
                    left[place] = with_pods(node, (pod,), problem.volumes)
                    first[id(pod.shape)] = place
                    break
            else:
                return False
        return True


@final
class _NodeRanks:
    """The nodes of a problem that take pods of a shape, with the negated share that is free then.

    Each list is a heap, and is made once for all moves of a pass.
    """

    def __init__(
        self,
        problem: SchedulingProblem,
        allocatable: Mapping[str, Resources],
        aliases: Mapping[str, str],
    ) -> None:
        """`allocatable` is known of the nodes that exist."""
        self._problem: Final = problem
        self._allocatable: Final = allocatable
        self._aliases: Final = aliases
        self._by_shape: Final = dict[int, list[tuple[float, str]]]()

    def ranked(self, pod: PodView) -> list[tuple[float, str]]:
        """Return a copy of the heap for the shape of a pod."""
        ranked = self._by_shape.get(id(pod.shape))
        if ranked is None:
            ranked = self._by_shape[id(pod.shape)] = [
                (-self.free_share(node, pod), node.name)
                for node in self._problem.nodes
                if fits(pod.shape.requests, node.available) and self.takes(node, pod)
            ]
            heapify(ranked)
        return ranked.copy()

    def free_share(
        self, node: ExistingNode, pod: PodView, allocatable: Resources | None = None
    ) -> float:
        """Return the score of a node for a pod; `allocatable` is given for a replacement."""
        return free_share(
            available=node.available,
            allocatable=allocatable or self._allocatable.get(node.name) or node.capacity,
            requests=pod.shape.requests,
        )

    def takes(self, node: ExistingNode, pod: PodView) -> bool:
        """Tell whether taints and labels of a node admit a pod."""
        hard = [taint for taint in node.taints if taint.effect != _PREFERENCE]
        if node.closed or first_untolerated(hard, pod.shape.tolerations) is not None:
            return False
        if node.requirements is None:
            return selects_node(pod.shape, node.node_name, node.labels, self._aliases)
        # Labels of a node that is yet to come are not all known: it may be what the pod asks for.
        terms = required_terms(pod.shape, self._aliases)
        return any(
            term.may_select(node.requirements, allow_undefined=self._problem.well_known)
            for term in terms
        )


@final
class _NodeChoices:
    """Nodes that are filled as Kubernetes' scheduler does it: each pod goes where most is left."""

    def __init__(
        self,
        nodes: Mapping[str, ExistingNode],
        problem: SchedulingProblem,
        ranks: _NodeRanks,
        allocatable: Mapping[str, Resources],
    ) -> None:
        """`nodes` are those of the problem without removed ones, and replacements.

        `allocatable` is that of the replacements.
        """
        self.nodes: Final = dict(nodes)
        self._volumes: Final = problem.volumes
        self._ranks: Final = ranks
        self._allocatable: Final = allocatable
        self._queues: Final = dict[int, list[tuple[float, str]]]()
        """By shape, its nodes with the negated share that was free when they were entered."""

    def best(self, pod: PodView) -> str:
        """Return the node where most is left with the pod; empty if none takes it.

        What is free only becomes less, so an outdated entry is corrected when it comes first.
        """
        queue = self._queues.get(id(pod.shape))
        if queue is None:
            queue = self._queues[id(pod.shape)] = self._ranks.ranked(pod)
            for name in self._allocatable:
                if self._ranks.takes(self.nodes[name], pod):
                    heappush(queue, (-self._free_share(self.nodes[name], pod), name))
        while queue:
            share, name = queue[0]
            node = self.nodes.get(name)
            if node is None or not fits(pod.shape.requests, node.available):
                heappop(queue)
            elif share == -self._free_share(node, pod):
                return name
            else:
                heapreplace(queue, (-self._free_share(node, pod), name))
        return ""

    def _free_share(self, node: ExistingNode, pod: PodView) -> float:
        return self._ranks.free_share(node, pod, self._allocatable.get(node.name))

    def bind(self, pod: PodView, name: str) -> None:
        """Put a pod on a node; without a name it stays pending."""
        if name in self.nodes:
            self.nodes[name] = with_pods(self.nodes[name], (pod,), self._volumes)


def _largest_first(pod: PodView) -> tuple[int, int, str]:
    requests = pod.shape.requests
    return -requests.get(CPU, 0), -requests.get(MEMORY, 0), pod.uid


def _is_bound_by_others(pod: PodView) -> bool:
    """Tell whether other pods or volumes decide on the pod's node: the what-if knows them."""
    shape = pod.shape
    return bool(
        shape.topology_spread
        or shape.pod_affinity
        or shape.pod_anti_affinity
        or shape.host_ports
        or shape.volumes
        or shape.resource_claims
    )
