"""Makes settings of scheduling problems from providers and features.

The controllers and the command line read clusters by the same settings, so that they plan alike.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, WELL_KNOWN
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.state.launch_limits import LaunchLimits
from karpenter_core.state.pod_volumes import UnsupportedVolumes
from karpenter_core.state.provisioning_input import ProblemSettings

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.api.records import TopologySpread
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import LabelClasses

__all__ = ["launch_limits_of", "problem_settings"]


def launch_limits_of(settings: Settings) -> LaunchLimits:
    """Return the limits of launches that a user has set."""
    return LaunchLimits(
        max_nodes_total=settings.max_nodes_total,
        launches_per_minute=settings.launches_per_minute,
        currency=settings.currency,
        exchange_rates=settings.exchange_rates,
    )


def problem_settings(
    labels: LabelClasses,
    groups: Collection[KindGroup],
    *,
    default_spread: tuple[TopologySpread, ...],
    priority_cutoff: int,
    launch_limits: LaunchLimits,
    commitments: tuple[Commitment, ...],
) -> ProblemSettings:
    """Return the settings; `launch_limits` get the labels of the core and the providers."""
    aliases = {**ALIASES, **labels.aliases}
    return ProblemSettings(
        well_known=labels.well_known,
        aliases=aliases,
        value_aliases=labels.value_aliases,
        default_spread=default_spread,
        unsupported_volumes=UnsupportedVolumes(
            topology_keys=labels.unsupported_topology_keys,
            provisioners=labels.unsupported_provisioners,
        ),
        serves_requests=KindGroup.REQUESTS in groups,
        priority_cutoff=priority_cutoff,
        launch_limits=replace(
            launch_limits, well_known=WELL_KNOWN | labels.well_known, aliases=aliases
        ),
        commitments=commitments,
        ignores_devices=KindGroup.DEVICES not in groups,
    )
