"""Holds what a command reads of its cluster, with what the settings say about disruption."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.cli.cluster_events import DecisionEvent
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.operator.settings import Settings

__all__ = ["CommandInput", "input_with_settings", "log_to_stderr"]


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


def input_with_settings(cluster: ClusterInput, settings: Settings) -> CommandInput:
    """Return the input of a command with what the settings say about disruption."""
    return CommandInput(
        cluster=cluster,
        spot_to_spot=settings.feature_gates.spot_to_spot_consolidation,
        static_capacity=settings.feature_gates.static_capacity,
        is_paused=settings.pause_disruption,
    )


def log_to_stderr() -> None:
    """Keep logs of providers out of the results."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
