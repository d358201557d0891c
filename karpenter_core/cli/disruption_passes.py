"""Makes disruption passes for commands, as the controller makes its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.disruption.method import DisruptionOptions, DisruptionPass
from karpenter_core.scheduling.isolation import solve_isolated
from karpenter_core.state.virtual_pods import count_virtual_pods

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["count_virtual", "disruption_pass"]


def disruption_pass(
    command_input: CommandInput, snapshot: Snapshot, *, now: datetime, command_id: str
) -> DisruptionPass:
    """Return a pass over a snapshot of the cluster, with the settings of the command."""
    cluster = command_input.cluster
    return DisruptionPass(
        snapshot=snapshot,
        now=now,
        command_id=command_id,
        options=DisruptionOptions(
            problem_settings=cluster.problem_settings,
            solve=cluster.options,
            spot_to_spot=command_input.spot_to_spot,
            static_capacity=command_input.static_capacity,
            paused=command_input.is_paused,
        ),
    )


def count_virtual(cluster: ClusterInput) -> ClusterInput:
    """Return the cluster with the places of virtual pods, which a pass finds; nothing without any."""
    if not cluster.snapshot.has_virtual_pods:
        return cluster
    plan = solve_isolated(cluster.input.problem, cluster.options)
    counts = count_virtual_pods(cluster.snapshot, plan.existing)
    return replace(cluster, snapshot=replace(cluster.snapshot, virtual_pod_counts=counts))
