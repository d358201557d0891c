"""Describes the labels of the nodes that match expressions select together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.scheduling.requirements.requirement import ABSENCE_OPERATORS, Requirement
from karpenter_core.scheduling.requirements.requirement_set import Requirements

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

__all__ = ["NodeLabels"]


@dataclass(frozen=True, slots=True)
class NodeLabels:
    """The labels of nodes that match expressions select.

    Labels that are `present` must be there, and `requirements` only say what they are not: `Exists` or
    `Gt`, and `NotIn`, are `NotIn` by upstream's algebra, which a node without the label meets.
    """

    requirements: Requirements
    present: frozenset[str]

    @classmethod
    def of(cls, requirements: Sequence[Requirement]) -> NodeLabels | None:
        """Return what all requirements select; None where two of them exclude each other."""
        met = Requirements.all_of(requirements)
        if met is None:
            return None
        present = frozenset(
            r.key
            for r in requirements
            if _requires_label(r) and met.get(r.key).operator in ABSENCE_OPERATORS
        )
        return cls(met, present)

    def select(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with exactly these labels is selected."""
        return self.present <= labels.keys() and all(
            requirement.operator in ABSENCE_OPERATORS
            if (value := labels.get(key)) is None
            else requirement.has(value)
            for key, requirement in self.requirements.items()
        )

    def may_select(self, node: Requirements, *, allow_undefined: Container[str]) -> bool:
        """Whether a node to come that these requirements describe may be selected.

        It may still get the labels in `allow_undefined` (`Requirements.compatible`).
        """
        return node.compatible(self.requirements, allow_undefined=allow_undefined) and all(
            key in allow_undefined or key in node for key in self.present
        )


def _requires_label(requirement: Requirement) -> bool:
    """Whether a node without the label does not meet a requirement."""
    if requirement.gte is not None or requirement.lte is not None:
        return True
    return requirement.operator in {"In", "Exists"}
