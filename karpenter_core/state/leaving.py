"""The question of disruption: the cluster as a pass would see it, and which pods may leave a node.

`scheduling.whatif.what_if.WhatIf` is made of what this returns. Pods that wait are in it as pending; pods
on machines that stay are there, and those of machines on their way out look for places already.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.state.default_spread import DefaultSpread
from karpenter_core.state.machines import machine_ref
from karpenter_core.state.pod_budgets import PodBudgets
from karpenter_core.state.pod_volumes import Volumes
from karpenter_core.state.problem import Framing, scheduling_problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes, Problem
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["leaving_problem"]

STEP: Final = "disruption"


def leaving_problem(
    snapshot: Snapshot,
    *,
    now: datetime,
    framing: Framing | None = None,
    failed: FailedJudgements | None = None,
) -> tuple[Problem, Mapping[str, frozenset[str]]]:
    """Return the problem of a pass, and the UIDs of the pods that leave with each machine.

    Only pods leave that would be evicted and made anew elsewhere: none of DaemonSets, none that is
    protected now or for ever. The others stay until their machine is gone. What cannot be judged is
    told to `failed`; a machine of that kind stays as it is, and so do its pods.
    """
    framing, failed = framing or Framing(), failed or FailedJudgements()
    asking = scheduling_problem(snapshot, now=now, framing=framing)
    problem = asking.problem
    for item in asking.set_aside:
        failed.add(item)
    volumes = Volumes(snapshot, aliases=framing.aliases, unsupported=framing.unsupported_volumes)
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    spread = DefaultSpread(snapshot, framing.default_spread)
    movable: dict[str, frozenset[str]] = {}
    nodes: list[ExistingNode] = []
    asked = dict(problem.volumes)
    for node in problem.nodes:
        machine = None if node.closed else snapshot.state_node(node.name)
        if machine is None or machine.claim is None:
            nodes.append(node)
            continue
        leaving: dict[str, PodView] = {}
        wishes: dict[str, PodVolumes] = {}
        with failed.judging(machine_ref(machine), STEP):
            for pod in machine.pods:
                if not budgets.is_reschedulable_now(pod, now):
                    continue
                leaving[pod.uid] = spread.apply(pod)
                if (wanted := volumes.of(pod)) is not None:
                    wishes[pod.uid] = wanted
            movable[node.name] = frozenset(leaving)
        if node.name not in movable:
            nodes.append(node)
            continue
        asked.update(wishes)
        spreading = tuple(leaving.get(pod.uid, pod) for pod in node.pods)
        nodes.append(replace(node, pods=spreading) if framing.default_spread else node)
    return replace(problem, nodes=tuple(nodes), volumes=asked), movable
