"""Builds the scheduling problem of disruption, with the movable pods.

`scheduling.whatif.what_if.WhatIf` takes the result. Waiting pods are pending in it; pods on nodes
that stay are on those nodes, and pods of nodes that are being removed are pending too.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.state.default_spread import DefaultSpread
from karpenter_core.state.expendable_pods import expendable_reason
from karpenter_core.state.node_memory import MovablePods, NodeMemory
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_rules import may_be_protected
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.state.request_predictions import RequestPredictions
from karpenter_core.state.state_nodes import state_node_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes, SchedulingProblem
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["build_disruption_problem"]

DISRUPTION_STEP: Final = "disruption"
_NAME: Final[Callable[[ExistingNode], str]] = attrgetter("name")
_UIDS: Final[Callable[[MovablePods], frozenset[str]]] = attrgetter("uids")
_VOLUMES: Final[Callable[[MovablePods], Mapping[str, PodVolumes]]] = attrgetter("volumes")


def build_disruption_problem(
    snapshot: Snapshot,
    *,
    now: datetime,
    problem_settings: ProblemSettings | None,
    failed: FailedJudgements | None = None,
    memory: NodeMemory | None = None,
    moves_expendable: bool = False,
) -> tuple[SchedulingProblem, Mapping[str, frozenset[str]]]:
    """Return the problem of a pass, and the UIDs of the movable pods of each node.

    Movable are pods that would be evicted and created again elsewhere: not those of DaemonSets,
    nor those that are protected now or for ever, nor expendable ones, which need no other place. The
    others stay until their node is gone. With `moves_expendable` expendable ones are movable too. Nodes
    that cannot be evaluated are added to `failed`; they and their pods stay as they are. `memory` is
    that of earlier passes.
    """
    problem_settings, failed = problem_settings or ProblemSettings(), failed or FailedJudgements()
    memory = memory or NodeMemory()
    asking = build_provisioning_input(
        snapshot, now=now, problem_settings=problem_settings, memory=memory
    )
    for item in asking.set_aside:
        failed.add(item)
    names = map(_NAME, asking.problem.nodes)
    state_nodes = dict(zip(names, asking.state_nodes, strict=False))
    for name in [name for name, each in state_nodes.items() if each.claim is None]:
        del state_nodes[name]
    cutoff = None if moves_expendable else problem_settings.priority_cutoff
    found = _movable_pods(
        snapshot, state_nodes, problem_settings, memory, now=now, failed=failed, cutoff=cutoff
    )
    movable = dict(zip(found, map(_UIDS, found.values()), strict=True))
    volumes = dict(asking.problem.volumes)
    for asked in filter(None, map(_VOLUMES, found.values())):
        volumes.update(asked)
    problem = _with_covered_pods(replace(asking.problem, volumes=volumes), movable)
    predictions = RequestPredictions(snapshot, now)
    if not (problem_settings.default_spread or predictions):
        return problem, movable
    spread = DefaultSpread(snapshot, problem_settings.default_spread)
    nodes: list[ExistingNode] = []
    for node in problem.nodes:
        changed, moving = node, movable.pop(node.name, None)
        if moving is not None:
            with failed.judging(state_node_ref(state_nodes[node.name]), DISRUPTION_STEP):
                pods = tuple(
                    spread.apply(predictions.apply(pod)) if pod.uid in moving else pod
                    for pod in node.pods
                )
                changed, movable[node.name] = replace(node, pods=pods), moving
        nodes.append(changed)
    return replace(problem, nodes=tuple(nodes)), movable


def _with_covered_pods(
    problem: SchedulingProblem, movable: dict[str, frozenset[str]]
) -> SchedulingProblem:
    """Let covered virtual pods be on their nodes, from where they move like others."""
    if not problem.covered_pods:
        return problem
    nodes: list[ExistingNode] = []
    for node in problem.nodes:
        covered = problem.covered_pods.get(node.name, ())
        if covered and node.name in movable:
            movable[node.name] |= {pod.uid for pod in covered}
        nodes.append(replace(node, pods=(*node.pods, *covered)) if covered else node)
    return replace(problem, nodes=tuple(nodes))


def _movable_pods(
    snapshot: Snapshot,
    state_nodes: Mapping[str, StateNode],
    problem_settings: ProblemSettings,
    memory: NodeMemory,
    *,
    now: datetime,
    failed: FailedJudgements,
    cutoff: int | None,
) -> dict[str, MovablePods]:
    """Return the movable pods of nodes by name, without nodes that cannot be evaluated.

    Expendable pods, of a priority below `cutoff`, are not movable; None: they are.
    """
    volumes = problem_settings.volume_reader(snapshot)
    budgets = PodBudgets(snapshot.disruption_budgets.values())

    def read(state_node: StateNode) -> MovablePods:
        moving = [
            pod
            for pod in state_node.pods
            if budgets.is_reschedulable_now(pod, now)
            and (cutoff is None or not expendable_reason(pod.shape, cutoff))
        ]
        asked = {pod.uid: volumes.volumes_to_move(pod) for pod in moving if pod.shape.volumes}
        return MovablePods(
            uids=frozenset([pod.uid for pod in moving]),
            volumes={uid: found for uid, found in asked.items() if found is not None},
            is_timed=any(pod.shape.volumes or may_be_protected(pod) for pod in state_node.pods),
        )

    try:
        found = memory.movable_pods(
            tuple(state_nodes.values()), read, equal=(budgets.permanent_terms, cutoff)
        )
        return dict(zip(state_nodes, found, strict=True))
    except Exception:
        sound: dict[str, MovablePods] = {}
        for name, state_node in state_nodes.items():
            with failed.judging(state_node_ref(state_node), DISRUPTION_STEP):
                sound[name] = read(state_node)
        return sound
