"""The cluster that a command reads, with the settings of disruption."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.cli.cluster_events import DecisionEvent, PodRefusal
    from karpenter_core.cli.cluster_input import ClusterInput, PlanningContext
    from karpenter_core.kube.wire.kind_groups import KindGroup
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import LabelClasses
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["CommandInput", "context_of", "input_with_settings", "log_to_stderr", "recent_refusal"]

_REFUSAL_AGE: Final = timedelta(minutes=11)
"""The controller repeats the Event of a pod that it still refuses every 5 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CommandInput:
    """The cluster to plan for, and the same without the files if they were added to a live one."""

    cluster: ClusterInput
    before: ClusterInput | None = None
    is_live: bool = False
    spot_to_spot: bool = False
    """Whether the settings allow consolidation to replace spot nodes by spot nodes."""
    static_capacity: bool = True
    """Whether the settings have the feature gate StaticCapacity; taken as on without a cluster."""
    is_paused: bool = False
    """Whether the settings pause all disruption."""
    decisions: tuple[DecisionEvent, ...] = ()
    """The last decisions of the controller, the latest first; only if the source asks for them."""
    refusals: Mapping[str, PodRefusal] = field(default_factory=dict[str, "PodRefusal"])
    """Reasons why the controller has launched no node for pods, by namespace and name; likewise."""

    def refusal_of(self, pod: PodView) -> PodRefusal | None:
        """Return why the controller has launched no node for a pod, if that is recent.

        What it says is about the cluster without added files.
        """
        if self.before is not None:
            return None
        return recent_refusal(self.refusals, pod, self.cluster.snapshot, now=self.cluster.now)


def recent_refusal(
    refusals: Mapping[str, PodRefusal], pod: PodView, snapshot: Snapshot, *, now: datetime
) -> PodRefusal | None:
    """Return why the controller has launched no node for a pod.

    None if there is no refusal, if it is old or of an earlier pod of this name, or if what a later pass has
    chosen for the pod still exists.
    """
    found = refusals.get(pod.key)
    if found is None or now - found.at > _REFUSAL_AGE:
        return None
    if pod.created is not None and found.at < pod.created:
        return None
    known = (snapshot.node_claims, snapshot.nodes)
    return None if any(name in each for name in found.later_targets for each in known) else found


def input_with_settings(cluster: ClusterInput, settings: Settings) -> CommandInput:
    """Return the input of a command with what the settings say about disruption."""
    return CommandInput(
        cluster=cluster,
        spot_to_spot=settings.feature_gates.spot_to_spot_consolidation,
        static_capacity=settings.feature_gates.static_capacity,
        is_paused=settings.pause_disruption,
    )


def context_of(
    settings: Settings,
    *,
    now: datetime,
    options: SolveOptions,
    labels: LabelClasses,
    groups: Collection[KindGroup],
) -> PlanningContext:
    """Return the context in which the controller with these settings would plan."""
    from karpenter_core.cli.cluster_input import PlanningContext
    from karpenter_core.operator.problem_settings import launch_limits_of

    return PlanningContext(
        now=now,
        options=options,
        labels=labels,
        groups=groups,
        default_spread=settings.scheduler_config,
        priority_cutoff=settings.priority_cutoff,
        commitments=settings.commitments,
        launch_limits=launch_limits_of(settings),
    )


def log_to_stderr() -> None:
    """Keep logs of providers out of the results."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
