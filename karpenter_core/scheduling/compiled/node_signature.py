"""Describes existing nodes that are alike in everything that pods refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from karpenter_core.scheduling.ports import first_port_conflict
from karpenter_core.scheduling.taints import first_untolerated

if TYPE_CHECKING:
    from karpenter_core.api.records import HostPort, Taint
    from karpenter_core.scheduling.compiled.pod_classes import NodeConstraints
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["NodeSignature"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSignature:
    """Existing nodes that are alike in everything that pods refer to."""

    requirements: Requirements
    taints: tuple[Taint, ...]
    host_ports: tuple[HostPort, ...]
    undecided: frozenset[str] | None = None
    """For a claim whose instance type is open: labels that may still appear."""

    def admits(self, node_constraints: NodeConstraints) -> bool:
        """Whether pods with these constraints may run here."""
        if first_untolerated(self.taints, node_constraints.tolerations) is not None:
            return False
        if first_port_conflict(node_constraints.host_ports, self.host_ports) is not None:
            return False
        return any(self.has_labels(alternative) for alternative in node_constraints.alternatives)

    def has_labels(self, requirements: Requirements) -> bool:
        """Whether the labels meet requirements, whatever is not decided yet."""
        if self.undecided is None:
            return self.requirements.compatible(requirements)
        return self.requirements.guarantees(requirements, undecided=self.undecided)
