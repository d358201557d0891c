"""Describes existing nodes that are alike in everything that pods refer to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from karpenter_core.scheduling.ports import first_port_conflict
from karpenter_core.scheduling.requirements import Requirement
from karpenter_core.scheduling.taints import first_untolerated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
    is_planned: bool = False
    """Whether it is a claim of the same plan (`ExistingNode.is_planned`)."""

    def admits(self, node_constraints: NodeConstraints) -> bool:
        """Whether pods with these constraints may run here."""
        if first_untolerated(self.taints, node_constraints.tolerations) is not None:
            return False
        if first_port_conflict(node_constraints.host_ports, self.host_ports) is not None:
            return False
        return self.has_labels_of_any(node_constraints.alternatives)

    def has_labels_of_any(self, alternatives: Collection[Requirements]) -> bool:
        """Whether one of the alternatives is met, perhaps another one for each value of an open label."""
        if any(self.has_labels(one) for one in alternatives):
            return True
        return len(alternatives) > 1 and any(
            all(
                any(replace(self, requirements=decided).has_labels(one) for one in alternatives)
                for decided in self._decided(requirement)
            )
            for requirement in (() if self.undecided is None else self.requirements.values())
            if not requirement.complement and len(requirement.values) > 1
        )

    def _decided(self, requirement: Requirement) -> Iterable[Requirements]:
        """Yield the requirements once a label has one of the values that it may get."""
        for value in sorted(requirement.values):
            yield self.requirements.replace(Requirement.of(requirement.key, "In", [value]))

    def has_labels(self, requirements: Requirements) -> bool:
        """Whether the labels meet requirements, whatever is not decided yet."""
        if self.undecided is None:
            return self.requirements.compatible(requirements)
        return self.requirements.guarantees(requirements, undecided=self.undecided)
