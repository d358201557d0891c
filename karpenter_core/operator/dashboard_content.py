"""Declares the contents of the dashboard, and the facts they are made from.

The command line makes the contents, since `karpenter top` and `karpenter explain` have the code for
it; `operator.dashboard` keeps them fresh and serves them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.decisions import Decision
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.provisioning_input import ProblemSettings
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ClusterMoment", "DashboardContent", "Json", "Role"]

Json = dict[str, object]


class Role(StrEnum):
    """Roles of a process."""

    LEADER = "leader"
    STANDBY = "standby"
    OBSERVER = "observer"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ClusterMoment:
    """The cluster as a process knows it at one instant, and the settings it plans with."""

    snapshot: Snapshot
    now: datetime
    role: Role
    leader: str = ""
    """Identity of the leader, as far as it is known."""
    cluster_name: str = ""
    solve: SolveOptions
    problem_settings: ProblemSettings
    spot_to_spot: bool = False
    static_capacity: bool = False
    is_paused: bool = False
    problems: tuple[str, ...] = ()
    """Checks of the process's readiness that fail: what is shown may be old, or incomplete."""
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """By UID: why the last pass has not placed a pod."""


class DashboardContent(Protocol):
    """Makes the documents of the dashboard; pure functions, called in a thread."""

    def load(self) -> None:
        """Import what the documents need: the first one is asked for on the event loop."""
        ...

    def state(self, moment: ClusterMoment) -> Json:
        """Return the whole view; the list `nodes` has a `name` in each entry."""
        ...

    def decision(self, decision: Decision) -> Json:
        """Return the short form of a decision."""
        ...

    def pods_of(self, moment: ClusterMoment, node: str) -> Json:
        """Return the pods of a node.

        Raises:
            BadInputError: there is no such node.
        """
        ...

    def explain_node(self, moment: ClusterMoment, node: str) -> Json:
        """Return why a node is or is not disrupted.

        Raises:
            BadInputError: there is no such node.
        """
        ...

    def rebalance(self, moment: ClusterMoment) -> Json:
        """Return what one disruption pass would do now, and save."""
        ...

    def explain_pod(self, moment: ClusterMoment, pod: str) -> Json:
        """Return why a pod, as `namespace/name`, is placed or pending.

        Raises:
            BadInputError: there is no such pod.
        """
        ...
