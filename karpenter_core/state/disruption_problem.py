"""Builds the scheduling problem of disruption, with the movable pods.

`scheduling.whatif.what_if.WhatIf` takes the result. Waiting pods are pending in it; pods on nodes
that stay are on those nodes, and pods of nodes that are being removed are pending too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.state.default_spread import DefaultSpread
from karpenter_core.state.expendable_pods import expendable_reason
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_volumes import PodVolumeReader
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.state.request_predictions import RequestPredictions
from karpenter_core.state.state_nodes import state_node_ref

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes, SchedulingProblem
    from karpenter_core.state.node_memory import NodeMemory
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["build_disruption_problem"]

DISRUPTION_STEP: Final = "disruption"


def build_disruption_problem(
    snapshot: Snapshot,
    *,
    now: datetime,
    problem_settings: ProblemSettings | None = None,
    failed: FailedJudgements | None = None,
    memory: NodeMemory | None = None,
) -> tuple[SchedulingProblem, Mapping[str, frozenset[str]]]:
    """Return the problem of a pass, and the UIDs of the movable pods of each node.

    Movable are pods that would be evicted and created again elsewhere: not those of DaemonSets,
    nor those that are protected now or for ever, nor expendable ones, which need no other place. The
    others stay until their node is gone. Nodes
    that cannot be evaluated are added to `failed`; they and their pods stay as they are. `memory` is
    that of earlier passes.
    """
    problem_settings, failed = problem_settings or ProblemSettings(), failed or FailedJudgements()
    asking = build_provisioning_input(
        snapshot, now=now, problem_settings=problem_settings, memory=memory
    )
    problem = asking.problem
    for item in asking.set_aside:
        failed.add(item)
    volumes = PodVolumeReader(
        snapshot,
        aliases=problem_settings.aliases,
        value_aliases=problem_settings.value_aliases,
        unsupported=problem_settings.unsupported_volumes,
    )
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    predictions = RequestPredictions(snapshot)
    spread = DefaultSpread(snapshot, problem_settings.default_spread)
    movable: dict[str, frozenset[str]] = {}
    nodes: list[ExistingNode] = []
    volumes_by_pod = dict(problem.volumes)
    for node in problem.nodes:
        state_node = None if node.closed else snapshot.state_node(node.name)
        if state_node is None or state_node.claim is None:
            nodes.append(node)
            continue
        leaving: dict[str, PodView] = {}
        wishes: dict[str, PodVolumes] = {}
        with failed.judging(state_node_ref(state_node), DISRUPTION_STEP):
            for pod in state_node.pods:
                if not budgets.is_reschedulable_now(pod, now):
                    continue
                if expendable_reason(pod.shape, problem_settings.priority_cutoff):
                    continue
                leaving[pod.uid] = spread.apply(predictions.apply(pod))
                if (pod_volumes := volumes.pod_volumes(pod)) is not None:
                    wishes[pod.uid] = pod_volumes
            movable[node.name] = frozenset(leaving)
        if node.name not in movable:
            nodes.append(node)
            continue
        volumes_by_pod.update(wishes)
        spreading = tuple(leaving.get(pod.uid, pod) for pod in node.pods)
        is_changed = bool(problem_settings.default_spread or predictions)
        nodes.append(replace(node, pods=spreading) if is_changed else node)
    return replace(problem, nodes=tuple(nodes), volumes=volumes_by_pod), movable
