"""Puts pods on existing nodes, as plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import PODS
from karpenter_core.scheduling.problem import PodVolumes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, SchedulingProblem

__all__ = ["on_nodes_alone", "with_pods"]

_NO_VOLUMES: Final = PodVolumes()


def with_pods(
    node: ExistingNode, pods: Iterable[PodView], volumes: Mapping[str, PodVolumes]
) -> ExistingNode:
    """Return a node with more pods: their requests taken, their volumes attached."""
    added = tuple(pods)
    available, attached = dict(node.available), dict(node.volumes)
    for pod in added:
        for name, amount in _requests(pod):
            available[name] = available.get(name, 0) - amount
        for driver, claims in volumes.get(pod.uid, _NO_VOLUMES).attached.items():
            attached[driver] = attached.get(driver, frozenset()) | claims
    return replace(node, pods=(*node.pods, *added), available=available, volumes=attached)


def on_nodes_alone(
    problem: SchedulingProblem, pods: Iterable[PodView], nodes: Iterable[ExistingNode]
) -> SchedulingProblem:
    """Return the problem of pods that these nodes must have room for: no new node, no devices."""
    return replace(
        problem,
        pods=tuple(pods),
        pools=(),
        catalogues={},
        nodes=tuple(nodes),
        daemons=(),
        quotas=(),
        commitments=(),
        covered_pods={},
        devices=None,
        max_new_nodes=None,
    )


def _requests(pod: PodView) -> tuple[tuple[str, int], ...]:
    return (*((n, max(a, 0)) for n, a in pod.shape.requests.items() if n != PODS), (PODS, 1))
