"""Reads the pods that DaemonSets put on nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import ALIASES, PODS
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.compiled.relaxation import node_alternatives

if TYPE_CHECKING:
    from karpenter_core.api.records import PodShape, Resources
    from karpenter_core.scheduling.problem import SchedulingProblem
    from karpenter_core.scheduling.requirements import NodeLabels

__all__ = ["CompiledDaemon", "read_daemons"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledDaemon:
    """A DaemonSet's pod: `alternatives` are the labels of its terms, of which any may match."""

    name: str
    shape: PodShape
    requests: Resources
    alternatives: tuple[NodeLabels, ...]


def read_daemons(problem: SchedulingProblem) -> tuple[CompiledDaemon, ...]:
    """Read what the DaemonSets put on nodes; one that cannot be read runs nowhere."""
    aliases = {**ALIASES, **problem.aliases}
    daemons: list[CompiledDaemon] = []
    for daemon in sorted(problem.daemons, key=lambda daemon: daemon.name):
        try:
            alternatives = node_alternatives(daemon.shape, aliases=aliases)
        except BadInputError:
            continue
        daemons.append(
            CompiledDaemon(
                name=daemon.name,
                shape=daemon.shape,
                requests={PODS: 1, **daemon.shape.requests},
                alternatives=alternatives,
            )
        )
    return tuple(daemons)
